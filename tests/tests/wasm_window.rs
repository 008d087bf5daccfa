//! The conformance list on the memory engine, in wasm: a browser window.
#![cfg(target_arch = "wasm32")]

mod support;

use wasm_bindgen_test::wasm_bindgen_test;

wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_browser);

macro_rules! tests {
    ($($case:ident)*) => {
        mod mem {
            use super::*;

            $(#[wasm_bindgen_test]
            fn $case() {
                crate::support::check(stringify!($case));
            })*
        }
    };
}
alkstore_tests::for_each_case!(tests);
