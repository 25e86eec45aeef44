//! Real names of each language, in each detail.

use super::*;
use crate::cpu_time;

#[test]
fn names_are_cut_where_least_is_lost() {
    let rust = "rustc_codegen_ssa::back::write::drive";
    assert_eq!(fit_name(rust, 40), rust);
    assert_eq!(fit_name(rust, 20), "…back::write::drive");
    assert_eq!(fit_name(rust, 15), "…write::drive");
    assert_eq!(fit_name(rust, 9), "…drive");
    assert_eq!(fit_name(rust, 4), "dri…");
    assert_eq!(fit_name(rust, 2), "");
    assert_eq!(fit_name("alloc::vec::Vec<alloc::string::String>::push", 26), "alloc::vec::Vec<…>::push");
    assert_eq!(fit_name("alloc::vec::Vec<alloc::string::String>::push", 14), "…Vec<…>::push");
    assert_eq!(fit_name("std::sort<int*>(int*, int*)", 16), "std::sort<int*>");
    let method = "<alloc::vec::Vec<u8> as std::io::Write>::write_all";
    assert_eq!(fit_name(method, 40), "alloc::vec::Vec<u8>::write_all");
    assert_eq!(fit_name(method, 18), "…Vec<…>::write_all");
    assert_eq!(fit_name("std::rt::lang_start::{{closure}}", 26), "…lang_start::{{closure}}");
    assert_eq!(fit_name("std::rt::lang_start::{{closure}}", 12), "lang_start:…");
    assert_eq!(fit_name("(anonymous namespace)::run(int)", 24), "…run");
    assert_eq!(fit_name("libc.so.6+0x12345", 9), "…+0x12345");
}

#[test]
fn what_is_written_of_a_name_tells_which_it_is() {
    let cases = [
        // Suffixes of compilers go first.
        ("cache_fill.constprop.0", 22, "cache_fill.constprop.0"),
        ("cache_fill.constprop.0", 21, "cache_fill"),
        ("cache_fill.constprop.0", 7, "cache_…"),
        ("index_words.isra.0.part.1.cold", 11, "index_words"),
        ("do_idle.llvm.1234567890", 12, "do_idle"),
        ("part.0", 5, "part…"),
        // Names without parts are cut at their ends.
        ("python3.11-dbg", 10, "python3.1…"),
        ("mallocer", 6, "mallo…"),
        ("libcrypto.so.3", 12, "libcrypto.s…"),
        ("runtime.mallocgc", 12, "…mallocgc"),
        ("main.main.func1", 11, "…main.func1"),
        ("/usr/lib/thing", 8, "…b/thing"),
        ("libc.so.6+0x12345", 9, "…+0x12345"),
        // Less than three letters and digits say nothing.
        ("mallocer", 3, ""),
        ("<core::str::Thing as core::fmt::Debug>", 3, ""),
        ("a::b::f", 3, ""),
        ("fn", 2, "fn"),
        ("f", 1, "f"),
    ];
    for (name, columns, shown) in cases {
        assert_eq!(fit_name(name, columns), shown, "{name} in {columns}");
    }
}

#[test]
fn the_last_segment_is_what_is_left_of_a_name() {
    let call = "<alloc::boxed::Box<F,A> as core::ops::function::FnOnce<Args>>::call_once";
    let unit = "<core::panic::unwind_safe::AssertUnwindSafe<F> as core::ops::function::FnOnce<()>>::call_once";
    let drop = "core::ptr::drop_in_place::<alloc::vec::Vec<(u32, fn() -> u8)>>";
    let long = format!("<alloc::boxed::Box<dyn Fn({})> as core::ops::Fn<(A, B)>>::call", "&std::string::String, ".repeat(40));
    let cases = [
        (call, 30, "…boxed::Box<…>::call_once"),
        (call, 12, "…call_once"),
        (call, 8, "call_on…"),
        (unit, 12, "…call_once"),
        ("<&T as core::fmt::Debug>::fmt", 6, "…fmt"),
        ("<dyn Fn() as a::Trait<fn() -> T>>::run", 8, "…run"),
        ("core::str::<impl str>::trim", 12, "…trim"),
        ("core::str::<impl str>::trim", 20, "core::str::<…>::trim"),
        (drop, 30, "core::ptr::drop_in_place::<…>"),
        (drop, 25, "core::ptr::drop_in_place"),
        (drop, 18, "…drop_in_place"),
        (&long, 8, "…call"),
        (&long, 14, "<…>::call"),
        ("net/http.(*conn).serve", 14, "…(*conn).serve"),
        ("outer(int)::Local::method", 10, "…method"),
        ("ns::Type::operator>(ns::Type const&) const", 12, "…operator>"),
        ("ns::Type::operator->(int)", 12, "…operator->"),
    ];
    for (name, columns, shown) in cases {
        assert_eq!(fit_name(name, columns), shown, "{name} in {columns}");
    }
}

#[test]
fn no_name_is_ever_wider_than_it_may_be() {
    let names = ["a::b", "名前::長い関数名", "x", "operator<<", "Vec<u8>::{{closure}}", "<T as Trait>::call", "))((", "<<", ""];
    for name in names {
        for columns in 0..30 {
            assert!(width(&fit_name(name, columns)) <= columns, "{name} in {columns}");
            assert!(width(&cut(name, columns)) <= columns, "{name} in {columns}");
        }
    }
}

/// Full, plain, last.
const NAMES: [(&str, &str, &str); 62] = [
    // C++
    ("std::vector<int, std::allocator<int> >::push_back(int&&)", "std::vector::push_back", "push_back"),
    ("std::sort<int*>(int*, int*)", "std::sort", "sort"),
    ("void std::sort<int*>(int*, int*)", "void std::sort", "sort"),
    ("main", "main", "main"),
    ("(anonymous namespace)::run(int)", "(anonymous namespace)::run", "run"),
    ("ns::(anonymous namespace)::Type<int>::run(int) const", "ns::(anonymous namespace)::Type::run", "run"),
    ("Compare::operator()(int, int) const", "Compare::operator()", "Compare::operator()"),
    ("work()::{lambda(int)#1}::operator()(int) const", "work::{lambda#1}::operator()", "work::{lambda#1}::operator()"),
    ("ns::work(int)::{lambda()#2}::operator()() const", "ns::work::{lambda#2}::operator()", "work::{lambda#2}::operator()"),
    ("foo()::$_0::operator()(int) const", "foo::$_0::operator()", "foo::$_0::operator()"),
    ("a::b()::<lambda(int)>", "a::b::<lambda>", "b::<lambda>"),
    ("bool operator<(Key const&, Key const&)", "bool operator<", "operator<"),
    ("ns::operator<<(std::ostream&, T)", "ns::operator<<", "operator<<"),
    ("std::operator<< <std::char_traits<char> >(std::ostream&, char const*)", "std::operator<<", "operator<<"),
    ("std::operator<=> <char>(A, B)", "std::operator<=>", "operator<=>"),
    ("Ptr<T>::operator->() const", "Ptr::operator->", "operator->"),
    ("Ptr<T>::operator->*(int)", "Ptr::operator->*", "operator->*"),
    ("A::operator>>=(int)", "A::operator>>=", "operator>>="),
    ("A::operator[](unsigned long) &&", "A::operator[]", "operator[]"),
    ("operator new(unsigned long)", "operator new", "operator new"),
    ("operator delete[](void*)", "operator delete[]", "operator delete[]"),
    ("Text::operator std::basic_string<char>() const", "Text::operator std::basic_string", "operator std::basic_string"),
    ("operators::find(int)", "operators::find", "find"),
    ("Foo<&Bar::operator> >::call()", "Foo::call", "call"),
    ("std::function<void (int)>::operator()(int) const", "std::function::operator()", "function::operator()"),
    ("std::_Function_handler<void (), F>::_M_invoke(std::_Any_data const&)", "std::_Function_handler::_M_invoke", "_M_invoke"),
    ("f(int) [clone .cold]", "f [clone .cold]", "f [clone .cold]"),
    ("ns::f<A<B<C> > >(int) const [clone .isra.0]", "ns::f [clone .isra.0]", "f [clone .isra.0]"),
    ("ns::f(int) (.cold)", "ns::f (.cold)", "f (.cold)"),
    ("f[abi:cxx11](int)", "f", "f"),
    ("Foo::~Foo()", "Foo::~Foo", "~Foo"),
    ("g(int) noexcept", "g", "g"),
    // Rust
    ("<alloc::vec::Vec<u8> as std::io::Write>::write_all", "alloc::vec::Vec::write_all", "write_all"),
    ("<T as core::convert::Into<U>>::into", "T::into", "into"),
    ("<&mut T as core::iter::Iterator>::next", "T::next", "next"),
    ("<[T] as alloc::slice::Sort>::sort", "[T]::sort", "sort"),
    ("<<A as B>::C as D<E>>::f", "A::C::f", "f"),
    ("<fn(A) -> B as FnOnce<(A,)>>::call_once", "fn -> B::call_once", "call_once"),
    ("<impl core::fmt::Display for u32>::fmt", "u32::fmt", "fmt"),
    ("core::fmt::num::imp::<impl core::fmt::Display for u32>::fmt", "core::fmt::num::imp::fmt", "fmt"),
    ("core::ptr::drop_in_place<alloc::string::String>", "core::ptr::drop_in_place", "drop_in_place"),
    ("core::ptr::drop_in_place::<alloc::string::String>", "core::ptr::drop_in_place", "drop_in_place"),
    ("app::run::<app::Config>::{closure#0}", "app::run::{closure#0}", "run::{closure#0}"),
    ("std::rt::lang_start::{{closure}}", "std::rt::lang_start::{{closure}}", "lang_start::{{closure}}"),
    ("a::b::{closure#0}::{closure#1}", "a::b::{closure#0}::{closure#1}", "b::{closure#0}::{closure#1}"),
    ("app::{impl#1}::fmt", "app::{impl#1}::fmt", "fmt"),
    (
        "core::ops::function::FnOnce::call_once{{vtable.shim}}",
        "core::ops::function::FnOnce::call_once{{vtable.shim}}",
        "call_once{{vtable.shim}}",
    ),
    // Go
    ("net/http.(*conn).serve", "net/http.(*conn).serve", "serve"),
    ("main.main.func1", "main.main.func1", "main.func1"),
    ("main.(*T).Run.func2.1", "main.(*T).Run.func2.1", "Run.func2.1"),
    ("main.Map[...]", "main.Map", "Map"),
    ("main.(*List[go.shape.int]).Push", "main.(*List).Push", "Push"),
    ("github.com/some/repo.Do", "github.com/some/repo.Do", "Do"),
    ("main.glob..func1", "main.glob..func1", "glob..func1"),
    ("runtime.goexit.abi0", "runtime.goexit.abi0", "goexit.abi0"),
    // C, the kernel, addresses, and names in other forms
    ("do_syscall_64", "do_syscall_64", "do_syscall_64"),
    ("tcp_sendmsg_locked.isra.0", "tcp_sendmsg_locked.isra.0", "tcp_sendmsg_locked.isra.0"),
    ("handle_mm_fault.cold", "handle_mm_fault.cold", "handle_mm_fault.cold"),
    ("libc.so.6+0x12a", "libc.so.6+0x12a", "libc.so.6+0x12a"),
    ("[more addresses of libfoo.so]", "[more addresses of libfoo.so]", "[more addresses of libfoo.so]"),
    ("LazyCompile:~handler /srv/app.js:12", "LazyCompile:~handler /srv/app.js:12", "LazyCompile:~handler /srv/app.js:12"),
    ("a<b", "a<b", "a<b"),
];

#[test]
fn names_have_three_details() {
    for (full, plain, last) in NAMES {
        assert_eq!(shorten(full, Detail::Full), full);
        assert_eq!(shorten(full, Detail::Plain), plain, "{full}");
        assert_eq!(shorten(full, Detail::Last), last, "{full}");
    }
}

#[test]
fn what_is_plain_already_is_not_copied() {
    for name in ["main", "a::b::c", "do_idle", "libc.so.6+0x1f"] {
        assert!(matches!(shorten(name, Detail::Plain), Cow::Borrowed(_)), "{name}");
    }
}

#[test]
fn thousands_of_long_names_take_no_time() {
    let long = format!("std::map<{}>::find({})", "std::pair<a::B<c>, d>, ".repeat(80), "int, ".repeat(200));
    let nested = format!("{}T{}::f", "<".repeat(2000), " as U>".repeat(2000));
    let start = cpu_time::of_this_thread();
    for _ in 0..2000 {
        assert_eq!(shorten(&long, Detail::Last), "find");
        shorten(&nested, Detail::Plain);
    }
    println!("{:?} a name", cpu_time::since(start) / 4000);
    assert!(cpu_time::since(start) < std::time::Duration::from_secs(4), "{:?}", cpu_time::since(start));
}

#[test]
fn blanks_before_parameters_begin_nothing() {
    for (full, last) in
        [("a  (x)é", "é"), ("a b   (x)é::c", "c"), ("名  (x)名前", "名前"), ("a  (x)", "a"), ("void f  (x)", "void f")]
    {
        assert_eq!(shorten(full, Detail::Last), last, "{full}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]

    /// A shortened name is never empty and never longer than the name itself.
    #[test]
    fn any_name_can_be_shortened(
        name in "[a-c:<>(){}\\[\\] &.*#$é名-]{1,24}\
            |(operator|::|<|>|\\(|\\)|\\(x\\)| as |a| const|  |é|名前|\\{|\\}|\\[|\\]|\\.){1,12}\
            |(a|é|名|  |\\(x\\)|::|<a>){2,8}\
            |\\PC{1,24}"
    ) {
        for detail in [Detail::Plain, Detail::Last] {
            let short = shorten(&name, detail);
            proptest::prop_assert!(!short.is_empty() && short.len() <= name.len(), "{name:?} {short:?}");
            for columns in [0, 3, 9] {
                proptest::prop_assert!(width(&fit_name(&short, columns)) <= columns, "{short:?} in {columns}");
            }
        }
    }
}

#[test]
fn receivers_with_traits_of_their_own_are_taken_as_a_whole() {
    let guard = "<<a::IntoIter<K,V> as core::ops::Drop>::drop::DropGuard<K,V> as core::ops::Drop>::drop";
    assert_eq!(
        fit_name(guard, 60),
        "<a::IntoIter<K,V> as core::ops::Drop>::drop::DropGuard<K,V>::drop"
            .replace("<K,V>", "<…>")
            .replace("<a::IntoIter<…> as core::ops::Drop>", "<…>")
    );
    assert_eq!(fit_name("<F<<T as A>::B> as c::Fn<X>>::call", 10), "F<…>::call");
}

/// Tests all functions of this program, by the linker's names.
#[test]
fn names_of_a_real_program_are_cut_between_brackets() {
    let exe = std::env::current_exe().unwrap();
    let nm = std::process::Command::new("nm").args(["--defined-only", "--demangle"]).arg(&exe).output();
    let symbols = String::from_utf8_lossy(&nm.expect("nm (binutils) is needed by this test").stdout).into_owned();
    let mut looked = 0;
    for name in
        symbols.lines().filter_map(|line| line.splitn(3, ' ').nth(2)).filter(|name| name.contains("::") && name.contains('<'))
    {
        for columns in [8, 12, 20, 30, 45, 60] {
            let fitted = fit_name(name, columns);
            looked += 1;
            let (open, close) = (fitted.matches('<').count(), fitted.matches('>').count() - fitted.matches("->").count());
            // A name that does not fit at all may be cut anywhere, and then ends with `…`.
            assert!(fitted.ends_with('…') || open == close && !fitted.contains("<>"), "{columns}: {fitted} of {name}");
        }
    }
    assert!(looked > 1000, "{looked} looked at");
}

#[test]
fn segments_that_python_makes_are_no_templates() {
    let name = "Server.handle.<locals>.reply.<locals>.<lambda>";
    assert_eq!(fit_name(name, 60), name);
    assert_eq!(fit_name(name, 40), "Server.handle.reply.<lambda>");
    assert_eq!(fit_name(name, 24), "…handle.reply.<lambda>");
    assert_eq!(fit_name(name, 10), "…<lambda>");
    assert_eq!(fit_name(name, 6), "<lamb…");
    assert_eq!(shorten(name, Detail::Plain), "Server.handle.reply.<lambda>");
    assert_eq!(shorten(name, Detail::Last), "<lambda>");
    assert_eq!((fit_name("<module>", 5), fit_name("<module>", 8)), ("<mod…".to_owned(), "<module>".to_owned()));
}
