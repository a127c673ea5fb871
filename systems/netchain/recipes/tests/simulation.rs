//! Each recipe in a simulated world, for many seeds: never two believers, nobody stuck past leases.
//! SEED=N: only that seed. RUNS=N: so many for each recipe. ONLY=lock: only that recipe.

mod world;

use std::collections::BTreeMap;
use world::scenarios::ALL;

#[test]
fn recipes_keep_their_promises() {
    let number = |name: &str| std::env::var(name).ok().and_then(|it| it.parse::<u64>().ok());
    let only = std::env::var("ONLY").ok();
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("RUNS").unwrap_or(60),
    };
    for (name, scenario) in
        ALL.iter().filter(|(name, _)| only.as_deref().is_none_or(|it| it == *name))
    {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for seed in seeds.clone() {
            println!("ONLY={name} SEED={seed}");
            let world = scenario(seed);
            for (what, count) in &world.borrow().counts {
                *sums.entry(what).or_default() += count;
            }
        }
        println!("{name}: {sums:?}");
    }
}
