//! The conformance list on the memory engine, in wasm: Node.
#![cfg(target_arch = "wasm32")]

#[macro_use]
mod support;

alkstore_tests::for_each_case!(wasm_tests);
