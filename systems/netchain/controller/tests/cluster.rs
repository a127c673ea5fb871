//! Simulated clusters with failures: no acknowledged write is lost, and chains become whole again.
//! SEED=N: only that seed. RUNS=N: so many.

mod world;

use world::World;

#[test]
fn no_acknowledged_write_is_lost() {
    let number = |name: &str| std::env::var(name).ok().and_then(|it| it.parse::<u64>().ok());
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("RUNS").unwrap_or(30),
    };
    let mut sums = world::Counts::default();
    for seed in seeds {
        let mut world = World::new(seed);
        world.run(6_000, true);
        world.finish();
        let one = &world.counts;
        sums.writes += one.writes;
        sums.reads += one.reads;
        sums.deaths += one.deaths;
        sums.returns += one.returns;
        sums.joins += one.joins;
        sums.moves += one.moves;
        sums.lost += one.lost;
        sums.controller_deaths += one.controller_deaths;
    }
    println!("{sums:?}");
}
