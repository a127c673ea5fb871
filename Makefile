# stateplane. `make demo` shows the main job; `make test` decides whether a change may land.
# Both set the machine up themselves (scripts/setup.sh) and need root, as they load XDP programs. `make check` does not.

SHELL := /bin/bash
export PATH := $(HOME)/.cargo/bin:$(PATH)
RELEASE := target/release/stateplane

.PHONY: help root setup build demo demo-kv demo-shared check test lint bench soak clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Said before anything is built, not after minutes of it.
root:
	@[ "$$(id -u)" -eq 0 ] || { echo "stateplane: this loads XDP programs and makes network namespaces, which needs root: sudo make $(MAKECMDGOALS)" >&2; exit 2; }

setup: ## install what is needed (no-op when it is there)
	@scripts/setup.sh

build: setup ## build target/release/stateplane
	cargo build --release --locked --quiet

demo: root build ## real TCP through a NAT in XDP, whose switch dies: writes out/demo/failover.svg and .json
	@scripts/need-bpf.sh demo
	$(RELEASE) demo

demo-kv: root build ## locks on switches, etcd and ZooKeeper, a machine of each killed: writes out/demo/kv.json and kv.svg
	@scripts/need-bpf.sh demo-kv
	$(RELEASE) demo kv

demo-shared: root build ## an attack spread over four switches, found by shared state and by controllers: writes out/demo/shared.json and shared.svg
	@scripts/need-bpf.sh demo-shared
	$(RELEASE) demo shared

lint: setup ## formatting and clippy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked --quiet -- -D warnings

check: lint ## for every day, without root: formatting, clippy, the tests that neither load BPF programs nor make labs
	scripts/run-tests.sh check

test: root lint ## everything that decides whether a change may land
	@scripts/need-bpf.sh test
	scripts/run-tests.sh all

bench: root build ## the papers' evaluations, repeated: writes out/bench/index.html (QUICK=1: in an hour)
	@scripts/need-bpf.sh bench
	cargo build --release --locked --quiet -p bench
	target/release/stateplane-bench all $(if $(QUICK),--quick)

soak: root build ## what takes longer than a test may
	@scripts/need-bpf.sh soak
	scripts/soak.sh $(RELEASE)

clean: ## remove what was built, and labs that a crash left behind
	-[ ! -x $(RELEASE) ] || $(RELEASE) lab down --all
	rm -rf target out
