//! The handshake of an encoder and a decoder.
//!
//! ```text
//!            Challenge                   Opened
//!  Hello ──────────────► Challenged ───────────────► Open
//!     ▲                     │  ▲                       │
//!     │     no reply        │  └─ Challenge: with      │ another decoder replies, or
//!     ├─────────────────────┘     its new cookie       │ a block's epoch is unknown to it
//!     └────────────────────────────────────────────────┘
//! ```
//!
//! The cookie is the decoder's: a delayed Open to an earlier incarnation has no effect. Outside of Open the encoder
//! sends blocks plain. In Open, blocks point only to data that the decoder reported as held, and to data sent since.

use flow::Instant;

/// The state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Link {
    Hello {
        /// When Hello is sent again.
        retry_at: Instant,
    },
    Challenged {
        decoder: u32,
        cookie: u32,
        retry_at: Instant,
        sent: u32,
    },
    Open {
        decoder: u32,
    },
}

impl Default for Link {
    fn default() -> Self {
        Self::Hello { retry_at: Instant::ZERO }
    }
}

impl Link {
    pub(super) const fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    pub(super) const fn is_of(&self, of: u32) -> bool {
        matches!(self, Self::Open { decoder } if *decoder == of)
    }
}
