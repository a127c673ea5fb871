//! What is up in a lab: processes, BGP, BFD, routes.

use crate::bird::{Session, bfd_sessions, bgp_sessions};
use crate::error::Result;
use crate::instance::Lab;
use serde::Serialize;
use std::fmt::Write as _;

/// State of a lab.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The lab's name.
    pub lab: String,
    /// Its mode.
    pub mode: String,
    /// Its run directory.
    pub dir: String,
    /// Every node.
    pub nodes: Vec<NodeStatus>,
}

/// State of a node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeStatus {
    /// The node.
    pub node: String,
    /// Its role.
    pub role: String,
    /// Its network namespace.
    pub netns: String,
    /// Whether it was failed by `lab fail`.
    pub failed: bool,
    /// Its daemons.
    pub daemons: Vec<DaemonStatus>,
    /// BGP sessions; none if it runs no BIRD or its BIRD does not answer.
    pub bgp: Vec<Session>,
    /// BFD sessions.
    pub bfd: Vec<Session>,
    /// Ports that have a carrier.
    pub ports_up: Vec<String>,
    /// Ports that have none.
    pub ports_down: Vec<String>,
    /// Routes, as `ip route` prints them, one next hop a line.
    pub routes: Vec<String>,
}

/// State of a daemon.
#[derive(Clone, Debug, Serialize)]
pub struct DaemonStatus {
    /// Its name.
    pub name: String,
    /// Its process ID when it was started last.
    pub pid: i32,
    /// Whether it runs.
    pub alive: bool,
}

/// Looks at everything.
///
/// # Errors
/// A namespace is gone.
pub fn status(lab: &Lab) -> Result<Status> {
    let mut nodes = Vec::new();
    for (name, node) in &lab.topology().node {
        let netns = lab.netns(name)?;
        let daemons = lab
            .daemons(name)
            .into_iter()
            .map(|(daemon, identity)| DaemonStatus {
                name: daemon,
                pid: identity.pid,
                alive: identity.alive(),
            })
            .collect();
        let socket = lab.bird_socket(name);
        let has_bird = node.asn.is_some() && socket.exists();
        let routes =
            crate::process::run(Some(&netns), &words("ip route show")).map(|(_, text)| text)?;
        let links =
            crate::process::run(Some(&netns), &words("ip -o link show")).map(|(_, text)| text)?;
        let (ports_up, ports_down) = lab
            .topology()
            .ports(name)
            .map(|(dev, _, _, _)| dev.to_string())
            .partition(|dev| has_carrier(&links, dev));
        nodes.push(NodeStatus {
            node: name.clone(),
            role: format!("{:?}", node.role).to_lowercase(),
            netns: netns.name().to_string(),
            failed: lab.is_failed(name),
            daemons,
            bgp: if has_bird { bgp_sessions(&socket).unwrap_or_default() } else { Vec::new() },
            bfd: if has_bird { bfd_sessions(&socket).unwrap_or_default() } else { Vec::new() },
            ports_up,
            ports_down,
            routes: routes.lines().map(|l| l.trim_end().to_string()).collect(),
        });
    }
    Ok(Status {
        lab: lab.name().to_string(),
        mode: lab.mode().to_string(),
        dir: lab.dir().display().to_string(),
        nodes,
    })
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_string).collect()
}

/// Whether `ip -o link` shows the interface as able to pass frames.
fn has_carrier(links: &str, dev: &str) -> bool {
    let marker = format!(": {dev}@");
    links.lines().any(|line| line.contains(&marker) && line.contains("LOWER_UP"))
}

impl Status {
    /// The status as text for people.
    pub fn render(&self) -> String {
        let mode =
            if self.mode.is_empty() { String::new() } else { format!(" mode {}", self.mode) };
        let mut out = format!("lab {}{mode} ({})\n", self.lab, self.dir);
        for node in &self.nodes {
            let failed = if node.failed { "  FAILED" } else { "" };
            let _ = writeln!(out, "{} ({}, {}){failed}", node.node, node.role, node.netns);
            for daemon in &node.daemons {
                let state = if daemon.alive { "running" } else { "dead" };
                let _ = writeln!(out, "  daemon {}: {state}, pid {}", daemon.name, daemon.pid);
            }
            if !node.ports_down.is_empty() {
                let _ = writeln!(out, "  ports down: {}", node.ports_down.join(", "));
            }
            for (kind, sessions) in [("bgp", &node.bgp), ("bfd", &node.bfd)] {
                let list: Vec<String> =
                    sessions.iter().map(|s| format!("{} {}", s.neighbour, s.state)).collect();
                if !list.is_empty() {
                    let _ = writeln!(out, "  {kind}: {}", list.join(", "));
                }
            }
            for route in &node.routes {
                let _ = writeln!(out, "  route {route}");
            }
        }
        out
    }
}
