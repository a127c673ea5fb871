//! How soon windows go on when switches die: 3 x 64 K counters, whose blocks all change all the
//! time.

use crate::common::{TestLab, env_number, one_at_a_time, skip, wait_for};
use crate::probes::Host;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Of each of two counters: together 3 x 64 K.
const CELLS: u32 = 98_304;
/// Cells of a block.
const BLOCK: u32 = 360;
const DAY_S: f64 = 86_400.0;

/// When a host read a window for the first time, as seconds of the day.
type Windows = Vec<(f64, u64)>;

fn seconds_of_day() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time");
    now.as_secs_f64() % DAY_S
}

/// Updates a cell of each block, round and round.
fn floods(lab: &TestLab, number: u32, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (host, stop) = (Host::of(lab, number), Arc::clone(stop));
    std::thread::spawn(move || {
        let blocks = CELLS.div_ceil(BLOCK);
        for round in 0u32.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let first = round * 16;
            let index = |at: u32| (at % blocks * BLOCK + at / blocks % BLOCK) % CELLS;
            host.send((first..first + 16).map(index));
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

/// Reads the window all the time.
fn watches(lab: &TestLab, number: u32, stop: &Arc<AtomicBool>) -> JoinHandle<Windows> {
    let (host, stop) = (Host::of(lab, number), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut seen: Windows = vec![];
        while !stop.load(Ordering::Relaxed) {
            let window = host.ask(0, 0).map_or(0, |it| it.window);
            if window != 0 && seen.last().is_none_or(|(_, last)| *last != window) {
                seen.push((seconds_of_day(), window));
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        seen
    })
}

/// When lines with these words were logged, after `since`.
fn logged(lab: &TestLab, words: &str, since: f64) -> Vec<f64> {
    let lab = lab::Lab::open(&lab.name).expect("a lab");
    let text = std::fs::read_to_string(lab.log("controller", "controller")).expect("a log");
    let at = |line: &str| {
        let (_, time) = line.split_once('T')?;
        let mut parts = time.split_once('Z')?.0.split(':').map(|it| it.parse::<f64>().ok());
        let mut part = || parts.next().flatten();
        Some(part()? * 3600.0 + part()? * 60.0 + part()?)
    };
    let lines = text.lines().filter(|line| line.contains(words) && line.contains("main"));
    lines.filter_map(at).filter(|at| *at >= since).collect()
}

/// Kills so many switches. In ms, how long after it the controller found the first one dead; and
/// from then on: how long until all had decided, and until a window had turned at all others.
fn removal(lab: &TestLab, dying: u32) -> (f64, f64, f64) {
    let stop = Arc::new(AtomicBool::new(false));
    let senders: Vec<_> = (1..=4).map(|number| floods(lab, number, &stop)).collect();
    let watchers: Vec<_> = (dying + 1..=4).map(|number| watches(lab, number, &stop)).collect();
    std::thread::sleep(Duration::from_millis(500));
    let killed = seconds_of_day();
    let nodes: Vec<String> = (1..=dying).map(|number| format!("s{number}")).collect();
    nodes.iter().for_each(|node| lab.kill_now(node));
    nodes.iter().for_each(|node| lab.fail(node));
    std::thread::sleep(Duration::from_secs(2));
    stop.store(true, Ordering::Relaxed);
    senders.into_iter().for_each(|it| it.join().expect("a sender"));
    let seen: Vec<Windows> = watchers.into_iter().map(|it| it.join().expect("a host")).collect();
    let found = logged(lab, "dead:", killed)[0];
    let decided = *logged(lab, "decided", killed).last().expect("a decision");
    let next = |seen: &Windows| seen.iter().map(|(at, _)| *at).find(|at| *at > decided);
    let moves: Vec<f64> = seen.iter().map(|it| next(it).expect("windows go on")).collect();
    let moved = moves.into_iter().fold(decided, f64::max);
    nodes.iter().for_each(|node| lab.restore(node));
    let ms = |from: f64, to: f64| (to - from) * 1000.0;
    (ms(killed, found), ms(found, decided), ms(found, moved))
}

/// Prints how long it takes (and asserts no time). ROUNDS: how often for each number of dying
/// switches.
#[test]
#[ignore = "a minute; measures time"]
fn windows_move_soon_after_a_removal() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let more = ["--set", "cells=98304", "--set", "kind=SUMS", "--set", "bound=1000000000"];
    let lab = TestLab::up("shared-soon", super::TOPOLOGY, &more);
    let rounds = env_number("ROUNDS").unwrap_or(7).max(1);
    for dying in 1..=3 {
        let mut all = vec![];
        for _ in 0..rounds {
            let began = Instant::now();
            wait_for("all switches are members", || super::status(&lab)["settled"] == true);
            println!("  settled after {:?}", began.elapsed());
            all.push(removal(&lab, dying));
        }
        let of = |value: fn(&(f64, f64, f64)) -> f64| {
            let mut all: Vec<f64> = all.iter().map(value).collect();
            all.sort_by(f64::total_cmp);
            format!("{:.1} ms, at worst {:.1} ms", all[all.len() / 2], all[all.len() - 1])
        };
        println!("{dying} of 4 die, {rounds} times, 3 x 64 K counters (median):");
        println!("  found dead after {}", of(|it| it.0));
        println!("  from then on, decided after {}", of(|it| it.1));
        println!("  from then on, windows move after {}", of(|it| it.2));
    }
    lab.down();
}
