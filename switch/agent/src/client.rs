//! The other end of the control socket, for commands.

use crate::control::{Reply, Request};
use crate::error::{Error, Result};
use crate::run_dir::{RunDirectory, running};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long [`ask`] waits: listing a table or object of a million entries takes seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// The switch of this name; without a name, the only one that runs.
pub fn find(name: Option<&str>) -> Result<RunDirectory> {
    if let Some(name) = name {
        return RunDirectory::of(name);
    }
    match &running()[..] {
        [name] => RunDirectory::of(name),
        [] => Err(Error::Other(
            "no switch is running; start one with `stateplane switch --config switch.toml`".into(),
        )),
        names => Err(Error::Other(format!(
            "several switches run ({}); choose one with --switch",
            names.join(", ")
        ))),
    }
}

/// Asks a switch's agent. An [`Reply::Error`] comes back as an error.
pub fn ask(run: &RunDirectory, request: &Request) -> Result<Reply> {
    ask_within(run, request, PATIENCE)
}

/// Asks a switch's agent, and waits so long at most for each part of the way: an agent that hangs
/// or is stopped keeps its socket open, and says nothing.
pub fn ask_within(run: &RunDirectory, request: &Request, timeout: Duration) -> Result<Reply> {
    match read(run, &exchange(run, request, timeout)?)? {
        Reply::Error { error } => Err(Error::Other(error)),
        reply => Ok(reply),
    }
}

/// Asks a system that has state in a switch's object; `request` has its name in `op`.
pub fn ask_system<R: DeserializeOwned>(run: &RunDirectory, request: &impl Serialize) -> Result<R> {
    let answer = exchange(run, request, PATIENCE)?;
    if let Ok(Reply::Error { error }) = serde_json::from_str(&answer) {
        return Err(Error::Other(error));
    }
    read(run, &answer)
}

fn read<R: DeserializeOwned>(run: &RunDirectory, answer: &str) -> Result<R> {
    serde_json::from_str(answer).map_err(|error| {
        Error::Other(format!("switch {}: an answer that cannot be read: {error}", run.name()))
    })
}

/// Sends a request; the line that comes back.
fn exchange(run: &RunDirectory, request: &impl Serialize, timeout: Duration) -> Result<String> {
    let path = run.socket();
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Other(format!(
            "switch {}: no answer within {} ms: its agent hangs or is stopped (its program on the ports goes on forwarding); see its log, or end and start it again",
            run.name(),
            timeout.as_millis()
        )),
        _ => Error::path("talk over", &path, error),
    };
    let mut stream = connected(&path).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => failed(error),
        ErrorKind::PermissionDenied => Error::Other(format!(
            "switch {}: {}: permission denied: run as root (sudo)",
            run.name(),
            path.display()
        )),
        _ => Error::Other(format!(
            "switch {} does not answer ({}: {error}): {}",
            run.name(),
            path.display(),
            remedy(run)
        )),
    })?;
    // A time of zero would mean for ever.
    let patience = Some(timeout.max(Duration::from_millis(1)));
    stream
        .set_read_timeout(patience)
        .and_then(|()| stream.set_write_timeout(patience))
        .map_err(failed)?;
    let line =
        serde_json::to_string(request).map_err(|error| Error::Other(error.to_string()))? + "\n";
    stream.write_all(line.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(failed)?;
    Ok(answer)
}

/// What to do about a switch that nobody answers for.
fn remedy(run: &RunDirectory) -> String {
    if run.path().join("bpf").is_dir() {
        return "no agent runs. Its program on the ports goes on forwarding, but nothing is sent again \
                and leases end; start its agent again, or take the program off with \
                `stateplane switch detach`"
            .to_owned();
    }
    let running = match running() {
        names if names.is_empty() => "none".to_owned(),
        names => names.join(", "),
    };
    format!("start it with `stateplane switch --config switch.toml`; switches that run: {running}")
}

/// A connection to a control socket. Never waits: whoever listens and has stopped accepting lets
/// connections queue up, and the one that the queue has no room for would wait for ever; it fails
/// with [`ErrorKind::WouldBlock`] instead.
pub(crate) fn connected(path: &Path) -> std::io::Result<UnixStream> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}
