//! The conformance list on the memory engine, in wasm: a dedicated worker.
#![cfg(target_arch = "wasm32")]

#[macro_use]
mod support;

wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_dedicated_worker);

alkstore_tests::for_each_case!(wasm_tests);
