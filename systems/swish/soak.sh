# SwiSh's parts of scripts/soak.sh, which reads this file.
# shellcheck shell=bash disable=SC2154
all+=(swish_sim swish_sim_mutations swish_chaos)

# Random runs of each kind, with RUNS of each (by default what each test says: 200 to 500).
soak_swish_sim() {
  cargo test --release --locked --quiet -p swish-sim -- --ignored --nocapture \
    many_random a_run_of_forty
}

# Every seeded bug that random runs can find is caught.
soak_swish_sim_mutations() {
  cargo test --release --locked --quiet -p swish-sim -- --ignored --nocapture \
    every_seeded_bug every_mistake
}

# In the lab: switches, agents, links and the controller fail at random. A failing round is told
# with its seed: SEED=N ROUNDS=N repeats it.
soak_swish_chaos() {
  local lab
  for lab in shared chain eventual; do
    ROUNDS=${SOAK_ROUNDS:-50} cargo test --release --locked --quiet -p stateplane \
      --test "lab_${lab}_failures" -- --ignored --nocapture chaos || return
  done
}
