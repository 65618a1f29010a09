//! `mainstay link`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use config::value::{Prefix, parse_duration, parse_prefix};

/// Bytes of a packet that every link carries (RFC 8200 section 5 asks for more than RFC 791 does), and the most.
const MTU_BYTES: std::ops::RangeInclusive<i64> = 1280..=65_535;

/// `mainstay link`.
#[derive(Debug, Args)]
#[command(after_help = "\
Commands, as arguments and, while it runs, as lines on standard input; each line is answered by a line of JSON:
  [forward | backward] NAME VALUE ...             delay 25ms  jitter 1ms  rate 100mbit  queue 1000  queue-bytes 90000
                                                  loss 0.01  duplicate 0.001  reorder 0.01  hold 5ms
  [forward | backward] cut [in TIME] [for TIME]   nothing passes, and what is underway is lost
  [forward | backward] restore                    what has been cut passes again
  report                                          what was carried, and how late
  reset                                           counts anew
  end                                             a last report, and ends (as SIGTERM and SIGINT do)")]
pub struct LinkArgs {
    /// Network namespace of the first end: a name of `ip netns`, or a file such as /proc/PID/ns/net
    #[arg(long, value_name = "NAMESPACE")]
    pub from: PathBuf,
    /// Network namespace of the second end
    #[arg(long, value_name = "NAMESPACE")]
    pub to: PathBuf,
    /// Name of the device at the first end
    #[arg(long, value_name = "NAME", default_value = "link")]
    pub from_interface: String,
    /// Name of the device at the second end
    #[arg(long, value_name = "NAME", default_value = "link")]
    pub to_interface: String,
    /// Address of the device at the first end; can be repeated
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    pub from_address: Vec<Prefix>,
    /// Address of the device at the second end; can be repeated
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    pub to_address: Vec<Prefix>,
    /// Carry Ethernet frames instead of IP packets, so that the ends can be ports of bridges
    #[arg(long)]
    pub ethernet: bool,
    /// The largest packet, in bytes of IP packet
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(MTU_BYTES))]
    pub mtu: u32,
    /// Carry runs of segments as one packet, which is delayed, lost and doubled as one
    #[arg(long)]
    pub offload: bool,
    /// Seed of the random numbers [default: another each time, shown in the report]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Look at the clock for so long before a packet is due instead of sleeping
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = parse_duration)]
    pub spin: Duration,
    /// Commands obeyed before packets are carried, one an argument
    #[arg(value_name = "COMMAND")]
    pub commands: Vec<String>,
}
