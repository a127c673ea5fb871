//! The network around a case: a network namespace that lives as long as a thread.

use crate::setup::{Setup, Way};
use netns::BatchError;

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
    netns::inside_new(|| {
        build(setup)?;
        Ok(body())
    })
    .map_err(|error| failed(0, error.to_string()))?
}

/// Makes the calling thread's network.
fn build(setup: &Setup) -> Result<(), NetworkError> {
    netns::forward().map_err(|error| failed(0, error.to_string()))?;
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
    commands: Vec<String>,
    lines: Vec<u32>,
}

impl Batch {
    fn line(&mut self, number: u32, command: String) {
        self.commands.push(command);
        self.lines.push(number);
    }

    fn run(&self) -> Result<(), NetworkError> {
        netns::ip_batch(&self.commands).map_err(|error| self.blame(&error))
    }

    fn blame(&self, error: &BatchError) -> NetworkError {
        let line = error.index.and_then(|index| self.lines.get(index)).copied().unwrap_or(0);
        failed(line, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_ip_is_told_with_the_stf_line() {
        let mut batch = Batch::default();
        batch.line(0, "link set lo up".to_owned());
        batch.line(7, "route add 10.0.0.1/8".to_owned());
        let error = BatchError {
            index: Some(1),
            command: Some("route add 10.0.0.1/8".to_owned()),
            said: "Error: Invalid prefix.".to_owned(),
        };
        let reason = "`ip route add 10.0.0.1/8`: Error: Invalid prefix.";
        assert_eq!(batch.blame(&error), failed(7, reason.to_owned()));
    }
}
