//! The network around a case: a network namespace that lives as long as a thread.

use crate::setup::{Setup, Way};
use nix::sched::{CloneFlags, unshare};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Why the network is not as the case wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkError {
    /// The STF line; 0: none is at fault.
    pub line: u32,
    /// What is wrong.
    pub reason: String,
}

fn failed(line: u32, reason: String) -> NetworkError {
    NetworkError { line, reason }
}

/// The link of a P4 port.
pub(crate) fn link_name(port: u32) -> String {
    format!("port{port}")
}

/// Runs `body` in a fresh network namespace with the setup's links, neighbours and routes, on a
/// thread of its own; the kernel removes the namespace when the thread has ended. BPF_PROG_RUN and
/// writes to device maps take their network from the calling thread, so all of that belongs into
/// `body`.
pub(crate) fn inside<T: Send>(
    setup: &Setup,
    body: impl FnOnce() -> T + Send,
) -> Result<T, NetworkError> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|error| {
                failed(0, format!("making a network namespace: {error}; that needs root"))
            })?;
            build(setup)?;
            Ok(body())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Makes the calling thread's network.
fn build(setup: &Setup) -> Result<(), NetworkError> {
    // Before there are links: they inherit it. `lo` too must forward, for it is where test packets
    // come from.
    for (path, needed) in
        [("/proc/sys/net/ipv4/ip_forward", true), ("/proc/sys/net/ipv6/conf/all/forwarding", false)]
    {
        if needed || Path::new(path).exists() {
            std::fs::write(path, "1").map_err(|error| failed(0, format!("{path}: {error}")))?;
        }
    }
    let mut batch = Batch::default();
    batch.line(0, "link set lo up".to_owned());
    links(setup, &mut batch);
    for (number, neighbor) in &setup.neighbors {
        let (address, mac, link) = (neighbor.address, neighbor.mac, link_name(neighbor.port));
        batch.line(
            *number,
            format!("neighbor replace {address} lladdr {mac} dev {link} nud permanent"),
        );
    }
    for (number, route) in &setup.routes {
        let prefix = route.prefix;
        batch.line(
            *number,
            match &route.way {
                Way::Via { gateway, port } => {
                    format!("route add {prefix} via {gateway} dev {}", link_name(*port))
                }
                Way::Nowhere(kind) => format!("route add {kind} {prefix}"),
            },
        );
    }
    batch.run()
}

/// veth pairs, not dummy links: XDP on Linux hosts needs veth anyway, while not every kernel has
/// dummy. Nothing is ever sent over them.
fn links(setup: &Setup, batch: &mut Batch) {
    for (number, link) in &setup.ports {
        let (name, mac, mtu, peer) =
            (link_name(link.port), link.mac, link.mtu, format!("peer{}", link.port));
        batch.line(
            *number,
            format!("link add {name} address {mac} mtu {mtu} type veth peer name {peer}"),
        );
        batch.line(*number, format!("link set {peer} up"));
        batch.line(*number, format!("link set {name} up"));
        for address in &link.addresses {
            // Duplicate address detection would make an IPv6 address wait.
            let nodad = if address.address.is_ipv6() { " nodad" } else { "" };
            batch.line(*number, format!("address add {address} dev {name}{nodad}"));
        }
    }
}

/// Commands for `ip -batch`, with the STF lines that they come from.
#[derive(Default)]
struct Batch {
    text: String,
    lines: Vec<u32>,
}

impl Batch {
    fn line(&mut self, number: u32, command: String) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{command}");
        self.lines.push(number);
    }

    fn run(&self) -> Result<(), NetworkError> {
        let failed_to = |what: &str, error: std::io::Error| {
            failed(0, format!("{what} `ip` (iproute2): {error}"))
        };
        let mut child = Command::new("ip")
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed_to("starting", error))?;
        if let Some(mut input) = child.stdin.take() {
            // An `ip` that has stopped at an error reads no further: its messages say why.
            let _ = input.write_all(self.text.as_bytes());
        }
        let output = child.wait_with_output().map_err(|error| failed_to("waiting for", error))?;
        if output.status.success() {
            return Ok(());
        }
        let messages = String::from_utf8_lossy(&output.stderr);
        Err(self.blame(&messages))
    }

    /// `ip -batch` ends with `Command failed -:N`, N from 1.
    fn blame(&self, messages: &str) -> NetworkError {
        let index = messages
            .lines()
            .find_map(|line| {
                line.strip_prefix("Command failed ")?
                    .rsplit(':')
                    .next()?
                    .trim()
                    .parse::<usize>()
                    .ok()
            })
            .and_then(|number| number.checked_sub(1));
        let command = index.and_then(|index| self.text.lines().nth(index)).unwrap_or_default();
        let line = index.and_then(|index| self.lines.get(index)).copied().unwrap_or(0);
        let said: Vec<&str> =
            messages.lines().filter(|line| !line.starts_with("Command failed ")).collect();
        failed(line, format!("`ip {command}`: {}", said.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_ip_is_told_with_the_stf_line() {
        let mut batch = Batch::default();
        batch.line(0, "link set lo up".to_owned());
        batch.line(7, "route add 10.0.0.1/8 via 10.0.0.1 dev port0".to_owned());
        let error =
            batch.blame("Error: Invalid prefix for given prefix length.\nCommand failed -:2\n");
        let reason = "`ip route add 10.0.0.1/8 via 10.0.0.1 dev port0`: Error: Invalid prefix for given prefix length.";
        assert_eq!(error, failed(7, reason.to_owned()));
    }
}
