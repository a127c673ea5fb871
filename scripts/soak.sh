#!/usr/bin/env bash
# Work that takes longer than a test may: fuzzing in full counts, the simulator with many seeds,
# demos in a row, random failures in the lab. Exit code 1 on any failure.
#
#   scripts/soak.sh BIN [PART...]
#     BIN: the release `stateplane`
#     PART: spec check packets lowering programs doors chains mutations demos chaos, then those
#           of systems/*/soak.sh (all by default)
#
# Each part writes out/soak/PART.log. Variables set the amounts: SOAK_DEMOS=20, SOAK_ROUNDS=200,
# SOAK_CHAINS=1000, SOAK_KILLS=50, SOAK_SIM_RUNS=1000000, SIM_RUNS=200, STORE_DATAGRAMS=5000000,
# FUZZ_PROGRAMS=10000, FUZZ_SHARED=300, FUZZ_LOWERING=20000, FUZZ_SECONDS=300 (each of fuzz/).
set -uo pipefail
usage() { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 1 ] && [ -x "$1" ] || usage
bin=$(realpath "$1")
shift
cd "$(dirname "$0")/.."
parts=("$@")
all=(spec check packets lowering programs doors chains mutations demos chaos)
# A system's parts: it adds their names to `all`, and has a function soak_NAME for each.
for file in systems/*/soak.sh; do
  # shellcheck source=/dev/null
  . "$file"
done
[ ${#parts[@]} -gt 0 ] || parts=("${all[@]}")
out=out/soak
mkdir -p "$out"
export SIM_RUNS=${SIM_RUNS:-200} FUZZ_DATAGRAMS=${STORE_DATAGRAMS:-5000000}
demos=${SOAK_DEMOS:-20}

fuzz() { cargo run --profile fuzz --locked --quiet -p fuzz -- "$@"; }

# One number of a demo's failover.json: `figure FILE with recovery_fail_s`; "-" if there is none.
figure() { jq -r ".[\"$2\"][\"$3\"] // \"-\"" "$1" 2>/dev/null || echo -; }

one_demo() { # number, arguments of the demo
  local folder=$out/demo-$1 started=$SECONDS code
  shift
  rm -rf "$folder"
  "$bin" demo --out "$folder" "$@" >"$folder.log" 2>&1 </dev/null
  code=$?
  printf '%-6s %5s %12s %8s %16s %18s %6ss\n' "${folder##*-}" "$code" "$(figure "$folder/failover.json" with connections)" \
    "$(figure "$folder/failover.json" with connections_broken)" "$(figure "$folder/failover.json" with recovery_fail_s)" \
    "$(figure "$folder/failover.json" with recovery_return_s)" $((SECONDS - started))
  [ "$code" -eq 0 ] || { failed=$((failed + 1)); tail -n 5 "$folder.log"; }
}

# cargo-fuzz on every target of fuzz/, beginning with the committed corpora. Its findings beyond
# them stay in out/soak/corpus.
doors() {
  scripts/setup-fuzz.sh || return 1
  local source name failed=0 count=0
  local fuzz_dir=tools/fuzz-targets/fuzz
  cargo +nightly fuzz build --fuzz-dir "$fuzz_dir" -s none || return 1
  for source in "$fuzz_dir"/fuzz_targets/*.rs; do
    name=$(basename "$source" .rs)
    count=$((count + 1))
    mkdir -p "$out/corpus/$name"
    cargo +nightly fuzz run --fuzz-dir "$fuzz_dir" -s none "$name" "$out/corpus/$name" "$fuzz_dir/corpus/$name" -- \
      -max_total_time="${FUZZ_SECONDS:-300}" -max_len=16384 -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 ||
      failed=$((failed + 1))
  done
  echo "doors: $failed of $count targets failed"
  [ "$failed" -eq 0 ]
}

demos() {
  local failed=0 number
  printf '%-6s %5s %12s %8s %16s %18s %7s\n' demo exit connections broken recovery_fail_s recovery_return_s took
  for number in $(seq "$demos"); do one_demo "$number" --runs with; done
  one_demo full
  echo "demos: $failed of $((demos + 1)) failed"
  [ "$failed" -eq 0 ]
}

run_part() {
  case $1 in
    spec) spec/check.sh large ;;
    check) fuzz check --binary "$bin" ;;
    packets)
      # Each packet test in each placement of its program's variables, and by the command line.
      ALL=1 cargo test --release --locked --quiet -p systems --test p4_programs &&
        scripts/packet-tests.sh "$bin"
      ;;
    lowering) fuzz lowering --runs "${FUZZ_LOWERING:-20000}" ;;
    programs)
      # Fresh seeds; some of the programs run on two CPUs at once. Then only such ones.
      fuzz programs --runs "${FUZZ_PROGRAMS:-10000}" &&
        fuzz programs --runs "${FUZZ_SHARED:-300}" --two-cpus-every 1
      ;;
    doors) doors ;;
    chains)
      # The controller and five servers in chains, over and over (the swarm of `sim` has its faults
      # elsewhere).
      CHAIN_SEEDS=${SOAK_CHAINS:-1000} cargo test --release --locked --quiet -p controller --test cluster nothing_acknowledged -- --nocapture
      ;;
    mutations)
      # Every seeded bug is caught, by the checks that judge the runs above.
      cargo test --release --locked --quiet -p controller --test mutations -- \
        --ignored --nocapture &&
        cargo test --profile fuzz --locked --quiet -p fuzz --test mutations -- \
          --include-ignored --nocapture
      ;;
    demos) demos ;;
    chaos)
      "$bin" lab chaos --rounds "${SOAK_ROUNDS:-200}" --out "$out/chaos" &&
        "$bin" lab chaos --rounds "$((${SOAK_ROUNDS:-200} / 5))" --mode etcd --out "$out/chaos-etcd"
      ;;
    *)
      declare -F "soak_$1" >/dev/null || { echo "no part '$1'" >&2; usage; }
      "soak_$1"
      ;;
  esac
}

# A function, so that bash has read all of this file before it begins.
main() {
  local summary=() bad=0 part started code result figures
  for part in "${parts[@]}"; do
    echo "== $part"
    started=$SECONDS
    (run_part "$part") 2>&1 | tee "$out/$part.log"
    code=${PIPESTATUS[0]}
    if [ "$code" -eq 0 ]; then result=good; else result="FAILED ($code), see $out/$part.log" bad=1; fi
    # What the part says of itself: its last line with figures in it.
    figures=$(grep -E '[0-9]+ (texts|programs|frames:|malformed|violations|of [0-9]+ )' "$out/$part.log" | tail -n 1)
    summary+=("$(printf '%-13s %5ss  %s  %s' "$part" $((SECONDS - started)) "$result" "$figures")")
  done
  printf '\n'
  printf '%s\n' "${summary[@]}"
  exit "$bad"
}

main
