//! The room in a connection's record for the states of the chain's functions.

use core::ops::Range;

use flow::connection::FUNCTION_STATE_BYTES_MAX;
use network_functions::chain::state_bytes;
use network_functions::classifier::ClassState;
use network_functions::firewall::FirewallState;
use network_functions::ftp::FtpState;
use network_functions::load_balancer::BalancerState;
use network_functions::nat::NatState;
use network_functions::rate_limit::RateLimitState;
use network_functions::syn_proxy::SynProxyState;
use network_functions::url_filter::UrlState;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::validated::Function;

/// The states of all functions must fit a connection's record.
pub(super) fn check_room(chain: &[Function], span: Range<usize>, diagnostics: &mut Diagnostics<'_>) {
    let states = chain.iter().map(|function| match function {
        Function::Classifier => state_bytes::<ClassState>(),
        Function::Firewall => state_bytes::<FirewallState>(),
        Function::UrlFilter => state_bytes::<UrlState>(),
        Function::RateLimit => state_bytes::<RateLimitState>(),
        Function::SynProxy => state_bytes::<SynProxyState>(),
        Function::LoadBalancer => state_bytes::<BalancerState>(),
        Function::Nat => state_bytes::<NatState>(),
        Function::Ftp => state_bytes::<FtpState>(),
    });
    let end_bytes = states.fold(0usize, |end_bytes, (size, align)| end_bytes.next_multiple_of(align) + size);
    if end_bytes > FUNCTION_STATE_BYTES_MAX {
        let mistake = Mistake::new(
            format!(
                "the states of the chain's functions take {end_bytes} bytes of a connection's record together, which has {FUNCTION_STATE_BYTES_MAX} for them"
            ),
            "leave \"ftp\" or another function out of the chain",
        );
        diagnostics.error(span, "chain", mistake);
    }
}
