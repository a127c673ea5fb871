# NetChain's parts of scripts/soak.sh, which reads this file: `bin` is its own.
# shellcheck shell=bash disable=SC2154
all+=(netchain_sim netchain_sim_mutations)
all+=(netchain_kills netchain_clients netchain_chaos netchain_alone)

soak_netchain_sim() { "$bin" kv sim --seconds "${SOAK_NETCHAIN_SECONDS:-3600}"; }

# Every seeded bug that random runs can find is caught.
soak_netchain_sim_mutations() {
  cargo test --release --locked --quiet -p netchain-sim --test mutations -- --ignored --nocapture
}

# In the lab, which measures: nothing else should run beside it.
netchain_lab() {
  cargo test --locked --quiet -p stateplane --test lab_failover -- \
    --ignored --exact --nocapture "$1"
}

soak_netchain_kills() { KILLS=${SOAK_KILLS:-50} netchain_lab many_kills; }

soak_netchain_clients() { netchain_lab many_clients; }

# A failing round is told with its seed: SEED=N ROUNDS=N repeats it.
soak_netchain_chaos() { ROUNDS=${SOAK_ROUNDS:-200} netchain_lab chaos; }

soak_netchain_alone() { netchain_lab a_minute_without_the_controller; }
