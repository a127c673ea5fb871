//! No input makes the checker panic or hang. `cargo run -p p4-check --example fuzz_check` runs more.

mod common;

#[test]
fn random_texts_and_mutated_programs() {
    let seed = std::env::var("P4_CHECK_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed);
    common::fuzz(seed, 500);
}
