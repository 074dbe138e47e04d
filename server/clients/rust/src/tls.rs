//! TLS: who vouches for a server, and what this client shows of itself.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// How a client talks TLS; for [`Options::tls`](crate::Options::tls). The files are read once. A server is known by the
/// name, or the address, with which it is connected to.
///
/// ```no_run
/// # fn main() -> Result<(), xuid_client::TlsError> {
/// use xuid_client::{Options, Tls};
/// let tls = Tls::with_identity("ca.pem", "client.pem", "client-key.pem")?;
/// let options = Options::new().tls(tls).token("secret");
/// # drop(options);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tls {
    pub(crate) config: Arc<ClientConfig>,
}

/// Why there is no [`Tls`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file that cannot be read.
    #[error("failed to read {path}: check that it is there, and who may read it")]
    Read {
        /// Which one.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file without what it is for.
    #[error("{path} has no {wanted} in PEM")]
    Content {
        /// Which one.
        path: PathBuf,
        /// What should be in it.
        wanted: &'static str,
    },
    /// What the files hold does not fit together.
    #[error("the certificates and the key cannot be used together")]
    Mismatch {
        /// Why not.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

impl Tls {
    /// Trusts servers for which the certificates in the file `ca` (PEM) vouch, and shows no certificate.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn with_ca(ca: impl AsRef<Path>) -> Result<Self, TlsError> {
        Self::new(ca.as_ref(), None)
    }

    /// The same, and shows the certificate in `cert` with the private key in `key` (both PEM) to servers that ask for one.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn with_identity(
        ca: impl AsRef<Path>,
        cert: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Self, TlsError> {
        Self::new(ca.as_ref(), Some((cert.as_ref(), key.as_ref())))
    }

    fn new(ca: &Path, identity: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca)? {
            roots.add(certificate).map_err(mismatch)?;
        }
        // Named here: a default of the whole process could be another's.
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(mismatch)?
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                builder.with_client_auth_cert(certificates(cert)?, private_key(key)?).map_err(mismatch)?
            }
        };
        Ok(Self { config: Arc::new(config) })
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

fn mismatch(error: rustls::Error) -> TlsError {
    TlsError::Mismatch { source: Arc::new(error) }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(&read(path)?).collect::<Result<_, _>>().unwrap_or_default();
    if found.is_empty() {
        return Err(TlsError::Content { path: path.to_owned(), wanted: "certificate" });
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?)
        .map_err(|_| TlsError::Content { path: path.to_owned(), wanted: "private key" })
}
