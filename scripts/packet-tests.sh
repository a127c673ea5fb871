#!/usr/bin/env bash
# Runs every STF packet test through the kernel by the command line: systems/*/p4/*/*.stf with the
# app's program, p4/tests/*.stf and tools/bench/setups/*.stf with the program of the same name.
set -euo pipefail
stateplane=$1
cd "$(dirname "$0")/.."
. scripts/side-by-side.sh
run=0
for directory in systems/*/p4/*/ p4/tests/ tools/bench/setups/; do
  [ -d "$directory" ] || continue
  for program in "$directory"*.p4; do
    name=$(basename "$program" .p4)
    cases=("$directory$name".stf "$directory$name"-*.stf)
    case $directory in systems/*) cases=("$directory"*.stf) ;; esac
    existing=()
    for case in "${cases[@]}"; do [ -e "$case" ] && existing+=("$case"); done
    [ "${#existing[@]}" -gt 0 ] || continue
    run=$((run + ${#existing[@]}))
    start "$stateplane" test "$program" "${existing[@]}"
  done
done
finish
echo "packet tests: $run STF files, $failed programs with failures"
[ "$run" -gt 0 ] && [ "$failed" -eq 0 ]
