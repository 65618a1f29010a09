//! When a rule answers in place of servers.

use super::*;

fn auto(syns_per_s: Option<u32>, half_open: Option<u32>) -> Mode {
    Mode::Auto(Thresholds { syns_per_s, half_open, hold: Duration::from_secs(10) })
}

#[test]
fn a_rate_of_syns_activates_a_rule_for_a_while() {
    let mut proxy = Proxy::new(auto(Some(5), None), Offered::default());
    let is_answered = |proxy: &mut Proxy| proxy.syn(&client(), linux_syn()).is_err();
    assert!((0..4).all(|_| !is_answered(&mut proxy)));
    assert!(is_answered(&mut proxy) && proxy.view().is_active);
    proxy.now = Instant::ZERO + Duration::from_secs(9);
    assert!(is_answered(&mut proxy), "it goes on");
    proxy.now = Instant::ZERO + Duration::from_secs(11);
    assert!(!is_answered(&mut proxy) && !proxy.view().is_active);
    assert_eq!(proxy.view().activations, 1);
    // A cookie of the attack is still accepted; a forged one is only refused as long as cookies live.
    let forged = build::Tcp { flags: tcp_flags::ACK, ..build::Tcp::default() };
    assert!(proxy.check(&client(), forged).is_some());
    proxy.now = Instant::ZERO + Duration::from_secs(300);
    assert_eq!(proxy.check(&client(), forged), None);
}

#[test]
fn an_attack_goes_on_at_half_the_rate() {
    let mut proxy = Proxy::new(auto(Some(4), None), Offered::default());
    for second in 0..60 {
        proxy.now = Instant::ZERO + Duration::from_secs(second);
        let syns = if second == 0 { 4 } else { 2 };
        let answered = (0..syns).filter(|_| proxy.syn(&client(), linux_syn()).is_err()).count();
        assert!(answered > 0, "second {second}");
    }
    assert_eq!((proxy.view().activations, proxy.view().syns_per_s), (1, 2));
}

/// Without looking back into the second before, a flood that began at the end of a second had nearly twice the rate pass.
#[test]
fn a_flood_has_its_rate_pass_whenever_in_a_second_it_begins() {
    for begins_ms in (0..1000).step_by(50) {
        let mut proxy = Proxy::new(auto(Some(100), None), Offered::default());
        let mut passed = 0;
        for ms in begins_ms..begins_ms + 1000 {
            proxy.now = Instant::ZERO + Duration::from_millis(ms);
            passed += u32::from(proxy.syn(&client(), linux_syn()).is_ok());
        }
        assert!((99..=104).contains(&passed), "{passed} passed of a flood that began at {begins_ms} ms");
    }
}

#[test]
fn half_open_connections_activate_a_rule() {
    let mut proxy = Proxy::new(auto(None, Some(3)), Offered::default());
    let tuple = |port| Tuple { source_port: port, ..client() };
    let mut begun: Vec<Connection> = (1..=3).map(|port| proxy.syn(&tuple(port), linux_syn()).unwrap()).collect();
    assert_eq!(proxy.view().half_open, 3);
    assert!(proxy.syn(&tuple(4), linux_syn()).is_err());
    let acknowledgement = build::Tcp { flags: tcp_flags::ACK, ..build::Tcp::default() };
    proxy.pass(&mut begun[0], Direction::Original, acknowledgement).0.unwrap();
    assert!(!SynProxy::new(Arc::clone(&proxy.rules)).needs_packets(&proxy.state(&begun[0])));
    proxy.chain.note_left(&begun[1]);
    assert_eq!(proxy.view().half_open, 1);
    proxy.now = Instant::ZERO + Duration::from_secs(11);
    assert!(proxy.syn(&tuple(5), linux_syn()).is_ok());
}

#[test]
fn a_rule_that_is_off_exempts_from_later_ones() {
    let exempt = RuleConfig { name: "exempt".into(), ports: Vec::new(), ..rule(Mode::Off, Offered::default()) };
    let all = RuleConfig {
        name: "all".into(),
        destinations: Vec::new(),
        ports: Vec::new(),
        ..rule(Mode::Always, Offered::default())
    };
    let mut proxy = Proxy::with(rules_of(&[exempt, all]));
    assert!(proxy.syn(&client(), linux_syn()).is_ok());
    assert!(proxy.syn(&tcp("10.0.0.2:4000", "198.51.100.1:80"), linux_syn()).is_err());
}

#[test]
fn counters_and_activity_continue_through_a_reload() {
    let mut proxy = Proxy::new(auto(Some(1), None), Offered::default());
    assert!(proxy.syn(&client(), linux_syn()).is_err());
    let keys = CookieKeys::new(CookieKey([1, 2]), []);
    let configs = [rule(auto(Some(1000), None), Offered::default())];
    let renewed = Proxy::with(Arc::new(SynProxyRules::new(&configs, keys, Some(&proxy.rules)).unwrap()));
    assert!(renewed.view().is_active);
    assert_eq!((renewed.view().answered, renewed.rules.unix_ms(Instant::ZERO)), (1, UNIX.as_millis() as u64));
}
