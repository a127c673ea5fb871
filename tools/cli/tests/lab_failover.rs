//! Switches that serve keys, and die: four of them and their controller, under the load of real
//! clients. No acknowledged write is lost, and versions never go back. Needs root. Waits for
//! timers.

#[path = "lab_failover/cluster.rs"]
mod cluster;
#[path = "lab_failover/collect.rs"]
mod collect;
mod common;
#[path = "lab_failover/controllers.rs"]
mod controllers;
#[path = "lab_failover/counters.rs"]
mod counters;
#[path = "lab_failover/deploy.rs"]
mod deploy;
#[path = "lab_failover/import.rs"]
mod import;
#[path = "lab_failover/load.rs"]
mod load;
#[path = "lab_failover/locks.rs"]
mod locks;
#[path = "lab_failover/moves.rs"]
mod moves;
mod page;
#[path = "lab_failover/random.rs"]
mod random;
#[path = "lab_failover/recovery.rs"]
mod recovery;
#[path = "lab_failover/verify.rs"]
mod verify;
#[path = "lab_failover/watch.rs"]
mod watch;

use cluster::Cluster;
use common::{env_number, one_at_a_time, skip, wait_for};
use counters::Counters;
use import::Import;
use load::Load;
use locks::Locks;
use recovery::Asker;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Positions in a chain.
const ROLES: [&str; 3] = ["head", "middle", "tail"];
const SWITCHES: [&str; 4] = ["s1", "s2", "s3", "s4"];

/// From a kill until something, in milliseconds; None: it did not come.
fn ms(since: Instant, at: Option<Instant>) -> Option<u128> {
    at.map(|at| at.saturating_duration_since(since).as_millis())
}

/// What is told of kills: times in milliseconds.
#[derive(Default)]
struct Told {
    /// From the kill to the next acknowledged write of a key, the last of some keys; by the role
    /// that the switch had.
    written: BTreeMap<&'static str, Vec<u128>>,
    /// From the kill until the controller has decided.
    detected: Vec<u128>,
    /// Switches that the controller took for dead, or mute, though nobody killed them.
    falsely: u64,
    unknown: u64,
}

impl Told {
    fn print(&mut self) {
        let detected = ("detected", std::mem::take(&mut self.detected));
        for (what, mut times) in std::mem::take(&mut self.written).into_iter().chain([detected]) {
            times.sort_unstable();
            let at = |share: usize| times[(times.len() - 1) * share / 100];
            let count = times.len();
            println!(
                "{what}: {count} kills, median {}, 90 % {}, most {} ms",
                at(50),
                at(90),
                at(100)
            );
        }
        println!("{} writes unknown, {} false detections", self.unknown, self.falsely);
    }
}

/// Kills a switch under load, and brings it back.
fn kill(cluster: &Cluster, victim: &str, round: usize, told: &mut Told) {
    let address = cluster::address(victim);
    let chains = cluster.groups();
    let deaths = cluster.deaths();
    let load = Load::start(cluster, round, |group| {
        chains[usize::from(group)].chain.iter().position(|it| *it == address)
    });
    std::thread::sleep(Duration::from_millis(500));
    let (killed, cut) = cluster.cut(victim);
    let detected = cluster.until_dead(address, Duration::from_secs(5));
    cluster.lab.fail(victim);
    wait_for("all keys are written again", || {
        load.first_writes_after(cut).iter().all(|(_, at)| at.is_some())
    });
    std::thread::sleep(Duration::from_millis(300));
    let written = load.first_writes_after(cut);
    let way = || cluster.lab.run("core", &format!("ip -4 route show {address}")).1;
    let own = format!("dev {victim} ");
    wait_for("others announce its address", || {
        let way = way();
        way.contains("dev s") && !way.contains(&own)
    });
    cluster.lab.restore(victim);
    cluster.settle("the killed switch is back");
    std::thread::sleep(Duration::from_millis(200));
    wait_for("it alone announces its address again", || {
        let way = way();
        way.contains(&own) && way.matches("dev s").count() == 1
    });
    let ended = load.end();
    let detection = ms(killed, detected).expect("detected");
    told.detected.push(detection);
    let (dead, mute) = cluster.deaths();
    let falsely = (dead - deaths.0 - 1, mute - deaths.1);
    told.falsely += falsely.0 + falsely.1;
    told.unknown += ended.unknown();
    for (at, role) in ROLES.iter().enumerate() {
        let of_role = written.iter().filter(|(place, _)| *place == Some(at));
        let first = of_role.map(|(_, at)| ms(killed, *at));
        let worst = first.map(|it| it.expect("a write after the kill")).max();
        let Some(worst) = worst else { continue };
        told.written.entry(role).or_default().push(worst);
        println!("{victim} dies, {role}: {worst} ms until the next write, dead after {detection}");
    }
    println!("{victim} dies: {}, {falsely:?} falsely dead, mute", ended.summary());
    ended.check(cluster);
}

/// Head, middle and tail of some groups die, each once; the switch that returns gets its keys by
/// copies, and the chains are whole again. Then clients count and lock while one dies. In the end
/// chains go back to the switches that the ring wants.
#[test]
fn no_acknowledged_write_is_lost_when_a_switch_dies() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let cluster = Cluster::up("failover");
    let mut told = Told::default();
    for (round, victim) in ["s1", "s3"].into_iter().enumerate() {
        kill(&cluster, victim, round, &mut told);
    }
    let counters = Counters::start(&cluster, 20);
    let locks = Locks::start(&cluster, 10);
    std::thread::sleep(Duration::from_millis(500));
    let keys = verify::agrees(&cluster);
    assert!(keys > 0, "{keys} keys under load");
    let mut import = Import::start(&cluster);
    std::thread::sleep(Duration::from_millis(200));
    let went_on = import.goes_on();
    cluster.kill("s2");
    locks.harm(1, Duration::from_secs(2));
    println!("{}, {}", import.end(), if went_on { "over a kill" } else { "before the kill" });
    cluster.lab.restore("s2");
    println!("{}; {}", counters.end(&cluster), locks.end());
    cluster.settle("the killed switch is back");
    verify::agrees(&cluster);
    verify::finds_a_changed_slot(&cluster);
    moves::chains_return(&cluster, "s2");
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
    let kills = env_number("KILLS").unwrap_or(50);
    let cluster = Cluster::up("kills");
    let mut told = Told::default();
    for round in 0..kills as usize {
        // The switch with the most groups in the role that has had the fewest kills.
        let so_far = |role: &&str| told.written.get(*role).map_or(0, Vec::len);
        let place = (0..ROLES.len()).min_by_key(|at| so_far(&ROLES[*at])).expect("a role");
        let groups = cluster.groups();
        let count = |switch: &&str| {
            let address = cluster::address(switch);
            groups.iter().filter(|group| group.chain.get(place) == Some(&address)).count()
        };
        let victim = SWITCHES.into_iter().max_by_key(count).expect("a switch");
        kill(&cluster, victim, round, &mut told);
    }
    told.print();
    cluster.lab.down();
}

/// Switches die one after the other for so long, and come back each after what is done `meanwhile`
/// (it gets the kill's number). How many kills.
fn kill_by_turns(cluster: &Cluster, time: Duration, meanwhile: impl Fn(u64)) -> u64 {
    let (began, mut kills) = (Instant::now(), 0);
    while began.elapsed() < time {
        let victim = SWITCHES[kills as usize % SWITCHES.len()];
        cluster.kill(victim);
        meanwhile(kills);
        cluster.lab.restore(victim);
        cluster.settle("the killed switch is back");
        kills += 1;
    }
    kills
}

/// 100 clients count while heads die and replies are lost, then 100 lock; SECONDS=N: for so long
/// each.
#[test]
#[ignore = "takes minutes"]
fn many_clients() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let time = Duration::from_secs(env_number("SECONDS").unwrap_or(60));
    let cluster = Cluster::up("clients");
    let counters = Counters::start(&cluster, 100);
    let lossy = cluster.lose(10);
    let kills = kill_by_turns(&cluster, time, |_| std::thread::sleep(Duration::from_secs(2)));
    drop(lossy);
    println!("{kills} kills: {}", counters.end(&cluster));
    let locks = Locks::start(&cluster, 100);
    let kills = kill_by_turns(&cluster, time, |kill| locks.harm(kill, Duration::from_secs(4)));
    println!("{kills} kills: {}", locks.end());
    cluster.lab.down();
}

/// Random faults; SEED=N, ROUNDS=N.
#[test]
#[ignore = "takes minutes"]
fn chaos() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let cluster = Cluster::up("chaos");
    let seed = env_number("SEED").unwrap_or_else(|| u64::from(std::process::id()));
    for round in 0..env_number("ROUNDS").unwrap_or(20) {
        random::round(&cluster, seed, round);
    }
    cluster.lab.down();
}

/// With the controller dead for a minute, no request fails. SECONDS=N.
#[test]
#[ignore = "takes a minute"]
fn a_minute_without_the_controller() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let cluster = Cluster::up("minute");
    let load = Load::start(&cluster, 0, |_| None);
    std::thread::sleep(Duration::from_secs(1));
    cluster.lab.kill_daemon("controller", "controller");
    std::thread::sleep(Duration::from_secs(env_number("SECONDS").unwrap_or(60)));
    let during = load.progress();
    cluster.lab.restart_daemon("controller", "controller");
    cluster.settle("the controller is back");
    let ended = load.end();
    println!("without a controller: {during} requests; {}", ended.summary());
    assert_eq!(ended.failed(), 0, "{}", ended.summary());
    ended.check(&cluster);
    cluster.lab.down();
}

/// Fig. 10 with 100 groups: a switch dies, and comes back, while clients ask at 30 % of the most
/// that is answered.
#[test]
#[ignore = "measures"]
fn a_recovery_with_100_groups() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let (cluster, _folder) = Cluster::of_groups("recovery", 100);
    let mut asker = Asker::new(&cluster);
    let most = asker.most(Duration::from_secs(2));
    let rate = most * 0.3;
    println!("{most:.0} requests/s at the most, {rate:.0} asked");
    let nothing = asker.while_at(rate, || std::thread::sleep(Duration::from_secs(3)));
    println!("nothing happens: {nothing}");
    // (The lab's handle stays in this thread.)
    let name = &cluster.lab.name;
    let open = || lab::Lab::open(name).expect("the lab");
    let fails = asker.while_at(rate, || {
        open().fail("s2").expect("it fails");
        std::thread::sleep(Duration::from_secs(2));
    });
    println!("a switch dies: {fails}");
    let returns = asker.while_at(rate, || {
        open().restore("s2").expect("it is back");
        std::thread::sleep(Duration::from_secs(15));
    });
    println!("it comes back: {returns}");
    cluster.settle("the switch is back");
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
    let load = Load::start(&cluster, 0, |_| None);
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
    println!("without a controller: {during} requests; {}", ended.summary());
    assert_eq!(ended.failed(), 0, "{}", ended.summary());
    ended.check(&cluster);
    cluster.lab.down();
}

/// With etcd as the database, and two controllers.
#[test]
fn another_controller_decides_when_one_dies() {
    if skip() {
        return;
    }
    if std::process::Command::new("etcd").arg("--version").output().is_err() {
        eprintln!("skipped: there is no etcd (apt install etcd-server)");
        return;
    }
    let _turn = one_at_a_time();
    let cluster = Cluster::with_etcd("etcd");
    controllers::the_deciding_one_dies(&cluster);
    cluster.lab.down();
}

/// Alerts and dashboard; and what operate.md says of a lost database.
#[test]
fn a_controller_without_its_database_decides_nothing() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let cluster = Cluster::up("database");
    watch::is_complete(&cluster);
    controllers::the_database_is_lost(&cluster);
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
    // All agents die at once (a chain would get another member), and the slots are gone.
    let name = &cluster.lab.name;
    std::thread::scope(|scope| {
        for member in &members {
            scope.spawn(move || {
                let lab = lab::Lab::open(name).expect("the lab");
                lab.kill_daemon(member, "switch").expect("killed");
            });
        }
    });
    for member in &members {
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
    cluster.order(&format!("refound {}", lost[0]));
    cluster.order("refound --all");
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
    let load = Load::start(&cluster, 0, |_| None);
    let address = cluster::address("s2");
    cluster.order(&format!("drain {address}"));
    wait_for("it is in no chain", || {
        cluster.groups().iter().all(|group| !group.chain.contains(&address))
    });
    cluster.settle("all chains are whole without it");
    cluster.order(&format!("drain {address} --undo"));
    let ended = load.end();
    println!("drained: {}", ended.summary());
    ended.check(&cluster);
    an_agent_dies(&cluster, "s3");
    collect::gives_slots_back(&cluster);
    collect::a_switch_dies_meanwhile(&cluster, "s2");
    cluster.lab.down();
}

/// A switch whose agent is dead answers no reads, and its data plane goes on: the others go on
/// without it.
fn an_agent_dies(cluster: &Cluster, victim: &str) {
    cluster.settle("all switches may be members");
    let load = Load::start(cluster, 1, |_| None);
    std::thread::sleep(Duration::from_millis(300));
    let (killed, address, name) = (Instant::now(), cluster::address(victim), &cluster.lab.name);
    let dead = std::thread::scope(|scope| {
        // (It takes a while until all of a process is gone.)
        scope.spawn(|| lab::Lab::open(name).and_then(|lab| lab.kill_daemon(victim, "switch")));
        cluster.until_dead(address, Duration::from_secs(10))
    });
    let dead = ms(killed, dead).expect("it is out of its chains");
    let chain = |it: &netchain_daemon::GroupStatus| it.chain.contains(&address);
    assert!(!cluster.groups().iter().any(chain));
    std::thread::sleep(Duration::from_millis(300));
    let ended = load.end();
    println!("an agent dies: out after {dead} ms; {}", ended.summary());
    ended.check(cluster);
    cluster.lab.restart_daemon(victim, "switch");
    cluster.settle("the agent is back");
}
