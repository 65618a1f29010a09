//! Clients from afar: tokens, certificates, and strangers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
};

use super::*;
use crate::remote::{
    ADMISSION_TIMEOUT, Credentials, Identity, REMOTE_CLIENTS_OF_ADDRESS_MAX, RemoteAccess, RemoteServer, Role,
};
use crate::target::{RemoteTarget, Target};

const READ_TOKEN: &str = "11112222333344445555666677778888";
const OPERATE_TOKEN: &str = "aaaabbbbccccddddeeeeffff00001111";
/// More than an answer takes on any machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// An authority and the certificates that it has given out, as files.
struct Authority {
    directory: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(directory: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = directory.join(name);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("ca.pem"), issuer.pem()).unwrap();
        Self { directory, issuer }
    }

    fn file(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    fn issue(&self, name: &str, usage: ExtendedKeyUsagePurpose, last_year: i32) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(last_year, 1, 1));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let path = |ending: &str| self.directory.join(format!("{name}-{last_year}.{ending}"));
        fs::write(path("pem"), certificate.pem()).unwrap();
        write_secret(&path("key"), &key.serialize_pem());
        Identity { certificate: path("pem"), key: path("key") }
    }
}

fn write_secret(path: &Path, contents: &str) {
    fs::write(path, contents).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A gateway that is offered from afar, and what its clients have.
struct Site {
    remote: RemoteServer,
    authority: Authority,
    stranger: Authority,
    access: RemoteAccess,
    _local: ControlServer,
    _answering: Answering,
    directory: Directory,
}

impl Site {
    fn new(has_tls: bool) -> Self {
        let directory = Directory::new();
        let (answering, local) = super::serve(&directory, node(3));
        let root = directory.socket().parent().unwrap().to_owned();
        let (authority, stranger) = (Authority::new(&root, "ours"), Authority::new(&root, "theirs"));
        write_secret(&root.join("tokens"), &format!("noc read {READ_TOKEN}\nops operate {OPERATE_TOKEN}\n"));
        write_secret(&root.join("read"), READ_TOKEN);
        write_secret(&root.join("operate"), &format!("{OPERATE_TOKEN}\n"));
        write_secret(&root.join("wrong"), &READ_TOKEN.replace('1', "2"));
        let identity = authority.issue("gateway.example", ExtendedKeyUsagePurpose::ServerAuth, 2100);
        let access = RemoteAccess {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tokens: Some(root.join("tokens")),
            identity: has_tls.then_some(identity),
            client_authority: has_tls.then(|| authority.file()),
            clients: vec![("noc.example".to_owned(), Role::Read), ("ops.example".to_owned(), Role::Operate)],
        };
        let remote = local.listen_afar(access.listen, Credentials::load(&access).unwrap()).unwrap();
        Self { remote, authority, stranger, access, _local: local, _answering: answering, directory }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.socket().parent().unwrap().join(name)
    }

    fn target(&self, token: Option<&str>, identity: Option<Identity>) -> Target {
        let has_tls = self.access.identity.is_some();
        Target::Remote(Box::new(RemoteTarget {
            address: self.remote.address().to_string(),
            authority: has_tls.then(|| self.authority.file()),
            server_name: has_tls.then(|| "gateway.example".to_owned()),
            identity,
            token: token.map(|name| self.file(name)),
        }))
    }

    /// A client may know that it is refused before the server has counted it.
    fn wait_for_admitted_and_refused(&self, wanted: (u64, u64)) {
        let deadline = Instant::now() + PATIENCE;
        while self.remote.admitted_and_refused() != wanted && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert_eq!(self.remote.admitted_and_refused(), wanted);
    }

    fn connections(&self, token: Option<&str>, identity: Option<Identity>) -> Result<u64, ClientError> {
        Client::open(self.target(token, identity))?.status().map(|status| status.connections.count)
    }
}

fn is_denied<T: std::fmt::Debug>(answer: &Result<T, ClientError>) -> bool {
    matches!(answer, Err(ClientError::Refused { kind: ErrorKind::Denied, .. }))
}

#[test]
fn a_token_lets_in_as_far_as_its_role_goes_with_tls_and_without() {
    for has_tls in [false, true] {
        let site = Site::new(has_tls);
        assert_eq!(site.connections(Some("read"), None).unwrap(), 3);
        let mut reader = Client::open(site.target(Some("read"), None)).unwrap();
        let mut flows = Vec::new();
        reader.flows(FlowFilterText::default(), 100, |flow| flows.push(flow)).unwrap();
        assert_eq!(flows.len(), 3);
        assert!(is_denied(&reader.undrain()), "a reader gives no orders");
        assert_eq!(reader.status().unwrap().connections.count, 3, "and may go on reading");
        let refused = Client::open(site.target(Some("operate"), None)).unwrap().undrain();
        assert!(!is_denied(&refused), "{refused:?}");
        site.wait_for_admitted_and_refused((3, 0));
    }
}

#[test]
fn without_a_token_that_is_known_nothing_is_answered() {
    for has_tls in [false, true] {
        let site = Site::new(has_tls);
        let wrong = site.connections(Some("wrong"), None);
        assert!(is_denied(&wrong), "{wrong:?}");
        let none = site.connections(None, None);
        assert!(is_denied(&none), "{none:?}");
        site.wait_for_admitted_and_refused((0, 2));
    }
}

#[test]
fn a_certificate_lets_in_by_the_name_in_it() {
    let site = Site::new(true);
    let ours = |name: &str, year| site.authority.issue(name, ExtendedKeyUsagePurpose::ClientAuth, year);
    assert_eq!(site.connections(None, Some(ours("noc.example", 2100))).unwrap(), 3);
    let operate = Client::open(site.target(None, Some(ours("ops.example", 2100)))).unwrap().undrain();
    assert!(!is_denied(&operate), "{operate:?}");
    let other_name = site.connections(None, Some(ours("else.example", 2100)));
    assert!(is_denied(&other_name), "{other_name:?}");
    site.connections(None, Some(ours("noc.example", 2021))).expect_err("it has expired");
    let theirs = site.stranger.issue("noc.example", ExtendedKeyUsagePurpose::ClientAuth, 2100);
    site.connections(None, Some(theirs)).expect_err("nobody here vouches for it");
    site.wait_for_admitted_and_refused((2, 3));
}

#[test]
fn a_client_does_not_give_its_token_to_a_gateway_that_nobody_vouches_for() {
    let site = Site::new(true);
    let Target::Remote(remote) = site.target(Some("read"), None) else { unreachable!("it is from afar") };
    let cases = [
        RemoteTarget { authority: Some(site.stranger.file()), ..(*remote).clone() },
        RemoteTarget { server_name: Some("other.example".to_owned()), ..(*remote).clone() },
    ];
    for target in cases {
        let error = Client::open(Target::Remote(Box::new(target))).err().expect("there is no trust");
        assert!(matches!(error, ClientError::Untrusted { .. }), "{error}");
        assert!(!error.to_string().contains(READ_TOKEN));
    }
}

#[test]
fn strangers_that_send_nothing_or_nonsense_delay_no_client_for_long() {
    let site = Site::new(true);
    let address = site.remote.address();
    let mut silent: Vec<TcpStream> =
        (0..3 * REMOTE_CLIENTS_OF_ADDRESS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
    for stream in &mut silent {
        // The gateway may have closed it already.
        let _ = stream.write_all(&[0x16, 3, 1]);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    let local = Client::connect(&site.directory.socket()).unwrap().status();
    assert_eq!(local.unwrap().connections.count, 3, "the operator on the machine is answered all the while");
    // The oldest of them goes for it.
    assert_eq!(site.connections(Some("read"), None).unwrap(), 3, "so is one from afar");
    let begin = Instant::now();
    for stream in &mut silent {
        // Closed or reset: it ends.
        let _ = stream.read(&mut [0; 16]);
    }
    assert!(begin.elapsed() < 2 * ADMISSION_TIMEOUT, "{:?}", begin.elapsed());
    let begin = Instant::now();
    while site.connections(Some("read"), None).is_err() {
        assert!(begin.elapsed() < PATIENCE, "there is room again");
    }
    for _ in 0..200 {
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n");
    }
    let begin = Instant::now();
    while site.connections(Some("read"), None).is_err() {
        assert!(begin.elapsed() < PATIENCE, "nonsense is over at once");
    }
}

#[test]
fn wrong_tokens_from_several_addresses_keep_no_operator_out() {
    let site = Site::new(false);
    let introduction = format!("{{\"version\":1,\"token\":\"{}\"}}\n", READ_TOKEN.replace('1', "2"));
    let mut guesses = Vec::new();
    for last in (2..5).cycle().take(60) {
        let stream = packet_io::tcp::connect(site.remote.address(), Some([127, 0, 0, last].into())).unwrap();
        stream.set_nonblocking(false).unwrap();
        // The gateway may have closed it already.
        let _ = (&stream).write_all(introduction.as_bytes());
        guesses.push(stream);
    }
    assert_eq!(site.connections(Some("read"), None).unwrap(), 3);
}

#[test]
fn a_first_line_without_end_is_refused() {
    let site = Site::new(false);
    let mut stream = TcpStream::connect(site.remote.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // It may be cut off in the middle.
    let _ = stream.write_all(&[b'a'; 1 << 20]);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty());
    site.wait_for_admitted_and_refused((0, 1));
}

#[test]
fn a_client_that_has_asked_all_gets_the_rest_of_its_answer() {
    let site = Site::new(false);
    let mut stream = TcpStream::connect(site.remote.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let requests = format!("{{\"version\":1,\"token\":\"{READ_TOKEN}\"}}\n{{\"version\":1,\"query\":\"status\"}}\n");
    stream.write_all(requests.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let lines: Vec<String> = BufReader::new(stream).lines().map(Result::unwrap).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].contains("\"end\""));
}

#[test]
fn what_clients_must_show_is_exchanged_without_closing_those_that_are_there() {
    let site = Site::new(true);
    let mut there = Client::open(site.target(Some("read"), None)).unwrap();
    there.status().unwrap();
    write_secret(&site.file("tokens"), &format!("ops operate {OPERATE_TOKEN}\n"));
    site.remote.exchange(Credentials::load(&site.access).unwrap());
    there.status().expect("it was admitted");
    assert!(is_denied(&site.connections(Some("read"), None)));
    assert_eq!(site.connections(Some("operate"), None).unwrap(), 3);
}
