//! The one binary. See the library.

fn main() -> std::process::ExitCode {
    mainstay::run()
}
