//! Heavy hitters of several tenants for real: every snapshot that a switch sends under load is
//! checked against the packet log, the switch dies, and the other one goes on from the newest whole
//! snapshot; what happens when the store is away. Needs root. Waits for timers.

mod common;
#[path = "lab_heavy_hitter/mod.rs"]
mod heavy_hitter;
#[path = "lab_heavy_hitter/merged.rs"]
mod merged;
#[path = "common/taken_over.rs"]
mod taken_over;
#[path = "common/tenants.rs"]
mod tenants;

use common::{TestLab, one_at_a_time, skip, wait_for};
use heavy_hitter::{
    all_are_of_one_instant, counts, goes_on_from_a_whole_snapshot, marks_are_right,
};
use tenants::{Injector, Load, Logged, PacketLog, SLOTS, Sketch, estimate, packets};

/// As systems/redplane/lab/heavy_hitter.toml has them.
const MARKED: u8 = 10;
const DROPPED: u8 = 20;
const COUNTED: u8 = 30;
const TENANTS: [u8; 3] = [MARKED, DROPPED, COUNTED];
const THRESHOLD: u32 = 100;
const MARK_DSCP: u8 = 46;
const OVERDUE_DSCP: u8 = 8;
const PACKETS_PER_S: f64 = 3_000.0;
/// Sketches that only grow: no window ends in the middle of a test that does not look for it.
const FOREVER: [&str; 2] = ["--set", "window_s=0"];

/// One packet of each tenant, so that the switch has their sketches: from here on no packet waits
/// for a lease, and packets leave in the order in which they are counted.
fn warm_up(lab: &TestLab, log: &PacketLog, seed: u64) {
    let injector = Injector::open(lab);
    for tenant in TENANTS {
        let mut trace = injector.trace(seed, tenant, 20_000);
        wait_for(&format!("a packet of tenant {tenant} comes through"), || {
            injector.send(&trace.next().expect("a packet").frame);
            std::thread::sleep(std::time::Duration::from_millis(20));
            log.packets_of(tenant) > 0
        });
    }
}

fn load(lab: &TestLab, seed: u64) -> Load {
    let injector = Injector::open(lab);
    let traces = TENANTS.iter().map(|tenant| injector.trace(seed, *tenant, 20_000)).collect();
    Load::start(injector, traces, PACKETS_PER_S)
}

/// How many packets the newest snapshot of a switch has.
fn counted(log: &PacketLog, tenant: u8) -> u32 {
    log.newest(tenant).map_or(0, |sketch| packets(&sketch))
}

#[test]
fn sketches_survive_the_switch_and_every_snapshot_is_of_one_instant() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let seed = tenants::seed();
    let lab = TestLab::up("hitter", "heavy_hitter.toml", &FOREVER);
    let (s1, s2) = (PacketLog::start(&lab, "s1"), PacketLog::start(&lab, "s2"));
    warm_up(&lab, &s1, seed);
    let load = load(&lab, seed);
    wait_for("s1 counts and sends snapshots under load", || {
        TENANTS.iter().all(|tenant| counted(&s1, *tenant) > 2_000 && s1.snapshots_of(*tenant) > 30)
    });
    lab.fail("s1");
    wait_for("s2 counts under load", || TENANTS.iter().all(|tenant| s2.packets_of(*tenant) > 300));
    println!("{} packets sent", load.finish());

    // All is saved once the last snapshot has every packet that came out.
    wait_for("the last packets are in a snapshot", || {
        [MARKED, COUNTED].iter().all(|tenant| {
            let state = s2.with(|log| {
                log.iter().find_map(|it| match it {
                    Logged::State { tenant: t, sketch, .. } if t == tenant => Some(packets(sketch)),
                    _ => None,
                })
            });
            counted(&s2, *tenant) == state.unwrap_or(0) + s2.packets_of(*tenant) as u32
        })
    });
    lab.equal_stores();
    what_operators_read(&lab, &s2);
    let (first, second) = (s1.finish(), s2.finish());
    for tenant in [MARKED, COUNTED] {
        all_are_of_one_instant(&first[&tenant]);
    }
    marks_are_right(&first[&MARKED]);
    assert!(
        counts(&first[&DROPPED]).values().all(|count| *count <= THRESHOLD),
        "more than the threshold came through"
    );
    for tenant in TENANTS {
        goes_on_from_a_whole_snapshot(tenant, &first[&tenant], &second[&tenant]);
    }
    lab.down();
}

/// So long that what is to happen in one window does.
const WINDOW_S: u64 = 15;

/// Waits until a window has just begun by the clock that the switches read; its number.
fn next_window() -> u32 {
    let now = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a `timespec` to be written.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_TAI, &raw mut time) }, 0);
        time.tv_sec as u64 / WINDOW_S
    };
    let before = now();
    while now() == before {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    now() as u32
}

/// Of a tenant's log, what is behind so many packets, without what was still sent of windows before
/// this one.
fn since(log: &mut Vec<Logged>, packets: usize, window: u32) -> Vec<Logged> {
    let mut seen = 0;
    let at = log.iter().position(|it| {
        seen += usize::from(matches!(it, Logged::Packet { .. }));
        seen > packets
    });
    let mut rest = at.map_or(vec![], |at| log.split_off(at));
    rest.retain(|it| !matches!(it, Logged::Snapshot { window: of, .. } if *of < window));
    rest
}

/// When a window is over, what was counted in it is, too: a flow that was over its threshold is
/// within. A switch that takes over goes on in the same window, with the counts of that window
/// only.
#[test]
fn sketches_begin_anew_with_each_window() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let seed = tenants::seed();
    let set = format!("window_s={WINDOW_S}");
    let lab =
        TestLab::up("windows", "heavy_hitter.toml", &["--set", &set, "--set", "lease_ms=250"]);
    let (s1, s2) = (PacketLog::start(&lab, "s1"), PacketLog::start(&lab, "s2"));
    warm_up(&lab, &s1, seed);
    let warm = TENANTS.map(|tenant| s1.packets_of(tenant));

    let first_window = next_window();
    let load_1 = load(&lab, seed);
    let in_window = |log: &PacketLog, tenant: u8, window: u32| match log.newest_in_window(tenant) {
        Some((of, sketch)) if of == window => packets(&sketch),
        _ => 0,
    };
    // 1,000 packets alone need not have a flow over the threshold.
    let goes_over = |log: &PacketLog, tenant: u8, window: u32| {
        let newest = log
            .newest_in_window(tenant)
            .filter(|(of, sketch)| *of == window && packets(sketch) > 1_000);
        let over = |(_, sketch): (u32, Sketch)| {
            log.with(|log| {
                log.iter().any(|it| match it {
                    Logged::Packet { tenant: t, flow, .. } => {
                        *t == tenant && estimate(&sketch, flow) > THRESHOLD
                    }
                    _ => false,
                })
            })
        };
        newest.is_some_and(over)
    };
    wait_for("flows go over their threshold", || {
        TENANTS.iter().all(|tenant| goes_over(&s1, *tenant, first_window))
    });
    load_1.finish();
    // What is dropped is in no log, and what tenant 20 has not let out is still counted.
    wait_for("the last packets are in a snapshot", || {
        [MARKED, COUNTED].iter().zip([warm[0], warm[2]]).all(|(tenant, warm)| {
            in_window(&s1, *tenant, first_window) == (s1.packets_of(*tenant) - warm) as u32
        })
    });
    let before = TENANTS.map(|tenant| s1.packets_of(tenant));

    // The same flows again, in a new window, and in the middle of it the switch dies.
    let window = next_window();
    let load_2 = load(&lab, seed);
    wait_for("flows go over it in the new window", || {
        TENANTS.iter().all(|tenant| goes_over(&s1, *tenant, window))
    });
    lab.fail("s1");
    wait_for("s2 counts under load", || TENANTS.iter().all(|tenant| s2.packets_of(*tenant) > 300));
    load_2.finish();
    wait_for("the last packets are in a snapshot", || {
        [MARKED, COUNTED].iter().all(|tenant| {
            let state = s2.with(|log| {
                log.iter().find_map(|it| match it {
                    Logged::State { tenant: t, sketch, .. } if t == tenant => Some(packets(sketch)),
                    _ => None,
                })
            });
            in_window(&s2, *tenant, window) == state.unwrap_or(0) + s2.packets_of(*tenant) as u32
        })
    });
    wait_for("operators read the window and its counts", || {
        let shown = lab.state(0, "heavy_hitter.json", &format!("snapshot vlan={MARKED}"));
        let (of, sketch) = s2.newest_in_window(MARKED).expect("a snapshot");
        shown[0]["window"] == of && shown[0]["slots"] == serde_json::json!(sketch.to_vec())
    });
    lab.equal_stores();

    let (mut first, second) = (s1.finish(), s2.finish());
    for (at, tenant) in TENANTS.into_iter().enumerate() {
        let log = first.get_mut(&tenant).expect("a log");
        let in_second = since(log, before[at], window);
        let in_first = since(log, warm[at], first_window);
        let same_window = |log: &[Logged], window: u32| {
            let other = |it: &&Logged| match it {
                Logged::Snapshot { window: of, .. } | Logged::State { window: of, .. } => {
                    *of != window
                }
                _ => false,
            };
            assert_eq!(
                log.iter().filter(other).count(),
                0,
                "tenant {tenant}: not all is of window {window}"
            );
        };
        same_window(&in_first, first_window);
        same_window(&in_second, window);
        same_window(&second[&tenant], window);
        goes_on_from_a_whole_snapshot(tenant, &in_second, &second[&tenant]);
        match tenant {
            DROPPED => {
                for log in [in_first, in_second] {
                    // Fewer, if others count in all of the flow's slots.
                    let most = counts(&log).into_values().max().unwrap_or(0);
                    assert!(
                        (THRESHOLD / 2..=THRESHOLD).contains(&most),
                        "{most} packets of a flow came through"
                    );
                }
            }
            _ => {
                // Each is the sketch of the window's packets, and of no others; so are the marks.
                for log in [in_first, in_second] {
                    all_are_of_one_instant(&log);
                    if tenant == MARKED {
                        marks_are_right(&log);
                    }
                }
            }
        }
    }
    lab.down();
}

/// The slots of each result that `stateplane state` gives for these arguments.
fn read_all(lab: &TestLab, store: usize, arguments: &str) -> Vec<Vec<u32>> {
    let found = lab.state(store, "heavy_hitter.json", arguments);
    let slots = |one: &serde_json::Value| {
        let slots =
            one["slots"].as_array().unwrap_or_else(|| panic!("{arguments}: {found}")).iter();
        slots.map(|it| it.as_u64().expect("number") as u32).collect()
    };
    found.as_array().unwrap_or_else(|| panic!("{arguments}: {found}")).iter().map(slots).collect()
}

/// The only one.
fn read_one(lab: &TestLab, store: usize, arguments: &str) -> Vec<u32> {
    let mut found = read_all(lab, store, arguments);
    assert_eq!(found.len(), 1, "{arguments}");
    found.swap_remove(0)
}

/// Two switches, each with a part of the traffic: the merged sketch is, slot by slot, the sum of
/// the sketches of what both logs have (RedPlane draft §6).
#[test]
fn the_merged_sketch_of_two_switches_is_the_sum_of_their_logs() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let seed = tenants::seed();
    let lab = TestLab::up("merge", "heavy_hitter.toml", &FOREVER);
    // One tenant goes through s2, the others through s1.
    lab.must_run("core", "ip route add 10.1.0.0/24 via 10.0.2.2 dev s2 table 30");
    lab.must_run("core", &format!("ip rule add from 10.20.{COUNTED}.0/24 lookup 30"));
    let logs = [(MARKED, PacketLog::start(&lab, "s1")), (COUNTED, PacketLog::start(&lab, "s2"))];
    let injector = Injector::open(&lab);
    for (tenant, log) in &logs {
        let mut trace = injector.trace(seed, *tenant, 1_000);
        wait_for(&format!("a packet of tenant {tenant} comes through"), || {
            injector.send(&trace.next().expect("a packet").frame);
            std::thread::sleep(std::time::Duration::from_millis(20));
            log.packets_of(*tenant) > 0
        });
    }
    let traces = logs.iter().map(|(tenant, _)| injector.trace(seed + 1, *tenant, 20_000)).collect();
    let load = Load::start(injector, traces, PACKETS_PER_S);
    wait_for("both count under load", || {
        logs.iter().all(|(tenant, log)| counted(log, *tenant) > 2_000)
    });
    load.finish();
    wait_for("the last packets are in a snapshot", || {
        logs.iter().all(|(tenant, log)| counted(log, *tenant) == log.packets_of(*tenant) as u32)
    });
    let newest: Vec<Sketch> =
        logs.iter().map(|(tenant, log)| log.newest(*tenant).expect("a snapshot")).collect();
    wait_for("the store has both", || {
        let stored = |tenant: u8| read_one(&lab, 0, &format!("snapshot vlan={tenant}"));
        logs.iter().zip(&newest).all(|((tenant, _), sketch)| stored(*tenant) == sketch)
    });
    // What is not tagged (the lab's own pings, BGP's keepalives) is a tenant too, with sketches
    // that no log has: looked at before and after, with none of it in between.
    let (mut untagged, mut merged) = (Vec::new(), Vec::new());
    wait_for("a look at the merged sketch while nobody else sends", || {
        untagged = read_one(&lab, 1, "snapshot vlan=0");
        merged = read_one(&lab, 2, "snapshot --merge sum");
        read_one(&lab, 1, "snapshot vlan=0") == untagged
    });

    let sketches = logs.each_ref().map(|(tenant, log)| log.sketch_of(*tenant));
    for slot in 0..SLOTS {
        assert_eq!(
            merged[slot],
            sketches[0][slot] + sketches[1][slot] + untagged[slot],
            "slot {slot}"
        );
    }
    for (tenant, log) in logs {
        let of_switch = log.finish();
        assert!(
            of_switch.iter().all(|(of, log)| *of == tenant
                || !log.iter().any(|it| matches!(it, Logged::Packet { .. }))),
            "another switch's packets"
        );
    }
    println!(
        "{} packets through both switches, merged slot by slot",
        packets(&sketches[0]) + packets(&sketches[1])
    );
    lab.down();
}

/// ECMP takes each tenant's flows to both switches, which have sketches of their own of it: merged,
/// they are the sketch of all its packets, also when one of the switches is dead, and when it is
/// back.
#[test]
fn a_tenant_at_two_switches_has_one_merged_sketch() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let seed = tenants::seed();
    let more =
        ["--prefer", "", "--set", "macro=-DHEAVY_HITTER_PER_SWITCH", "--set", "lease_ms=250"];
    let lab = TestLab::up("ecmp", "heavy_hitter.toml", &[&FOREVER[..], &more].concat());
    wait_for("both switches are used", || lab.both_used("10.1.0.0/24"));
    let logs = [PacketLog::start(&lab, "s1"), PacketLog::start(&lab, "s2")];
    let tenants = [MARKED, COUNTED];
    let stored = |store, tenant: u8, switch_id: usize| {
        read_one(&lab, store, &format!("snapshot vlan={tenant},switch_id={switch_id}"))
    };
    // Sends until the switches that live have counted so many packets more of each tenant, and all
    // of them are stored.
    let run = |round: u64, alive: &[usize]| {
        let counts = || tenants.map(|tenant| logs.each_ref().map(|log| log.packets_of(tenant)));
        let before = counts();
        let injector = Injector::open(&lab);
        let traces =
            tenants.iter().map(|tenant| injector.trace(seed + round, *tenant, 20_000)).collect();
        let load = Load::start(injector, traces, PACKETS_PER_S);
        wait_for("switches count under load", || {
            let more = |now: &[usize; 2], before: &[usize; 2]| {
                alive.iter().all(|at| now[*at] > before[*at] + 300)
            };
            counts().iter().zip(&before).all(|(now, before)| more(now, before))
        });
        load.finish();
        for tenant in tenants {
            for (at, log) in logs.iter().enumerate() {
                wait_for("the store has each switch's sketch", || {
                    stored(at, tenant, at + 1) == log.sketch_of(tenant)
                });
            }
            let merged = read_one(&lab, 2, &format!("snapshot vlan={tenant} --merge sum"));
            let [s1, s2] = logs.each_ref().map(|log| log.sketch_of(tenant));
            let sum: Vec<u32> = s1.iter().zip(&s2).map(|(s1, s2)| s1 + s2).collect();
            assert_eq!(merged, sum, "round {round}, tenant {tenant}: not the sum of both logs");
        }
    };
    run(1, &[0, 1]);
    // What the dead switch has counted goes on counting.
    let before = tenants.map(|tenant| stored(1, tenant, 1));
    lab.fail("s1");
    run(2, &[1]);
    assert_eq!(tenants.map(|tenant| stored(1, tenant, 1)), before);
    // When it is back, it goes on from there.
    lab.restore("s1");
    wait_for("both switches are used again", || lab.both_used("10.1.0.0/24"));
    run(3, &[0, 1]);
    let owners = lab.state(0, "heavy_hitter.json", &format!("get vlan={COUNTED}"));
    let owners: Vec<_> =
        owners.as_array().expect("records").iter().map(|it| it["owner"].as_u64()).collect();
    assert_eq!(owners, [Some(1), Some(2)], "each has its own");
    lab.equal_stores();
    lab.down();
}

/// `stateplane state` tells, by any server, the newest whole snapshots, and their sum.
fn what_operators_read(lab: &TestLab, switch: &PacketLog) {
    let read_all = |store, arguments: &str| read_all(lab, store, arguments);
    let read = |store, arguments: &str| read_one(lab, store, arguments);
    let newest = |tenant| switch.newest(tenant).expect("a snapshot");
    for (store, tenant) in [(0, MARKED), (1, DROPPED), (2, COUNTED)] {
        // Of the packets that are dropped, the last may be on their way to the store.
        wait_for(&format!("store {store} has the newest snapshot of tenant {tenant}"), || {
            read(store, &format!("snapshot vlan={tenant}")) == newest(tenant)
        });
    }
    // Beside them there is the tenant of what is not tagged.
    let all = read_all(0, "snapshot");
    assert_eq!(all.len(), TENANTS.len() + 1);
    let sum: Vec<u32> =
        (0..SLOTS).map(|slot| all.iter().map(|sketch| sketch[slot]).sum()).collect();
    assert_eq!(read(0, "snapshot --merge sum"), sum);
}

/// Several times the lease's packets: so many that it has been over for long.
const LEASES_OF_PACKETS: u64 = 3_000;

/// The stores are cut off for several leases: what becomes of packets that they could forget.
/// `goes_as_declared` sees what came out since a time at which the lease was over.
fn store_is_away(overdue: &str, more: &[&str], goes_as_declared: impl Fn(&[Logged]) -> bool) {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let seed = tenants::seed();
    let set = format!("overdue={overdue}");
    let arguments = [&["--set", &set, "--set", "lease_ms=250"], &FOREVER[..], more].concat();
    let lab =
        TestLab::up(&format!("late-{}", overdue.to_lowercase()), "heavy_hitter.toml", &arguments);
    let log = PacketLog::start(&lab, "s1");
    warm_up(&lab, &log, seed);
    let load = load(&lab, seed);
    wait_for("s1 counts under load", || log.packets_of(COUNTED) > 200);

    lab.must_run("tor", "nft add table ip cut");
    lab.must_run("tor", "nft add chain ip cut forward { type filter hook forward priority 0; }");
    lab.must_run("tor", "nft add rule ip cut forward udp dport 5407 counter drop");
    // Without a lease packets wait for the store (DROP), or go on.
    let over = if overdue == "DROP" { "parked" } else { "snapshot_without_lease" };
    let before = lab.event("s1", over);
    wait_for("the lease is over", || lab.event("s1", over) > before + 200);
    let (from, since) = (log.with(<[Logged]>::len), lab.event("s1", over));
    let waited = lab.event("s1", "parked");
    wait_for("several leases pass", || lab.event("s1", over) > since + LEASES_OF_PACKETS);
    assert!(log.with(|log| goes_as_declared(&log[from..])), "{overdue} is not obeyed");
    if overdue != "DROP" {
        assert_eq!(lab.event("s1", "parked"), waited, "packets waited for the store");
        let out = log.with(|log| {
            log[from..].iter().filter(|it| matches!(it, Logged::Packet { .. })).count()
        });
        println!("{overdue}: {out} packets of all tenants went on in the cut, after the lease");
        // The log may be behind by what is on its way to it.
        assert!(out as u64 > LEASES_OF_PACKETS / 3, "{out} packets came out");
    }
    lab.must_run("tor", "nft delete table ip cut");

    wait_for("the store has everything again", || {
        let late =
            || lab.event("s1", "snapshot_overdue") + lab.event("s1", "snapshot_without_lease");
        let (from, events) = (log.with(<[Logged]>::len), late());
        let unmarked = |it: &&Logged| matches!(it, Logged::Packet { tenant: COUNTED, dscp: 0, .. });
        wait_for("packets come through, unmarked", || {
            log.with(|log| log[from..].iter().filter(unmarked).count() > 50)
        });
        events == late()
    });
    assert_eq!(lab.event("s1", "snapshot_updates_lost"), 0, "nobody else had the tenants");
    load.finish();
    // What was dropped was not counted; what came through was, also in the cut: the sketch is whole
    // again.
    wait_for("the last packets are in a snapshot", || {
        [MARKED, COUNTED]
            .iter()
            .all(|tenant| counted(&log, *tenant) == log.packets_of(*tenant) as u32)
    });
    let all = log.finish();
    for tenant in [MARKED, COUNTED] {
        all_are_of_one_instant(&all[&tenant]);
    }
    lab.down();
}

/// The DSCPs of a tenant's packets.
fn dscps(log: &[Logged], of: u8) -> Vec<u8> {
    let dscp = |it: &Logged| match it {
        Logged::Packet { tenant, dscp, .. } if *tenant == of => Some(*dscp),
        _ => None,
    };
    log.iter().filter_map(dscp).collect()
}

#[test]
fn overdue_packets_are_dropped_where_the_program_says_so() {
    store_is_away("DROP", &[], |log| TENANTS.iter().all(|tenant| dscps(log, *tenant).is_empty()));
}

#[test]
fn overdue_packets_are_marked_where_the_program_says_so() {
    store_is_away("MARK", &["--set", "macro=-DOVERDUE_DSCP=8"], |log| {
        let seen = dscps(log, COUNTED);
        !seen.is_empty() && seen.iter().all(|dscp| *dscp == OVERDUE_DSCP)
    });
}

#[test]
fn overdue_packets_go_on_where_the_program_says_so() {
    store_is_away("CONTINUE", &[], |log| {
        let seen = dscps(log, COUNTED);
        !seen.is_empty() && seen.iter().all(|dscp| *dscp == 0)
    });
}
