//! The conformance list on the memory engine, in wasm: a browser window.
#![cfg(target_arch = "wasm32")]

#[macro_use]
mod support;

wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_browser);

alkstore_tests::for_each_case!(wasm_tests);
