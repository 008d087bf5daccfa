#!/usr/bin/env bash
# Installs the tarball of bindings-js/dist as a user would, in a folder outside the project, and runs
# bindings-js/test/*.test.mjs there, so that a file that was left out of the package is missed. The
# conformance list, compiled to wasm of its own, lies beside them: `import ... from '../list/list.js'`.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
log=$root/target/conformance/js.log
there=$(mktemp -d)
trap 'rm -rf "$there"' EXIT

cd "$there"
echo '{ "private": true, "type": "module" }' >package.json
npm install --offline --silent --ignore-scripts --no-audit --no-fund "$root"/bindings-js/dist/*.tgz
cp -R "$root/bindings-js/test" test

wasm=${CARGO_TARGET_DIR:-$root/target}/wasm32-unknown-unknown/debug/alkstore_tests.wasm
(cd "$root" && cargo build --quiet --package alkstore-tests --lib --target wasm32-unknown-unknown)
wasm-bindgen --target web --no-typescript --out-dir list --out-name list "$wasm"

# The tests use the development tools; the package itself must do without them.
ln -s "$root"/tools/node_modules/{*,.bin} node_modules/

mkdir -p "$(dirname "$log")"
node --test --test-reporter=spec --test-reporter-destination=stdout \
  --test-reporter=tap --test-reporter-destination="$log" test/*.test.mjs
