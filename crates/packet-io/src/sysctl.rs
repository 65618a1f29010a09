//! Kernel parameters under `/proc/sys`, of the calling thread's namespace.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::IoError;

fn path(name: &str) -> Result<PathBuf, IoError> {
    let sound = !name.is_empty() && name.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if sound { Ok(Path::new("/proc/sys").join(name)) } else { Err(IoError::Misuse(format!("no sysctl: \"{name}\""))) }
}

fn explain(error: std::io::Error, operation: String) -> IoError {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            IoError::NotPermitted { operation, capability: "CAP_NET_ADMIN and a writable /proc/sys" }
        }
        _ => IoError::from_io(error, operation),
    }
}

/// Sets a parameter, named by its path below `/proc/sys` (`net/ipv4/ip_forward`; slashes, because interface names may
/// contain dots).
///
/// # Errors
/// The parameter does not exist, the value is invalid, or permission is missing.
pub fn write(name: &str, value: &str) -> Result<(), IoError> {
    fs::write(path(name)?, value).map_err(|error| explain(error, format!("setting sysctl {name} to {value}")))
}

/// A parameter's value without the newline.
///
/// # Errors
/// The parameter does not exist, or permission is missing.
pub fn read(name: &str) -> Result<String, IoError> {
    let value = fs::read_to_string(path(name)?).map_err(|error| explain(error, format!("reading sysctl {name}")))?;
    Ok(value.trim_end().to_owned())
}

/// Silences IPv6 in a test network: no duplicate address detection (addresses are usable at once) and no router
/// solicitations, on existing and future links. It has no effect on a kernel without IPv6.
///
/// # Errors
/// Permission is missing.
pub fn quieten_ipv6() -> Result<(), IoError> {
    if !Path::new("/proc/sys/net/ipv6").exists() {
        return Ok(());
    }
    for scope in ["all", "default"] {
        write(&format!("net/ipv6/conf/{scope}/accept_dad"), "0")?;
        write(&format!("net/ipv6/conf/{scope}/dad_transmits"), "0")?;
        write(&format!("net/ipv6/conf/{scope}/router_solicitations"), "0")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_can_be_read_and_a_wrong_name_is_an_error() {
        assert!(!read("kernel/ostype").unwrap().is_empty());
        let error = read("net/ipv4/no_such_parameter").unwrap_err();
        assert!(error.to_string().contains("net/ipv4/no_such_parameter"), "{error}");
        assert!(matches!(read("../passwd"), Err(IoError::Misuse(_))));
    }
}
