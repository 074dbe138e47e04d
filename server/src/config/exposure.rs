//! What a server must ask of its clients at an address that other machines reach.

use std::net::SocketAddr;

use super::settings::Settings;
use crate::text::exit::{Usage, usage};

/// The flag, as people read it.
const FLAG: &str = "--insecure-listen";

/// Whether other machines reach this address. What counts is the address that was bound, not the one that was asked for.
pub(crate) fn is_exposed(bound: SocketAddr) -> bool {
    !bound.ip().to_canonical().is_loopback()
}

impl Settings {
    /// What is open to everybody at `bound`, as a sentence for the banner and the log; `None`: nothing.
    ///
    /// # Errors
    /// Something is, and nobody said that it may be.
    pub(crate) fn check_exposure(&self, key: &str, bound: SocketAddr) -> Result<Option<String>, Usage> {
        let lacking = self.lacking();
        if !is_exposed(bound) || lacking.is_empty() {
            return Ok(None);
        }
        let found = format!("{key} is bound to {bound}, which other machines reach, without {lacking}");
        if self.insecure_listen {
            return Ok(Some(format!("{found} ({FLAG})")));
        }
        Err(usage(format!(
            "{found}; allowed are a loopback address, a token (XUID_TOKEN, --tokens) and TLS (--tls-cert, \
             --tls-key), or {FLAG} where only friends reach it"
        )))
    }

    /// The same of the addresses that are asked for, as far as they are no names.
    pub(crate) fn check_addresses(&self) -> Result<Vec<String>, Usage> {
        let mut open = Vec::new();
        let ports = [
            ("listen", Some(&self.listen)),
            ("admin", self.admin.as_ref()),
            ("resp", self.resp.as_ref()),
            ("http", self.http.as_ref()),
        ];
        for (key, address) in ports {
            if let Some(literal) = address.and_then(|address| address.parse().ok()) {
                open.extend(self.check_exposure(key, literal)?);
            }
        }
        Ok(open)
    }

    fn lacking(&self) -> String {
        let lacking = [("TLS", self.tls.is_none()), ("a token", self.tokens.is_empty())];
        lacking.iter().filter(|(_, lacks)| *lacks).map(|(what, _)| *what).collect::<Vec<_>>().join(" and ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_that_is_not_loopback_is_exposed() {
        let exposed = |addr: &str| is_exposed(addr.parse().unwrap());
        for inside in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(!exposed(inside), "{inside}");
        }
        for outside in
            ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "169.254.1.1:1", "[fe80::1]:1", "[::ffff:0.0.0.0]:1"]
        {
            assert!(exposed(outside), "{outside}");
        }
    }

    #[test]
    fn what_is_open_to_all_is_refused_unless_it_is_meant_and_then_told() {
        let settings = |file: &str| Settings::of_file(file).unwrap();
        let (inside, outside) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        for file in ["", "token = \"x\""] {
            let closed = settings(file);
            assert_eq!(closed.check_exposure("listen", inside).unwrap(), None);
            let said = closed.check_exposure("admin", outside).unwrap_err().to_string();
            assert!(said.contains("admin is bound to 0.0.0.0:1") && said.contains(FLAG), "{said}");
            assert_eq!(said.contains("a token;"), file.is_empty(), "{said}");
        }
        let open = settings("insecure_listen = true");
        assert_eq!(open.check_exposure("listen", inside).unwrap(), None);
        let told = open.check_exposure("listen", outside).unwrap();
        assert!(told.is_some_and(|told| told.contains("without TLS and a token (--insecure-listen)")));
    }
}
