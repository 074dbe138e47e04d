//! Who is let in: the tokens that count now, their limits, and TLS. Every front asks here.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio_rustls::rustls::ServerConfig;

use crate::config::{ServerTls, Tokens};
use crate::state::address_limits::AddressLimits;
use crate::state::id_limit::{Allowance, IdLimit};

/// How long a client waits for the answer to a wrong token: guessing is slow that way, and costs us a timer.
pub(crate) const REJECTION_PAUSE: Duration = Duration::from_millis(300);

/// The rules of one server, which may be changed while it runs; but for whether there is TLS.
#[derive(Debug)]
pub(crate) struct AccessRules {
    has_tls: bool,
    current: RwLock<Arc<Current>>,
    addresses: AddressLimits,
}

#[derive(Debug)]
struct Current {
    tokens: Tokens,
    tls: Option<ServerTls>,
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
    pub(crate) fn new(tokens: Tokens, tls: Option<ServerTls>) -> Self {
        Self {
            has_tls: tls.is_some(),
            current: RwLock::new(Arc::new(Current::new(tokens, tls, None))),
            addresses: AddressLimits::none(),
        }
    }

    /// What all clients of one address may take a second from now on, those that are connected too; 0: no limit.
    pub(crate) fn limit_addresses(&self, ids_per_second: u64) {
        self.addresses.set(ids_per_second);
    }

    /// Addresses whose ids are counted.
    pub(crate) fn limited_addresses(&self) -> usize {
        self.addresses.addresses()
    }

    /// Whether both ports speak TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.has_tls
    }

    /// TLS with a new client of XUID/1.
    pub(crate) fn tls_for_clients(&self) -> Option<Arc<ServerConfig>> {
        Some(Arc::clone(&self.current().tls.as_ref()?.clients))
    }

    /// TLS with a new client of the admin port.
    pub(crate) fn tls_for_admin(&self) -> Option<Arc<ServerConfig>> {
        Some(Arc::clone(&self.current().tls.as_ref()?.admin))
    }

    /// Whether the server can tell who a client is: by a token, or by a certificate.
    pub(crate) fn can_ask(&self) -> bool {
        self.asks_for_token() || self.asks_for_certificate()
    }

    /// Whether clients must say a token.
    pub(crate) fn asks_for_token(&self) -> bool {
        !self.current().tokens.is_empty()
    }

    /// Whether clients must show a certificate.
    pub(crate) fn asks_for_certificate(&self) -> bool {
        self.current().tls.as_ref().is_some_and(|tls| tls.asks_for_certificate)
    }

    /// Whether `secret` is one of a token.
    pub(crate) fn knows(&self, secret: &[u8]) -> bool {
        self.current().tokens.find(secret).is_some()
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

    /// What a client that was let in may take. Of one whose address is not known, only its token counts.
    pub(crate) fn allowance(&self, admitted: Option<Arc<IdLimit>>, address: Option<IpAddr>) -> Allowance {
        Allowance { token: admitted, address: address.map(|address| self.addresses.bucket(address)) }
    }

    /// From now on these count, for clients that come; a token that keeps its name keeps its bucket, and its new limit
    /// counts for clients that are connected, too.
    pub(crate) fn replace(&self, tokens: Tokens, tls: Option<ServerTls>) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(Current::new(tokens, tls, Some(&current)));
    }

    fn current(&self) -> Arc<Current> {
        // Nothing in the locked sections panics half way.
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Current {
    /// A token that keeps its name keeps its bucket, so that connections of before and after share one.
    fn new(tokens: Tokens, tls: Option<ServerTls>, before: Option<&Self>) -> Self {
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
        Self { tokens, tls, limits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_keeps_its_name_keeps_its_bucket_and_gets_its_new_limit_at_once() {
        let file = |secret: &str, most: u32| {
            Tokens::parse(&format!("[token.a]\nsecrets = [{secret:?}]\nids_per_second = {most}")).unwrap()
        };
        let rules = AccessRules::new(file("old", 10), None);
        let before = limit(&rules, "old").unwrap();
        rules.replace(file("new", 20), None);
        let after = limit(&rules, "new").unwrap();
        assert!(limit(&rules, "old").is_none(), "it was taken out");
        assert!(Arc::ptr_eq(&before, &after) && before.ids_per_second() == 20);
        rules.replace(Tokens::of("other"), None);
        assert!(limit(&rules, "new").is_none() && limit(&rules, "other").is_some());
    }

    fn limit(rules: &AccessRules, secret: &str) -> Option<Arc<IdLimit>> {
        rules.admit(secret.as_bytes())?.token.map(|(_, limit)| limit)
    }

    #[test]
    fn without_a_token_everybody_is_let_in_and_with_one_only_those_who_have_it() {
        let open = AccessRules::new(Tokens::default(), None);
        assert!(open.admit(b"anything").is_some());
        let closed = AccessRules::new(Tokens::of("sesame"), None);
        assert!(closed.admit(b"").is_none() && closed.admit(b"anything").is_none());
        assert_eq!(limit(&closed, "sesame").map(|limit| limit.ids_per_second()), Some(0));
    }
}
