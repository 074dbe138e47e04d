//! What a client may do with which named sequences.

use std::sync::Arc;

use xuid_engine::sequence::NamePattern;

/// Something that may be done with a sequence. Whoever may do any of it may also look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// Take numbers.
    Next,
    /// Begin it.
    Create,
    /// Change its settings.
    Alter,
}

impl Right {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Next, Self::Create, Self::Alter];

    /// Its name in the file of tokens.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Next => "next",
            Self::Create => "create",
            Self::Alter => "alter",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The rights of one token. Without bounds, which is the default, it may do everything.
#[derive(Debug, Clone)]
pub(crate) struct SequenceRights {
    /// `None`: all names.
    names: Option<Arc<[NamePattern]>>,
    rights: u8,
}

impl Default for SequenceRights {
    fn default() -> Self {
        Self { names: None, rights: Right::ALL.iter().fold(0, |all, right| all | right.bit()) }
    }
}

impl SequenceRights {
    /// The same with names that fit one of the patterns only.
    pub(super) fn of_names(self, patterns: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let names = patterns.into_iter().map(|pattern| NamePattern::new(pattern.as_ref())).collect();
        Self { names: Some(names), ..self }
    }

    /// The same with these rights only; `None` if there is no right of such a name.
    pub(super) fn only(&self, names: &[&str]) -> Option<Self> {
        let right = |name: &&str| Right::ALL.into_iter().find(|right| right.name() == *name);
        let rights = names.iter().map(right).try_fold(0, |all, right| Some(all | right?.bit()))?;
        Some(Self { rights, names: self.names.clone() })
    }

    /// Whether that may be done with a sequence of that name.
    pub(crate) fn may(&self, right: Right, name: &str) -> bool {
        self.rights & right.bit() != 0 && self.fits(name)
    }

    /// Whether a sequence of that name may be looked at.
    pub(crate) fn may_see(&self, name: &str) -> bool {
        self.rights != 0 && self.fits(name)
    }

    /// Whether all names may be looked at.
    pub(crate) fn may_see_all(&self) -> bool {
        self.rights != 0 && self.names.is_none()
    }

    fn fits(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.iter().any(|pattern| pattern.fits(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_may_do_everything_but_where_it_is_bounded() {
        let all = SequenceRights::default();
        assert!(Right::ALL.into_iter().all(|right| all.may(right, "orders")) && all.may_see_all());
        let orders = all.clone().of_names(["order:*", "users"]);
        assert!(orders.may(Right::Alter, "order:1") && orders.may_see("users") && !orders.may_see_all());
        assert!(!orders.may(Right::Next, "orders") && !orders.may_see("users2"));
        let readers = orders.only(&["next", "alter"]).unwrap();
        assert!(readers.may(Right::Next, "users") && readers.may(Right::Alter, "users"));
        assert!(!readers.may(Right::Create, "users") && !readers.may(Right::Next, "orders"));
        let none = all.only(&[]).unwrap();
        assert!(!none.may(Right::Next, "x") && !none.may_see("x") && !none.may_see_all());
        assert!(!all.clone().of_names(Vec::<String>::new()).may(Right::Next, "x"));
        assert!(all.only(&["next", "drop"]).is_none());
    }
}
