//! Switches that are back get their groups back, under load.

use crate::cluster::{Cluster, address};
use crate::load::Load;
use netchain_daemon::GroupStatus;
use std::time::Instant;

/// Groups that are waited for.
const MOVES: usize = 6;

/// Groups whose chain has exactly the members that the ring wants.
fn in_place(cluster: &Cluster) -> usize {
    let is_in_place = |group: &&GroupStatus| {
        let wanted = cluster.ring.chain_of(group.group as u16).expect("a group");
        let members = &group.chain;
        group.joining.is_none()
            && members.len() == wanted.len()
            && wanted.iter().all(|it| members.contains(it))
    };
    cluster.groups().iter().filter(is_in_place).count()
}

/// An operator does not wait for `rebalance_after_s`. All that clients hear meanwhile is judged.
/// (The simulator waits until all have moved.)
pub fn chains_return(cluster: &Cluster, victim: &str) {
    let status = || cluster.status().expect("an answer");
    let victim = address(victim);
    // Groups that the ring wants it for, and that it serves.
    let serves = || {
        let is_member = |it: &&GroupStatus| {
            let wanted = cluster.ring.chain_of(it.group as u16).expect("a group");
            it.joining != Some(victim) && it.chain.contains(&victim) && wanted.contains(&victim)
        };
        cluster.groups().iter().filter(is_member).count()
    };
    let (placed, served, to_move) = (in_place(cluster), serves(), status().to_move);
    assert!(to_move >= MOVES, "others have taken its place: {to_move}");
    let load = Load::start(cluster, 9, |_| None);
    let began = Instant::now();
    cluster.order("rebalance");
    cluster.wait_for("groups move", || in_place(cluster) >= placed + MOVES && serves() > served);
    let took = began.elapsed();
    assert!(status().to_move < to_move);
    let text = cluster.lab.metrics("controller");
    let counted = |name: &str| {
        let name = format!("stateplane_kv_controller_{name} ");
        let value = text.lines().find_map(|it| it.strip_prefix(&name));
        value.and_then(|it| it.parse::<usize>().ok()).expect("a number")
    };
    assert!(counted("moves_total") >= MOVES && counted("groups_to_move") < to_move, "{text}");
    let ended = load.end();
    println!("{MOVES} groups move in {} ms: {}", took.as_millis(), ended.summary());
    ended.check(cluster);
}
