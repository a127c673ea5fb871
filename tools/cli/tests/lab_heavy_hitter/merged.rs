//! Two switches count for the same tenants at the same time, and the store merges their sketches
//! (RedPlane's draft, §6; systems/redplane/docs/snapshots.md, "Several switches at once").

use crate::common::{TestLab, one_at_a_time, skip, wait_for};
use crate::tenants::{self, Injector, Load, Logged, PacketLog, SLOTS, Sketch, count};
use crate::{COUNTED, FOREVER, MARKED, PACKETS_PER_S, read_one};
use serde_json::Value;

const TENANTS: [u8; 2] = [MARKED, COUNTED];

/// What the store has of a switch: incarnation, number of the snapshot, its slots.
fn contribution(lab: &TestLab, store: usize, tenant: u8, switch: u64) -> (u64, u64, Vec<u32>) {
    let found = lab.state(store, "heavy_hitter.json", &format!("snapshot vlan={tenant}"));
    let all = found[0]["snapshots"][0]["contributions"].as_array();
    let all = all.unwrap_or_else(|| panic!("no contributions: {found}"));
    let own = all.iter().find(|it| it["switch"] == switch && it["merged"] == true);
    let own = own.unwrap_or_else(|| panic!("nothing of switch {switch}: {found}"));
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{own}"));
    let slots = own["slots"].as_array().expect("slots").iter().map(|it| number(it) as u32);
    (number(&own["incarnation"]), number(&own["seq"]), slots.collect())
}

fn sum(one: &[u32], other: &[u32]) -> Vec<u32> {
    one.iter().zip(other).map(|(one, other)| one + other).collect()
}

/// All servers have the same merged sketch of a tenant, soon.
fn is_merged(lab: &TestLab, tenant: u8, expected: &[u32]) {
    for store in 0..3 {
        wait_for(&format!("store {store} has all of tenant {tenant} in one sketch"), || {
            read_one(lab, store, &format!("snapshot vlan={tenant}")) == expected
        });
    }
}

/// The sketch of a tenant's packets from a place in the log on.
fn sketch_since(log: &PacketLog, tenant: u8, from: usize) -> Sketch {
    let mut sketch = [0; SLOTS];
    log.with(|log| {
        for it in &log[from..] {
            if let Logged::Packet { tenant: of, flow, .. } = it
                && *of == tenant
            {
                count(&mut sketch, flow);
            }
        }
    });
    sketch
}

fn load(lab: &TestLab, seed: u64) -> Load {
    let injector = Injector::open(lab);
    let traces = TENANTS.iter().map(|tenant| injector.trace(seed, *tenant, 20_000)).collect();
    Load::start(injector, traces, PACKETS_PER_S)
}

/// Waits until these switches have counted some hundred packets more of each tenant.
fn more_come(logs: &[&PacketLog]) {
    let counts =
        || logs.iter().flat_map(|log| TENANTS.map(|tenant| log.packets_of(tenant))).collect();
    let before: Vec<usize> = counts();
    wait_for("switches count under load", || {
        let now: Vec<usize> = counts();
        now.iter().zip(&before).all(|(now, before)| *now > before + 300)
    });
}

#[test]
fn the_store_merges_what_two_switches_count_and_a_killed_one_counts_once() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let seed = tenants::seed();
    let macros = ["--set", "macro=-DSKETCH_MERGE=Merge.SUM", "--set", "lease_ms=250"];
    let arguments = [&FOREVER[..], &["--prefer", ""], &macros].concat();
    let lab = TestLab::up("merged", "heavy_hitter.toml", &arguments);
    wait_for("both switches are used", || lab.both_used("10.1.0.0/24"));
    let (s1, s2) = (PacketLog::start(&lab, "s1"), PacketLog::start(&lab, "s2"));

    let both = load(&lab, seed);
    more_come(&[&s1, &s2]);
    both.finish();
    for tenant in TENANTS {
        is_merged(&lab, tenant, &sum(&s1.sketch_of(tenant), &s2.sketch_of(tenant)));
    }
    for switch in ["s1", "s2"] {
        assert_eq!(lab.event(switch, "recalled"), 0, "a tenant was taken from {switch}");
    }

    // One is killed under load: what counts of it is the newest whole snapshot, once.
    let both = load(&lab, seed + 1);
    more_come(&[&s1, &s2]);
    lab.fail("s1");
    more_come(&[&s2]);
    both.finish();
    let dead = TENANTS.map(|tenant| contribution(&lab, 0, tenant, 1));
    for (tenant, (_, seq, sketch)) in TENANTS.iter().zip(&dead) {
        let (mut was_sent, mut acknowledged) = (false, 0);
        s1.with(|log| {
            for it in log {
                match it {
                    Logged::Snapshot { tenant: of, seq: number, sketch: sent, .. } => {
                        was_sent |= (of, number) == (tenant, seq) && sent[..] == sketch[..];
                    }
                    Logged::Acknowledged { tenant: of, seq } if of == tenant => {
                        acknowledged = acknowledged.max(*seq);
                    }
                    _ => {}
                }
            }
        });
        assert!(was_sent, "tenant {tenant}: {seq} is no snapshot of s1");
        assert!(*seq >= acknowledged, "tenant {tenant}: {seq}, although {acknowledged} was whole");
        is_merged(&lab, *tenant, &sum(sketch, &s2.sketch_of(*tenant)));
    }

    // It comes back in another life, and goes on from there: nothing counts twice.
    let from = s1.with(<[Logged]>::len);
    lab.restore("s1");
    wait_for("both switches are used again", || lab.both_used("10.1.0.0/24"));
    let both = load(&lab, seed + 2);
    more_come(&[&s1, &s2]);
    both.finish();
    for (tenant, (incarnation, _, before)) in TENANTS.into_iter().zip(&dead) {
        let since = sum(before, &sketch_since(&s1, tenant, from));
        is_merged(&lab, tenant, &sum(&since, &s2.sketch_of(tenant)));
        let (life, _, slots) = contribution(&lab, 1, tenant, 1);
        assert_ne!(life, *incarnation, "tenant {tenant}");
        assert_eq!(slots, since, "tenant {tenant}");
    }
    lab.equal_stores();
    lab.down();
}
