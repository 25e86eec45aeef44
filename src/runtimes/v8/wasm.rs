//! Modules of WebAssembly.
//!
//! ```text
//! frame ─► instance, from V8 12 on through its trusted part ─► WasmModuleObject ─► Script ─► wasm://wasm/NAME-HASH
//! ```
//!
//! V8 exports the types of these objects, but not where their fields are. So each is searched for an object of the next type.

use super::heap::Heap;
use crate::runtimes::Memory;

/// Words of an object that are searched, without the first one.
const WORDS_OF_INSTANCE: u64 = 64;
const WORDS_OF_OTHERS: u64 = 16;
/// Characters of a script's name that are read.
const MAX_NAME: u32 = 256;
/// What the names of scripts begin with.
const BEGIN: &str = "wasm://wasm/";
/// Digits of the hash at the end of such a name.
const DIGITS: usize = 8;

/// Returns the name that the functions of a module have: `(WebAssembly NAME)`. `instance` is what a frame has.
pub(super) fn module<M: Memory>(heap: &Heap<'_, M>, instance: u64) -> Option<String> {
    let kind = heap.layout.type_module?;
    let module = find(heap, instance, WORDS_OF_INSTANCE, kind).or_else(|| {
        let untrusted = find(heap, instance, WORDS_OF_INSTANCE, heap.layout.type_instance?)?;
        find(heap, untrusted, WORDS_OF_OTHERS, kind)
    })?;
    let script = find(heap, module, WORDS_OF_OTHERS, heap.layout.type_script)?;
    let file = heap.text(heap.field(script, heap.layout.script_name)?, MAX_NAME)?;
    Some(format!("(WebAssembly {})", name_of(&file)))
}

/// Returns the name of the function of JavaScript that a module exports: V8 calls it by its number.
pub(super) fn exported(number: &str, script: &str) -> Option<String> {
    let is_exported = script.starts_with(BEGIN) && number.parse::<u32>().is_ok();
    is_exported.then(|| format!("wasm-function[{number}]"))
}

/// Returns the name of a module, or the digits by which it is known if it has none.
fn name_of(script: &str) -> &str {
    let name = script.strip_prefix(BEGIN).unwrap_or(script);
    match name.rsplit_once('-') {
        Some((name, digits)) if digits.len() == DIGITS && !name.is_empty() => name,
        _ => name,
    }
}

/// Returns the first object of a type among those that an object's words lead to.
fn find<M: Memory>(heap: &Heap<'_, M>, object: u64, words: u64, kind: u16) -> Option<u64> {
    let found = (1..=words).map_while(|word| heap.field(object, 8 * word));
    found.filter(|word| word & 3 == 1).find(|word| heap.type_of(*word) == Some(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_their_names() {
        for (script, name) in [
            ("wasm://wasm/sql-wasm-0a1b2c3d", "sql-wasm"),
            ("wasm://wasm/0a1b2c3d", "0a1b2c3d"),
            ("wasm://wasm/a", "a"),
            ("/the/file.wasm", "/the/file.wasm"),
            ("", ""),
        ] {
            assert_eq!(name_of(script), name);
        }
        assert_eq!(exported("12", "wasm://wasm/a").as_deref(), Some("wasm-function[12]"));
        assert_eq!(exported("run", "wasm://wasm/a"), None);
        assert_eq!(exported("1", "/a.js"), None);
    }
}
