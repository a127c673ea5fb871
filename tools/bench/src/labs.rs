//! Labs for experiments: up with what an experiment needs, down when it is done with them.

use crate::contention;
use crate::experiments::Context;
use anyhow::{Context as _, Result};
use lab::{Lab, Options, Topology};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Several labs can be up at a time.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A lab that is taken down when it goes out of scope.
pub struct Running(Lab);

impl Deref for Running {
    type Target = Lab;
    fn deref(&self) -> &Lab {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.0.down() {
            eprintln!("bench: taking down lab {}: {error}", self.0.name());
        }
    }
}

/// Which lab.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Topology file, from the repository's root.
    pub file: &'a str,
    /// Its mode; empty for one without modes.
    pub mode: &'a str,
    /// The switch that all traffic prefers, if one.
    pub prefer: Option<&'a str>,
    /// Values for its `${name}`.
    pub vars: &'a [(&'a str, &'a str)],
}

/// Where objects are that labs of this process have compiled.
fn cache_of(output: &Path) -> PathBuf {
    output.join(format!("compiled-{}", std::process::id()))
}

/// Labs of one program come up again and again: it is compiled once.
fn compile_once(topology: &mut Topology, output: &Path) {
    for build in topology
        .build
        .iter_mut()
        .filter(|build| build.command.get(1).is_some_and(|word| word == "compile"))
    {
        let cache = cache_of(output).display().to_string();
        let script = include_str!("../compile-once.sh").to_owned();
        build.command.splice(0..0, ["sh".to_owned(), "-c".to_owned(), script, cache]);
    }
}

/// Forgets what labs have compiled.
pub fn remove_compiled(output: &Path) {
    let _ = std::fs::remove_dir_all(cache_of(output));
}

/// Takes a node out of a topology, with its links and the probes that ping it.
pub fn remove_node(topology: &mut Topology, node: &str) {
    let own = |e: &lab::topology::End| e.node == node;
    let addresses: Vec<String> = topology
        .link
        .iter()
        .flat_map(|l| [&l.a, &l.b])
        .filter(|e| own(e))
        .map(|e| e.ip().to_owned())
        .collect();
    topology.node.remove(node);
    topology.link.retain(|l| !own(&l.a) && !own(&l.b));
    topology
        .ready
        .retain(|p| p.node != node && !p.command.iter().any(|word| addresses.contains(word)));
}

impl Running {
    /// Brings a lab up.
    ///
    /// # Errors
    /// The topology cannot be read, or the lab does not come up.
    pub fn up(context: &Context, wanted: Wanted) -> Result<Running> {
        Running::up_changed(context, wanted, |_| {})
    }

    /// The same with a change to the topology.
    ///
    /// # Errors
    /// As [`Running::up`].
    pub fn up_changed(
        context: &Context,
        wanted: Wanted,
        change: impl FnOnce(&mut Topology),
    ) -> Result<Running> {
        let path = context.places.root.join(wanted.file);
        let mut topology = Topology::read(&path)?;
        change(&mut topology);
        compile_once(&mut topology, &context.places.output);
        let mut vars: BTreeMap<String, String> = wanted
            .vars
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        vars.insert("stateplane".to_owned(), context.places.stateplane.display().to_string());
        let options = Options {
            name: Some(format!(
                "bench-{}-{}",
                std::process::id(),
                NUMBER.fetch_add(1, Ordering::Relaxed)
            )),
            mode: Some(wanted.mode.to_owned()).filter(|mode| !mode.is_empty()),
            vars,
            prefer: wanted.prefer.map(str::to_owned),
            owned: true,
        };
        let directory = path.parent().unwrap_or(Path::new("."));
        let lab = Lab::up(topology, directory, options, &|_| {})
            .with_context(|| format!("lab {} ({})", wanted.file, wanted.mode))?;
        for (_, daemon) in lab.topology().node.keys().flat_map(|node| lab.daemons(node)) {
            contention::daemon_first(daemon.pid);
        }
        Ok(Running(lab))
    }

    /// Process IDs of all daemons of a name.
    pub fn daemons_named(&self, name: &str) -> Vec<i32> {
        let all = self.topology().node.keys().flat_map(|node| self.daemons(node));
        all.filter(|(daemon, _)| daemon == name).map(|(_, identity)| identity.pid).collect()
    }

    /// The only port of a host, and its address.
    ///
    /// # Errors
    /// The node has none, or several.
    pub fn host_port(&self, node: &str) -> Result<(String, Ipv4Addr)> {
        let mut ports = self
            .topology()
            .ports(node)
            .map(|(name, own, ..)| (name.to_owned(), own.ip().to_owned()));
        match (ports.next(), ports.next()) {
            (Some((name, address)), None) => Ok((name, address.parse()?)),
            _ => anyhow::bail!("node {node} must have one port"),
        }
    }

    /// Runs a command in a node; its output.
    ///
    /// # Errors
    /// It cannot be run, or fails.
    pub fn run(&self, node: &str, command: &[&str]) -> Result<String> {
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let (good, said) = lab::process::run(Some(&self.netns(node)?), &command)?;
        if !good {
            anyhow::bail!("{node}: {}: {}", command.join(" "), said.trim());
        }
        Ok(said)
    }

    /// Adds `count` addresses to a host. Returns all of its addresses, the original first.
    ///
    /// # Errors
    /// The host does not have exactly one port, or an address is refused.
    pub fn add_addresses(&self, node: &str, count: u32) -> Result<Vec<Ipv4Addr>> {
        let (port, own) = self.host_port(node)?;
        let addresses: Vec<Ipv4Addr> =
            (0..=count).map(|i| Ipv4Addr::from(u32::from(own) + i)).collect();
        let lines: Vec<String> =
            addresses[1..].iter().map(|a| format!("addr add {a}/24 dev {port}")).collect();
        self.netns(node)?.ip_batch(&lines)?;
        Ok(addresses)
    }
}
