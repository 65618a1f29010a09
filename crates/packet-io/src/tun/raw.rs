//! A tunnel device whose packets are carried unchanged, with their offload state.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use flow::{Checksum, Segmentation, SegmentationKind};

use super::device::{self, Device, DeviceKind};
use super::{HEADER_BYTES, PACKET_BYTES_MAX};
use crate::virtio;
use crate::{IoError, TransmitFailure};

/// The maximum length of a message of such a device, in bytes: a virtio-net header, and 64 KB of segments with their
/// headers.
pub const MESSAGE_BYTES_MAX: usize = HEADER_BYTES + PACKET_BYTES_MAX;

/// One tunnel device. A message is a packet (or frame) behind its virtio-net header; a message from one such device is
/// valid for another.
#[derive(Debug)]
pub struct RawTunnel {
    device: Device,
}

impl RawTunnel {
    /// Creates the device `interface` in the calling thread's namespace, and switches it on. With `offload` the kernel
    /// passes runs of segments as one packet and leaves checksums incomplete.
    ///
    /// # Errors
    /// As [`super::TunIo::open`].
    pub fn open(interface: &str, kind: DeviceKind, offload: bool) -> Result<Self, IoError> {
        Ok(Self { device: Device::open(interface, kind, offload)? })
    }

    /// Reads a message into `message`, which has room for [`MESSAGE_BYTES_MAX`]. Returns its length in bytes; `None`
    /// when none is pending, or the device is down.
    pub fn receive(&mut self, message: &mut [u8]) -> Option<usize> {
        self.device.read(message).ok().filter(|length_bytes| *length_bytes > HEADER_BYTES)
    }

    /// Passes a message to the kernel as a packet that the device received.
    ///
    /// # Errors
    /// The device is down, or the kernel rejects the packet.
    pub fn send(&self, message: &[u8]) -> Result<(), TransmitFailure> {
        let (header, packet) = message.split_at_checked(HEADER_BYTES).ok_or(TransmitFailure::Invalid)?;
        let header = header.try_into().ok().and_then(|header| virtio::parse(header, 0));
        let (checksum, segmentation) = header.ok_or(TransmitFailure::Invalid)?;
        // Rewritten: the kernel shall copy only headers into the linear part of its buffer.
        self.write(&virtio::emit(checksum, segmentation, packet), packet)
    }

    /// As [`RawTunnel::send`], for a packet without a virtio-net header, whose checksums are complete.
    ///
    /// # Errors
    /// As [`RawTunnel::send`].
    pub fn send_packet(&self, packet: &[u8]) -> Result<(), TransmitFailure> {
        self.write(&virtio::emit(Checksum::Valid, Segmentation::default(), packet), packet)
    }

    fn write(&self, header: &[u8; HEADER_BYTES], packet: &[u8]) -> Result<(), TransmitFailure> {
        self.device.write(header, packet).map_err(|error: io::Error| {
            if device::is_down_error(&error) {
                return TransmitFailure::Down;
            }
            TransmitFailure::from_errno(error.raw_os_error().unwrap_or(libc::EIO))
        })
    }
}

impl AsFd for RawTunnel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// The number of bytes of a message's packets on a wire: a run of segments is sent as separate packets, each with its
/// headers.
#[must_use]
pub fn wire_length_bytes(message: &[u8]) -> u64 {
    let Some((header, packet)) = message.split_at_checked(HEADER_BYTES) else { return 0 };
    let length_bytes = packet.len() as u64;
    let header = header.try_into().ok().and_then(|header| virtio::parse(header, 0));
    let Some((checksum, segmentation)) = header else { return length_bytes };
    if segmentation.kind == SegmentationKind::None || segmentation.size_bytes == 0 {
        return length_bytes;
    }
    let header_bytes = u64::from(virtio::header_bytes(checksum, segmentation, packet));
    let segments = length_bytes.saturating_sub(header_bytes).div_ceil(segmentation.size_bytes.into()).max(1);
    length_bytes + (segments - 1) * header_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(segmentation: Segmentation, packet: &[u8]) -> Vec<u8> {
        let header = virtio::emit(Checksum::Partial { start: 20, offset: 16 }, segmentation, packet);
        [header.as_slice(), packet].concat()
    }

    #[test]
    fn on_a_wire_every_segment_has_its_headers() {
        let mut packet = vec![0; 20 + 20 + 3 * 1000 + 1];
        packet[20 + 12] = 0x50;
        assert_eq!(wire_length_bytes(&message(Segmentation::default(), &packet)), 3041);
        let segments = Segmentation { kind: SegmentationKind::TcpIpv4, size_bytes: 1000, header_bytes: 40, ecn: false };
        assert_eq!(wire_length_bytes(&message(segments, &packet)), 3041 + 3 * 40);
        assert_eq!(wire_length_bytes(&[0; 3]), 0);
    }
}
