//! Random histories of the SQLite engine against the model.
#![cfg(not(target_arch = "wasm32"))]

mod support_sqlite;

/// `PROPTEST_CASES` and `MODEL_STEPS` ask for more, or longer, histories.
#[test]
fn random_histories_agree_with_the_model() {
    alkstore_tests::model::check("sqlite", 200, 50, |history| {
        let fixture = support_sqlite::Files::new();
        futures_executor::block_on(alkstore_tests::model::run(&fixture, history))
    });
}
