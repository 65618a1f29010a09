//! Several packet sockets on one interface, among which the kernel divides the frames (`PACKET_FANOUT`, packet(7)).
//!
//! The caller supplies the program that selects the socket for a frame. Its result is the index of the socket in the
//! order of joining, so the sockets join one after the other.
//!
//! Sockets that receive single EtherTypes form a group for each EtherType: the kernel divides only among sockets of one.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use flow::steering::Instruction;

use crate::system::{attach_filter, check, detach_filter, set_option};

/// `PACKET_FANOUT`: joins a group, or returns the joined one.
const PACKET_FANOUT: libc::c_int = 18;
/// `PACKET_FANOUT_DATA`: gives a group its program.
const PACKET_FANOUT_DATA: libc::c_int = 22;
/// `PACKET_FANOUT_CBPF`: by the result of a classic BPF program.
const FANOUT_CBPF: u32 = 6;
/// `PACKET_FANOUT_FLAG_UNIQUEID`: the kernel chooses a group number that is unique in the namespace.
const FLAG_UNIQUE_ID: u32 = 0x2000;
/// `PACKET_FANOUT_FLAG_IGNORE_OUTGOING`: excludes frames that this host sends (since Linux 5.17).
const FLAG_IGNORE_OUTGOING: u32 = 0x4000;

/// One member's place among the sockets on one interface.
#[derive(Clone, Debug)]
pub struct Fanout {
    group: Arc<Group>,
    member: u16,
}

/// The state shared by the members. It is locked only when a socket is opened.
#[derive(Debug)]
struct Group {
    program: Vec<libc::sock_filter>,
    state: Mutex<State>,
}

/// The members that have joined.
#[derive(Clone, Default, Debug)]
struct State {
    /// The index of the groups' interface: a recreated interface has another index, and other groups.
    interface: libc::c_int,
    /// The groups' numbers, by the order of a member's sockets.
    ids: Vec<u16>,
    joined: u16,
}

impl Fanout {
    /// The places of `members` members. `program` selects the member for a frame.
    #[must_use]
    pub fn group(members: u16, program: &[Instruction]) -> Vec<Self> {
        let filter = |instruction: &Instruction| libc::sock_filter {
            code: instruction.code,
            jt: instruction.jump_true,
            jf: instruction.jump_false,
            k: instruction.operand,
        };
        let program = program.iter().map(filter).collect();
        let group = Arc::new(Group { program, state: Mutex::new(State::default()) });
        (0..members).map(|member| Self { group: Arc::clone(&group), member }).collect()
    }

    /// Blocks reception on a socket until [`Fanout::join`] adds it to the group: a bound socket outside of the group
    /// would receive every frame beside the members.
    pub(super) fn hold_back(socket: BorrowedFd<'_>) -> io::Result<()> {
        const KEEP_NOTHING: libc::sock_filter =
            libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
        attach_filter(socket, &mut [KEEP_NOTHING])
    }

    /// Adds the member's sockets, which are bound to `interface`, to a group each; every member has as many, in the same order. They
    /// remain held back. Returns false when the members before it have not joined yet: new sockets may try again later.
    pub(super) fn join<'a>(
        &self,
        mut sockets: impl Iterator<Item = BorrowedFd<'a>>,
        interface: libc::c_int,
    ) -> io::Result<bool> {
        let mut state = self.group.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.member == 0 {
            let ids = sockets.map(|socket| self.begin(socket)).collect::<io::Result<_>>()?;
            *state = State { interface, ids, joined: 1 };
            return Ok(true);
        }
        if state.interface != interface || state.joined != self.member {
            return Ok(false);
        }
        state.ids.iter().zip(&mut sockets).try_for_each(|(id, socket)| {
            let argument = u32::from(*id) | (FANOUT_CBPF | FLAG_IGNORE_OUTGOING) << 16;
            set_option(socket, libc::SOL_PACKET, PACKET_FANOUT, &argument)
        })?;
        state.joined += 1;
        Ok(true)
    }

    /// Has a socket that was held back receive.
    pub(super) fn let_go(socket: BorrowedFd<'_>) -> io::Result<()> {
        detach_filter(socket)
    }

    fn begin(&self, socket: BorrowedFd<'_>) -> io::Result<u16> {
        let argument = (FANOUT_CBPF | FLAG_IGNORE_OUTGOING | FLAG_UNIQUE_ID) << 16;
        set_option(socket, libc::SOL_PACKET, PACKET_FANOUT, &argument)?;
        let description = libc::sock_fprog {
            len: u16::try_from(self.group.program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?,
            filter: self.group.program.as_ptr().cast_mut(),
        };
        set_option(socket, libc::SOL_PACKET, PACKET_FANOUT_DATA, &description)?;
        let mut chosen = 0_u32;
        let mut length = size_of_val(&chosen) as libc::socklen_t;
        // SAFETY: `chosen` is writable and as long as stated.
        check(unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                PACKET_FANOUT,
                (&raw mut chosen).cast(),
                &raw mut length,
            )
        })?;
        Ok(chosen as u16)
    }
}

impl PartialEq for Fanout {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.group, &other.group) && self.member == other.member
    }
}

impl Eq for Fanout {}
