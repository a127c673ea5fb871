//! Variables with EWO for real: the compiled program on four switches, hosts that write to all of
//! them at once, a link that is cut, and a switch that is killed and comes back. Truth is what the
//! hosts sent and got back. Needs root. Waits for timers.

#[path = "common/cells.rs"]
mod cells;
mod common;

use cells::{Cells, Host, Update, WRITERS, add, all_write, converge, read};
use common::{TestLab, skip, wait_for};
use std::time::{Duration, Instant};

const TOPOLOGY: &str = "../../systems/swish/lab/eventual.toml";
/// Reads, until three hosts have read the same twice: what the switches keep of a dead one.
fn kept(lab: &TestLab, truth: &Cells) -> Cells {
    let hosts: Vec<Host> = (1..=3).map(|number| Host::of(lab, number)).collect();
    let mut before = Cells::new();
    wait_for("three hosts read the same", || {
        let all: Vec<Cells> = hosts.iter().map(|host| read(host, truth)).collect();
        let same = all.iter().all(|it| *it == all[0]) && all[0] == before;
        before.clone_from(&all[0]);
        std::thread::sleep(Duration::from_millis(500));
        same
    });
    before
}

fn sum(cells: &Cells) -> u64 {
    cells.values().map(|it| u64::from(it.counter)).sum()
}

/// The switch has no drops that it must not have, and slots of so many lives.
fn is_clean(lab: &TestLab, switch: &str, lives: u32) {
    let text = lab.metrics(switch);
    for reason in ["forged", "foreign", "faults", "malformed", "no_slot", "cell_stuck"] {
        let none = format!("stateplane_drops_total{{part=\"swish\",reason=\"{reason}\"}} 0");
        assert!(text.contains(&none), "{switch}: {text}");
    }
    let lives = format!("stateplane_switch_shared_lives{{group=\"main\"}} {lives}\n");
    assert!(text.contains(&lives), "{switch}: {text}");
}

/// What a switch's `shared status` tells of its group, and the exit code of the command.
fn status(lab: &TestLab, switch: &str) -> (serde_json::Value, Option<i32>) {
    let name = format!("{}-{switch}", lab.name);
    let out = common::stateplane(&["shared", "status", "--switch", &name, "--json"]);
    let all = common::json(&String::from_utf8_lossy(&out.stdout));
    let own = all.as_array().and_then(|all| all.iter().find(|it| it["switch"] == name.as_str()));
    let groups = own.and_then(|it| it["shared_eventual"].as_array()).expect("the switch's groups");
    let main = groups.iter().find(|it| it["group"] == "main").expect("the group");
    (main.clone(), out.status.code())
}

#[test]
fn four_switches_converge() {
    if skip() {
        return;
    }
    let lab = TestLab::up("eventual", TOPOLOGY, &[]);
    let mut truth = Cells::new();
    let write = |truth: &mut Cells, seed: u64, ms: u64| {
        let updates = all_write(&lab, &[1, 2, 3, 4], seed, Duration::from_millis(ms));
        assert!(updates.iter().all(|it| !it.is_empty()), "each host writes");
        updates.iter().for_each(|it| add(truth, it));
        updates
    };
    write(&mut truth, 1, 1000);
    converge(&lab, &[1, 2, 3, 4], &truth);
    let (load, code) = status(&lab, "s1");
    assert_eq!((&load["held_up"], code), (&serde_json::Value::Null, Some(0)), "{load}");
    assert!(load["bytes_per_s"].as_u64() > Some(0), "{load}");
    assert!(load["memory_bytes"].as_u64() > Some(0), "{load}");

    // Gossip goes round a link that is cut. Both ends say so.
    lab.link("down", "s1", "s2");
    write(&mut truth, 3, 500);
    converge(&lab, &[1, 2, 3, 4], &truth);
    wait_for("s1 does not hear s2", || {
        status(&lab, "s1").0["held_up"] == serde_json::json!(["10.9.0.2"])
    });
    let (load, code) = status(&lab, "s1");
    assert_eq!(code, Some(1), "{load}");
    assert!(load["age_ms"].as_u64() > Some(500), "{load}");
    let name = format!("{}-s1", lab.name);
    let out = common::stateplane(&["shared", "status", "--switch", &name]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("group main: nothing comes from 10.9.0.2"), "{text}");
    lab.link("up", "s1", "s2");
    write(&mut truth, 5, 500);
    converge(&lab, &[1, 2, 3, 4], &truth);

    // A switch dies while its host writes. What it had not sent is lost, and no more.
    let until = Instant::now() + Duration::from_secs(60);
    let dying: Vec<_> = (0..WRITERS).map(|at| cells::write(&lab, 4, 7 + at, until)).collect();
    std::thread::sleep(Duration::from_secs(2));
    lab.fail("s4");
    let last: Vec<Update> = dying.into_iter().flat_map(|it| it.join().expect("h4")).collect();
    let before = sum(&truth);
    add(&mut truth, &last);
    let mut left = kept(&lab, &truth);
    let (had, all) = (sum(&left), sum(&truth));
    println!("the dead switch's last updates: {} of {} are kept", had - before, all - before);
    // (An update may be counted whose answer did not come back.)
    assert!(had <= all + 8 * WRITERS, "{had} of {all}");
    assert!(had - before >= (all - before) / 2, "{had} of {all}, {before} before");

    // It comes back, empty: nothing becomes less, and it has a slot of its own.
    lab.restore("s4");
    write(&mut left, 9, 500);
    converge(&lab, &[1, 2, 3, 4], &left);
    ["s1", "s2", "s3", "s4"].iter().for_each(|switch| is_clean(&lab, switch, 5));
    lab.down();
}
