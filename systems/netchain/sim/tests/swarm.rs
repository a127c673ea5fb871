//! Random runs with all kinds of faults. RUNS=N: so many; SEED=N: only that one, drawn.

use netchain_sim::{Bench, Plan, Scenario, run_many};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn random_runs() {
    let bench = Bench::new(None).unwrap();
    if let Some(seed) = number("SEED") {
        let (outcome, chart) = bench.run(&Scenario::of_seed(seed), true);
        println!("{}", chart.map_or_else(String::new, |chart| chart.render(usize::MAX)));
        println!("{outcome:?}");
        assert_eq!(outcome.violation, None, "SEED={seed}");
        return;
    }
    let seed = number("FIRST_SEED").unwrap_or(1);
    let runs = number("RUNS").unwrap_or(40);
    let plan = Plan { seed, runs, time: None, threads: 2, stop: || false };
    let began = std::time::Instant::now();
    let rate = |runs: u64| runs as f64 / began.elapsed().as_secs_f64();
    let summary = run_many(&bench, plan, |so_far| {
        if so_far.runs.is_multiple_of(50) {
            println!("{} runs, {:.1} a second", so_far.runs, rate(so_far.runs));
        }
    });
    println!("{:.1} runs/s: {summary:?}", rate(summary.runs));
    for (seed, violation) in &summary.failures {
        println!("SEED={seed}: {violation}");
    }
    if let Some((seed, violation)) = summary.failures.first() {
        let whole = Scenario::of_seed(*seed);
        let (shortest, replays) = bench.shrink(&whole, violation, || false);
        let (short, chart) = bench.run(&shortest, true);
        println!(
            "{}",
            chart.map_or_else(String::new, |chart| chart
                .render(number("LINES").unwrap_or(200) as usize))
        );
        println!("{} steps of {}, {replays} replays", shortest.steps.len(), whole.steps.len());
        panic!("SEED={seed}: {violation}; short: {:?}; {shortest:?}", short.violation);
    }
}
