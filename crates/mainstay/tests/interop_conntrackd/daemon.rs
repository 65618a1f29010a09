//! A conntrackd in a namespace of its own: its configuration, its start, its client.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use packet_io::namespace::Namespace;
use packet_io::signal::die_with_parent;

/// The ends of the link between the two, conntrackd's first.
pub(crate) const LINK: &str = "sync";
pub(crate) const V4: [&str; 2] = ["10.99.0.1", "10.99.0.2"];
pub(crate) const V6: [&str; 2] = ["fd99::1", "fd99::2"];
pub(crate) const PORT: u16 = 3780;
pub(crate) const GROUP_V4: &str = "225.0.0.50";
pub(crate) const GROUP_V6: &str = "ff15::50";

/// How the two talk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    V4,
    V6,
    MulticastV4,
    MulticastV6,
}

impl Transport {
    fn section(self) -> String {
        let addresses = match self {
            Self::V4 => format!("IPv4_address {}\nIPv4_Destination_Address {}\nPort {PORT}", V4[0], V4[1]),
            Self::V6 => format!("IPv6_address {}\nIPv6_Destination_Address {}\nPort {PORT}", V6[0], V6[1]),
            Self::MulticastV4 => format!("IPv4_address {GROUP_V4}\nGroup {PORT}\nIPv4_interface {}", V4[0]),
            Self::MulticastV6 => format!("IPv6_address {GROUP_V6}\nGroup {PORT}\nIPv6_interface {}", V6[0]),
        };
        let name = if matches!(self, Self::V4 | Self::V6) { "UDP" } else { "Multicast" };
        format!("{name} {{\n{addresses}\nInterface {LINK}\nChecksum on\n}}")
    }
}

/// Whether it keeps replicas in memory, or gives them to the kernel at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cache {
    External,
    Direct,
}

/// A running conntrackd. Dropping it ends it and removes its files.
pub(crate) struct Conntrackd {
    child: Option<Child>,
    directory: PathBuf,
}

impl Conntrackd {
    /// Writes its configuration and starts it.
    pub(crate) fn start(namespace: &Namespace, transport: Transport, cache: Cache) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("mainstay-interop-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let disables = if cache == Cache::Direct { "yes" } else { "no" };
        let file = |name: &str| directory.join(name).to_string_lossy().into_owned();
        let text = format!(
            "Sync {{\nMode FTFW {{\nDisableExternalCache {disables}\n}}\n{}\n\
             Options {{\nTCPWindowTracking On\nExpectationSync On\n}}\n}}\n\
             General {{\nSystemd no\nHashSize 32768\nHashLimit 1048576\nLogFile {}\nSyslog no\nLockFile {}\n\
             UNIX {{\nPath {}\n}}\nNetlinkBufferSize 4194304\nNetlinkBufferSizeMaxGrowth 8388608\n\
             Filter From Userspace {{\nAddress Ignore {{\nIPv4_address 127.0.0.1\nIPv4_address {}\nIPv4_address {}\n\
             IPv6_address ::1\nIPv6_address {}\nIPv6_address {}\n}}\n}}\n}}\n",
            transport.section(),
            file("log"),
            file("lock"),
            file("control"),
            V4[0],
            V4[1],
            V6[0],
            V6[1],
        );
        fs::write(directory.join("conf"), text).unwrap();
        let mut daemon = Self { child: None, directory };
        daemon.run(namespace);
        daemon
    }

    /// Starts it, as it was started before.
    pub(crate) fn run(&mut self, namespace: &Namespace) {
        // One that was killed leaves them behind, and the next one does not start over them.
        for name in ["lock", "control"] {
            let _ = fs::remove_file(self.directory.join(name));
        }
        let output = fs::File::create(self.directory.join("out")).unwrap();
        let mut command = Command::new("conntrackd");
        command.arg("-C").arg(self.directory.join("conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        die_with_parent(&mut command);
        self.child = Some(namespace.spawn_command(command).unwrap());
    }

    /// Kills it as a power cut would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().and_then(|()| child.wait()).unwrap();
        }
    }

    /// Has its client ask for something. `None` if it does not answer (yet).
    pub(crate) fn ask(&self, namespace: &Namespace, request: &str) -> Option<String> {
        let mut command = Command::new("conntrackd");
        command.arg("-C").arg(self.directory.join("conf")).args(request.split(' '));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let output = namespace.spawn_command(command).unwrap().wait_with_output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What it logged and printed, for the message of a failure.
    pub(crate) fn log(&self) -> String {
        ["log", "out"].map(|name| fs::read_to_string(self.directory.join(name)).unwrap_or_default()).concat()
    }
}

impl Drop for Conntrackd {
    fn drop(&mut self) {
        self.kill();
        // What cannot be removed is in the folder for such things.
        let _ = fs::remove_dir_all(&self.directory);
    }
}
