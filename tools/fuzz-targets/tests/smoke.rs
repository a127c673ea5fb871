//! The fuzzers' doors on stable Rust: the committed corpora, then mutations of these, from a fixed
//! seed and a fresh one. `FUZZ_SEED=n` replays one; `FUZZ_FACTOR=n` does n times as many;
//! `FUZZ_DOOR=name` takes one door. `make soak` searches with cargo-fuzz.

use fuzz_door::Door;
use fuzz_targets::doors;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// No input may take longer: far more than any needs, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
/// Inputs are not made longer than this.
const MOST_BYTES: usize = 16 << 10;

fn corpus(target: &Door) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target.name);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut found: Vec<(PathBuf, Vec<u8>)> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    found.sort();
    found
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// Feeds one input; says how to repeat what goes wrong.
fn feed(target: &Door, input: &[u8], what: &str) {
    let started = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    if outcome.is_err() || started.elapsed() > LIMIT {
        let kept =
            std::env::temp_dir().join(format!("stateplane-{}-{}", target.name, std::process::id()));
        std::fs::write(&kept, input).unwrap();
        panic!(
            "{}: {what}: a panic, or {:?}; the input is {}",
            target.name,
            started.elapsed(),
            kept.display()
        );
    }
}

/// A piece that may be copied or left out: in texts along words.
fn piece(input: &[u8], random: &mut StdRng) -> std::ops::Range<usize> {
    let start = random.random_range(0..=input.len());
    let length = [1, 2, 4, 8, 40, 400][random.random_range(0..6)];
    start..(start + random.random_range(0..=length)).min(input.len())
}

const WORDS: &[&str] = &[
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "4294967296",
    "18446744073709551616",
    "1e309",
    "nan",
    "\"\"",
    "\"a\"",
    "[]",
    "{}",
    "true",
    "null",
    "=",
    "[[",
    "]]",
    ":",
    "\n",
    "/0",
    "/129",
    "0x",
    "..",
    "&&&",
    "(",
    ")",
    "\u{0}",
    "é",
    "*",
    "$",
    "bit<8>",
    "int<0>",
    "header",
    "select",
    "error",
    "10.0.0.1",
    "::1",
    "10.0.0.0/33",
];

fn mutate(target: &Door, seeds: &[(PathBuf, Vec<u8>)], random: &mut StdRng) -> Vec<u8> {
    let mut input = seeds[random.random_range(0..seeds.len())].1.clone();
    for _ in 0..random.random_range(1..6) {
        let at = random.random_range(0..=input.len());
        match random.random_range(0..8) {
            0 => drop(input.drain(piece(&input, random))),
            1 => {
                let part = input[piece(&input, random)].to_vec();
                drop(input.splice(at..at, part));
            }
            2 => {
                let other = &seeds[random.random_range(0..seeds.len())].1;
                let part = other[piece(other, random)].to_vec();
                drop(input.splice(at..at, part));
            }
            3 if target.text => {
                let word = WORDS[random.random_range(0..WORDS.len())];
                let end = (at + random.random_range(0..6)).min(input.len());
                drop(input.splice(at..end, word.bytes()));
            }
            4 => input.truncate(at),
            5 if at < input.len() => {
                input[at] = [0, 1, 0x7f, 0x80, 0xff][random.random_range(0..5)]
            }
            6 if at < input.len() => input[at] = random.random(),
            _ if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
            _ => {}
        }
    }
    input.truncate(MOST_BYTES);
    input
}

fn run(target: &Door, seed: u64) {
    let seeds = corpus(target);
    let mut random = StdRng::seed_from_u64(seed);
    for count in 0..u64::from(target.smoke) * number("FUZZ_FACTOR").unwrap_or(1) {
        feed(
            target,
            &mutate(target, &seeds, &mut random),
            &format!("FUZZ_SEED={seed}, input {count}"),
        );
    }
}

#[test]
fn corpora_and_mutations() {
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let only = std::env::var("FUZZ_DOOR").ok();
    for target in doors().filter(|door| only.as_ref().is_none_or(|only| only == door.name)) {
        let started = Instant::now();
        let seeds = corpus(target);
        assert!(!seeds.is_empty(), "{}: no corpus", target.name);
        seeds.iter().for_each(|(path, input)| feed(target, input, &path.display().to_string()));
        (target.run)(b"");
        match number("FUZZ_SEED") {
            Some(seed) => run(target, seed),
            None => [0x5eed, fresh].into_iter().for_each(|seed| run(target, seed)),
        }
        println!(
            "{}: {} files, seed {fresh}, {} ms",
            target.name,
            seeds.len(),
            started.elapsed().as_millis()
        );
    }
}

/// Every door has its cargo-fuzz binary, and every binary a door.
#[test]
fn every_target_has_its_binary() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for target in doors() {
        let source =
            std::fs::read_to_string(folder.join(format!("fuzz_targets/{}.rs", target.name)))
                .unwrap();
        assert!(source.contains(&format!("\"{}\"", target.name)), "{}", target.name);
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
    }
    let binaries = std::fs::read_dir(folder.join("fuzz_targets")).unwrap().count();
    assert_eq!(binaries, doors().count());
}
