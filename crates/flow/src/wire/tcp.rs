//! TCP segments and their options (RFC 9293, RFC 7323, RFC 2018).

use super::{TcpSegment, tcp_flags};
use crate::DropReason;

/// Bytes of a TCP header without options.
pub const TCP_HEADER_BYTES: usize = 20;
/// Bytes of a TCP header with as many options as fit.
pub const TCP_HEADER_BYTES_MAX: usize = 60;
/// Offset of the checksum from the start of the header, in bytes.
pub const TCP_CHECKSUM_OFFSET: usize = 16;
/// The largest shift that a window scale option can ask for (RFC 7323 section 2.3).
pub const WINDOW_SCALE_MAX: u8 = 14;

pub mod option {
    //! Kinds of TCP options (IANA).
    /// Nothing follows.
    pub const END: u8 = 0;
    /// One byte of padding.
    pub const NOP: u8 = 1;
    /// Maximum segment size.
    pub const MAXIMUM_SEGMENT: u8 = 2;
    /// Window scale.
    pub const WINDOW_SCALE: u8 = 3;
    /// SACK permitted.
    pub const SACK_PERMITTED: u8 = 4;
    /// SACK blocks.
    pub const SACK: u8 = 5;
    /// Timestamps.
    pub const TIMESTAMPS: u8 = 8;
    /// MD5 signature (RFC 2385).
    pub const MD5_SIGNATURE: u8 = 19;
    /// TCP-AO (RFC 5925).
    pub const AUTHENTICATION: u8 = 29;
}

/// A checked view of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct TcpView<'a> {
    header: &'a [u8; TCP_HEADER_BYTES],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> TcpView<'a> {
    /// Views the payload of an IP packet.
    ///
    /// # Errors
    /// [`DropReason::Malformed`]: the data offset points into the header or behind the packet.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (header, rest) = bytes.split_first_chunk::<TCP_HEADER_BYTES>().ok_or(DropReason::Malformed)?;
        let header_bytes = usize::from(header[12] >> 4) * 4;
        let options_bytes = header_bytes.checked_sub(TCP_HEADER_BYTES).ok_or(DropReason::Malformed)?;
        let (options, payload) = rest.split_at_checked(options_bytes).ok_or(DropReason::Malformed)?;
        Ok(Self { header, options, payload })
    }

    /// Source port.
    #[must_use]
    #[inline]
    pub const fn source_port(&self) -> u16 {
        u16::from_be_bytes([self.header[0], self.header[1]])
    }

    /// Destination port.
    #[must_use]
    #[inline]
    pub const fn destination_port(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// Sequence number.
    #[must_use]
    #[inline]
    pub const fn sequence(&self) -> u32 {
        u32::from_be_bytes([self.header[4], self.header[5], self.header[6], self.header[7]])
    }

    /// Acknowledgement number.
    #[must_use]
    #[inline]
    pub const fn acknowledgement(&self) -> u32 {
        u32::from_be_bytes([self.header[8], self.header[9], self.header[10], self.header[11]])
    }

    /// Bits of [`tcp_flags`] and those of explicit congestion notification above them.
    #[must_use]
    #[inline]
    pub const fn flags(&self) -> u8 {
        self.header[13]
    }

    /// The window field, not scaled.
    #[must_use]
    #[inline]
    pub const fn window(&self) -> u16 {
        u16::from_be_bytes([self.header[14], self.header[15]])
    }

    /// Bytes of the header, options included.
    #[must_use]
    #[inline]
    pub const fn header_bytes(&self) -> usize {
        TCP_HEADER_BYTES + self.options.len()
    }

    /// The options one after another.
    #[must_use]
    pub const fn options(&self) -> TcpOptions<'a> {
        TcpOptions { all: self.options, at: 0 }
    }

    /// The payload.
    #[must_use]
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The fields for connection tracking.
    ///
    /// # Errors
    /// [`DropReason::Malformed`]: an option does not fit.
    #[inline(always)]
    pub fn segment(&self) -> Result<TcpSegment, DropReason> {
        // Most segments carry no options, or timestamps alone in the form that RFC 7323 appendix A recommends.
        let has_timestamps_alone = self.options.len() == 12 && self.options.starts_with(&[1, 1, 8, 10]);
        let options = if self.options.is_empty() || (has_timestamps_alone && self.flags() & tcp_flags::SYN == 0) {
            OptionValues { sack_end: self.acknowledgement(), ..OptionValues::default() }
        } else {
            self.read_options()?
        };
        Ok(TcpSegment {
            sequence: self.sequence(),
            acknowledgement: self.acknowledgement(),
            flags: self.flags(),
            window: self.window(),
            payload_bytes: self.payload.len() as u32,
            window_scale: options.window_scale,
            sack_permitted: options.sack_permitted,
            sack_end: options.sack_end,
            maximum_segment_bytes: options.maximum_segment_bytes,
        })
    }

    #[inline(never)]
    fn read_options(&self) -> Result<OptionValues, DropReason> {
        let is_syn = self.flags() & tcp_flags::SYN != 0;
        let mut options = OptionValues { sack_end: self.acknowledgement(), ..OptionValues::default() };
        for option in self.options() {
            let option = option?;
            match (option.kind, option.value) {
                (option::SACK, blocks) => options.sack_end = highest_right_edge(options.sack_end, blocks),
                (option::MAXIMUM_SEGMENT, [high, low]) if is_syn => {
                    options.maximum_segment_bytes = Some(u16::from_be_bytes([*high, *low]));
                }
                (option::WINDOW_SCALE, [shift]) if is_syn => {
                    options.window_scale = Some((*shift).min(WINDOW_SCALE_MAX))
                }
                (option::SACK_PERMITTED, []) if is_syn => options.sack_permitted = true,
                _ => {}
            }
        }
        Ok(options)
    }
}

/// The options of a segment beside those of [`TcpSegment`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SegmentOptions {
    /// Timestamps: (value, echo reply).
    pub timestamps: Option<(u32, u32)>,
    /// A signature over the header (RFC 2385, RFC 5925).
    pub is_signed: bool,
}

/// The beginning of options that are timestamps alone, as most senders write them (RFC 7323 appendix A).
const TIMESTAMPS_ALONE: &[u8; 4] = &[1, 1, option::TIMESTAMPS, 10];

/// Kinds of options with a signature: MD5 and TCP-AO.
const SIGNATURES: [u8; 2] = [option::MD5_SIGNATURE, option::AUTHENTICATION];

impl SegmentOptions {
    /// Reads the options of `header`, a TCP header with its options. Options behind a malformed one are not read.
    #[must_use]
    pub fn read(header: &[u8]) -> Self {
        let mut options = Self::default();
        if header.len() <= TCP_HEADER_BYTES {
            return options;
        }
        if let Some((TIMESTAMPS_ALONE, [a, b, c, d, e, f, g, h])) = header[TCP_HEADER_BYTES..].split_first_chunk() {
            options.timestamps = Some((u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h])));
            return options;
        }
        let Ok(view) = TcpView::new_checked(header) else { return options };
        for option in view.options().map_while(Result::ok) {
            options.is_signed |= SIGNATURES.contains(&option.kind);
            if let (option::TIMESTAMPS, [a, b, c, d, e, f, g, h]) = (option.kind, option.value) {
                options.timestamps = Some((u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h])));
            }
        }
        options
    }
}

/// The values of the options.
#[derive(Default)]
struct OptionValues {
    window_scale: Option<u8>,
    sack_permitted: bool,
    sack_end: u32,
    maximum_segment_bytes: Option<u16>,
}

fn highest_right_edge(mut highest: u32, blocks: &[u8]) -> u32 {
    let (blocks, _) = blocks.as_chunks::<8>();
    for block in blocks {
        let right = u32::from_be_bytes([block[4], block[5], block[6], block[7]]);
        // Serial number arithmetic: later by less than half the circle.
        if right.wrapping_sub(highest).cast_signed() > 0 {
            highest = right;
        }
    }
    highest
}

/// One TCP option, neither end nor padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpOption<'a> {
    /// One of [`option`], or a kind not known here.
    pub kind: u8,
    /// Offset of its value from the end of the fixed header, in bytes.
    pub value_offset: usize,
    /// Its value.
    pub value: &'a [u8],
}

/// Iterator over the options of a segment. After an error it ends.
#[derive(Clone, Debug)]
pub struct TcpOptions<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<TcpOption<'a>, DropReason>;

    fn next(&mut self) -> Option<Self::Item> {
        while *self.all.get(self.at)? == option::NOP {
            self.at += 1;
        }
        let kind = self.all[self.at];
        if kind == option::END {
            self.at = self.all.len();
            return None;
        }
        let start = self.at;
        let end = self.all.get(start + 1).map_or(0, |length| start + usize::from(*length));
        let Some(value) = self.all.get(start + 2..end) else {
            self.at = self.all.len();
            return Some(Err(DropReason::Malformed));
        };
        self.at = end;
        Some(Ok(TcpOption { kind, value_offset: start + 2, value }))
    }
}
