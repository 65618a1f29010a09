//! The XDP features of an interface's driver, queried without an attempt (the generic netlink family `netdev`, Linux
//! 6.3).

use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};

use crate::interface::Inquiry;

/// The generic netlink family that resolves families (`linux/genetlink.h`).
const CONTROL_FAMILY: u16 = 16;
const CONTROL_GET_FAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;
/// Of the family `netdev` (`linux/netdev.h`).
const DEVICE_GET: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_XDP_FEATURES: u16 = 3;
const FEATURE_REDIRECT: u64 = 1 << 1;
const FEATURE_TRANSMIT: u64 = 1 << 2;
const FEATURE_ZERO_COPY: u64 = 1 << 3;

/// Bytes of the headers before the attributes: netlink's, then generic netlink's.
const HEADERS_BYTES: usize = 16 + 4;
const REQUEST: u16 = 1;

/// The features of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XdpFeatures {
    /// Native programs that can redirect frames.
    pub native: bool,
    /// Programs on other interfaces can redirect frames to this one.
    pub redirect_target: bool,
    /// `AF_XDP` with zero-copy.
    pub zero_copy: bool,
}

/// The features that the driver of `interface` offers now; some offer fewer before an XDP program is attached. `None`
/// when the interface is missing or the kernel is too old.
#[must_use]
pub fn xdp_features(interface: &str) -> Option<XdpFeatures> {
    let index = Inquiry::open().ok()?.index(interface).ok()?;
    let mut socket = Socket::new(NETLINK_GENERIC).ok()?;
    socket.bind_auto().ok()?;
    socket.connect(&SocketAddr::new(0, 0)).ok()?;
    let families = ask(&socket, CONTROL_FAMILY, CONTROL_GET_FAMILY, CONTROL_FAMILY_NAME, b"netdev\0")?;
    let family = u16::from_ne_bytes(attribute(&families, CONTROL_FAMILY_ID)?.first_chunk().copied()?);
    let device = ask(&socket, family, DEVICE_GET, DEVICE_INDEX, &index.to_ne_bytes())?;
    let features = u64::from_ne_bytes(attribute(&device, DEVICE_XDP_FEATURES)?.first_chunk().copied()?);
    let has = |feature| features & feature != 0;
    Some(XdpFeatures {
        native: has(FEATURE_REDIRECT),
        redirect_target: has(FEATURE_TRANSMIT),
        zero_copy: has(FEATURE_ZERO_COPY),
    })
}

/// Sends one request with one attribute; returns the attributes of the reply, `None` for an error.
fn ask(socket: &Socket, family: u16, command: u8, kind: u16, value: &[u8]) -> Option<Vec<u8>> {
    let mut request = vec![0; HEADERS_BYTES];
    request[4..6].copy_from_slice(&family.to_ne_bytes());
    request[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    (request[16], request[17]) = (command, 1);
    request.extend_from_slice(&u16::try_from(4 + value.len()).ok()?.to_ne_bytes());
    request.extend_from_slice(&kind.to_ne_bytes());
    request.extend_from_slice(value);
    request.resize(request.len().next_multiple_of(4), 0);
    let length_bytes = u32::try_from(request.len()).ok()?;
    request[..4].copy_from_slice(&length_bytes.to_ne_bytes());
    socket.send(&request, 0).ok()?;
    let mut answer = Vec::with_capacity(16 * 1024);
    socket.recv(&mut answer, 0).ok()?;
    let is_of_family = answer.get(4..6)? == family.to_ne_bytes();
    is_of_family.then(|| answer.get(HEADERS_BYTES..).map(<[u8]>::to_vec))?
}

/// The value of the first attribute of a kind.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let header: [u8; 4] = attributes.first_chunk().copied()?;
        let length_bytes = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = attributes.get(4..length_bytes)?;
        if u16::from_ne_bytes([header[2], header[3]]) == wanted {
            return Some(value);
        }
        attributes = attributes.get(length_bytes.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{Offload, set_offload};
    use crate::namespace::Namespace;
    use crate::netlink::Netlink;

    #[test]
    fn attributes_are_found_and_damaged_ones_ignored() {
        let attributes =
            [[6_u16.to_ne_bytes(), 2_u16.to_ne_bytes()].concat(), vec![7, 8, 0, 0], vec![0xff; 3]].concat();
        assert_eq!(attribute(&attributes, 2), Some(&[7, 8][..]));
        assert_eq!(attribute(&attributes, 3), None);
        assert_eq!(attribute(&[0; 8], 1), None);
    }

    #[test]
    fn a_missing_interface_has_no_features() {
        assert_eq!(xdp_features("nowhere0"), None);
    }

    #[test]
    fn a_cable_takes_redirected_frames_if_its_other_end_has_receive_offload() {
        let Some(()) = crate::namespace::for_tests() else { return };
        let (here, there) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        here.run(|| Netlink::open().unwrap().create_veth("cable0", "cable1", &there).unwrap()).unwrap();
        // The kernel looks at ends that are up.
        let set_up = |end: &Namespace, name| end.run(|| Netlink::open().unwrap().set_up(name, true).unwrap()).unwrap();
        set_up(&here, "cable0");
        set_up(&there, "cable1");
        let features = || here.run(|| xdp_features("cable0")).unwrap();
        let Some(before) = features() else { return };
        assert!(before.native && !before.redirect_target, "{before:?}");
        there.run(|| set_offload("cable1", Offload::GenericReceive, true).unwrap()).unwrap();
        assert!(features().unwrap().redirect_target);
    }

    #[test]
    fn the_loopback_interface_has_no_native_xdp() {
        // Older kernels do not report features.
        if let Some(features) = xdp_features("lo") {
            assert!(!features.native && !features.zero_copy);
        }
    }
}
