//! The last known list of members, over a restart. A line for each member, and one for the settings:
//!
//! ```text
//! member 1 name=gw-b replication=192.0.2.2:3780 detection=192.0.2.2:3784 state=active version=1780000000000
//! settings backups=2 configuration=7 version=3
//! ```

use std::fmt::Write;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use flow::NodeId;
use membership::{MEMBERS_MAX, Member, Membership, RECORD_BYTES_MAX, Settings};

/// The largest file that can be a list.
const FILE_BYTES_MAX: usize = (MEMBERS_MAX + 1) * (RECORD_BYTES_MAX + 16);

/// What a file has.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct State {
    pub(super) members: Vec<Member>,
    pub(super) settings: Settings,
}

/// The list, as a file has it.
pub(super) fn written(membership: &Membership) -> String {
    let mut text = String::new();
    for (member, _) in membership.peers() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "member {} {member}", member.id.0);
    }
    let _ = writeln!(text, "settings {}", membership.settings());
    text
}

/// Replaces the file as a whole: a crash leaves the old or the new one.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    fs::write(&temporary, text)?;
    fs::rename(&temporary, path)
}

/// Reads a file; `None`: there is none.
pub(super) fn read(path: &Path) -> io::Result<Option<State>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Ok(metadata) if metadata.len() > FILE_BYTES_MAX as u64 => {
            return Err(io::Error::new(ErrorKind::InvalidData, "it is larger than any list of members"));
        }
        _ => {}
    }
    Ok(Some(parse(&fs::read_to_string(path)?)))
}

/// What of the text can be read: a damaged line costs one member.
fn parse(text: &str) -> State {
    let mut state = State::default();
    for line in text.lines().take(MEMBERS_MAX + 1) {
        let Some((kind, rest)) = line.split_once(' ') else { continue };
        let member = || {
            let (id, record) = rest.split_once(' ')?;
            Member::parse(NodeId(id.parse().ok()?), record).ok()
        };
        match kind {
            "member" => state.members.extend(member()),
            "settings" => state.settings = Settings::parse(rest).unwrap_or_default(),
            _ => {}
        }
    }
    state
}

#[cfg(test)]
mod tests {
    use flow::Instant;
    use membership::Limits;

    use super::*;

    #[test]
    fn a_list_survives_writing_and_reading_and_damage_costs_a_line() {
        let mut membership = Membership::new(NodeId(0), Limits::default());
        let member = |id: u8| {
            let text = format!("name=n{id} replication=192.0.2.{id}:1 detection=192.0.2.{id}:2 version=3");
            Member::parse(NodeId(id), &text).expect("a record")
        };
        let now = Instant::ZERO;
        membership.handle_record(now, member(1)).expect("a member");
        membership.handle_record(now, member(2)).expect("a member");
        let settings = Settings { version: 3, backups: Some(2), edge_nodes: None, configuration: 7 };
        membership.restore_settings(settings);
        let text = written(&membership);
        assert_eq!(parse(&text), State { members: vec![member(1), member(2)], settings });
        let damaged = text.replacen("replication", "repl", 1);
        assert_eq!(parse(&damaged), State { members: vec![member(2)], settings });
        assert_eq!(parse("gibberish\n\nmember\nmember x y\nsettings ?"), State::default());
    }

    #[test]
    fn a_file_is_replaced_whole_and_its_absence_is_no_error() {
        let directory = std::env::temp_dir().join(format!("mainstay-members-{}", std::process::id()));
        let path = directory.join("below").join("members");
        assert_eq!(read(&path).expect("no error"), None);
        replace(&path, "settings version=1").expect("it is written");
        replace(&path, "settings version=2").expect("it is replaced");
        assert_eq!(read(&path).expect("it is read").map(|state| state.settings.version), Some(2));
        fs::remove_dir_all(directory).expect("it is removed");
    }
}
