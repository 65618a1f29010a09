//! `[fast_path]`: the hook, and what has no effect together with it.

use flow::fast_path::Hook;

use super::*;

#[test]
fn the_hook_is_tc_unless_xdp_is_asked_for() {
    assert_eq!(check(GOOD).expect("it is good").config.fast_path.hook, Hook::Tc);
    let text = format!("{GOOD}[fast_path]\nhook = \"xdp\"\n");
    let Checked { config, warnings } = check(&text).expect("it is good");
    assert_eq!((config.fast_path.hook, warnings.len()), (Hook::Xdp, 0));
    let text = format!("{GOOD}[fast_path]\nhook = \"generic\"\n");
    assert!(said(&text).contains("\"generic\" is not known: write \"tc\" or \"xdp\""), "{}", said(&text));
}

#[test]
fn what_has_no_effect_at_xdp_is_named() {
    let with = |port: &str| {
        let text = GOOD.replace("interface = \"eth0\"", &format!("interface = \"eth0\"\n{port}"));
        said(&format!("{text}[fast_path]\nhook = \"xdp\"\n"))
    };
    let text = with("redirect_peer = true");
    assert!(
        text.contains("redirect_peer of port inside has no effect at xdp: remove it, or write hook = \"tc\""),
        "{text}"
    );
    let text = GOOD.replace("interface = \"eth", "backend = \"af_xdp\"\ninterface = \"eth");
    let text = said(&format!("{text}[fast_path]\nhook = \"xdp\"\n"));
    assert!(text.contains("port inside has the backend af_xdp, which has an XDP program of its own"), "{text}");
}
