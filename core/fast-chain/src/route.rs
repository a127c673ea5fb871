//! Lets the program look up routes.

use crate::program::LoadError;
use std::fs;

/// The program asks for routes as the loopback interface, as the host itself does, and the kernel
/// answers only for interfaces that forward. From loopback nothing else is forwarded.
const SETTING: &str = "/proc/sys/net/ipv4/conf/lo/forwarding";

pub(crate) fn let_routes_be_looked_up() -> Result<(), LoadError> {
    let is_on = fs::read_to_string(SETTING).is_ok_and(|text| text.trim() == "1");
    if is_on {
        return Ok(());
    }
    fs::write(SETTING, "1").map_err(|source| LoadError::Setting { setting: SETTING, source })
}
