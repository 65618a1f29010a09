//! Which file of a crate uses which: the graph between its files and between its modules at the top, and the cycles in it.
//!
//! A file uses the file that *defines* an item, through whatever re-exports it is named. A path makes an edge where it is
//! written: in a `use` for the file itself, or in code. Declaring a module, re-exporting its items and naming it on the way to
//! an item make none, and neither do methods, which no path names. Code under `#[cfg(test)]` is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, Meta, UseTree, Visibility};

/// Aliases that are followed from a path to its item. More are a cycle of re-exports, or the name of another crate.
const ALIASES_MAX: usize = 16;

/// A module's path from the crate's root, a name at a time.
type ModulePath = Vec<String>;
/// The items through which one file uses another, by the files' numbers.
type Edges = BTreeMap<(usize, usize), BTreeSet<String>>;

/// What a name in a module stands for.
enum Name {
    Item,
    Alias(Vec<String>),
}

#[derive(Default)]
struct Module {
    file: usize,
    names: BTreeMap<String, Name>,
    globs: Vec<Vec<String>>,
}

/// What a path leads to.
enum Target {
    Item(usize, String),
    Module(ModulePath),
}

/// The files of a crate, and who uses whom.
#[derive(Default)]
pub(crate) struct Crate {
    files: Vec<PathBuf>,
    modules: BTreeMap<ModulePath, Module>,
    edges: Edges,
}

impl Crate {
    /// Reads a crate from its root file on, a file at a time.
    ///
    /// # Errors
    /// A file cannot be read or is not Rust: its path, and why.
    pub(crate) fn load(root: &Path, read: &dyn Fn(&Path) -> Result<String, String>) -> Result<Self, String> {
        let mut new = Self::default();
        let mut parsed = Vec::new();
        let mut waiting = vec![(ModulePath::new(), root.to_path_buf())];
        while let Some((module, path)) = waiting.pop() {
            let fault = |error: String| format!("{}: {error}", path.display());
            let file = syn::parse_file(&read(&path).map_err(fault)?).map_err(|error| fault(error.to_string()))?;
            let is_folder = ["lib.rs", "main.rs", "mod.rs"].iter().any(|name| path.ends_with(name));
            let folder = if is_folder { path.parent().unwrap_or(root).into() } else { path.with_extension("") };
            new.files.push(path);
            for (child, folder) in new.declare(&module, &folder, &file.items) {
                let name = child.last().cloned().unwrap_or_default();
                let beside = folder.join(format!("{name}.rs"));
                let within = folder.join(name).join("mod.rs");
                waiting.push((child, if read(&beside).is_ok() { beside } else { within }));
            }
            parsed.push((module, file));
        }
        for (index, (module, file)) in parsed.into_iter().enumerate() {
            let mut uses = Uses { of: &new, file: index, module, edges: Edges::new() };
            uses.visit_file(&file);
            let found = uses.edges;
            new.edges.extend(found);
        }
        Ok(new)
    }

    /// Notes the names of a module of the last file. Returns the modules that have a file of their own, each with the folder
    /// in which it lies.
    fn declare(&mut self, path: &ModulePath, folder: &Path, items: &[Item]) -> Vec<(ModulePath, PathBuf)> {
        let mut module = Module { file: self.files.len() - 1, ..Module::default() };
        let mut elsewhere = Vec::new();
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            let name = match item {
                Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let child_path = joined(path, &name);
                    match &child.content {
                        Some((_, items)) => elsewhere.extend(self.declare(&child_path, &folder.join(name), items)),
                        None => elsewhere.push((child_path, folder.to_path_buf())),
                    }
                    continue;
                }
                Item::Use(item) => {
                    flatten(&item.tree, &[], &mut |path, name| match name {
                        Some(name) => drop(module.names.insert(name, Name::Alias(path))),
                        None => module.globs.push(path),
                    });
                    continue;
                }
                Item::Const(item) => &item.ident,
                Item::Enum(item) => &item.ident,
                Item::Fn(item) => &item.sig.ident,
                Item::Static(item) => &item.ident,
                Item::Struct(item) => &item.ident,
                Item::Trait(item) => &item.ident,
                Item::Type(item) => &item.ident,
                Item::Union(item) => &item.ident,
                _ => continue,
            };
            module.names.insert(name.to_string(), Name::Item);
        }
        self.modules.insert(path.clone(), module);
        elsewhere
    }

    /// What `path` leads to as it is written in `module`; `None` if out of the crate.
    fn resolve(&self, module: &[String], path: &[String], aliases: usize) -> Option<Target> {
        let mut at = module.to_vec();
        for (index, name) in path.iter().enumerate() {
            match (name.as_str(), index) {
                ("crate", 0) => at.clear(),
                ("self", 0) => {}
                ("super", _) => drop(at.pop()?),
                _ => match self.look_up(&at, name, aliases)? {
                    Target::Module(inner) => at = inner,
                    item => return Some(item),
                },
            }
        }
        Some(Target::Module(at))
    }

    fn look_up(&self, module: &[String], name: &str, aliases: usize) -> Option<Target> {
        let child = joined(module, name);
        if self.modules.contains_key(&child) {
            return Some(Target::Module(child));
        }
        let aliases = aliases.checked_sub(1)?;
        let scope = self.modules.get(module)?;
        match scope.names.get(name) {
            Some(Name::Item) => Some(Target::Item(scope.file, name.to_owned())),
            Some(Name::Alias(path)) => self.resolve(module, path, aliases),
            None => scope.globs.iter().find_map(|glob| match self.resolve(module, glob, aliases)? {
                Target::Module(inner) if inner != module => self.look_up(&inner, name, aliases),
                _ => None,
            }),
        }
    }

    /// The module at the top that a file belongs to; the root file is one of its own.
    fn top(&self, file: usize) -> String {
        let path = self.modules.iter().find(|(_, module)| module.file == file).map(|(path, _)| path);
        path.and_then(|path| path.first()).map_or_else(|| "the root file".to_owned(), |name| format!("`{name}`"))
    }

    /// Modules at the top that use each other, each cycle as readable lines.
    pub(crate) fn module_cycles(&self) -> Vec<String> {
        let tops: BTreeSet<String> = (0..self.files.len()).map(|file| self.top(file)).collect();
        let tops: Vec<String> = tops.into_iter().collect();
        let number = |file| tops.iter().position(|top| *top == self.top(file)).unwrap_or_default();
        let mut edges = Edges::new();
        for ((from, to), items) in &self.edges {
            let key = (number(*from), number(*to));
            if key.0 != key.1 {
                let items = items.iter().map(|item| format!("{item} ({})", self.name(*from)));
                edges.entry(key).or_default().extend(items);
            }
        }
        let cycles = cycles(tops.len(), &edges).into_iter();
        cycles.map(|cycle| describe("modules", &cycle, &edges, &|top| tops[top].clone())).collect()
    }

    /// Cycles of more than two files, each as readable lines. A parent and its child may use each other.
    pub(crate) fn file_cycles(&self) -> Vec<String> {
        let cycles = cycles(self.files.len(), &self.edges).into_iter().filter(|cycle| cycle.len() > 2);
        cycles.map(|cycle| describe("files", &cycle, &self.edges, &|file| self.name(file))).collect()
    }

    /// A file's path below the folder of the root file.
    fn name(&self, file: usize) -> String {
        let folder = self.files[0].parent().unwrap_or(Path::new(""));
        self.files[file].strip_prefix(folder).unwrap_or(&self.files[file]).display().to_string()
    }
}

fn describe(kind: &str, cycle: &BTreeSet<usize>, edges: &Edges, name: &dyn Fn(usize) -> String) -> String {
    let mut text = format!("{} {kind} use each other:", cycle.len());
    for ((from, to), items) in edges.iter().filter(|((from, to), _)| cycle.contains(from) && cycle.contains(to)) {
        let items: Vec<&str> = items.iter().map(String::as_str).collect();
        text.push_str(&format!("\n    {} uses {}: {}", name(*from), name(*to), items.join(", ")));
    }
    text
}

/// The strongly connected components of more than one node: those that reach each other.
fn cycles(nodes: usize, edges: &Edges) -> Vec<BTreeSet<usize>> {
    let reach = |from: usize| {
        let (mut reached, mut waiting) = (BTreeSet::new(), vec![from]);
        while let Some(node) = waiting.pop() {
            let next = edges.range((node, 0)..=(node, usize::MAX)).map(|((_, to), _)| *to);
            waiting.extend(next.filter(|to| reached.insert(*to)));
        }
        reached
    };
    let reached: Vec<BTreeSet<usize>> = (0..nodes).map(reach).collect();
    let component = |node: usize| reached[node].iter().copied().filter(|to| reached[*to].contains(&node)).collect();
    let components: BTreeSet<BTreeSet<usize>> = (0..nodes).map(component).collect();
    components.into_iter().filter(|component| component.len() > 1).collect()
}

/// The paths of a file's code, each held against the crate's names.
struct Uses<'a> {
    of: &'a Crate,
    file: usize,
    module: ModulePath,
    edges: Edges,
}

impl Uses<'_> {
    fn note(&mut self, path: &[String]) {
        if let Some(Target::Item(file, item)) = self.of.resolve(&self.module, path, ALIASES_MAX) {
            self.note_file(file, item);
        }
    }

    fn note_file(&mut self, file: usize, item: String) {
        if file != self.file {
            self.edges.entry((self.file, file)).or_default().insert(item);
        }
    }

    /// The paths among a macro's tokens, as far as they look like paths.
    fn note_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) if colons == 2 => path.push(name.to_string()),
                TokenTree::Ident(name) => {
                    self.note(&path);
                    path = vec![name.to_string()];
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => self.note_tokens(group.stream()),
                _ => self.note(&std::mem::take(&mut path)),
            }
            colons = 0;
        }
        self.note(&path);
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            item if is_test(attributes(item)) => {}
            Item::Mod(module) => {
                self.module.push(module.ident.to_string());
                visit::visit_item_mod(self, module);
                self.module.pop();
            }
            item => visit::visit_item(self, item),
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !matches!(item.vis, Visibility::Inherited) {
            return;
        }
        flatten(&item.tree, &[], &mut |path, name| match (self.of.resolve(&self.module, &path, ALIASES_MAX), name) {
            (Some(Target::Item(file, item)), _) => self.note_file(file, item),
            (Some(Target::Module(module)), None) => self.note_file(self.of.modules[&module].file, "*".to_owned()),
            _ => {}
        });
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Const(item) => &item.attrs,
            _ => return visit::visit_impl_item(self, item),
        };
        if !is_test(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.note(&names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.note_tokens(called.tokens.clone());
    }

    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        self.note_tokens(list.tokens.clone());
    }

    /// Where an item may be used from is not a use.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

/// Calls `each` with every path of a `use` and the name that it gets; with `None` in its place for all of a module's.
fn flatten(tree: &UseTree, before: &[String], each: &mut dyn FnMut(Vec<String>, Option<String>)) {
    match tree {
        UseTree::Path(path) => flatten(&path.tree, &joined(before, &path.ident.to_string()), each),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, each)),
        UseTree::Glob(_) => each(before.to_vec(), None),
        UseTree::Rename(rename) => each(joined(before, &rename.ident.to_string()), Some(rename.rename.to_string())),
        UseTree::Name(name) if name.ident == "self" => each(before.to_vec(), before.last().cloned()),
        UseTree::Name(name) => each(joined(before, &name.ident.to_string()), Some(name.ident.to_string())),
    }
}

fn joined(path: &[String], name: &str) -> Vec<String> {
    path.iter().cloned().chain([name.to_owned()]).collect()
}

/// Whether an item is compiled for tests alone.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string().replace(' ', "");
            condition == "test" || condition.starts_with("all(test,")
        }
        _ => false,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of these files. Each text is a file's.
    fn load(files: &[(&str, &str)]) -> Crate {
        let files: BTreeMap<PathBuf, &str> =
            files.iter().map(|(path, text)| (Path::new("src").join(path), *text)).collect();
        let read =
            |path: &Path| files.get(path).map(|text| (*text).to_owned()).ok_or_else(|| "no such file".to_owned());
        Crate::load(Path::new("src/lib.rs"), &read).expect("sound Rust")
    }

    #[test]
    fn a_cycle_of_three_files_is_reported_with_the_items_that_make_it() {
        let of = load(&[
            ("lib.rs", "pub mod a;"),
            ("a/mod.rs", "mod b; mod c; mod d;"),
            ("a/b.rs", "use super::c::C; pub struct B(C);"),
            ("a/c.rs", "pub struct C(Box<super::d::D>);"),
            ("a/d.rs", "pub type D = Vec<crate::a::b::B>;"),
        ]);
        assert!(of.module_cycles().is_empty());
        let cycles = of.file_cycles();
        let [cycle] = &cycles[..] else { panic!("one cycle, not {cycles:?}") };
        for line in
            ["3 files use each other:", "a/b.rs uses a/c.rs: C", "a/c.rs uses a/d.rs: D", "a/d.rs uses a/b.rs: B"]
        {
            assert!(cycle.contains(line), "{line} is not in {cycle}");
        }
    }

    #[test]
    fn modules_at_the_top_that_use_each_other_are_reported_and_a_parent_with_its_child_is_not() {
        let of = load(&[
            ("lib.rs", "mod low; mod high;"),
            (
                "low.rs",
                "mod child; use self::child::Child; pub struct Low(Child); pub const LIMIT: u8 = crate::high::LIMIT;",
            ),
            ("low/child.rs", "pub struct Child(Option<Box<super::Low>>);"),
            ("high.rs", "pub fn run() { assert!(matches!(1, crate::low::LIMIT)); } pub const LIMIT: u8 = 1;"),
        ]);
        let cycles = of.module_cycles();
        let [cycle] = &cycles[..] else { panic!("one cycle, not {cycles:?}") };
        assert!(cycle.contains("`high` uses `low`: LIMIT (high.rs)"), "{cycle}");
        assert!(cycle.contains("`low` uses `high`: LIMIT (low.rs)"), "{cycle}");
    }

    #[test]
    fn an_item_is_used_where_it_is_defined_whatever_it_is_reexported_through() {
        let of = load(&[
            ("lib.rs", "mod a; mod b; mod c; pub use a::{One, inner as other};"),
            ("a/mod.rs", "pub mod inner; mod deep; pub use deep::*; pub use inner::One; use crate::b::Two;"),
            ("a/inner.rs", "pub struct One;"),
            ("a/deep.rs", "pub struct Deep;"),
            ("b.rs", "pub struct Two; pub fn two(_: crate::One, _: crate::other::One) {}"),
            ("c.rs", "use crate::a::{self, Deep as Renamed}; fn c(_: Renamed, _: a::One) {}"),
        ]);
        let edges: Vec<_> = of.edges.keys().map(|(from, to)| (of.name(*from), of.name(*to))).collect();
        let edge = |from: &str, to: &str| edges.contains(&(from.to_owned(), to.to_owned()));
        assert!(edge("b.rs", "a/inner.rs") && edge("c.rs", "a/inner.rs") && edge("c.rs", "a/deep.rs"), "{edges:?}");
        assert!(edge("a/mod.rs", "b.rs"));
        assert_eq!(edges.len(), 4, "neither re-exports nor modules on the way are uses: {edges:?}");
    }

    #[test]
    fn tests_comments_and_other_crates_make_no_edges() {
        let of = load(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            (
                "b.rs",
                "//! As [`crate::a::A`].\n use other::a::A; pub struct B(A);\n #[cfg(test)] mod tests { use crate::a::A; }\n\
                 impl B { #[cfg(test)] fn test(_: crate::a::A) {} }",
            ),
        ]);
        assert_eq!(of.edges.len(), 1, "{:?}", of.edges);
    }
}
