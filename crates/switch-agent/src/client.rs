//! The other end of the control socket, for commands.

use crate::control::{Reply, Request};
use crate::error::{Error, Result};
use crate::run_dir::{RunDirectory, running};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

/// The switch of this name; without a name, the only one that runs.
pub fn find(name: Option<&str>) -> Result<RunDirectory> {
    if let Some(name) = name {
        return RunDirectory::of(name);
    }
    match &running()[..] {
        [name] => RunDirectory::of(name),
        [] => Err(Error::Other("no switch is running; start one with `stateplane switch --config switch.toml`".into())),
        names => Err(Error::Other(format!("several switches run ({}); say which with --switch", names.join(", ")))),
    }
}

/// Asks a switch's agent. An [`Reply::Error`] comes back as an error.
pub fn ask(run: &RunDirectory, request: &Request) -> Result<Reply> {
    let socket = run.socket();
    let mut stream = UnixStream::connect(&socket).map_err(|error| {
        Error::Other(format!(
            "switch {} does not answer ({}: {error}); start it with `stateplane switch --config switch.toml`",
            run.name(),
            socket.display()
        ))
    })?;
    let failed = |error: std::io::Error| Error::path("talk over", &socket, error);
    let line = serde_json::to_string(request).map_err(|error| Error::Other(error.to_string()))? + "\n";
    stream.write_all(line.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(failed)?;
    match serde_json::from_str(&answer) {
        Ok(Reply::Error { error }) => Err(Error::Other(error)),
        Ok(reply) => Ok(reply),
        Err(error) => Err(Error::Other(format!("switch {}: an answer that cannot be read: {error}", run.name()))),
    }
}
