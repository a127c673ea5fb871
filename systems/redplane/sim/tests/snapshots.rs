//! Bounded inconsistency: the switch's lazy snapshots against the real store, under faults, judged
//! from the packet log. SIM_RUNS=N does N times as many seeds. Needs root.

use sim::{Bench, Faults, Kind, Outcome, Program, Scenario, SeededBug, Workload};

fn runs(defines: &[&str], seeds: std::ops::Range<u64>, faults: Faults) -> Outcome {
    let times = std::env::var("SIM_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let seeds =
        seeds.start * 1_000_000..seeds.start * 1_000_000 + (seeds.end - seeds.start) * times;
    let mut bench = Bench::with(Program::compile(Kind::Snapshots, defines, None).unwrap());
    let mut total = Outcome::default();
    for seed in seeds {
        let workload =
            Workload { flows: 3, packets: 300, pause_max_ns: 1_000_000, reads_percent: 0 };
        let (outcome, _) = bench.run(&Scenario::draw(seed, faults, workload), false).unwrap();
        assert_eq!(outcome.violation, None, "seed {seed}");
        total.outputs += outcome.outputs;
        total.without_lease += outcome.without_lease;
        total.windows += outcome.windows;
        total.snapshots.iter_mut().zip(outcome.snapshots).for_each(|(sum, part)| *sum += part);
    }
    let [snapshots, handed_over, lost] = total.snapshots;
    let updates = total.outputs;
    println!(
        "{updates} updates, {snapshots} snapshots, {handed_over} take-overs from living switches, {lost} slots' counts taken back"
    );
    assert!(
        updates > 100 && snapshots > 20,
        "{updates} updates, {snapshots} snapshots: too few to say anything"
    );
    if faults.moves == 0.0 {
        return total;
    }
    assert!(handed_over > 0);
    // A living switch hands over what is unsaved: only a crash, or a lease that ran out, takes
    // something back.
    if faults.keeps_state() {
        assert_eq!(lost, 0);
    }
    total
}

#[test]
fn a_calm_network() {
    runs(&["OVERDUE=DROP"], 0..2, Faults::NONE);
}

#[test]
fn tenants_that_move_between_living_switches() {
    runs(&["OVERDUE=DROP"], 100..103, Faults { moves: 0.05, ..Faults::NONE });
}

#[test]
fn loss_duplication_and_reordering() {
    let faults = Faults {
        loss: 0.1,
        duplication: 0.1,
        delay_max_ns: 5_000_000,
        moves: 0.02,
        ..Faults::NONE
    };
    runs(&["OVERDUE=DROP", "SLOTS=700"], 200..204, faults);
}

#[test]
fn switches_that_crash_and_come_back_empty() {
    let faults = Faults {
        loss: 0.05,
        duplication: 0.05,
        delay_max_ns: 3_000_000,
        moves: 0.03,
        crashes: 0.01,
        freezes: 0.01,
        ..Faults::NONE
    };
    runs(&["OVERDUE=DROP", "EPSILON_US=150000", "SLOTS=400"], 300..305, faults);
}

#[test]
fn servers_that_die() {
    let faults = Faults { store_crashes: 0.01, moves: 0.03, loss: 0.02, ..Faults::NONE };
    runs(&["OVERDUE=DROP", "EPSILON_US=150000", "SLOTS=400"], 400..404, faults);
}

/// Links to the stores that are cut for several leases, switches that stand still and come back
/// empty, moves, deaths of servers.
const LEASES_END: Faults = Faults {
    cuts: 0.03,
    freezes: 0.01,
    crashes: 0.005,
    moves: 0.03,
    loss: 0.03,
    agent_deaths: 0.01,
    store_crashes: 0.005,
    hand_over_loss: 0.1,
    ..Faults::NONE
};

/// Every packet that leaves has a lease, and is within ε.
#[test]
fn drop_waits_for_a_lease() {
    let total = runs(&["OVERDUE=DROP", "EPSILON_US=150000", "SLOTS=400"], 500..506, LEASES_END);
    assert_eq!(total.without_lease, 0);
}

/// So has every packet that is not marked; the marked ones see their switch's own copy, of which
/// nothing gets into the store once another switch has the tenant.
#[test]
fn mark_goes_on_without_a_lease() {
    let defines = ["OVERDUE=MARK", "ASK_OVERDUE", "EPSILON_US=150000", "SLOTS=400"];
    let total = runs(&defines, 500..506, LEASES_END);
    println!("{} packets went on without a lease", total.without_lease);
    assert!(total.without_lease > 0);
}

#[test]
fn continue_goes_on_without_a_lease() {
    let total = runs(&["OVERDUE=CONTINUE", "EPSILON_US=150000", "SLOTS=400"], 500..506, LEASES_END);
    println!("{} packets went on without a lease", total.without_lease);
    assert!(total.without_lease > 0);
}

/// Windows of 20 ms by switches' clocks, which run apart, while tenants move, switches die, and
/// stores are away: each snapshot has the counts of one window, and a switch that takes over goes
/// on in it, or in a newer one.
#[test]
fn windows_begin_anew() {
    let moves = Faults { moves: 0.05, drift_ppm: WINDOWS_DRIFT_PPM, ..Faults::NONE };
    let calm = runs(&["OVERDUE=DROP", "WINDOW_US=20000"], 600..603, moves);
    let defines = ["OVERDUE=CONTINUE", "EPSILON_US=150000", "SLOTS=400", "WINDOW_US=20000"];
    let faulty = runs(&defines, 700..706, Faults { drift_ppm: WINDOWS_DRIFT_PPM, ..LEASES_END });
    println!("{} and {} windows", calm.windows, faulty.windows);
    assert!(calm.windows > 20 && faulty.windows > 20 && faulty.without_lease > 0);
}

/// Within what is declared.
const WINDOWS_DRIFT_PPM: i64 = 300;

/// Can the checks fail? A window that begins in the copy, too, that a snapshot on its way is read
/// from; and packets whose clock is behind, which begin an older window.
#[test]
fn what_is_wrong_with_windows_is_found() {
    for bug in ["WindowInBothCopies", "WindowGoesBack"] {
        let defines = ["OVERDUE=CONTINUE", "EPSILON_US=150000", "WINDOW_US=20000"];
        let program = Program::compile(Kind::Snapshots, &defines, SeededBug::named(bug)).unwrap();
        let mut bench = Bench::with(program);
        let faults =
            Faults { moves: 0.2, loss: 0.05, drift_ppm: WINDOWS_DRIFT_PPM, ..Faults::NONE };
        let found = (600_000_000..600_001_000).find_map(|seed| {
            let workload =
                Workload { flows: 3, packets: 300, pause_max_ns: 1_000_000, reads_percent: 0 };
            let violation =
                bench.run(&Scenario::draw(seed, faults, workload), false).unwrap().0.violation?;
            println!("{bug}: seed {seed}: {violation}");
            Some(violation.check)
        });
        assert_eq!(found, Some("snapshots"), "{bug}");
    }
}

/// Can the checks fail? Two bugs of the data plane: packets without a lease are not marked; a copy
/// is used on although parts of another switch's state are in it.
#[test]
fn what_is_wrong_without_a_lease_is_found() {
    for bug in ["UnmarkedWithoutLease", "CopySurvivesGrant"] {
        let defines = ["OVERDUE=MARK", "ASK_OVERDUE", "EPSILON_US=150000", "SLOTS=400"];
        let program = Program::compile(Kind::Snapshots, &defines, SeededBug::named(bug)).unwrap();
        let mut bench = Bench::with(program);
        let found = (500_000_000..500_001_000).find_map(|seed| {
            let workload =
                Workload { flows: 3, packets: 300, pause_max_ns: 1_000_000, reads_percent: 0 };
            let violation = bench
                .run(&Scenario::draw(seed, LEASES_END, workload), false)
                .unwrap()
                .0
                .violation?;
            println!("{bug}: seed {seed}: {violation}");
            Some(violation.check)
        });
        assert_eq!(found, Some("snapshots"), "{bug}");
    }
}
