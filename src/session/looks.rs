//! Colours and characters that suit this terminal.

use crate::palette::Palette;
use crate::session::Background;
use crate::session::Colours;
use crate::session::Looks;
use crate::session::PaletteName;
use crate::session::config;
use crate::ui::ColourMode;
use crate::ui::Depth;
use crate::ui::Theme;

/// Returns the theme, chosen by the options, the configuration file, the environment and the terminal itself, in this order. Call it before
/// the screen takes over the terminal, and before a command reads from the terminal.
pub(super) fn theme(looks: &Looks, settings: &config::Settings) -> Theme {
    let environment = |name: &str| std::env::var(name).ok();
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default().to_ascii_lowercase();
    let utf8 = locale.contains("utf-8") || locale.contains("utf8");
    let color = if looks.color == Colours::Auto { settings.color.unwrap_or(Colours::Auto) } else { looks.color };
    let depth = match color {
        Colours::Auto => Depth::from_environment(environment),
        Colours::Never => Depth::None,
        Colours::Sixteen => Depth::Sixteen,
        Colours::Indexed => Depth::Indexed,
        Colours::True => Depth::True,
    };
    let ground = if looks.theme == Background::Auto { settings.theme.unwrap_or(Background::Auto) } else { looks.theme };
    let dark = match ground {
        Background::Dark => true,
        Background::Light => false,
        // Without colours the background makes no difference.
        Background::Auto if depth == Depth::None => true,
        Background::Auto => match set("COLORFGBG") {
            // `15;0` means foreground and background, as rxvt, Konsole and others set it. 7 and 15 are light backgrounds.
            Some(value) => !matches!(value.rsplit(';').next(), Some("7" | "15")),
            None => crate::ui::has_dark_background().unwrap_or(true),
        },
    };
    let palette = palette_of(looks.palette.or(settings.palette));
    Theme { depth, dark, ascii: looks.ascii || settings.ascii || !utf8, mode: ColourMode::Kind, palette }
}

/// Returns the palette of this name, or the default palette.
pub(super) fn palette_of(name: Option<PaletteName>) -> Palette {
    match name {
        Some(PaletteName::ColourBlind) => Palette::ColourBlind,
        Some(PaletteName::Standard) | None => Palette::Standard,
    }
}
