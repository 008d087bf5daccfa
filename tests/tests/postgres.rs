//! The conformance list on the Postgres engine, alone and opened for a fleet.
#![cfg(unix)]

mod support_postgres;

macro_rules! tests {
    ($($case:ident)*) => {
        mod postgres {
            $(#[test]
            fn $case() {
                crate::run(stringify!($case), false);
            })*
        }

        mod fleet {
            $(#[test]
            fn $case() {
                crate::run(stringify!($case), true);
            })*
        }
    };
}
alkstore_tests::for_each_case!(tests);

fn run(case: &str, fleet: bool) {
    let run = support_postgres::on_server(fleet, async |fixture| {
        alkstore_tests::run(case, fixture).await
    });
    if let Some(Err(broken)) = run {
        panic!("{broken}");
    }
}
