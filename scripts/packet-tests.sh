#!/usr/bin/env bash
# Runs STF packet tests through the kernel by the command line: systems/*/p4/*/*.stf with the app's
# program, those of tests/ and tools/bench/setups/ with the program of the same name.
#   scripts/packet-tests.sh BIN [FOLDER...]
#     BIN: `stateplane`; FOLDER: as in p4/tests/ (all by default)
set -euo pipefail
stateplane=$1
shift
cd "$(dirname "$0")/.."
folders=("$@")
[ $# -gt 0 ] || folders=(systems/*/p4/*/ p4/tests/ tools/bench/setups/)
. scripts/side-by-side.sh
run=0
for directory in "${folders[@]}"; do
  directory=${directory%/}/
  [ -d "$directory" ] || continue
  for program in "$directory"*.p4; do
    name=$(basename "$program" .p4)
    cases=("$directory"*.stf)
    case $directory in
      */tests/ | */setups/) cases=("$directory$name".stf "$directory$name"-*.stf) ;;
    esac
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
