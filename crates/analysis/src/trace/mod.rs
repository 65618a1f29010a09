//! Captures as one stream of packets.
