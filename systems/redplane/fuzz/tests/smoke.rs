//! A few seconds of each campaign, with one fixed and one fresh seed. `make soak` does the full
//! counts. Needs root.

use redplane_fuzz::rig::Mode;
use redplane_fuzz::{campaign, groups};
use std::time::{SystemTime, UNIX_EPOCH};

fn both(run: impl Fn(u64)) {
    run(0x5eed);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    run(since.map_or(1, |time| time.as_nanos() as u64));
}

#[test]
fn frames_through_the_local_nat() {
    both(|seed| println!("{:?}", campaign::frames(seed, 20_000, Mode::Local).unwrap()));
}

#[test]
fn frames_through_the_linearizable_nat() {
    both(|seed| println!("{:?}", campaign::frames(seed, 20_000, Mode::Linearizable).unwrap()));
}

#[test]
fn state_messages() {
    both(|seed| println!("{:?}", campaign::messages(seed, 10_000).unwrap()));
}

#[test]
fn programs_that_set_several_objects() {
    both(|seed| println!("{}", groups::run(seed, 2).unwrap()));
}
