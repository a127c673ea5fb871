//! Runs of a chain under faults (`simulated`). A failure prints its seed; `SIMULATION_SEED=n`
//! replays it.

mod common;
mod simulated;

use proptest::prelude::*;
use simulated::simulate;

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_acknowledged_is_lost_and_no_flow_has_two_owners(seed in any::<u64>()) {
        let seed = std::env::var("SIMULATION_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(seed);
        let result = std::panic::catch_unwind(|| simulate(seed, false));
        prop_assert!(result.is_ok(), "failed; replay with SIMULATION_SEED={seed}");
        let checks = result.unwrap();
        // The run must have been about something.
        prop_assert!(checks.grants > 100 && checks.acks > 50 && checks.handovers > 10,
            "seed {}: {} grants, {} acks, {} handovers", seed, checks.grants, checks.acks, checks.handovers);
        prop_assert!(checks.releases > 10 && checks.recalls > 10 && checks.forged > 50 && checks.replayed > 50,
            "seed {}: {} releases, {} recalls, {} forged, {} replayed",
            seed, checks.releases, checks.recalls, checks.forged, checks.replayed);
        prop_assert!(checks.sessions_ended > 0, "seed {}", seed);
        let is_without = seed.is_multiple_of(4) || (seed / 4).is_multiple_of(2);
        prop_assert!(is_without || checks.by_program > 20,
            "seed {}: {} batches taken by programs", seed, checks.by_program);
        // (Not each run has a refused record: mostly a release brought what comes late. The seeded
        // bug RefusedNotTold shows that some have.)
        prop_assert!(seed.is_multiple_of(4) || checks.batch_acks > 50,
            "seed {}: {} batches, {} updates refused", seed, checks.batch_acks, checks.refused);
    }

    #[test]
    fn nothing_acknowledged_is_lost_when_all_servers_lose_power(seed in any::<u64>()) {
        let seed = std::env::var("SIMULATION_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(seed);
        let result = std::panic::catch_unwind(|| simulate(seed, true));
        prop_assert!(result.is_ok(), "failed; replay with SIMULATION_SEED={seed}");
        let checks = result.unwrap();
        prop_assert!(checks.power_cuts > 3 && checks.grants > 100 && checks.acks > 20,
            "seed {}: {} power cuts, {} grants, {} acks", seed, checks.power_cuts, checks.grants, checks.acks);
    }
}
