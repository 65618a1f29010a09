//! A link as a child process: started, commanded and asked from benchmarks and tests.

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use packet_io::IoError;
use packet_io::namespace::Namespace;
use packet_io::netlink::Prefix;
use packet_io::signal::die_with_parent;
use packet_io::tun::DeviceKind;

use super::channel::Settings;
use super::report::{Answer, LinkReport};
use super::{BOTH, Direction};

/// What a link is to be.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkPlan {
    /// The program `mainstay`; `None`: the one that runs.
    pub program: Option<PathBuf>,
    /// Names of the devices, in the first namespace and in the second.
    pub interfaces: [String; 2],
    /// Their addresses.
    pub addresses: [Vec<Prefix>; 2],
    /// What it carries: IP packets, or frames, so that its ends can be ports of bridges.
    pub kind: DeviceKind,
    /// The largest packet, in bytes of IP packet.
    pub mtu_bytes: u32,
    /// Carry runs of segments as one packet, which is delayed, lost and doubled as one; the rate counts all its bytes. Bulk
    /// TCP then costs the machine a tenth.
    pub has_offload: bool,
    /// What chance is drawn from.
    pub seed: u64,
    /// Before a packet is due, look at the clock for so long instead of sleeping: dearer, and more precise.
    pub spin: Duration,
    /// From the first namespace to the second, and the other way.
    pub settings: [Settings; 2],
}

impl LinkPlan {
    /// A link that is the same in both directions: for IP packets of 1500 bytes, without addresses, its devices named `link`.
    #[must_use]
    pub fn symmetric(settings: Settings) -> Self {
        Self {
            program: None,
            interfaces: ["link".into(), "link".into()],
            addresses: [Vec::new(), Vec::new()],
            kind: DeviceKind::Ip,
            mtu_bytes: 1500,
            has_offload: false,
            seed: 1,
            spin: Duration::ZERO,
            settings: [settings; 2],
        }
    }
}

/// The reason why a link does not carry out a command.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The system does not give what it needs.
    #[error(transparent)]
    System(#[from] IoError),
    /// The program that runs does not know where it lies.
    #[error("the program of the link cannot be found: {0}")]
    Program(#[source] io::Error),
    /// The link's process ended or does not answer.
    #[error("the link's process does not answer ({0}); what it said is on standard error")]
    Silent(String),
    /// It refused a command.
    #[error("the link refused {command:?}: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// Its words.
        reason: String,
    },
}

/// A running link. It ends when this value is dropped, and when the thread that started it ends.
#[derive(Debug)]
pub struct Link {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Link {
    /// Starts a link between two namespaces. It carries packets when this returns.
    ///
    /// # Errors
    /// The program cannot be started, or it could not make the devices: what it said is on standard error.
    pub fn start(plan: &LinkPlan, ends: [&Namespace; 2]) -> Result<Self, LinkError> {
        let program = plan.program.clone().map_or_else(std::env::current_exe, Ok).map_err(LinkError::Program)?;
        let mut command = Command::new(program);
        command.args(["lab", "link"]);
        for (number, (side, namespace)) in ["from", "to"].into_iter().zip(ends).enumerate() {
            let path = namespace.pass_to(&mut command);
            command.arg(format!("--{side}")).arg(path);
            command.arg(format!("--{side}-interface")).arg(&plan.interfaces[number]);
            for address in &plan.addresses[number] {
                command.arg(format!("--{side}-address={address}"));
            }
        }
        command.arg(format!("--mtu={}", plan.mtu_bytes)).arg(format!("--seed={}", plan.seed));
        command.arg(format!("--spin={}us", plan.spin.as_micros()));
        command.args(plan.has_offload.then_some("--offload"));
        command.args((plan.kind == DeviceKind::Ethernet).then_some("--ethernet"));
        for direction in BOTH {
            command.arg(format!("{} {}", direction.name(), plan.settings[direction.source()]));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        die_with_parent(&mut command);
        let mut child = command.spawn().map_err(LinkError::Program)?;
        // Both were asked for above.
        let (Some(commands), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(LinkError::Silent("it has no pipes".into()));
        };
        let mut link = Self { child, commands, answers: BufReader::new(answers) };
        match link.receive()? {
            Answer::Ready => Ok(link),
            other => Err(LinkError::Silent(format!("it began with {other:?}"))),
        }
    }

    /// Number of the link's process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Has the link carry out a command line, see `mainstay lab link --help`. It is done when this returns.
    ///
    /// # Errors
    /// The link refuses, or is gone.
    pub fn command(&mut self, line: &str) -> Result<(), LinkError> {
        match self.ask(line)? {
            Answer::Done => Ok(()),
            Answer::Refused(reason) => Err(LinkError::Refused { command: line.into(), reason }),
            other => Err(LinkError::Silent(format!("to {line:?} it said {other:?}"))),
        }
    }

    /// Gives a direction other settings, for packets from now on.
    ///
    /// # Errors
    /// As [`Link::command`].
    pub fn set(&mut self, direction: Direction, settings: &Settings) -> Result<(), LinkError> {
        self.command(&format!("{} {settings}", direction.name()))
    }

    /// Cuts directions at once, for so long or until [`Link::restore`]; what is underway is lost.
    ///
    /// # Errors
    /// As [`Link::command`].
    pub fn interrupt(&mut self, directions: &[Direction], lasting: Option<Duration>) -> Result<(), LinkError> {
        let lasting = lasting.map(|lasting| format!(" for {}us", lasting.as_micros())).unwrap_or_default();
        directions.iter().try_for_each(|direction| self.command(&format!("{} cut{lasting}", direction.name())))
    }

    /// Has interrupted directions carry packets again.
    ///
    /// # Errors
    /// As [`Link::command`].
    pub fn restore(&mut self, directions: &[Direction]) -> Result<(), LinkError> {
        directions.iter().try_for_each(|direction| self.command(&format!("{} restore", direction.name())))
    }

    /// Counts anew from now on, lateness too: to be called when what is measured begins.
    ///
    /// # Errors
    /// As [`Link::command`].
    pub fn reset(&mut self) -> Result<(), LinkError> {
        self.command("reset")
    }

    /// How the link has been since it began or was reset.
    ///
    /// # Errors
    /// The link is gone.
    pub fn report(&mut self) -> Result<LinkReport, LinkError> {
        self.ask_for_report("report")
    }

    /// Ends the link and returns its report.
    ///
    /// # Errors
    /// The link is gone.
    pub fn finish(mut self) -> Result<LinkReport, LinkError> {
        self.ask_for_report("end")
    }

    fn ask_for_report(&mut self, line: &str) -> Result<LinkReport, LinkError> {
        match self.ask(line)? {
            Answer::Report(report) => Ok(*report),
            other => Err(LinkError::Silent(format!("to {line:?} it said {other:?}"))),
        }
    }

    fn ask(&mut self, line: &str) -> Result<Answer, LinkError> {
        let sent = self.commands.write_all(format!("{line}\n").as_bytes());
        sent.map_err(|error| LinkError::Silent(error.to_string()))?;
        self.receive()
    }

    fn receive(&mut self) -> Result<Answer, LinkError> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).map_err(|error| LinkError::Silent(error.to_string()))?;
        if read == 0 {
            return Err(LinkError::Silent("it ended".into()));
        }
        serde_json::from_str(&line).map_err(|error| LinkError::Silent(format!("it said {line:?}: {error}")))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A child that has ended already cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
