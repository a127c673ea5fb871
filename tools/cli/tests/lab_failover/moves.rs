//! Switches that are back get their groups back, under load.

use crate::cluster::{Cluster, address};
use crate::common::wait_for;
use crate::load::Load;
use netchain_daemon::GroupStatus;
use std::time::Instant;

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
pub fn chains_return(cluster: &Cluster, victim: &str) {
    let victim = address(victim);
    let all = usize::from(cluster.ring.groups());
    let before = in_place(cluster);
    assert!(before < all, "others have taken its place");
    let load = Load::start(cluster, 9, |_| None);
    let began = Instant::now();
    cluster.order("rebalance");
    wait_for("chains have the members that the ring wants", || in_place(cluster) == all);
    let took = began.elapsed();
    cluster.settle("all serve");
    let status = cluster.status().expect("an answer");
    assert_eq!((status.to_move, status.moves_in_ms), (0, None));
    let found = status.switches.iter().find(|it| it.address == victim).expect("the victim");
    let wanted = (0..cluster.ring.groups()).filter_map(|group| cluster.ring.chain_of(group));
    assert_eq!(found.chains, wanted.filter(|chain| chain.contains(&victim)).count());
    let moved = all - before;
    let text = cluster.lab.metrics("controller");
    let count =
        text.lines().find_map(|it| it.strip_prefix("stateplane_kv_controller_moves_total "));
    assert!(count.and_then(|it| it.parse().ok()) >= Some(moved), "{count:?}");
    let ended = load.end();
    println!("{moved} groups move in {} ms: {}", took.as_millis(), ended.summary());
    ended.check(cluster);
}
