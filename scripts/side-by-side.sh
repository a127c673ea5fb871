# Runs commands side by side, as many at a time as there are cores (JOBS=N: as N). Their output
# comes in the order in which they were started. For other scripts: `. scripts/side-by-side.sh`,
# `start COMMAND...` for each, `finish` at the end. Then `started` is the number of commands,
# `failed` the number of those that did not end with 0. With PRINTING=FILE nobody else who has that
# file prints meanwhile.

cores=${JOBS:-$(nproc)}
started=0
printed=0
failed=0
outputs=$(mktemp -d)
trap 'end_side_by_side' EXIT

# COMMAND may be a function of the script: it has a shell of its own.
start() {
  wait_until $((cores - 1))
  started=$((started + 1))
  # With job control each has a process group, by which it is ended, and ^C is not ignored in it
  # for ever.
  set -m
  run_one "$started" "$@" </dev/null &
  set +m
}

finish() {
  wait_until 0
  # A shell that was killed left no output.
  failed=$((failed + started - printed))
}

# Waits until at most $1 commands run, and prints what has its turn.
wait_until() {
  while [ "$(jobs -pr | wc -l)" -gt "$1" ]; do
    wait -n || true
    print_finished
  done
  print_finished
}

run_one() {
  # All that it starts stays in its process group.
  set +m
  local number=$1 status=0; shift
  "$@" >"$outputs/$number.part" 2>&1 || status=$?
  echo "$status" >"$outputs/$number.status"
  mv "$outputs/$number.part" "$outputs/$number.out"
}

print_finished() {
  while [ -e "$outputs/$((printed + 1)).out" ]; do
    printed=$((printed + 1))
    if [ -n "${PRINTING:-}" ]; then
      flock "$PRINTING" cat "$outputs/$printed.out"
    else
      cat "$outputs/$printed.out"
    fi
    [ "$(cat "$outputs/$printed.status")" -eq 0 ] || failed=$((failed + 1))
    rm "$outputs/$printed.out"
  done
}

end_side_by_side() {
  local group
  for group in $(jobs -p); do kill -- "-$group" 2>/dev/null || true; done
  wait
  rm -rf "$outputs"
}
