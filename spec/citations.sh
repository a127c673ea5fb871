#!/usr/bin/env bash
# Every action of every module says which code it models ("\* Code: FILE FUNCTION...", or
# "none: what it is"), and that code is there.
# Exit codes: 0 so it is, 1 it is not.
set -uo pipefail
cd "$(dirname "$0")/.."
wrong=0
complain() { echo "spec/citations.sh: $*" >&2; wrong=1; }
cited=0
shopt -s nullglob
for module in core/*/spec/*.tla systems/*/spec/*.tla; do
  while IFS=: read -r line rest; do
    read -r file names <<<"${rest#*Code: }"
    [ "$file" = "none:" ] && continue
    [ -r "$file" ] || { complain "$module:$line: there is no $file"; continue; }
    for name in $names; do
      cited=$((cited + 1))
      # As a definition: Rust's, a C function's whose line begins with its type, or P4's.
      declared="\bfn $name\b|^(static|SP_[A-Z_]+|SEC|int|void|bit<).*\b$name\(|\baction $name\("
      grep -qE "$declared" "$file" ||
        complain "$module:$line: $file has no function $name"
    done
  done < <(grep -nF '\* Code: ' "$module")
  # The actions are what the next-state relation names.
  next=$(sed -n '/^Next ==/,/^$/p' "$module")
  for action in $(grep -oE '^[A-Z][A-Za-z]+(\([a-z, ]+\))? ==' "$module" | grep -oE '^[A-Za-z]+'); do
    [ "$action" != Next ] && grep -qE "\b$action\b" <<<"$next" || continue
    grep -B1 -E "^$action(\(| ==)" "$module" | head -1 | grep -qF '\* Code: ' ||
      grep -qE "^$action == \{" "$module" || complain "$module: the action $action does not say which code it models"
  done
done
echo "spec: $cited functions cited"
[ "$cited" -gt 0 ] && [ "$wrong" -eq 0 ]
