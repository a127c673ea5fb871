//! The processes of a lab's nodes: started with rendered configurations, waited for, reported with
//! the end of their logs.

use crate::bird;
use crate::error::{Error, Result};
use crate::instance::Lab;
use crate::interrupt;
use crate::process;
use crate::template::expand;
use crate::topology::{Daemon, Setup, in_mode};
use netns::Netns;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a daemon may take to be ready, in seconds. (A switch's program is verified first: some
/// 4 s of a CPU beside tests, of which hosts that send at full speed leave little.)
const READY_TIMEOUT_S: u64 = 60;
/// How long routing may take to converge, in seconds.
const CONVERGE_TIMEOUT_S: u64 = 30;
/// Routes that have not changed for so long count as settled.
const SETTLED: Duration = Duration::from_millis(250);
/// The shortest and the longest interval between two looks at something awaited: a look costs CPU
/// time that the lab's daemons want.
const POLL: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(100));

impl Lab {
    /// Runs those of a list of commands that belong to the lab's mode.
    pub(crate) fn run_commands(
        &self,
        at: &str,
        commands: &[Setup],
        vars: &BTreeMap<String, String>,
        netns: Option<&Netns>,
    ) -> Result<()> {
        for (i, setup) in commands.iter().enumerate() {
            if !in_mode(&setup.modes, self.mode()) {
                continue;
            }
            let command = self.expand_all(&format!("{at}[{i}].command"), &setup.command, vars)?;
            let (good, said) = process::run(netns, &command)?;
            if !good && interrupt::requested() {
                // Ctrl-C goes to the command too.
                return Err(Error::Interrupted);
            }
            if !good {
                return Err(Error::Command {
                    command: format!("{at}[{i}] ({})", command.join(" ")),
                    reason: said,
                });
            }
        }
        Ok(())
    }

    /// Runs a node's `setup`.
    pub(crate) fn set_up(&self, name: &str) -> Result<()> {
        let setup = &self.node(name)?.setup;
        self.run_commands(
            &format!("node.{name}.setup"),
            setup,
            &self.variables(name),
            Some(&self.netns(name)?),
        )
    }

    pub(crate) fn start_daemons(&self, name: &str) -> Result<()> {
        let netns = self.netns(name)?;
        let vars = self.variables(name);
        let spec = self.node(name)?;
        self.set_up(name)?;
        for daemon in spec.daemon.iter().filter(|d| in_mode(&d.modes, self.mode())) {
            self.start_daemon(name, &netns, daemon, &vars)?;
        }
        Ok(())
    }

    /// Kills one daemon of a node (SIGKILL) and waits until it is gone; the rest of the node goes
    /// on.
    ///
    /// # Errors
    /// The node has no such daemon, or it does not run.
    pub fn kill_daemon(&self, node: &str, daemon: &str) -> Result<()> {
        self.node(node)?;
        let Some((_, identity)) = self.daemons(node).into_iter().find(|(name, _)| name == daemon)
        else {
            return Err(self.no_daemon(node, daemon));
        };
        if !identity.alive() {
            let reason = "does not run, so it cannot be killed".to_string();
            return Err(self.with_log(
                Error::Command { command: format!("{node}: {daemon}"), reason },
                node,
                daemon,
            ));
        }
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(identity.pid),
            nix::sys::signal::Signal::SIGKILL,
        )
        .map_err(|e| {
            Error::system(format!("killing {node}'s {daemon}, process {}", identity.pid))(e.into())
        })?;
        // Its first thread may be gone (a zombie) while another, in a system call, still holds its
        // files and locks: not so once it is collected.
        let process = PathBuf::from(format!("/proc/{}", identity.pid));
        self.wait(READY_TIMEOUT_S, &format!("{node}: {daemon} did not die"), || {
            Ok(!identity.alive() && !process.exists())
        })
    }

    /// Starts a daemon of a node again, as `up` did, and waits until it is ready, or BIRD's
    /// sessions are up.
    ///
    /// # Errors
    /// The node has no such daemon, it still runs, or it is not ready in time.
    pub fn restart_daemon(&self, node: &str, daemon: &str) -> Result<()> {
        if self.daemons(node).iter().any(|(name, identity)| name == daemon && identity.alive()) {
            return Err(Error::Command {
                command: format!("{node}: {daemon}"),
                reason: "runs already".to_string(),
            });
        }
        if daemon == "bird" && self.node(node)?.asn.is_some() {
            self.start_bird(node)?;
            return self.wait_converged(&[node]);
        }
        let of_mode = |d: &&Daemon| d.name == daemon && in_mode(&d.modes, self.mode());
        let spec = self
            .node(node)?
            .daemon
            .iter()
            .find(of_mode)
            .ok_or_else(|| self.no_daemon(node, daemon))?;
        self.start_daemon(node, &self.netns(node)?, spec, &self.variables(node))?;
        self.wait_daemons_ready(node)
    }

    fn no_daemon(&self, node: &str, daemon: &str) -> Error {
        Error::Unknown {
            lab: self.name().to_string(),
            kind: "daemon",
            name: format!("{node} {daemon}"),
            known: self
                .daemons(node)
                .into_iter()
                .map(|(name, _)| format!("{node} {name}"))
                .collect::<Vec<_>>()
                .join(", "),
        }
    }

    fn start_daemon(
        &self,
        node: &str,
        netns: &Netns,
        daemon: &Daemon,
        vars: &BTreeMap<String, String>,
    ) -> Result<()> {
        let at = format!("node.{node}.daemon.{}", daemon.name);
        let mut vars = vars.clone();
        let config = self.node_dir(node).join(format!("{}.toml", daemon.name));
        if let Some(text) = &daemon.config {
            let text =
                expand(text, &vars).map_err(|r| self.bad_field(&format!("{at}.config"), r))?;
            std::fs::write(&config, text).map_err(Error::io(&config))?;
        }
        vars.insert("config".to_string(), config.display().to_string());
        let command = self.expand_all(&format!("{at}.command"), &daemon.command, &vars)?;
        self.spawn(node, netns, &daemon.name, &command)
    }

    fn spawn(&self, node: &str, netns: &Netns, name: &str, command: &[String]) -> Result<()> {
        // BFD gives up after 100 ms: on a machine with other work all routes would go.
        let start = if name == "bird" { process::spawn_first } else { process::spawn };
        let identity = start(netns, command, &self.log(node, name))?;
        let path = self.node_dir(node).join(format!("{name}.pid"));
        let text = serde_json::to_vec(&identity)
            .map_err(|e| Error::io(&path)(std::io::Error::other(e)))?;
        std::fs::write(&path, text).map_err(Error::io(&path))
    }

    /// The log of a daemon.
    pub fn log(&self, node: &str, daemon: &str) -> PathBuf {
        self.node_dir(node).join(format!("{daemon}.log"))
    }

    pub(crate) fn start_bird(&self, name: &str) -> Result<()> {
        let Some(config) = bird::config(self.topology(), name, self.node(name)?, self.mode())
        else {
            return Ok(());
        };
        let dir = self.node_dir(name);
        let path = dir.join("bird.conf");
        std::fs::write(&path, config).map_err(Error::io(&path))?;
        // Left by a BIRD that was killed.
        let _ = std::fs::remove_file(self.bird_socket(name));
        let text = |p: PathBuf| p.display().to_string();
        let command = [
            "bird".to_string(),
            "-f".to_string(),
            "-c".to_string(),
            text(path),
            "-s".to_string(),
            text(self.bird_socket(name)),
            "-P".to_string(),
            text(dir.join("bird.run")),
        ];
        self.spawn(name, &self.netns(name)?, "bird", &command)
    }

    /// Waits until a node's daemons are ready.
    pub fn wait_daemons_ready(&self, node: &str) -> Result<()> {
        self.wait_ready(node, || Ok(()))
    }

    /// Waits until a node's daemons are ready; `others` may find that this is in vain.
    pub(crate) fn wait_ready(&self, node: &str, others: impl Fn() -> Result<()>) -> Result<()> {
        let netns = self.netns(node)?;
        let vars = self.variables(node);
        for daemon in &self.node(node)?.daemon {
            if !in_mode(&daemon.modes, self.mode()) || daemon.ready.is_empty() {
                continue;
            }
            let at = format!("node.{node}.daemon.{}.ready", daemon.name);
            let mut vars = vars.clone();
            let config = self.node_dir(node).join(format!("{}.toml", daemon.name));
            vars.insert("config".to_string(), config.display().to_string());
            let command = self.expand_all(&at, &daemon.ready, &vars)?;
            let what = format!("{node}: {} is not ready", daemon.name);
            let mut said = String::new();
            let waited = self.wait(READY_TIMEOUT_S, &what, || {
                let (ready, text) = process::run(Some(&netns), &command)?;
                if ready {
                    return Ok(true);
                }
                said = text;
                self.check_alive(node, &daemon.name)?;
                others()?;
                Ok(false)
            });
            waited.map_err(|error| {
                let error = match error {
                    Error::Timeout { what, seconds, hint } => {
                        let what = format!("{what} ({:?} says: {})", command, said.trim());
                        Error::Timeout { what, seconds, hint }
                    }
                    other => other,
                };
                self.with_log(error, node, &daemon.name)
            })?;
        }
        Ok(())
    }

    fn check_alive(&self, node: &str, daemon: &str) -> Result<()> {
        let dead = self.daemons(node).iter().any(|(name, id)| name == daemon && !id.alive());
        if dead {
            return Err(self.with_log(Error::Exited, node, daemon));
        }
        Ok(())
    }

    /// That all that was started lives: who waits for a daemon may wait for what another one, which
    /// has ended, would have done.
    pub(crate) fn check_all_alive(&self) -> Result<()> {
        for node in self.topology().node.keys() {
            for (daemon, _) in self.daemons(node) {
                self.check_alive(node, &daemon)?;
            }
        }
        Ok(())
    }

    /// Adds the end of a daemon's log to an error about it: the run directory may be gone when it
    /// is read.
    fn with_log(&self, error: Error, node: &str, daemon: &str) -> Error {
        let log = std::fs::read_to_string(self.log(node, daemon)).unwrap_or_default();
        // BIRD traces each step of its state machines: the log file has them.
        let lines: Vec<&str> = log.lines().filter(|line| !line.contains("<TRACE>")).collect();
        let tail = lines[lines.len().saturating_sub(12)..].join("\n  ");
        match error {
            Error::Interrupted | Error::Daemon { .. } => error,
            other => Error::Daemon {
                what: other.to_string(),
                at: format!("{node}: {daemon}"),
                log: tail,
            },
        }
    }

    /// Waits until every BGP and BFD session of these nodes is up.
    ///
    /// # Errors
    /// They are not within [`CONVERGE_TIMEOUT_S`], or the process is to stop.
    pub fn wait_converged<S: AsRef<str>>(&self, nodes: &[S]) -> Result<()> {
        for node in nodes {
            let node = node.as_ref();
            let asn = |name: &str| self.topology().node.get(name).and_then(|n| n.asn);
            if asn(node).is_none() {
                continue;
            }
            let neighbours =
                self.topology().ports(node).filter(|(dev, ..)| asn(dev).is_some()).count();
            let socket = self.bird_socket(node);
            let up = |sessions: Option<Vec<bird::Session>>| {
                sessions.is_some_and(|s| s.iter().filter(|s| s.up).count() == neighbours)
            };
            let what = format!("{node}: BGP and BFD to {neighbours} neighbours are not up");
            self.wait(CONVERGE_TIMEOUT_S, &what, || {
                self.check_alive(node, "bird")?;
                Ok(up(bird::bgp_sessions(&socket)) && up(bird::bfd_sessions(&socket)))
            })
            .map_err(|error| self.with_log(error, node, "bird"))?;
        }
        Ok(())
    }

    /// Waits until no route of any router has changed for [`SETTLED`].
    pub(crate) fn wait_routes_settled(&self) -> Result<()> {
        let mut routers = Vec::new();
        for (name, node) in &self.topology().node {
            if node.asn.is_some() {
                routers.push(self.netns(name)?);
            }
        }
        let command = ["ip", "route", "show"].map(str::to_string);
        let mut last = (Vec::new(), Instant::now());
        self.wait(CONVERGE_TIMEOUT_S, "routes still change", || {
            let mut routes = Vec::new();
            for netns in &routers {
                routes.push(process::run(Some(netns), &command)?.1);
            }
            if routes != last.0 {
                last = (routes, Instant::now());
            }
            Ok(last.1.elapsed() >= SETTLED)
        })
    }

    /// Waits until the topology's probes succeed.
    pub fn wait_probes(&self, progress: &dyn Fn(&str)) -> Result<()> {
        for (i, probe) in self.topology().ready.iter().enumerate() {
            if !in_mode(&probe.modes, self.mode()) {
                continue;
            }
            let vars = self.variables(&probe.node);
            let command = self.expand_all(&format!("ready[{i}].command"), &probe.command, &vars)?;
            let netns = self.netns(&probe.node)?;
            let text = command.join(" ");
            progress(&format!("waiting for {}: {text}", probe.node));
            let mut said = String::new();
            self.wait(
                READY_TIMEOUT_S,
                &format!("{}: \"{text}\" does not succeed", probe.node),
                || {
                    let (good, output) = process::run(Some(&netns), &command)?;
                    said = output;
                    Ok(good)
                },
            )
            .map_err(|error| match error {
                Error::Interrupted => error,
                other => Error::Command {
                    command: text.clone(),
                    reason: format!("{other}; it says: {said}"),
                },
            })?;
        }
        Ok(())
    }

    /// Asks `done` again and again until it says yes, at most for so many seconds; `what` is the
    /// error then.
    pub fn wait(
        &self,
        seconds: u64,
        what: &str,
        mut done: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let began = Instant::now();
        let deadline = began + Duration::from_secs(seconds);
        while !done()? {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            if Instant::now() > deadline {
                return Err(Error::Timeout {
                    what: what.to_string(),
                    seconds,
                    hint: self.logs_hint(),
                });
            }
            std::thread::sleep((began.elapsed() / 10).clamp(POLL.0, POLL.1));
        }
        Ok(())
    }
}
