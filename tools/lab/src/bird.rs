//! BIRD 2: the configuration of a node, and what its BIRD says about sessions and failure
//! detection.

use crate::topology::{Node, Topology, in_mode};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Local preference of routes from the preferred node; BGP's default is 100.
const PREFERRED: u32 = 200;

/// Renders a node's `bird.conf`; `None` for a node without an AS number.
pub fn config(topology: &Topology, name: &str, node: &Node, mode: &str) -> Option<String> {
    let asn = node.asn?;
    let router_id = router_id(topology, name, node);
    let mut text = format!(
        "# Rendered by stateplane lab for node {name}.\n\
         router id {router_id};\n\
         log stderr all;\n\
         debug protocols {{ states, events }};\n\
         protocol device {{ scan time 1; }}\n\
         protocol direct {{ ipv4; interface {interfaces}; }}\n\
         protocol kernel {{ merge paths on; ipv4 {{ export filter {{ if source = RTS_BGP then accept; reject; }}; }}; }}\n\
         protocol bfd {{ interface \"*\" {{ min rx interval {ms} ms; min tx interval {ms} ms; idle tx interval 100 ms; multiplier {multiplier}; }}; }}\n",
        interfaces = direct_interfaces(topology, name),
        ms = topology.bfd.interval_ms,
        multiplier = topology.bfd.multiplier,
    );
    announced(&mut text, node, mode);
    for (interface, _, far, _) in topology.ports(name) {
        let Some(neighbour_asn) = topology.node.get(interface).and_then(|n| n.asn) else {
            continue;
        };
        neighbour(&mut text, topology, node, asn, interface, far.ip(), neighbour_asn);
    }
    Some(text)
}

/// The loopback, else the first address: unique in a topology.
fn router_id<'a>(topology: &'a Topology, name: &'a str, node: &'a Node) -> &'a str {
    let own = node
        .loopback
        .as_deref()
        .or_else(|| topology.ports(name).next().map(|(_, own, _, _)| own.address.as_str()));
    own.and_then(|a| a.split('/').next()).unwrap_or("127.0.0.1")
}

/// `lo` and the links to nodes that do not speak BGP: host networks are announced, links between
/// routers are not.
fn direct_interfaces(topology: &Topology, name: &str) -> String {
    let mut patterns = vec!["\"lo\"".to_string()];
    for (interface, _, _, _) in topology.ports(name) {
        if topology.node.get(interface).is_some_and(|n| n.asn.is_none()) {
            patterns.push(format!("\"{interface}\""));
        }
    }
    patterns.join(", ")
}

fn announced(text: &mut String, node: &Node, mode: &str) {
    if node.announce.is_empty() {
        return;
    }
    text.push_str("protocol static announced {\n  ipv4;\n");
    for announce in node.announce.iter().filter(|a| in_mode(&a.modes, mode)) {
        // A recursive route is unreachable until its next hop has a route; the export filter drops
        // it until then.
        let _ = match announce.when_reachable {
            Some(via) => writeln!(text, "  route {} recursive {via};", announce.prefix),
            None => writeln!(text, "  route {} blackhole;", announce.prefix),
        };
    }
    text.push_str("}\n");
}

fn neighbour(
    text: &mut String,
    topology: &Topology,
    node: &Node,
    asn: u32,
    neighbour: &str,
    address: &str,
    neighbour_asn: u32,
) {
    let prefer = match &topology.prefer {
        Some(p) if p == neighbour => preference(topology, p),
        _ => String::new(),
    };
    let accept = if node.accept.is_empty() {
        "accept;".to_string()
    } else {
        format!("if net ~ [ {} ] then accept; reject;", node.accept.join(", "))
    };
    let _ = writeln!(
        text,
        "protocol bgp {id} {{\n  local as {asn}; neighbor {address} as {neighbour_asn}; direct; bfd on;\n  \
         connect delay time 1; connect retry time 1; error wait time 1, 2; graceful restart off;\n  \
         ipv4 {{ next hop self;\n    import filter {{ {prefer}{accept} }};\n    \
         export filter {{ if dest = RTD_UNREACHABLE then reject; accept; }}; }};\n}}",
        id = protocol_name(neighbour),
    );
}

/// What raises the preference of the preferred node's routes. Not those to other nodes' own
/// addresses: what the stores say to one switch must not take the way through another, which may
/// be the one that dies.
fn preference(topology: &Topology, preferred: &str) -> String {
    let set = format!("bgp_local_pref = {PREFERRED}; ");
    let others = topology.node.iter().filter(|(name, _)| *name != preferred);
    let loopbacks: Vec<&str> = others.filter_map(|(_, node)| node.loopback.as_deref()).collect();
    match loopbacks.is_empty() {
        true => set,
        false => format!("if net !~ [ {} ] then {set}", loopbacks.join(", ")),
    }
}

/// BIRD's name of the session with a neighbour; BIRD's symbols have no '-'.
fn protocol_name(neighbour: &str) -> String {
    format!("to_{}", neighbour.replace('-', "_"))
}

/// One BGP session or BFD session as BIRD sees it.
#[derive(Clone, Debug, Serialize)]
pub struct Session {
    /// BGP: the neighbouring node. BFD: the neighbour's address.
    pub neighbour: String,
    /// `Established`, `Up`, or the state short of it.
    pub state: String,
    /// Whether that is the good one.
    pub up: bool,
}

/// Asks the BIRD behind a control socket; `None` if it does not answer.
fn ask(socket: &Path, question: &str) -> Option<String> {
    let output =
        Command::new("birdc").arg("-s").arg(socket).args(question.split(' ')).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Since when each BGP and BFD session of a node is as it is: another text tells that one has
/// changed since. `None` if its BIRD does not answer.
pub fn changes(socket: &Path) -> Option<String> {
    let (protocols, bfd) = (ask(socket, "show protocols")?, ask(socket, "show bfd sessions")?);
    let columns = |line: &str, count: usize| {
        line.split_whitespace().take(count).collect::<Vec<_>>().join(" ")
    };
    // Name, Proto, Table, State, Since; and IP address, Interface, State, Since.
    let lines = protocols
        .lines()
        .map(|line| columns(line, 5))
        .chain(bfd.lines().map(|line| columns(line, 4)));
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// The neighbours whose BGP or BFD sessions are others in `now` than in `before`, two answers of
/// [`changes`].
pub fn changed(before: &str, now: &str) -> BTreeSet<String> {
    let lines = |text: &str| text.lines().map(str::to_string).collect::<BTreeSet<String>>();
    let (before, now) = (lines(before), lines(now));
    let neighbour = |line: &String| {
        let mut words = line.split_whitespace();
        let (first, second) = (words.next()?, words.next()?);
        match first.strip_prefix("to_") {
            Some(neighbour) => Some(neighbour.to_string()),
            // A BFD session's interface is called after the neighbour.
            None => first.parse::<std::net::IpAddr>().ok().map(|_| second.to_string()),
        }
    };
    before.symmetric_difference(&now).filter_map(neighbour).collect()
}

/// The BGP sessions of a node; `None` if its BIRD does not answer.
pub fn bgp_sessions(socket: &Path) -> Option<Vec<Session>> {
    let answer = ask(socket, "show protocols")?;
    Some(
        answer
            .lines()
            .filter_map(|line| {
                // Name, Proto, Table, State, Since, Info
                let columns: Vec<&str> = line.split_whitespace().collect();
                let neighbour = columns.first()?.strip_prefix("to_")?;
                let state = columns.get(5).or(columns.get(3))?;
                Some(Session {
                    neighbour: neighbour.to_string(),
                    up: *state == "Established",
                    state: (*state).to_string(),
                })
            })
            .collect(),
    )
}

/// The BFD sessions of a node; `None` if its BIRD does not answer.
pub fn bfd_sessions(socket: &Path) -> Option<Vec<Session>> {
    let answer = ask(socket, "show bfd sessions")?;
    Some(
        answer
            .lines()
            .filter_map(|line| {
                // IP address, Interface, State, Since, Interval, Timeout
                let columns: Vec<&str> = line.split_whitespace().collect();
                let address =
                    columns.first().filter(|a| a.parse::<std::net::Ipv4Addr>().is_ok())?;
                let state = columns.get(2)?;
                Some(Session {
                    neighbour: (*address).to_string(),
                    up: *state == "Up",
                    state: (*state).to_string(),
                })
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::{changed, config};
    use crate::topology::Topology;
    use std::path::Path;

    #[test]
    fn the_way_to_a_switch_is_not_through_the_preferred_one() {
        let node = |name: &str, more: &str| format!("[node.{name}]\nrole = \"router\"\n{more}\n");
        let link = |number: u8, far: &str| {
            format!(
                "[[link]]\na = {{ node = \"tor\", address = \"10.0.{number}.1/30\" }}\n\
                 b = {{ node = \"{far}\", address = \"10.0.{number}.2/30\" }}\n"
            )
        };
        let text = [
            "name = \"t\"\nprefer = \"s1\"\n".to_owned(),
            node("tor", "asn = 65000"),
            node("s1", "asn = 65001\nloopback = \"10.255.0.1/32\""),
            node("s2", "asn = 65002\nloopback = \"10.255.0.2/32\""),
            link(1, "s1"),
            link(2, "s2"),
        ];
        let topology = Topology::parse(&text.concat(), Path::new("t.toml")).unwrap();
        let text = config(&topology, "tor", &topology.node["tor"], "").unwrap();
        let preferred = "if net !~ [ 10.255.0.2/32 ] then bgp_local_pref = 200; accept;";
        assert_eq!(text.matches("bgp_local_pref").count(), 1, "{text}");
        assert!(text.contains(preferred), "{text}");
    }

    #[test]
    fn tells_whose_sessions_changed() {
        let before = "Name Proto Table State Since\nto_s1 BGP --- up 06:00:01.100\nto_s2 BGP --- up 06:00:01.200\n10.0.3.1 s1 Up 06:00:02.000";
        let of = |now: &str| changed(before, now).into_iter().collect::<Vec<_>>();
        assert_eq!(of(before), Vec::<String>::new());
        assert_eq!(of(&before.replace("01.200", "09.200")), ["s2"]);
        assert_eq!(of(&before.replace("Up 06:00:02", "Down 06:00:09")), ["s1"]);
    }
}
