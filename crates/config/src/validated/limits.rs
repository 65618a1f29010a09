//! `[limits]`: what is held at most, and what one source may have of it.

use std::time::Duration;

use cluster::pipeline::{self, SourceLimit};
use flow::fragments::FragmentLimits;
use flow::source_counts::SourcePrefixes;

use super::workers::Workers;

/// What is held at most beside connections, and what one source may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections that one source may have; `None`: any number.
    pub connections_per_source_max: Option<u32>,
    /// Connections that one source may begin in a second; `None`: any number.
    pub connections_per_source_per_second_max: Option<u32>,
    /// Leading bits of an IPv4 address that name a source, 0 to 32.
    pub source_prefix_ipv4_bits: u8,
    /// Leading bits of an IPv6 address that name a source, 0 to 128.
    pub source_prefix_ipv6_bits: u8,
    /// Packets in reassembly at a time.
    pub fragmented_packets_max: u32,
    /// Packets in fragments of one source.
    pub fragmented_packets_per_source_max: u32,
    /// Bytes of fragments that wait for the first of their packet.
    pub fragment_bytes_max: u32,
    /// Bytes of one source's fragments that wait.
    pub fragment_bytes_per_source_max: u32,
    /// How long the fragments of a packet may take to come.
    pub fragment_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let fragments = FragmentLimits::default();
        Self {
            connections_per_source_max: None,
            connections_per_source_per_second_max: None,
            source_prefix_ipv4_bits: fragments.sources.ipv4_bits,
            source_prefix_ipv6_bits: fragments.sources.ipv6_bits,
            fragmented_packets_max: fragments.datagrams_max,
            fragmented_packets_per_source_max: fragments.datagrams_per_source_max,
            fragment_bytes_max: fragments.held_bytes_max,
            fragment_bytes_per_source_max: fragments.held_bytes_per_source_max,
            fragment_timeout: fragments.timeout,
        }
    }
}

impl Limits {
    /// The limits as the pipeline of one of `workers` takes them: each has an equal part of what is counted over all sources,
    /// and of a source's connections, which come to all workers. A source's fragments may all come to one.
    #[must_use]
    pub fn of_pipeline(&self, workers: Workers) -> pipeline::Limits {
        let part = |limit: u32| limit.div_ceil(workers.count.into());
        let prefixes =
            SourcePrefixes { ipv4_bits: self.source_prefix_ipv4_bits, ipv6_bits: self.source_prefix_ipv6_bits };
        let of_source = SourceLimit {
            connections_max: self.connections_per_source_max.map(part),
            begun_per_second_max: self.connections_per_source_per_second_max.map(part),
            prefixes,
        };
        let is_limited = of_source.connections_max.is_some() || of_source.begun_per_second_max.is_some();
        pipeline::Limits {
            fragments: FragmentLimits {
                datagrams_max: part(self.fragmented_packets_max),
                datagrams_per_source_max: self.fragmented_packets_per_source_max,
                held_bytes_max: part(self.fragment_bytes_max),
                held_bytes_per_source_max: self.fragment_bytes_per_source_max,
                timeout: self.fragment_timeout,
                sources: prefixes,
            },
            sources: is_limited.then_some(of_source),
        }
    }

    /// Every limit with its key, in the order of the documentation.
    #[must_use]
    pub fn entries(&self) -> Vec<(&'static str, String)> {
        // Every field is named, so that a new one cannot be forgotten.
        let Self {
            connections_per_source_max,
            connections_per_source_per_second_max,
            source_prefix_ipv4_bits,
            source_prefix_ipv6_bits,
            fragmented_packets_max,
            fragmented_packets_per_source_max,
            fragment_bytes_max,
            fragment_bytes_per_source_max,
            fragment_timeout,
        } = self;
        let optional = |limit: &Option<u32>| limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
        vec![
            ("connections_per_source_max", optional(connections_per_source_max)),
            ("connections_per_source_per_second_max", optional(connections_per_source_per_second_max)),
            ("source_prefix_ipv4_bits", source_prefix_ipv4_bits.to_string()),
            ("source_prefix_ipv6_bits", source_prefix_ipv6_bits.to_string()),
            ("fragmented_packets_max", fragmented_packets_max.to_string()),
            ("fragmented_packets_per_source_max", fragmented_packets_per_source_max.to_string()),
            ("fragment_bytes_max", fragment_bytes_max.to_string()),
            ("fragment_bytes_per_source_max", fragment_bytes_per_source_max.to_string()),
            ("fragment_timeout", format!("{fragment_timeout:?}")),
        ]
    }
}
