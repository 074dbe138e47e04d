//! TLS: the files with certificates and keys, and what is made of them, for servers and for commands.
//!
//! # Invariants
//! - I1 no error and no log shows a key;
//! - I2 what was read is complete, and fits together, before any of it is used.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::secrets::open_to_all;
use super::sources::{Merged, Reading};
use crate::text::exit::{Usage, usage};

/// What a server shows to its clients, and what it asks of them.
#[derive(Clone)]
pub(crate) struct ServerTls {
    /// For XUID/1: a client certificate is asked for where there is a CA for them.
    pub(crate) clients: Arc<ServerConfig>,
    /// For the admin port: the same, but a client may have none, since probes have none.
    pub(crate) admin: Arc<ServerConfig>,
    /// Whether client certificates are asked for.
    pub(crate) asks_for_certificate: bool,
    key: PathBuf,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("key", &self.key).finish_non_exhaustive()
    }
}

impl ServerTls {
    /// What the files of `tls_cert`, `tls_key` and `tls_client_ca` make; `None` if none is named.
    pub(super) fn from_merged(from: &Merged) -> Result<Option<Self>> {
        let file = |name: &str| from.optional(name, |text| (!text.is_empty()).then(|| PathBuf::from(text)));
        let (cert, key, ca) = (file("tls_cert")?, file("tls_key")?, file("tls_client_ca")?);
        let (cert, key) = match (cert, key) {
            (Some(cert), Some(key)) => (cert, key),
            (None, None) if ca.is_none() => return Ok(None),
            (cert, _) => {
                let lacking = if cert.is_none() { "tls_cert" } else { "tls_key" };
                let text = format!(
                    "{lacking} is not given; allowed are tls_cert and tls_key together, tls_client_ca with them, or none"
                );
                return Err(usage(text).into());
            }
        };
        let reading = from.reading;
        let chain = certificates("tls_cert", &cert, reading)?;
        let secret = private_key("tls_key", &key, reading)?;
        let roots = ca.as_deref().map(|ca| trusted("tls_client_ca", ca, reading)).transpose()?;
        let make = |needs_certificate: bool| -> Result<ServerConfig, String> {
            let builder = ServerConfig::builder_with_provider(provider())
                .with_safe_default_protocol_versions()
                .map_err(|error| error.to_string())?;
            let builder = match &roots {
                None => builder.with_no_client_auth(),
                Some(roots) => {
                    let asking = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider());
                    let asking = if needs_certificate { asking } else { asking.allow_unauthenticated() };
                    builder.with_client_cert_verifier(asking.build().map_err(|error| error.to_string())?)
                }
            };
            builder.with_single_cert(chain.clone(), secret.clone_key()).map_err(|error| error.to_string())
        };
        let refused = |why: String| {
            let (cert, key) = (cert.display(), key.display());
            usage(format!(
                "the certificate in {cert} (tls_cert) cannot be used with the key in {key} (tls_key): {why}"
            ))
        };
        let (clients, admin) = (make(true).map_err(refused)?, make(false).map_err(refused)?);
        let asks_for_certificate = roots.is_some();
        Ok(Some(Self { clients: Arc::new(clients), admin: Arc::new(admin), asks_for_certificate, key }))
    }

    /// One whose certificate vouches for itself at `127.0.0.1`, and what a client of it trusts.
    #[cfg(test)]
    pub(crate) fn self_signed() -> (Self, Arc<ClientConfig>) {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let (cert, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
        let mut roots = RootCertStore::empty();
        roots.add(cert.clone()).unwrap();
        let server = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let server = server.unwrap().with_no_client_auth();
        let server = server.with_single_cert(vec![cert], PrivateKeyDer::try_from(key).unwrap()).unwrap();
        let client = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let client = client.unwrap().with_root_certificates(roots).with_no_client_auth();
        let clients = Arc::new(server);
        let admin = Arc::clone(&clients);
        (Self { clients, admin, asks_for_certificate: false, key: PathBuf::new() }, Arc::new(client))
    }

    /// What is wrong with the key's file, if anything is.
    pub(crate) fn warning(&self) -> Option<String> {
        open_to_all(&self.key, "holds the key of tls_key")
    }
}

/// How a command talks to servers: `--tls` and its files.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct TlsArgs {
    /// Talk TLS to the server; --ca says who vouches for it
    #[arg(long, env = "XUID_TLS", hide_env_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    tls: bool,
    /// A file with the certificates (PEM) that vouch for the server
    #[arg(long, value_name = "FILE", env = "XUID_CA", hide_env_values = true)]
    ca: Option<PathBuf>,
    /// This client's own certificate (PEM), where the server asks for one
    #[arg(long, value_name = "FILE", env = "XUID_CERT", hide_env_values = true)]
    cert: Option<PathBuf>,
    /// The private key (PEM) of --cert
    #[arg(long, value_name = "FILE", env = "XUID_KEY", hide_env_values = true)]
    key: Option<PathBuf>,
}

impl TlsArgs {
    /// What they make; `None`: plain TCP.
    pub(crate) fn load(&self) -> Result<Option<Arc<ClientConfig>>, Usage> {
        if !self.tls {
            let given = [("--ca", &self.ca), ("--cert", &self.cert), ("--key", &self.key)];
            return match given.into_iter().find(|(_, file)| file.is_some()) {
                None => Ok(None),
                Some((flag, _)) => Err(usage(format!(
                    "{flag} (or its variable) is given without --tls (XUID_TLS=true): nothing would be encrypted; allowed is it \
                     with --tls only"
                ))),
            };
        }
        let reading = Reading::Once;
        let Some(ca) = &self.ca else {
            let text = "--tls needs --ca FILE (or XUID_CA): the certificates that vouch for the server";
            return Err(usage(text));
        };
        let refused =
            |error: tokio_rustls::rustls::Error| usage(format!("--cert cannot be used with --key: {error}"));
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(refused)?
            .with_root_certificates(trusted("--ca", ca, reading)?);
        let config = match (&self.cert, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(cert), Some(key)) => builder
                .with_client_auth_cert(
                    certificates("--cert", cert, reading)?,
                    private_key("--key", key, reading)?,
                )
                .map_err(refused)?,
            _ => return Err(usage("--cert and --key go together: allowed are both or neither")),
        };
        Ok(Some(Arc::new(config)))
    }
}

/// Named each time: a process-wide default could be another's.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn text(key: &str, path: &Path, reading: Reading) -> Result<String, Usage> {
    reading
        .text(path)
        .map_err(|error| usage(format!("failed to read the file {} of {key}: {error}", path.display())))
}

fn certificates(key: &str, path: &Path, reading: Reading) -> Result<Vec<CertificateDer<'static>>, Usage> {
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(text(key, path, reading)?.as_bytes()).collect();
    let wrong = |found: &str| {
        usage(format!("the file {} of {key} {found}; allowed are certificates in PEM", path.display()))
    };
    match found {
        Ok(found) if found.is_empty() => Err(wrong("has no certificate")),
        Ok(found) => Ok(found),
        Err(_) => Err(wrong("is damaged")),
    }
}

fn private_key(key: &str, path: &Path, reading: Reading) -> Result<PrivateKeyDer<'static>, Usage> {
    // The file of a secret: what is in it is not shown.
    PrivateKeyDer::from_pem_slice(text(key, path, reading)?.as_bytes()).map_err(|_| {
        usage(format!(
            "the file {} of {key} has no private key; allowed is one in PEM, not encrypted",
            path.display()
        ))
    })
}

fn trusted(key: &str, path: &Path, reading: Reading) -> Result<Arc<RootCertStore>, Usage> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(key, path, reading)? {
        roots.add(certificate).map_err(|error| {
            usage(format!(
                "the file {} of {key} has a certificate that cannot vouch for others: {error}",
                path.display()
            ))
        })?;
    }
    Ok(Arc::new(roots))
}
