//! Raw packets through every application and through nftables, in one run: what becomes of each
//! kind must be what stands in `packets/table.txt`, and where an application does otherwise than
//! nftables, `packets/differences.toml` says why. Needs root. Waits for timers.

mod common;
mod packets;

use common::{TestLab, skip};
use packets::system::{SYSTEMS, System};
use packets::table::{Results, complaints};
use packets::talk::Stage;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Runs all cases through one system.
fn through(system: System) -> BTreeMap<String, String> {
    let lab = TestLab::up(
        &format!("pk-{}", system.mode.replace('_', "")),
        "edge.toml",
        &["--mode", system.mode],
    );
    // The neighbours that a gateway has anyway.
    for address in ["10.1.0.9", "10.1.0.10", "10.1.0.21", "10.1.1.10", "10.1.1.22", "192.0.2.1"] {
        lab.must_run("gw", &format!("ping -c1 -W2 {address}"));
    }
    for address in ["2001:db8:1::10", "2001:db8:1:1::10", "2001:db8:c::1"] {
        lab.must_run("gw", &format!("ping -c1 -W2 {address}"));
    }
    system.prepare(&lab);
    let stage = Stage::new(system, lab);
    let said = stage.play(&packets::cases::all());
    stage.end();
    said.into_iter().collect()
}

fn next<T>(waiting: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).next()
}

#[test]
fn every_packet_fares_as_the_table_says() {
    if skip() {
        return;
    }
    let only = std::env::var("SYSTEMS").ok();
    let chosen = |system: &System| {
        only.as_ref().is_none_or(|only| only.split(',').any(|mode| mode == system.mode))
    };
    let waiting = Mutex::new(SYSTEMS.into_iter().filter(chosen));
    let results = Mutex::new(Results::new());
    // Most of the time a system waits: two share a processor well.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(system) = next(&waiting) {
                    let begin = Instant::now();
                    let said = through(system);
                    println!("{}: {:.1} s", system.mode, begin.elapsed().as_secs_f64());
                    results
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .insert(system.mode, said);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let names: Vec<String> = packets::cases::all().into_iter().map(|case| case.name).collect();
    if only.is_some() {
        // For whoever looks at a part: no judgement.
        println!("{}", packets::table::text(&names, &results));
        return;
    }
    let complaints = complaints(&names, &results);
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}
