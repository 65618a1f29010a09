//! A running mainstay: its process, its files, and questions to it.

use std::fs::{self, OpenOptions};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use api::Status;
use control::client::Client;
use packet_io::namespace::Namespace;
use packet_io::signal::{self, Signal, die_with_parent};

/// The longest that a test waits for something to happen, on a machine that may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How often a condition is looked at.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Waits until `look` finds what it looks for; else fails with what it saw last.
pub(crate) fn wait_until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < deadline, "not in time: {what}; {seen}"),
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// As [`wait_until`], without more detail on what is missing.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    wait_until(what, || look().ok_or_else(String::new))
}

/// As [`until`], for a condition.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    until(what, || condition().then_some(()));
}

/// The program with these arguments, to be started.
pub(crate) fn mainstay(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
    command.args(arguments);
    command
}

/// A folder that is removed with the value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A new one, whose name contains `name`.
    pub(crate) fn new(name: &str) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let nth = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mainstay-{name}-{}-{nth}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    /// Makes a pre-shared key as an operator does.
    pub(crate) fn make_key(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        let made = mainstay(&["key", "--output"]).arg(&path).output();
        assert!(made.is_ok_and(|made| made.status.success()), "a key can be made");
        path
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running `mainstay gateway` or `mainstay sync`. It is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    /// Where its files are, and what they are called before the dot.
    files: PathBuf,
}

impl Program {
    /// Writes the configuration to `NAME.toml` in `folder`, with the control socket (`NAME.sock`) for the word CONTROL, and starts
    /// `mainstay COMMAND` with it in a namespace.
    pub(crate) fn start(namespace: &Namespace, folder: &Path, name: &str, command: &str, configuration: &str) -> Self {
        write_configuration(folder, name, configuration);
        Self::start_as_configured(namespace, folder, name, &[env!("CARGO_BIN_EXE_mainstay"), command])
    }

    /// As [`Program::start`], with the file that is there; `words` are the program, which may be one that runs others, and its
    /// arguments. The log is added to `NAME.log`.
    pub(crate) fn start_as_configured(namespace: &Namespace, folder: &Path, name: &str, words: &[&str]) -> Self {
        let files = folder.join(name);
        let log = OpenOptions::new().create(true).append(true).open(files.with_extension("log")).expect("a log file");
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg("--config").arg(files.with_extension("toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        die_with_parent(&mut command);
        let child = namespace.spawn_command(command).expect("the program can be started");
        Self { child, files }
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.files.with_extension("sock")
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.files.with_extension("log")).unwrap_or_default()
    }

    /// A connection to it; fails with its log if it does not answer.
    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.socket()).unwrap_or_else(|error| panic!("{error}: {}", self.log()))
    }

    /// Waits until it answers; fails with its log if it does not.
    pub(crate) fn wait_for_answer(&mut self) {
        wait_until("the program answers", || {
            if let Some(status) = self.has_ended() {
                panic!("it ended with {status}: {}", self.log());
            }
            Client::connect(&self.socket()).map(drop).map_err(|_| self.log())
        });
    }

    /// How it has ended, if it has.
    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is a child")
    }

    /// Its status; `None` when it does not answer.
    pub(crate) fn status(&self) -> Option<Status> {
        Client::connect(&self.socket()).ok()?.status().ok()
    }

    /// The node's role; empty when it does not answer.
    pub(crate) fn role(&self) -> String {
        self.status().map(|status| status.node.role.to_string()).unwrap_or_default()
    }

    /// Waits until the node has this role; fails with its log if it never has.
    pub(crate) fn wait_for_role(&self, role: &str) {
        wait_until(&format!("the node is {role}"), || {
            let now = self.role();
            if now == role { Ok(()) } else { Err(format!("{now:?}\n{}", self.log())) }
        });
    }

    /// Gives an order by the command of this name.
    pub(crate) fn order(&self, command: &str) {
        let done = mainstay(&[command, "--socket"]).arg(self.socket()).output().expect("the program can be run");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        signal::send(self.id(), signal).expect("it runs");
    }

    /// Kills it as a power cut would.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Ends it by SIGTERM, and waits until it has ended well; what it has logged.
    pub(crate) fn terminate(mut self) -> String {
        self.signal(Signal::Terminate);
        let status = until("the program ends", || self.has_ended());
        assert!(status.success(), "it ended with {status}: {}", self.log());
        self.log()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes `NAME.toml` in `folder`, with the control socket (`NAME.sock`) for the word CONTROL. Returns its path.
pub(crate) fn write_configuration(folder: &Path, name: &str, configuration: &str) -> PathBuf {
    let (path, socket) = (folder.join(name).with_extension("toml"), folder.join(name).with_extension("sock"));
    fs::write(&path, configuration.replace("CONTROL", &socket.to_string_lossy())).expect("a temporary file");
    path
}
