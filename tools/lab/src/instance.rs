//! A lab that is up: its run directory, its failures and their repair, and its end.
//!
//! Everything about a lab is in its run directory `/run/stateplane/labs/NAME`, written before the
//! first namespace is made, so that `lab down` works from there whatever happened:
//!
//! ```text
//! lab.json          name, mode, variables, topology, namespaces, directories of state, owner
//! nodes/NODE/       bird.conf, bird.ctl, DAEMON.toml, DAEMON.log, DAEMON.pid, failed
//! ```

use crate::build;
use crate::error::{Error, Result};
use crate::process::{self, Identity};
use crate::registry::{self, remove_state};
use crate::template::expand;
use crate::topology::{Node, Role, Topology, in_mode};
use netns::Netns;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where run directories are.
pub const LABS_DIR: &str = "/run/stateplane/labs";
/// Where the logs of labs that did not come up are kept, a folder for each name. The next failure
/// of that name replaces it.
pub const FAILED_LABS_DIR: &str = "/run/stateplane/failed-labs";

/// How to bring a lab up.
#[derive(Default)]
pub struct Options {
    /// The lab's name; by default the topology's, with a number if that is taken.
    pub name: Option<String>,
    /// The mode; by default the topology's first.
    pub mode: Option<String>,
    /// Values for `${name}`, over those of the topology.
    pub vars: BTreeMap<String, String>,
    /// Overrides the topology's `prefer`; an empty string means equal paths (ECMP).
    pub prefer: Option<String>,
    /// The lab belongs to this process: once the process is gone, the lab counts as left over.
    pub owned: bool,
}

/// What `lab.json` holds.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Record {
    name: String,
    mode: String,
    /// Values for `${name}` in every node.
    vars: BTreeMap<String, String>,
    /// Those of them that a node's own do not replace: given at `up`, and the lab's own.
    #[serde(default)]
    fixed: BTreeMap<String, String>,
    topology: Topology,
    /// Node name to namespace name.
    netns: BTreeMap<String, String>,
    /// Node name to the directories of its daemons' state.
    #[serde(default)]
    state: BTreeMap<String, Vec<PathBuf>>,
    owner: Option<Identity>,
}

/// A lab in being.
#[derive(Debug)]
pub struct Lab {
    record: Record,
    dir: PathBuf,
    /// Its logs go if a step fails now.
    coming_up: bool,
}

impl Lab {
    /// Brings a lab up and waits until its daemons are ready and its routing has converged. If that
    /// fails, only its logs are left, in [`FAILED_LABS_DIR`]. `progress` is told each step.
    ///
    /// # Errors
    /// Not root, a program is missing, the mode, a variable or the preferred node is unknown, or a
    /// step fails.
    pub fn up(
        topology: Topology,
        topology_dir: &Path,
        options: Options,
        progress: &dyn Fn(&str),
    ) -> Result<Self> {
        check_options(&topology, &options)?;
        require_root()?;
        require_programs(&topology)?;
        registry::remove_left_over(progress)?;
        let mut lab = Self::prepare(topology, topology_dir, options, progress)?;
        lab.coming_up = std::env::var_os("STATEPLANE_LAB_KEEP").is_none();
        match lab.build(progress) {
            Ok(()) => {
                lab.coming_up = false;
                Ok(lab)
            }
            Err(error) if lab.coming_up => Err(lab.give_up(error)),
            Err(error) => Err(error),
        }
    }

    /// Takes down a lab that did not come up, but for its logs; the error says where they are.
    fn give_up(&self, error: Error) -> Error {
        let logs = Path::new(FAILED_LABS_DIR).join(self.name());
        let kept = !matches!(error, Error::Interrupted)
            && self.has_logs()
            && self.move_nodes(&logs).is_ok();
        // The first error is the one to report.
        let _ = self.down();
        if kept { Error::Up { error: Box::new(error), logs } } else { error }
    }

    fn has_logs(&self) -> bool {
        let nodes = std::fs::read_dir(self.dir.join("nodes")).into_iter().flatten().flatten();
        let mut files =
            nodes.flat_map(|node| std::fs::read_dir(node.path()).into_iter().flatten().flatten());
        files.any(|file| file.path().extension().is_some_and(|ending| ending == "log"))
    }

    fn move_nodes(&self, to: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(FAILED_LABS_DIR)?;
        if to.exists() {
            std::fs::remove_dir_all(to)?;
        }
        std::fs::rename(self.dir.join("nodes"), to)
    }

    /// Where to look when something does not come about. Nothing while the lab comes up:
    /// [`Error::Up`] says it then.
    pub fn logs_hint(&self) -> String {
        if self.coming_up {
            String::new()
        } else {
            format!("logs are in {}", self.dir.join("nodes").display())
        }
    }

    /// Writes the run directory.
    fn prepare(
        mut topology: Topology,
        topology_dir: &Path,
        options: Options,
        progress: &dyn Fn(&str),
    ) -> Result<Self> {
        if let Some(prefer) = options.prefer {
            topology.prefer = Some(prefer).filter(|p| !p.is_empty());
        }
        let mode = options.mode.unwrap_or_else(|| topology.default_mode().to_string());
        let name = match options.name {
            Some(name) => {
                registry::check_lab_name(&name)?;
                if Path::new(LABS_DIR).join(&name).exists() {
                    progress(&format!("a lab {name} is there: taking it down first"));
                    registry::down(&name)?;
                }
                name
            }
            None => registry::free_name(&topology.name),
        };
        if !mode.is_empty() && !topology.modes.contains(&mode) {
            return Err(Error::Unknown {
                lab: name,
                kind: "mode",
                name: mode,
                known: topology.modes.join(", "),
            });
        }
        let dir = Path::new(LABS_DIR).join(&name);
        std::fs::create_dir_all(LABS_DIR).map_err(Error::io(LABS_DIR))?;
        std::fs::create_dir(&dir).map_err(Error::io(&dir))?;
        let exe = std::env::current_exe().map_err(Error::system("finding this program's path"))?;
        let mut fixed = options.vars;
        fixed.entry("stateplane".to_string()).or_insert_with(|| exe.display().to_string());
        fixed.insert("lab".to_string(), name.clone());
        fixed.insert("lab_dir".to_string(), dir.display().to_string());
        fixed.insert("mode".to_string(), mode.clone());
        fixed.insert("topology_dir".to_string(), topology_dir.display().to_string());
        let mut vars = topology.vars_in(&mode);
        vars.extend(fixed.clone());
        let netns =
            topology.node.keys().map(|node| (node.clone(), format!("sp-{name}-{node}"))).collect();
        let owner = if options.owned { Identity::of(std::process::id() as i32) } else { None };
        let state = BTreeMap::new();
        let record = Record { name, mode, vars, fixed, topology, netns, state, owner };
        let mut lab = Self { record, dir, coming_up: false };
        match lab.state_dirs() {
            Ok(state) => lab.record.state = state,
            Err(error) => {
                // Nothing else has been made yet.
                let _ = std::fs::remove_dir_all(&lab.dir);
                return Err(error);
            }
        }
        lab.write_record()?;
        Ok(lab)
    }

    /// The directories of each node's state. Only below `/run/stateplane`: the lab removes them.
    fn state_dirs(&self) -> Result<BTreeMap<String, Vec<PathBuf>>> {
        let mut state = BTreeMap::new();
        for (node, spec) in &self.topology().node {
            let field = format!("node.{node}.state");
            let paths = self.expand_all(&field, &spec.state, &self.variables(node))?;
            for path in &paths {
                let name = path.strip_prefix("/run/stateplane/").unwrap_or("");
                if name.is_empty()
                    || ["labs", "failed-labs"].contains(&name)
                    || name.contains('/')
                    || name.starts_with('.')
                {
                    let reason =
                        format!("\"{path}\" is not a directory directly below /run/stateplane");
                    return Err(self.bad_field(&field, reason));
                }
            }
            state.insert(node.clone(), paths.into_iter().map(PathBuf::from).collect());
        }
        Ok(state)
    }

    fn write_record(&self) -> Result<()> {
        let path = self.dir.join("lab.json");
        let partial = self.dir.join("lab.json.part");
        let text = serde_json::to_vec_pretty(&self.record)
            .map_err(|e| Error::io(&path)(std::io::Error::other(e)))?;
        std::fs::write(&partial, text).map_err(Error::io(&partial))?;
        std::fs::rename(&partial, &path).map_err(Error::io(&path))
    }

    fn build(&self, progress: &dyn Fn(&str)) -> Result<()> {
        let nodes: Vec<&String> = self.topology().node.keys().collect();
        progress(&format!(
            "lab {}: {} namespaces and {} links",
            self.name(),
            nodes.len(),
            self.topology().link.len()
        ));
        for node in &nodes {
            let folder = self.node_dir(node);
            std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        }
        build::network(self.topology(), &self.record.netns)?;
        if !self.topology().build.is_empty() {
            progress("building the programs that the daemons load");
            self.run_commands("build", &self.topology().build, &self.record.vars, None)?;
        }
        progress("starting daemons");
        for node in &nodes {
            self.start_daemons(node)?;
        }
        for node in &nodes {
            self.wait_ready(node, || self.check_all_alive())?;
        }
        for node in &nodes {
            self.start_bird(node)?;
        }
        progress("waiting for BGP and BFD");
        self.wait_converged(&nodes)?;
        self.wait_routes_settled()?;
        self.wait_probes(progress)
    }

    /// Opens a lab that is up.
    ///
    /// # Errors
    /// There is none of that name, or its record cannot be read (then `lab down` still works).
    pub fn open(name: &str) -> Result<Self> {
        let dir = Path::new(LABS_DIR).join(name);
        if !dir.exists() {
            return Err(registry::no_lab(name));
        }
        let path = dir.join("lab.json");
        let text = std::fs::read(&path).map_err(Error::io(&path))?;
        let record = serde_json::from_slice(&text).map_err(|e| {
            Error::NoLab(format!(
                "{}: {e}; stateplane lab down --name {name} removes it",
                path.display()
            ))
        })?;
        Ok(Self { record, dir, coming_up: false })
    }

    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// The lab's mode.
    pub fn mode(&self) -> &str {
        &self.record.mode
    }

    /// The lab's topology.
    pub fn topology(&self) -> &Topology {
        &self.record.topology
    }

    /// The run directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What taking it down must remove: the names of its namespaces, and the directories of its
    /// daemons' state.
    pub fn into_namespaces_and_state(self) -> (Vec<String>, Vec<PathBuf>) {
        let Record { netns, state, .. } = self.record;
        (netns.into_values().collect(), state.into_values().flatten().collect())
    }

    /// The directories of the state of a node's daemons.
    pub fn state_of(&self, node: &str) -> &[PathBuf] {
        self.record.state.get(node).map_or(&[], Vec::as_slice)
    }

    /// The process that the lab belongs to, if it belongs to one.
    pub(crate) fn owner(&self) -> Option<Identity> {
        self.record.owner
    }

    /// The namespace of a node.
    ///
    /// # Errors
    /// No such node, or its namespace is gone.
    pub fn netns(&self, node: &str) -> Result<Netns> {
        self.node(node)?;
        let name = self.record.netns.get(node).cloned().unwrap_or_default();
        Ok(Netns::open(&name)?)
    }

    /// A node's part of the topology.
    ///
    /// # Errors
    /// No such node.
    pub fn node(&self, name: &str) -> Result<&Node> {
        self.topology().node.get(name).ok_or_else(|| Error::Unknown {
            lab: self.name().to_string(),
            kind: "node",
            name: name.to_string(),
            known: self.topology().node.keys().cloned().collect::<Vec<_>>().join(", "),
        })
    }

    /// A node's folder: configurations, logs, PID files.
    pub fn node_dir(&self, node: &str) -> PathBuf {
        self.dir.join("nodes").join(node)
    }

    /// The control socket of a node's BIRD.
    pub fn bird_socket(&self, node: &str) -> PathBuf {
        self.node_dir(node).join("bird.ctl")
    }

    /// Whether `fail` killed the node and `restore` has not been called.
    pub fn is_failed(&self, node: &str) -> bool {
        self.node_dir(node).join("failed").exists()
    }

    /// The daemons that were started in a node, BIRD last.
    pub fn daemons(&self, node: &str) -> Vec<(String, Identity)> {
        let Ok(spec) = self.node(node) else { return Vec::new() };
        let of_mode = spec.daemon.iter().filter(|d| in_mode(&d.modes, self.mode()));
        let names = of_mode.map(|d| d.name.as_str()).chain(std::iter::once("bird"));
        names
            .filter_map(|daemon| {
                let text = std::fs::read(self.node_dir(node).join(format!("{daemon}.pid"))).ok()?;
                Some((daemon.to_string(), serde_json::from_slice(&text).ok()?))
            })
            .collect()
    }

    /// The values of `${name}` in a node's texts.
    pub fn variables(&self, node: &str) -> BTreeMap<String, String> {
        let mut vars = self.record.vars.clone();
        if let Some(spec) = self.topology().node.get(node) {
            vars.extend(spec.vars.clone());
            vars.extend(self.record.fixed.clone());
            if let Some(loopback) = &spec.loopback {
                let ip = loopback.split('/').next().unwrap_or(loopback);
                vars.insert("loopback".to_string(), ip.to_string());
            }
        }
        vars.insert("node".to_string(), node.to_string());
        vars.insert("node_dir".to_string(), self.node_dir(node).display().to_string());
        vars
    }

    /// The texts of a `field` with the values of `${name}` in their places.
    pub fn expand_all(
        &self,
        field: &str,
        texts: &[String],
        vars: &BTreeMap<String, String>,
    ) -> Result<Vec<String>> {
        texts
            .iter()
            .map(|text| expand(text, vars).map_err(|reason| self.bad_field(field, reason)))
            .collect()
    }

    pub(crate) fn bad_field(&self, field: &str, reason: String) -> Error {
        Error::Topology {
            file: PathBuf::from(format!("topology {}", self.topology().name)),
            field: field.to_string(),
            reason,
        }
    }

    /// Takes all ports of a node down: both ends lose the carrier. Its processes live.
    ///
    /// # Errors
    /// No such node, or the kernel refuses.
    pub fn cut(&self, name: &str) -> Result<()> {
        Ok(self.netns(name)?.ip_batch(&build::down_lines(self.topology(), name))?)
    }

    /// Kills a node as a power cut does: SIGKILL to every process in it and its ports down, within
    /// milliseconds. What it held in the kernel (pinned programs and maps) is gone too.
    ///
    /// # Errors
    /// No such node, or a process does not die.
    pub fn fail(&self, name: &str) -> Result<()> {
        let netns = self.netns(name)?;
        let mark = self.node_dir(name).join("failed");
        std::fs::write(&mark, "").map_err(Error::io(&mark))?;
        process::signal_all(&netns);
        self.cut(name)?;
        process::wait_gone(&netns)?;
        // Those that this process started stay zombies until it asks for them.
        for (_, identity) in self.daemons(name) {
            let _ = identity.alive();
        }
        for state in self.record.state.get(name).into_iter().flatten() {
            remove_state(state)?;
        }
        let wipe = &self.node(name)?.wipe;
        self.run_commands(&format!("node.{name}.wipe"), wipe, &self.variables(name), Some(&netns))?;
        // Programs attached without a link outlive their loader; a dead switch has none.
        for (dev, ..) in self.topology().ports(name) {
            if self.node(name)?.role == Role::Switch {
                let off = format!("ip link set dev {dev} xdp off")
                    .split(' ')
                    .map(str::to_string)
                    .collect::<Vec<_>>();
                process::run(Some(&netns), &off)?;
            }
        }
        Ok(())
    }

    /// Brings a failed node back: ports up, daemons started from nothing and ready, then BIRD.
    /// Routing converges later: [`Lab::wait_converged`].
    ///
    /// # Errors
    /// No such node, or a daemon does not start.
    pub fn restore(&self, name: &str) -> Result<()> {
        let node = self.node(name)?;
        let netns = self.netns(name)?;
        process::kill_all(&netns)?;
        let mark = self.node_dir(name).join("failed");
        let _ = std::fs::remove_file(mark);
        netns.ip_batch(&build::up_lines(self.topology(), name, node))?;
        build::set_offloads(self.topology(), name, &netns)?;
        self.start_daemons(name)?;
        self.wait_daemons_ready(name)?;
        self.start_bird(name)
    }

    /// Takes the link between two nodes down or up, at both ends. With an interface goes what hangs
    /// on it (IPv6 addresses, routes): the nodes' routes and `setup` bring it back.
    ///
    /// # Errors
    /// No such link.
    pub fn set_link(&self, a: &str, b: &str, up: bool) -> Result<()> {
        if !self.topology().link.iter().any(|l| l.joins(a, b)) {
            let known: Vec<String> =
                self.topology().link.iter().map(|l| format!("{} {}", l.a.node, l.b.node)).collect();
            return Err(Error::Unknown {
                lab: self.name().to_string(),
                kind: "link",
                name: format!("{a} {b}"),
                known: known.join(", "),
            });
        }
        for (node, dev) in [(a, b), (b, a)] {
            let spec = self.node(node)?;
            let netns = self.netns(node)?;
            netns.ip_batch(&[format!("link set dev {dev} {}", if up { "up" } else { "down" })])?;
            for route in spec.routes.iter().filter(|_| up) {
                // (One over a link that is still down comes with that link.)
                let _ = netns.ip_batch(&[format!("route replace {route}")]);
            }
        }
        for node in [a, b].into_iter().filter(|_| up) {
            self.set_up(node)?;
        }
        Ok(())
    }

    /// Takes the lab down.
    ///
    /// # Errors
    /// As [`registry::down`].
    pub fn down(&self) -> Result<()> {
        registry::down(self.name())
    }
}

/// Takes a lab down when it goes out of scope, whatever happened.
pub struct Running(pub Lab);

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.0.down() {
            eprintln!("taking down lab {}: {error}", self.0.name());
        }
    }
}

/// Are there the variables and the node that the options name? A misspelt one would leave
/// everything as it was, and nobody would know.
fn check_options(topology: &Topology, options: &Options) -> Result<()> {
    let unknown = |kind: &'static str, name: &str, known: Vec<&str>| Error::Unknown {
        lab: options.name.clone().unwrap_or_else(|| topology.name.clone()),
        kind,
        name: name.to_owned(),
        known: known.join(", "),
    };
    let variables = topology.variables();
    if let Some(name) = options.vars.keys().find(|name| !variables.contains(*name)) {
        return Err(unknown("variable", name, variables.iter().map(String::as_str).collect()));
    }
    match options.prefer.as_deref() {
        Some(prefer) if !prefer.is_empty() && !topology.node.contains_key(prefer) => {
            Err(unknown("node", prefer, topology.node.keys().map(String::as_str).collect()))
        }
        _ => Ok(()),
    }
}

pub(crate) fn require_root() -> Result<()> {
    if nix::unistd::geteuid().is_root() { Ok(()) } else { Err(Error::NotRoot) }
}

fn require_programs(topology: &Topology) -> Result<()> {
    let mut needed = vec![("ip", "iproute2"), ("ethtool", "ethtool")];
    if topology.node.values().any(|n| n.asn.is_some()) {
        needed.extend([("bird", "bird2"), ("birdc", "bird2")]);
    }
    for (program, package) in needed {
        require_program(program, package)?;
    }
    Ok(())
}

/// Checks that a program is in PATH (or in the system's `sbin` folders, which a bare `sudo` may
/// leave out).
///
/// # Errors
/// It is not: the error names the Debian package.
pub fn require_program(program: &str, package: &str) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    if found {
        return Ok(());
    }
    Err(Error::Missing { program: program.to_string(), package: package.to_string() })
}
