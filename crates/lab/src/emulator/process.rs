//! `mainstay link`: the process that carries packets between two tunnel devices.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flow::Instant;
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::poller::{Poller, Token};
use packet_io::signal::{Signal, Signals};
use packet_io::tun::{DeviceKind, MESSAGE_BYTES_MAX, RawTunnel, wire_length_bytes};
use packet_io::{IoError, clock, random, usage};
use simulator::random::Random;

use super::args::LinkArgs;
use super::channel::{Channel, OUTAGES_MAX, Settings};
use super::command::Command;
use super::report::{Answer, DirectionReport, LatenessHistogram, LinkReport};
use super::tardiness::Tardiness;
use super::{BOTH, Direction};

/// Packets read from a device before others have their turn.
const BATCH_PACKETS_MAX: usize = 64;
/// Packets that the kernel keeps for the process when it gives them faster than they are read.
const DEVICE_QUEUE_PACKETS: u32 = 8192;
/// Buffers kept for packets to come.
const SPARE_BUFFERS_MAX: usize = 4096;
/// A buffer that has grown beyond this is not kept.
const SPARE_BUFFER_BYTES_MAX: usize = 4096;
/// The longest command line; what is longer is refused.
const LINE_BYTES_MAX: usize = 4096;
/// Where `ip netns` has namespaces by name.
const NAMED_NAMESPACES: &str = "/run/netns";

const COMMANDS: Token = Token(2);
const SIGNALS: Token = Token(3);

/// Why a link does not run.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// The system does not give what it needs.
    #[error(transparent)]
    System(#[from] IoError),
    /// A command of the command line makes no sense.
    #[error("{line:?}: {reason}")]
    Command {
        /// The command.
        line: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The output cannot be written.
    #[error("standard output cannot be written: {0}")]
    Output(#[source] io::Error),
}

/// Runs a link until the command to end.
///
/// # Errors
/// It cannot be made, or a command of the command line makes no sense.
pub fn run(args: &LinkArgs) -> Result<(), EmulatorError> {
    let signals = Signals::new()?;
    let mut emulator = Emulator::open(args)?;
    for line in &args.commands {
        let refuse = |reason| EmulatorError::Command { line: line.clone(), reason };
        let command = Command::parse(line).map_err(refuse)?;
        emulator.obey(&command).map_err(refuse)?;
    }
    print(&Answer::Ready)?;
    emulator.carry(&signals, args.spin)
}

/// A device at one end.
struct End {
    tunnel: RawTunnel,
    /// Packets that it would not take.
    refused: u64,
}

struct Emulator {
    ends: [End; 2],
    /// What comes from the first end and goes to the second, and the other way.
    channels: [Channel<Packet>; 2],
    seed: u64,
    is_preferred: bool,
    counting_since: Instant,
    lateness: LatenessHistogram,
    tardiness: Tardiness,
    spare: Vec<Vec<u8>>,
    message: Box<[u8]>,
}

/// A message of the device, and how long it can have waited there.
struct Packet {
    message: Vec<u8>,
    waited_ns: u64,
}

impl Emulator {
    fn open(args: &LinkArgs) -> Result<Self, EmulatorError> {
        clock::wait_precisely();
        let seed = args.seed.unwrap_or_else(random::number);
        let kind = if args.ethernet { DeviceKind::Ethernet } else { DeviceKind::Ip };
        let first = open_end(&args.from, &args.from_interface, &args.from_address, kind, args)?;
        let second = open_end(&args.to, &args.to_interface, &args.to_address, kind, args)?;
        let (now, mut of_directions) = (clock::now(), Random::new(seed));
        Ok(Self {
            ends: [first, second].map(|tunnel| End { tunnel, refused: 0 }),
            channels: BOTH.map(|_| Channel::new(Settings::default(), of_directions.next())),
            seed,
            is_preferred: usage::run_in_real_time() || usage::prefer_this_process(),
            counting_since: now,
            lateness: LatenessHistogram::default(),
            tardiness: Tardiness::new(now),
            spare: Vec::new(),
            message: vec![0; MESSAGE_BYTES_MAX].into_boxed_slice(),
        })
    }

    fn carry(&mut self, signals: &Signals, spin: Duration) -> Result<(), EmulatorError> {
        let poller = Poller::new()?;
        for (number, end) in self.ends.iter().enumerate() {
            poller.add(&end.tunnel, Token(number as u64))?;
        }
        poller.add(signals, SIGNALS)?;
        let mut commands = CommandLines::open(&poller);
        let mut ready = Vec::new();
        loop {
            let left_some = self.move_packets();
            let sleeps_until = self.channels.iter().filter_map(Channel::poll_timeout).min();
            let now = clock::now();
            let left = sleeps_until.map(|due| due.saturating_since(now));
            let timeout = if left_some { Some(Duration::ZERO) } else { left.map(|left| left.saturating_sub(spin)) };
            poller.wait(&mut ready, timeout)?;
            if timeout != Some(Duration::ZERO) {
                self.tardiness.note_woken(now, clock::now());
            }
            if ready.contains(&SIGNALS) && matches!(signals.receive(), Some(Signal::Terminate | Signal::Interrupt)) {
                return print(&Answer::Report(Box::new(self.report())));
            }
            if ready.contains(&COMMANDS) {
                for line in commands.read(&poller) {
                    if self.answer(&line)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Reads what waits and delivers what is due. True when more may wait.
    fn move_packets(&mut self) -> bool {
        let looked_at = clock::now();
        let mut left_some = false;
        for direction in BOTH {
            self.deliver();
            left_some |= self.receive(direction);
        }
        self.deliver();
        if !left_some {
            self.tardiness.note_looked(looked_at);
        }
        left_some
    }

    fn receive(&mut self, direction: Direction) -> bool {
        let Self { ends, channels, tardiness, spare, message, .. } = self;
        let source = direction.source();
        for _ in 0..BATCH_PACKETS_MAX {
            let Some(length) = ends[source].tunnel.receive(message) else { return false };
            let received = &message[..length];
            let now = clock::now();
            let waited_ns = tardiness.waited_ns(now);
            channels[source].handle_packet(now, wire_length_bytes(received), || {
                let mut message = spare.pop().unwrap_or_default();
                message.clear();
                message.extend_from_slice(received);
                Packet { message, waited_ns }
            });
        }
        true
    }

    fn deliver(&mut self) {
        let Self { ends, channels, lateness, spare, .. } = self;
        for direction in BOTH {
            let source = direction.source();
            let destination = &mut ends[1 - source];
            loop {
                let now = clock::now();
                let Some(arrival) = channels[source].poll_arrival(now) else { break };
                let Packet { message, waited_ns } = arrival.packet;
                lateness.note(now.as_nanos().saturating_sub(arrival.due.as_nanos()) + waited_ns);
                destination.refused += u64::from(destination.tunnel.send(&message).is_err());
                if spare.len() < SPARE_BUFFERS_MAX && message.capacity() <= SPARE_BUFFER_BYTES_MAX {
                    spare.push(message);
                }
            }
        }
    }

    /// Carries out a command line and answers. True when that was the last.
    fn answer(&mut self, line: &str) -> Result<bool, EmulatorError> {
        let command = Command::parse(line);
        let answer = match &command {
            Err(reason) => Answer::Refused(reason.clone()),
            Ok(Command::Report | Command::End) => Answer::Report(Box::new(self.report())),
            Ok(command) => self.obey(command).map_or_else(Answer::Refused, |()| Answer::Done),
        };
        print(&answer)?;
        Ok(command == Ok(Command::End))
    }

    /// Does what changes the link.
    fn obey(&mut self, command: &Command) -> Result<(), String> {
        let now = clock::now();
        match command {
            Command::Set(directions, changes) => {
                for direction in *directions {
                    let channel = &mut self.channels[direction.source()];
                    channel.set(changes.iter().fold(*channel.settings(), |settings, change| settings.with(*change)));
                }
            }
            Command::Outage { directions, after, lasting } => {
                for direction in *directions {
                    if !self.channels[direction.source()].interrupt(now, now + *after, *lasting) {
                        return Err(format!(
                            "{OUTAGES_MAX} outages are scheduled or in progress already: wait, or restore"
                        ));
                    }
                }
            }
            Command::Restore(directions) => {
                directions.iter().for_each(|direction| self.channels[direction.source()].restore(now));
            }
            Command::Reset => {
                self.counting_since = now;
                self.lateness = LatenessHistogram::default();
                self.channels.iter_mut().for_each(Channel::reset_counters);
                self.ends.iter_mut().for_each(|end| end.refused = 0);
            }
            Command::Report | Command::End => return Err("it has no place before the link runs".into()),
        }
        Ok(())
    }

    fn report(&self) -> LinkReport {
        let [forward, backward] = BOTH.map(|direction| {
            let channel = &self.channels[direction.source()];
            DirectionReport {
                counters: channel.counters(),
                underway: channel.packets_underway() as u64,
                queue_packets: channel.queue_packets(clock::now()),
                queue_p99_packets: channel.queue_p99_packets(),
                refused: self.ends[1 - direction.source()].refused,
            }
        });
        LinkReport {
            seconds: clock::now().saturating_since(self.counting_since).as_secs_f64(),
            seed: self.seed,
            is_preferred: self.is_preferred,
            lateness: self.lateness.summary(),
            forward,
            backward,
        }
    }
}

/// Makes the device of an end, with its addresses.
fn open_end(
    namespace: &Path,
    interface: &str,
    addresses: &[config::value::Prefix],
    kind: DeviceKind,
    args: &LinkArgs,
) -> Result<RawTunnel, IoError> {
    Namespace::open(&namespace_path(namespace))?.run(|| {
        let tunnel = RawTunnel::open(interface, kind, args.offload)?;
        let mut netlink = Netlink::open()?;
        netlink.set_transmit_queue(interface, DEVICE_QUEUE_PACKETS)?;
        netlink.set_mtu(interface, args.mtu)?;
        for address in addresses {
            netlink.add_address(interface, Prefix::new(address.addr(), address.prefix_len()))?;
        }
        Ok(tunnel)
    })?
}

/// A name is one of `ip netns`, whatever has a slash is a file.
fn namespace_path(namespace: &Path) -> PathBuf {
    if namespace.components().count() == 1 { Path::new(NAMED_NAMESPACES).join(namespace) } else { namespace.into() }
}

fn print(answer: &Answer) -> Result<(), EmulatorError> {
    let write = || -> io::Result<()> {
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, answer)?;
        out.write_all(b"\n")?;
        out.flush()
    };
    write().map_err(EmulatorError::Output)
}

/// Lines of standard input. It is read when there is something to read, so that nothing waits for it.
struct CommandLines {
    input: Option<File>,
    begun: Vec<u8>,
}

impl CommandLines {
    /// Without commands where standard input is nothing that can be waited for, such as `/dev/null`.
    fn open(poller: &Poller) -> Self {
        let input = io::stdin().as_fd().try_clone_to_owned().ok().map(File::from);
        let input = input.filter(|input| poller.add(input, COMMANDS).is_ok());
        Self { input, begun: Vec::new() }
    }

    /// The lines that have become whole. At its end, standard input is let go, and the link goes on without.
    fn read(&mut self, poller: &Poller) -> Vec<String> {
        let Some(input) = &mut self.input else { return Vec::new() };
        let mut bytes = [0; LINE_BYTES_MAX];
        let count = input.read(&mut bytes).unwrap_or_default();
        if count == 0 {
            // It was added, and is not yet closed.
            let _ = poller.remove(&*input);
            self.input = None;
            return Vec::new();
        }
        self.begun.extend_from_slice(&bytes[..count]);
        let Some(end) = self.begun.iter().rposition(|byte| *byte == b'\n') else {
            // Never a command: kept short, it is refused when its end comes.
            self.begun.truncate(LINE_BYTES_MAX);
            return Vec::new();
        };
        let rest = self.begun.split_off(end + 1);
        let whole = std::mem::replace(&mut self.begun, rest);
        String::from_utf8_lossy(&whole).lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
    }
}
