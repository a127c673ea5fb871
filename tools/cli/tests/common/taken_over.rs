//! What a switch goes on from when it takes sketches over, as a packet log shows it.

use crate::tenants::{Logged, SLOTS, Sketch};
use std::collections::BTreeMap;

/// What a switch goes on from: the first state that it was given. It gets one again with each grant
/// of the same epoch (a packet that asked late, a lease that ran out and was renewed), and takes
/// nothing from that: it is the same, or a snapshot of its own that is whole by then.
pub fn taken_over(log: &[Logged]) -> (u64, Sketch) {
    let mut first = None;
    let mut own: BTreeMap<(u32, u64), &Sketch> = BTreeMap::new();
    for it in log {
        match it {
            Logged::Snapshot { epoch, seq, sketch, .. } => drop(own.insert((*epoch, *seq), sketch)),
            Logged::State { epoch, seq, sketch, .. } => {
                let (of, from, state) = first.get_or_insert((*epoch, *seq, **sketch));
                assert_eq!(of, epoch, "a second grant to the switch, with another epoch");
                let is_first = (*from, *state) == (*seq, **sketch);
                let is_own = own.get(&(*epoch, *seq)).is_some_and(|sent| *sent == &**sketch);
                assert!(
                    is_first || is_own,
                    "states {from} and {seq} under one grant, and {seq} is not its own"
                );
            }
            _ => {}
        }
    }
    let (_, seq, state) = first.expect("a state for the second switch");
    (seq, state)
}

/// A log of one switch: states that it was given (true) and snapshots that it sent.
fn log_of_states(all: &[(bool, u32, u64, u32)]) -> Vec<Logged> {
    let one = |&(is_state, epoch, seq, count): &(bool, u32, u64, u32)| {
        let (tenant, window, sketch) = (10, 0, Box::new([count; SLOTS]));
        match is_state {
            true => Logged::State { tenant, epoch, seq, window, sketch },
            false => Logged::Snapshot { tenant, epoch, seq, window, sketch },
        }
    };
    all.iter().map(one).collect()
}

#[test]
fn a_grant_again_brings_the_switch_its_own_snapshot() {
    let log = log_of_states(&[(true, 5, 7, 1), (true, 5, 7, 1), (false, 5, 8, 2), (true, 5, 8, 2)]);
    assert_eq!(taken_over(&log), (7, [1; SLOTS]));
}

#[test]
#[should_panic(expected = "states 7 and 8 under one grant")]
fn a_state_that_the_switch_did_not_send_is_found() {
    taken_over(&log_of_states(&[(true, 5, 7, 1), (true, 5, 8, 2), (false, 5, 8, 2)]));
}

#[test]
#[should_panic(expected = "states 7 and 8 under one grant")]
fn a_state_with_other_slots_than_were_sent_is_found() {
    taken_over(&log_of_states(&[(true, 5, 7, 1), (false, 5, 8, 2), (true, 5, 8, 3)]));
}
