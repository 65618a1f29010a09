//! The program that runs in the driver for each frame, and its attachment to an interface (bpf(2)).
//!
//! It passes every frame of a queue to the socket that the map holds for this queue; frames of a queue without a socket
//! go to the kernel. The attachment is a link, which ends with its descriptor, so a killed process leaves nothing
//! behind.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::Fallback;
use super::busy::{EBUSY_RETRY, retry_while_busy};
use crate::IoError;
use crate::system::own;

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;

const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
/// The attach type of XDP programs.
const BPF_XDP: u32 = 37;
/// The second register of a wide load names a map by its descriptor.
const BPF_PSEUDO_MAP_FD: u8 = 1;
const BPF_FUNC_REDIRECT_MAP: i32 = 51;
/// The result for a frame whose queue has no socket: the kernel processes it.
const XDP_PASS: i32 = 2;
/// The offset of the queue's number in the context of an XDP program (`struct xdp_md`).
const QUEUE_NUMBER_OFFSET: i16 = 16;

const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Where in the kernel the program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachMode {
    /// In the driver, before the kernel builds a packet buffer.
    Native,
    /// After the kernel has built a packet buffer (`skb`): any driver, but slower.
    Generic,
}

impl AttachMode {
    const fn flags(self) -> u32 {
        match self {
            Self::Native => XDP_FLAGS_DRV_MODE,
            Self::Generic => XDP_FLAGS_SKB_MODE,
        }
    }

    /// `native` or `generic`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Instruction {
    code: u8,
    /// Destination in the lower half, source in the upper.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: destination | source << 4, offset, immediate }
}

/// `return bpf_redirect_map(map, context->rx_queue_index, XDP_PASS)`.
const fn redirect_program(map: libc::c_int) -> [Instruction; 6] {
    /// Load 32 bits from memory.
    const LOAD_WORD: u8 = 0x61;
    /// Load 64 bits given in this and the next instruction.
    const LOAD_WIDE: u8 = 0x18;
    /// Load 32 bits given in the instruction.
    const MOVE: u8 = 0xb7;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    [
        instruction(LOAD_WORD, 2, 1, QUEUE_NUMBER_OFFSET, 0),
        instruction(LOAD_WIDE, 1, BPF_PSEUDO_MAP_FD, 0, map),
        instruction(0, 0, 0, 0, 0),
        instruction(MOVE, 3, 0, 0, XDP_PASS),
        instruction(CALL, 0, 0, 0, BPF_FUNC_REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

/// The head of `union bpf_attr` for `BPF_MAP_CREATE`.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries_max: u32,
}

/// The head of `union bpf_attr` for `BPF_MAP_UPDATE_ELEM`.
#[repr(C, align(8))]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The head of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C, align(8))]
struct ProgramLoad {
    kind: u32,
    instructions_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface_index: u32,
    expected_attach_type: u32,
}

/// The head of `union bpf_attr` for `BPF_LINK_CREATE`.
#[repr(C)]
struct LinkCreate {
    program: u32,
    interface_index: u32,
    attach_type: u32,
    flags: u32,
}

/// # Safety
/// `attributes` must be the head of `union bpf_attr` that `command` reads, and its pointers must be valid for the
/// command.
unsafe fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the attributes are readable for their length; the caller guarantees their content.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

/// The program on one interface, and the map of queues to sockets. It stays attached while this value lives.
#[derive(Debug)]
pub struct Attachment {
    map: OwnedFd,
    /// Keeps the program attached.
    _link: OwnedFd,
    mode: AttachMode,
    fallback: Option<Fallback>,
}

impl Attachment {
    /// Attaches the program to the interface: in the driver if possible, else behind it.
    pub(super) fn new(interface: &str, index: u32, queues: u32, allow_native: bool) -> Result<Self, IoError> {
        let explain = |error: io::Error, operation: &str| explain(error, format!("{operation} for {interface}"));
        let map = create_map(queues).map_err(|error| explain(error, "making a map of AF_XDP sockets"))?;
        let program = load(&map).map_err(|error| explain(error, "loading an XDP program"))?;
        let attach = |mode| retry_while_busy(EBUSY_RETRY, || link(&program, index, mode));
        let native = if allow_native { Some(attach(AttachMode::Native)) } else { None };
        let (link, mode, fallback) = match native {
            Some(Ok(link)) => (Ok(link), AttachMode::Native, None),
            Some(Err(error)) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST | libc::EPERM)) => {
                (Err(error), AttachMode::Native, None)
            }
            Some(Err(error)) => (attach(AttachMode::Generic), AttachMode::Generic, Some(Fallback::Generic(error))),
            None => (attach(AttachMode::Generic), AttachMode::Generic, None),
        };
        let link = link.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => IoError::Misuse(format!(
                "another XDP program is on {interface}: stop the program that put it there, or take it off with \"ip \
                 link set dev {interface} xdp off\""
            )),
            _ => explain(error, "attaching an XDP program"),
        })?;
        Ok(Self { map, _link: link, mode, fallback })
    }

    /// The mode of the program.
    #[must_use]
    pub const fn mode(&self) -> AttachMode {
        self.mode
    }

    /// The unavailable feature with its reason, if any.
    #[must_use]
    pub const fn fallback(&self) -> Option<&Fallback> {
        self.fallback.as_ref()
    }

    /// Directs the frames of `queue` to `socket`.
    pub(super) fn redirect(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        let mut attributes = MapUpdate {
            map: self.map.as_raw_fd() as u32,
            padding: 0,
            key: (&raw const queue) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        // SAFETY: key and value are four bytes each, as the map was made for, and live until the call returns.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
    }
}

fn create_map(queues: u32) -> io::Result<OwnedFd> {
    let mut attributes = MapCreate { kind: BPF_MAP_TYPE_XSKMAP, key_bytes: 4, value_bytes: 4, entries_max: queues };
    // SAFETY: the attributes hold no pointers.
    own(unsafe { bpf(BPF_MAP_CREATE, &mut attributes) }?)
}

fn load(map: &OwnedFd) -> io::Result<OwnedFd> {
    let program = redirect_program(map.as_raw_fd());
    let mut name = [0; 16];
    name[..8].copy_from_slice(b"mainstay");
    let mut attributes = ProgramLoad {
        kind: BPF_PROG_TYPE_XDP,
        instructions_count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name,
        interface_index: 0,
        expected_attach_type: BPF_XDP,
    };
    // SAFETY: the instructions are as many as stated and the license is a C string; both live until the call returns.
    own(unsafe { bpf(BPF_PROG_LOAD, &mut attributes) }?)
}

fn link(program: &OwnedFd, interface_index: u32, mode: AttachMode) -> io::Result<OwnedFd> {
    let mut attributes =
        LinkCreate { program: program.as_raw_fd() as u32, interface_index, attach_type: BPF_XDP, flags: mode.flags() };
    // SAFETY: the attributes hold no pointers.
    own(unsafe { bpf(BPF_LINK_CREATE, &mut attributes) }?)
}

fn explain(error: io::Error, operation: String) -> IoError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            IoError::NotPermitted { operation, capability: "CAP_BPF and CAP_NET_ADMIN (outside any user namespace)" }
        }
        Some(libc::ENOSYS) => {
            IoError::Misuse(format!("{operation}: the kernel is built without bpf(2); use another backend"))
        }
        _ => IoError::from_io(error, operation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_the_encoding_of_the_machine() {
        // r2 = *(u32 *)(r1 + 16); then the map in two halves, the number 2, the call and the end.
        let bytes: Vec<[u8; 8]> = redirect_program(0x0403_0201)
            .iter()
            .map(|each| {
                let [offset, immediate] = [each.offset.to_ne_bytes().to_vec(), each.immediate.to_ne_bytes().to_vec()];
                [&[each.code, each.registers][..], &offset, &immediate].concat().try_into().unwrap()
            })
            .collect();
        assert_eq!(size_of::<Instruction>(), 8);
        if cfg!(target_endian = "little") {
            assert_eq!(
                bytes,
                [
                    [0x61, 0x12, 16, 0, 0, 0, 0, 0],
                    [0x18, 0x11, 0, 0, 1, 2, 3, 4],
                    [0; 8],
                    [0xb7, 0x03, 0, 0, 2, 0, 0, 0],
                    [0x85, 0, 0, 0, 51, 0, 0, 0],
                    [0x95, 0, 0, 0, 0, 0, 0, 0],
                ]
            );
        }
    }
}
