//! Who is let in: the tokens that count now, and their limits. Every front asks here.

use std::sync::{Arc, PoisonError, RwLock};

use crate::config::Tokens;
use crate::state::id_limit::IdLimit;

/// The rules of one server, which may be changed while it runs.
#[derive(Debug)]
pub(crate) struct AccessRules {
    current: RwLock<Arc<Current>>,
}

#[derive(Debug)]
struct Current {
    tokens: Tokens,
    /// One for each token, in their order.
    limits: Vec<Arc<IdLimit>>,
}

/// A client that may use the server.
#[derive(Debug, Clone)]
pub(crate) struct Admitted {
    /// The name and the limit of its token; `None`: none is asked for.
    pub(crate) token: Option<(String, Arc<IdLimit>)>,
}

impl AccessRules {
    pub(crate) fn new(tokens: Tokens) -> Self {
        Self { current: RwLock::new(Arc::new(Current::new(tokens, None))) }
    }

    /// Whether whoever has `secret` may use the server.
    pub(crate) fn admit(&self, secret: &[u8]) -> Option<Admitted> {
        let current = self.current();
        if current.tokens.is_empty() {
            return Some(Admitted { token: None });
        }
        let place = current.tokens.find(secret)?;
        let (token, limit) = (current.tokens.each().get(place)?, current.limits.get(place)?);
        Some(Admitted { token: Some((token.name.clone(), Arc::clone(limit))) })
    }

    fn current(&self) -> Arc<Current> {
        // Nothing in the locked sections panics half way.
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Current {
    /// A token that keeps its name keeps its bucket, so that connections of before and after share one.
    fn new(tokens: Tokens, before: Option<&Self>) -> Self {
        let limit = |name: &str, ids_per_second: u64| {
            let known = before.and_then(|before| {
                let place = before.tokens.each().iter().position(|token| token.name == name)?;
                before.limits.get(place)
            });
            match known {
                Some(limit) => {
                    limit.set(ids_per_second);
                    Arc::clone(limit)
                }
                None => Arc::new(IdLimit::new(ids_per_second)),
            }
        };
        let limits = tokens.each().iter().map(|token| limit(&token.name, token.ids_per_second)).collect();
        Self { tokens, limits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(rules: &AccessRules, secret: &str) -> Option<Arc<IdLimit>> {
        rules.admit(secret.as_bytes())?.token.map(|(_, limit)| limit)
    }

    #[test]
    fn without_a_token_everybody_is_let_in_and_with_one_only_those_who_have_it() {
        let open = AccessRules::new(Tokens::default());
        assert!(open.admit(b"anything").is_some());
        let closed = AccessRules::new(Tokens::of("sesame"));
        assert!(closed.admit(b"").is_none() && closed.admit(b"anything").is_none());
        assert_eq!(limit(&closed, "sesame").map(|limit| limit.ids_per_second()), Some(0));
    }
}
