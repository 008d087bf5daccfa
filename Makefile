# Everything a person or a CI machine runs goes through here; `make` alone tells what there is.
# Each target first sets up what it needs (tools/setup.sh), which takes no time when it is there.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
$(if $(filter undefine,$(.FEATURES)),,$(error GNU make 3.82 or newer is needed: older ones ignore .SHELLFLAGS, and so failures))
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules --no-print-directory

export ALKSTORE_TOOLS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/alkstore/tools
export PATH := $(ALKSTORE_TOOLS)/bin:$(PATH)
# Seconds that a browser may take for one test binary; the default of 20 is short on a busy machine.
export WASM_BINDGEN_TEST_TIMEOUT ?= 300

SETUP := tools/setup.sh
NPM_BIN := tools/node_modules/.bin
# The command line, which is no default of its crate.
CLI := alkstore-native/cli
WASM := --target wasm32-unknown-unknown

# Ids that an engine leaves out on purpose, as --exclude COLUMN=ID,ID...
CONFORMANCE_EXCLUDE ?=

say = @printf '\n== %s\n' '$(1)'
# Runs $(2), shows it and keeps it in $(1): .ci/run adds up the totals, conformance-table reads the cases.
logged = @mkdir -p $(dir $(1)) && { $(2); } 2>&1 | tee $(1)

.PHONY: help
help: ## Show this help
	@echo 'usage: make TARGET'
	@echo
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22
	@echo
	@echo 'The first run of a target may build its tools: about 3 minutes for demo, 10 for test.'

.PHONY: demo
demo: dist ## Build the npm package and run the demo on it (DIR=/path to pass it a folder)
	$(call say,demo)
	@node bindings-js/demo/demo.mjs $${DIR:+"$$DIR"}

.PHONY: test
test: ## Run every test: native, wasm in Node and Chromium, the packed npm package
	@rm -rf target/logs target/conformance
	@$(MAKE) test-native test-wasm test-js test-www
	@$(MAKE) conformance-table

.PHONY: test-native
test-native: ## Run the native tests
	@$(SETUP) rust
	@$(SETUP) postgres || echo '!! no postgres: its tests will say that they are skipped'
	$(call say,native tests (compiles first: about two minutes on two cores))
	$(call logged,target/logs/native.log,cargo test --workspace --exclude alkstore-tests --features $(CLI),alkstore/serde)
	$(call logged,target/conformance/native.log,cargo test --package alkstore-tests)

WASM_PLACES := node window worker
.PHONY: test-wasm
test-wasm: $(addprefix test-wasm-,$(WASM_PLACES)) ## Run the wasm tests in Node, in a window and in a dedicated worker

.PHONY: $(addprefix test-wasm-,$(WASM_PLACES))
test-wasm-window test-wasm-worker: BROWSER = --headless --chrome --chromedriver "$${CHROMEDRIVER:-$$(command -v chromedriver)}"
$(addprefix test-wasm-,$(WASM_PLACES)): test-wasm-%:
	@$(SETUP) rust_targets node wasm_bindgen wasm_pack $(if $(BROWSER),chromium)
	$(call say,wasm tests in: $* (the first of them compiles: about a minute))
	$(call logged,target/conformance/wasm-$*.log,cd tests && wasm-pack test --mode no-install $(or $(BROWSER),--node) . --test wasm_$*)

.PHONY: test-js
test-js: dist ## Run the JS tests on the packed package, installed in a folder of its own
	@$(SETUP) chromium
	$(call say,tests of the packed npm package (about a minute))
	@tools/test-packed.sh

.PHONY: test-www
test-www: dist ## Run the tests of the lease lab in Chromium (screenshots in target/www)
	@$(SETUP) www chromium
	$(call say,tests of the lease lab (about half a minute))
	@cd www && node_modules/.bin/vite build --logLevel warn
	@mkdir -p target/logs
	@node --test --test-reporter=spec --test-reporter-destination=stdout \
	  --test-reporter=tap --test-reporter-destination=target/logs/www.log www/test/*.test.mjs

.PHONY: conformance-table
conformance-table: ## Print which contract ids the last test run covered, engine by engine
	$(call say,conformance)
	@node tools/matrix.mjs $(CONFORMANCE_EXCLUDE)

.PHONY: dist
dist: # The package alone, without the checks of `package`.
	@$(SETUP) rust_targets wasm_bindgen npm_dev
	$(call say,npm package)
	@node tools/build-package.mjs $(DIST_FLAGS)

.PHONY: package
package: DIST_FLAGS = --check-sizes
package: dist ## Build the npm package, check its sizes, exports and types
	@$(NPM_BIN)/publint run --strict bindings-js/dist/*.tgz
	@$(NPM_BIN)/attw --profile esm-only --exclude-entrypoints alkstore.wasm --no-emoji bindings-js/dist/*.tgz

.PHONY: www
www: dist ## Build the lease lab, serve it on a free local port and open it (PORT=8080 to choose)
	@$(SETUP) www
	$(call say,lease lab)
	@node www/serve.mjs

.PHONY: bench
bench: dist ## Measure against what one would use instead, two minutes (FULL=1: ten; ONLY=mem,node: some)
	@$(SETUP) bench_js
	@$(foreach part,chromium postgres,$(SETUP) $(part) || echo '!! no $(part): its benchmarks will be missing';)
	$(call say,bench (the first time it builds the peers: about five minutes))
	@node tools/bench.mjs $(if $(FULL),--full) $(if $(ONLY),--only $(ONLY))

.PHONY: soak
soak: ## Soak safe deletion under kills, stalls and restarts (SECONDS=3600 ENGINE=mem|sqlite|postgres SEED=1)
	@$(SETUP) rust
	@$(SETUP) postgres || echo '!! no postgres: its soak will be missing'
	$(call say,soak (the first time it compiles: about two minutes))
	@cargo run --quiet --locked --manifest-path tests/soak/Cargo.toml --target-dir target/soak -- \
	  --seconds $(or $(SECONDS),60) --engine $(or $(ENGINE),all) $(if $(SEED),--seed $(SEED))

.PHONY: mutants
mutants: ## Break each guard in turn, and see a test turn red (ONLY=core|postgres|sqlite|text: some)
	@$(SETUP) rust node
	@$(SETUP) postgres || echo '!! no postgres: choose others, as with ONLY=core'
	$(call say,mutants (about half an hour; ONLY=core: five minutes))
	@node tests/mutants.mjs $(if $(ONLY),--only '$(ONLY)')

# Runs none, but sees that each is fresh, and that docs/safe-deletion.md names tests and mutants that there are.
.PHONY: mutants-check
mutants-check:
	@$(SETUP) node
	@node tests/mutants.mjs --check

test: mutants-check

.PHONY: lint
lint: ## Check format, clippy, docs and the builds without std and for wasm
	@$(SETUP) lint
	$(call say,lint (the first time: about two minutes))
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features $(CLI) -- -D warnings
	cargo clippy $(WASM) --package alkstore-mem --package alkstore-js -- -D warnings
	cargo clippy $(WASM) --package alkstore-tests $(WASM_PLACES:%=--test wasm_%) -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps
	cargo check --package alkstore --no-default-features --target thumbv7m-none-eabi
	cargo check --package alkstore-mem $(WASM)

.PHONY: clean
clean: ## Remove what was built and installed in this folder (the tools in the user's cache stay)
	cargo clean
	rm -rf bindings-js/dist tools/node_modules tests/bench-js/node_modules www/dist www/node_modules
