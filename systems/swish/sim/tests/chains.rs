//! Chains of switches with SRO, in random runs. SEED=N: only that one, with its log; RUNS=N: so
//! many from FIRST_SEED on. `--ignored`: many more, and all seeded bugs (BUG=Name: only that one).
//! Needs root.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use swish_sim::chain::{Chains, Outcome};
use swish_sim::{Program, Violation, seeded};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

type Run = fn(&mut Chains<'_>, u64) -> Outcome;

fn without_orders(chains: &mut Chains<'_>, seed: u64) -> Outcome {
    chains.run(seed)
}

fn with_orders(chains: &mut Chains<'_>, seed: u64) -> Outcome {
    chains.run_with_orders(seed)
}

fn runs(program: &Program, run: Run, first: u64, runs: u64) {
    let mut chains = Chains::new(program);
    let mut counted = std::collections::BTreeMap::new();
    let mut answered = 0;
    let only = number("SEED");
    for seed in only.map_or(first..first + runs, |seed| seed..seed + 1) {
        let outcome = run(&mut chains, seed);
        answered += outcome.answered;
        for (name, count) in &outcome.counted {
            *counted.entry(*name).or_insert(0) += count;
        }
        if outcome.violation.is_some() || only.is_some() {
            println!("{}", outcome.log.join("\n"));
        }
        assert_eq!(outcome.violation, None, "SEED={seed}");
    }
    println!("{answered} packets were answered: {counted:?}");
    let never = ["malformed", "forged", "no_route", "faults", "too_many", "to_host"];
    for name in never {
        assert_eq!(counted.get(name), Some(&0), "{name}");
    }
    if only.is_none() {
        for name in ["decided", "conflicts", "repeated", "early", "ran_again", "sent_again"] {
            assert!(counted.get(name) > Some(&0), "no {name} in these runs: {counted:?}");
        }
    }
}

#[test]
fn random_runs() {
    let program = Program::compile_pairs(None).unwrap();
    runs(&program, without_orders, number("FIRST_SEED").unwrap_or(1), number("RUNS").unwrap_or(20));
}

/// Members restart without their state, and no controller removes them.
#[test]
fn members_restart_without_their_state() {
    let program = Program::compile_pairs(None).unwrap();
    let mut chains = Chains::new(&program);
    assert_eq!(chains.a_member_restarts_while_members_meet(), Ok(()));
    for place in 0..3 {
        assert_eq!(chains.a_member_restarts_without_its_state(place), Ok(()), "{place}");
    }
    let first = number("SEED").or(number("FIRST_SEED")).unwrap_or(1);
    let count = if number("SEED").is_some() { 1 } else { number("RUNS").unwrap_or(15) };
    for seed in first..first + count {
        assert_eq!(chains.run_with_restarts(seed), Ok(()), "SEED={seed}");
    }
}

#[test]
fn agreeing_wrongly_is_caught() {
    for bug in seeded::LIVES {
        let program = Program::compile_pairs(Some(bug)).unwrap();
        let mut chains = Chains::new(&program);
        let found = (0..3)
            .find_map(|place| chains.a_member_restarts_without_its_state(place).err())
            .or_else(|| (1..200).find_map(|seed| chains.run_with_restarts(seed).err()));
        let found = found.expect(bug.name);
        println!("| {} | {} | {} |", bug.name, found.check, found.detail);
        assert_ne!(found.check, "harness", "{found}");
    }
}

/// Operators read and write the same keys as packets.
#[test]
fn orders_and_packets_are_linearizable() {
    let program = Program::compile_pairs(None).unwrap();
    let (first, count) = (number("FIRST_SEED").unwrap_or(1), number("RUNS").unwrap_or(12));
    runs(&program, with_orders, first, count);
}

#[test]
fn wrong_orders_are_caught() {
    let plain = Program::compile_pairs(None).unwrap();
    let bugs: Vec<_> = seeded::ORDERS.iter().collect();
    all_are_caught(&plain, Program::compile_pairs, with_orders, &bugs, 60);
}

/// With SDW and EWO beside SRO.
#[test]
fn each_packet_is_counted_once() {
    let program = Program::compile_tally(None).unwrap();
    runs(&program, without_orders, number("FIRST_SEED").unwrap_or(1), number("RUNS").unwrap_or(20));
}

#[test]
fn counting_wrongly_is_caught() {
    let plain = Program::compile_tally(None).unwrap();
    let bugs: Vec<_> = seeded::TALLY.iter().collect();
    all_are_caught(&plain, Program::compile_tally, without_orders, &bugs, 40);
}

#[test]
fn keys_are_kept_while_packets_come() {
    let program = Program::compile_pairs(None).unwrap();
    assert_eq!(Chains::new(&program).keys_are_kept_while_packets_come(), Ok(()));
}

#[test]
fn all_packets_are_answered() {
    let program = Program::compile_pairs(None).unwrap();
    assert_eq!(Chains::new(&program).all_packets_are_answered(), Ok(()));
}

/// Holds as it should, and shows the bug.
fn shows(name: &str, run: impl Fn(&mut Chains<'_>) -> Result<(), Violation>) {
    let bug = seeded::CHAIN_DIRECTED.iter().find(|bug| bug.name == name).unwrap();
    let right = Program::compile_pairs(None).unwrap();
    assert_eq!(run(&mut Chains::new(&right)), Ok(()));
    let wrong = Program::compile_pairs(Some(bug)).unwrap();
    let found = run(&mut Chains::new(&wrong)).expect_err(name);
    println!("| {name} | {} | {} |", found.check, found.detail);
    assert!(["linearizable", "group", "time", "places"].contains(&found.check), "{found}");
}

#[test]
fn a_late_round_lends_no_time() {
    shows("LeaseFromNow", |chains| chains.a_late_round_lends_no_time());
}

#[test]
fn a_joiner_reads_no_copy_of_two_moments() {
    shows("WholeEarly", |chains| chains.a_joiner_reads_no_copy_of_two_moments());
}

#[test]
fn keys_of_operators_are_over() {
    shows("AbsentForGood", |chains| chains.keys_of_operators_are_over());
}

#[test]
fn places_are_used_again() {
    shows("PlacesLost", |chains| chains.places_are_used_again());
}

#[test]
fn only_removals_are_listed() {
    shows("WritesListed", |chains| chains.only_removals_are_listed());
}

#[test]
fn what_is_over_is_absent() {
    shows("OverIsThere", |chains| chains.what_is_over_is_absent());
}

#[test]
fn a_full_window_drops_what_waited() {
    let run = |bug| {
        let program = Program::compile_tally(bug).unwrap();
        Chains::new(&program).a_full_window_drops_what_waited()
    };
    assert_eq!(run(None), Ok(()));
    for bug in seeded::TALLY_DIRECTED {
        let found = run(Some(bug)).expect_err(bug.name);
        assert_eq!(found.check, "full", "{}: {found}", bug.name);
    }
}

#[test]
#[ignore = "minutes"]
fn many_random_runs() {
    for program in [Program::compile_pairs(None), Program::compile_tally(None)] {
        let (first, count) = (number("FIRST_SEED"), number("RUNS"));
        runs(&program.unwrap(), without_orders, first.unwrap_or(10_000), count.unwrap_or(500));
    }
}

fn all_are_caught(
    plain: &Program,
    compile: fn(Option<&seeded::SeededBug>) -> Result<Program, String>,
    run: Run,
    bugs: &[&seeded::SeededBug],
    most: u64,
) {
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let first = number("FIRST_SEED").unwrap_or(50_000);
    let work = || {
        let mut without = Chains::new(plain);
        while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let program = compile(Some(bug)).unwrap();
            let mut chains = Chains::new(&program);
            let found = (1..)
                .zip(first..first + most)
                .find_map(|(runs, seed)| Some((seed, runs, run(&mut chains, seed).violation?)));
            let Some((seed, runs, found)) = found else {
                println!("| {} | not caught | {most} | |", bug.name);
                missed.lock().unwrap().push(bug.name);
                continue;
            };
            println!("| {} | {} | {runs} | {} |", bug.name, found.check, found.detail);
            assert_ne!(found.check, "harness", "{found}");
            assert_eq!(run(&mut without, seed).violation, None, "seed {seed} without {}", bug.name);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(*missed.lock().unwrap(), Vec::<&str>::new());
}

#[test]
#[ignore = "a minute or two"]
fn every_seeded_bug_is_caught() {
    let only = std::env::var("BUG").ok();
    let wanted = |bug: &&seeded::SeededBug| only.as_ref().is_none_or(|only| *only == bug.name);
    let bugs: Vec<_> = seeded::CHAIN.iter().filter(wanted).collect();
    assert!(!bugs.is_empty(), "no bug is called {only:?}");
    let plain = Program::compile_pairs(None).unwrap();
    all_are_caught(
        &plain,
        Program::compile_pairs,
        without_orders,
        &bugs,
        number("MOST").unwrap_or(300),
    );
}
