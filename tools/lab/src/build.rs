//! Makes the network of a lab: namespaces, kernel parameters, links, addresses, routes.

use crate::error::{Error, Result};
use crate::topology::{Node, Role, Topology};
use netns::Netns;
use std::collections::BTreeMap;
use std::process::Command;

/// Kernel parameters of every node.
const SYSCTL_ALL: &[(&str, &str)] = &[
    // Not the machine's choice: a socket that begins with BBR goes on pacing when it is given
    // another (iperf3's -C comes after its connect), by a round trip in which packets that waited
    // for a lease count for up to a second. Reno is in every kernel, and a namespace may choose it.
    ("ipv4.tcp_congestion_control", "reno"),
    ("ipv6.conf.all.disable_ipv6", "1"),
    ("ipv6.conf.default.disable_ipv6", "1"),
    ("ipv4.conf.all.rp_filter", "0"),
    ("ipv4.conf.default.rp_filter", "0"),
    ("ipv4.conf.all.send_redirects", "0"),
    ("ipv4.conf.default.send_redirects", "0"),
];

/// Kernel parameters of nodes that forward: ECMP hashes the 5-tuple, and a next hop whose link lost
/// its carrier is not used even before BGP takes it away.
const SYSCTL_FORWARD: &[(&str, &str)] = &[
    ("ipv4.ip_forward", "1"),
    ("ipv4.fib_multipath_hash_policy", "1"),
    ("ipv4.conf.all.ignore_routes_with_linkdown", "1"),
    ("ipv4.conf.default.ignore_routes_with_linkdown", "1"),
];

/// Makes namespaces, links and addresses; the routing and the daemons come later.
///
/// # Errors
/// The first step that fails. What was made stays: the caller takes the lab down.
pub fn network(topology: &Topology, names: &BTreeMap<String, String>) -> Result<()> {
    let mut spaces = BTreeMap::new();
    for (node, name) in names {
        spaces.insert(node.as_str(), Netns::create(name)?);
    }
    for (node, spec) in &topology.node {
        let netns = space(&spaces, node)?;
        netns.set_sysctl(SYSCTL_ALL.iter().copied())?;
        if spec.role.forwards() {
            netns.set_sysctl(SYSCTL_FORWARD.iter().copied())?;
        }
        netns.set_sysctl(spec.sysctl.iter().map(|(k, v)| (k.as_str(), v.as_str())))?;
    }
    make_links(topology, names)?;
    for (node, spec) in &topology.node {
        let netns = space(&spaces, node)?;
        netns.ip_batch(&address_lines(topology, node, spec))?;
        netns.ip_batch(&up_lines(topology, node, spec))?;
    }
    for node in topology.node.keys() {
        set_offloads(topology, node, space(&spaces, node)?)?;
    }
    Ok(())
}

fn space<'a>(spaces: &'a BTreeMap<&str, Netns>, node: &str) -> Result<&'a Netns> {
    spaces.get(node).ok_or_else(|| Error::NoLab(format!("node {node} has no namespace")))
}

fn make_links(topology: &Topology, names: &BTreeMap<String, String>) -> Result<()> {
    let lines: Vec<String> = topology
        .link
        .iter()
        .map(|link| {
            let netns = |node: &str| names.get(node).cloned().unwrap_or_default();
            format!(
                "link add name {} mtu {mtu} netns {} type veth peer name {} mtu {mtu} netns {}",
                link.b.node,
                netns(&link.a.node),
                link.a.node,
                netns(&link.b.node),
                mtu = link.mtu,
            )
        })
        .collect();
    netns::ip_batch(&lines)
        .map_err(|error| Error::Command { command: "ip".to_owned(), reason: error.to_string() })
}

fn address_lines(topology: &Topology, name: &str, node: &Node) -> Vec<String> {
    let mut lines = vec!["link set lo up".to_string()];
    lines.extend(node.loopback.iter().map(|a| format!("addr add {a} dev lo")));
    lines.extend(
        topology.ports(name).map(|(dev, own, _, _)| format!("addr add {} dev {dev}", own.address)),
    );
    lines.extend(node.rules.iter().map(|r| format!("rule add {r}")));
    lines
}

/// The `ip` commands that bring a node's ports up and give it its static routes (they go when a
/// port goes down).
pub fn up_lines(topology: &Topology, name: &str, node: &Node) -> Vec<String> {
    let mut lines: Vec<String> =
        topology.ports(name).map(|(dev, _, _, _)| format!("link set dev {dev} up")).collect();
    lines.extend(node.routes.iter().map(|r| format!("route replace {r}")));
    lines
}

/// The `ip` commands that take a node's ports down: both ends lose the carrier, as when a machine
/// dies.
pub fn down_lines(topology: &Topology, name: &str) -> Vec<String> {
    topology.ports(name).map(|(dev, _, _, _)| format!("link set dev {dev} down")).collect()
}

/// A frame that XDP redirects carries no offload state: senders must fill in checksums and segment
/// by themselves. A veth takes redirected frames only if its peer polls (NAPI), which GRO on the
/// peer turns on: so GRO is on where the other end is a switch's port or a store's, whose fast path
/// redirects, too, and off elsewhere. The
/// kernel tells the switch's port so only when GRO *changes* on a peer that is up: hence off first,
/// and again whenever the node's ports have been down.
pub fn set_offloads(topology: &Topology, name: &str, netns: &Netns) -> Result<()> {
    for (dev, _, far, _) in topology.ports(name) {
        let redirects = |role: Role| matches!(role, Role::Switch | Role::Store);
        let faces_xdp = topology.node.get(&far.node).is_some_and(|node| redirects(node.role));
        let ethtool = |options: &[&str]| -> Result<()> {
            let mut command = Command::new("ethtool");
            let output = netns.output(command.args(["-K", dev]).args(options)).map_err(|e| {
                Error::Command { command: "ethtool".to_string(), reason: e.to_string() }
            })?;
            if output.status.success() {
                return Ok(());
            }
            Err(Error::Command {
                command: format!("ethtool -K {dev} (in {})", netns.name()),
                reason: String::from_utf8_lossy(&output.stderr).trim().to_string(),
            })
        };
        ethtool(&["tx", "off", "tso", "off", "gso", "off", "gro", "off"])?;
        if faces_xdp {
            ethtool(&["gro", "on"])?;
        }
    }
    Ok(())
}
