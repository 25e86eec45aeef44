//! Names of methods of Java: `java.util.HashMap.get(Object)`.

/// Returns a method's name without its parameters.
pub(super) fn plain(name: &str) -> &str {
    if name.starts_with('[') { name } else { name.split('(').next().unwrap_or(name) }
}

/// Returns a method's name with its class only.
pub(super) fn last(name: &str) -> &str {
    let plain = plain(name);
    if name.starts_with('[') {
        return plain;
    }
    let class = plain.rmatch_indices('.').nth(1).map_or(0, |(dot, _)| dot + 1);
    plain.get(class..).unwrap_or(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_keep_their_class() {
        for (name, shorter, shortest) in [
            ("java.util.HashMap.get(Object)", "java.util.HashMap.get", "HashMap.get"),
            ("Busy.<init>(int[])", "Busy.<init>", "Busy.<init>"),
            ("a.b.Outer$Inner.lambda$run$0()", "a.b.Outer$Inner.lambda$run$0", "Outer$Inner.lambda$run$0"),
            ("[jvm StubRoutines (2)]", "[jvm StubRoutines (2)]", "[jvm StubRoutines (2)]"),
        ] {
            assert_eq!((plain(name), last(name)), (shorter, shortest));
        }
    }
}
