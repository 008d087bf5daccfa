//! Random histories of the Postgres engine against the model.
#![cfg(unix)]

mod support_postgres;

/// `PROPTEST_CASES` and `MODEL_STEPS` ask for more, or longer, histories.
#[test]
fn random_histories_agree_with_the_model() {
    if alkstore_tests::postgres::server().is_none() {
        return;
    }
    alkstore_tests::model::check("postgres", 200, 50, |history| {
        let run = support_postgres::on_server(async |fixture| {
            alkstore_tests::model::run(fixture, history).await
        });
        run.unwrap_or(Ok(()))
    });
}
