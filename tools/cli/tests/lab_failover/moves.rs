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
    // Groups that the ring wants it for: how many it serves, and how many it does not.
    let serves = || {
        let wants = |it: &&GroupStatus| {
            cluster.ring.chain_of(it.group as u16).expect("a group").contains(&victim)
        };
        let is_member =
            |it: &&GroupStatus| it.joining != Some(victim) && it.chain.contains(&victim);
        let groups = cluster.groups();
        let (served, lacking): (Vec<_>, Vec<_>) = groups.iter().filter(wants).partition(is_member);
        (served.len(), lacking.len())
    };
    let (placed, (served, lacks), to_move) = (in_place(cluster), serves(), status().to_move);
    assert!(to_move >= MOVES, "others have taken its place: {to_move}");
    let load = Load::start(cluster, 9, |_| None);
    let began = Instant::now();
    cluster.order("rebalance");
    // (On a busy machine, others may have been taken for dead, and have most groups to get back.)
    let (enough, returns) = ((placed + MOVES).min(status().groups), lacks.min(1));
    cluster
        .wait_for("groups move", || in_place(cluster) >= enough && serves().0 >= served + returns);
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
