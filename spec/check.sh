#!/usr/bin/env bash
# Model checking: TLC runs every check of each specification's checks.txt (core/*/spec, systems/*/spec) and compares what comes out with what must. A check with a mistake made on purpose
# (Bugs) has to break the invariant or property that it names: so each is seen to be able to fail. Before that: the code that actions cite is there.
#   spec/check.sh              the small ones, as `make test` does
#   spec/check.sh large        the long ones too, as `make soak` does
#   spec/check.sh small Chain  those whose line has this word
# What TLC said of the Nth line that was run is in out/spec/N.txt: the run that breaks an invariant, step by step.
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

# Each invariant and property has a mistake that must break it, and each mistake a line that says that at its bounds all holds without it.
complete() {
  local module name kind expected settings wrong=0
  local without='s/ *(Bugs|Published)=[^ ]*//g; s/ +/ /g; s/ $//'
  for module in *.cfg; do
    for name in $(sed -nE 's/^(INVARIANTS|PROPERTIES) //p' "$module"); do
      grep -qE "^(small|large) +${module%.cfg} +$name( |$)" checks.txt || { echo "spec/check.sh: no mistake in checks.txt breaks ${module%.cfg}'s $name" >&2; wrong=1; }
    done
  done
  while read -r kind module expected settings; do
    case $kind in ''|\#*) continue ;; esac
    [ "$expected" != holds ] || continue
    sed -E "s/^(small|large) //; $without" checks.txt | grep -qxF "$(sed -E "$without" <<<"$module holds $settings")" ||
      { echo "spec/check.sh: checks.txt has no line that says that $module holds at the bounds of: $settings" >&2; wrong=1; }
  done <checks.txt
  return "$wrong"
}

spec/citations.sh || failed=1
printf '%-13s %-18s %-10s %12s %6s  %s\n' module 'must come out' '' states s settings
for folder in "${folders[@]}"; do
cd "$root/$folder" || exit 2
complete || failed=1
while read -r kind module expected settings; do
  case $kind in ''|\#*) continue ;; esac
  [ "$kind" = small ] || [ "$size" = large ] || continue
  [[ "$module $expected $settings" == *"$only"* ]] || continue
  number=$((number + 1))
  read -ra list <<<"${settings:-}"
  configure "$module" ${list[@]+"${list[@]}"}
  # A mistake is shown to the one invariant or property that must break, so that no other breaks before it.
  [ "$expected" = holds ] || sed -i -E "s/^(PROPERTIES|INVARIANTS) .*/\1 $expected/" "$work/check.cfg"
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
  mkdir -p "$root/out/spec"
  cp "$work/out" "$root/out/spec/$number.txt"
  if [ "$came" != "$expected" ]; then
    verdict=WRONG
    failed=$((failed + 1))
  fi
  printf '%-13s %-18s %-10s %12s %6s  %s\n' "$module" "$expected" "$verdict" "${states:-?}" $((SECONDS - started)) "${settings:-}"
  [ "$verdict" = ok ] || echo "  came out: ${came:-an error} (out/spec/$number.txt has what TLC said)"
done <checks.txt
done
echo "spec: $number checks, $failed wrong"
[ "$number" -gt 0 ] && [ "$failed" -eq 0 ]
