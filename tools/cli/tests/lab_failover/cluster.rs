//! The lab `failover`: its switches, clients and controller.

use crate::common::{TestLab, wait_for};
use chaos::inject;
use netchain_client::{Client, Config, Key, Pipeline, Ring, read_ring};
use netchain_daemon::{GroupStatus, Groups, GroupsWanted, Status, SwitchStatus};
use netns::Netns;
use secrets::SecretsFile;
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wire::{KeyRing, ToolType};

pub const CLUSTER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../systems/netchain/lab/failover-cluster.toml");
/// Of messages to switches.
const PORT: u16 = 5410;
const TOPOLOGY: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../systems/netchain/lab/failover.toml");
const CONTROLLER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 2, 9, 10), 5411);
/// The other one, of two with etcd.
const STANDBY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 2, 9, 10), 5412);

pub struct Cluster {
    pub lab: TestLab,
    pub ring: Ring,
    keys: KeyRing,
    client: Netns,
    /// The controller that is asked.
    controller: Cell<SocketAddrV4>,
}

/// The NetChain address of a node.
pub fn address(node: &str) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, node[1..].parse().expect("s and a number"))
}

/// The node with an address.
pub fn node(address: Ipv4Addr) -> &'static str {
    ["s1", "s2", "s3", "s4"][usize::from(address.octets()[3]) - 1]
}

/// The key with this number of a group.
pub fn key_of(ring: &Ring, group: u16, number: usize) -> Key {
    let names = (0..).map(|at| Key::from_name(&format!("key-{at}")).expect("a short name"));
    names.filter(|key| ring.group_of(key) == group).nth(number).expect("keys")
}

impl Cluster {
    pub fn up(test: &str) -> Cluster {
        Cluster::founded(test, Path::new(TOPOLOGY), Path::new(CLUSTER), "chain")
    }

    /// With two controllers, of which etcd elects one.
    pub fn with_etcd(test: &str) -> Cluster {
        Cluster::founded(test, Path::new(TOPOLOGY), Path::new(CLUSTER), "etcd")
    }

    /// With so many groups, in a folder of its own.
    pub fn of_groups(test: &str, groups: usize) -> (Cluster, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let founding = std::fs::read_to_string(CLUSTER).expect("the founding file");
        let founding = founding.replace("groups = 40", &format!("groups = {groups}"));
        let file = folder.path().join("failover-cluster.toml");
        std::fs::write(&file, founding).expect("written");
        let text = std::fs::read_to_string(TOPOLOGY).expect("the topology");
        let program = Path::new(TOPOLOGY).with_file_name("../p4/netchain.p4");
        let text =
            text.replace("${topology_dir}/../p4/netchain.p4", program.to_str().expect("UTF-8"));
        let topology = folder.path().join("failover.toml");
        std::fs::write(&topology, text).expect("written");
        (Cluster::founded(test, &topology, &file, "chain"), folder)
    }

    fn founded(test: &str, topology: &Path, founding: &Path, mode: &str) -> Cluster {
        let lab = TestLab::up(test, topology.to_str().expect("UTF-8"), &["--mode", mode]);
        let secrets = dir(&lab).join("fabric.secrets");
        let keys = SecretsFile::load(&secrets).expect("secrets").ring().clone();
        let client = lab.netns("client");
        let ring = read_ring(founding).expect("ring");
        let cluster = Cluster { lab, ring, keys, client, controller: Cell::new(CONTROLLER) };
        cluster.settle("the cluster begins");
        cluster
    }

    fn ask<T: serde::de::DeserializeOwned + Send>(
        &self,
        question: ToolType,
        json: &[u8],
    ) -> Option<T> {
        let (keys, controller) = (&self.keys, self.controller.get());
        let ask = || {
            let timeout = Duration::from_millis(500);
            let answer = daemon::ask::ask(question, json, controller, keys, timeout);
            answer.map_err(std::io::Error::other)
        };
        self.lab.netns("controller").run(ask).ok()
    }

    /// What the controller says; None: it does not answer.
    pub fn status(&self) -> Option<Status> {
        self.ask(ToolType::StatusRequest, &[])
    }

    /// Waits until one of two controllers decides, and asks that one from now on. The names of
    /// their daemons: the one that decides, and the other.
    pub fn elected(&self) -> (&'static str, &'static str) {
        let both = [(CONTROLLER, "controller"), (STANDBY, "standby")];
        wait_for("a controller decides", || {
            both.iter().any(|(address, _)| {
                self.controller.set(*address);
                self.status().is_some_and(|status| status.leading)
            })
        });
        let decides = usize::from(self.controller.get() == STANDBY);
        (both[decides].1, both[1 - decides].1)
    }

    pub fn groups(&self) -> Vec<GroupStatus> {
        let (mut groups, mut from) = (vec![], 0);
        loop {
            let wanted = serde_json::to_vec(&GroupsWanted { from }).expect("JSON");
            // A question may be lost: the machine stalls for longer than one waits.
            let mut page: Option<Groups> = None;
            wait_for("the controller names its groups", || {
                page = self.ask(ToolType::StateRequest, &wanted);
                page.is_some()
            });
            let page = page.expect("waited for");
            groups.extend(page.groups);
            let Some(next) = page.next else { return groups };
            from = next;
        }
    }

    /// Waits until all chains are whole, all switches live, and all have the newest decision.
    pub fn settle(&self, what: &str) {
        self.wait_for(what, || {
            let is_well = |it: &SwitchStatus| {
                it.standing == "serving" && it.report_ms.is_some_and(|ms| ms < 100)
            };
            self.status().is_some_and(|it| it.settled && it.switches.iter().all(is_well))
        });
    }

    /// Waits for long; an error shows the controller's status.
    pub fn wait_for(&self, what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !done() {
            let in_time = Instant::now() < deadline;
            assert!(in_time, "not within 60 s: {what}: {:#?}", self.status());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// `stateplane kv` with words for the controller: whether it was good, and what it printed.
    pub fn kv(&self, words: &str) -> (bool, String) {
        let secrets = dir(&self.lab).join("fabric.secrets");
        let program = env!("CARGO_BIN_EXE_stateplane");
        let address = self.controller.get();
        let ask = format!("--address {address} --secrets {}", secrets.display());
        self.lab.run("controller", &format!("{program} kv {words} {ask}"))
    }

    /// The same; it must be good.
    pub fn order(&self, words: &str) {
        let (good, said) = self.kv(words);
        assert!(good, "kv {words}: {said}");
    }

    /// How many switches the controller has taken for dead, and for mute.
    pub fn deaths(&self) -> (u64, u64) {
        let text = self.lab.metrics("controller");
        let value = |name: &str| {
            let name = format!("stateplane_kv_controller_{name}_total ");
            let found = text.lines().find_map(|line| line.strip_prefix(&name));
            found.and_then(|value| value.parse::<u64>().ok()).expect("a counter")
        };
        (value("deaths"), value("mute"))
    }

    /// The file with the controller's decision.
    pub fn database(&self) -> PathBuf {
        dir(&self.lab).join("kv.redb")
    }

    /// The decision that each switch has.
    pub fn decisions(&self) -> Vec<u64> {
        let of = |switch: &str| {
            let text = self.lab.metrics(switch);
            let mut lines = text.lines();
            let found = lines.find_map(|it| it.strip_prefix("stateplane_switch_decision_version "));
            found.and_then(|version| version.parse().ok()).expect("a version")
        };
        ["s1", "s2", "s3", "s4"].map(of).to_vec()
    }

    /// A power cut of a switch.
    pub fn kill(&self, victim: &str) {
        self.cut(victim);
        self.lab.fail(victim);
    }

    /// From now on the router loses so much of what clients and switches send each other, and
    /// switches each other over it; until the value is dropped.
    pub fn lose(&self, percent: u8) -> Lossy<'_> {
        inject::lose(&self.lab.netns("core"), PORT, percent).expect("nft");
        Lossy(self)
    }

    /// A command in the client's namespace.
    pub fn command(&self, program: &Path) -> std::process::Command {
        self.client.command(program).expect("a command")
    }

    /// What a client's configuration says, but for the founding file.
    pub fn identity(&self) -> PathBuf {
        dir(&self.lab).join("client.key")
    }

    /// All links of a switch go down: when that began, and when the last one was down.
    pub fn cut(&self, victim: &str) -> (Instant, Instant) {
        let lab = lab::Lab::open(&self.lab.name).expect("the lab");
        let began = Instant::now();
        lab.cut(victim).expect("links go down");
        (began, Instant::now())
    }

    /// When the controller was first seen to count a switch as dead.
    pub fn until_dead(&self, switch: Ipv4Addr, most: Duration) -> Option<Instant> {
        let began = Instant::now();
        while began.elapsed() < most {
            let status = self.status();
            let dead = |status: &Status| {
                let found = status.switches.iter().find(|it| it.address == switch);
                found.is_some_and(|it| it.standing == "dead")
            };
            if status.as_ref().is_some_and(dead) {
                return Some(Instant::now());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }

    fn config(&self) -> Config {
        // (Beside other work an agent may start for longer than the usual deadline of a second.)
        let deadline_ms = 3_000;
        let identity = Some(self.identity());
        Config { identity, deadline_ms, ..Config::new(self.ring.clone()) }
    }

    /// A client whose socket is in the client's namespace.
    pub fn client(&self) -> Client {
        let config = self.config();
        let make = || Client::new(config).map_err(std::io::Error::other);
        self.client.run(make).expect("client")
    }

    /// The same with many requests at a time; one without a reply is sent again after this time.
    pub fn pipeline(&self, retry: Duration) -> Pipeline {
        let config = Config { retry_ms: retry.as_millis() as u64, ..self.config() };
        let make = || Pipeline::new(config).map_err(std::io::Error::other);
        self.client.run(make).expect("client")
    }
}

/// The router is good again when it is dropped.
pub struct Lossy<'a>(&'a Cluster);

impl Drop for Lossy<'_> {
    fn drop(&mut self) {
        inject::lose_none(&self.0.lab.netns("core")).expect("nft");
    }
}

fn dir(lab: &TestLab) -> PathBuf {
    Path::new("/run/stateplane/labs").join(&lab.name)
}
