//! A table, a set and a register of which the last writer wins, on switches that have a controller:
//! they die, are cut off, leave and come back while hosts and an operator write. All come to read
//! the same, and for each key a write that none of the writers' ledgers has a later one for. Needs
//! root. Waits for timers.

mod common;
#[path = "lab_last_failures/ledger.rs"]
mod ledger;
#[path = "lab_shared_failures/mesh.rs"]
mod mesh;

use common::{TestLab, json, must, skip, wait_for};
use ledger::{Host, Ledger, Place, Write};
use mesh::status;
use serde_json::Value;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const TOPOLOGY: &str = "../../systems/swish/lab/failures.toml";
const GROUPS: [&str; 2] = ["main", "numbers"];
const ALL: [u32; 4] = [1, 2, 3, 4];
/// What a switch wrote so long before it died is at the others. (Rounds of gossip are 20 ms. The
/// agent that begins them may wait long for a CPU.)
const SENT: Duration = Duration::from_millis(1500);

/// A lab of four switches that share last.p4's variables. Tombstones end after a second.
fn up(folder: &Path) -> TestLab {
    let lines = "gossip_ms = 20\ntombstone_s = 1\n";
    let file = mesh::with_groups(folder, 4, &GROUPS, lines);
    let sets = ["--set", "program=last"];
    let lab = TestLab::up("last-dead", file.to_str().expect("UTF-8"), &sets);
    mesh::wait_for_hosts(&lab, 4);
    lab
}

/// Members of each group, by their numbers from 1 on.
fn members(status: &Value) -> Vec<Vec<u64>> {
    let of = |group: &Value| -> Vec<u64> {
        let switches = group["switches"].as_array().into_iter().flatten();
        let members = switches.filter(|it| it["standing"] == "member");
        members.filter_map(|it| Some(it["number"].as_u64()? + 1)).collect()
    };
    status["groups"].as_array().into_iter().flatten().map(of).collect()
}

/// A lab, and what was written in it.
struct Running {
    lab: TestLab,
    ledger: Ledger,
    seed: u32,
}

impl Running {
    fn settle(&self) {
        wait_for("all switches have all", || status(&self.lab)["settled"] == true);
    }

    fn wait_members(&self, numbers: &[u64]) {
        let are =
            |all: &[Vec<u64>]| all.len() == GROUPS.len() && all.iter().all(|it| it == numbers);
        wait_for(&format!("{numbers:?} are members"), || are(&members(&status(&self.lab))));
    }

    /// The hosts of these switches write for so long.
    fn write(&mut self, numbers: &[u32], ms: u64) {
        self.seed += 1;
        let until = Instant::now() + Duration::from_millis(ms);
        let hosts = numbers.iter().map(|it| ledger::write(&self.lab, *it, self.seed, until));
        let hosts: Vec<_> = hosts.collect();
        for host in hosts {
            let made = host.join().expect("a host");
            assert!(made.iter().any(|it| it.back.is_some()), "a host writes");
            self.ledger.writes.extend(made);
        }
    }

    /// The hosts of these switches come to read the same, and what the ledger lets them.
    fn converge(&mut self, numbers: &[u32]) {
        let hosts: Vec<Host> = numbers.iter().map(|it| Host::of(&self.lab, *it)).collect();
        let mut read = vec![];
        wait_for(&format!("{numbers:?} read the same"), || {
            read = hosts.iter().map(Host::read_all).collect();
            read.iter().all(|it| *it == read[0])
        });
        self.ledger.check(&read[0]);
    }

    /// All links of a switch.
    fn links(&self, state: &str, of: &str) {
        self.lab.links(state, of, &["s1", "s2", "s3", "s4", "controller"]);
    }

    /// An operator's command on a switch.
    fn shared(&self, switch: u32, words: &[&str]) -> Value {
        let name = format!("{}-s{switch}", self.lab.name);
        json(&must(&[&["shared"], words, &["--switch", &name, "--json"]].concat()))
    }

    /// Keys of the table on a switch, in this state.
    fn keys(&self, switch: &str, state: &str) -> u64 {
        let name = format!(
            "stateplane_switch_shared_keys{{object=\"LastIngress.values\",state=\"{state}\"}} "
        );
        let text = self.lab.metrics(switch);
        let count = text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok());
        count.unwrap_or_else(|| panic!("{switch}: {text}"))
    }

    /// No switch has dropped what it must not.
    fn is_clean(&self) {
        let reasons = ["forged", "faults", "malformed", "table_full", "cell_stuck"];
        self.lab.is_clean("swish", &["s1", "s2", "s3", "s4"], &reasons);
    }

    /// SIGKILL while its host writes, and the others' hosts do.
    fn kill(&mut self, dead: u32) {
        self.seed += 1;
        let until = Instant::now() + SENT + Duration::from_secs(1);
        let hosts = ALL.map(|it| ledger::write(&self.lab, it, self.seed, until));
        sleep(SENT + Duration::from_millis(300));
        let killed = Instant::now();
        self.lab.kill_now(&format!("s{dead}"));
        self.lab.fail(&format!("s{dead}"));
        for host in hosts {
            self.ledger.writes.extend(host.join().expect("a host"));
        }
        let unsent = |it: &&mut Write| it.by == dead && it.sent + SENT > killed;
        let all = self.ledger.writes.iter_mut();
        all.filter(unsent).for_each(|write| write.is_sure = false);
        assert!(self.ledger.writes.iter().any(|it| it.by == dead && it.is_sure), "some are sent");
    }
}

#[test]
fn the_last_writer_wins_also_if_switches_fail() {
    if skip() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let lab = up(folder.path());
    let mut run = Running { lab, ledger: Ledger::default(), seed: 0 };
    run.settle();
    run.write(&ALL, 400);
    run.converge(&ALL);

    // One dies, and joins again with nothing. When it is said to have all, it has.
    run.kill(4);
    run.wait_members(&[1, 2, 3]);
    run.converge(&[1, 2, 3]);
    run.lab.restore("s4");
    mesh::wait_for_hosts(&run.lab, 4);
    run.settle();
    run.ledger.check(&Host::of(&run.lab, 4).read_all());

    // The controller dies: no switch waits for it.
    run.lab.kill_daemon("controller", "controller");
    run.write(&ALL, 300);
    run.converge(&ALL);
    run.lab.restart_daemon("controller", "controller");

    // One is cut off. Its host writes keys that others remove meanwhile, and their tombstones would
    // be over, if they ended: when it is back, these keys are not.
    run.settle();
    run.links("down", "s3");
    run.wait_members(&[1, 2, 4]);
    run.write(&[3], 300);
    let host = Host::of(&run.lab, 1);
    for key in 0..ledger::KEYS {
        run.ledger.writes.extend(host.set_and_remove(1, key, 9_000 + key));
    }
    sleep(Duration::from_millis(2500));
    assert_eq!(run.keys("s1", "removed"), u64::from(ledger::KEYS), "no tombstone ends");
    run.links("up", "s3");
    run.settle();
    run.converge(&ALL);
    assert_eq!(run.keys("s3", "there"), 0);
    wait_for("tombstones end", || run.keys("s1", "removed") + run.keys("s3", "removed") == 0);

    // One leaves, and goes on alone: its writes are there when it is back. An operator writes.
    let name = format!("{}-s2", run.lab.name);
    must(&["shared", "leave", "--switch", &name]);
    run.wait_members(&[1, 3, 4]);
    run.write(&[1, 3, 4], 300);
    run.converge(&[1, 3, 4]);
    run.write(&[2], 300);
    must(&["shared", "join", "--switch", &name]);
    run.settle();
    run.converge(&ALL);
    let sent = Instant::now();
    let value = ["key=7", "value=77", "copy=330712481869", "last=77"];
    run.shared(4, &[&["set", "values"][..], &value].concat());
    run.shared(4, &["set", "keys", "key=7"]);
    for (place, value) in [(Place::Key(7), 77), (Place::Member(7), 1)] {
        run.ledger.writes.push(Write::of_operator(place, Some(value), sent));
    }
    run.converge(&ALL);
    assert_eq!(run.shared(1, &["get", "values", "key=7"])["entries"][0]["value"][0][1], "77");
    run.is_clean();
    run.lab.down();
}
