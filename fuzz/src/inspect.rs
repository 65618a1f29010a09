//! What end points send first: no parser panics, and a settled answer stays with every further byte.

use flow::Tuple;
use network_functions::inspect::assembly::{Assemblies, StreamKey};
use network_functions::inspect::quic::decryption::{client_initial, client_initial_bytes};
use network_functions::inspect::{Inspected, Progress, dns, http, protocol, quic, tls};
use network_functions::load_balancer::QuicConfig;

/// A prefix of a stream; also taken as a datagram.
pub fn run(data: &[u8]) {
    check(data, tls::client_hello);
    check(data, tls::client_hello_message);
    check(data, |prefix| http::request(prefix).map(|request| (request.method.to_vec(), request.host)));
    check(data, http::response);
    check(data, dns::question_over_tcp);
    check(data, |prefix| protocol::of_client(prefix, &mut Progress::default()));
    check(data, protocol::of_server);
    let _ = (protocol::of_datagram(data), dns::question(data));
    if let Inspected::Found(header) = quic::long_header(data)
        && let Some(initial) = header.initial
    {
        assert!(initial.number_offset + initial.protected.len() <= data.len());
    }
    let _ = (client_initial(data).found(), quic::first_packet(data));
    let server_ids = vec![vec![0, 1], vec![0, 2]];
    let routing = QuicConfig { config: 0, server_id_bytes: 2, nonce_bytes: 4, server_ids };
    assert!(routing.backend_of(data).is_none_or(|backend| backend < 2));
    check_scattered(data);
    if let Inspected::Found(request) = http::request(data) {
        let _ = request.path();
    }
}

/// The answer for the whole is that of the shortest prefix with a settled one, tried at a few lengths.
fn check<T: PartialEq + std::fmt::Debug>(data: &[u8], parse: impl Fn(&[u8]) -> Inspected<T>) {
    let mut settled: Option<Inspected<T>> = None;
    let step = data.len() / 64 + 1;
    for end in (0..data.len()).step_by(step).chain([data.len()]) {
        let answer = parse(&data[..end]);
        match &settled {
            Some(settled) => assert_eq!(&answer, settled, "changed by byte {end}"),
            None if answer.is_settled() => settled = Some(answer),
            None => {}
        }
    }
}

const TUPLE: Tuple = Tuple {
    source: [1; 16],
    destination: [2; 16],
    source_port: 1,
    destination_port: 443,
    protocol: 17,
    version: 6,
    discriminator: 0,
};

/// A message in two pieces of a QUIC packet, the second one first, is read as the message itself.
fn check_scattered(message: &[u8]) {
    let (first, second) = message.split_at(message.len() / 2);
    let pieces = [(first.len(), second), (0, first)];
    let packet = client_initial_bytes(quic::Version::V1, &[9; 8], 0, &pieces);
    if let Some(packet) = packet.filter(|_| !first.is_empty()) {
        let initial = client_initial(&packet).found().expect("its own key opens it");
        let read = quic::client_hello(&mut Assemblies::default(), &StreamKey::new(1, &TUPLE), &initial);
        assert_eq!(read, tls::client_hello_message(message));
    }
}
