//! Topologies: nodes, links, routing and daemons, read from TOML and checked.
//!
//! ```toml
//! name = "pair"
//! [node.a]
//! role = "host"
//! routes = ["default via 10.0.0.2"]
//! [node.b]
//! role = "router"
//! asn = 65001
//! [[link]]
//! a = { node = "a", address = "10.0.0.1/24" }
//! b = { node = "b", address = "10.0.0.2/24" }
//! ```

mod check;

use crate::error::{Error, Result};
use check::{Fallible, check_command, check_name, check_prefix, fail, list};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;

/// Longest interface name that Linux takes, in bytes; interfaces are named after the node at the
/// other end.
const NAME_MAX: usize = 15;

/// A network: everything `lab up` needs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Default name of a lab of this topology.
    pub name: String,
    /// One line for people.
    #[serde(default)]
    pub description: String,
    /// The modes that daemons and set-up commands can be bound to; the first is the default.
    #[serde(default)]
    pub modes: Vec<String>,
    /// Values for `${name}` in texts; a node's own and the command line's win over these.
    #[serde(default)]
    pub vars: BTreeMap<String, String>,
    /// By mode: what is different in it; these win over `vars`.
    #[serde(default)]
    pub mode_vars: BTreeMap<String, BTreeMap<String, String>>,
    /// A node whose routes are preferred to its equals' (BGP local preference): all traffic takes
    /// it while it is up. Without one, equal paths share the flows (ECMP on the 5-tuple).
    #[serde(default)]
    pub prefer: Option<String>,
    /// Failure detection between BGP neighbours.
    #[serde(default)]
    pub bfd: Bfd,
    /// Parts that several nodes share.
    #[serde(default)]
    pub template: BTreeMap<String, Node>,
    /// The nodes, by name.
    pub node: BTreeMap<String, Node>,
    /// The links.
    #[serde(default)]
    pub link: Vec<Link>,
    /// Commands run once, outside the namespaces, before the daemons start: what compiles what they
    /// load.
    #[serde(default)]
    pub build: Vec<Setup>,
    /// Commands that must succeed before the lab counts as up.
    #[serde(default)]
    pub ready: Vec<Probe>,
    /// What `lab chaos` sends through it, between a node `inside` and a node `outside`.
    #[serde(default)]
    pub chaos: Vec<Workload>,
    /// Of `connections`: where they go, if not from `inside` to `outside`.
    #[serde(default)]
    pub chaos_service: Option<Service>,
}

/// Where the connections of `lab chaos` go through a load balancer.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// The mode in which nobody else listens where the servers do.
    pub mode: String,
    /// The node that they come from.
    pub client: String,
    /// The address and port that they are opened to.
    pub address: std::net::SocketAddrV4,
    /// The nodes of which one answers each.
    pub servers: Vec<String>,
    /// The port that they listen on.
    pub port: u16,
}

/// Traffic of `lab chaos`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// TCP connections and UDP flows with answers: for switches that keep connections.
    Connections,
    /// Numbered datagrams, in whose IPv4 identification field the switches put the flow's packet
    /// count.
    Counts,
}

/// Bidirectional forwarding detection (RFC 5880).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Bfd {
    /// Interval between control packets, in milliseconds.
    #[serde(default = "Bfd::default_interval_ms")]
    pub interval_ms: u32,
    /// A neighbour is down after this many intervals without a packet.
    #[serde(default = "Bfd::default_multiplier")]
    pub multiplier: u32,
}

impl Bfd {
    fn default_interval_ms() -> u32 {
        20
    }
    /// 100 ms with the default interval: machines stop for 60 ms now and then (virtual ones, and
    /// busy ones), and a live link is then taken for a dead one. A switch's flows wait for its
    /// lease (250 ms by default) anyway when it dies.
    fn default_multiplier() -> u32 {
        5
    }
}

impl Default for Bfd {
    fn default() -> Self {
        Self { interval_ms: Self::default_interval_ms(), multiplier: Self::default_multiplier() }
    }
}

/// What a node is for; it decides forwarding and offloads.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// An end host: does not forward.
    #[default]
    Host,
    /// A plain Linux router.
    Router,
    /// A router whose ports may run an XDP program; the peers of its ports accept redirected
    /// frames.
    Switch,
    /// A host of the state store.
    Store,
}

impl Role {
    /// Whether the kernel of such a node forwards packets.
    pub fn forwards(self) -> bool {
        matches!(self, Self::Router | Self::Switch)
    }
}

/// A node: a network namespace with its addresses, routes and processes.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// What the node is for.
    #[serde(default)]
    pub role: Role,
    /// A `[template.*]` to start from: its lists come first, its single values where the node has
    /// none.
    #[serde(default)]
    pub template: Option<String>,
    /// Autonomous system number; a node that has one runs BIRD with eBGP to each neighbour that has
    /// one.
    #[serde(default)]
    pub asn: Option<u32>,
    /// An address on `lo`, announced by BGP, such as `10.255.0.1/32`.
    #[serde(default)]
    pub loopback: Option<String>,
    /// Prefixes announced by BGP besides the connected host links and the loopback.
    #[serde(default)]
    pub announce: Vec<Announce>,
    /// Prefixes accepted from BGP neighbours, in BIRD's pattern syntax (`10.2.0.0/16+`); empty
    /// accepts all.
    #[serde(default)]
    pub accept: Vec<String>,
    /// Static routes, as `ip route add` takes them.
    #[serde(default)]
    pub routes: Vec<String>,
    /// Policy rules, as `ip rule add` takes them.
    #[serde(default)]
    pub rules: Vec<String>,
    /// Kernel parameters below `net.`, such as `"ipv4.tcp_congestion_control" = "cubic"`.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
    /// Values for `${name}` in this node's texts.
    #[serde(default)]
    pub vars: BTreeMap<String, String>,
    /// Commands run in the namespace, in order, before the daemons start: at `up` and at `restore`,
    /// and when a link of the node is up again: they can be run many times.
    #[serde(default)]
    pub setup: Vec<Setup>,
    /// Commands run in the namespace after a `fail`: they drop what a power cut would have wiped
    /// from the kernel's memory (`state` and attached XDP programs go without them).
    #[serde(default)]
    pub wipe: Vec<Setup>,
    /// Directories below `/run/stateplane` in which its daemons keep what outlives them (pinned BPF
    /// objects and file systems mounted there too): removed at `fail` and at `down`. `${name}` is
    /// expanded.
    #[serde(default)]
    pub state: Vec<String>,
    /// Long-running programs, started in order, before BIRD.
    #[serde(default)]
    pub daemon: Vec<Daemon>,
}

/// A prefix that a node announces.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Announce {
    /// The prefix.
    pub prefix: String,
    /// Announce it only while this address is reachable by a route, so that a switch that comes
    /// back attracts no traffic that it cannot yet pass on.
    #[serde(default)]
    pub when_reachable: Option<Ipv4Addr>,
    /// The modes in which it is announced; empty for all.
    #[serde(default)]
    pub modes: Vec<String>,
}

/// A command of the lab or of a node.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Program and arguments; `${name}` is expanded.
    pub command: Vec<String>,
    /// The modes in which it runs; empty for all.
    #[serde(default)]
    pub modes: Vec<String>,
}

/// A long-running program of a node.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Daemon {
    /// Name, unique among the node's daemons of a mode: names its configuration, log and PID file.
    pub name: String,
    /// Program and arguments; `${config}` is the path of the rendered configuration.
    pub command: Vec<String>,
    /// Text of its configuration file; `${name}` is expanded.
    #[serde(default)]
    pub config: Option<String>,
    /// A command that succeeds when the daemon is ready; run again and again until then.
    #[serde(default)]
    pub ready: Vec<String>,
    /// The modes in which it runs; empty for all.
    #[serde(default)]
    pub modes: Vec<String>,
}

/// A link: a veth pair.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// One end.
    pub a: End,
    /// The other end.
    pub b: End,
    /// Largest packet, in bytes.
    #[serde(default = "Link::default_mtu")]
    pub mtu: u32,
}

impl Link {
    fn default_mtu() -> u32 {
        1500
    }

    /// The end at `node` and the end opposite, if `node` has one.
    pub fn ends_from(&self, node: &str) -> Option<(&End, &End)> {
        if self.a.node == node {
            Some((&self.a, &self.b))
        } else if self.b.node == node {
            Some((&self.b, &self.a))
        } else {
            None
        }
    }

    /// Whether the link joins these two nodes, in either order.
    pub fn joins(&self, x: &str, y: &str) -> bool {
        (self.a.node == x && self.b.node == y) || (self.a.node == y && self.b.node == x)
    }
}

/// One end of a link. The interface is called after the node at the other end.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// The node.
    pub node: String,
    /// Its address with prefix length, such as `10.0.1.1/30`.
    pub address: String,
}

impl End {
    /// The address without its prefix length.
    pub fn ip(&self) -> &str {
        self.address.split('/').next().unwrap_or(&self.address)
    }

    /// The network of the address, and its prefix length.
    fn subnet(&self) -> Option<(u32, u32)> {
        let (address, length) = self.address.split_once('/')?;
        let (address, length): (Ipv4Addr, u32) = (address.parse().ok()?, length.parse().ok()?);
        let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
        Some((u32::from(address) & mask, length))
    }
}

/// A command that must succeed before the lab counts as up.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The node it runs in.
    pub node: String,
    /// Program and arguments; `${name}` is expanded.
    pub command: Vec<String>,
    /// The modes in which it counts; empty for all.
    #[serde(default)]
    pub modes: Vec<String>,
}

/// Whether there is a mode in which things bound to `a` and to `b` both take part.
fn modes_overlap(a: &[String], b: &[String]) -> bool {
    a.is_empty() || b.is_empty() || a.iter().any(|mode| b.contains(mode))
}

/// Whether something bound to `modes` takes part in `mode`.
pub fn in_mode(modes: &[String], mode: &str) -> bool {
    modes.is_empty() || modes.iter().any(|m| m == mode)
}

/// Variables that the lab gives their values.
const FILLED_IN: [&str; 8] =
    ["lab", "lab_dir", "mode", "topology_dir", "node", "node_dir", "config", "loopback"];

impl Topology {
    /// Reads and checks a topology file.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, or a field has no usable value: the error names it.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
        Self::parse(&text, path)
    }

    /// Parses and checks a topology; `file` is for error messages.
    ///
    /// # Errors
    /// As [`Topology::read`].
    pub fn parse(text: &str, file: &Path) -> Result<Self> {
        let mut topology: Self = toml::from_str(text).map_err(|e| Error::Syntax {
            file: file.to_path_buf(),
            message: e.to_string().trim_end().to_string(),
        })?;
        topology.apply_templates().and_then(|()| topology.check()).map_err(|(field, reason)| {
            Error::Topology { file: file.to_path_buf(), field, reason }
        })?;
        Ok(topology)
    }

    /// The default mode: the first of `modes`, or the empty string.
    pub fn default_mode(&self) -> &str {
        self.modes.first().map_or("", String::as_str)
    }

    /// The topology's own values for `${name}` in a mode.
    pub fn vars_in(&self, mode: &str) -> BTreeMap<String, String> {
        let of_mode = self.mode_vars.get(mode).into_iter().flatten();
        self.vars.iter().chain(of_mode).map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Names that `--set` may give a value: those with a default, those that are only used, and
    /// `stateplane`, the program; not what the lab itself fills in.
    pub fn variables(&self) -> BTreeSet<String> {
        let of_modes = self.mode_vars.values().flat_map(BTreeMap::keys);
        let defaults = self
            .node
            .values()
            .flat_map(|node| node.vars.keys())
            .chain(self.vars.keys())
            .chain(of_modes);
        // Wherever a text may be: in the whole topology.
        let text = serde_json::to_string(self).unwrap_or_default();
        let used = text
            .split("${")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once('}')?.0.trim().to_owned()));
        let mut names: BTreeSet<String> =
            defaults.cloned().chain(used).chain(["stateplane".to_owned()]).collect();
        names.retain(|name| !FILLED_IN.contains(&name.as_str()));
        names
    }

    /// The links of a node: (interface name, own end, far end, link).
    pub fn ports<'a>(
        &'a self,
        node: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a End, &'a End, &'a Link)> {
        self.link.iter().filter_map(move |link| {
            link.ends_from(node).map(|(own, far)| (far.node.as_str(), own, far, link))
        })
    }

    fn apply_templates(&mut self) -> Fallible {
        for (name, node) in &mut self.node {
            let Some(template) = &node.template else { continue };
            let Some(base) = self.template.get(template) else {
                return fail(
                    format!("node.{name}.template"),
                    format!("no [template.{template}]; there is {}", list(self.template.keys())),
                );
            };
            *node = merge(base, node);
        }
        Ok(())
    }

    fn check(&self) -> Fallible {
        check_name("name", &self.name)?;
        if self.node.is_empty() {
            return fail("node", "a topology needs at least one [node.NAME]");
        }
        for (name, node) in &self.node {
            self.check_node(name, node)?;
        }
        let mut seen = BTreeSet::new();
        for (i, link) in self.link.iter().enumerate() {
            self.check_end(&format!("link[{i}].a"), &link.a)?;
            self.check_end(&format!("link[{i}].b"), &link.b)?;
            self.check_link(i, link, &mut seen)?;
        }
        if let Some(prefer) = &self.prefer {
            self.known_node("prefer", prefer)?;
        }
        self.check_commands("build", &self.build)?;
        for mode in self.mode_vars.keys() {
            self.check_modes(&format!("mode_vars.{mode}"), std::slice::from_ref(mode))?;
        }
        for (i, probe) in self.ready.iter().enumerate() {
            self.known_node(&format!("ready[{i}].node"), &probe.node)?;
            check_command(&format!("ready[{i}].command"), &probe.command)?;
            self.check_modes(&format!("ready[{i}].modes"), &probe.modes)?;
        }
        if self.bfd.interval_ms == 0 || self.bfd.multiplier == 0 {
            return fail("bfd", "interval_ms and multiplier must be at least 1");
        }
        Ok(())
    }

    fn check_node(&self, name: &str, node: &Node) -> Fallible {
        let at = format!("node.{name}");
        check_name(&at, name)?;
        if node.asn == Some(0) {
            return fail(format!("{at}.asn"), "AS number 0 is reserved (RFC 7607)");
        }
        if let Some(loopback) = &node.loopback {
            check_prefix(&format!("{at}.loopback"), loopback)?;
        }
        for (i, announce) in node.announce.iter().enumerate() {
            check_prefix(&format!("{at}.announce[{i}].prefix"), &announce.prefix)?;
            self.check_modes(&format!("{at}.announce[{i}].modes"), &announce.modes)?;
        }
        for (i, daemon) in node.daemon.iter().enumerate() {
            let at = format!("{at}.daemon[{i}]");
            check_name(&format!("{at}.name"), &daemon.name)?;
            let taken = node.daemon[..i].iter().any(|earlier| {
                earlier.name == daemon.name && modes_overlap(&earlier.modes, &daemon.modes)
            });
            if taken || daemon.name == "bird" {
                return fail(
                    format!("{at}.name"),
                    format!("\"{}\" is taken in this node", daemon.name),
                );
            }
            check_command(&format!("{at}.command"), &daemon.command)?;
            self.check_modes(&format!("{at}.modes"), &daemon.modes)?;
        }
        self.check_commands(&format!("{at}.setup"), &node.setup)?;
        self.check_commands(&format!("{at}.wipe"), &node.wipe)
    }

    fn check_commands(&self, at: &str, commands: &[Setup]) -> Fallible {
        for (i, setup) in commands.iter().enumerate() {
            check_command(&format!("{at}[{i}].command"), &setup.command)?;
            self.check_modes(&format!("{at}[{i}].modes"), &setup.modes)?;
        }
        Ok(())
    }

    fn check_link<'a>(
        &self,
        i: usize,
        link: &'a Link,
        seen: &mut BTreeSet<(&'a str, &'a str)>,
    ) -> Fallible {
        if link.a.node == link.b.node {
            return fail(
                format!("link[{i}].b.node"),
                format!("\"{}\" is at both ends; a link joins two nodes", link.b.node),
            );
        }
        let pair = if link.a.node < link.b.node {
            (link.a.node.as_str(), link.b.node.as_str())
        } else {
            (link.b.node.as_str(), link.a.node.as_str())
        };
        if !seen.insert(pair) {
            return fail(
                format!("link[{i}]"),
                format!(
                    "{} and {} are joined already; two nodes can have one link",
                    pair.0, pair.1
                ),
            );
        }
        if link.a.subnet() != link.b.subnet() {
            return fail(
                format!("link[{i}].b.address"),
                format!(
                    "{} and {} ({} and {}) are not in one subnet, so neither end reaches the \
                     other; give both ends addresses of one subnet, such as 10.0.1.1/30 and \
                     10.0.1.2/30",
                    link.a.address, link.b.address, link.a.node, link.b.node
                ),
            );
        }
        if link.a.ip() == link.b.ip() {
            return fail(
                format!("link[{i}].b.address"),
                format!("{} is at both ends; each end has an address of its own", link.b.ip()),
            );
        }
        if !(576..=9000).contains(&link.mtu) {
            return fail(
                format!("link[{i}].mtu"),
                format!("{} is not between 576 and 9000", link.mtu),
            );
        }
        Ok(())
    }

    fn check_end(&self, at: &str, end: &End) -> Fallible {
        self.known_node(&format!("{at}.node"), &end.node)?;
        check_prefix(&format!("{at}.address"), &end.address)
    }

    fn known_node(&self, field: &str, name: &str) -> Fallible {
        if self.node.contains_key(name) {
            return Ok(());
        }
        fail(field, format!("no node \"{name}\"; there is {}", list(self.node.keys())))
    }

    fn check_modes(&self, field: &str, modes: &[String]) -> Fallible {
        match modes.iter().find(|m| !self.modes.contains(m)) {
            Some(unknown) => fail(
                field,
                format!("no mode \"{unknown}\"; the topology's modes are {}", list(&self.modes)),
            ),
            None => Ok(()),
        }
    }
}

/// A node on top of its template.
fn merge(base: &Node, node: &Node) -> Node {
    fn chain<T: Clone>(a: &[T], b: &[T]) -> Vec<T> {
        a.iter().chain(b).cloned().collect()
    }
    fn over(
        a: &BTreeMap<String, String>,
        b: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        a.iter().chain(b).map(|(k, v)| (k.clone(), v.clone())).collect()
    }
    Node {
        role: if node.role == Role::default() { base.role } else { node.role },
        template: None,
        asn: node.asn.or(base.asn),
        loopback: node.loopback.clone().or_else(|| base.loopback.clone()),
        announce: chain(&base.announce, &node.announce),
        accept: chain(&base.accept, &node.accept),
        routes: chain(&base.routes, &node.routes),
        rules: chain(&base.rules, &node.rules),
        sysctl: over(&base.sysctl, &node.sysctl),
        vars: over(&base.vars, &node.vars),
        setup: chain(&base.setup, &node.setup),
        wipe: chain(&base.wipe, &node.wipe),
        state: chain(&base.state, &node.state),
        daemon: chain(&base.daemon, &node.daemon),
    }
}
