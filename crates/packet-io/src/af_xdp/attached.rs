//! An interface ready to be opened: its configuration, its fallbacks, and the attached program.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::memory::{MTU_BYTES_MAX, chunk_bytes_for};
use super::program::Attachment;
use super::socket::hold_promiscuous;
use crate::IoError;
use crate::interface::{self, Inquiry};

/// A requested feature that is unavailable, with the system's error. The port works without it.
#[derive(Debug)]
pub enum Fallback {
    /// The program runs behind the driver instead of in it.
    Generic(io::Error),
    /// Frames are copied between the driver's memory and the shared one. Without an error, the driver lacks zero-copy.
    Copy(Option<io::Error>),
}

impl std::fmt::Display for Fallback {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Generic(why) => write!(formatter, "generic instead of native XDP: the driver refuses it ({why})"),
            Self::Copy(None) => write!(formatter, "frames are copied: the driver has no zero-copy AF_XDP"),
            Self::Copy(Some(why)) => write!(formatter, "frames are copied: zero-copy cannot be shared ({why})"),
        }
    }
}

/// How to open a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// The interface's name, in the namespace of the opening thread.
    pub interface: String,
    /// Receive frames for other link addresses than the interface's own, too.
    pub promiscuous: bool,
    /// Run the program in the driver where supported.
    pub allow_native: bool,
    /// Use zero-copy where available.
    pub allow_zero_copy: bool,
}

impl PortConfig {
    /// The interface `interface`, not promiscuous, in its fastest mode.
    #[must_use]
    pub fn new(interface: impl Into<String>) -> Self {
        Self { interface: interface.into(), promiscuous: false, allow_native: true, allow_zero_copy: true }
    }
}

/// An interface with the redirecting program on it, to be opened by one [`AfXdpIo`](super::AfXdpIo) or by several that share its queues.
#[derive(Debug)]
pub struct AttachedPort {
    pub(super) config: PortConfig,
    inquiry: Inquiry,
    pub(super) index: u32,
    pub(super) mtu_bytes: u32,
    queues: u32,
    pub(super) attachment: Attachment,
    _promiscuous: Option<OwnedFd>,
}

impl AttachedPort {
    /// Attaches the program to the interface. Frames go to the kernel until sockets are opened.
    ///
    /// # Errors
    /// The interface does not exist, has too large an MTU or another XDP program, or permission is missing.
    pub fn attach(config: &PortConfig) -> Result<Arc<Self>, IoError> {
        let name = config.interface.as_str();
        let missing = |_| IoError::NoSuchInterface { interface: name.into() };
        let inquiry = Inquiry::open().map_err(|error| IoError::from_io(error, format!("asking about {name}")))?;
        let (index, mtu_bytes) = (inquiry.index(name).map_err(missing)?, inquiry.mtu_bytes(name).map_err(missing)?);
        if chunk_bytes_for(mtu_bytes).is_none() {
            return Err(IoError::Misuse(format!(
                "{name} has an MTU of {mtu_bytes} bytes, and AF_XDP takes at most {MTU_BYTES_MAX}: lower it, or use another \
                 backend for this port"
            )));
        }
        let queues = interface::receive_queues(name);
        let promiscuous = config.promiscuous.then(|| hold_promiscuous(index)).transpose().map_err(|error| {
            let operation = format!("making {name} promiscuous");
            match error.raw_os_error() {
                Some(libc::EPERM) => IoError::NotPermitted { operation, capability: "CAP_NET_RAW" },
                _ => IoError::from_io(error, operation),
            }
        })?;
        let attachment = Attachment::new(name, index, queues, config.allow_native)?;
        let config = config.clone();
        Ok(Arc::new(Self { config, inquiry, index, mtu_bytes, queues, attachment, _promiscuous: promiscuous }))
    }

    /// The number of queues of the interface.
    #[must_use]
    pub const fn queues(&self) -> u32 {
        self.queues
    }

    /// Whether the interface exists and is up.
    pub(super) fn is_up(&self) -> bool {
        let name = self.config.interface.as_str();
        self.inquiry.index(name).is_ok_and(|index| index == self.index) && self.inquiry.is_up(name)
    }

    /// The mode of the program, and the reason if it is not the fastest.
    #[must_use]
    pub const fn attachment(&self) -> &Attachment {
        &self.attachment
    }
}
