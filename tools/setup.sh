#!/usr/bin/env bash
# Installs what building and testing need, each thing once and only where it is missing.
#
#   tools/setup.sh rust_targets wasm_bindgen npm_dev    # runs ensure_rust_targets, ...
#
# Built tools go to one folder per user, so that every clone shares them. With all there it
# returns in well under a second and never touches the network.
set -euo pipefail

# Must equal the `wasm-bindgen` version in Cargo.lock: the two speak a private format.
WASM_BINDGEN_VERSION=0.2.129
WASM_PACK_VERSION=0.15.1
NODE_MAJOR=20

TOOLS_DIR=${ALKSTORE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/alkstore/tools}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PATH="$TOOLS_DIR/bin:$PATH"

say() { printf 'setup: %s\n' "$*" >&2; }

# Ends the set-up, telling what to do by hand.
need() {
  printf 'setup: %s\n' "$@" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command with its output in a log, which is shown only when the command fails.
quietly() {
  local log
  log=$(mktemp)
  if "$@" >"$log" 2>&1 </dev/null; then
    rm -f "$log"
  else
    tail -n 40 "$log" >&2
    need "this failed: $*" "the whole output is in $log"
  fi
}

ensure_rust() {
  have cargo || need "Rust is missing: install rustup, then its stable toolchain."
  have cc || have gcc || have clang ||
    need "Rust needs a C linker: install gcc (Debian: apt-get install gcc libc6-dev; macOS: xcode-select --install)."
}

# $@ = target triples. Looks into the toolchain's own folder: that asks neither rustup nor the network.
add_targets() {
  ensure_rust
  local libs target
  libs=$(rustc --print sysroot)/lib/rustlib
  for target in "$@"; do
    [ -d "$libs/$target/lib" ] && continue
    have rustup || need "the Rust target $target is missing and there is no rustup to add it:" \
      "install rustup, or your system's package of Rust's standard library for $target."
    say "adding the Rust target $target (about 20 MB, under a minute)"
    quietly rustup target add "$target"
  done
}

ensure_rust_targets() { add_targets wasm32-unknown-unknown; }

# The lints also check that core builds where there is no operating system.
ensure_lint() {
  add_targets wasm32-unknown-unknown thumbv7m-none-eabi
  local part
  for part in rustfmt clippy; do
    cargo "${part/rust/}" --version >/dev/null 2>&1 && continue
    have rustup || need "$part is missing and there is no rustup to add it: install it for your toolchain."
    say "adding $part (under a minute)"
    quietly rustup component add "$part"
  done
}

# $1 = program, $2 = crate, $3 = version, $4 = minutes on two cores
ensure_cargo_tool() {
  [ "$("$1" --version 2>/dev/null)" = "$1 $3" ] && return
  ensure_rust
  say "building $2 $3 into $TOOLS_DIR (once per user; about $4 minutes on two cores)"
  # Not from the project's folder, whose own cargo settings must not leak into the tool's build.
  (cd / && quietly cargo install "$2" --version "$3" --locked --force --root "$TOOLS_DIR")
  hash -r
  [ "$("$1" --version 2>/dev/null)" = "$1 $3" ] || need "$1 $3 was built, but 'command -v $1' finds another one."
}

ensure_wasm_bindgen() { ensure_cargo_tool wasm-bindgen wasm-bindgen-cli "$WASM_BINDGEN_VERSION" 3; }
ensure_wasm_pack() { ensure_cargo_tool wasm-pack wasm-pack "$WASM_PACK_VERSION" 6; }

ensure_node() {
  have node || need "Node.js is missing: install version $NODE_MAJOR or newer, with npm."
  local version
  version=$(node --version)
  version=${version#v}
  [ "${version%%.*}" -ge "$NODE_MAJOR" ] || need "Node.js $version is too old: install version $NODE_MAJOR or newer."
  have npm || need "npm is missing: install the one that comes with Node.js."
}

# $1 = folder with a lock, $2 = what it holds. Exactly as locked; none of it needs its install script.
npm_ci() {
  ensure_node
  local stamp=$1/node_modules/.installed-lock
  cmp -s "$1/package-lock.json" "$stamp" && return
  say "installing $2"
  (cd "$1" && quietly npm ci --ignore-scripts --no-audit --no-fund)
  cp "$1/package-lock.json" "$stamp"
}

ensure_npm_dev() {
  npm_ci "$HERE" "the npm development tools into tools/node_modules (about 200 MB, under a minute)"
}

# The npm package is one of them, as a link: build it first.
ensure_bench_js() {
  npm_ci "$HERE/../tests/bench-js" "what the npm package is measured against (6 MB, a few seconds)"
}

# Here too the npm package is a link.
ensure_www() {
  npm_ci "$HERE/../www" "what builds and tests the lease lab into www/node_modules (63 MB, under a minute)"
}

# $1 = what for, the rest = Debian's package names. Ends with instructions where this may not install.
apt_install() {
  local what=$1
  shift
  have apt-get || need "$what: this is no Debian, install it yourself ($*, as Debian names it) and put it on PATH."
  [ "$(id -u)" = 0 ] || need "$what: run 'sudo apt-get install $*', then start again."
  say "installing $what: $* (one to three minutes)"
  # Waits for another apt rather than failing; a list that is too old is refreshed only then.
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=600 --no-install-recommends)
  "${apt[@]}" install "$@" >/dev/null 2>&1 </dev/null && return
  quietly "${apt[@]}" update
  quietly "${apt[@]}" install "$@"
}

ensure_chromium() {
  local browser driver=${CHROMEDRIVER:-chromedriver}
  for browser in chromium chromium-browser google-chrome google-chrome-stable chrome; do
    have "$browser" && have "$driver" && return
  done
  apt_install "a browser for the tests (Chrome or Chromium, and a chromedriver of the same version)" \
    chromium chromium-driver
}

# The tests and the benchmark start a server of their own from these binaries, unless ALKSTORE_PG_URL names one.
ensure_postgres() {
  local dir
  [ -n "${ALKSTORE_PG_URL:-}" ] && return
  have initdb && have postgres && return
  for dir in /usr/lib/postgresql/*/bin; do
    [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] && return
  done
  apt_install "a PostgreSQL server for the tests (14 or newer)" postgresql
}

for part in "$@"; do
  declare -F "ensure_$part" >/dev/null || need "there is nothing called '$part' to set up."
  "ensure_$part"
done
