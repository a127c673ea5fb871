//! What packet logs of tenants must show: snapshots of one instant, right marks, a take-over that
//! begins with a whole snapshot.

use crate::taken_over::taken_over;
use crate::tenants::{Flow, Logged, SLOTS, Sketch, count, estimate, packets};
use crate::{DROPPED, MARK_DSCP, THRESHOLD};
use std::collections::BTreeMap;

/// Snapshots of one epoch, by number; one that was sent again must be the same.
pub fn snapshots(log: &[Logged]) -> BTreeMap<u64, Sketch> {
    let mut found: BTreeMap<u64, Sketch> = BTreeMap::new();
    let mut epochs = vec![];
    for it in log {
        if let Logged::Snapshot { epoch, seq, sketch, .. } = it {
            let before = found.entry(*seq).or_insert(**sketch);
            assert!(*before == **sketch, "snapshot {seq} was sent again with other slots");
            epochs.push(*epoch);
        }
    }
    epochs.dedup();
    assert_eq!(epochs.len(), 1, "epochs {epochs:?}");
    found
}

/// Each snapshot must be, slot by slot, the sketch of the first *n* packets of the log, and take in
/// every packet that had left before the snapshot before it did. Returns, by snapshot, how many
/// packets it has.
pub fn all_are_of_one_instant(log: &[Logged]) -> BTreeMap<u64, u32> {
    let snapshots = snapshots(log);
    let flows: Vec<&Flow> = log
        .iter()
        .filter_map(|it| if let Logged::Packet { flow, .. } = it { Some(flow) } else { None })
        .collect();
    let (mut at, mut expected) = (0, [0; SLOTS]);
    let mut counts = BTreeMap::new();
    for (seq, sketch) in &snapshots {
        let n = packets(sketch);
        assert!(
            n as usize >= at && n as usize <= flows.len(),
            "snapshot {seq}: {n} packets after {at}, of {}",
            flows.len()
        );
        flows[at..n as usize].iter().for_each(|flow| count(&mut expected, flow));
        at = n as usize;
        let wrong: Vec<usize> =
            (0..SLOTS).filter(|slot| expected[*slot] != sketch[*slot]).collect();
        assert!(
            wrong.is_empty(),
            "snapshot {seq} of {n} packets: slots {wrong:?} are of another instant"
        );
        counts.insert(*seq, n);
    }
    let (mut left, mut earlier) = (0, None);
    for it in log {
        match it {
            Logged::Packet { .. } => left += 1,
            Logged::Snapshot { seq, .. } if earlier.is_none_or(|(before, _)| *seq > before) => {
                // It was taken after the one before was acknowledged, so after that one's message,
                // so after all that had left by then.
                if let Some((_, left_before)) = earlier {
                    assert!(
                        counts[seq] >= left_before,
                        "snapshot {seq} lacks packets that had left before the last"
                    );
                }
                earlier = Some((*seq, left));
            }
            _ => {}
        }
    }
    counts
}

/// Which packets are marked follows from the sketch, packet by packet.
pub fn marks_are_right(log: &[Logged]) {
    let (mut sketch, mut marked) = ([0; SLOTS], 0);
    for it in log {
        if let Logged::Packet { flow, dscp, .. } = it {
            count(&mut sketch, flow);
            let over = estimate(&sketch, flow) > THRESHOLD;
            assert_eq!(
                *dscp,
                if over { MARK_DSCP } else { 0 },
                "estimate {}",
                estimate(&sketch, flow)
            );
            marked += usize::from(over);
        }
    }
    assert!(marked > 0, "no flow went over the threshold");
}

pub fn counts(log: &[Logged]) -> BTreeMap<Flow, u32> {
    let mut counts = BTreeMap::new();
    for it in log {
        if let Logged::Packet { flow, .. } = it {
            *counts.entry(*flow).or_default() += 1;
        }
    }
    counts
}

/// The five flows with the most packets.
pub fn elephants(counts: &BTreeMap<Flow, u32>) -> Vec<(Flow, u32)> {
    let mut sorted: Vec<(Flow, u32)> = counts.iter().map(|(flow, count)| (*flow, *count)).collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    sorted.truncate(5);
    sorted
}

/// The second switch began with the first one's newest whole snapshot, and lost nothing of it.
pub fn goes_on_from_a_whole_snapshot(tenant: u8, first: &[Logged], second: &[Logged]) {
    let sent = snapshots(first);
    let (seq, state) = taken_over(second);
    assert!(
        sent.get(&seq) == Some(&state),
        "tenant {tenant}: state {seq} is no snapshot of the first switch"
    );
    let acknowledged = first.iter().filter_map(|it| match it {
        Logged::Acknowledged { seq, .. } => Some(*seq),
        _ => None,
    });
    let acknowledged = acknowledged.max().expect("acknowledged snapshots");
    assert!(seq >= acknowledged, "tenant {tenant}: state {seq} although {acknowledged} was whole");

    let later = snapshots(second);
    for (seq, sketch) in &later {
        assert!(
            (0..SLOTS).all(|slot| sketch[slot] >= state[slot]),
            "tenant {tenant}: snapshot {seq} has less than {state:?}"
        );
    }
    if tenant == DROPPED {
        for it in second {
            if let Logged::Packet { flow, .. } = it {
                assert!(
                    estimate(&state, flow) < THRESHOLD,
                    "a flow that was over the threshold came through"
                );
            }
        }
        return;
    }
    // In the end: what it began with and every packet that it let out.
    let mut expected = state;
    let after = counts(second);
    for (flow, times) in &after {
        (0..*times).for_each(|_| count(&mut expected, flow));
    }
    let last = later.values().next_back().expect("snapshots of the second switch");
    assert!(*last == expected, "tenant {tenant}: the last snapshot is not the state and the log");

    // The heavy hitters are there: counted no less than at the snapshot and since.
    let had = packets(&state) as usize;
    let left = first.iter().filter(|it| matches!(it, Logged::Packet { .. })).count();
    let until = first.iter().filter(|it| matches!(it, Logged::Packet { .. })).take(had);
    let mut before: BTreeMap<Flow, u32> = BTreeMap::new();
    for it in until {
        if let Logged::Packet { flow, .. } = it {
            *before.entry(*flow).or_default() += 1;
        }
    }
    for (flow, at_snapshot) in elephants(&before) {
        let since = after.get(&flow).copied().unwrap_or(0);
        assert!(estimate(last, &flow) >= at_snapshot + since, "tenant {tenant}");
    }
    println!(
        "tenant {tenant}: {left} packets and {} snapshots by s1, {} packets taken back; {} packets and {} snapshots by s2",
        sent.len(),
        left - had,
        after.values().sum::<u32>(),
        later.len()
    );
}
