//! The networks of the services: bringing them up, and killing a machine.

use crate::kv::System;
use crate::kv::failure::Plan;
use anyhow::{Context, Result, ensure};
use lab::instance::{Running, require_program};
use lab::{Lab, Options, Topology};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Several labs of a process can be up.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Where Debian's package has ZooKeeper.
const ZOOKEEPER: &str = "/usr/share/java/zookeeper.jar";

/// Topologies, and what they compile, with their places in the source tree.
const SOURCES: [(&str, &str); 8] = [
    ("tools/bench/setups/kv_switches.toml", include_str!("../../setups/kv_switches.toml")),
    ("tools/bench/setups/kv_servers.toml", include_str!("../../setups/kv_servers.toml")),
    (
        "systems/netchain/p4/netchain.p4",
        include_str!("../../../../systems/netchain/p4/netchain.p4"),
    ),
    (
        "systems/netchain/p4/include/message.p4",
        include_str!("../../../../systems/netchain/p4/include/message.p4"),
    ),
    (
        "systems/netchain/p4/include/slot.p4",
        include_str!("../../../../systems/netchain/p4/include/slot.p4"),
    ),
    (
        "systems/netchain/p4/include/list.p4",
        include_str!("../../../../systems/netchain/p4/include/list.p4"),
    ),
    (
        "systems/netchain/p4/include/collect.p4",
        include_str!("../../../../systems/netchain/p4/include/collect.p4"),
    ),
    (
        "systems/netchain/p4/include/parts.p4",
        include_str!("../../../../systems/netchain/p4/include/parts.p4"),
    ),
];

/// Where they are written to when there is no source tree around.
const FOLDER: &str = "/run/stateplane/builtin-kv";

/// Where things are.
#[derive(Clone, Debug)]
pub struct Site {
    /// The source tree.
    root: PathBuf,
    /// The `stateplane` program.
    stateplane: PathBuf,
}

impl Site {
    /// The source tree at `root`, and a `stateplane` program.
    pub fn new(root: PathBuf, stateplane: PathBuf) -> Site {
        Site { root, stateplane }
    }

    /// For the `stateplane` program itself: the source tree around it, or else what it was built
    /// with.
    ///
    /// # Errors
    /// That cannot be written.
    pub fn of_this_program() -> Result<Site> {
        let stateplane = std::env::current_exe().context("finding this program's path")?;
        if SOURCES.iter().all(|(path, _)| Path::new(path).exists()) {
            let root = std::env::current_dir().context("this folder")?;
            return Ok(Site { root, stateplane });
        }
        let root = PathBuf::from(FOLDER);
        write_sources(&root)?;
        Ok(Site { root, stateplane })
    }

    /// The `stateplane` program.
    pub fn stateplane(&self) -> &Path {
        &self.stateplane
    }
}

/// Writes what this program was built with, placed as in the source tree.
fn write_sources(root: &Path) -> Result<()> {
    for (path, text) in SOURCES {
        let path = root.join(path);
        let folder = path.parent().unwrap_or(root);
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Checks that the programs of a service are there.
///
/// # Errors
/// One is not: the error names its Debian package.
pub fn require(system: System) -> Result<()> {
    match system {
        System::Switches | System::Store => {}
        System::Etcd => require_program("etcd", "etcd-server")?,
        System::ZooKeeper => {
            require_program("java", "openjdk-17-jre-headless")?;
            if !Path::new(ZOOKEEPER).exists() {
                let (program, package) = (ZOOKEEPER.to_owned(), "zookeeper".to_owned());
                return Err(lab::Error::Missing { program, package }.into());
            }
        }
    }
    Ok(())
}

/// A network with a service, taken down when it goes out of scope.
pub struct Network {
    running: Running,
    stateplane: PathBuf,
}

impl Network {
    /// Brings it up.
    ///
    /// # Errors
    /// The topology cannot be read, or the lab does not come up.
    pub fn up(
        site: &Site,
        file: &str,
        mode: Option<&str>,
        vars: &[(&str, String)],
    ) -> Result<Network> {
        let path = site.root.join("tools/bench/setups").join(file);
        let topology = Topology::read(&path)?;
        let mut all: BTreeMap<String, String> =
            vars.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        all.insert("stateplane".to_owned(), site.stateplane.display().to_string());
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let options = Options {
            name: Some(format!("kv-{}-{number}", std::process::id())),
            mode: mode.map(str::to_owned),
            vars: all,
            prefer: None,
            owned: true,
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        let lab = Lab::up(topology, folder, options, &|_| {}).with_context(|| {
            format!("lab {file}{}", mode.map_or(String::new(), |it| format!(" ({it})")))
        })?;
        Ok(Network { running: Running(lab), stateplane: site.stateplane.clone() })
    }

    /// The lab.
    pub fn lab(&self) -> &Lab {
        &self.running.0
    }

    /// All processes in it.
    pub fn processes(&self) -> Vec<i32> {
        let lab = self.lab();
        let nodes = lab.topology().node.keys();
        nodes.filter_map(|node| Some(lab.netns(node).ok()?.processes())).flatten().collect()
    }

    /// Calls `work` in a thread in a node's namespace.
    ///
    /// # Errors
    /// The namespace cannot be entered, or `work` fails.
    pub fn inside<T: Send>(
        &self,
        node: &str,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        self.lab().netns(node)?.inside(work).context("the node's namespace")?
    }

    /// What `stateplane` prints in a node.
    ///
    /// # Errors
    /// It fails.
    pub fn stateplane(&self, node: &str, words: &[&str]) -> Result<String> {
        let mut command = vec![self.stateplane.display().to_string()];
        command.extend(words.iter().map(|word| (*word).to_owned()));
        let (good, said) = lab::process::run(Some(&self.lab().netns(node)?), &command)?;
        ensure!(good, "{}: {}", command.join(" "), said.trim());
        Ok(said)
    }

    /// From now on a node's links lose this share of all packets, each way, in its kernel.
    ///
    /// # Errors
    /// nftables refuses.
    pub fn lose(&self, node: &str, share: f64) -> Result<()> {
        let netns = self.lab().netns(node)?;
        let drop = format!("numgen random mod 1000000 < {:.0} drop", share * 1e6);
        let chain = |hook: &str| {
            format!(
                "add chain ip lossy {hook} {{ type filter hook {hook} priority 0; }}; add rule ip \
                 lossy {hook} {drop}; "
            )
        };
        let mut rules = "add table ip lossy; delete table ip lossy; ".to_owned();
        if share > 0.0 {
            rules += &format!("add table ip lossy; {}{}", chain("input"), chain("output"));
        }
        let (good, said) = lab::process::run(Some(&netns), &["nft".to_owned(), rules])?;
        ensure!(good, "nft: {}", said.trim());
        Ok(())
    }

    /// A power cut: all links of a node go down, then all its processes die. When that began, and
    /// when the last link was down.
    ///
    /// # Errors
    /// A link cannot be taken down.
    pub fn kill(&self, node: &str) -> Result<(Instant, Instant)> {
        let (lab, began) = (self.lab(), Instant::now());
        lab.cut(node)?;
        let cut = Instant::now();
        lab.fail(node)?;
        Ok((began, cut))
    }

    /// Starts a killed node again. When that began, and when its daemons were ready.
    ///
    /// # Errors
    /// A daemon does not start.
    pub fn restore(&self, node: &str) -> Result<(Instant, Instant)> {
        let began = Instant::now();
        self.lab().restore(node)?;
        Ok((began, Instant::now()))
    }
}

/// When the killing began and ended, and when the restart began and ended.
type Events = ((Instant, Instant), Option<(Instant, Instant)>);

/// Sleeps until a moment; whether nobody asked this process to stop.
fn wait_until(moment: Instant) -> bool {
    while Instant::now() < moment {
        if lab::interrupt::requested() {
            return false;
        }
        let left = moment.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
    true
}

/// Kills a node and starts it again, at the plan's times.
///
/// # Errors
/// The lab fails, or somebody asked this process to stop.
pub fn kill_and_restore(
    network: &Network,
    victim: &str,
    plan: &Plan,
    began: Instant,
) -> Result<Events> {
    ensure!(wait_until(began + plan.kill), "interrupted");
    let killed = network.kill(victim)?;
    ensure!(wait_until(began + plan.restore), "interrupted");
    let restored = network.restore(victim)?;
    ensure!(wait_until(began + plan.end), "interrupted");
    Ok((killed, Some(restored)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An installed program has all that the switch program includes.
    #[test]
    fn no_included_file_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        write_sources(root.path()).unwrap();
        let folder = root.path().join("systems/netchain/p4");
        let mut included = 0;
        for (path, text) in SOURCES.iter().filter(|(path, _)| path.ends_with(".p4")) {
            let names = text.lines().filter_map(|line| line.strip_prefix("#include \""));
            for name in names.filter_map(|rest| rest.split('"').next()) {
                assert!(folder.join(name).exists(), "{path} includes {name}");
                included += 1;
            }
        }
        assert!(included >= 5, "{included}");
    }
}
