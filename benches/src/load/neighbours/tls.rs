//! What TLS costs: the rate of single ids, and the handshakes of many clients.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream, crypto};
use tempfile::TempDir;
use xuid_load::{Link, Wire};

use super::party::{NEXT, asking, first_of, guest};
use crate::load::driver::{check, greet};
use crate::load::process::Server;
use crate::measure::now;
use crate::rows::{Row, at_least, figure, median};

/// Connections, and requests in flight on each.
const CONNECTIONS: usize = 50;
const IN_FLIGHT: u32 = 100;

/// Clients that connect, one after the other.
const CLIENTS: u32 = 1_000;

/// Rounds of each, and how long one is measured.
const ROUNDS: usize = 5;
const SPAN: Duration = Duration::from_secs(1);
const HANDSHAKE_ROUNDS: usize = 3;

/// A certificate that vouches for itself, and who trusts it.
struct Trust {
    config: Arc<ClientConfig>,
    cert: String,
    key: String,
    _folder: TempDir,
}

impl Trust {
    fn new() -> Result<Self> {
        let folder = TempDir::new()?;
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let file = |name: &str, text: String| -> Result<String> {
            let path = folder.path().join(name);
            std::fs::write(&path, text)?;
            Ok(path.to_str().context("a folder whose name is no UTF-8")?.to_owned())
        };
        let (pem, key) = (file("cert.pem", cert.pem())?, file("key.pem", signing_key.serialize_pem())?);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(cert.der().to_vec()))?;
        let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config), cert: pem, key, _folder: folder })
    }

    /// A connection that was greeted within TLS. Each client is new: it resumes no session of another.
    fn connect(&self, address: SocketAddr) -> Result<Wire> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = rustls::client::Resumption::disabled();
        let name = ServerName::try_from("127.0.0.1")?;
        let mut session = Box::new(ClientConnection::new(Arc::new(config), name)?);
        greet(&mut Stream::new(&mut *session, &mut socket))?;
        Ok(Wire::Tls { socket, session })
    }
}

pub(super) fn rows() -> Result<Vec<Row>> {
    let trust = Trust::new()?;
    // Each alone on a core, and this thread on the other.
    let plain = Server::on_land(&[])?;
    let tls = Server::on_land(&["--tls-cert", &trust.cert, "--tls-key", &trust.key])?;
    let (mut rates_plain, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        rates_plain.push(rate(asking(plain.address, CONNECTIONS, IN_FLIGHT, NEXT)?)?);
        let open = |_| -> Result<Link<_>> {
            let wire = trust.connect(tls.address)?;
            let Wire::Tls { socket, .. } = &wire else { unreachable!("it was made so") };
            socket.set_nonblocking(true)?;
            Ok(Link::new(wire, "the server", Vec::new(), NEXT, IN_FLIGHT, None))
        };
        rates.push(rate((0..CONNECTIONS).map(open).collect::<Result<_>>()?)?);
    }
    let figures = format!("{}, plain {}", figure(&rates, "M/s"), figure(&rates_plain, "M/s"));
    let path = format!("NEXT {CONNECTIONS}x{IN_FLIGHT} within TLS");
    let of_rates = at_least(&path, figures, median(&rates) / median(&rates_plain), 0.5, "x plain");
    Ok(vec![of_rates, handshakes(&trust, &plain, &tls)?])
}

fn rate(links: Vec<Link<xuid_load::Ask>>) -> Result<f64> {
    let results = first_of(vec![guest(links)], SPAN)?;
    check(&results)?;
    Ok(results.requests as f64 / SPAN.as_secs_f64() / 1e6)
}

/// How long a thousand clients take to connect and be greeted, and what the server's core spends on them. There is no
/// target: the row tells a price.
fn handshakes(trust: &Trust, plain: &Server, tls: &Server) -> Result<Row> {
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..HANDSHAKE_ROUNDS {
        for (place, server) in [(0, tls), (2, plain)] {
            let (begun, before) = (now(), server.cpu_time()?);
            for _ in 0..CLIENTS {
                if place == 0 {
                    trust.connect(server.address)?;
                } else {
                    let mut stream = TcpStream::connect(server.address)?;
                    stream.set_nodelay(true)?;
                    greet(&mut stream)?;
                }
            }
            times[place].push(begun.elapsed().as_secs_f64() * 1e3);
            times[place + 1].push(server.cpu_time()?.saturating_sub(before).as_secs_f64() * 1e3);
        }
    }
    let [all, cpu, all_plain, cpu_plain] = &times;
    let figures = format!(
        "{}, of which the server's core {}; plain {}, {}",
        figure(all, "ms"),
        figure(cpu, "ms"),
        figure(all_plain, "ms"),
        figure(cpu_plain, "ms")
    );
    let path = "1,000 clients connect and are greeted within TLS, one after the other".to_owned();
    let ratio = median(all) / median(all_plain);
    Ok(Row { path, figures, ratio, target: "x plain, no target".to_owned(), met: true })
}
