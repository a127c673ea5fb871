//! Switches of a chain with SRO, and their controller, die for real and come back, while hosts
//! write through all of them: what was answered stays, and each addition counts once. Needs root.
//! Waits for timers.

#[path = "common/chaos.rs"]
mod chaos;
mod common;
#[path = "lab_shared_failures/mesh.rs"]
mod mesh;
#[path = "common/pairs.rs"]
mod pairs;

use chaos::Chaos;
use common::{TestLab, env_number, one_at_a_time, skip, wait_for};
use mesh::status;
use pairs::{Addition, Prober, Truth, Writer};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

const TOPOLOGY: &str = "../../systems/swish/lab/failures.toml";
const KEYS: u32 = 40;
/// Of one host an answer came by then, or it is lost.
const SOON: Duration = Duration::from_millis(100);

/// A lab of so many switches that share the tables of pairs.p4, or of tally.p4.
fn up(test: &str, folder: &Path, count: u32, program: &str) -> TestLab {
    up_with(test, folder, count, program, "")
}

/// The same with a value of a variable of the topology, or none.
fn up_with(test: &str, folder: &Path, count: u32, program: &str, set: &str) -> TestLab {
    let file = mesh::topology(folder, count);
    let text = std::fs::read_to_string(&file).expect("the topology");
    // (There the program has two groups.)
    let (begin, rest) = text.split_once("\n[group.other]\n").expect("the second group");
    let (_, rest) = rest.split_once('\n').expect("its switches");
    let (middle, rest) = rest.split_once("\n[shared.other]\n").expect("the second group");
    let (_, rest) = rest.split_once("\n\n").expect("the end of it");
    std::fs::write(&file, format!("{begin}\n{middle}\n{rest}")).expect("written");
    let program = format!("program={program}");
    let mut sets = vec!["--set", &program, "--set", "settings=commit = \"batch\""];
    if !set.is_empty() {
        sets.extend(["--set", set]);
    }
    let lab = TestLab::up(test, file.to_str().expect("UTF-8"), &sets);
    mesh::wait_for_hosts(&lab, count);
    wait_for("all switches are members", || status(&lab)["settled"] == true);
    lab
}

/// Members that have all, by their numbers from 1 on.
fn members(status: &Value) -> Vec<u32> {
    let switches = status["groups"][0]["switches"].as_array().into_iter().flatten();
    let members = switches.filter(|it| it["standing"] == "member");
    members.filter_map(|it| Some(it["number"].as_u64()? as u32 + 1)).collect()
}

fn prober(lab: &TestLab, number: u32, timeout: Duration) -> Prober {
    Prober::new(lab, &format!("h{number}"), Ipv4Addr::new(10, 6, 0, 1), timeout)
}

/// A lab whose hosts write all the time.
struct Running {
    lab: TestLab,
    count: u32,
    writers: Vec<Writer>,
    truth: Truth,
}

impl Running {
    fn begin(lab: TestLab, count: u32) -> Running {
        let mut run = Running { lab, count, writers: vec![], truth: Truth::new() };
        run.go_on();
        run
    }

    fn go_on(&mut self) {
        let begin = |it: u32| Writer::begin(prober(&self.lab, it, SOON), it, KEYS);
        self.writers = (1..=self.count).map(begin).collect();
    }

    /// The hosts pause: all switches have the same. What each host was told since the last time.
    fn check(&mut self) -> Vec<Vec<Addition>> {
        let all: Vec<_> = std::mem::take(&mut self.writers).into_iter().map(Writer::end).collect();
        all.iter().for_each(|it| pairs::note(&mut self.truth, it));
        let patient = |it: u32| prober(&self.lab, it, Duration::from_secs(1));
        let probers: Vec<Prober> = (1..=self.count).map(patient).collect();
        pairs::all_have(&probers, &self.truth);
        let switches: Vec<String> = (1..=self.count).map(|it| format!("s{it}")).collect();
        let switches: Vec<&str> = switches.iter().map(String::as_str).collect();
        let reasons = ["forged", "faults", "malformed", "table_full", "too_many"];
        self.lab.is_clean("swish", &switches, &reasons);
        all
    }

    fn settle(&self) {
        wait_for("all switches are members", || status(&self.lab)["settled"] == true);
    }

    fn living(&self, dead: &[u32]) -> Vec<u32> {
        (1..=self.count).filter(|number| !dead.contains(number)).collect()
    }
}

/// Switches that the controller keeps out of this group.
fn excluded(status: &Value, group: &str) -> Vec<String> {
    let mut groups = status["groups"].as_array().into_iter().flatten();
    let switches = groups.find(|it| it["group"] == group).map(|it| it["switches"].clone());
    let switches = switches.unwrap_or_default();
    let out = switches.as_array().into_iter().flatten().filter(|it| it["standing"] == "excluded");
    out.map(|it| it["address"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The exit code of `stateplane shared` for a switch, and what it says.
fn shared(lab: &TestLab, switch: u32, words: &[&str]) -> (Option<i32>, String) {
    let name = format!("{}-s{switch}", lab.name);
    let output = common::stateplane(&[&["shared"][..], words, &["--switch", &name]].concat());
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code(), text)
}

fn pause() {
    std::thread::sleep(Duration::from_millis(300));
}

/// Answers of a host in this time.
fn answers(additions: &[Addition], from: Instant, until: Instant) -> usize {
    let within = |it: &&Addition| it.was.is_some() && (from..until).contains(&it.answered);
    additions.iter().filter(within).count()
}

/// Windows and a chain of one group. The second switch has returned, so it is the chain's last one;
/// its link to the fourth one, before it, is cut. Both exclude the same end, and say why.
#[test]
fn a_cut_link_costs_one_switch() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let folder = tempfile::tempdir().expect("a folder");
    let lab = up_with("chain-cut", folder.path(), 4, "tally", "slow_ms=1000");
    let said = |switch: u32| shared(&lab, switch, &["status"]);
    lab.kill_now("s2");
    lab.fail("s2");
    wait_for("the dead is no member", || members(&status(&lab)) == [1, 3, 4]);
    lab.restore("s2");
    wait_for("all switches are members", || status(&lab)["settled"] == true);
    let name = format!("{}-s1", lab.name);
    let all = common::must(&["shared", "status", "--switch", &name, "--json"]);
    let chain = common::json(&all)[0]["shared_chain"]["members"].clone();
    assert_eq!(chain, serde_json::json!(["10.9.0.1", "10.9.0.3", "10.9.0.4", "10.9.0.2"]));

    lab.link("down", "s2", "s4");
    for group in ["main", "main.sro"] {
        wait_for(&format!("s2 is excluded from {group}"), || {
            excluded(&status(&lab), group) == ["10.9.0.2"]
        });
    }
    let why = "10.9.0.2 is excluded from view ";
    let remedy = "mend the link between 10.9.0.2 and 10.9.0.4";
    // (To the fourth one EWO says that nothing comes from the second.)
    for (switch, code) in [(2, 1), (1, 0), (3, 0), (4, 1)] {
        wait_for(&format!("s{switch} says why"), || {
            let (ended, text) = said(switch);
            let told = |it: &&str| it.contains(why) && it.contains(remedy);
            // (Windows and the chain each say it.)
            ended == Some(code) && text.lines().filter(told).count() == 2
        });
    }
    // The others go on.
    let window = |status: &Value| status["groups"][0]["window"].as_u64().unwrap_or(0);
    let before = window(&status(&lab));
    wait_for("windows go on", || window(&status(&lab)) > before + 10);
    let name = format!("{}-s4", lab.name);
    common::must(&["shared", "set", "marks", "key=5", "--switch", &name]);
    let now = status(&lab);
    assert_eq!((members(&now), excluded(&now, "main.ewo")), (vec![1, 3, 4], vec![]), "{now}");

    lab.link("up", "s2", "s4");
    wait_for("all switches are members", || status(&lab)["settled"] == true);
    wait_for("nobody is excluded any more", || (1..=4).all(|it| !said(it).1.contains("excluded")));
    lab.down();
}

/// The head, the tail with another one, and all but one die at once, and come back; then the
/// controller does; then one leaves.
#[test]
fn writes_go_on_without_the_dead() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = Running::begin(up("chain-dead", folder.path(), 4, "pairs"), 4);
    for dead in [&[1][..], &[4, 3], &[1, 2, 3]] {
        pause();
        let killed = chaos::kill(&run.lab, dead);
        let living = run.living(dead);
        wait_for("the dead are no members", || members(&status(&run.lab)) == living);
        let removed = killed.elapsed();
        std::thread::sleep(Duration::from_secs(1));
        let until = Instant::now();
        dead.iter().for_each(|number| run.lab.restore(&format!("s{number}")));
        let begun = Instant::now();
        run.settle();
        let joined = begun.elapsed();
        pause();
        let additions = run.check();
        let of = |number: &u32| &additions[*number as usize - 1];
        let pauses = living.iter().map(|it| pairs::longest_pause(of(it), killed, until));
        let longest = pauses.max().expect("a living switch");
        println!(
            "{dead:?}: removed {removed:?} after SIGKILL, no answer for {longest:?}; all were back \
             after {joined:?}"
        );
        for number in living {
            assert!(answers(of(&number), killed + removed, until) > 0, "s{number} goes on");
        }
        run.go_on();
    }

    pause();
    run.lab.kill_daemon("controller", "controller");
    let (from, wait) = (Instant::now(), Duration::from_secs(1));
    std::thread::sleep(wait);
    let additions = run.check();
    let all_go_on = additions.iter().all(|it| answers(it, from + wait / 2, from + wait) > 0);
    assert!(all_go_on, "without a controller");
    wait_for("a switch names the dead controller", || {
        let (code, text) = shared(&run.lab, 2, &["status"]);
        code == Some(1) && text.contains("group main: no controller answers (10.2.9.10:5412)")
    });
    let (code, text) = shared(&run.lab, 2, &["leave", "--timeout-ms", "300"]);
    assert!(code == Some(1) && text.contains("no controller decides"), "{code:?} {text}");
    let (_, text) = shared(&run.lab, 2, &["status"]);
    assert!(text.contains("leaving"), "{text}");
    let (code, text) = shared(&run.lab, 2, &["join"]);
    assert_eq!((code, text.contains("shares again")), (Some(0), true), "{text}");
    run.go_on();
    run.lab.restart_daemon("controller", "controller");
    run.settle();

    pause();
    let name = format!("{}-s2", run.lab.name);
    common::must(&["shared", "leave", "--switch", &name]);
    assert_eq!(members(&status(&run.lab)), [1, 3, 4]);
    pause();
    // (What has left may not read, and operators neither; those who stay may write.)
    let mark = |order: &'static str, at: u32| {
        let name = format!("{}-s{at}", run.lab.name);
        common::stateplane(&["shared", order, "marks", "key=5", "--switch", &name])
    };
    let refused = mark("set", 2);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("packets may not read or write here now"), "{said}");
    assert_eq!(mark("set", 4).status.code(), Some(0));
    common::must(&["shared", "join", "--switch", &name]);
    run.settle();
    wait_for("the one that came back reads it", || mark("get", 2).status.code() == Some(0));
    pause();
    run.check();
    run.lab.down();
}

/// SDW and EWO beside SRO, in one group: a switch dies and comes back. Controllers decide on each.
#[test]
fn counters_stand_beside_the_chain() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = Running::begin(up("chain-tally", folder.path(), 3, "tally"), 3);
    let groups = status(&run.lab)["groups"].as_array().cloned().unwrap_or_default();
    let names: Vec<_> = groups.iter().filter_map(|it| it["group"].as_str()).collect();
    assert_eq!(names, ["main", "main.ewo", "main.sro"]);
    pause();
    chaos::kill(&run.lab, &[2]);
    wait_for("the dead is no member", || members(&status(&run.lab)) == [1, 3]);
    pause();
    run.lab.restore("s2");
    run.settle();
    pause();
    let additions = run.check();
    let answered = |of: &Vec<Addition>| of.iter().filter(|it| it.was.is_some()).count() as u64;
    // (What the dead switch had not sent is lost. Reads of the check count, too.)
    let least = answered(&additions[0]) + answered(&additions[2]);
    let most = additions.iter().flatten().count() as u64 + u64::from(KEYS * 3 * 5);
    for counter in ["in_windows", "at_once"] {
        let mut counted = 0;
        wait_for(&format!("all have counted the same {counter}"), || {
            let all = ["s1", "s2", "s3"].map(|it| pairs::tally(&run.lab, it, counter));
            counted = all[0].values().sum();
            all.iter().all(|it| *it == all[0])
        });
        println!("{counter}: {counted} of {least} to {most}");
        assert!((least..=most).contains(&counted), "{counter}: {counted} of {least} to {most}");
    }
    run.lab.down();
}

fn drawn(rng: &mut StdRng, count: u32) -> Chaos {
    let mut all: Vec<u32> = (1..=count).collect();
    all.shuffle(rng);
    let some = rng.random_range(1..count) as usize;
    let (one, other) = (all[0], all[1]);
    match rng.random_range(0..10) {
        0..4 => Chaos::Kills { dead: all[..some].to_vec(), controller: rng.random_bool(0.4) },
        4..6 => Chaos::Rolls { dead: all[..some.min(3)].to_vec() },
        6 => Chaos::Agent { of: one, ms: rng.random_range(0..500) },
        7..9 => Chaos::CutOff { of: one, ms: rng.random_range(50..1500) },
        _ => Chaos::Cut { one, other, ms: rng.random_range(300..4000) },
    }
}

/// Labs of 4 to 8 switches, each for ten rounds. ROUNDS, SEED: how many, and which ones.
#[test]
#[ignore = "minutes"]
fn what_was_answered_stays_in_chaos() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let rounds = env_number("ROUNDS").unwrap_or(50);
    let seed = env_number("SEED").unwrap_or_else(|| rand::random_range(0..1_000_000));
    println!("SEED={seed} ROUNDS={rounds}");
    let mut rng = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().expect("a folder");
    for first in (0..rounds).step_by(10) {
        let count = rng.random_range(4..=8);
        let mut run = Running::begin(up("chain-chaos", folder.path(), count, "pairs"), count);
        for round in first..rounds.min(first + 10) {
            let chaos = drawn(&mut rng, count);
            println!("round {round} with {count} switches: {chaos:?}");
            std::thread::sleep(Duration::from_millis(rng.random_range(0..500)));
            chaos.happen(&run.lab, count, &mut rng);
            run.settle();
            let answered: usize =
                run.check().iter().flatten().filter(|it| it.was.is_some()).count();
            assert!(answered > 0, "nothing was answered in round {round}");
            run.go_on();
        }
        run.check();
        run.lab.down();
    }
}
