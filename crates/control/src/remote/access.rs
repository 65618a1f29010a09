//! Who may ask what from afar.

use std::path::{Path, PathBuf};

use ring::digest::{Digest, SHA256, digest};

use api::Role;
use config::secret_file::{self, SecretFileError};

/// The shortest token that is taken, in characters: 128 bits as hexadecimal digits.
pub const TOKEN_CHARACTERS_MIN: usize = 32;
/// Tokens that a file may have.
pub const TOKENS_MAX: usize = 64;

/// Why a file of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The file itself.
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// A line. What it holds is not repeated.
    #[error("{}:{line}: {problem}: write NAME ROLE TOKEN, the role read or operate, the token of at least {TOKEN_CHARACTERS_MIN} characters", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which, from 1.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// There is nothing in it.
    #[error("{} has no token: write lines of NAME ROLE TOKEN (openssl rand -hex 32 makes a token)", .0.display())]
    Empty(PathBuf),
}

/// A token as it is kept: its digest, so that comparing takes the same time whatever was offered.
struct Token {
    name: String,
    role: Role,
    digest: Digest,
}

/// The tokens that are taken. Neither they nor what was offered is ever shown.
pub struct Tokens(Vec<Token>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

impl Tokens {
    /// Reads a file of lines `NAME ROLE TOKEN`; empty lines and those that begin with `#` are skipped.
    ///
    /// # Errors
    /// [`TokensError`].
    pub fn load(path: &Path) -> Result<Self, TokensError> {
        let contents = secret_file::read(path)?;
        let mut tokens: Vec<Token> = Vec::new();
        for (index, line) in contents.split(|byte| *byte == b'\n').enumerate() {
            let wrong = |problem| TokensError::Line { path: path.to_owned(), line: index + 1, problem };
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let token = parse(line).map_err(wrong)?;
            if tokens.iter().any(|known| known.name == token.name) {
                return Err(wrong("the name is there already"));
            }
            if tokens.len() == TOKENS_MAX {
                return Err(wrong("there are more tokens than a gateway keeps"));
            }
            tokens.push(token);
        }
        if tokens.is_empty() { Err(TokensError::Empty(path.to_owned())) } else { Ok(Self(tokens)) }
    }

    /// Whose token it is and what that one may do.
    #[must_use]
    pub fn find(&self, offered: &[u8]) -> Option<(&str, Role)> {
        let offered = digest(&SHA256, offered);
        // Of digests an attacker cannot choose the bytes: how long the comparison takes reveals nothing of the token.
        let token = self.0.iter().find(|token| token.digest.as_ref() == offered.as_ref())?;
        Some((&token.name, token.role))
    }
}

fn parse(line: &[u8]) -> Result<Token, &'static str> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (Some(name), Some(role), Some(token), None) = (words.next(), words.next(), words.next(), words.next()) else {
        return Err("the line has not three words");
    };
    let name = std::str::from_utf8(name).map_err(|_| "the name is not text")?.to_owned();
    let role = Role::ALL.iter().find(|(known, _)| known.as_bytes() == role).ok_or("there is no such role")?.1;
    if token.len() < TOKEN_CHARACTERS_MIN {
        return Err("the token is too short");
    }
    Ok(Token { name, role, digest: digest(&SHA256, token) })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn load(number: u32, contents: &str) -> Result<Tokens, TokensError> {
        let path = std::env::temp_dir().join(format!("mainstay-tokens-{}-{number}", std::process::id()));
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let loaded = Tokens::load(&path);
        fs::remove_file(path).unwrap();
        loaded
    }

    #[test]
    fn a_token_is_found_whole_and_nothing_like_it() {
        let other = TOKEN.replace('0', "f");
        let tokens = load(1, &format!("# people\n\nnoc read {TOKEN}\n  ops\toperate  {other} \n")).unwrap();
        assert_eq!(tokens.find(TOKEN.as_bytes()), Some(("noc", Role::Read)));
        assert_eq!(tokens.find(other.as_bytes()), Some(("ops", Role::Operate)));
        for wrong in ["", "noc", &TOKEN[1..], &format!("{TOKEN}0"), &TOKEN.to_uppercase()] {
            assert_eq!(tokens.find(wrong.as_bytes()), None);
        }
        assert!(!format!("{tokens:?}").contains("0123"));
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_without_its_secrets() {
        let cases = [
            ("noc read\n".to_owned(), "three words"),
            (format!("noc admin {TOKEN}\n"), "no such role"),
            ("noc read short\n".to_owned(), "too short"),
            (format!("noc read {TOKEN}\nnoc operate {TOKEN}\n"), "there already"),
            ("# nobody\n".to_owned(), "has no token"),
        ];
        for (number, (contents, expected)) in (2..).zip(cases) {
            let text = load(number, &contents).unwrap_err().to_string();
            assert!(text.contains(expected) && !text.contains(TOKEN) && !text.contains("short "), "{text}");
        }
    }
}
