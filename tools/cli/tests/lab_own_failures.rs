//! Sketches that merge by functions of the program, with SDW and with EWO, on switches that have a
//! controller: they die, are cut off, leave and come back while hosts update. Truth is what the
//! hosts sent and got back. Needs root. Waits for timers.

#[path = "lab_own_failures/cells.rs"]
mod cells;
mod common;
#[path = "lab_shared_failures/mesh.rs"]
mod mesh;

use cells::{Death, Host, SENT, Truth, Update};
use common::{TestLab, must, skip, wait_for};
use mesh::status;
use serde_json::Value;
use std::thread::sleep;
use std::time::{Duration, Instant};

const TOPOLOGY: &str = "../../systems/swish/lab/failures.toml";
/// As the controller names them: of the first group with each of its consistencies.
const PARTS: [&str; 3] = ["halves", "main", "main.ewo"];
const ALL: [u32; 4] = [1, 2, 3, 4];

/// Whether these are the members of all groups.
fn are_members(status: &Value, numbers: &[u64]) -> bool {
    let groups = status["groups"].as_array().into_iter().flatten();
    let members = |group: &Value| -> Vec<u64> {
        let switches = group["switches"].as_array().into_iter().flatten();
        let members = switches.filter(|it| it["standing"] == "member");
        members.filter_map(|it| Some(it["number"].as_u64()? + 1)).collect()
    };
    groups.map(members).filter(|it| it == numbers).count() == PARTS.len()
}

/// A lab, and what its cells must be.
struct Running {
    lab: TestLab,
    truth: Truth,
    seed: u32,
}

impl Running {
    fn settle(&self) {
        wait_for("all switches have all", || status(&self.lab)["settled"] == true);
    }

    fn wait_members(&self, numbers: &[u64]) {
        let what = format!("{numbers:?} are members");
        wait_for(&what, || are_members(&status(&self.lab), numbers));
    }

    /// The hosts of these switches update for so long; meanwhile something happens. What was sent.
    fn update(
        &mut self,
        numbers: &[u32],
        ms: u64,
        meanwhile: impl FnOnce(&TestLab),
    ) -> Vec<Update> {
        self.seed += 1;
        let until = Instant::now() + Duration::from_millis(ms);
        let hosts = numbers.iter().map(|it| cells::write(&self.lab, *it, self.seed, until));
        let hosts: Vec<_> = hosts.collect();
        meanwhile(&self.lab);
        let made = hosts.into_iter().flat_map(|it| it.join().expect("a host")).collect::<Vec<_>>();
        for number in numbers {
            let is_answered = |it: &Update| it.by == *number && it.windows.is_some();
            assert!(made.iter().any(is_answered), "h{number} updates");
        }
        made
    }

    fn update_all(&mut self, ms: u64) {
        let made = self.update(&ALL, ms, |_| ());
        self.truth.add(&made, None);
    }

    /// The hosts of these switches read the same, and what must be there.
    fn converge(&mut self, numbers: &[u32]) {
        let hosts: Vec<Host> = numbers.iter().map(|it| Host::of(&self.lab, *it)).collect();
        let newest = |at: usize| hosts.iter().map(|it| it.windows()[at]).max().unwrap_or(0);
        let first = [newest(0), newest(1)];
        wait_for("three windows", || {
            let is_after = |now: [u64; 2]| now[0] >= first[0] + 3 && now[1] >= first[1] + 3;
            hosts.iter().all(|it| is_after(it.windows()))
        });
        let mut read = vec![];
        wait_for(&format!("{numbers:?} read the same"), || {
            read = hosts.iter().map(Host::read_all).collect();
            read.iter().all(|it| *it == read[0])
        });
        self.truth.check(&read[0]);
    }

    /// All links of a switch.
    fn links(&self, state: &str, of: &str) {
        self.lab.links(state, of, &["s1", "s2", "s3", "s4", "controller"]);
    }

    /// No switch has dropped what it must not.
    fn is_clean(&self) {
        let reasons = ["forged", "faults", "malformed", "no_slot", "cell_stuck"];
        self.lab.is_clean("swish", &["s1", "s2", "s3", "s4"], &reasons);
    }
}

#[test]
fn own_merges_lose_nothing_of_the_living() {
    if skip() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let lines = "period_us = 10000\nbound = 1000000\n";
    let file = mesh::with_groups(folder.path(), 4, &["main", "halves"], lines);
    // (The other group has no variable with EWO.)
    let text = std::fs::read_to_string(&file).expect("the topology");
    let text = text.replace("[shared.main]\n", "[shared.main]\ngossip_ms = 20\n");
    std::fs::write(&file, text).expect("written");
    let sets = ["--set", "program=own", "--set", "kind=LAB"];
    let lab = TestLab::up("own-dead", file.to_str().expect("UTF-8"), &sets);
    mesh::wait_for_hosts(&lab, 4);
    let mut run = Running { lab, truth: Truth::new(), seed: 0 };
    run.settle();
    run.update_all(400);
    run.converge(&ALL);

    // One dies: the window begins anew without it, as nothing can be taken out of the cells.
    let mut killed = Instant::now();
    let ms = SENT.as_millis() as u64;
    let made = run.update(&ALL, ms + 1000, |lab| {
        sleep(SENT + Duration::from_millis(300));
        killed = Instant::now();
        lab.kill_now("s4");
        lab.fail("s4");
    });
    let kept = run.truth.add(&made, Some(&Death::of(4, killed, &made)));
    assert!(kept > 0, "the dead switch's updates of {kept} packets were merged");
    run.wait_members(&[1, 2, 3]);
    run.converge(&[1, 2, 3]);
    run.lab.restore("s4");
    mesh::wait_for_hosts(&run.lab, 4);
    run.settle();
    run.update_all(300);
    run.converge(&ALL);

    // One is cut off. What it counted alone is handed in, its two rotations merged.
    let made = run.update(&ALL, 600, |lab| {
        for other in ["s1", "s2", "s4", "controller"] {
            lab.link("down", "s3", other);
        }
    });
    run.truth.add(&made, None);
    run.wait_members(&[1, 2, 4]);
    run.links("up", "s3");
    run.settle();
    run.converge(&ALL);

    // One leaves while its host updates, and comes back.
    let name = format!("{}-s2", run.lab.name);
    let made = run.update(&ALL, 800, |_| drop(must(&["shared", "leave", "--switch", &name])));
    run.truth.add(&made, None);
    run.wait_members(&[1, 3, 4]);
    must(&["shared", "join", "--switch", &name]);
    run.settle();
    run.converge(&ALL);
    run.is_clean();
    run.lab.down();
}
