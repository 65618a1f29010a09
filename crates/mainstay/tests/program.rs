//! The program as an operator runs it: what it prints, where, and with which status it ends.

use std::path::Path;
use std::process::{Command, Output};

fn mainstay(arguments: &[&str]) -> Output {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the program can be run")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it is text")
}

#[test]
fn a_right_configuration_is_summed_up() {
    let output = mainstay(&["gateway", "--config", "examples/active.toml", "--check"]);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(
        text(&output.stdout),
        "examples/active.toml: right. Node 0 of 2: 2 ports, 2 routes, 3 firewall rules, 3 translations, 1 peer.\n"
    );
    assert!(output.status.success());
}

#[test]
fn a_wrong_configuration_is_told_on_standard_error() {
    let output = mainstay(&["gateway", "--config", "Cargo.toml", "--check"]);
    assert_eq!(text(&output.stdout), "");
    let error = text(&output.stderr);
    assert!(error.starts_with("Cargo.toml:") && error.contains(": syntax: unknown field `"), "{error}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn asking_a_gateway_that_is_not_there_ends_with_one_sentence() {
    for command in ["status", "flows"] {
        let output = mainstay(&[command, "--socket", "/nonexistent/socket", "--json"]);
        assert_eq!(text(&output.stdout), "");
        assert_eq!(
            text(&output.stderr),
            "no gateway answers at /nonexistent/socket: is it running? (mainstay gateway --config …)\n"
        );
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn a_mistyped_command_ends_with_status_2() {
    assert_eq!(mainstay(&["gatewya"]).status.code(), Some(2));
}
