#!/usr/bin/env bash
# Installs what only the soak's coverage-guided fuzzing needs: a nightly toolchain and cargo-fuzz.
# Does nothing when they are there.
set -euo pipefail
export PATH="$HOME/.cargo/bin:$PATH"
rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
cargo fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked --version 0.13.2
