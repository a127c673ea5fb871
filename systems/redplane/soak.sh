# RedPlane's parts of scripts/soak.sh, which reads this file: `bin`, `out` and `fuzz` are its own.
# shellcheck shell=bash disable=SC2154
all+=(frames messages groups store sim sim_mutations chaos_apps app_kills)

soak_frames() { fuzz frames; }

soak_messages() { fuzz messages; }

soak_groups() { fuzz groups; }

soak_store() {
  cargo test --release --locked --quiet -p state-store --test fuzz -- --nocapture &&
    # The real store through the controller's scenarios.
    CHAIN_SEEDS=${SOAK_CHAINS:-1000} cargo test --release --locked --quiet -p state-store --test cluster nothing_acknowledged -- --nocapture
}

soak_sim() {
  cargo test --release --locked --quiet -p sim -- --nocapture || return
  # Goes on where it was stopped, as long as it is the same build; another one begins anew.
  local build
  build=$(sha256sum "$bin" | cut -c1-16) || return
  find "$out" -maxdepth 1 -name 'sim*.json' ! -name "sim-$build.json" -delete
  "$bin" sim --runs "${SOAK_SIM_RUNS:-1000000}" --resume "$out/sim-$build.json"
}

# Every seeded bug of switch and store is caught, by the checks that judge the runs above.
soak_sim_mutations() {
  cargo test --release --locked --quiet -p sim --test mutations -- --ignored --nocapture
}

soak_chaos_apps() {
  local app
  for app in firewall load_balancer; do
    "$bin" lab chaos --rounds "$((${SOAK_ROUNDS:-200} / 5))" --topology "systems/redplane/lab/$app.toml" --out "$out/chaos-${app//_/-}" || return
  done
}

# Switches that are killed under load, each with packets that wait in messages and in the switch.
soak_app_kills() {
  local app
  for app in sequencer usage_monitor; do
    KILLS=${SOAK_KILLS:-50} cargo test --release --locked --quiet -p stateplane \
      --test "lab_$app" -- --ignored --nocapture many_kills || return
  done
}
