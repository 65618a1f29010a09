//! Requests to a categorisation server over TCP and TLS, with a server of the test.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread::JoinHandle;

use config::validated::{UrlServer, UrlServerTls};
use network_functions::url_filter::server::{OnFailure, OnUnknown, ServerConfig};
use rcgen::{CertifiedKey, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConnection};

use super::*;

const NAME: &str = "categories.example";

/// A folder that is removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mainstay-categories-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn certified() -> CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate")
}

/// Serves one connection over TLS until the client closes it: each request is answered. `client`: the certificate that it must show.
/// Returns the number of requests.
fn serve(own: &CertifiedKey<KeyPair>, client: Option<&CertifiedKey<KeyPair>>) -> (SocketAddr, JoinHandle<usize>) {
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions");
    let builder = match client {
        Some(client) => {
            let mut roots = RootCertStore::empty();
            roots.add(client.cert.der().clone()).expect("a root");
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        }
        None => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(vec![own.cert.der().clone()], key).expect("a certificate");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let end = listener.local_addr().expect("an address");
    let serving = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        let connection = ServerConnection::new(Arc::new(config)).expect("a connection");
        let (mut stream, mut requests, mut buffer) = (StreamOwned::new(connection, stream), 0, [0; 4096]);
        while let Ok(1..) = stream.read(&mut buffer) {
            requests += 1;
            let answered = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nads host");
            if answered.and_then(|()| stream.flush()).is_err() {
                break;
            }
        }
        requests
    });
    (end, serving)
}

fn config_of(address: SocketAddr, tls: UrlServerTls) -> UrlServer {
    let config = ServerConfig {
        categories: vec!["ads".to_owned()],
        on_unknown: OnUnknown::Wait,
        on_failure: OnFailure::Pass,
        timeout: Duration::from_secs(10),
        cache_entries: 1000,
        cache_lifetime: Duration::from_secs(3600),
    };
    UrlServer { address, token: None, tls: Some(tls), config }
}

fn server_of(address: SocketAddr, tls: UrlServerTls) -> Arc<CategoryServer> {
    CategoryServer::new(&config_of(address, tls), [1, 2], None).expect("a server")
}

#[test]
fn a_server_over_tls_is_asked_twice_over_one_connection_and_verified() {
    let folder = Folder::new("verified");
    let own = certified();
    let cases = [
        (own.cert.pem(), Some(NAME), None),
        (own.cert.pem(), Some("other.example"), Some("not valid for name")),
        (own.cert.pem(), None, Some("not valid for name")),
        (certified().cert.pem(), Some(NAME), Some("invalid peer certificate")),
    ];
    for (authority, name, refused) in cases {
        let (end, serving) = serve(&own, None);
        let authority = folder.file("authority.pem", &authority);
        let server = server_of(end, UrlServerTls { authority, server_name: name.map(str::to_owned), identity: None });
        let mut requests = Requests::default();
        for _ in 0..2 {
            match (requests.exchange(&server, "POST / HTTP/1.1\r\n\r\n"), refused) {
                (Ok(body), None) => assert_eq!(body, b"ads host"),
                (Err(failure), Some(part)) => {
                    assert!(failure.to_string().contains(part), "{failure}");
                    break;
                }
                (result, _) => panic!("{result:?}, {refused:?}"),
            }
        }
        drop(requests);
        assert_eq!(serving.join().expect("it served"), if refused.is_some() { 0 } else { 2 });
    }
}

#[test]
fn a_server_that_demands_a_certificate_gets_the_configured_one() {
    let folder = Folder::new("client");
    let (own, client) = (certified(), certified());
    let authority = folder.file("authority.pem", &own.cert.pem());
    let identity =
        (folder.file("client.pem", &client.cert.pem()), folder.file("client.key", &client.signing_key.serialize_pem()));
    for shown in [Some(identity), None] {
        let (end, serving) = serve(&own, Some(&client));
        let is_shown = shown.is_some();
        let tls = UrlServerTls { authority: authority.clone(), server_name: Some(NAME.to_owned()), identity: shown };
        let mut requests = Requests::default();
        let result = requests.exchange(&server_of(end, tls), "POST / HTTP/1.1\r\n\r\n");
        assert_eq!(result.is_ok(), is_shown, "{result:?}");
        drop(requests);
        assert_eq!(serving.join().expect("it served"), usize::from(is_shown));
    }
}

#[test]
fn a_reload_goes_on_with_the_server_unless_a_file_has_changed() {
    let folder = Folder::new("reload");
    let authority = folder.file("authority.pem", &certified().cert.pem());
    let config = config_of(
        ([127, 0, 0, 1], 1).into(),
        UrlServerTls { authority, server_name: Some(NAME.to_owned()), identity: None },
    );
    let first = CategoryServer::new(&config, [1, 2], None).expect("a server");
    let second = CategoryServer::new(&config, [1, 2], Some(&first)).expect("a server");
    assert!(Arc::ptr_eq(&first, &second));
    folder.file("authority.pem", &certified().cert.pem());
    let third = CategoryServer::new(&config, [1, 2], Some(&first)).expect("a server");
    assert!(!Arc::ptr_eq(&first, &third));
    folder.file("authority.pem", "nothing");
    let error = CategoryServer::new(&config, [1, 2], None).expect_err("no certificate");
    assert!(error.to_string().contains("authority.pem"), "{error}");
}
