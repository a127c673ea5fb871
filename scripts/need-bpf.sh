#!/usr/bin/env bash
# Says clearly when this machine cannot load BPF programs or make network namespaces.
set -u
fail() { echo "stateplane: $1" >&2; echo "stateplane: $2" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || fail "the tests and the demo load XDP programs and make network namespaces, which needs root" "run: sudo make ${1:-test}"
[ -e /sys/kernel/btf/vmlinux ] || fail "this kernel has no BTF (/sys/kernel/btf/vmlinux)" "use a kernel of 6.1 or later with CONFIG_DEBUG_INFO_BTF"
command -v bpftool >/dev/null || fail "bpftool is missing" "run: make setup"
# bpf(2) itself: containers and lockdown refuse it to root too.
bpftool prog list >/dev/null 2>&1 || fail "bpf(2) is refused: $(bpftool prog list 2>&1 | head -1)" "run outside of a container (or with --privileged), and without kernel lockdown"
ip netns add "stateplane-probe-$$" 2>/dev/null || fail "this machine lets nobody make network namespaces" "run outside of a container, or with --privileged"
ip netns del "stateplane-probe-$$"
exit 0
