//! From a path in the code to the file that defines what it names, through every re-export.

use crate::source::Source;

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A module as such.
    Module(usize),
    /// Something that this module defines.
    Item(usize),
}

/// Re-exports that lead to each other end here.
const DEEPEST: usize = 16;

impl Source {
    /// What `path` names in the code of module `at`; nothing for other crates, and for what a macro made.
    pub(crate) fn resolve(&self, at: usize, path: &[String]) -> Option<Target> {
        self.from(at, path, 0)
    }

    fn from(&self, at: usize, path: &[String], depth: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.below(0, rest, depth),
            "self" => self.below(at, rest, depth),
            "super" => {
                let mut place = self.modules[at].parent?;
                let mut rest = rest;
                while let Some((_, after)) = rest.split_first().filter(|(next, _)| *next == "super") {
                    place = self.modules[place].parent?;
                    rest = after;
                }
                self.below(place, rest, depth)
            }
            _ => self.below(at, path, depth),
        }
    }

    /// What `path` names, taken from inside module `at`.
    fn below(&self, at: usize, path: &[String], depth: usize) -> Option<Target> {
        let Some((first, rest)) = path.split_first() else { return Some(Target::Module(at)) };
        if depth > DEEPEST {
            return None;
        }
        let module = &self.modules[at];
        if let Some(&child) = module.children.get(first) {
            return self.below(child, rest, depth);
        }
        if module.items.contains(first) {
            return Some(Target::Item(at));
        }
        if let Some(found) = module.uses.iter().find(|found| found.name.as_ref() == Some(first)) {
            // A line that imports a crate's name from itself (`use tokio;`) names no module of ours.
            if found.path.first() == Some(first) && found.path.len() == 1 {
                return None;
            }
            return match self.from(at, &found.path, depth + 1)? {
                Target::Module(inner) => self.below(inner, rest, depth + 1),
                item @ Target::Item(_) => Some(item),
            };
        }
        let globs = module.uses.iter().filter(|found| found.name.is_none());
        globs.filter_map(|glob| self.from(at, &glob.path, depth + 1)).find_map(|target| match target {
            Target::Module(inner) if inner != at => self.below(inner, path, depth + 1),
            _ => None,
        })
    }
}
