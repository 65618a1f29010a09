//! A process that waits for the order to begin.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::process::{Child, Command, Output, Stdio};

use packet_io::IoError;
use packet_io::namespace::Namespace;
use packet_io::signal::die_with_parent;

/// A process that will run a program, so that the measurement's own size does not count when it starts. It ends when
/// its standard input is closed.
pub(crate) struct Prepared {
    child: Child,
}

impl Prepared {
    /// Makes it ready in the namespace.
    ///
    /// # Errors
    /// There is no shell, or the namespace cannot be entered.
    pub(crate) fn new<'a>(
        node: &Namespace,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = &'a OsStr>,
    ) -> Result<Self, IoError> {
        let mut command = Command::new("sh");
        command.args(["-c", "read -r _ && exec \"$0\" \"$@\""]).arg(program).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        die_with_parent(&mut command);
        Ok(Self { child: node.spawn_command(command)? })
    }

    /// Has it begin, and waits until it has ended.
    ///
    /// # Errors
    /// It is gone.
    pub(crate) fn run(mut self) -> io::Result<Output> {
        if let Some(mut stdin) = self.child.stdin.take() {
            stdin.write_all(b"\n")?;
        }
        self.child.wait_with_output()
    }

    /// It is not needed any more.
    pub(crate) fn discard(mut self) {
        drop(self.child.stdin.take());
        // There is no caller left for an error.
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prepared_program_begins_on_order() {
        let here = Namespace::current().unwrap();
        let prepared = Prepared::new(&here, "echo", ["it", "runs"].map(OsStr::new)).unwrap();
        let output = prepared.run().unwrap();
        assert!(output.status.success() && output.stdout == b"it runs\n", "{output:?}");
        Prepared::new(&here, "false", []).unwrap().discard();
    }
}
