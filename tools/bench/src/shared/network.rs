//! The lab of four switches, and their data planes.

use crate::contention;
use crate::shared::SWITCHES;
use anyhow::{Context, Result, bail, ensure};
use dataplane::Dataplane;
use lab::instance::Running;
use lab::netns::Netns;
use lab::{Lab, Options, Topology};
use manifest::Manifest;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use swish_sim::Program;
use swish_switch::group::Group;

/// Labs of this process: several can be up at a time.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The topology and what it compiles, with their places in the source tree.
const SOURCES: [(&str, &str); 3] = [
    (
        "systems/swish/lab/functions.toml",
        include_str!("../../../../systems/swish/lab/functions.toml"),
    ),
    (
        "systems/swish/p4/detector/detector.p4",
        include_str!("../../../../systems/swish/p4/detector/detector.p4"),
    ),
    (
        "systems/swish/p4/limiter/limiter.p4",
        include_str!("../../../../systems/swish/p4/limiter/limiter.p4"),
    ),
];
/// Where they are written to when there is no source tree around.
const FOLDER: &str = "/run/stateplane/builtin-functions";

/// How the topology's line that compiles the program begins.
const COMPILES: &str = r#"command = ["${stateplane}", "compile", "#;

/// A lab's command that copies a program, which is compiled already, to `${lab_dir}/NAME.o`.
///
/// # Errors
/// The manifest cannot be written.
pub fn copies(program: &Program, name: &str) -> Result<String> {
    let manifest = Manifest::path_for(&program.object);
    std::fs::write(&manifest, program.manifest.to_json())
        .with_context(|| manifest.display().to_string())?;
    let to = format!("${{lab_dir}}/{name}.o");
    let script = format!(
        "cp {} {to} && cp {} {}",
        program.object.display(),
        manifest.display(),
        Manifest::path_for(Path::new(&to)).display()
    );
    Ok(format!(r#""sh", "-c", "{script}""#))
}

/// A lab that is up; it goes down with this.
pub struct Network {
    running: Running,
}

fn topology() -> Result<PathBuf> {
    if SOURCES.iter().all(|(path, _)| Path::new(path).exists()) {
        return Ok(std::env::current_dir().context("this folder")?.join(SOURCES[0].0));
    }
    let root = Path::new(FOLDER);
    for (path, text) in SOURCES {
        let path = root.join(path);
        let folder = path.parent().unwrap_or(root);
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(root.join(SOURCES[0].0))
}

/// The lab in which the switches' sketches go to RedPlane's store, from the repository's root.
const SNAPSHOTS: &str = "tools/bench/setups/detector_snapshots.toml";

impl Network {
    /// Brings it up with the topology's values of variables, but for these. `stateplane`: the
    /// program.
    ///
    /// # Errors
    /// The lab does not come up.
    pub fn up(stateplane: &Path, mode: &str, vars: &[(&str, String)]) -> Result<Network> {
        Network::of(&topology()?, Some(mode), stateplane, vars)
    }

    /// The same with a program that is compiled already.
    ///
    /// # Errors
    /// The lab does not come up.
    pub fn up_compiled(
        stateplane: &Path,
        vars: &[(&str, String)],
        program: &Program,
    ) -> Result<Network> {
        let text = SOURCES[0].1;
        let compiles: Vec<&str> = text.lines().filter(|line| line.starts_with(COMPILES)).collect();
        let [compiles] = compiles[..] else { bail!("{} compiles otherwise", SOURCES[0].0) };
        let copies = format!("command = [{}]", copies(program, "function")?);
        let path = program.object.with_file_name("functions.toml");
        std::fs::write(&path, text.replace(compiles, &copies))
            .with_context(|| path.display().to_string())?;
        Network::of(&path, Some("shared"), stateplane, vars)
    }

    /// Brings up the same with RedPlane's store in the place of the controller, which merges the
    /// switches' snapshots. `root`: the repository.
    ///
    /// # Errors
    /// The lab does not come up.
    pub fn with_store(root: &Path, stateplane: &Path, vars: &[(&str, String)]) -> Result<Network> {
        Network::of(&root.join(SNAPSHOTS), None, stateplane, vars)
    }

    fn of(
        path: &Path,
        mode: Option<&str>,
        stateplane: &Path,
        vars: &[(&str, String)],
    ) -> Result<Network> {
        let program = ("stateplane".to_owned(), stateplane.display().to_string());
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let options = Options {
            name: Some(format!("functions-{}-{number}", std::process::id())),
            mode: mode.map(str::to_owned),
            vars: vars.chain([program]).collect::<BTreeMap<_, _>>(),
            prefer: None,
            owned: true,
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        let lab = Lab::up(Topology::read(path)?, folder, options, &|_| {})
            .with_context(|| format!("lab {} ({})", path.display(), mode.unwrap_or_default()))?;
        Ok(Network { running: Running(lab) })
    }

    /// The lab's folder.
    pub fn folder(&self) -> &Path {
        self.running.0.dir()
    }

    /// Puts the daemons, each of which has a session of its own, before others.
    pub fn daemons_first(&self) {
        let lab = &self.running.0;
        for (_, daemon) in lab.topology().node.keys().flat_map(|node| lab.daemons(node)) {
            contention::daemon_first(daemon.pid);
        }
    }

    /// The namespace of the node of a switch: `s`, `a` (behind port 0) or `v` (behind port 1).
    ///
    /// # Errors
    /// There is none.
    pub fn netns(&self, node: char, switch: usize) -> Result<Netns> {
        Ok(self.running.0.netns(&format!("{node}{}", switch + 1))?)
    }

    /// The namespace of the controller.
    ///
    /// # Errors
    /// There is none.
    pub fn controller(&self) -> Result<Netns> {
        Ok(self.running.0.netns("c")?)
    }

    /// What runs in a switch.
    ///
    /// # Errors
    /// Its agent did not leave it where agents do.
    pub fn dataplane(&self, switch: usize) -> Result<Dataplane> {
        let node = format!("s{}", switch + 1);
        let folder = PathBuf::from(format!("/run/stateplane/{}-{node}", self.running.0.name()));
        // (The agents are new: their first generation runs.)
        let manifest = Manifest::read(&folder.join("manifest-1.json"))?;
        Ok(Dataplane::open_pinned(&folder.join("bpf/g1"), manifest)?)
    }

    /// How long windows took, in us, at each switch: the upper ends of the histogram's buckets,
    /// sorted.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn windows_us(&self) -> Result<Vec<f64>> {
        let mut all = vec![];
        for switch in 0..SWITCHES {
            let dataplane = self.dataplane(switch)?;
            for group in Group::all(dataplane.manifest())? {
                for (end_ns, count) in group.window_times(&dataplane)? {
                    let count = usize::try_from(count).unwrap_or(usize::MAX);
                    all.extend(std::iter::repeat_n(end_ns as f64 / 1e3, count));
                }
            }
        }
        all.sort_by(f64::total_cmp);
        Ok(all)
    }

    /// The process of a switch's agent.
    ///
    /// # Errors
    /// It has ended.
    pub fn agent(&self, switch: usize) -> Result<i32> {
        let daemons = self.running.0.daemons(&format!("s{}", switch + 1));
        let agent = daemons.into_iter().find(|(name, _)| name == "switch");
        Ok(agent.context("the agent has ended")?.1.pid)
    }

    /// Bytes that have come over all links between switches, and to or from the controller, as the
    /// kernel counts them.
    ///
    /// # Errors
    /// The interfaces cannot be read.
    pub fn link_bytes(&self) -> Result<u64> {
        let mut all = 0;
        for switch in 0..SWITCHES {
            let (netns, name) = (self.netns('s', switch)?, format!("s{}", switch + 1));
            for (other, ..) in self.running.0.topology().ports(&name) {
                if other == "c" || other.starts_with('s') {
                    all += received(&netns, other)?;
                }
            }
            all += received(&self.controller()?, &name)?;
        }
        Ok(all)
    }

    /// Packets of blocked sources that the switches dropped.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn blocked_packets(&self) -> Result<u64> {
        let mut all = 0;
        for switch in 0..SWITCHES {
            let dataplane = self.dataplane(switch)?;
            all += dataplane.read_counter(dataplane.counter("blocked_packets")?, 0)?.packets;
        }
        Ok(all)
    }
}

/// Bytes that came in by an interface of a namespace.
fn received(netns: &Netns, name: &str) -> Result<u64> {
    let command = ["ip", "-json", "-s", "link", "show", "dev", name].map(str::to_owned);
    let (good, said) = lab::process::run(Some(netns), &command)?;
    ensure!(good, "{}: {}", command.join(" "), said.trim());
    let links: Value = serde_json::from_str(&said).context("what `ip` says")?;
    let bytes = links[0]["stats64"]["rx"]["bytes"].as_u64();
    bytes.with_context(|| format!("no rx bytes of {name}: {said}"))
}
