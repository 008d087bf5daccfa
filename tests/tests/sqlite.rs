//! The conformance list on the SQLite engine.
#![cfg(not(target_arch = "wasm32"))]

mod support_sqlite;

macro_rules! tests {
    ($($case:ident)*) => {
        mod sqlite {
            $(#[test]
            fn $case() {
                let fixture = crate::support_sqlite::Files::new();
                let case = alkstore_tests::run(stringify!($case), &fixture);
                if let Err(broken) = futures_executor::block_on(case) {
                    panic!("{broken}");
                }
            })*
        }
    };
}
alkstore_tests::for_each_case!(tests);
