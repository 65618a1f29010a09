//! What the workers of a gateway send each other: messages, events and frames.
//!
//! Every worker has a mailbox that the others put into and that only it takes from. Messages are taken before each batch of
//! packets, so that a connection is known before its packets. Frames are taken between batches; one that finds no room is
//! dropped, as at any full queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use cluster::node::{Node, WorkerMessage};
use cluster::pipeline::{HandedFrame, Place};
use flow::{BATCH_FRAMES_MAX, DropReason, Instant, WorkerId};
use packet_io::IoError;
use packet_io::poller::Waker;

use api::EventKind;

/// Messages that wait in a mailbox. One that finds no room waits with its sender.
const MESSAGES_MAX: usize = 4096;
/// Frames that wait in a mailbox; further ones are dropped. The longest take 64 KB each.
const FRAMES_MAX: usize = 512;
/// Batches of frames taken before the ports have their turn.
const BATCHES_PER_TURN_MAX: usize = 4;

/// Something in a mailbox beside frames.
pub(super) enum Message {
    /// From a worker's node to another's.
    Worker(WorkerMessage),
    /// Something that an operator wants to know of, for the lead to remember.
    Event(Instant, EventKind, String),
}

/// Wakes a worker, once for however many things were put into its mailbox since it last looked.
#[derive(Debug)]
struct Bell {
    waker: Waker,
    is_rung: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        if !self.is_rung.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    /// To be called before looking into the mailbox: whatever is put in afterwards rings again.
    fn answer(&self) {
        self.waker.clear();
        self.is_rung.swap(false, Ordering::AcqRel);
    }
}

/// Where others put things for one worker.
#[derive(Clone)]
struct Slot {
    messages: SyncSender<(WorkerId, Message)>,
    frames: SyncSender<HandedFrame>,
    bell: Arc<Bell>,
}

/// A worker's mailbox, and the slots of the others'.
pub(super) struct Post {
    worker: WorkerId,
    slots: Vec<Slot>,
    messages: Receiver<(WorkerId, Message)>,
    frames: Receiver<HandedFrame>,
    bell: Arc<Bell>,
    /// A message that found no room. It is tried before any other: messages must not overtake each other.
    waiting: Option<(WorkerId, Message)>,
    /// Frames that were taken and are being handled.
    taken: Vec<HandedFrame>,
    stopping: Arc<AtomicBool>,
    /// Whose loop has turned since the lead last looked.
    turned: Arc<[AtomicBool]>,
}

impl Post {
    /// Mailboxes for so many workers; none for one alone.
    pub(super) fn for_workers(workers: u8) -> Result<Vec<Self>, IoError> {
        if workers == 1 {
            return Ok(Vec::new());
        }
        let mut slots = Vec::new();
        let mut boxes = Vec::new();
        for _ in 0..workers {
            let bell = Arc::new(Bell { waker: Waker::new()?, is_rung: AtomicBool::new(false) });
            let (messages, taken_messages) = sync_channel(MESSAGES_MAX);
            let (frames, taken_frames) = sync_channel(FRAMES_MAX);
            slots.push(Slot { messages, frames, bell: Arc::clone(&bell) });
            boxes.push((taken_messages, taken_frames, bell));
        }
        let stopping = Arc::new(AtomicBool::new(false));
        let turned: Arc<[AtomicBool]> = (0..workers).map(|_| AtomicBool::new(false)).collect();
        let post = |(worker, (messages, frames, bell))| Self {
            worker,
            slots: slots.clone(),
            messages,
            frames,
            bell,
            waiting: None,
            taken: Vec::with_capacity(BATCH_FRAMES_MAX),
            stopping: Arc::clone(&stopping),
            turned: Arc::clone(&turned),
        };
        Ok((0..workers).map(WorkerId).zip(boxes).map(post).collect())
    }

    /// What becomes readable when something is in the mailbox.
    pub(super) fn bell(&self) -> &Waker {
        &self.bell.waker
    }

    /// This worker's loop has turned once more.
    pub(super) fn note_turn(&self) {
        let turned = &self.turned[self.worker.index()];
        // Read first: the line stays with all workers while the lead does not ask.
        if !turned.load(Ordering::Relaxed) {
            turned.store(true, Ordering::Relaxed);
        }
    }

    /// The loops of all workers have turned since this was last true.
    pub(super) fn have_all_turned(&self) -> bool {
        let all = self.turned.iter().all(|turned| turned.load(Ordering::Relaxed));
        if all {
            self.turned.iter().for_each(|turned| turned.store(false, Ordering::Relaxed));
        }
        all
    }

    /// Ends all workers.
    pub(super) fn stop_all(&self) {
        self.stopping.store(true, Ordering::Release);
        self.slots.iter().for_each(|slot| slot.bell.ring());
    }

    /// All workers are to end.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Puts what the node has for other workers into their mailboxes. To be called before the frames leave that were handled
    /// last.
    pub(super) fn deliver(&mut self, node: &mut Node) {
        while let Some(frame) = node.poll_handed_over() {
            let Some(slot) = self.slots.get(frame.to.index()) else { continue };
            match slot.frames.try_send(frame) {
                Ok(()) => slot.bell.ring(),
                Err(_) => node.pipeline_mut().count_drop(DropReason::MailboxFull),
            }
        }
        while let Some((to, message)) = self
            .waiting
            .take()
            .or_else(|| node.poll_worker_message().map(|(to, message)| (to, Message::Worker(message))))
        {
            if !self.put(to, message) {
                return;
            }
        }
    }

    /// Sends the lead worker an event. An event that finds no room is lost; it has been logged.
    pub(super) fn send_event_to_lead(&self, at: Instant, kind: EventKind, detail: String) {
        let lead = &self.slots[WorkerId::LEAD.index()];
        if lead.messages.try_send((self.worker, Message::Event(at, kind, detail))).is_ok() {
            lead.bell.ring();
        }
    }

    fn put(&mut self, to: WorkerId, message: Message) -> bool {
        let Some(slot) = self.slots.get(to.index()) else { return true };
        match slot.messages.try_send((self.worker, message)) {
            Ok(()) => {
                slot.bell.ring();
                true
            }
            Err(TrySendError::Full((_, message))) => {
                self.waiting = Some((to, message));
                false
            }
            // The worker has ended, and all are about to.
            Err(TrySendError::Disconnected(_)) => true,
        }
    }

    /// To be called when the bell has rung, before anything is taken.
    pub(super) fn answer_bell(&self) {
        self.bell.answer();
    }

    /// Hands the messages that are there to the node, and the events among them to `note_event`.
    pub(super) fn take_messages(
        &mut self,
        now: Instant,
        node: &mut Node,
        mut note_event: impl FnMut(Instant, EventKind, &str),
    ) {
        for (from, message) in self.messages.try_iter().take(MESSAGES_MAX) {
            match message {
                Message::Worker(message) => node.handle_worker_message(now, from, message),
                Message::Event(at, kind, detail) => note_event(at, kind, &detail),
            }
        }
    }

    /// Hands the frames that are there to `handle`, a batch at a time. Rings for itself when there are more.
    pub(super) fn take_frames<E>(
        &mut self,
        mut handle: impl FnMut(&mut flow::PacketBatch<'_>, &mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        for _ in 0..BATCHES_PER_TURN_MAX {
            let mut taken = std::mem::take(&mut self.taken);
            taken.extend(self.frames.try_iter().take(BATCH_FRAMES_MAX));
            let is_full = taken.len() == BATCH_FRAMES_MAX;
            let mut batch: flow::PacketBatch<'_> = taken.iter_mut().map(HandedFrame::frame).collect();
            let result = if batch.is_empty() { Ok(()) } else { handle(&mut batch, self) };
            drop(batch);
            taken.clear();
            self.taken = taken;
            result?;
            if !is_full {
                return Ok(());
            }
        }
        self.bell.ring();
        Ok(())
    }
}

/// Which worker, and how packets are divided among them.
pub(super) fn place(worker: u8, workers: u8) -> Place {
    let steering = flow::Steering::new(workers).unwrap_or(flow::Steering::ALONE);
    Place { worker: WorkerId(worker), steering }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use packet_io::poller::{Poller, Token};

    use super::*;

    #[test]
    fn a_worker_alone_has_no_mailbox() {
        assert!(Post::for_workers(1).unwrap().is_empty());
    }

    #[test]
    fn many_messages_ring_once_and_one_after_the_answer_rings_once_more() {
        let posts = Post::for_workers(2).unwrap();
        let poller = Poller::new().unwrap();
        poller.add(posts[0].bell(), Token(0)).unwrap();
        let mut ready = Vec::new();
        let mut is_ringing = || {
            poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
            !ready.is_empty()
        };
        assert!(!is_ringing());
        for _ in 0..3 {
            posts[1].send_event_to_lead(Instant::ZERO, EventKind::ReplicationUp, "node 1".into());
        }
        assert!(is_ringing());
        posts[0].answer_bell();
        assert!(!is_ringing());
        assert_eq!(posts[0].messages.try_iter().count(), 3);
        posts[1].send_event_to_lead(Instant::ZERO, EventKind::ReplicationUp, "node 1".into());
        assert!(is_ringing());
    }

    #[test]
    fn a_full_mailbox_takes_no_more_and_its_sender_goes_on() {
        let posts = Post::for_workers(2).unwrap();
        for _ in 0..MESSAGES_MAX + 10 {
            posts[1].send_event_to_lead(Instant::ZERO, EventKind::Warning, String::new());
        }
        assert_eq!(posts[0].messages.try_iter().count(), MESSAGES_MAX);
    }

    #[test]
    fn a_worker_whose_loop_hangs_is_missed() {
        let posts = Post::for_workers(2).unwrap();
        posts[0].note_turn();
        assert!(!posts[0].have_all_turned(), "worker 1 has not turned");
        posts[1].note_turn();
        assert!(posts[0].have_all_turned());
        posts[0].note_turn();
        assert!(!posts[0].have_all_turned(), "not since");
    }

    #[test]
    fn stopping_one_stops_all() {
        let posts = Post::for_workers(3).unwrap();
        posts[1].stop_all();
        assert!(posts.iter().all(Post::is_stopping));
    }
}
