//! Import graph of the program's files, and its circles.
//!
//! Files are parsed by `syn`. A path counts as an import of the file in which its last module is; a name that a module only re-exports
//! counts for the file that defines it. Code of tests does not count.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, ItemUse, UseTree, Visibility};

/// The names from the crate's root to a module.
type Module = Vec<String>;

/// The program's files and their imports.
pub(crate) struct Imports {
    pub(crate) files: Vec<String>,
    /// From a file to another: the names that the first takes.
    pub(crate) arrows: BTreeMap<(usize, usize), BTreeSet<String>>,
}

/// Names in a module, and where they lead.
#[derive(Default)]
struct Scope {
    file: usize,
    /// Names that `use` brings into it, and where they lead.
    names: BTreeMap<String, Module>,
    globs: Vec<Module>,
}

struct Modules {
    scopes: BTreeMap<Module, Scope>,
}

/// The module that a file is, by its path under `src/`.
fn module_of(path: &str) -> Module {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let mut names: Module = path.split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|last| last == "mod") || matches!(path, "lib" | "main") {
        names.pop();
    }
    names
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        let condition = attribute.parse_args::<syn::Path>();
        is_cfg && condition.is_ok_and(|path| path.is_ident("test"))
    })
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The paths of a `use`, each with the name that it brings; `*` for all names.
fn leaves(tree: &UseTree, before: &mut Vec<String>, found: &mut Vec<(Vec<String>, String)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            leaves(&path.tree, before, found);
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            found.push((before.clone(), before.last().cloned().unwrap_or_default()));
        }
        UseTree::Name(name) => found.push(([before.as_slice(), &[name.ident.to_string()]].concat(), name.ident.to_string())),
        UseTree::Rename(rename) if rename.ident == "self" => found.push((before.clone(), rename.rename.to_string())),
        UseTree::Rename(rename) => {
            found.push(([before.as_slice(), &[rename.ident.to_string()]].concat(), rename.rename.to_string()));
        }
        UseTree::Glob(_) => found.push((before.clone(), "*".to_owned())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, before, found)),
    }
}

impl Modules {
    /// Makes a path of code in a module absolute, as far as it begins with something of this crate.
    fn absolute(&self, path: &[String], inside: &Module) -> Option<Module> {
        let mut from = inside.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (from, rest) = (Module::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    from.pop()?;
                    rest = &rest[1..];
                }
            }
            name => {
                let child = [inside.as_slice(), &[name.to_owned()]].concat();
                if let Some(target) = self.scopes.get(inside).and_then(|scope| scope.names.get(name)) {
                    return Some([target.as_slice(), &path[1..]].concat());
                }
                if !self.scopes.contains_key(&child) {
                    return None;
                }
            }
        }
        from.extend(rest.iter().cloned());
        Some(from)
    }

    /// The file that defines what an absolute path names, and the name.
    fn find(&self, path: &[String], steps: usize) -> Option<(usize, String)> {
        let depth = (0..=path.len()).rev().find(|depth| self.scopes.contains_key(&path[..*depth]))?;
        let scope = &self.scopes[&path[..depth]];
        let Some(name) = path.get(depth) else { return Some((scope.file, path.last().cloned().unwrap_or_default())) };
        if steps > 0 {
            if let Some(target) = scope.names.get(name).filter(|target| !path.starts_with(target)) {
                let further = [target.as_slice(), &path[depth + 1..]].concat();
                return self.find(&further, steps - 1);
            }
            for glob in scope.globs.iter().filter(|glob| self.scopes.contains_key(*glob)) {
                let further = [glob.as_slice(), &path[depth..]].concat();
                if let Some(found) = self.find(&further, 0).filter(|(file, _)| *file != scope.file) {
                    return Some(found);
                }
            }
        }
        Some((scope.file, name.clone()))
    }
}

/// Collects what `use` brings into each module, and which modules there are.
struct Declarations<'m> {
    modules: &'m mut Modules,
    inside: Module,
    file: usize,
    uses: Vec<(Module, Vec<String>, String)>,
}

impl<'ast> Visit<'ast> for Declarations<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test(attributes_of(item)) {
            return;
        }
        match item {
            Item::Use(ItemUse {
                tree, vis: Visibility::Public(_) | Visibility::Restricted(_) | Visibility::Inherited, ..
            }) => {
                let mut found = Vec::new();
                leaves(tree, &mut Vec::new(), &mut found);
                self.uses.extend(found.into_iter().map(|(path, name)| (self.inside.clone(), path, name)));
            }
            Item::Mod(module) if module.content.is_some() => {
                self.inside.push(module.ident.to_string());
                self.modules.scopes.entry(self.inside.clone()).or_default().file = self.file;
                visit::visit_item_mod(self, module);
                self.inside.pop();
            }
            _ => {}
        }
    }
}

/// Collects all paths of a file's code.
struct Paths {
    inside: Module,
    found: Vec<(Module, Vec<String>)>,
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test(attributes_of(item)) {
            return;
        }
        match item {
            Item::Use(used) => {
                let mut found = Vec::new();
                leaves(&used.tree, &mut Vec::new(), &mut found);
                // A `pub use` is an import of its reader, not of this module.
                if matches!(used.vis, Visibility::Inherited) {
                    self.found.extend(found.into_iter().map(|(path, _)| (self.inside.clone(), path)));
                }
            }
            Item::Mod(module) if module.content.is_some() => {
                self.inside.push(module.ident.to_string());
                visit::visit_item_mod(self, module);
                self.inside.pop();
            }
            item => visit::visit_item(self, item),
        }
    }

    /// `pub(super)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.found.push((self.inside.clone(), names));
        visit::visit_path(self, path);
    }
}

impl Imports {
    /// Reads the program's files: paths under `src/`, and their texts.
    pub(crate) fn read<'s>(sources: impl Iterator<Item = (&'s str, &'s str)>) -> Imports {
        let is_of_tests = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or_default();
            path.contains("/tests/") || name.starts_with("tests") || name == "hostile.rs" || path == "main.rs"
        };
        let sources: Vec<(&str, File)> = sources
            .filter(|(path, _)| !is_of_tests(path))
            // The compiler refuses files that cannot be parsed.
            .filter_map(|(path, text)| Some((path, syn::parse_file(text).ok()?)))
            .collect();
        let mut modules = Modules { scopes: BTreeMap::new() };
        for (file, (path, _)) in sources.iter().enumerate() {
            modules.scopes.insert(module_of(path), Scope { file, ..Scope::default() });
        }
        let mut uses = Vec::new();
        for (file, (path, parsed)) in sources.iter().enumerate() {
            let mut declarations = Declarations { inside: module_of(path), modules: &mut modules, file, uses: Vec::new() };
            declarations.visit_file(parsed);
            uses.extend(declarations.uses);
        }
        for (inside, path, name) in uses {
            let Some(target) = modules.absolute(&path, &inside) else { continue };
            let scope = modules.scopes.entry(inside).or_default();
            if name == "*" {
                scope.globs.push(target);
            } else {
                scope.names.insert(name, target);
            }
        }
        let mut arrows: BTreeMap<(usize, usize), BTreeSet<String>> = BTreeMap::new();
        for (file, (path, parsed)) in sources.iter().enumerate() {
            let mut paths = Paths { inside: module_of(path), found: Vec::new() };
            paths.visit_file(parsed);
            for (inside, path) in paths.found {
                let target = modules.absolute(&path, &inside).and_then(|path| modules.find(&path, 8));
                if let Some((target, name)) = target.filter(|(target, _)| *target != file) {
                    arrows.entry((file, target)).or_default().insert(name);
                }
            }
        }
        Imports { files: sources.into_iter().map(|(path, _)| path.to_owned()).collect(), arrows }
    }

    /// The imports between groups of files; `group` maps a file's name to its group.
    pub(crate) fn grouped(&self, group: impl Fn(&str) -> String) -> Imports {
        let groups: BTreeSet<String> = self.files.iter().map(|file| group(file)).collect();
        let groups: Vec<String> = groups.into_iter().collect();
        let number = |file: usize| groups.binary_search(&group(&self.files[file])).unwrap_or_default();
        let mut arrows: BTreeMap<(usize, usize), BTreeSet<String>> = BTreeMap::new();
        for ((from, to), names) in &self.arrows {
            if number(*from) != number(*to) {
                let told = names.iter().map(|name| format!("{} takes {name}", self.files[*from]));
                arrows.entry((number(*from), number(*to))).or_default().extend(told);
            }
        }
        Imports { files: groups, arrows }
    }

    /// All circles, each as the arrows in it.
    pub(crate) fn circles(&self) -> Vec<String> {
        let reached: Vec<BTreeSet<usize>> = (0..self.files.len()).map(|file| self.reached(file)).collect();
        let mut told: BTreeSet<usize> = BTreeSet::new();
        let mut circles = Vec::new();
        for file in 0..self.files.len() {
            if !reached[file].contains(&file) || told.contains(&file) {
                continue;
            }
            let circle: BTreeSet<usize> = reached[file].iter().copied().filter(|other| reached[*other].contains(&file)).collect();
            let inside = self.arrows.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
            let lines = inside.map(|((from, to), names)| {
                let names: Vec<&str> = names.iter().take(4).map(String::as_str).collect();
                format!("    {} -> {}: {}", self.files[*from], self.files[*to], names.join(", "))
            });
            circles.push(format!("{} in a circle:\n{}", circle.len(), lines.collect::<Vec<_>>().join("\n")));
            told.extend(circle);
        }
        circles
    }

    /// Files that can be reached from a file by one arrow or more.
    fn reached(&self, from: usize) -> BTreeSet<usize> {
        let (mut reached, mut waiting) = (BTreeSet::new(), vec![from]);
        while let Some(file) = waiting.pop() {
            for ((_, to), _) in self.arrows.range((file, 0)..(file + 1, 0)) {
                if reached.insert(*to) {
                    waiting.push(*to);
                }
            }
        }
        reached
    }
}
