//! What happens to a cluster, and what must hold then, whatever its servers keep: the test's
//! module `store` says that.

use crate::world::{
    self, Cut, Datagram, Direction, MS, SECOND, SERVERS, SHARDS, World, controller_address, keys,
    server_address, switch_address,
};
use proptest::prelude::*;
use wire::{Control, Report, Reporter};

const RUN: u64 = 20 * SECOND;
/// Time in which all comes to rest: more than the ten seconds after which a store ends the sessions
/// of switches that are silent.
const SETTLED: u64 = 11 * SECOND;

fn seeds() -> u32 {
    std::env::var("CHAIN_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

fn simulate(mut world: World) -> world::Checks {
    world.run(RUN);
    world.finish(RUN + 20 * SECOND);
    world.checks
}

proptest! {
    #![proptest_config(ProptestConfig { cases: seeds(), failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn nothing_acknowledged_is_lost_while_servers_come_and_go(seed in any::<u64>()) {
        let seed = std::env::var("SIMULATION_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(seed);
        let result = std::panic::catch_unwind(|| simulate(World::new(seed)));
        prop_assert!(result.is_ok(), "failed; replay with SIMULATION_SEED={seed}");
        let checks = result.unwrap();
        println!("seed {seed}: {} acknowledged, {} kills, {} joins, {} given up, {} new orders",
            checks.acks, checks.kills, checks.joins, checks.given_up, checks.reorders);
        // The run must have been about something.
        prop_assert!(checks.acks > 500 && checks.store.was_tried() && checks.kills > 5 && checks.joins > 5,
            "seed {}: {:?}", seed, checks);
    }

    /// With logs: any number of servers die, now and then all of them and the controller at once.
    #[test]
    fn nothing_acknowledged_is_lost_when_everything_loses_power(seed in any::<u64>()) {
        let seed = std::env::var("SIMULATION_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(seed);
        let result = std::panic::catch_unwind(|| {
            let mut world = World::with_journals(seed);
            // Some seeds draw no other one.
            for cut in [RUN / 3, 2 * RUN / 3] {
                world.run(cut);
                world.cut_power();
            }
            simulate(world)
        });
        prop_assert!(result.is_ok(), "failed; replay with SIMULATION_SEED={seed}");
        let checks = result.unwrap();
        prop_assert!(checks.acks > 200 && checks.power_cuts > 1 && checks.joins > 2, "seed {}: {:?}", seed, checks);
    }
}

/// One death at a time, at every place of the chain: how long nobody is served. In virtual time, so
/// the same on every machine.
#[test]
fn service_is_back_in_under_a_second() {
    for (place, name) in ["head", "middle", "tail"].into_iter().enumerate() {
        let mut world = World::calm(7);
        world.run(3 * SECOND);
        let victim = world.member(0, place);
        let before = world.checks.last_ack_of_shard[0];
        assert!(before + 50 * MS > world.time, "shard 0 is served before");
        world.kill(victim);
        let killed = world.time;
        world.checks.longest_gap_of_shard[0] = 0;
        world.run(killed + 2 * SECOND);
        let gap = world.checks.longest_gap_of_shard[0];
        println!("{name} killed: shard 0 not served for {} ms", gap / MS);
        assert!(gap < SECOND, "{name}: {gap} ns");
        world.finish(world.time + SETTLED);
    }
}

/// A server that sends but hears nothing loses its own places. Its complaints about its successors,
/// which it cannot hear, cost nobody else's.
#[test]
fn a_deaf_server_takes_nobody_with_it() {
    for (place, name) in ["head", "middle", "tail"].into_iter().enumerate() {
        let mut world = World::calm(7);
        world.run(3 * SECOND);
        let (chain, deaf) = (world.members(0), world.member(0, place));
        world.cut(Cut { machine: server_address(deaf), peer: None, direction: Direction::Into });
        let (cut, others) =
            (world.time, chain.into_iter().filter(|at| *at != deaf).collect::<Vec<_>>());
        world.checks.longest_gap_of_shard[0] = 0;
        while world.time < cut + 3 * SECOND {
            world.run(world.time + 10 * MS);
            let members = world.members(0);
            assert!(
                others.iter().all(|at| members.contains(at)),
                "{name} {deaf} is deaf: {members:?} at {}",
                world.time
            );
        }
        assert!(!world.members(0).contains(&deaf), "{name}");
        let gap = world.checks.longest_gap_of_shard[0];
        println!("{name} deaf: shard 0 not served for {} ms", gap / MS);
        assert!(gap < SECOND, "{name}: {gap} ns");
        world.heal();
        world.run(world.time + 5 * SECOND);
        world.finish(world.time + SETTLED);
    }
}

/// A server that everybody hears, and that hears its neighbours, but not the controller: it cannot
/// follow into the next view, and its predecessor waits for it.
#[test]
fn a_member_that_never_learns_of_a_view_is_taken_out() {
    let mut world = World::calm(7);
    world.run(3 * SECOND);
    let chain = world.members(0);
    let (stuck, victim) = (chain[1], chain[2]);
    world.cut(Cut {
        machine: server_address(stuck),
        peer: Some(controller_address()),
        direction: Direction::Into,
    });
    world.run(world.time + SECOND);
    assert_eq!(
        world.members(0),
        chain,
        "it is no use to take it out before there is anything to learn"
    );
    world.kill(victim);
    let killed = world.time;
    world.checks.longest_gap_of_shard[0] = 0;
    world.run(killed + 3 * SECOND);
    assert!(!world.members(0).contains(&stuck));
    let gap = world.checks.longest_gap_of_shard[0];
    println!("tail killed, middle without news: shard 0 not served for {} ms", gap / MS);
    assert!(gap < 2 * SECOND, "{gap} ns");
    world.heal();
    world.run(world.time + 5 * SECOND);
    world.finish(world.time + SETTLED);
}

/// A controller that is cut off from everybody, for however long, takes nobody out: neither
/// meanwhile nor when it hears some of them again.
#[test]
fn a_controller_that_hears_nobody_takes_nobody_out() {
    for seed in 0..20 {
        let mut world = World::calm(seed);
        let phase = world.draw(100 * MS);
        world.run(3 * SECOND + phase);
        let chains: Vec<_> = (0..usize::from(SHARDS)).map(|shard| world.members(shard)).collect();
        for cut_ms in [120, 240, 260, 300, 1000] {
            world.cut(Cut {
                machine: controller_address(),
                peer: None,
                direction: Direction::Both,
            });
            let until = world.time + cut_ms * MS + world.draw(60 * MS);
            world.run(until);
            world.heal();
            world.run(until + SECOND);
            let now: Vec<_> = (0..usize::from(SHARDS)).map(|shard| world.members(shard)).collect();
            assert_eq!(now, chains, "seed {seed}, cut for {cut_ms} ms");
        }
        world.finish(world.time + SETTLED);
    }
}

/// Lets the world run, while a switch reports every 50 ms.
fn run_with_reports(world: &mut World, duration: u64) {
    let until = world.time + duration;
    while world.time < until {
        let (reporter, shards) = (Reporter::Switch { switch_id: 1 }, SHARDS);
        let report = Report {
            reporter,
            version: 0,
            shards,
            heard_ms: 0,
            accepted: false,
            machine: String::new(),
            replicas: Vec::new(),
            load: None,
        };
        let (from, to) = (switch_address(1), controller_address());
        let mut bytes =
            Control::Report { sent_ns: world.time, incarnation: 9, report }.encode().unwrap();
        assert!(keys().sign(&mut bytes, *from.ip(), *to.ip()));
        world.transmit(Datagram { from, to, bytes });
        world.run(world.time + 50 * MS);
    }
}

/// A switch whose agent is away forwards, and asks the heads that it knew: those that live stay
/// heads until it is back. (Found by chaos: heads were spread while an agent was being restarted,
/// and its switch asked the wrong servers until then.)
#[test]
fn heads_stay_while_a_switch_does_not_listen() {
    let mut world = World::calm(7);
    run_with_reports(&mut world, 3 * SECOND);
    let survivor = world.member(0, 0);
    let reorders = world.checks.reorders;
    for victim in (0..SERVERS).filter(|at| *at != survivor) {
        world.kill(victim);
        world.run(world.time + 400 * MS);
        world.revive(victim);
        world.run(world.time + 250 * MS);
    }
    world.run(world.time + 15 * SECOND);
    assert_eq!(world.checks.reorders, reorders, "heads were moved behind the switch's back");
    run_with_reports(&mut world, 10 * SECOND);
    assert!(world.checks.reorders > reorders, "they stay though it listens");
    world.finish(world.time + SETTLED);
}

/// Heads after two of three servers died, one after the other, and came back: the third headed
/// everything, and does so no more.
#[test]
fn heads_are_spread_again() {
    let mut world = World::calm(7);
    world.run(3 * SECOND);
    let spread = |world: &World| {
        let mut heads = std::collections::BTreeMap::new();
        (0..usize::from(SHARDS))
            .for_each(|shard| *heads.entry(world.member(shard, 0)).or_insert(0) += 1);
        heads
    };
    let reorders = world.checks.reorders;
    // All but one of the servers die, one after the other, and return: it is the head of whatever
    // it is in.
    let survivor = world.member(0, 0);
    for victim in (0..SERVERS).filter(|at| *at != survivor) {
        world.kill(victim);
        world.run(world.time + 400 * MS);
        world.revive(victim);
        world.run(world.time + 250 * MS);
    }
    let before = spread(&world);
    (0..usize::from(SHARDS)).for_each(|shard| world.checks.longest_gap_of_shard[shard] = 0);
    world.run(world.time + 5 * SECOND);
    let after = spread(&world);
    let gap = world.checks.longest_gap_of_shard.iter().max().copied().unwrap_or(0);
    println!(
        "heads by server: {before:?}, then {after:?}; longest time that a shard was not served {} ms",
        gap / MS
    );
    assert!(world.checks.reorders > reorders, "{:?}", world.checks);
    assert!(
        after.values().all(|count| *count <= usize::from(SHARDS).div_ceil(SERVERS) + 1),
        "{after:?}"
    );
    assert!(gap < SECOND, "{gap} ns");
    world.finish(world.time + SETTLED);
}

/// Machines with two workers each: both die at once, and every chain loses one server. (Each
/// decision of the run is checked: no chain has two workers of a machine.)
#[test]
fn workers_of_a_machine_are_in_no_chain_together() {
    let mut world = World::paired(7);
    world.run(3 * SECOND);
    let shards = 0..usize::from(SHARDS);
    assert!(shards.clone().all(|shard| world.members(shard).len() == 3), "one of each machine");
    let used: std::collections::BTreeSet<_> =
        shards.clone().flat_map(|shard| world.members(shard)).collect();
    assert!(used.len() > 3, "both workers of a machine have shards: {used:?}");
    for machine in 0..2 {
        let workers = [2 * machine, 2 * machine + 1];
        workers.into_iter().for_each(|at| world.kill(at));
        world.checks.longest_gap_of_shard.fill(0);
        world.run(world.time + 2 * SECOND);
        for shard in shards.clone() {
            let members = world.members(shard);
            assert!(
                members.len() == 2 && workers.iter().all(|at| !members.contains(at)),
                "{shard}: {members:?}"
            );
        }
        let gap = world.checks.longest_gap_of_shard.iter().max().copied().unwrap_or(0);
        assert!(gap < SECOND, "{gap} ns");
        workers.into_iter().for_each(|at| world.revive(at));
        world.run(world.time + 4 * SECOND);
        assert!(shards.clone().all(|shard| world.members(shard).len() == 3), "the machine is back");
    }
    world.finish(world.time + SETTLED);
}
