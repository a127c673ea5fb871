//! Lazy snapshots as the compiled object takes them: slot by slot the state of one instant,
//! whatever the packets do meanwhile, on one CPU and on two. The store is played by the test;
//! systems/redplane/sim has the real one. Needs root.

mod snapshot_rig;

use dataplane::Verdict;
use snapshot_rig::{EPOCH, HOST_PORT, MILLISECOND, OUT, Rig, START, TO_STORE, carried, frame, rig};
use state_protocol::{Message, MessageType};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A random generator whose seed is all that a failing test must print.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % limit
    }
}

/// Algorithm 1 against a model: random packets between the generator's runs, acknowledgements lost,
/// late and doubled. Every part of every snapshot, however often sent, holds the slots as they were
/// when the snapshot was taken.
fn one_cpu(defines: &[&str], slots: u64, seed: u64) {
    let rig = rig(defines, true);
    let mut random = Random(seed);
    let mut now_ns = START;
    let width = rig.object().width;
    let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
    let mut model: Vec<Vec<u64>> =
        (0..2).map(|_| (0..slots).map(|_| random.below(u64::MAX) & mask).collect()).collect();
    for tenant in 0..2u16 {
        rig.own(tenant, [0; 4], EPOCH, 40, &model[usize::from(tenant)], now_ns);
        model[usize::from(tenant)][0] = model[usize::from(tenant)][0].wrapping_add(4) & mask;
    }
    let mut taken: [Option<(u64, Vec<u64>, u64)>; 2] =
        [Some((40, vec![], 0)), Some((40, vec![], 0))];
    let (mut snapshots, mut resent) = (0, 0);
    for step in 0..2500 {
        now_ns += random.below(200_000);
        if random.below(4) > 0 {
            let tenant = random.below(2) as u16;
            // Also indices that do not exist, and one slot twice.
            let indices = std::array::from_fn(|_| random.below(slots + slots / 64 + 1) as u32);
            let (verdict, frame) = rig.packet(tenant, indices, now_ns);
            assert_eq!(verdict, OUT, "seed {seed}, step {step}");
            for (index, sum) in indices.into_iter().zip(carried(&frame).0) {
                let expected = match model[usize::from(tenant)].get_mut(index as usize) {
                    Some(slot) => {
                        *slot = slot.wrapping_add(1) & mask;
                        *slot
                    }
                    None => 0,
                };
                assert_eq!(sum, expected, "seed {seed}, step {step}, slot {index}");
            }
            continue;
        }
        let Some(datagram) = rig.generate(now_ns) else { continue };
        let part = rig.part(datagram);
        let (seq, state, acked) = taken[usize::from(part.tenant)].take().unwrap();
        let all = (1u64 << part.parts) - 1;
        let (state, mut acked) = if part.seq == seq {
            resent += 1;
            (state, acked)
        } else {
            assert_eq!(part.seq, seq + 1, "seed {seed}, step {step}: a snapshot was left out");
            assert!(
                seq == 40 || acked == all,
                "seed {seed}, step {step}: snapshot {seq} was not complete"
            );
            snapshots += 1;
            (model[usize::from(part.tenant)].clone(), 0)
        };
        let first = part.part * rig.per_part();
        assert_eq!(
            part.slots[..],
            state[first..first + part.slots.len()],
            "seed {seed}, step {step}, part {}",
            part.part
        );
        if random.below(3) > 0 {
            // In the answer may be what an earlier, lost one said.
            acked |= 1 << part.part;
            rig.acknowledge(&part, part.seq, acked, now_ns);
            if random.below(8) == 0 {
                rig.acknowledge(&part, part.seq, acked, now_ns);
                rig.acknowledge(&part, part.seq - 1, all, now_ns);
            }
        }
        taken[usize::from(part.tenant)] = Some((part.seq, state, acked));
    }
    println!("seed {seed}: {snapshots} snapshots, {resent} parts behind the first or sent again");
    assert!(
        snapshots > 4 && resent > 4,
        "seed {seed}: {snapshots} snapshots, {resent} further parts"
    );
}

#[test]
fn every_part_is_of_the_instant_of_the_flip() {
    for seed in 1..4 {
        one_cpu(&[], 192, seed);
    }
}

#[test]
fn of_many_parts_too() {
    one_cpu(&["SLOTS=1100"], 1100, 4);
}

#[test]
fn of_wide_and_of_narrow_slots_too() {
    one_cpu(&["WIDTH=64", "SLOTS=330"], 330, 5);
    one_cpu(&["WIDTH=3", "SLOTS=70"], 70, 6);
}

/// Looks are not quite regular, so the one nearest to a snapshot's time takes it: else it would be
/// half a period late each time that a look is a little early.
#[test]
fn the_look_nearest_to_its_time_takes_a_snapshot() {
    let rig = rig(&[], true);
    let period_ns = u64::from(rig.object().settings.period_us) * 1_000;
    rig.own(7, [0; 4], EPOCH, 40, &[0; 192], START);
    let (mut taken_ns, mut due_ns) = (START, START);
    // Late and early ones are on one schedule, so that there are as many as there are periods; one
    // that is late by half a period begins another.
    let (no, half) = (0, period_ns / 2);
    for (look_ns, early_ns, late_ns) in [
        (0, 0, no),
        (period_ns / 2, period_ns / 4, no),
        (period_ns / 5, period_ns / 10, no),
        (period_ns, period_ns / 4, no),
        (0, 0, half - 1),
        (period_ns / 2, period_ns / 4, no),
        (0, 0, half),
        (period_ns / 2, period_ns / 4, no),
    ] {
        let first = rig.part(rig.generate(taken_ns).expect("a snapshot"));
        rig.acknowledge(&first, first.seq, 1, taken_ns);
        rig.packet(7, [0; 4], taken_ns);
        rig.look_every(look_ns);
        due_ns = if taken_ns < due_ns + half { due_ns } else { taken_ns } + period_ns;
        assert_eq!(rig.generate(due_ns - early_ns - 1_000), None, "look {look_ns}");
        taken_ns = due_ns - early_ns + late_ns;
    }
    assert!(rig.generate(taken_ns).is_some());
}

/// Windows against the model: while snapshots are on their way, packets of newer windows begin all
/// slots anew, and those of an older one change nothing.
fn one_cpu_with_windows(defines: &[&str], slots: u64, seed: u64) {
    let rig = rig(&[defines, &["WINDOW_US=5000"]].concat(), true);
    assert!(rig.object().settings.windows && u64::from(rig.object().slots) == slots + 1);
    let mut random = Random(seed);
    let (mut now_ns, last) = (START, slots as usize);
    let mut model = vec![0u64; last + 1];
    let count = |model: &mut Vec<u64>, indices: [u32; 4], now_ns: u64| {
        let window = now_ns / 5_000_000;
        if window > model[last] {
            model.fill(0);
            model[last] = window;
        }
        indices.map(|index| {
            model[index as usize] += 1;
            model[index as usize]
        })
    };
    rig.own(1, [0; 4], EPOCH, 40, &model, now_ns);
    count(&mut model, [0; 4], now_ns);
    let mut taken = (40, vec![]);
    let (mut windows, mut late, mut begun_in_flight) = (0, 0, 0);
    for step in 0..3000 {
        now_ns += random.below(200_000);
        if random.below(4) > 0 {
            let indices = std::array::from_fn(|_| random.below(slots) as u32);
            // Two CPUs can read the clock in one order and get the lock in the other; and it may be
            // set back.
            let at_ns =
                if random.below(5) == 0 { now_ns - random.below(10_000_000) } else { now_ns };
            let before = model[last];
            let expected = count(&mut model, indices, at_ns);
            windows += u64::from(model[last] > before);
            begun_in_flight += u64::from(model[last] > before && !taken.1.is_empty());
            late += u64::from(at_ns / 5_000_000 < before);
            let (verdict, frame) = rig.packet(1, indices, at_ns);
            assert_eq!((verdict, carried(&frame).0), (OUT, expected), "seed {seed}, step {step}");
            continue;
        }
        let Some(datagram) = rig.generate(now_ns) else { continue };
        let part = rig.part(datagram);
        if part.seq > taken.0 {
            taken = (part.seq, model.clone());
        }
        let first = part.part * rig.per_part();
        assert_eq!(
            part.slots[..],
            taken.1[first..first + part.slots.len()],
            "seed {seed}, step {step}, part {}",
            part.part
        );
        if random.below(3) == 0 {
            rig.acknowledge(&part, part.seq, (1u64 << part.parts) - 1, now_ns);
            taken.1.clear();
        }
    }
    println!(
        "seed {seed}: {windows} windows, {begun_in_flight} while a snapshot was on its way, {late} packets of an older one"
    );
    assert!(windows > 30 && late > 30 && begun_in_flight > 10);
    assert_eq!(rig.event(34), 0, "nothing was overdue");
}

#[test]
fn a_window_begins_at_one_instant() {
    for seed in 11..14 {
        one_cpu_with_windows(&["EPSILON_US=5000000"], 192, seed);
    }
    one_cpu_with_windows(&["EPSILON_US=5000000", "SLOTS=1100"], 1100, 14);
    one_cpu_with_windows(&["EPSILON_US=5000000", "WIDTH=64", "SLOTS=330"], 330, 15);
    // As many as there may be.
    one_cpu_with_windows(&["EPSILON_US=5000000", "SLOTS=4095"], 4095, 16);
}

/// A switch that takes over goes on in the window of the state, if its own clock does not say a
/// newer one; also without a lease a window begins, and no packet waits.
#[test]
fn a_take_over_goes_on_in_the_same_window() {
    let rig = rig(&["WINDOW_US=5000"], true);
    let window = START / 5_000_000;
    let mut state = vec![7; 193];
    for (tenant, of_state, expected) in
        [(1, window, 8), (2, window + 1, 8), (3, window - 1, 1), (4, 0, 1)]
    {
        state[192] = of_state;
        rig.own_for(100_000, tenant, [190; 4], (EPOCH, 40), &state, START);
        let (verdict, out) = rig.packet(tenant, [0, 1, 2, 3], START + 1);
        assert_eq!(
            (verdict, carried(&out).0),
            (OUT, [expected; 4]),
            "a state of window {of_state} at {window}"
        );
    }
    let later = START + 2_000 * MILLISECOND;
    let (verdict, out) = rig.packet(1, [0, 1, 2, 3], later);
    assert_eq!((verdict, carried(&out).0), (OUT, [1; 4]));
    assert_eq!(rig.event(37), 1, "packets without a lease are counted once");
}

/// A switch takes over only when all parts of one snapshot are there.
#[test]
fn a_mix_of_two_snapshots_is_never_installed() {
    let rig = rig(&["SLOTS=640"], true);
    let (old, new) = (vec![7; 640], vec![9; 640]);
    let request = rig.ask(1, [0; 4], START);
    rig.state_part(&request, 5, 3, &old, 0, START);
    rig.state_part(&request, 5, 4, &new, 1, START);
    let (verdict, frame) = rig.grant(&request, 5, 4, START);
    assert_eq!(verdict, Verdict::Forward { port: TO_STORE }, "part 0 is of another snapshot");
    let again = rig.datagram(&frame);
    let message = Message::decode(&again).unwrap();
    assert_eq!((message.message_type, message.port >> 9), (MessageType::LeaseRequest, 2));
    // The same number under another grant is another snapshot.
    rig.state_part(&again, 6, 4, &new, 0, START);
    let (verdict, frame) = rig.grant(&again, 6, 4, START + 1);
    assert_eq!(verdict, Verdict::Forward { port: TO_STORE });
    // The grant first, the parts late, doubled, and in the wrong order; then asked again.
    rig.state_part(&again, 6, 4, &new, 1, START + 2);
    rig.state_part(&again, 6, 4, &new, 1, START + 2);
    let (verdict, out) = rig.grant(&rig.datagram(&frame), 6, 4, START + 2);
    assert_eq!((verdict, carried(&out).0), (OUT, [10, 11, 12, 13]));
    // Parts that come now change nothing.
    rig.state_part(&again, 6, 4, &old, 0, START + 3);
    assert_eq!(carried(&rig.packet(1, [0, 1, 1, 1], START + 3).1).0, [14, 10, 11, 12]);
    assert_eq!(rig.event(33), 2, "grants without all parts");
}

/// Overdue: from the first update that no acknowledged snapshot has, ε later.
#[test]
fn epsilon_is_enforced() {
    let ask = |rig: &Rig, now_ns| {
        let (verdict, frame) = rig.packet(1, [0; 4], now_ns);
        (verdict, verdict == OUT && carried(&frame).1)
    };
    for (overdue, expected) in
        [("MARK", (OUT, true)), ("CONTINUE", (OUT, true)), ("DROP", (Verdict::Drop, false))]
    {
        let rig = rig(&[&format!("OVERDUE={overdue}"), "ASK_OVERDUE"], true);
        let state = vec![0; 192];
        rig.own(1, [0; 4], EPOCH, 0, &state, START);
        let epsilon = 50 * MILLISECOND;
        assert_eq!(ask(&rig, START + epsilon), (OUT, false), "{overdue}: not yet");
        assert_eq!(ask(&rig, START + epsilon + 1), expected, "{overdue}: nothing was saved for ε");
        // A snapshot that is sent helps nothing; one that is acknowledged does, up to its flip.
        let flip = START + 60 * MILLISECOND;
        let part = rig.part(rig.generate(flip).unwrap());
        assert_eq!(ask(&rig, flip + 1), expected, "{overdue}: not acknowledged");
        // DROP dropped it, so nothing is unsaved once the snapshot is whole.
        rig.acknowledge(&part, part.seq, 1, flip + 2);
        assert_eq!(ask(&rig, flip + 3), (OUT, false), "{overdue}: saved");
        let first = if overdue == "DROP" { flip + 3 } else { flip + 1 };
        assert_eq!(ask(&rig, first + epsilon), (OUT, false), "{overdue}: not yet again");
        assert_eq!(ask(&rig, first + epsilon + 1), expected, "{overdue}: again");
        assert_eq!(rig.event(34), 3, "{overdue}: counted");
    }
}

/// A tenant without packets needs no snapshots, and is not overdue when it has packets again.
#[test]
fn nothing_is_sent_while_nothing_changes() {
    let rig = rig(&["ASK_OVERDUE"], true);
    rig.own(1, [0; 4], EPOCH, 0, &vec![0; 192], START);
    let part = rig.part(rig.generate(START + MILLISECOND).unwrap());
    rig.acknowledge(&part, 1, 1, START + MILLISECOND);
    for later in 2..10 {
        assert!(rig.generate(START + later * MILLISECOND).is_none());
    }
    assert_eq!(rig.queued(), 0);
    let (verdict, frame) = rig.packet(1, [0; 4], START + 900 * MILLISECOND);
    assert_eq!((verdict, carried(&frame).1), (OUT, false));
    assert_eq!(rig.queued(), 1);
}

/// A recalled tenant hands over what is unsaved first, then says RELEASE until that is
/// acknowledged; its packets ask the store.
#[test]
fn a_recall_takes_the_unsaved_along() {
    let rig = rig(&[], true);
    rig.own(1, [0, 1, 2, 3], EPOCH, 0, &vec![0; 192], START);
    let request = rig.ask(2, [0; 4], START);
    let about = Message::decode(&request).unwrap();
    let recall = |epoch: u32, now_ns: u64| {
        // `seq` is the head's clock: no recall is like another.
        let message = Message {
            message_type: MessageType::Recall,
            key: &[0, 1],
            epoch,
            seq: now_ns,
            packet: &[],
            ..about
        };
        rig.reply(&message, now_ns)
    };
    assert_eq!(recall(EPOCH, START + 1).0, Verdict::Drop, "there is something unsaved");
    let (verdict, frame) = rig.packet(1, [0; 4], START + 2);
    assert_eq!(verdict, Verdict::Forward { port: TO_STORE });
    assert_eq!(
        Message::decode(&rig.datagram(&frame)).unwrap().message_type,
        MessageType::LeaseRequest
    );
    let part = rig.part(rig.generate(START + 3).unwrap());
    assert_eq!(part.slots[..5], [1, 1, 1, 1, 0]);
    rig.acknowledge(&part, 1, 1, START + 4);
    let release = rig.generate(START + 4 * MILLISECOND).unwrap();
    let release = Message::decode(&release).unwrap();
    assert_eq!(
        (release.message_type, release.epoch, release.seq),
        (MessageType::Release, EPOCH, 1)
    );
    let (verdict, frame) = recall(EPOCH, START + 5 * MILLISECOND);
    assert_eq!(verdict, Verdict::Forward { port: TO_STORE }, "now it answers at once");
    let answer = rig.datagram(&frame);
    assert_eq!(Message::decode(&answer).unwrap().message_type, MessageType::Release);
    let acknowledged = Message {
        message_type: MessageType::ReleaseAck,
        flags: state_protocol::Flags::NONE,
        ..release
    };
    assert_eq!(rig.reply(&acknowledged, START + 6 * MILLISECOND).0, Verdict::Drop);
    assert!(rig.generate(START + 60 * MILLISECOND).is_none());
    assert_eq!(rig.queued(), 0);
}

/// Two CPUs update while a third thread takes snapshots. Each thread's packets are a fixed list,
/// run in order, and each counts in a slot of the thread's own: so a snapshot tells how many
/// packets of each thread it holds, and what every other slot must then be.
#[test]
fn two_cpus_and_the_generator() {
    const SLOTS: usize = 1100;
    const FRAMES: usize = 61;
    // So long that a thread is hardly ever found between two runs.
    const REPEAT: u32 = 2_000;
    let seed = 1;
    let rig = rig(&["SLOTS=1100", "PERIOD_US=100"], false);
    // Else the kernel takes tens of milliseconds to begin a run, and the threads are hardly ever
    // found in one.
    let _ready = rig.dataplane.keep_ready("sp_main").expect("root");
    let mut random = Random(seed);
    let now_ns = 0; // the kernel's clock runs
    rig.own(3, [0; 4], EPOCH, 0, &[0; SLOTS], now_ns);
    let lists: Vec<Vec<[u32; 4]>> = (0..2u32)
        .map(|thread| {
            let mut index = |row: u64| (2 + row * 366 + random.below(366)) as u32;
            (0..FRAMES).map(|_| [thread, index(0), index(1), index(2)]).collect()
        })
        .collect();
    let stop = AtomicBool::new(false);
    let packets = [AtomicU64::new(0), AtomicU64::new(0)];
    let expected = |counts: [u64; 2]| -> Vec<u64> {
        let mut state = vec![0u64; SLOTS];
        state[0] = 4; // the packet that asked for the tenant
        for (list, count) in lists.iter().zip(counts) {
            for (at, indices) in list.iter().enumerate() {
                // The list runs in rounds, each frame REPEAT times.
                let before = at as u64 * u64::from(REPEAT);
                let round = FRAMES as u64 * u64::from(REPEAT);
                let times = count / round * u64::from(REPEAT)
                    + (count % round).saturating_sub(before).min(u64::from(REPEAT));
                indices.iter().for_each(|index| state[*index as usize] += times);
            }
        }
        state
    };
    let (mut snapshots, mut between) = (0u64, 0u64);
    std::thread::scope(|scope| {
        for (list, packets) in lists.iter().zip(&packets) {
            let (rig, stop) = (&rig, &stop);
            scope.spawn(move || {
                for indices in list.iter().cycle() {
                    rig.dataplane.time(&frame(3, *indices), HOST_PORT, REPEAT).unwrap();
                    packets.fetch_add(u64::from(REPEAT), Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let mut whole: Vec<Option<Vec<u64>>> = vec![None; 4];
        let mut last = [0, 0];
        // Until enough was seen; a generator that never gets through would show as a hang, so there
        // is an end.
        for _ in 0..4_000_000 {
            let Some(datagram) = rig.generate(now_ns) else { continue };
            let part = rig.part(datagram);
            whole[part.part] = Some(part.slots.clone());
            if whole.iter().any(Option::is_none) {
                continue;
            }
            let state: Vec<u64> = whole.iter_mut().flat_map(|part| part.take().unwrap()).collect();
            let counts = [state[0] - 4, state[1]];
            assert_eq!(
                state,
                expected(counts),
                "seed {seed}: snapshot {} with {counts:?} packets",
                part.seq
            );
            assert!(counts[0] >= last[0] && counts[1] >= last[1]);
            between += u64::from(counts.iter().all(|count| count % u64::from(REPEAT) != 0));
            (last, snapshots) = (counts, snapshots + 1);
            rig.acknowledge(&part, part.seq, (1 << part.parts) - 1, now_ns);
            // On a busy machine both threads may wait while a snapshot is taken: then there are
            // more of them.
            if snapshots >= 150 && between > 0 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!(
        "{snapshots} snapshots of {packets:?} packets, {between} in the middle of both threads' runs"
    );
    assert!(snapshots >= 150 && between > 0, "{snapshots} snapshots, {between} in between");
    // And what counts in the end: nothing was lost between two CPUs.
    let (_, out) = rig.packet(3, [0, 1, 0, 1], now_ns);
    let total = |thread: usize| packets[thread].load(Ordering::Relaxed);
    assert_eq!(carried(&out).0, [total(0) + 5, total(1) + 1, total(0) + 6, total(1) + 2]);
}

/// Two CPUs whose packets begin windows, while a third thread takes snapshots: in each snapshot
/// both threads' rows have as many counts as the thread's own slot, so that nothing of an older
/// window is left, and nothing of this one was taken.
#[test]
fn windows_of_two_cpus() {
    const SLOTS: usize = 1100;
    const FRAMES: usize = 61;
    const REPEAT: u32 = 2_000;
    let rig = rig(&["SLOTS=1100", "PERIOD_US=100", "WINDOW_US=2000"], false);
    let _ready = rig.dataplane.keep_ready("sp_main").expect("root");
    let mut random = Random(2);
    let now_ns = 0; // the kernel's clock runs
    rig.own(3, [2, 368, 734, 0], EPOCH, 0, &[0; SLOTS + 1], now_ns);
    let lists: Vec<Vec<[u32; 4]>> = (0..2u32)
        .map(|thread| {
            let mut index =
                |row: u64| 2 + row as u32 * 366 + thread * 183 + random.below(183) as u32;
            (0..FRAMES).map(|_| [thread, index(0), index(1), index(2)]).collect()
        })
        .collect();
    let stop = AtomicBool::new(false);
    let (mut snapshots, mut both) = (0, 0);
    let mut windows: Vec<u64> = vec![];
    std::thread::scope(|scope| {
        for list in &lists {
            let (rig, stop) = (&rig, &stop);
            scope.spawn(move || {
                for indices in list.iter().cycle() {
                    rig.dataplane.time(&frame(3, *indices), HOST_PORT, REPEAT).unwrap();
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let mut whole: Vec<Option<Vec<u64>>> = vec![None; 4];
        for _ in 0..4_000_000 {
            let Some(datagram) = rig.generate(now_ns) else { continue };
            let part = rig.part(datagram);
            whole[part.part] = Some(part.slots.clone());
            if whole.iter().any(Option::is_none) {
                continue;
            }
            let state: Vec<u64> = whole.iter_mut().flat_map(|part| part.take().unwrap()).collect();
            assert!(
                windows.last().is_none_or(|window| state[SLOTS] >= *window),
                "window {} again",
                state[SLOTS]
            );
            windows.push(state[SLOTS]);
            windows.dedup();
            for thread in 0..2 {
                for row in 0..3 {
                    let first = 2 + row * 366 + thread * 183;
                    let sum = state[first..first + 183].iter().sum::<u64>();
                    assert_eq!(
                        sum, state[thread],
                        "snapshot {}, window {}, row {row}",
                        part.seq, state[SLOTS]
                    );
                }
            }
            both += u64::from(state[0] > 0 && state[1] > 0);
            snapshots += 1;
            rig.acknowledge(&part, part.seq, (1 << part.parts) - 1, now_ns);
            if snapshots >= 150 && both > 20 && windows.len() > 20 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!(
        "{snapshots} snapshots of {} windows, {both} with counts of both threads",
        windows.len()
    );
    assert!(
        snapshots >= 150 && both > 20 && windows.len() > 20,
        "{snapshots} snapshots, {both}, {}",
        windows.len()
    );
}

/// What a packet costs, in ns: cargo test --release -p redplane-compiler --test snapshots cost --
/// --ignored --nocapture
#[test]
#[ignore = "measures"]
fn cost() {
    let variants: [(&str, &[&str]); 5] = [
        ("registers", &["REGISTERS"]),
        ("local", &["PERIOD_US=0"]),
        ("snapshots", &[]),
        ("snapshots, is_overdue asked", &["ASK_OVERDUE"]),
        ("snapshots, in windows", &["WINDOW_US=60000000"]),
    ];
    let rigs: Vec<(&str, Rig)> =
        variants.iter().map(|(name, defines)| (*name, rig(defines, false))).collect();
    for (name, rig) in &rigs {
        if name.starts_with("snapshots") {
            rig.own(3, [0; 4], EPOCH, 0, &vec![0; rig.object().slots as usize], 0);
        }
    }
    let mut times = vec![Vec::new(); rigs.len()];
    for _ in 0..21 {
        for ((_, rig), times) in rigs.iter().zip(&mut times) {
            times.push(
                rig.dataplane.time(&frame(3, [1, 70, 130, 191]), HOST_PORT, 200_000).unwrap(),
            );
        }
    }
    for ((name, _), mut times) in rigs.iter().zip(times) {
        times.sort_unstable();
        println!("{name}: {} ns (least {})", times[times.len() / 2], times[0]);
    }
}
