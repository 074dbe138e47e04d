//! A crate as its files declare it: modules, what each defines, and what each imports.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, Meta, Token, UseTree, Visibility, punctuated::Punctuated};

/// A module of a crate.
pub(crate) struct Module {
    /// The names on the way from the crate's root; empty for the root.
    pub(crate) path: Vec<String>,
    pub(crate) file: PathBuf,
    pub(crate) parent: Option<usize>,
    pub(crate) children: HashMap<String, usize>,
    /// What is defined here.
    pub(crate) items: HashSet<String>,
    pub(crate) uses: Vec<Use>,
    /// Paths of two segments and more that its code spells out.
    pub(crate) spelled: Vec<Spelled>,
}

/// A name that a `use` line brings in.
pub(crate) struct Use {
    /// What it is called here; nothing for a glob.
    pub(crate) name: Option<String>,
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
    /// Handed on to others.
    pub(crate) exported: bool,
}

/// A path in the code.
pub(crate) struct Spelled {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

/// The modules of a crate, the root first. Test code is left out.
pub(crate) struct Source {
    pub(crate) modules: Vec<Module>,
    /// The docs of the root file.
    pub(crate) docs: Vec<String>,
}

impl Source {
    /// Reads the crate whose root file is `root`.
    pub(crate) fn read(root: &Path) -> Self {
        let mut source = Self { modules: Vec::new(), docs: Vec::new() };
        let file = parse(root);
        source.docs = file.attrs.iter().filter_map(doc_line).collect();
        source.module(Place { path: Vec::new(), parent: None }, root, file.items);
        source
    }

    fn module(&mut self, place: Place, file: &Path, items: Vec<Item>) -> usize {
        let at = self.modules.len();
        self.modules.push(Module {
            path: place.path,
            file: file.to_owned(),
            parent: place.parent,
            children: HashMap::new(),
            items: HashSet::new(),
            uses: Vec::new(),
            spelled: Vec::new(),
        });
        for item in items {
            self.item(at, item);
        }
        at
    }

    fn item(&mut self, at: usize, item: Item) {
        if attributes(&item).iter().any(only_for_tests) {
            return;
        }
        match item {
            Item::Mod(child) => self.child(at, child),
            Item::Use(item) => {
                let exported = !matches!(item.vis, Visibility::Inherited);
                let line = item.span().start().line;
                flatten(&item.tree, &mut Vec::new(), &mut |name, path| {
                    self.modules[at].uses.push(Use { name, path, line, exported });
                });
            }
            other => {
                self.modules[at].items.extend(name_of(&other));
                let mut found = Paths(Vec::new());
                found.visit_item(&other);
                self.modules[at].spelled.extend(found.0);
            }
        }
    }

    fn child(&mut self, parent: usize, module: ItemMod) {
        let name = module.ident.to_string();
        let mut path = self.modules[parent].path.clone();
        path.push(name.clone());
        let place = Place { path, parent: Some(parent) };
        let child = if let Some((_, items)) = module.content {
            let file = self.modules[parent].file.clone();
            self.module(place, &file, items)
        } else {
            let file = file_of(&self.modules[parent].file, self.modules[parent].path.is_empty(), &module);
            let items = parse(&file).items;
            self.module(place, &file, items)
        };
        self.modules[parent].children.entry(name).or_insert(child);
    }
}

struct Place {
    path: Vec<String>,
    parent: Option<usize>,
}

fn parse(file: &Path) -> syn::File {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// The file of a module that `parent` declares without a body.
fn file_of(parent: &Path, is_root: bool, module: &ItemMod) -> PathBuf {
    let folder = parent.parent().expect("a file is in a folder");
    if let Some(path) = module.attrs.iter().find_map(path_attribute) {
        return folder.join(path);
    }
    let folder = if is_root || parent.file_name().is_some_and(|name| name == "mod.rs") {
        folder.to_owned()
    } else {
        parent.with_extension("")
    };
    let flat = folder.join(format!("{}.rs", module.ident));
    if flat.exists() { flat } else { folder.join(module.ident.to_string()).join("mod.rs") }
}

fn path_attribute(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    pair.path.is_ident("path").then(|| literal(&pair.value)).flatten()
}

fn doc_line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    pair.path.is_ident("doc").then(|| literal(&pair.value)).flatten()
}

fn literal(value: &syn::Expr) -> Option<String> {
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// Whether an item with this attribute exists in no product build.
fn only_for_tests(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<Meta>().is_ok_and(|condition| !holds(&condition))
}

/// Whether a `cfg` holds in a product build with every feature.
fn holds(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => !["test", "doctest", "fuzzing", "loom"].iter().any(|name| path.is_ident(name)),
        Meta::NameValue(_) => true,
        Meta::List(list) => {
            let inner = list
                .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
                .expect("a cfg is a list of conditions");
            if list.path.is_ident("not") {
                // A build without a feature is a product build too.
                inner.iter().any(|one| matches!(one, Meta::NameValue(_)) || !holds(one))
            } else if list.path.is_ident("any") {
                inner.iter().any(holds)
            } else {
                inner.iter().all(holds)
            }
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Macro(i) => return in_macro(i),
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::Type(i) => &i.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// The static that a `thread_local!` or `loom::thread_local!` defines, or the name of a macro.
fn in_macro(item: &syn::ItemMacro) -> Option<String> {
    if let Some(name) = &item.ident {
        return Some(name.to_string());
    }
    let text = item.mac.tokens.to_string();
    let (_, after) = text.split_once("static ")?;
    after.split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned)
}

/// Calls `each` with the name here and the whole path of every name in a `use` line.
fn flatten(tree: &UseTree, path: &mut Vec<String>, each: &mut impl FnMut(Option<String>, Vec<String>)) {
    match tree {
        UseTree::Path(inner) => {
            path.push(inner.ident.to_string());
            flatten(&inner.tree, path, each);
            path.pop();
        }
        UseTree::Name(name) if name.ident == "self" => each(path.last().cloned(), path.clone()),
        UseTree::Name(name) => {
            let whole = [path.as_slice(), &[name.ident.to_string()]].concat();
            each(Some(name.ident.to_string()), whole);
        }
        UseTree::Rename(name) => {
            let whole = [path.as_slice(), &[name.ident.to_string()]].concat();
            each(Some(name.rename.to_string()), whole);
        }
        UseTree::Glob(_) => each(None, path.clone()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, path, each)),
    }
}

/// Collects paths of two segments and more, but for those in test code.
struct Paths(Vec<Spelled>);

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            let line = path.span().start().line;
            let path = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.0.push(Spelled { path, line });
        }
        visit::visit_path(self, path);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !function.attrs.iter().any(only_for_tests) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // A `use` inside a function: each of its names as if it were spelled out there.
        let line = item.span().start().line;
        flatten(&item.tree, &mut Vec::new(), &mut |_, path| self.0.push(Spelled { path, line }));
    }
}
