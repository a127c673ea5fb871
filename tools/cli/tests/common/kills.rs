//! Switches that lose their power by turns while hosts' packets go through them.

use crate::common::{TestLab, env_number, one_at_a_time, skip, wait_for};
use std::time::Instant;

/// A long test: KILLS kills (50) for each way in which packets wait for the store; with COMMIT only
/// for that way.
pub fn many_kills(run: impl Fn(&str, u64)) {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let all = ["wrap", "batch"].map(str::to_owned).to_vec();
    for commit in std::env::var("COMMIT").map_or(all, |one| vec![one]) {
        run(&commit, env_number("KILLS").unwrap_or(50));
    }
}

/// s1 and s2 are killed by turns and come back. Each carries `packets` packets before it dies, by
/// `counter`, and the other as many before it comes back, by what has `arrived` at the hosts.
pub fn by_turns(
    lab: &TestLab,
    kills: u64,
    (counter, packets): (&str, u64),
    arrived: impl Fn() -> u64,
) {
    let began = Instant::now();
    for kill in 0..kills {
        let victim = ["s1", "s2"][kill as usize % 2];
        let before = lab.counter(victim, counter);
        wait_for(&format!("{victim} carries {packets} packets"), || {
            lab.counter(victim, counter) >= before + packets
        });
        lab.fail(victim);
        let before = arrived();
        wait_for(&format!("{packets} packets arrive without {victim}"), || {
            arrived() >= before + packets
        });
        lab.restore(victim);
        wait_for("both switches are used", || lab.both_used("10.1.0.0/24"));
    }
    println!("{kills} kills in {:.1} s", began.elapsed().as_secs_f64());
}
