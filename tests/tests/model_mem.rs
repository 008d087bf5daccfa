//! Random histories of the memory engine against the model.
#![cfg(not(target_arch = "wasm32"))]

mod support;

use futures_util::FutureExt as _;

/// The histories are many and short steps long, so the engine is cheap to check thoroughly: 2,000 of 100 steps take a
/// few seconds even without optimisation. `PROPTEST_CASES` and `MODEL_STEPS` ask for more.
#[test]
fn random_histories_agree_with_the_model() {
    alkstore_tests::model::check("mem", 2_000, 100, |history| {
        let fixture = support::Memory::new();
        let run = alkstore_tests::model::run(&fixture, history);
        run.now_or_never()
            .unwrap_or_else(|| panic!("memory waits for nothing"))
    });
}
