//! The one binary. See the library.

/// Large tables are looked up at random: with huge pages a lookup does not wait for the page table as well.
#[global_allocator]
static ALLOCATOR: packet_io::huge_pages::HugePages = packet_io::huge_pages::HugePages;

fn main() -> std::process::ExitCode {
    mainstay::run()
}
