#!/usr/bin/env bash
# Model checking: TLC runs every check of checks.txt and compares what comes out with what must. A check with a mistake made on purpose
# (Bugs) has to break the invariant or property that it names: so each is seen to be able to fail. Before that: the code that actions cite is there.
#   spec/check.sh              the small ones, as `make test` does
#   spec/check.sh large        the long ones too, as `make soak` does
#   spec/check.sh small Chain  those whose line has this word
# Exit codes: 0 all as they must be, 1 one was not, 2 no TLC.
set -uo pipefail
cd "$(dirname "$0")"
size=${1:-small}
only=${2:-}
jar=${TLA2TOOLS_JAR:-../target/tla/tla2tools.jar}
[ -r "$jar" ] || { echo "spec/check.sh: $jar is not there: scripts/setup.sh fetches it (or set TLA2TOOLS_JAR)" >&2; exit 2; }
jar=$(realpath "$jar")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
number=0

# The module's configuration with the constants of one check.
configure() {
  local module=$1 setting; shift
  cp "$module.cfg" "$work/check.cfg"
  for setting in "$@"; do
    local name=${setting%%=*} value=${setting#*=} is="="
    [ "$name" = Founders ] && is="<-"
    sed -i -E "s/^  $name (=|<-).*/  $name $is ${value//&/\\&}/" "$work/check.cfg"
    grep -qF "  $name $is $value" "$work/check.cfg" || { echo "spec/check.sh: $module.cfg has no constant $name" >&2; exit 2; }
  done
}

./citations.sh || failed=1
printf '%-13s %-18s %-10s %12s %6s  %s\n' module 'must come out' '' states s settings
while read -r kind module expected settings; do
  case $kind in ''|\#*) continue ;; esac
  [ "$kind" = small ] || [ "$size" = large ] || continue
  [[ "$module $expected $settings" == *"$only"* ]] || continue
  number=$((number + 1))
  read -ra list <<<"${settings:-}"
  configure "$module" ${list[@]+"${list[@]}"}
  # TLC does not say which temporal property is violated: it gets the one that must be.
  [ "$expected" = holds ] || sed -i "s/^PROPERTIES .*/PROPERTIES $expected/" "$work/check.cfg"
  started=$SECONDS
  # One worker finds the same first violation each time.
  workers=1
  [ "$expected" != holds ] || workers=$(nproc)
  java -XX:+UseParallelGC -cp "$jar" tlc2.TLC -deadlock -workers "$workers" -metadir "$work/states" -config "$work/check.cfg" "$module.tla" >"$work/out" 2>&1
  status=$?
  rm -rf "$work/states"
  broken=$(sed -nE 's/^Error: Invariant (\w+) is violated.*/\1/p' "$work/out" | head -1)
  ! grep -qE '^Error: Temporal properties were violated' "$work/out" || broken=$(sed -n 's/^PROPERTIES //p' "$work/check.cfg")
  states=$(sed -nE 's/^[0-9,]+ states generated, ([0-9,]+) distinct.*/\1/p' "$work/out" | tail -1)
  came=$broken
  [ "$status" -eq 0 ] && [ -z "$broken" ] && came=holds
  verdict=ok
  if [ "$came" != "$expected" ]; then
    verdict=WRONG
    failed=$((failed + 1))
    mkdir -p ../out/spec
    cp "$work/out" "../out/spec/$number.txt"
  fi
  printf '%-13s %-18s %-10s %12s %6s  %s\n' "$module" "$expected" "$verdict" "${states:-?}" $((SECONDS - started)) "${settings:-}"
  [ "$verdict" = ok ] || echo "  came out: ${came:-an error} (out/spec/$number.txt has what TLC said)"
done <checks.txt
echo "spec: $number checks, $failed wrong"
[ "$number" -gt 0 ] && [ "$failed" -eq 0 ]
