//! Switches that serve keys, and die: four of them and their controller, under the load of real
//! clients. No acknowledged write is lost, and versions never go back. Needs root. Waits for
//! timers.

#[path = "lab_failover/cluster.rs"]
mod cluster;
mod common;
#[path = "lab_failover/load.rs"]
mod load;

use cluster::Cluster;
use common::{one_at_a_time, skip, wait_for};
use load::Load;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Positions in a chain.
const ROLES: [&str; 3] = ["head", "middle", "tail"];
const SWITCHES: [&str; 4] = ["s1", "s2", "s3", "s4"];

/// From a kill until something, in milliseconds; None: it did not come.
fn ms(since: Instant, at: Option<Instant>) -> Option<u128> {
    at.map(|at| at.saturating_duration_since(since).as_millis())
}

/// Kills a switch under load, and brings it back. What is told: for each role that it had, the time
/// from the kill to the next acknowledged write.
fn kill(cluster: &Cluster, victim: &str) -> BTreeMap<&'static str, u128> {
    let address = cluster::address(victim);
    let chains = cluster.groups();
    let load = Load::start(cluster, |group| {
        chains[usize::from(group)].chain.iter().position(|it| *it == address)
    });
    std::thread::sleep(Duration::from_millis(500));
    let (killed, cut) = cluster.cut(victim);
    let detected = cluster.until_dead(address, Duration::from_secs(5));
    cluster.lab.fail(victim);
    std::thread::sleep(Duration::from_millis(1500));
    let written = load.first_writes_after(cut);
    cluster.lab.restore(victim);
    cluster.settle("the killed switch is back");
    std::thread::sleep(Duration::from_millis(300));
    let ended = load.end();
    ended.check(cluster);
    let detection = ms(killed, detected).expect("detected");
    let mut told = BTreeMap::new();
    for (at, role) in ROLES.iter().enumerate() {
        let of_role = written.iter().filter(|(place, _)| *place == Some(at));
        let first = of_role.map(|(_, at)| ms(killed, *at));
        let worst = first.map(|it| it.expect("a write after the kill")).max().expect("a key");
        told.insert(*role, worst);
        println!("{victim} dies, {role}: {worst} ms until the next write, dead after {detection}");
    }
    println!("{victim} dies: {}", ended.summary());
    told
}

/// Head, middle and tail of some groups die, each once; the switch that returns gets its keys by
/// copies, and the chains are whole again.
#[test]
fn no_acknowledged_write_is_lost_when_a_switch_dies() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let cluster = Cluster::up("failover");
    for victim in ["s1", "s3"] {
        kill(&cluster, victim);
    }
    cluster.lab.down();
}

/// For measurements: `KILLS=50 cargo test … -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn many_kills() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let kills = std::env::var("KILLS").ok().and_then(|it| it.parse().ok()).unwrap_or(50);
    let cluster = Cluster::up("kills");
    let mut all: BTreeMap<&str, Vec<u128>> = BTreeMap::new();
    for number in 0..kills {
        let victim = SWITCHES[number % SWITCHES.len()];
        for (role, ms) in kill(&cluster, victim) {
            all.entry(role).or_default().push(ms);
        }
    }
    for (role, times) in &mut all {
        times.sort_unstable();
        let at = |share: usize| times[(times.len() - 1) * share / 100];
        println!("{role}: median {} ms, 90 % {} ms, most {} ms", at(50), at(90), at(100));
    }
    cluster.lab.down();
}

/// With the controller stopped, and then dead, no request fails.
#[test]
fn no_request_needs_the_controller() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let cluster = Cluster::up("alone");
    let load = Load::start(&cluster, |_| None);
    std::thread::sleep(Duration::from_millis(300));
    cluster.lab.kill_daemon("controller", "controller");
    std::thread::sleep(Duration::from_secs(4));
    let during = load.progress();
    // An agent that starts meanwhile takes over what is there.
    cluster.lab.kill_daemon("s2", "switch");
    cluster.lab.restart_daemon("s2", "switch");
    std::thread::sleep(Duration::from_secs(1));
    cluster.lab.restart_daemon("controller", "controller");
    cluster.settle("the controller is back");
    let ended = load.end();
    ended.check(&cluster);
    println!("without a controller: {during} requests; {}", ended.summary());
    assert_eq!(ended.failed(), 0, "{}", ended.summary());
    cluster.lab.down();
}

/// All members of a group die: it is lost, and says so, until an operator founds it again.
#[test]
fn a_group_that_lost_all_members_says_so() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let cluster = Cluster::up("lost");
    let chain = cluster.groups()[0].chain.clone();
    let key = cluster::key_of(&cluster.ring, 0, 0);
    let mut client = cluster.client();
    let first = client.put(&key, b"before").unwrap().done().expect("a write").now.version;
    let members: Vec<&str> = chain.iter().map(|it| cluster::node(*it)).collect();
    for member in &members {
        // Its agent dies, and its slots are gone.
        cluster.lab.kill_daemon(member, "switch");
        common::must(&["switch", "detach", &format!("{}-{member}", cluster.lab.name)]);
    }
    for member in &members {
        cluster.lab.restart_daemon(member, "switch");
    }
    wait_for("the group is lost", || cluster.groups()[0].stage == "lost");
    wait_for("a client hears so", || {
        matches!(client.get(&key).unwrap(), netchain_client::Outcome::Lost)
    });
    let lost: Vec<usize> =
        cluster.groups().iter().filter(|it| it.stage == "lost").map(|it| it.group).collect();
    for group in &lost {
        cluster.order(&format!("refound {group}"));
    }
    cluster.settle("the groups are founded again");
    // (A client that was told that the group is lost asks anew.)
    let mut client = cluster.client();
    let read = client.get(&key).unwrap().done().expect("a read").now;
    assert_eq!(read.value, None);
    let again = client.put(&key, b"after").unwrap().done().expect("a write").now.version;
    assert!(again > first, "tokens go on: {first} {again}");
    println!("{} groups were lost, and founded again", lost.len());
    cluster.lab.down();
}

/// A switch is drained under load, and may come back.
#[test]
fn a_switch_is_drained() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let cluster = Cluster::up("drain");
    let load = Load::start(&cluster, |_| None);
    let address = cluster::address("s2");
    cluster.order(&format!("drain {address}"));
    wait_for("it is in no chain", || {
        cluster.groups().iter().all(|group| !group.chain.contains(&address))
    });
    cluster.settle("all chains are whole without it");
    cluster.order(&format!("drain {address} --undo"));
    let ended = load.end();
    ended.check(&cluster);
    println!("drained: {}", ended.summary());
    cluster.lab.down();
}
