//! Arrows between files, held against the order of the folders and against each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::resolve::Target;
use crate::source::Source;

/// What a check of one crate found.
pub(crate) struct Checked {
    /// One line each.
    pub(crate) faults: Vec<String>,
    /// Imports of one file from another.
    pub(crate) arrows: usize,
}

/// An import of one file from another.
struct Arrow<'a> {
    from: usize,
    to: usize,
    line: usize,
    path: &'a [String],
}

impl Checked {
    /// A crate whose folders stand in the order of the picture in its root's docs.
    pub(crate) fn layered(root: &Path) -> Self {
        Self::of(root, true)
    }

    /// A crate of which only circles are looked for.
    pub(crate) fn any_order(root: &Path) -> Self {
        Self::of(root, false)
    }

    fn of(root: &Path, layered: bool) -> Self {
        let source = Source::read(root);
        let names = Names { root: root.parent().expect("a root file is in a folder"), source: &source };
        let arrows = arrows(&source);
        let mut faults = if layered { against_the_order(&names, &arrows) } else { Vec::new() };
        faults.extend(circles(&names, &arrows));
        Self { faults, arrows: arrows.len() }
    }
}

/// How modules are called in a message.
struct Names<'a> {
    root: &'a Path,
    source: &'a Source,
}

impl Names<'_> {
    fn file(&self, module: usize) -> String {
        let file = &self.source.modules[module].file;
        file.strip_prefix(self.root).unwrap_or(file).display().to_string()
    }

    /// The entry below the root that a module is in; nothing for the root itself.
    fn folder(&self, module: usize) -> Option<&str> {
        self.source.modules[module].path.first().map(String::as_str)
    }
}

fn arrows(source: &Source) -> Vec<Arrow<'_>> {
    let mut arrows = Vec::new();
    for (from, module) in source.modules.iter().enumerate() {
        let imported = module.uses.iter().map(|found| (found.path.as_slice(), found.line, found.exported));
        let spelled = module.spelled.iter().map(|found| (found.path.as_slice(), found.line, false));
        for (path, line, exported) in imported.chain(spelled) {
            let to = match source.resolve(from, path) {
                Some(Target::Item(to)) => to,
                // A glob imports what the module defines.
                Some(Target::Module(to))
                    if module.uses.iter().any(|u| u.name.is_none() && u.path == path) =>
                {
                    to
                }
                _ => continue,
            };
            let handed_on = exported && source.modules[to].path.starts_with(&module.path);
            if !handed_on && source.modules[to].file != module.file {
                arrows.push(Arrow { from, to, line, path });
            }
        }
    }
    arrows
}

/// Arrows from a folder to one above it, and folders that the picture does not show.
fn against_the_order(names: &Names<'_>, arrows: &[Arrow<'_>]) -> Vec<String> {
    let order = picture(names.source);
    let rank = |folder: &str| order.iter().position(|shown| shown == folder);
    let mut faults = Vec::new();
    for folder in names.source.modules[0].children.keys() {
        if rank(folder).is_none() {
            faults.push(format!(
                "{folder}: not in the picture of the root's docs, which says what stands above what"
            ));
        }
    }
    for shown in &order {
        if !names.source.modules[0].children.contains_key(shown) {
            faults.push(format!("{shown}: in the picture of the root's docs, and no folder"));
        }
    }
    for arrow in arrows {
        let (Some(from), to) = (names.folder(arrow.from), names.folder(arrow.to)) else { continue };
        let upward = to.is_none_or(|to| rank(to) < rank(from));
        if upward {
            faults.push(format!(
                "{}:{}: {from} imports `{}` from {}, which stands above it",
                names.file(arrow.from),
                arrow.line,
                arrow.path.join("::"),
                to.unwrap_or("the root"),
            ));
        }
    }
    faults
}

/// The names in the first column of the picture: lines of a text block that begin with `name/` or `name.rs`.
fn picture(source: &Source) -> Vec<String> {
    let drawn = source.docs.iter().skip_while(|line| line.trim() != "```text").skip(1);
    drawn
        .take_while(|line| line.trim() != "```")
        .filter_map(|line| line.split_whitespace().next())
        .filter_map(|word| word.strip_suffix('/').or_else(|| word.strip_suffix(".rs")))
        .map(str::to_owned)
        .collect()
}

/// Sets of files that import each other in a circle.
fn circles(names: &Names<'_>, arrows: &[Arrow<'_>]) -> Vec<String> {
    let mut graph: BTreeMap<String, BTreeMap<String, &Arrow<'_>>> = BTreeMap::new();
    for arrow in arrows {
        graph.entry(names.file(arrow.from)).or_default().entry(names.file(arrow.to)).or_insert(arrow);
    }
    let reaches: BTreeMap<&String, BTreeSet<&String>> =
        graph.keys().map(|file| (file, reachable(&graph, file))).collect();
    let in_one = |a: &String, b: &String| {
        reaches.get(a).is_some_and(|seen| seen.contains(b))
            && reaches.get(b).is_some_and(|seen| seen.contains(a))
    };
    let mut faults = Vec::new();
    let mut told = BTreeSet::new();
    for file in graph.keys().filter(|file| in_one(file, file)) {
        if !told.insert(file) {
            continue;
        }
        let circle: Vec<&String> = graph.keys().filter(|other| in_one(file, other)).collect();
        told.extend(&circle);
        faults.push(format!("a circle of {} files:", circle.len()));
        for from in &circle {
            for (to, arrow) in graph[*from].iter().filter(|(to, _)| circle.contains(to)) {
                faults.push(format!(
                    "  {from}:{}: imports `{}` from {to}",
                    arrow.line,
                    arrow.path.join("::")
                ));
            }
        }
    }
    faults
}

fn reachable<'a>(
    graph: &'a BTreeMap<String, BTreeMap<String, &Arrow<'_>>>,
    from: &'a String,
) -> BTreeSet<&'a String> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for to in graph.get(file).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(to) {
                open.push(to);
            }
        }
    }
    seen
}
