//! What a function of another crate is written with: `use network_functions::prelude::*`.

pub use flow::wire::tlv::TlvError;
pub use flow::wire::{Packet, TcpSegment, Transport};
pub use flow::{Direction, DropReason, Instant, Tuple};

pub use crate::chain::{Chain, ChainBuilder, ChainError};
pub use crate::class::Class;
pub use crate::flow_state;
pub use crate::function::{
    CloseReason, Context, FlowState, NetworkFunction, ReevaluationOutcome, Verdict, state_attribute,
};
