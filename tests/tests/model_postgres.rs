//! Random histories of the Postgres engine against the model.
#![cfg(unix)]

mod support_postgres;

/// `PROPTEST_CASES` and `MODEL_STEPS` ask for more, or longer, histories.
#[test]
fn random_histories_agree_with_the_model() {
    check("postgres", 200, false);
}

#[test]
fn random_histories_of_a_fleet_agree_with_the_model() {
    check("fleet", 50, true);
}

fn check(engine: &'static str, histories: u32, fleet: bool) {
    if alkstore_tests::postgres::server().is_none() {
        return;
    }
    alkstore_tests::model::check(engine, histories, 50, |history| {
        let run = support_postgres::on_server(fleet, async |fixture| {
            alkstore_tests::model::run(fixture, history).await
        });
        run.unwrap_or(Ok(()))
    });
}
