//! Runs the loaded program on a packet (`BPF_PROG_TEST_RUN`), for tests and measurements.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use flow::fast_path::Hook;

const BPF_PROG_TEST_RUN: libc::c_long = 10;
/// `TC_ACT_REDIRECT`.
const ACT_REDIRECT: u32 = 7;
/// `XDP_REDIRECT`.
const XDP_REDIRECT: u32 = 4;
/// Bytes by which no packet grows.
const ROOM_BYTES: usize = 256;

/// The circumstances of a packet beside its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TestContext {
    /// The index of the interface on which it comes in; 0 for the loopback interface.
    pub ifindex: u32,
    /// Payload bytes of each segment that the frame stands for; 0 for an ordinary frame, as all are at XDP.
    pub gso_bytes: u32,
    /// How often the program runs; 0 and 1 mean once. It sees its own changes of the packet.
    pub repeat: u32,
}

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TestRun {
    /// The program redirected the packet.
    pub is_redirected: bool,
    /// The frame after the last run.
    pub bytes: Vec<u8>,
    /// The mean duration of a run.
    pub duration: Duration,
}

/// The head of `union bpf_attr` for `BPF_PROG_TEST_RUN`.
#[repr(C, align(8))]
#[derive(Default)]
struct Attributes {
    program: u32,
    result: u32,
    data_in_bytes: u32,
    data_out_bytes: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration_ns: u32,
    context_in_bytes: u32,
    context_out_bytes: u32,
    context_in: u64,
    context_out: u64,
}

/// The head of `struct __sk_buff`, or `struct xdp_md`, in words.
#[repr(C, align(8))]
struct Context([u32; SK_BUFF_WORDS]);

/// The words of `struct __sk_buff` that are given.
const SK_BUFF_WORDS: usize = 46;
/// The word of its `ifindex`.
const IFINDEX_WORD: usize = 10;
/// The word of its `gso_size`.
const GSO_SIZE_WORD: usize = 44;
/// The words of `struct xdp_md`.
const XDP_WORDS: usize = 6;
/// The word of its `data_end`: the length.
const XDP_END_WORD: usize = 1;
/// The word of its `ingress_ifindex`.
const XDP_IFINDEX_WORD: usize = 3;

/// Runs `program`, which is for `hook`, on `frame`.
pub(crate) fn run(program: BorrowedFd<'_>, hook: Hook, frame: &[u8], context: TestContext) -> io::Result<TestRun> {
    let mut words = Context([0; SK_BUFF_WORDS]);
    let (context_words, redirected) = match hook {
        Hook::Tc => {
            words.0[IFINDEX_WORD] = context.ifindex;
            words.0[GSO_SIZE_WORD] = context.gso_bytes;
            (SK_BUFF_WORDS, ACT_REDIRECT)
        }
        Hook::Xdp => {
            words.0[XDP_END_WORD] = frame.len() as u32;
            words.0[XDP_IFINDEX_WORD] = context.ifindex;
            (XDP_WORDS, XDP_REDIRECT)
        }
    };
    let mut out = vec![0_u8; frame.len() + ROOM_BYTES];
    let mut attributes = Attributes {
        program: program.as_raw_fd().cast_unsigned(),
        data_in_bytes: frame.len() as u32,
        data_out_bytes: out.len() as u32,
        data_in: frame.as_ptr() as u64,
        data_out: out.as_mut_ptr() as u64,
        repeat: context.repeat,
        context_in_bytes: (context_words * size_of::<u32>()) as u32,
        context_in: (&raw const words) as u64,
        ..Attributes::default()
    };
    // SAFETY: the attributes are the head of what the command reads; their pointers are valid for the stated lengths until the
    // call returns, and the kernel writes `data_out` alone.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_TEST_RUN, &raw mut attributes, size_of::<Attributes>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    out.truncate(attributes.data_out_bytes as usize);
    Ok(TestRun {
        is_redirected: attributes.result == redirected,
        bytes: out,
        duration: Duration::from_nanos(attributes.duration_ns.into()),
    })
}
