#!/usr/bin/env bash
# Runs the workspace's tests as `cargo test --workspace --no-fail-fast` does, in two lanes side by
# side. Files of tests whose first paragraphs say "Waits for timers" bring up networks and daemons,
# and mostly wait: these run one after the other, so two may use the same ports. Meanwhile the rest
# computes, as many binaries at a time as there are cores, on what the first lane leaves of them.
# "Needs root." in the first paragraphs says that a test loads BPF programs or makes network
# namespaces.
#   scripts/run-tests.sh all      every test; model checking, packet tests and simulations in the
#                                 second lane
#   scripts/run-tests.sh check    those that need no root
# Prints what each binary says, with its seconds and those of CPU that it took. What clang makes for
# BPF is kept in target/clang-cache (scripts/clang-cache/clang).
# Exit codes: 0 all passed, 1 some failed, 2 wrong usage.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-}
case $what in
  all | check) ;;
  *) echo "scripts/run-tests.sh: say which tests: all or check" >&2; exit 2 ;;
esac
# Tests in files of these names take longest. They begin first: none is left alone at the end.
longest=(p4_programs seeded cluster smoke simulation swarm mutations)

# Runs a command, and says how long it took.
timed() { # what it is, command
  local name=$1 began=$SECONDS status=0 cpu; shift
  echo "     Running $name"
  "$@" || status=$?
  # (Not by a pipe: a subshell has no children yet.)
  local file=$scratch/times.$BASHPID
  times >"$file"
  cpu=$(awk -F'[ms ]' 'NR == 2 {printf "%d", $1 * 60 + $2 + $4 * 60 + $5}' "$file")
  echo "     $((SECONDS - began)) s, $cpu s of CPU, $name"
  return "$status"
}

# A binary in its package's folder and with the variable that cargo sets for it.
run_binary() {
  cd "$2"
  CARGO_MANIFEST_DIR=$2 "$1"
}

# Runs a lane's commands, and leaves its figures in $scratch/NAME.done.
lane() { # name, commands at a time, function that starts them
  . scripts/side-by-side.sh
  cores=$2
  "$3"
  finish
  echo "$started $failed" >"$scratch/$1.done"
}

start_binaries() { # file with binary, source and folder of each
  local binary source folder
  while IFS=$'\t' read -r binary source folder; do
    start timed "${source#"$PWD"/}" run_binary "$binary" "$folder"
  done <"$1"
}

start_waiting() { start_binaries "$scratch/waiting"; }

start_computing() {
  [ "$what" != all ] || start timed spec/check.sh env JOBS=1 spec/check.sh small
  start_binaries "$scratch/first"
  start_binaries "$scratch/rest"
  # (A build script may look at PATH.)
  start timed "doc tests" env PATH="$path" \
    cargo test --workspace --locked --no-fail-fast --quiet --doc
  if [ "$what" = all ]; then
    # The test of all programs runs the packet tests, too; these go by the command line.
    start timed scripts/packet-tests.sh env JOBS=1 scripts/packet-tests.sh target/debug/stateplane \
      p4/tests systems/*/p4/tests tools/bench/setups
    start timed "stateplane sim" target/debug/stateplane sim --seconds 60
    start timed "stateplane kv sim" target/debug/stateplane kv sim --seconds 30
  fi
}

scratch=$(mktemp -d)
lanes=()
end() {
  [ "${#lanes[@]}" -eq 0 ] || kill "${lanes[@]}" 2>/dev/null || true
  wait
  rm -rf "$scratch"
}
trap end EXIT
trap 'exit 130' INT TERM

# Binary, source and folder of each test target.
cargo test --workspace --locked --no-run --quiet --message-format=json-render-diagnostics |
  jq -r 'select(.reason == "compiler-artifact" and .profile.test and .executable)
    | [.executable, .target.src_path, (.manifest_path | rtrimstr("/Cargo.toml"))] | @tsv' |
  sort -t$'\t' -k2 >"$scratch/built"
touch "$scratch/waiting" "$scratch/first" "$scratch/rest"
left_out=0
while IFS=$'\t' read -r binary source folder; do
  head=$(sed -e '/^$/q' -e 's|^//! *||' "$source" | tr '\n' ' ')
  into=rest
  for long in "${longest[@]}"; do [[ $source != *"/tests/$long.rs" ]] || into=first; done
  case $head in *"Waits for timers"*) into=waiting ;; esac
  case $what$head in check*"Needs root"[.,]*) into=left_out left_out=$((left_out + 1)) ;; esac
  printf '%s\t%s\t%s\n' "$binary" "$source" "$folder" >>"$scratch/$into"
done <"$scratch/built"

path=$PATH
export CLANG_CACHE=$PWD/target/clang-cache PATH=$PWD/scripts/clang-cache:$PATH
mkdir -p "$CLANG_CACHE"
find "$CLANG_CACHE" -mindepth 2 -maxdepth 2 -mtime +3 -exec rm -rf {} +
export PRINTING=$scratch/printing
(lane waiting 1 start_waiting) &
lanes+=($!)
(renice -n 15 -p "$BASHPID" >/dev/null; lane computing "$(nproc)" start_computing) &
lanes+=($!)
wait "${lanes[@]}" || true
lanes=()
read -r started failed < <(cat "$scratch/waiting.done" "$scratch/computing.done" |
  awk '{started += $1; failed += $2} END {print started, failed}')
[ "$left_out" -eq 0 ] ||
  echo "tests: $left_out binaries left out, as they need root: make test has them"
echo "tests: $started commands, $failed with failures"
[ "$started" -gt 0 ] && [ "$failed" -eq 0 ]
