# (No braces after dollars: those are variables of the lab.)
# Compiles a program for a lab once in a run of stateplane-bench. Labs that want the same get a
# copy.
#   sh -c THIS CACHE STATEPLANE compile FILE ... -o LAB_DIR/NAME.o
set -e
cache=$0
for object; do :; done
directory=$(dirname "$object")
manifest=$directory/$(basename "$object" .o).json
key=$(printf '%s\n' "$*" | sed "s|$directory||g" | sha256sum | cut -c1-32)
mkdir -p "$cache"
exec 9>"$cache/$key.lock"
flock 9
if [ ! -e "$cache/$key.done" ]; then
    "$@"
    cp "$object" "$cache/$key.o"
    cp "$manifest" "$cache/$key.json"
    touch "$cache/$key.done"
else
    cp "$cache/$key.o" "$object"
    cp "$cache/$key.json" "$manifest"
fi
