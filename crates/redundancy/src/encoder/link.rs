//! How an encoder and a decoder come together.
//!
//! ```text
//!            Challenge                Opened
//!  Greeting ───────────► Opening ───────────────► Open
//!     ▲                     │  ▲                    │
//!     │     no answer       │  └─ Challenge: with   │ another decoder speaks, or
//!     ├─────────────────────┘     its new cookie    │ a block's epoch is unknown to it
//!     └─────────────────────────────────────────────┘
//! ```
//!
//! The cookie is the decoder's: an Open that was sent long ago, to another life of it, opens nothing. While it is not Open the
//! encoder sends blocks plain. Once it is, nothing is pointed to but what the decoder says it holds, and what is sent from then
//! on.

use flow::Instant;

/// The state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Link {
    Greeting {
        /// When Hello is sent again.
        again_at: Instant,
    },
    Opening {
        decoder: u32,
        cookie: u32,
        again_at: Instant,
        sent: u32,
    },
    Open {
        decoder: u32,
    },
}

impl Default for Link {
    fn default() -> Self {
        Self::Greeting { again_at: Instant::ZERO }
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
