//! Checks of single fields; each says which field is at fault, and what would be right.

use super::NAME_MAX;
use std::net::Ipv4Addr;

/// The field, and the reason.
pub(super) type Fallible = std::result::Result<(), (String, String)>;

pub(super) fn fail(field: impl Into<String>, reason: impl Into<String>) -> Fallible {
    Err((field.into(), reason.into()))
}

pub(super) fn list<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let names: Vec<String> = names.into_iter().map(|n| n.as_ref().to_string()).collect();
    if names.is_empty() { "none".to_string() } else { names.join(", ") }
}

pub(super) fn check_name(field: &str, name: &str) -> Fallible {
    let good = !name.is_empty()
        && name.len() <= NAME_MAX
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if good {
        return Ok(());
    }
    fail(
        field,
        format!(
            "\"{name}\" must be 1 to {NAME_MAX} letters, digits, '-' or '_' (it names interfaces and files)"
        ),
    )
}

pub(super) fn check_prefix(field: &str, text: &str) -> Fallible {
    let good = text.split_once('/').is_some_and(|(address, length)| {
        address.parse::<Ipv4Addr>().is_ok() && length.parse::<u8>().is_ok_and(|l| l <= 32)
    });
    if good {
        return Ok(());
    }
    fail(
        field,
        format!("\"{text}\" is not an IPv4 address with a prefix length, such as 10.0.1.1/30"),
    )
}

pub(super) fn check_command(field: &str, command: &[String]) -> Fallible {
    match command.first() {
        Some(program) if !program.is_empty() => Ok(()),
        _ => fail(
            field,
            "empty; it must be a program and its arguments, such as [\"ping\", \"-c1\", \"10.0.0.1\"]",
        ),
    }
}
