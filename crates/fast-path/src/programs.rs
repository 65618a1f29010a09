//! The programs in the kernel, one for each hook, and their links to interfaces.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use aya::Ebpf;
use aya::programs::links::{FdLink, LinkError, LinkOrder, PinnedLink};
use aya::programs::tc::{NlOptions, SchedClassifierLink, TcAttachOptions, qdisc_add_clsact};
use aya::programs::xdp::XdpLink;
use aya::programs::{ProgramError, SchedClassifier, TcAttachType, Xdp, XdpFlags};
use aya::sys::SyscallError;
use aya::util::KernelVersion;
use aya_obj::programs::XdpAttachType;
use flow::fast_path::Hook;

use crate::Error;

/// The names of the programs in the object.
const TC_PROGRAM: &str = "fast_path";
const XDP_PROGRAM: &str = "fast_path_xdp";
/// What is done when an error of one of them occurs.
const IN_OBJECT: &str = "finding the program in its object";

/// The loaded programs: that for tc, and that for XDP where it was asked for.
#[derive(Debug)]
pub(crate) enum Programs {
    /// Of this process.
    Own(Ebpf),
    /// Pinned.
    Pinned {
        /// The program for tc.
        tc: Box<SchedClassifier>,
        /// That for XDP.
        xdp: Option<Box<Xdp>>,
    },
}

/// What keeps a program attached to an interface until it is dropped.
#[derive(Debug)]
pub(crate) enum Link {
    /// At the ingress of traffic control.
    Tc(SchedClassifierLink),
    /// In the driver.
    Xdp(XdpLink),
}

impl Programs {
    fn tc(&self) -> Result<&SchedClassifier, ProgramError> {
        match self {
            Self::Pinned { tc, .. } => Ok(tc),
            Self::Own(ebpf) => ebpf.program(TC_PROGRAM).ok_or(ProgramError::NotLoaded)?.try_into(),
        }
    }

    fn tc_mut(&mut self) -> Result<&mut SchedClassifier, ProgramError> {
        match self {
            Self::Pinned { tc, .. } => Ok(tc),
            Self::Own(ebpf) => ebpf.program_mut(TC_PROGRAM).ok_or(ProgramError::NotLoaded)?.try_into(),
        }
    }

    fn xdp(&self) -> Result<&Xdp, ProgramError> {
        match self {
            Self::Pinned { xdp, .. } => xdp.as_deref().ok_or(ProgramError::NotLoaded),
            Self::Own(ebpf) => ebpf.program(XDP_PROGRAM).ok_or(ProgramError::NotLoaded)?.try_into(),
        }
    }

    fn xdp_mut(&mut self) -> Result<&mut Xdp, ProgramError> {
        match self {
            Self::Pinned { xdp, .. } => xdp.as_deref_mut().ok_or(ProgramError::NotLoaded),
            Self::Own(ebpf) => ebpf.program_mut(XDP_PROGRAM).ok_or(ProgramError::NotLoaded)?.try_into(),
        }
    }

    /// Has the kernel verify the program for a hook.
    pub(crate) fn load(&mut self, hook: Hook) -> Result<(), Error> {
        let result = match hook {
            Hook::Tc => self.tc_mut().and_then(SchedClassifier::load),
            Hook::Xdp => self.xdp_mut().and_then(Xdp::load),
        };
        result
            .map_err(|error| Error::from_program(error, format!("loading the fast path's program for {}", hook.name())))
    }

    /// The descriptor of the program for a hook.
    pub(crate) fn descriptor(&self, hook: Hook) -> Result<BorrowedFd<'_>, Error> {
        let descriptor = match hook {
            Hook::Tc => self.tc().and_then(|program| program.fd()),
            Hook::Xdp => self.xdp().and_then(|program| program.fd()),
        };
        descriptor.map(AsFd::as_fd).map_err(|error| Error::from_program(error, IN_OBJECT))
    }

    /// The kernel's digest of the instructions of the program for a hook.
    pub(crate) fn tag(&self, hook: Hook) -> Result<u64, Error> {
        let info = match hook {
            Hook::Tc => self.tc().and_then(SchedClassifier::info),
            Hook::Xdp => self.xdp().and_then(Xdp::info),
        };
        info.map(|info| info.tag()).map_err(|error| Error::from_program(error, "asking about a program"))
    }

    /// Pins the program for a hook.
    pub(crate) fn pin(&mut self, hook: Hook, path: &Path, operation: &str) -> Result<(), Error> {
        let missing = |error| Error::from_program(error, IN_OBJECT);
        let pinned = match hook {
            Hook::Tc => self.tc_mut().map_err(missing)?.pin(path),
            Hook::Xdp => self.xdp_mut().map_err(missing)?.pin(path),
        };
        pinned.map_err(|error| Error::from_pin(error, operation))
    }

    /// The pinned programs.
    pub(crate) fn from_pins(tc: &Path, xdp: Option<&Path>) -> Result<Self, ProgramError> {
        let xdp = xdp.map(|path| Xdp::from_pin(path, XdpAttachType::Interface).map(Box::new)).transpose()?;
        Ok(Self::Pinned { tc: Box::new(SchedClassifier::from_pin(tc)?), xdp })
    }

    /// Attaches the program for traffic control to the ingress of an interface, before others there: by tcx if it is allowed and the
    /// kernel has it, else by a clsact queueing discipline, which cannot be pinned.
    pub(crate) fn attach_tc(&mut self, interface: &str, allow_tcx: bool, is_pinned: bool) -> Result<Link, Error> {
        let operation = attaching(interface);
        let options = if allow_tcx && kernel_has_tcx() {
            TcAttachOptions::TcxOrder(LinkOrder::first())
        } else if is_pinned {
            return Err(Error::Misuse(format!(
                "{operation}: links can be pinned only by tcx, which Linux 6.6 brought"
            )));
        } else {
            add_clsact(interface, &operation)?;
            TcAttachOptions::Netlink(NlOptions::default())
        };
        let attach = |program: &mut SchedClassifier| {
            let id = program.attach_with_options(interface, TcAttachType::Ingress, options)?;
            program.take_link(id)
        };
        let link = self.tc_mut().and_then(attach);
        link.map(Link::Tc).map_err(|error| Error::from_program(error, operation))
    }

    /// Attaches the program for XDP to an interface's driver. The kernel's generic way, which copies most frames, is not used instead.
    pub(crate) fn attach_xdp(&mut self, interface: &str) -> Result<Link, Error> {
        let attach = |program: &mut Xdp| {
            let id = program.attach(interface, XdpFlags::DRV_MODE)?;
            program.take_link(id)
        };
        self.xdp_mut().and_then(attach).map(Link::Xdp).map_err(|error| match error {
            ProgramError::SyscallError(SyscallError { io_error, .. }) => Error::from_native(io_error, interface),
            error => Error::from_program(error, attaching(interface)),
        })
    }

    /// The pinned link at a hook, with this program in it. `None`: its interface is gone, and another one has its index.
    pub(crate) fn take_over_link(&mut self, hook: Hook, pin: &Path, operation: &str) -> Result<Option<FdLink>, Error> {
        let explain = |error| Error::from_link(error, operation);
        let link = FdLink::from(PinnedLink::from_pin(pin).map_err(explain)?);
        let updated = match hook {
            Hook::Tc => {
                let link = SchedClassifierLink::try_from(link).map_err(explain)?;
                let program = self.tc_mut().map_err(|error| Error::from_program(error, IN_OBJECT))?;
                program.attach_to_link(link).and_then(|id| program.take_link(id)).map(Link::Tc)
            }
            Hook::Xdp => {
                let link = XdpLink::try_from(link).map_err(explain)?;
                let program = self.xdp_mut().map_err(|error| Error::from_program(error, IN_OBJECT))?;
                program.attach_to_link(link).and_then(|id| program.take_link(id)).map(Link::Xdp)
            }
        };
        match updated.map_err(|error| Error::from_program(error, operation)) {
            Ok(link) => link.into_descriptor().map(Some).map_err(explain),
            Err(error) if error.errno() == Some(libc::ENOLINK) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Link {
    /// As what can be pinned.
    pub(crate) fn into_descriptor(self) -> Result<FdLink, LinkError> {
        match self {
            Self::Tc(link) => link.try_into(),
            Self::Xdp(link) => link.try_into(),
        }
    }
}

/// What is done when an attachment fails.
pub(crate) fn attaching(interface: &str) -> String {
    format!("attaching the fast path to {interface}")
}

/// Removes a pin, if it is there.
pub(crate) fn remove_pin(pin: &Path) -> Result<(), Error> {
    match fs::remove_file(pin) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::from_io(error, format!("removing {}", pin.display())))
        }
        _ => Ok(()),
    }
}

/// tcx came with Linux 6.6.
fn kernel_has_tcx() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 6, 0))
}

/// Adds the queueing discipline to which programs attach on kernels without tcx.
fn add_clsact(interface: &str, operation: &str) -> Result<(), Error> {
    match qdisc_add_clsact(interface) {
        Err(error) if error.raw_os_error() != Some(libc::EEXIST) => Err(Error::from_io(error, operation)),
        _ => Ok(()),
    }
}
