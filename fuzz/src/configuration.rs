//! Configuration files.

/// One file.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match config::parse("fuzz.toml", text) {
        Ok(checked) => {
            for warning in &checked.warnings {
                assert!(!warning.to_string().is_empty());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty(), "a refusal has a reason"),
    }
}
