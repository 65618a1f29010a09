//! Arguments of `mainstay replay`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};

/// How packets with wrong checksums are handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ChecksumsChoice {
    /// They are not admitted, and counted
    Verify,
    /// They are admitted
    Believe,
}

/// `mainstay replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Capture, pcap or pcapng
    #[arg(value_name = "CAPTURE")]
    pub capture: PathBuf,
    /// Configuration file of the gateway (docs/configuration.md); its peers are ignored
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// File that the frames sent by the gateway are written to (pcapng), with an interface for each port
    #[arg(long, short, alias = "write", value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Port of each interface of the capture, an interface by name or number [default: by name, by order, or by the packets'
    /// sources]
    #[arg(long, value_name = "INTERFACE=PORT", value_delimiter = ',')]
    pub port_map: Vec<PortMapping>,
    /// Accept TCP connections that began before the capture, as with tracking.loose = true
    #[arg(long)]
    pub loose: bool,
    /// Packets with wrong checksums, which captures on the sending host are full of: verify drops them, believe forwards them
    #[arg(long, value_name = "HOW", value_enum, default_value_t = ChecksumsChoice::Verify)]
    pub checksums: ChecksumsChoice,
    /// As `--checksums believe`.
    #[arg(long, hide = true, conflicts_with = "checksums")]
    pub ignore_checksums: bool,
    /// Play at most so many packets
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// An element of `--port-map`: an interface of the capture, and its port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortMapping {
    /// Its name in the capture, or its number from 0.
    pub interface: String,
    /// The port's name in the configuration.
    pub port: String,
}

impl FromStr for PortMapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((interface, port)) if !interface.is_empty() && !port.is_empty() => {
                Ok(Self { interface: interface.to_owned(), port: port.to_owned() })
            }
            _ => {
                Err("write INTERFACE=PORT, an interface of the capture by name or number and a port's name".to_owned())
            }
        }
    }
}
