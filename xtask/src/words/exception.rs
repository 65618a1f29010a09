//! Where a barred word is right: `xtask/words.toml`.

use serde::Deserialize;

/// One exception: all conditions that are given must hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    /// A file, or a folder.
    path: Option<String>,
    /// The entry of the glossary.
    word: Option<String>,
    /// What stands around the word.
    text: Option<String>,
    /// Why it is right there.
    reason: String,
}

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    exception: Vec<Exception>,
}

/// The exceptions, and how often each was needed.
pub(super) struct Exceptions(Vec<(Exception, usize)>);

impl Exceptions {
    /// Reads the file.
    ///
    /// # Errors
    /// It is no TOML of this form, or an exception has no reason or excuses everything.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let written: Written = toml::from_str(text).map_err(|error| error.to_string())?;
        for exception in &written.exception {
            if exception.reason.trim().is_empty() || exception.path.is_none() && exception.text.is_none() {
                return Err(format!("{exception:?} needs a reason, and a path or a text"));
            }
        }
        Ok(Self(written.exception.into_iter().map(|exception| (exception, 0)).collect()))
    }

    /// Whether an exception holds for a word of a file.
    pub(super) fn excuse(&mut self, path: &str, word: &str, context: &str) -> bool {
        let holding = self.0.iter_mut().find(|(exception, _)| exception.holds(path, word, context));
        holding.map(|(_, uses)| *uses += 1).is_some()
    }

    /// Exceptions that were not needed.
    pub(super) fn unused(&self) -> impl Iterator<Item = String> {
        let unused = self.0.iter().filter(|(_, uses)| *uses == 0);
        unused.map(|(exception, _)| format!("the exception {exception:?}"))
    }
}

impl Exception {
    fn holds(&self, path: &str, word: &str, context: &str) -> bool {
        self.path.as_deref().is_none_or(|prefix| super::is_below(path, prefix))
            && self.word.as_deref().is_none_or(|barred| barred == word)
            && self.text.as_deref().is_none_or(|text| context.contains(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_holds_where_all_its_conditions_do_and_is_used() {
        let text = "[[exception]]\npath = \"docs\"\nword = \"blorp\"\nreason = \"a name of others\"\n\
            [[exception]]\ntext = \"blorp x\"\nreason = \"the same\"\n";
        let mut exceptions = Exceptions::parse(text).expect("it is well-formed");
        assert!(exceptions.excuse("docs/a", "blorp", "a blorp"));
        assert!(!exceptions.excuse("src/a.rs", "blorp", "a blorp"));
        assert_eq!(exceptions.unused().count(), 1);
        assert!(exceptions.excuse("src/a.rs", "blorp", "a blorp x"));
        assert_eq!(exceptions.unused().count(), 0);
    }

    #[test]
    fn an_exception_needs_a_reason_and_a_path_or_text() {
        assert!(Exceptions::parse("[[exception]]\npath = \"docs\"\nreason = \"\"\n").is_err());
        assert!(Exceptions::parse("[[exception]]\nword = \"blorp\"\nreason = \"why\"\n").is_err());
    }
}
