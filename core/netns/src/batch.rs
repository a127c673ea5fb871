//! `ip -batch`: many commands by one process, and which of them failed.

use std::io::Write;
use std::process::{Command, Stdio};

/// Why a batch of `ip` commands stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{said}", command.as_ref().map(|command| format!("`ip {command}`: ")).unwrap_or_default())]
pub struct BatchError {
    /// The failed command's place in the batch, from 0; none if `ip` itself did not run.
    pub index: Option<usize>,
    /// That command.
    pub command: Option<String>,
    /// What `ip` said.
    pub said: String,
}

impl BatchError {
    /// `ip -batch` ends with `Command failed -:N`, N from 1.
    fn of<T: AsRef<str>>(lines: &[T], messages: &str) -> BatchError {
        let number = |line: &str| {
            line.strip_prefix("Command failed ")?.rsplit(':').next()?.trim().parse::<usize>().ok()
        };
        let index = messages.lines().find_map(number).and_then(|number| number.checked_sub(1));
        let command = index.and_then(|index| lines.get(index)).map(|line| line.as_ref().to_owned());
        let said: Vec<&str> =
            messages.lines().filter(|line| !line.starts_with("Command failed ")).collect();
        BatchError { index, command, said: said.join(" ") }
    }
}

/// Runs `ip` commands in the calling thread's namespace, up to the first that fails.
///
/// # Errors
/// `ip` does not start, or a command failed.
pub fn ip_batch<T: AsRef<str>>(lines: &[T]) -> Result<(), BatchError> {
    run(&mut Command::new("ip"), lines)
}

/// Runs `ip` commands in the namespace that `command` enters.
pub(crate) fn run<T: AsRef<str>>(command: &mut Command, lines: &[T]) -> Result<(), BatchError> {
    if lines.is_empty() {
        return Ok(());
    }
    let failed = |error: std::io::Error| BatchError {
        index: None,
        command: None,
        said: format!("running ip (Debian package iproute2): {error}"),
    };
    let mut child = command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        let text: String = lines.iter().map(|line| format!("{}\n", line.as_ref())).collect();
        // An `ip` that has stopped at an error reads no further: its messages say why.
        let _ = input.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    Err(BatchError::of(lines, &String::from_utf8_lossy(&output.stderr)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_command() {
        let lines = ["link set lo up", "route add 10.0.0.1/8 via 10.0.0.1 dev port0"];
        let error = BatchError::of(
            &lines,
            "Error: Invalid prefix for given prefix length.\nCommand failed -:2\n",
        );
        assert_eq!(error.index, Some(1));
        assert_eq!(
            error.to_string(),
            "`ip route add 10.0.0.1/8 via 10.0.0.1 dev port0`: \
             Error: Invalid prefix for given prefix length."
        );
        assert_eq!(BatchError::of(&lines, "no such thing").to_string(), "no such thing");
    }
}
