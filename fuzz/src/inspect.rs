//! What end points send first: no parser panics, and a settled answer stays with every further byte.

use network_functions::inspect::{Inspected, dns, http, protocol, quic, tls};

/// A prefix of a stream; also taken as a datagram.
pub fn run(data: &[u8]) {
    check(data, tls::client_hello);
    check(data, tls::client_hello_message);
    check(data, |prefix| http::request(prefix).map(|request| (request.method.to_vec(), request.host)));
    check(data, http::response);
    check(data, dns::question_over_tcp);
    check(data, protocol::of_client);
    check(data, protocol::of_server);
    let _ = (protocol::of_datagram(data), dns::question(data));
    if let Inspected::Found(header) = quic::long_header(data)
        && let Some(initial) = header.initial
    {
        assert!(initial.number_offset + initial.protected.len() <= data.len());
    }
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
