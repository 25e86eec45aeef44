//! The configuration file: keys, and the look of the screen. It is TOML, because mistakes in TOML can be reported with their line.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::cli::{self, Background, Colours, PaletteName};
use crate::profile::sanitize;
use crate::ui::KeyMap;

/// Largest file that is read. No real configuration is that long, and a device or a wrong file must not be read to its end.
const MAX_SIZE: u64 = 1 << 20;

/// The settings of the configuration file; the default settings without a file.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) keys: KeyMap,
    pub(super) theme: Option<Background>,
    pub(super) color: Option<Colours>,
    pub(super) palette: Option<PaletteName>,
    pub(super) ascii: bool,
}

/// Reads the given file, or the file at its usual place if there is one.
pub(super) fn load(asked: Option<&Path>) -> Result<Settings> {
    let (path, mut file) = match asked {
        Some(path) => {
            let file = File::open(path).with_context(|| format!("failed to open the configuration file {}", path.display()))?;
            (path.to_owned(), file)
        }
        None => {
            let Some(path) = usual_place(|name| std::env::var_os(name).map(PathBuf::from)) else {
                return Ok(Settings::default());
            };
            match File::open(&path) {
                Ok(file) => (path, file),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Settings::default()),
                Err(error) => {
                    return Err(error).with_context(|| format!("failed to open the configuration file {}", path.display()));
                }
            }
        }
    };
    let shown = path.display();
    if file.metadata().is_ok_and(|about| about.is_dir()) {
        bail!("the configuration file {shown} is a directory");
    }
    let mut text = String::new();
    let read = file.by_ref().take(MAX_SIZE + 1).read_to_string(&mut text);
    read.with_context(|| format!("failed to read the configuration file {shown}"))?;
    if text.len() as u64 > MAX_SIZE {
        bail!("the configuration file {shown} is larger than a megabyte; is it the right one?");
    }
    understood(&shown, &text)
}

/// Parses the settings in a file's text. An error names the file and the line.
pub(super) fn understood(shown: &impl fmt::Display, text: &str) -> Result<Settings> {
    parse(text).map_err(|mistake| {
        let before = text.get(..mistake.at.start).unwrap_or(text);
        let line = 1 + before.bytes().filter(|byte| *byte == b'\n').count();
        anyhow::anyhow!("{shown}, line {line}: {}", sanitize(&mistake.why))
    })
}

/// Returns `$XDG_CONFIG_HOME/flametop/config.toml`, or the same file below `~/.config`. The XDG Base Directory Specification says to ignore
/// a relative `$XDG_CONFIG_HOME`.
fn usual_place(get: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name: &str| get(name).filter(|path| path.is_absolute());
    let directory = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    Some(directory.join("flametop/config.toml"))
}

/// A mistake in the text, and its place.
#[derive(Debug)]
struct Mistake {
    at: Range<usize>,
    why: String,
}

fn wrong<T>(at: Range<usize>, why: impl fmt::Display) -> Result<T, Mistake> {
    Err(Mistake { at, why: why.to_string() })
}

fn parse(text: &str) -> Result<Settings, Mistake> {
    let table = DeTable::parse(text)
        .map_err(|error| Mistake { at: error.span().unwrap_or_default(), why: error.message().replace('\n', "; ") })?;
    let mut settings = Settings::default();
    for (key, value) in table.get_ref().iter() {
        match &**key.get_ref() {
            "keys" => rebind(&mut settings.keys, value)?,
            "theme" => settings.theme = Some(choice(key.get_ref(), value)?),
            "color" => settings.color = Some(choice(key.get_ref(), value)?),
            "palette" => settings.palette = Some(choice(key.get_ref(), value)?),
            "ascii" => match value.get_ref().as_bool() {
                Some(ascii) => settings.ascii = ascii,
                None => return wrong(value.span(), "`ascii` must be true or false"),
            },
            other => {
                return wrong(
                    key.span(),
                    format!("unknown setting `{other}`; the settings are keys, theme, color, palette and ascii"),
                );
            }
        }
    }
    Ok(settings)
}

fn choice<T: cli::Choice>(key: &str, value: &Spanned<DeValue<'_>>) -> Result<T, Mistake> {
    let text = value.get_ref().as_str().unwrap_or_default();
    cli::choice(text).or_else(|values| wrong(value.span(), format!("`{key}` must be one of \"{}\"", values.join("\", \""))))
}

/// Reads `[keys]`: each entry has an action's name, and a key or a list of keys.
fn rebind(keys: &mut KeyMap, value: &Spanned<DeValue<'_>>) -> Result<(), Mistake> {
    let Some(table) = value.get_ref().as_table() else {
        return wrong(value.span(), "`keys` must be a table: [keys], then lines such as quit = \"q\"");
    };
    // In the order of the file: if two lines want the same key, the second one is reported.
    let mut lines: Vec<_> = table.iter().collect();
    lines.sort_by_key(|(name, _)| name.span().start);
    for (name, value) in lines {
        let mut wanted = Vec::new();
        match (value.get_ref().as_str(), value.get_ref().as_array()) {
            (Some(one), _) => wanted.push(one.to_owned()),
            (None, Some(several)) => {
                for one in several.iter() {
                    let Some(text) = one.get_ref().as_str() else {
                        return wrong(one.span(), "a key must be a string, such as \"q\"");
                    };
                    wanted.push(text.to_owned());
                }
            }
            _ => return wrong(value.span(), "write a key as \"q\", several as [\"q\", \"Ctrl-Q\"], none as []"),
        }
        keys.rebind(name.get_ref(), &wanted).or_else(|why| wrong(name.span(), why))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_looked_for_where_the_specification_says() {
        let place = |xdg: &str, home: &str| {
            let of = |text: &str| Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty());
            usual_place(|name| if name == "HOME" { of(home) } else { of(xdg) })
        };
        assert_eq!(place("/x", "/root"), Some("/x/flametop/config.toml".into()));
        assert_eq!(place("", "/root"), Some("/root/.config/flametop/config.toml".into()));
        assert_eq!(place("relative", "/root"), Some("/root/.config/flametop/config.toml".into()));
        assert_eq!(place("", ""), None);
    }

    #[test]
    fn settings_are_read() {
        let text = "palette = 'colour-blind'\ntheme = \"light\"\ncolor = \"256\"\nascii = true\n[keys]\nquit = []\nbottom = ['G', 'ctrl-e']\n";
        let settings = parse(text).unwrap();
        assert_eq!((settings.theme, settings.color), (Some(Background::Light), Some(Colours::Indexed)));
        assert_eq!((settings.palette, settings.ascii), (Some(PaletteName::ColourBlind), true));
        assert_eq!(settings.keys.keys_of(crate::ui::Action::Bottom).collect::<Vec<_>>(), ["G", "Ctrl-E"]);
        assert_eq!(parse("# nothing\n").unwrap().palette, None);
    }

    #[test]
    fn each_mistake_is_told_with_its_line_in_one_sentence() {
        let cases = [
            ("[keys]\nquit = \"q\"\nqiut = \"x\"\n", 3, "unknown action `qiut`; did you mean `quit`?"),
            ("[keys]\n\nquit = \"Crtl-Q\"\n", 3, "no key is called `Crtl-Q`"),
            ("[keys]\nquit = \"x\"\nbottom = \"x\"\n", 3, "`x` is the key of quit already"),
            ("[keys]\nquit = 5\n", 2, "write a key as \"q\""),
            ("[keys]\nquit = [\"a\", 5]\n", 2, "a key must be a string"),
            ("[keys]\nsearch = \"Ctrl-C\"\n", 2, "Ctrl-C always quits"),
            ("keys = 3\n", 1, "`keys` must be a table"),
            ("\ntheme = \"dusk\"\n", 2, "`theme` must be one of \"auto\", \"dark\", \"light\""),
            ("ascii = \"yes\"\n", 1, "`ascii` must be true or false"),
            ("colour = \"256\"\n", 1, "unknown setting `colour`"),
            ("a = 1\nb = = 2\n", 2, ""),
            ("[keys]\nquit = \"q\n", 2, ""),
        ];
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        for (text, line, part) in cases {
            std::fs::write(&path, text).unwrap();
            let said = format!("{:#}", load(Some(&path)).unwrap_err());
            let start = format!("{}, line {line}: ", path.display());
            assert!(said.starts_with(&start) && said.contains(part) && !said.contains('\n'), "{text:?}: {said}");
        }
        let said = format!("{:#}", load(Some(directory.path())).unwrap_err());
        assert!(said.ends_with("is a directory"), "{said}");
        let said = format!("{:#}", load(Some(&directory.path().join("none"))).unwrap_err());
        assert!(said.contains("failed to open the configuration file") && said.contains("none: No such file"), "{said}");
        let said = format!("{:#}", load(Some(Path::new("/dev/zero"))).unwrap_err());
        assert!(said.contains("larger than a megabyte"), "{said}");
    }
}
