//! Checks of each kind, against servers on the loopback address.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;
use crate::check_tls;

/// The longest that a test waits.
const PATIENCE: Duration = Duration::from_secs(30);

fn check_of(kind: CheckKind) -> HealthCheck {
    HealthCheck {
        kind,
        path: "/healthy".to_owned(),
        server_name: None,
        authorities: None,
        command: Vec::new(),
        interval: Duration::from_secs(10),
        timeout: Duration::from_secs(20),
        rise: 2,
        fall: 3,
        jitter_percent: 10,
        fast_fail: false,
        port: None,
        source: None,
    }
}

fn checked_of(end: SocketAddr, check: HealthCheck) -> Checked {
    let service = Service {
        config: network_functions::load_balancer::ServiceConfig {
            name: "web".to_owned(),
            address: end.ip(),
            protocol: 6,
            ports: Vec::new(),
            scheduler: Default::default(),
            affinity: Default::default(),
            mode: Default::default(),
            on_failure: OnFailure::Keep,
            slow_start: None,
            quic: None,
            backends: Vec::new(),
        },
        check: Some(check.clone()),
    };
    let tls = check_tls::clients(&[service]).expect("the certificates can be read")[0].clone();
    let (health, phase) = (Health::new(true), Phase::Waiting);
    Checked { service: 0, backend: 0, end, check, health, tls, due: Instant::ZERO, phase }
}

/// The result of one check.
fn result(checked: &mut Checked) -> Result<(), Failure> {
    let until = time::Instant::now() + PATIENCE;
    loop {
        if let Some(result) = checked.advance(clock::now(), "web", 500) {
            return result;
        }
        assert!(time::Instant::now() < until, "the check has no result");
        thread::sleep(Duration::from_millis(1));
    }
}

fn result_of(end: SocketAddr, check: HealthCheck) -> Result<(), String> {
    result(&mut checked_of(end, check)).map_err(|failure| failure.reason)
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let end = listener.local_addr().expect("bound");
    (listener, end)
}

/// A listener at an address that no other test has: one of them could listen at the same port once it is closed.
fn listener_to_close(last: u8) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, last], 0))).expect("a free port");
    let end = listener.local_addr().expect("bound");
    (listener, end)
}

#[test]
fn a_listening_port_is_up_and_a_closed_one_refuses() {
    let (listener, end) = listener_to_close(2);
    assert_eq!(result_of(end, check_of(CheckKind::Tcp)), Ok(()));
    drop(listener);
    let failure = result(&mut checked_of(end, check_of(CheckKind::Tcp))).expect_err("nothing listens");
    assert!(failure.is_refused && failure.reason.contains("refused"), "{failure:?}");
}

#[test]
fn the_status_of_an_answer_decides() {
    for (answer, expected) in [
        ("HTTP/1.1 204 No Content\r\n\r\n", Ok(())),
        ("HTTP/1.0 503 Service Unavailable\r\n\r\n", Err("the server answered with status 503")),
        ("", Err("the server closed the connection without an answer")),
    ] {
        let (listener, end) = listener();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a check");
            let mut request = [0; 256];
            let length = stream.read(&mut request).expect("a request");
            let text = String::from_utf8_lossy(&request[..length]).into_owned();
            assert!(text.starts_with("GET /healthy HTTP/1.1\r\nHost: www.example.com\r\n"), "{text}");
            stream.write_all(answer.as_bytes()).expect("it is read");
        });
        let check = HealthCheck { server_name: Some("www.example.com".to_owned()), ..check_of(CheckKind::Http) };
        assert_eq!(result_of(end, check), expected.map_err(str::to_owned));
        server.join().expect("it answered");
    }
}

#[test]
fn a_server_that_does_not_answer_has_failed_when_the_time_is_over() {
    let (_listener, end) = listener();
    let check = HealthCheck { timeout: Duration::from_millis(50), ..check_of(CheckKind::Http) };
    assert_eq!(result_of(end, check), Err("no answer within 50ms".to_owned()));
}

/// A folder that is removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mainstay-check-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    /// A script for the shell.
    fn script(&self, text: &str) -> String {
        let path = self.0.join("check.sh");
        fs::write(&path, text).expect("a script");
        path.to_str().expect("a name").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Serves one check over TLS. Returns the name that the client asked for.
fn serve_tls(listener: TcpListener, certified: rcgen::CertifiedKey<rcgen::KeyPair>) -> JoinHandle<Option<String>> {
    thread::spawn(move || {
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .expect("a certificate");
        let (stream, _) = listener.accept().expect("a check");
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::new(config)).expect("a connection"), stream);
        let mut request = [0; 512];
        // A client that does not trust the certificate ends the handshake.
        let _ = stream.read(&mut request);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        stream.conn.server_name().map(str::to_owned)
    })
}

#[test]
fn a_server_over_tls_is_verified_where_authorities_are_configured() {
    let folder = Folder::new("tls");
    let made = || rcgen::generate_simple_self_signed(["www.example.com".to_owned()]).expect("a certificate");
    let name = Some("www.example.com".to_owned());
    for (trusts_it, name, expected) in [
        (None, name.clone(), Ok(())),
        (None, None, Ok(())),
        (Some(true), name.clone(), Ok(())),
        (Some(true), Some("other.example.com".to_owned()), Err("not valid for name")),
        (Some(false), name, Err("invalid peer certificate")),
    ] {
        let (listener, end) = listener();
        let certified = made();
        let authorities = trusts_it.map(|trusts_it| {
            let pem = if trusts_it { certified.cert.pem() } else { made().cert.pem() };
            let path = folder.0.join("authorities.pem");
            fs::write(&path, pem).expect("a file");
            path
        });
        let server = serve_tls(listener, certified);
        let check = HealthCheck { server_name: name.clone(), authorities, ..check_of(CheckKind::Https) };
        match (result_of(end, check), expected) {
            (Ok(()), Ok(())) => {}
            (Err(reason), Err(part)) => assert!(reason.contains(part), "{reason}"),
            (result, expected) => panic!("{result:?} instead of {expected:?}"),
        }
        assert_eq!(server.join().expect("it served"), name, "the name in the handshake");
    }
}

#[test]
fn a_file_without_certificates_is_an_error_that_names_it() {
    let folder = Folder::new("pem");
    let path = folder.0.join("empty.pem");
    fs::write(&path, "nothing").expect("a file");
    let check = HealthCheck { authorities: Some(path.clone()), ..check_of(CheckKind::Https) };
    let config = checked_of(([127, 0, 0, 1], 1).into(), check_of(CheckKind::Tcp));
    assert!(config.tls.is_none(), "other checks need none");
    let error = std::panic::catch_unwind(|| checked_of(([127, 0, 0, 1], 1).into(), check));
    let text = *error.err().expect("an error").downcast::<String>().expect("a text");
    assert!(text.contains("NotPem") && text.contains("empty.pem"), "{text}");
}

#[test]
fn a_host_that_answers_an_echo_request_is_up() {
    match result_of(([127, 0, 0, 1], 0).into(), check_of(CheckKind::Icmp)) {
        Err(reason) if reason.contains("CAP_NET_RAW") => packet_io::namespace::skip(reason),
        result => assert_eq!(result, Ok(())),
    }
}

fn command_of(script: String) -> HealthCheck {
    let command = vec!["/bin/sh".to_owned(), script, "argument".to_owned()];
    HealthCheck { command, ..check_of(CheckKind::Command) }
}

#[test]
fn the_exit_status_of_a_program_decides() {
    let folder = Folder::new("command");
    let end = SocketAddr::from(([192, 0, 2, 7], 81));
    let agrees = "test \"$1 $MAINSTAY_SERVICE $MAINSTAY_ADDRESS $MAINSTAY_PORT\" = 'argument web 192.0.2.7 81'";
    assert_eq!(result_of(end, command_of(folder.script(agrees))), Ok(()));
    let fails = folder.script("echo; echo ' the disk is full' >&2; exit 3");
    assert_eq!(result_of(end, command_of(fails)), Err("exit status: 3: the disk is full".to_owned()));
    let missing = HealthCheck { command: vec!["/nonexistent/check".to_owned()], ..check_of(CheckKind::Command) };
    let missing = result_of(end, missing);
    assert!(missing.is_err_and(|reason| reason.starts_with("/nonexistent/check cannot be run: ")));
}

#[test]
fn a_program_that_writes_without_end_is_read_and_its_reason_is_short() {
    let folder = Folder::new("flood");
    let script = folder.script("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1");
    let reason = result_of(([127, 0, 0, 1], 0).into(), command_of(script)).expect_err("it fails");
    assert_eq!(reason.len(), "exit status: 1: ".len() + 200);
}

#[test]
fn a_program_that_takes_too_long_is_killed_with_its_children() {
    let folder = Folder::new("slow");
    let started = folder.0.join("started");
    let script = folder.script(&format!("sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait", started.display()));
    let mut checked = checked_of(([127, 0, 0, 1], 0).into(), command_of(script));
    while !started.exists() {
        assert_eq!(checked.advance(clock::now(), "web", 0), None);
        thread::sleep(Duration::from_millis(1));
    }
    let child = fs::read_to_string(&started).expect("its child's number");
    checked.due = Instant::ZERO;
    assert!(result(&mut checked).is_err_and(|failure| failure.reason.starts_with("no answer within")));
    let until = time::Instant::now() + PATIENCE;
    let state = format!("/proc/{}/stat", child.trim());
    // A zombie whose parent is gone is somebody else's to reap.
    while fs::read_to_string(&state).is_ok_and(|text| !text.contains(") Z ")) || checked.is_running() {
        assert!(time::Instant::now() < until, "program or child goes on");
        checked.due = clock::now() + Duration::from_secs(3600);
        if checked.is_running() {
            assert_eq!(checked.advance(clock::now(), "web", 0), None);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_refused_connection_fails_at_once_only_where_that_is_wanted() {
    for fast_fail in [false, true] {
        let (listener, end) = listener_to_close(3);
        let mut checked = checked_of(end, HealthCheck { fast_fail, ..check_of(CheckKind::Tcp) });
        drop(listener);
        let refused = result(&mut checked);
        assert_eq!(checked.handle_result(&refused), fast_fail);
        assert_eq!(checked.health.is_up(), !fast_fail);
    }
    let mut slow = checked_of(([127, 0, 0, 1], 1).into(), HealthCheck { fast_fail: true, ..check_of(CheckKind::Tcp) });
    assert!(!slow.handle_result(&Err(Failure::of("no answer"))), "another failure counts as one");
}

#[test]
fn intervals_vary_by_the_jitter_and_are_those_of_the_seed() {
    let times = |jitter_percent, seed| -> Vec<Duration> {
        let check = HealthCheck { jitter_percent, ..check_of(CheckKind::Tcp) };
        let mut random = SplitMix64::new(seed);
        (0..1000).map(|_| until_next(&check, random.next())).collect()
    };
    let varied = times(20, 1);
    let (shortest, longest) = (varied.iter().min().unwrap(), varied.iter().max().unwrap());
    assert!(*shortest >= Duration::from_secs(8) && *shortest < Duration::from_millis(8200), "{shortest:?}");
    assert!(*longest <= Duration::from_secs(12) && *longest > Duration::from_millis(11_800), "{longest:?}");
    assert_eq!(varied, times(20, 1));
    assert_ne!(varied, times(20, 2));
    assert!(times(0, 1).iter().all(|time| *time == Duration::from_secs(10)));
}
