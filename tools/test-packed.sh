#!/usr/bin/env bash
# Installs the tarball of bindings-js/dist as a user would, in a folder outside the project, so that a file that was
# left out of the package is missed. Runs bindings-js/test/*.test.mjs there and the demo's tests, then the conformance
# list, compiled to wasm of its own, through the package: in Node, in a window and in a worker.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=$root/target/logs
conformance=$root/target/conformance
there=$(mktemp -d)
trap 'rm -rf "$there"' EXIT

cd "$there"
echo '{ "private": true, "type": "module" }' >package.json
npm install --offline --silent --ignore-scripts --no-audit --no-fund "$root"/bindings-js/dist/*.tgz
cp -R "$root/bindings-js/test" test

# The tests use the development tools; the package itself must do without them.
ln -s "$root"/tools/node_modules/{*,.bin} node_modules/

mkdir -p "$logs" "$conformance"
status=0
node --test --test-reporter=spec --test-reporter-destination=stdout \
  --test-reporter=tap --test-reporter-destination="$logs/js.log" test/*.test.mjs "$root"/bindings-js/demo/*.test.mjs || status=1

wasm=${CARGO_TARGET_DIR:-$root/target}/wasm32-unknown-unknown/debug/alkstore_tests.wasm
(cd "$root" && cargo build --quiet --package alkstore-tests --lib --target wasm32-unknown-unknown)
wasm-bindgen --target web --no-typescript --out-dir list --out-name list "$wasm"
for place in node window worker; do
  printf '\n== the conformance list through the package: %s\n' "$place"
  node "$root/tests/js/run.mjs" "$place" list/list.js node_modules/alkstore | tee "$conformance/npm-$place.log" || status=1
done
exit "$status"
