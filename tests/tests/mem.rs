//! The conformance list on the memory engine, natively.
#![cfg(not(target_arch = "wasm32"))]

mod support;

macro_rules! tests {
    ($($case:ident)*) => {
        mod mem {
            $(#[test]
            fn $case() {
                crate::support::check(stringify!($case));
            })*
        }
    };
}
alkstore_tests::for_each_case!(tests);
