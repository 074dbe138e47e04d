//! Who is let in: the tokens that count now, their limits, and TLS. Every front asks here.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use tokio_rustls::rustls::ServerConfig;

use crate::config::{SequenceRights, ServerTls, Tokens};
use crate::state::address_limits::AddressLimits;
use crate::state::id_limit::{Allowance, IdLimit};

/// How long a client waits for the answer to a wrong token: guessing is slow that way, and costs us a timer.
pub(crate) const REJECTION_PAUSE: Duration = Duration::from_millis(300);

/// The rules of one server, which may be changed while it runs; but for whether there is TLS.
#[derive(Debug)]
pub(crate) struct AccessRules {
    has_tls: bool,
    current: RwLock<Arc<Current>>,
    /// How often they changed.
    changes: AtomicU64,
    addresses: AddressLimits,
}

#[derive(Debug)]
struct Current {
    tokens: Tokens,
    tls: Option<ServerTls>,
    /// One for each token, in their order.
    limits: Vec<Arc<IdLimit>>,
    /// By the token's name: those, and of tokens that are gone those that a connected client has.
    buckets: HashMap<String, Weak<IdLimit>>,
}

/// A client that may use the server.
#[derive(Debug, Clone)]
pub(crate) struct Admitted {
    /// The name and the limit of its token; `None`: none is asked for.
    pub(crate) token: Option<(String, Arc<IdLimit>)>,
    /// What it may do with named sequences.
    pub(crate) rights: ClientRights,
}

/// What a client may do with named sequences: what its token says now.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientRights {
    token: Option<String>,
    /// As of which change of the rules.
    changes: u64,
    rights: SequenceRights,
}

impl ClientRights {
    /// As the rules say now. A token that is gone from them keeps what it had, as its clients stay connected.
    pub(crate) fn now(&mut self, rules: &AccessRules) -> &SequenceRights {
        // Acquire: pairs with the Release in `replace`, so that what is read below is at least as new.
        let changes = rules.changes.load(Ordering::Acquire);
        if self.changes != changes {
            self.changes = changes;
            let current = rules.current();
            let mut named = current.tokens.each().iter();
            if let Some(token) = named.find(|token| Some(&token.name) == self.token.as_ref()) {
                self.rights = token.sequences.clone();
            }
        }
        &self.rights
    }
}

impl AccessRules {
    pub(crate) fn new(tokens: Tokens, tls: Option<ServerTls>) -> Self {
        Self {
            has_tls: tls.is_some(),
            current: RwLock::new(Arc::new(Current::new(tokens, tls, None))),
            changes: AtomicU64::new(0),
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

    /// How often the rules changed: a front that asks for each request asks anew when this is another number.
    pub(crate) fn changes(&self) -> u64 {
        // Acquire: pairs with the Release in `replace`, so that what is asked then is at least as new.
        self.changes.load(Ordering::Acquire)
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
        // Read first: rights that are newer than they say are looked up once more.
        let changes = self.changes.load(Ordering::Acquire);
        let current = self.current();
        if current.tokens.is_empty() {
            return Some(Admitted {
                token: None,
                rights: ClientRights { changes, ..ClientRights::default() },
            });
        }
        let place = current.tokens.find(secret)?;
        let (token, limit) = (current.tokens.each().get(place)?, current.limits.get(place)?);
        let (name, rights) = (token.name.clone(), token.sequences.clone());
        let rights = ClientRights { token: Some(name.clone()), changes, rights };
        Some(Admitted { token: Some((name, Arc::clone(limit))), rights })
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
        // Release: pairs with the Acquire in `ClientRights::now`.
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn current(&self) -> Arc<Current> {
        // Nothing in the locked sections panics half way.
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Current {
    /// A token that keeps its name keeps its bucket, so that connections of before and after share one; so does one that was gone
    /// meanwhile, as long as a client of before is connected.
    fn new(tokens: Tokens, tls: Option<ServerTls>, before: Option<&Self>) -> Self {
        let mut buckets = before.map(|before| before.buckets.clone()).unwrap_or_default();
        let mut limit = |name: &str, ids_per_second: u64| {
            if let Some(known) = buckets.get(name).and_then(Weak::upgrade) {
                known.set(ids_per_second);
                return known;
            }
            let made = Arc::new(IdLimit::new(ids_per_second));
            buckets.insert(name.to_owned(), Arc::downgrade(&made));
            made
        };
        let limits = tokens.each().iter().map(|token| limit(&token.name, token.ids_per_second)).collect();
        buckets.retain(|_, bucket| bucket.strong_count() > 0);
        Self { tokens, tls, limits, buckets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Right;

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

    #[test]
    fn a_token_that_was_gone_for_one_reload_limits_clients_of_before_as_well() {
        let file = |most: u32| {
            Tokens::parse(&format!("[token.a]\nsecrets = [\"x\"]\nids_per_second = {most}")).unwrap()
        };
        let rules = AccessRules::new(file(10), None);
        let before = limit(&rules, "x").unwrap();
        rules.replace(Tokens::of("other"), None);
        rules.replace(file(20), None);
        assert_eq!(before.ids_per_second(), 20, "a client that stayed connected has the limit of before");
        assert!(Arc::ptr_eq(&before, &limit(&rules, "x").unwrap()), "clients of one token have two buckets");
    }

    #[test]
    fn rights_count_at_once_for_clients_that_were_let_in_before() {
        let file = |rights: &str| {
            Tokens::parse(&format!("[token.a]\nsecrets = [\"x\"]\nnames = [\"order:*\"]\nrights = {rights}"))
                .unwrap()
        };
        let rules = AccessRules::new(file("[\"next\"]"), None);
        let mut client = rules.admit(b"x").unwrap().rights;
        assert!(client.now(&rules).may(Right::Next, "order:1") && !client.now(&rules).may(Right::Next, "x"));
        assert!(!client.now(&rules).may(Right::Create, "order:1"));
        rules.replace(file("[\"create\"]"), None);
        assert!(client.now(&rules).may(Right::Create, "order:1"));
        assert!(!client.now(&rules).may(Right::Next, "order:1"));
        rules.replace(Tokens::of("other"), None);
        assert!(!client.now(&rules).may(Right::Next, "order:1"), "a token that is gone gets nothing new");
        let open = AccessRules::new(Tokens::default(), None);
        assert!(open.admit(b"").unwrap().rights.now(&open).may(Right::Alter, "x"));
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
