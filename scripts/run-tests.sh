#!/usr/bin/env bash
# Runs the workspace's tests as `cargo test --workspace --no-fail-fast` does, but several binaries
# at a time where that is safe. A file of tests whose first paragraphs say "Needs root." loads BPF
# programs or makes network namespaces; one that says "Runs alone" waits for real timers. Each of
# these has the machine to itself, after the others.
#   scripts/run-tests.sh all      every test
#   scripts/run-tests.sh check    those that need no root
# Prints what each binary says, with its seconds. Exit codes: 0 all passed, 1 some failed, 2 wrong
# usage.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/side-by-side.sh
what=${1:-}
case $what in all | check) ;; *) echo "scripts/run-tests.sh: say which tests: all or check" >&2; exit 2 ;; esac

# A binary in its package's folder and with the variable that cargo sets for it.
run_binary() {
  local binary=$1 source=$2 folder=$3 began=$SECONDS status=0
  echo "     Running ${source#"$PWD"/}"
  (cd "$folder" && CARGO_MANIFEST_DIR=$folder exec "$binary") || status=$?
  echo "     $((SECONDS - began)) s, ${source#"$PWD"/}"
  return "$status"
}

# Binary, source and folder of each test target.
built=$(mktemp)
trap 'end_side_by_side; rm -f "$built"' EXIT
cargo test --workspace --locked --no-run --quiet --message-format=json-render-diagnostics |
  jq -r 'select(.reason == "compiler-artifact" and .profile.test and .executable)
    | [.executable, .target.src_path, (.manifest_path | rtrimstr("/Cargo.toml"))] | @tsv' | sort -t$'\t' -k2 >"$built"
alone=() left_out=0
while IFS=$'\t' read -r binary source folder; do
  head=$(sed '/^$/q' "$source")
  case $head in
    *"Needs root"[.,]*) if [ "$what" = all ]; then alone+=("$binary" "$source" "$folder"); else left_out=$((left_out + 1)); fi ;;
    *"Runs alone"*) alone+=("$binary" "$source" "$folder") ;;
    *) start run_binary "$binary" "$source" "$folder" ;;
  esac
done <"$built"
finish
set -- ${alone[@]+"${alone[@]}"}
while [ $# -gt 0 ]; do
  started=$((started + 1)) printed=$((printed + 1))
  run_binary "$1" "$2" "$3" || failed=$((failed + 1))
  shift 3
done
cargo test --workspace --locked --no-fail-fast --quiet --doc || failed=$((failed + 1))
[ "$left_out" -eq 0 ] || echo "tests: $left_out binaries left out, as they need root: make test has them"
echo "tests: $started binaries, $failed with failures"
[ "$started" -gt 0 ] && [ "$failed" -eq 0 ]
