//! Swarm runs, and that a seed's run is always the same. Needs root.

use sim::{Bench, Kind, Plan, Scenario, Summary, run_many};

#[test]
fn a_seed_replays_exactly() {
    for kind in Kind::ALL {
        let mut bench = Bench::new(kind).unwrap();
        let scenario = |seed| Scenario::of_seed(seed, kind);
        let first: Vec<_> =
            (1..=6).map(|seed| bench.run(&scenario(seed), false).unwrap().0).collect();
        // With loaded objects that were used for others before, in another order, and with a chart.
        for seed in (1..=6).rev() {
            let (again, _) = bench.run(&scenario(seed), true).unwrap();
            assert_eq!(again, first[seed as usize - 1], "{kind:?}, seed {seed}");
        }
        let mut fresh = Bench::new(kind).unwrap();
        assert_eq!(fresh.run(&scenario(3), false).unwrap().0, first[2], "{kind:?}: freshly loaded");
        assert!(first.windows(2).all(|pair| pair[0].digest != pair[1].digest));
    }
}

/// SIM_RUNS=N, SIM_SEED=S as elsewhere; SIM_OBJECT=name: only that.
#[test]
fn swarm() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let plan = Plan {
        seed: number("SIM_SEED").unwrap_or(1_000),
        runs: number("SIM_RUNS").unwrap_or(1) * 100,
        time: None,
        threads: 2,
        stop: || false,
        kind: std::env::var("SIM_OBJECT")
            .ok()
            .and_then(|name| Kind::ALL.into_iter().find(|kind| kind.name() == name)),
    };
    let kind = plan.kind;
    let summary = run_many(plan, Summary::default(), |so_far| {
        if so_far.runs.is_multiple_of(100) {
            println!("{} runs", so_far.runs);
        }
    })
    .unwrap();
    println!("{} runs, {:?}", summary.runs, summary.total);
    assert_eq!(summary.failures, []);
    assert!(summary.total.outputs * 4 > summary.total.inputs);
    if kind.is_none_or(|kind| kind == Kind::Batched) {
        // Of hundred runs some ten have the fast path.
        assert!(summary.total.fast > summary.runs, "{} batches", summary.total.fast);
    }
}
