//! The thread that applies changes of the members to the node.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use membership::Change;

use super::Members;
use crate::error::ProcessError;
use crate::gateway::reload::Operator;
use control::ControlSender;
use control::orders::{Operations, Order};

/// The longest wait: members are forgotten, and peers are looked at, at least this often.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Applies changes of the members as reloads apply changes of the configuration file. The thread ends with this value.
pub(in crate::gateway) struct Follower {
    members: Arc<Members>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// The node runs with the members that are known now.
    pub(in crate::gateway) fn start(
        members: Arc<Members>,
        operator: Arc<Operator>,
        sender: ControlSender,
    ) -> Result<Self, ProcessError> {
        let configuration = members.settings().configuration;
        let mut applier = Applier { members: Arc::clone(&members), operator, sender, configuration };
        let thread = thread::Builder::new().name("members".to_owned()).spawn(move || applier.run());
        Ok(Self { members, thread: Some(thread.map_err(ProcessError::GatewayThread)?) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.members.stop();
        // A panic of the thread has been reported on standard error.
        self.thread.take().map(JoinHandle::join);
    }
}

struct Applier {
    members: Arc<Members>,
    operator: Arc<Operator>,
    sender: ControlSender,
    /// The version of the configuration file by the settings, when the file was read last.
    configuration: u64,
}

impl Applier {
    fn run(&mut self) {
        while !self.members.is_stopping() {
            let changes = self.members.poll_changes();
            for (kind, text) in self.members.take_events() {
                // Where the data path is busy, the log has it.
                if self.sender.order(Order::Note(kind, text.clone())).is_err() {
                    tracing::warn!("{}: {text}", kind.describe());
                }
            }
            if !changes.is_empty() {
                self.apply(&changes);
                self.members.save();
            }
            // Also what a busy data path did not take, or what was refused, is tried again.
            self.operator.follow_members();
            self.members.wait(WAIT_MAX);
        }
    }

    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            let Change::Settings(settings) = change else { continue };
            let before = std::mem::replace(&mut self.configuration, settings.configuration);
            if before < settings.configuration {
                tracing::info!(
                    version = settings.configuration,
                    "the settings ask for the configuration to be read again"
                );
                if let Err(error) = self.operator.reload(false) {
                    tracing::error!("the configuration is not reloaded: {error}");
                }
            }
        }
    }
}
