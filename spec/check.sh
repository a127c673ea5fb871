#!/usr/bin/env bash
# Model checking: TLC runs every check of each specification's checks.txt (core/*/spec,
# systems/*/spec) and compares the result with the expected one. A check with a deliberate mistake
# (Bugs) must break the invariant or property that it names: so each is seen to be able to fail.
# Before that the script checks that the code that actions cite is there.
#   spec/check.sh              the small ones, as `make test` does
#   spec/check.sh large        the long ones too, as `make soak` does
#   spec/check.sh small Chain  those whose line has this word
# As many small checks run at a time as there are cores; the table has them in the order of
# checks.txt. TLC's output for the Nth line that was run is in out/spec/N.txt: the run that breaks
# an invariant, step by step.
# Exit codes: 0 all as they must be, 1 one was not, 2 no TLC.
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
shopt -s nullglob
folders=(core/*/spec systems/*/spec)
size=${1:-small}
only=${2:-}
jar=${TLA2TOOLS_JAR:-target/tla/tla2tools.jar}
[ -r "$jar" ] || { echo "spec/check.sh: $jar is not there: scripts/setup.sh fetches it (or set TLA2TOOLS_JAR)" >&2; exit 2; }
jar=$(realpath "$jar")
work=$(mktemp -d)
. scripts/side-by-side.sh
# Most small checks end before the second compiler's code would pay for itself.
jit=()
[ "$size" != small ] || jit=(-XX:TieredStopAtLevel=1)
trap 'end_side_by_side; rm -rf "$work"' EXIT

# The module's configuration with the constants of one check, in the file $1.
configure() {
  local file=$1 module=$2 setting; shift 2
  cp "$module.cfg" "$file"
  for setting in "$@"; do
    local name=${setting%%=*} value=${setting#*=} is="="
    [ "$name" = Founders ] && is="<-"
    sed -i -E "s/^  $name (=|<-).*/  $name $is ${value//&/\\&}/" "$file"
    grep -qF "  $name $is $value" "$file" || { echo "spec/check.sh: $module.cfg has no constant $name" >&2; exit 2; }
  done
}

# Each invariant and property has a mistake that must break it, and each mistake a line that says
# that at its bounds all holds without it.
complete() {
  local module name kind expected settings bounds wrong=0
  local without='s/ *(Bugs|Published)=[^ ]*//g; s/ +/ /g; s/ $//'
  for module in *.cfg; do
    for name in $(sed -nE 's/^(INVARIANTS|PROPERTIES) //p' "$module"); do
      grep -qE "^(small|large) +${module%.cfg} +$name( |$)" checks.txt || { echo "spec/check.sh: no mistake in checks.txt breaks ${module%.cfg}'s $name" >&2; wrong=1; }
    done
  done
  # (Not a pipe into grep -q: that ends early, and pipefail then counts the writer as failed.)
  bounds=$(sed -E "s/^(small|large) //; $without" checks.txt)
  while read -r kind module expected settings; do
    case $kind in ''|\#*) continue ;; esac
    [ "$expected" != holds ] || continue
    grep -qxF "$(sed -E "$without" <<<"$module holds $settings")" <<<"$bounds" ||
      { echo "spec/check.sh: checks.txt has no line that says that $module holds at the bounds of: $settings" >&2; wrong=1; }
  done <checks.txt
  return "$wrong"
}

# Check number $1 with $2 workers of TLC: its line of the table, and 0 if it came out as it must.
check() {
  local number=$1 workers=$2 module=$3 expected=$4 settings=$5
  local folder=$work/$number out=$root/out/spec/$number.txt began=$SECONDS status broken states came verdict=ok
  # TLC writes the standard modules into its temporary folder and deletes them as it exits. In a
  # folder that two runs shared, one deleted what the other was about to read.
  mkdir "$folder/tmp"
  java -Djava.io.tmpdir="$folder/tmp" -XX:+UseParallelGC -XX:ParallelGCThreads="$workers" \
    ${jit[@]+"${jit[@]}"} -cp "$jar" tlc2.TLC -deadlock \
    -workers "$workers" -metadir "$folder/states" -config "$folder/check.cfg" "$module.tla" >"$out" 2>&1
  status=$?
  rm -rf "$folder/states"
  broken=$(sed -nE 's/^Error: Invariant (\w+) is violated.*/\1/p' "$out" | head -1)
  ! grep -qE '^Error: Temporal properties were violated' "$out" || broken=$(sed -n 's/^PROPERTIES //p' "$folder/check.cfg")
  states=$(sed -nE 's/^[0-9,]+ states generated, ([0-9,]+) distinct.*/\1/p' "$out" | tail -1)
  came=$broken
  [ "$status" -eq 0 ] && [ -z "$broken" ] && came=holds
  [ "$came" = "$expected" ] || verdict=WRONG
  printf '%-13s %-18s %-10s %12s %6s  %s\n' "$module" "$expected" "$verdict" "${states:-?}" $((SECONDS - began)) "$settings"
  [ "$verdict" = ok ] || echo "  came out: ${came:-an error} (out/spec/$number.txt has what TLC said)"
  [ "$verdict" = ok ]
}

spec/citations.sh || failed=1
mkdir -p out/spec
printf '%-13s %-18s %-10s %12s %6s  %s\n' module 'must come out' '' states s settings
for folder in "${folders[@]}"; do
cd "$root/$folder" || exit 2
complete || failed=1
while read -r kind module expected settings; do
  case $kind in ''|\#*) continue ;; esac
  [ "$kind" = small ] || [ "$size" = large ] || continue
  [[ "$module $expected $settings" == *"$only"* ]] || continue
  # A large check that must hold has all cores to itself. One worker finds the same first violation
  # each time.
  workers=1
  if [ "$kind" = large ] && [ "$expected" = holds ]; then
    workers=$cores
    wait_until 0
  fi
  number=$((started + 1))
  mkdir "$work/$number"
  read -ra list <<<"${settings:-}"
  configure "$work/$number/check.cfg" "$module" ${list[@]+"${list[@]}"}
  # A mistake is shown to the one invariant or property that must break, so that no other breaks
  # before it.
  [ "$expected" = holds ] || sed -i -E "s/^(PROPERTIES|INVARIANTS) .*/\1 $expected/" "$work/$number/check.cfg"
  start check "$number" "$workers" "$module" "$expected" "${settings:-}"
  [ "$workers" -eq 1 ] || wait_until 0
done <checks.txt
done
finish
echo "spec: $started checks, $failed wrong"
[ "$started" -gt 0 ] && [ "$failed" -eq 0 ]
