//! Services whose backends answer clients directly.

use flow::wire::{Encapsulation, TunnelEnd};

use super::*;

const GUE: Encapsulation = Encapsulation::Gue { port: 6080 };

/// The services with direct return: packets keep their port.
fn direct(encapsulation: Encapsulation) -> Vec<ServiceConfig> {
    with(|service| {
        service.mode = Mode::DirectReturn(encapsulation);
        service.backends.iter_mut().for_each(|backend| backend.port = None);
    })
}

fn end_of(gateway: &Gateway, begun: &Begun) -> TunnelEnd {
    gateway.chain.tunnel(&begun.connection).expect("it is known").expect("there is one")
}

#[test]
fn nothing_is_translated_and_each_connection_has_the_tunnel_of_its_backend() {
    let services = services(&direct(GUE));
    let mut gateway = gateway(&services);
    let mut used = HashMap::new();
    for number in 0..300 {
        let begun = gateway.begin(OUTSIDE, client(number)).unwrap();
        assert_eq!((begun.outgoing, begun.connection.reply), (client(number), client(number).inverse()));
        let end = end_of(&gateway, &begun);
        assert_eq!(end.encapsulation, GUE);
        *used.entry(end.address).or_insert(0u32) += 1;
    }
    assert_eq!(used.len(), 3);
    assert!(used.values().all(|count| (70..=130).contains(count)), "{used:?}");
    let other = gateway.begin(OUTSIDE, tcp("198.51.100.1:1", "192.0.2.81:80")).unwrap();
    assert_eq!(gateway.chain.tunnel(&other.connection), Ok(None), "it is to no service");
}

#[test]
fn a_connection_keeps_its_tunnel_while_its_backend_is_removed_and_the_mode_changes() {
    let first = services(&direct(GUE));
    let mut gateway = gateway(&first);
    let begun = gateway.begin(OUTSIDE, client(1)).unwrap();
    let end = end_of(&gateway, &begun);

    // The backend is removed, and the others get another encapsulation.
    let mut without = direct(Encapsulation::IpIp);
    without[0].backends.retain(|backend| backend.address != end.address);
    let second = Arc::new(Services::new(&without, &first).unwrap());
    gateway.chain = ChainBuilder::new().push(LoadBalancer::new(Arc::clone(&second), ports(0))).build().unwrap();
    assert_eq!(end_of(&gateway, &begun), end);

    // A service that translates now: its new connections have no tunnel.
    let third = Arc::new(Services::new(&web(), &second).unwrap());
    gateway.chain = ChainBuilder::new().push(LoadBalancer::new(Arc::clone(&third), ports(0))).build().unwrap();
    let translated = gateway.begin(OUTSIDE, client(2)).unwrap();
    assert_eq!(gateway.chain.tunnel(&translated.connection), Ok(None));
    assert_eq!(end_of(&gateway, &begun), end, "and the former one keeps its own");

    // Once it has ended, nothing is kept.
    gateway.chain.note_left(&begun.connection);
    let fourth = Arc::new(Services::new(&web(), &third).unwrap());
    gateway.chain = ChainBuilder::new().push(LoadBalancer::new(fourth, ports(0))).build().unwrap();
    assert_eq!(gateway.chain.tunnel(&begun.connection), Err(DropReason::TunnelUnknown));
}

#[test]
fn a_connection_that_is_translated_too_does_not_begin() {
    let rule = SourceRule {
        conditions: Conditions::default(),
        action: SourceAction::Translate(vec!["10.0.0.254".parse().unwrap()]),
    };
    let nat = Nat::new(NatConfig {
        destination_rules: Vec::new(),
        source_rules: vec![rule],
        ports: SOURCE_PORTS_DEFAULT,
        node: NodeId(0),
        nodes: NonZeroU8::new(2).unwrap(),
        key: KEY,
    })
    .unwrap();
    let balancer = LoadBalancer::new(services(&direct(GUE)), ports(0));
    let mut gateway = Gateway::of(ChainBuilder::new().push(balancer).push(nat).build().unwrap());
    assert_eq!(gateway.begin(OUTSIDE, client(1)).map(|_| ()), Err(DropReason::TunnelTranslated));
}

#[test]
fn a_tunnel_may_be_of_another_family_and_has_limits() {
    let error = |change: &dyn Fn(&mut ServiceConfig)| {
        let mut configs = direct(GUE);
        change(&mut configs[0]);
        Services::new(&configs, &Services::default()).map(|_| ()).err()
    };
    assert_eq!(error(&|service| service.backends[0].address = "fd00::1".parse().unwrap()), None);
    assert_eq!(error(&|service| service.backends[0].port = Some(80)), Some(ServiceError::PortOfTunnel(0)));
    assert_eq!(error(&|service| service.on_failure = OnFailure::End), Some(ServiceError::ResetsInTunnel(0)));
    let udp = |service: &mut ServiceConfig| (service.protocol, service.on_failure) = (UDP, OnFailure::End);
    assert_eq!(error(&udp), None, "datagrams need no reset");
    assert_eq!(error(&|service| service.protocol = 132), Some(ServiceError::ProtocolOfTunnel(0)));
}
