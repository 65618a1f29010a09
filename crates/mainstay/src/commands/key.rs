//! `mainstay key`: makes a pre-shared key for the channel between nodes.

use config::key_file::{draw, write};

use super::CommandError;
use crate::cli::KeyArgs;

/// Writes a key drawn from the system's generator to a file that only its owner may read, and prints the key's name.
///
/// # Errors
/// The file is there already, or cannot be written.
pub fn run(args: &KeyArgs) -> Result<(), CommandError> {
    let key = draw();
    let text = key.to_text();
    if args.output.as_os_str() == "-" {
        return Ok(console::print(&text)?);
    }
    write(&args.output, &key)?;
    Ok(console::print(&format!("{}: pre-shared key {}\n", args.output.display(), key.id()))?)
}
