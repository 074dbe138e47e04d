//! Certificates for tests: authorities, and what they sign.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

/// A certificate authority, whose files are in a folder.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    pub(crate) ca: String,
}

/// The files of one certificate.
pub(crate) struct Identity {
    pub(crate) cert: String,
    pub(crate) key: String,
}

fn write(path: &Path, text: &str) -> String {
    fs::write(path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

impl Authority {
    /// One that is called so, as are its files.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = write(&folder.join(format!("{name}.pem")), &params.self_signed(&key).unwrap().pem());
        Self { issuer: Issuer::new(params, key), folder: folder.to_owned(), ca }
    }

    /// A certificate for these names and addresses, in files that are called so.
    pub(crate) fn issue(&self, file: &str, names: &[&str]) -> Identity {
        self.sign(file, names, 4000)
    }

    /// One that is over.
    pub(crate) fn issue_expired(&self, file: &str, names: &[&str]) -> Identity {
        self.sign(file, names, 2020)
    }

    fn sign(&self, file: &str, names: &[&str], until: i32) -> Identity {
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = date_time_ymd(until, 1, 1);
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Identity {
            cert: write(&self.folder.join(format!("{file}.pem")), &cert.pem()),
            key: write(&self.folder.join(format!("{file}-key.pem")), &key.serialize_pem()),
        }
    }
}
