//! The conformance list on the Postgres engine.
#![cfg(unix)]

mod support_postgres;

macro_rules! tests {
    ($($case:ident)*) => {
        mod postgres {
            $(#[test]
            fn $case() {
                let run = crate::support_postgres::on_server(async |fixture| {
                    alkstore_tests::run(stringify!($case), fixture).await
                });
                if let Some(Err(broken)) = run {
                    panic!("{broken}");
                }
            })*
        }
    };
}
alkstore_tests::for_each_case!(tests);
