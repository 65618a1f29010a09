//! Makes the program of a release build smaller, where the linker and the C library are known to support it.

use std::env;
use std::process::Command;

/// The first glibc that loads packed relocations (DT_RELR).
const PACKED_RELOCATIONS_SINCE: (u32, u32) = (2, 36);

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RUSTFLAGS");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let is_release = variable("PROFILE") == "release";
    // The linker of this target is Rust's own LLD, unless someone chose another, which might not know these options.
    let is_linked_by_lld = variable("TARGET") == "x86_64-unknown-linux-gnu"
        && variable("RUSTC_LINKER").is_empty()
        && variable("CARGO_ENCODED_RUSTFLAGS").is_empty();
    if !is_release || !is_linked_by_lld {
        return;
    }
    // Functions with the same instructions become one: generic code has many.
    println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    if variable("HOST") == variable("TARGET") && glibc().is_some_and(|version| version >= PACKED_RELOCATIONS_SINCE) {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this host's C library, on which the program will run.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
