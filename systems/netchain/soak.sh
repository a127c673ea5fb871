# NetChain's parts of scripts/soak.sh, which reads this file: `bin` is its own.
# shellcheck shell=bash disable=SC2154
all+=(netchain_sim netchain_sim_mutations)

soak_netchain_sim() { "$bin" kv sim --seconds "${SOAK_NETCHAIN_SECONDS:-3600}"; }

# Every seeded bug that random runs can find is caught.
soak_netchain_sim_mutations() {
  cargo test --release --locked --quiet -p netchain-sim --test mutations -- --ignored --nocapture
}
