//! Arguments of `mainstay replay`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

/// `mainstay replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Capture, pcap or pcapng
    #[arg(value_name = "CAPTURE")]
    pub capture: PathBuf,
    /// Configuration file of the gateway (docs/configuration.md); its peers are left out
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Write what the gateway sends to a pcapng file, with an interface for each of its ports
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Ports that interfaces of the capture stand for, an interface by name or number [default: by name, by order, or by
    /// the packets' sources]
    #[arg(long, value_name = "INTERFACE=PORT", value_delimiter = ',')]
    pub port_map: Vec<PortMapping>,
    /// Pick TCP connections up in the middle, whatever tracking.loose says
    #[arg(long)]
    pub loose: bool,
    /// Believe checksums, which are unfinished in captures from the sending host
    #[arg(long)]
    pub ignore_checksums: bool,
    /// At most so many packets
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// An element of `--port-map`: an interface of the capture, and the port that it stands for.
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
