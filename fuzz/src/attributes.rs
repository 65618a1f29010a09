//! Attributes of connections: readable ones are written, read back and compared.

use flow::Instant;
use flow::conntrack::{decode_protocol_state, encode_protocol_state};
use flow::wire::tlv;
use network_functions::classifier::ClassState;
use network_functions::function::FlowState;
use network_functions::load_balancer::BalancerState;
use network_functions::rate_limit::RateLimitState;
use network_functions::syn_proxy::{Phase, SynProxyState};
use network_functions::url_filter::UrlState;
use replication::representation::precise::{self, NoFunctions};

/// The first byte is the protocol of a lone automaton; the rest is read as attributes of every kind.
pub fn run(data: &[u8]) {
    let Some((protocol, attributes)) = data.split_first() else { return };
    let readable = tlv::read(attributes).take_while(Result::is_ok).count();
    assert!(readable * tlv::TLV_HEADER_BYTES <= attributes.len(), "attributes do not come from nowhere");
    if let Ok(state) = decode_protocol_state(*protocol, attributes) {
        let mut written = Vec::new();
        encode_protocol_state(*protocol, &state, &mut written);
        let read_back = decode_protocol_state(*protocol, &written).expect("what was written can be read");
        assert_eq!(read_back.state, state.state);
    }
    if let Ok(state) = SynProxyState::decode(attributes) {
        let mut written = Vec::new();
        state.encode(&mut written);
        let read_back = SynProxyState::decode(&written).expect("what was written can be read");
        assert_eq!(read_back, if state.phase() == Phase::None { SynProxyState::default() } else { state });
    }
    if let Ok(state) = BalancerState::decode(attributes) {
        let mut written = Vec::new();
        state.encode(&mut written);
        let read_back = BalancerState::decode(&written).expect("what was written can be read");
        assert_eq!(read_back, if state.is_balanced() { state } else { BalancerState::default() });
    }
    if let Ok(state) = ClassState::decode(attributes) {
        let mut written = Vec::new();
        state.encode(&mut written);
        let read_back = ClassState::decode(&written).expect("what was written can be read");
        assert_eq!((read_back.class(), read_back.is_settled()), (state.class(), state.is_settled()));
    }
    if let Ok(state) = UrlState::decode(attributes) {
        let mut written = Vec::new();
        state.encode(&mut written);
        assert_eq!(UrlState::decode(&written), Ok(state));
    }
    if let Ok(state) = RateLimitState::decode(attributes) {
        let mut written = Vec::new();
        state.encode(&mut written);
        let read_back = RateLimitState::decode(&written).expect("what was written can be read");
        assert!(read_back == state || written.is_empty(), "a state of which nothing is used is the default elsewhere");
    }
    let now = Instant::from_millis(1000);
    if let Ok(connection) = precise::decode(now, attributes, &NoFunctions) {
        let mut written = Vec::new();
        precise::encode(now, &connection, &NoFunctions, &mut written);
        let read_back = precise::decode(now, &written, &NoFunctions).expect("what was written can be read");
        assert_eq!((read_back.original, read_back.reply), (connection.original, connection.reply));
        assert_eq!(
            (read_back.version, read_back.owner, read_back.flags),
            (connection.version, connection.owner, connection.flags)
        );
        assert_eq!(read_back.protocol.state, connection.protocol.state);
    }
    if let Ok(ended) = precise::decode_ended(attributes) {
        let mut written = Vec::new();
        precise::encode_ended(&ended, &mut written);
        assert_eq!(precise::decode_ended(&written), Ok(ended));
    }
}
