//! The present ends of a tunnel: their names, whether datagrams arrive both ways, and how large a datagram the path
//! takes.
//!
//! ```text
//!   one end                                    other end
//!      │── Alive {from a, to 0} ─────────────────►│ a is there
//!      │◄──────────────── Alive {from b, to a} ───│
//!   b is the other end                            │
//!      │── Alive {from b', to a'} … of several sizes, and Data ─►│ a is the other end
//! ```
//! A session's name is random and stands for one incarnation of a node as the tunnel's end. Only a sender that has the
//! present name of this end is taken for the other end. So no old datagram opens a session, and a host that does not
//! see the datagrams cannot join. A former other end never becomes it again.
//!
//! Keep-alives are of several sizes, and carry the size of the largest that was received: so datagrams are never larger
//! than what the path takes. Once that is known, most of them are short.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flow::Instant;
use flow::random::SplitMix64;

use super::datagram::{Datagram, Sessions};
use super::limits::{
    ALIVE_INTERVAL, DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN, FORMER_SESSIONS_MAX, HELLO_INTERVAL, RECEIVED_SIZE_FOR,
    RENAME_AFTER,
};

/// A size between the largest and the smallest: what most encapsulations leave of 1500 bytes.
const DATAGRAM_BYTES_MIDDLE: u16 = 1372;

/// One keep-alive of so many has the size of the path: one a second.
const CONFIRMED_EVERY: u32 = 5;
/// One of so many that confirm the path tries a larger size instead.
const LARGER_TRIED_EVERY: u32 = 3;

/// What a datagram said of the sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Received {
    /// It is not of the present session: its content is ignored.
    Nothing,
    /// It is of the present session.
    Known,
    /// It begins a session.
    Begun,
}

#[derive(Clone, Debug)]
pub(super) struct Session {
    random: SplitMix64,
    own: u32,
    peer: Option<u32>,
    former: VecDeque<u32>,
    /// The sender that is to be answered, though it is not the other end yet.
    answer_to: Option<u32>,
    alive_at: Instant,
    /// Keep-alives that follow at once, so that all sizes are tried.
    hurried: u8,
    /// Which size has its turn.
    turn: u8,
    /// Keep-alives since the path is known.
    steady: u32,
    received_at: Instant,
    /// Sizes of the largest datagrams received: lately, and before.
    received_bytes: [u16; 2],
    received_since: Instant,
    /// Size of the largest datagram that the other end has received, as it reports.
    path_bytes: u16,
    granules: u32,
    peer_granules: u32,
    /// The least that the path must take, and the most that is tried.
    datagram_bytes_min: u16,
    datagram_bytes_max: u16,
}

impl Session {
    /// `seal_bytes` are added to each datagram before it leaves: of the path's sizes there is so much less.
    pub(super) fn new(seed: u64, granules: u32, datagram_bytes_max: u16, seal_bytes: u16) -> Self {
        let datagram_bytes_max = datagram_bytes_max.clamp(DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX);
        let mut session = Self {
            random: SplitMix64::new(seed),
            own: 0,
            peer: None,
            former: VecDeque::new(),
            answer_to: None,
            alive_at: Instant::ZERO,
            hurried: 0,
            turn: 0,
            steady: 0,
            received_at: Instant::ZERO,
            received_bytes: [0; 2],
            received_since: Instant::ZERO,
            path_bytes: 0,
            granules,
            peer_granules: 0,
            datagram_bytes_min: DATAGRAM_BYTES_MIN - seal_bytes,
            datagram_bytes_max: datagram_bytes_max - seal_bytes,
        };
        session.restart(Instant::ZERO);
        session
    }

    /// This end begins a new incarnation.
    pub(super) fn restart(&mut self, now: Instant) {
        // Zero stands for no end.
        self.own = (self.random.next() >> 32) as u32 | 1;
        // The other end may be the same: its messages to the former name no longer count. So old datagrams do not reach
        // the new session, and a peer that a late hello made a former one is let in.
        self.peer = None;
        self.former.clear();
        (self.answer_to, self.alive_at, self.received_at) = (None, now, now);
        (self.received_bytes, self.received_since, self.path_bytes) = ([0; 2], now, 0);
    }

    fn remember(&mut self, former: u32) {
        if self.former.len() == FORMER_SESSIONS_MAX {
            self.former.pop_front();
        }
        self.former.push_back(former);
    }

    /// A datagram of so many bytes came.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        sessions: Sessions,
        datagram: &Datagram<'_>,
        length_bytes: usize,
    ) -> Received {
        let is_for_this = sessions.to == self.own;
        if !is_for_this || self.peer != Some(sessions.from) {
            let is_alive = matches!(datagram, Datagram::Alive { .. });
            let is_possible = sessions.from != 0 && !self.former.contains(&sessions.from);
            if !is_for_this || !is_alive || !is_possible {
                self.answer(now, sessions.from);
                return Received::Nothing;
            }
            if let Some(former) = self.peer.replace(sessions.from) {
                self.remember(former);
            }
            (self.received_bytes, self.received_since, self.path_bytes) = ([0; 2], now, 0);
            (self.hurried, self.turn, self.alive_at) = (3, 0, now);
            self.note(now, datagram, length_bytes);
            return Received::Begun;
        }
        self.note(now, datagram, length_bytes);
        Received::Known
    }

    fn note(&mut self, now: Instant, datagram: &Datagram<'_>, length_bytes: usize) {
        self.received_at = now;
        if now.saturating_since(self.received_since) > RECEIVED_SIZE_FOR {
            self.received_bytes = [0, self.received_bytes[0]];
            self.received_since = now;
        }
        let length_bytes = u16::try_from(length_bytes).unwrap_or(u16::MAX);
        if length_bytes > self.received_bytes[0] && length_bytes > self.received_bytes[1] {
            // The other end waits for that before it uses the path.
            self.hurried = self.hurried.max(1);
            self.alive_at = self.alive_at.min(now);
        }
        self.received_bytes[0] = self.received_bytes[0].max(length_bytes);
        if let Datagram::Alive { received_bytes, granules } = datagram {
            (self.path_bytes, self.peer_granules) = (*received_bytes, *granules);
        }
    }

    /// Sends this end's name to a peer that does not know it, but not more often than hellos are sent.
    fn answer(&mut self, now: Instant, from: u32) {
        if from != 0 && self.answer_to.is_none() {
            self.answer_to = Some(from);
            self.alive_at = self.alive_at.min(now + HELLO_INTERVAL / 5);
        }
    }

    pub(super) fn sessions(&self) -> Sessions {
        Sessions { from: self.own, to: self.peer.unwrap_or(0) }
    }

    /// Bytes that a datagram may have; None while the path is not known to take enough.
    pub(super) fn datagram_bytes(&self) -> Option<u16> {
        let bytes = self.path_bytes.min(self.datagram_bytes_max);
        (self.peer.is_some() && bytes >= self.datagram_bytes_min).then_some(bytes)
    }

    /// The size that the caches of both ends have, in granules.
    pub(super) fn granules(&self) -> u32 {
        self.granules.min(self.peer_granules)
    }

    pub(super) const fn received_at(&self) -> Instant {
        self.received_at
    }

    /// Time has passed. True if this end took another name because its former name is not answered.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        let is_unheard = now.saturating_since(self.received_at) >= RENAME_AFTER;
        if is_unheard {
            self.restart(now);
        }
        is_unheard
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        self.alive_at.min(self.received_at + RENAME_AFTER)
    }

    /// The size of the next keep-alive; 0: no padding. While the path is searched for, all sizes have their turn. A known path
    /// is confirmed once a second, and larger sizes are tried every [`LARGER_TRIED_EVERY`]th time.
    fn next_size(&mut self) -> u16 {
        let middle = DATAGRAM_BYTES_MIDDLE.min(self.datagram_bytes_max);
        let sizes = [self.datagram_bytes_min, self.datagram_bytes_max, middle];
        if self.hurried > 0 || self.datagram_bytes().is_none() {
            let size = sizes[usize::from(self.turn) % sizes.len()];
            self.turn = (self.turn + 1) % sizes.len() as u8;
            return size;
        }
        self.steady = self.steady.wrapping_add(1);
        if !self.steady.is_multiple_of(CONFIRMED_EVERY) {
            return 0;
        }
        let number = self.steady / CONFIRMED_EVERY;
        let larger = sizes.into_iter().filter(|size| *size > self.path_bytes);
        match number.is_multiple_of(LARGER_TRIED_EVERY) {
            // Where there are two larger sizes, they take turns.
            true if number.is_multiple_of(2 * LARGER_TRIED_EVERY) => larger.min(),
            true => larger.max(),
            false => None,
        }
        .unwrap_or_else(|| self.path_bytes.min(self.datagram_bytes_max))
    }

    /// Writes a keep-alive if one is due.
    pub(super) fn poll(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if self.alive_at > now {
            return false;
        }
        let size = usize::from(self.next_size());
        let to = self.answer_to.take().or(self.peer).unwrap_or(0);
        let received_bytes = self.received_bytes[0].max(self.received_bytes[1]);
        Datagram::Alive { received_bytes, granules: self.granules }.write(Sessions { from: self.own, to }, out);
        out.resize(size.max(out.len()), 0);
        self.hurried = self.hurried.saturating_sub(1);
        let is_open = self.datagram_bytes().is_some();
        let interval = if is_open { ALIVE_INTERVAL } else { HELLO_INTERVAL };
        self.alive_at = if self.hurried > 0 { now } else { now + interval };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIVE: Datagram<'static> = Datagram::Alive { received_bytes: 1472, granules: 1024 };

    /// Handles a keep-alive of `from` to the session's present name.
    fn handle_alive(session: &mut Session, now: Instant, from: u32) -> Received {
        let to = session.sessions().from;
        session.handle(now, Sessions { from, to }, &ALIVE, 1472)
    }

    #[test]
    fn the_late_hello_of_an_earlier_incarnation_shuts_no_peer_out_for_good() {
        let mut session = Session::new(1, 1024, 1472, 0);
        let at = Instant::from_millis;
        // The other end's node died twice in short order, and the second's datagram comes after the third's.
        let [first, second, third] = [11, 12, 13];
        assert_eq!(handle_alive(&mut session, at(1), first), Received::Begun);
        assert_eq!(handle_alive(&mut session, at(100), third), Received::Begun);
        assert_eq!(handle_alive(&mut session, at(101), second), Received::Begun);
        assert_eq!(
            handle_alive(&mut session, at(102), third),
            Received::Nothing,
            "what was the other end and is no more"
        );
        let renamed = at(101) + RENAME_AFTER;
        assert!(session.handle_timeout(renamed), "nothing more is received from the second");
        assert_eq!(handle_alive(&mut session, renamed, third), Received::Begun);
    }

    /// Two ends, and a path between them that takes datagrams of so many bytes.
    struct Path {
        ends: [Session; 2],
        now: Instant,
        takes_bytes: usize,
        large: usize,
        sent_bytes: usize,
    }

    impl Path {
        fn open() -> Self {
            let ends = [1, 2].map(|seed| Session::new(seed, 1024, 1472, 0));
            let mut path = Self { ends, now: Instant::from_millis(1), takes_bytes: 1500, large: 0, sent_bytes: 0 };
            path.run(1000);
            assert!(path.ends.iter().all(|end| end.datagram_bytes() == Some(1472)));
            (path.large, path.sent_bytes) = (0, 0);
            path
        }

        fn run(&mut self, ms: u64) {
            for _ in 0..ms {
                self.now = self.now + core::time::Duration::from_millis(1);
                let mut out = Vec::new();
                for from in 0..2 {
                    self.ends[from].handle_timeout(self.now);
                    while self.ends[from].poll(self.now, &mut out) {
                        self.large += usize::from(out.len() >= DATAGRAM_BYTES_MIN.into());
                        self.sent_bytes += out.len();
                        let (sessions, datagram) = Datagram::parse(&out).expect("it was just written");
                        if out.len() <= self.takes_bytes {
                            self.ends[1 - from].handle(self.now, sessions, &datagram, out.len());
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn an_idle_tunnel_sends_one_large_datagram_a_second_and_knows_its_path() {
        let mut path = Path::open();
        path.run(30_000);
        assert!(path.ends.iter().all(|end| end.datagram_bytes() == Some(1472)));
        assert!(path.large <= 2 * 31, "{} large datagrams of both ends in 30 s", path.large);
        assert!(path.sent_bytes < 2 * 30 * 2000, "{} bytes of both ends in 30 s", path.sent_bytes);
    }

    #[test]
    fn a_path_that_takes_less_and_later_more_is_found_out() {
        let mut path = Path::open();
        path.takes_bytes = 1400;
        path.run(20_000);
        assert!(path.ends.iter().all(|end| end.datagram_bytes() == Some(1372)), "{:?}", path.ends[0].datagram_bytes());
        path.takes_bytes = 1500;
        path.run(10_000);
        assert!(path.ends.iter().all(|end| end.datagram_bytes() == Some(1472)), "{:?}", path.ends[0].datagram_bytes());
    }
}
