//! Methods: class, name, parameters, file and lines.

use super::layout::{Layout, SourceFile};
use super::lines::Lines;
use crate::runtimes::Memory;

/// Bytes of a name that are read. Longer names are cut off.
pub const MAX_NAME: u64 = 1024;
/// Bytes of a table of lines that are read.
const MAX_LINES: u64 = 16 << 10;

/// A method of Java.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Method {
    /// Its class: `java.util.HashMap$Node`. A hidden class has the name of its host: `Busy$$Lambda`.
    pub class: String,
    /// Its name: `get`, `<init>`.
    pub name: String,
    /// The types of its parameters, without packages: `(Object, int[])`.
    pub parameters: String,
    /// Its file, in the folders of its package: `java/util/HashMap.java`. Empty if the class does not tell it.
    pub file: String,
    /// The lines of its instructions.
    pub lines: Lines,
}

impl Method {
    /// Returns a number that tells a method from another one that takes its address, after its class was unloaded.
    pub fn check(memory: &impl Memory, layout: &Layout, method: u64) -> Option<u32> {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let constant = layout.const_method.of(memory, method)?;
        let [constants, words] =
            [layout.constants.offset, layout.code_size.offset & !7].map(|offset| memory.u64(constant.checked_add(offset)?));
        let mix = [constant, constants?, words?].into_iter().fold(0u64, |mix, word| (mix ^ word).wrapping_mul(FACTOR));
        Some((mix >> 32) as u32)
    }

    /// Reads a method. Returns `None` if it cannot be read.
    pub fn read(memory: &impl Memory, layout: &Layout, method: u64) -> Option<Method> {
        let constant = layout.const_method.of(memory, method)?;
        let pool = layout.constants.of(memory, constant)?;
        let holder = layout.holder.of(memory, pool)?;
        let named = |index: u64| {
            let at = pool.checked_add(layout.pool_size)?.checked_add(index.checked_mul(8)?)?;
            // Bit 0 marks names that are not of the class file.
            symbol(memory, layout, memory.u64(at)? & !1)
        };
        let class = symbol(memory, layout, layout.class_name.of(memory, holder)?)?;
        let name = named(layout.name_index.of(memory, constant)?)?;
        let signature = named(layout.signature_index.of(memory, constant)?)?;
        let file = match layout.source_file_index {
            SourceFile::InPool(field) => field.of(memory, pool)?,
            SourceFile::InClass(field) => field.of(memory, holder)?,
        };
        let file = if file == 0 { None } else { named(file) };
        let file = file.map(|file| class.rsplit_once('/').map_or(file.clone(), |(package, _)| format!("{package}/{file}")));
        let lines = lines(memory, layout, constant).unwrap_or_default();
        Some(Method {
            class: class_name(&class),
            name,
            parameters: parameters(&signature),
            file: file.unwrap_or_default(),
            lines,
        })
    }

    /// Returns the bytes of memory that it takes.
    pub fn size(&self) -> usize {
        let texts = [&self.class, &self.name, &self.parameters, &self.file];
        size_of::<Method>() - size_of::<Lines>() + texts.map(String::len).iter().sum::<usize>() + self.lines.size()
    }
}

fn lines(memory: &impl Memory, layout: &Layout, constant: u64) -> Option<Lines> {
    /// The bit that says that there is a table of lines, in all versions.
    const HAS_LINES: u64 = 1;
    if layout.flags.of(memory, constant)? & HAS_LINES == 0 {
        return None;
    }
    let begin = constant.checked_add(layout.const_method_size)?.checked_add(layout.code_size.of(memory, constant)?)?;
    let mut bytes = Vec::new();
    // It ends with a zero byte; nothing tells its length.
    while (bytes.len() as u64) < MAX_LINES && !bytes.contains(&0) {
        let at = begin.checked_add(bytes.len() as u64)?;
        let size = 256 - at % 256;
        bytes.extend(memory.bytes(at, size, 256)?);
    }
    Some(Lines::parse(&bytes, layout.version))
}

/// Reads a Symbol.
fn symbol(memory: &impl Memory, layout: &Layout, symbol: u64) -> Option<String> {
    let length = layout.symbol_length.of(memory, symbol)?.min(MAX_NAME);
    let bytes = memory.bytes(symbol.checked_add(layout.symbol_body.offset)?, length, MAX_NAME)?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the name of a class as people write it. The JVM appends a number to the name of a hidden class: `A$$Lambda$14/0x0000000800c02000`,
/// `A$$Lambda+0x00007f12a4001000`.
fn class_name(name: &str) -> String {
    let number = |at: usize| name.get(at + 1..).is_some_and(|rest| rest.starts_with("0x"));
    let end = name.rfind(['/', '+']).filter(|at| number(*at)).unwrap_or(name.len());
    let name = name.get(..end).unwrap_or(name);
    let digits = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_numbered = end != name.len() || digits.ends_with("$$Lambda$");
    let name = if is_numbered { digits.trim_end_matches('$') } else { name };
    name.replace('/', ".")
}

/// Returns the types of parameters of a signature: `(Ljava/lang/Object;[I)V` has `(Object, int[])`.
fn parameters(signature: &str) -> String {
    let mut rest = signature.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or("", |(types, _)| types);
    let mut types: Vec<String> = Vec::new();
    while !rest.is_empty() {
        let inner = rest.trim_start_matches('[');
        let arrays = rest.len() - inner.len();
        let Some(first) = inner.chars().next() else { break };
        let (name, after) = match first {
            'L' => {
                let (class, after) = inner.split_once(';').unwrap_or((inner, ""));
                let class = class.get(1..).unwrap_or_default();
                let class = class_name(class);
                (class.rsplit('.').next().unwrap_or_default().to_owned(), after)
            }
            letter => (primitive(letter).to_owned(), inner.get(letter.len_utf8()..).unwrap_or_default()),
        };
        types.push(name + &"[]".repeat(arrays));
        rest = after;
    }
    format!("({})", types.join(", "))
}

fn primitive(letter: char) -> &'static str {
    match letter {
        'B' => "byte",
        'C' => "char",
        'D' => "double",
        'F' => "float",
        'I' => "int",
        'J' => "long",
        'S' => "short",
        'Z' => "boolean",
        _ => "?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_the_names_that_people_write() {
        for (name, class) in [
            ("java/util/HashMap$Node", "java.util.HashMap$Node"),
            ("Busy$$Lambda$14/0x0000000800c02000", "Busy$$Lambda"),
            ("Busy$$Lambda+0x00007f12a4001000", "Busy$$Lambda"),
            ("java/lang/invoke/LambdaForm$DMH+0x000000002406c000", "java.lang.invoke.LambdaForm$DMH"),
            ("Busy$$Lambda$14", "Busy$$Lambda"),
            ("Vector3", "Vector3"),
            ("Busy$1", "Busy$1"),
        ] {
            assert_eq!(class_name(name), class);
        }
    }

    #[test]
    fn parameters_have_short_types() {
        for (signature, shown) in [
            ("()V", "()"),
            ("(Ljava/util/HashMap;I)V", "(HashMap, int)"),
            ("([[Ljava/lang/String;[JZ)Ljava/lang/Object;", "(String[][], long[], boolean)"),
            ("(BCDFIJSZ)V", "(byte, char, double, float, int, long, short, boolean)"),
            ("", "()"),
            ("(L", "()"),
            ("(Lx)", "(x)"),
            ("(é[)", "(?)"),
        ] {
            assert_eq!(parameters(signature), shown, "{signature}");
        }
    }
}
