//! TLS, by `Options::tls`.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};
use xuid_client::{Client, ClientError, Options, Order, Tls, TlsError};
use xuid_protocol::{
    ArrayWriter, ClusterId, Limits, PREFACE, ParsedRequest, Phase, Request, parse_request, reply_hello,
    reply_id,
};

use crate::fake::hello_reply;

/// A CA's file, and a server's certificate by it for 127.0.0.1, as files of that name.
fn certificates(folder: &Path, name: &str) -> (String, ServerConfig) {
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = folder.join(format!("{name}.pem"));
    fs::write(&ca, params.self_signed(&ca_key).unwrap().pem()).unwrap();
    let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let cert = own.signed_by(&key, &Issuer::new(params, ca_key)).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(cert.pem().as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
        )
        .unwrap();
    (ca.to_str().unwrap().to_owned(), config)
}

/// A server that greets, and answers NEXT by 7 and ARRAY by as many ids.
async fn serving(config: ServerConfig) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    // It ends with its runtime.
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            stream.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
            let (mut input, mut phase) = (Vec::new(), Phase::Greeting);
            while stream.read_buf(&mut input).await.is_ok_and(|count| count > 0) {
                let mut output = Vec::new();
                while let ParsedRequest::Frame { consumed, request_id, request, .. } =
                    parse_request(&input, phase, 4_096)
                {
                    match request.unwrap() {
                        Request::Hello(_) => {
                            let reply = hello_reply(ClusterId::ANY, Limits::default());
                            reply_hello(&mut output, request_id, &reply);
                        }
                        Request::Array(bulk) => {
                            let mut writer = ArrayWriter::begin(&mut output, request_id, bulk.count);
                            writer.run(1, bulk.count);
                            writer.finish();
                        }
                        _ => reply_id(&mut output, request_id, 7),
                    }
                    phase = Phase::Serving;
                    input.drain(..consumed);
                }
                if stream.write_all(&output).await.is_err() || stream.flush().await.is_err() {
                    break;
                }
            }
        }
    });
    address
}

#[tokio::test]
async fn a_client_that_trusts_the_server_s_ca_is_served_small_and_large() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, config) = certificates(folder.path(), "ours");
    let address = serving(config).await;
    let client = Client::connect(address, Options::new().tls(Tls::with_ca(ca).unwrap())).await.unwrap();
    assert_eq!(client.next(Order::Any).await.unwrap(), 7);
    let ids = client.array(100_000, Order::Any, Duration::from_secs(1)).await.unwrap();
    assert!(ids.len() == 100_000 && ids.last() == Some(&100_000));
    let many = futures_of(&client, 500).await;
    assert!(many.iter().all(|id| *id == 7) && many.len() == 500);
}

/// Requests of many tasks at once.
async fn futures_of(client: &Client, count: usize) -> Vec<u64> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..count {
        let client = client.clone();
        tasks.spawn(async move { client.next(Order::Any).await.unwrap() });
    }
    tasks.join_all().await
}

#[tokio::test]
async fn a_server_for_which_nobody_vouches_is_an_error_that_waiting_does_not_help() {
    let folder = tempfile::tempdir().unwrap();
    let ((ours, _), (_, config)) =
        (certificates(folder.path(), "ours"), certificates(folder.path(), "other"));
    let address = serving(config).await;
    let tls = Tls::with_ca(ours).unwrap();
    let error = Client::connect(&address, Options::new().tls(tls)).await.unwrap_err();
    assert!(matches!(error, ClientError::Tls { .. }) && !error.is_retryable(), "{error:?}");
}

#[test]
fn files_that_hold_something_else_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, _) = certificates(folder.path(), "ours");
    assert!(matches!(Tls::with_ca("/nowhere"), Err(TlsError::Read { .. })));
    let said = Tls::with_identity(&ca, &ca, &ca).unwrap_err().to_string();
    assert!(said.contains(&ca) && said.contains("private key"), "{said}");
    fs::write(folder.path().join("empty"), "").unwrap();
    assert!(matches!(Tls::with_ca(folder.path().join("empty")), Err(TlsError::Content { .. })));
}
