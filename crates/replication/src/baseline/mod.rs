//! The same messages by transports that know nothing of connections: what the native protocol is measured against.
//!
//! * [`DatagramSession`], plain UDP: every change is sent once and forgotten. What the network loses is lost until the
//!   connection changes again, and what it turns round is applied as it comes.
//! * [`StreamSession`], TCP: every change is delivered, in order, and waits for all that was said before it, outdated or not.
//!
//! Neither holds what [`crate::session`] promises, and they are not meant for production. What each of them does promise, and
//! what not, is said at its type and held by its tests.

mod datagram;
mod status;
mod stream;
mod telling;
#[cfg(test)]
mod tests;

pub use self::datagram::DatagramSession;
pub use self::stream::{MESSAGE_BYTES_MAX, QUEUE_BYTES_MAX, StreamError, StreamSession};
