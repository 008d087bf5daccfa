//! Random histories of an engine, against a plain model of the contract: maps, and the rules of core.
//!
//! The model never foresees a revision. It says that a grant, a write or a claim must get one, takes what the engine
//! gave, and holds it to being new and, for its name or key, the highest. Where the contract leaves a choice (which of
//! several rows of one age are taken, which lapsed rows go first), the model checks that the engine's choice is one of
//! them and follows it.

mod history;
mod play;
mod state;
mod window;

use std::time::Duration;

use alkstore::Timestamp;
use proptest::test_runner::{
    Config, FileFailurePersistence, RngAlgorithm, TestCaseError, TestError, TestRunner,
};

use self::play::Run;
use self::state::Model;
use crate::fixture::{Fixture, Limits, START};
use crate::{ensure_eq, CaseResult, Failure};

/// What happens to a store, step by step.
#[derive(Clone, Debug)]
pub struct History(Vec<history::Op>);

/// Runs a history on a fresh store of the fixture and on the model, side by side.
pub async fn run(fixture: &dyn Fixture, history: &History) -> CaseResult {
    let opened = fixture.open(Limits::default()).await?;
    let other = fixture.another(&opened).await?;
    let mut run = Run {
        fixture,
        store: &opened,
        other: &other,
        model: Model::default(),
        grants: Vec::new(),
        versions: Vec::new(),
        claims: Vec::new(),
        epochs: Vec::new(),
        open: [None, None],
        clock: START,
    };
    for (at, op) in history.0.iter().enumerate() {
        let named = |broken| Failure::new(format_args!("step {at}, {op:?}: {broken}"));
        run.step(op).await.map_err(named)?;
        if at % 8 == 7 {
            run.compare().await.map_err(named)?;
        }
    }
    run.compare().await?;
    // Once no claim stands any more, everything that waits can be seen by taking it.
    run.set_clock(run.model.now.plus(Duration::from_secs(3600)))
        .await?;
    run.take(Timestamp::MAX, None).await?;
    // What is left is marked, and can be finished.
    let (most, all) = (run.model.window.len(), Duration::from_secs(1));
    run.claim(Timestamp::MAX, all, usize::MAX).await?;
    let left: Vec<usize> = (0..most).collect();
    run.reclaim(history::How::Finish, &left, None).await?;
    ensure_eq!(run.model.window.len(), 0);
    Ok(())
}

/// Checks random histories, and panics with the shortest one that fails. The seed is kept, and printed, by proptest in
/// `tests/proptest-regressions`; the same history is tried first the next time.
///
/// `PROPTEST_CASES` and `MODEL_STEPS` change how many histories are tried and how long they are.
///
/// # Panics
///
/// Where a history fails.
pub fn check(engine: &str, cases: u32, steps: usize, run: impl Fn(&History) -> CaseResult) {
    let asked = |variable: &str| {
        std::env::var(variable)
            .ok()
            .and_then(|value| value.parse().ok())
    };
    let file = format!(
        "{}/proptest-regressions/model_{engine}.txt",
        env!("CARGO_MANIFEST_DIR")
    );
    let config = Config {
        cases: asked("PROPTEST_CASES").unwrap_or(cases),
        max_shrink_iters: 100_000,
        // The default generator takes most of the time where nothing is optimised.
        rng_algorithm: RngAlgorithm::XorShift,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(Box::leak(
            file.into_boxed_str(),
        )))),
        ..Config::default()
    };
    let steps = asked("MODEL_STEPS").map_or(steps, |steps: u32| steps as usize);
    let outcome = TestRunner::new(config).run(&history::histories(steps), |steps| {
        run(&History(steps)).map_err(|broken| TestCaseError::fail(broken.to_string()))
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(broken, history)) => {
            let steps: Vec<_> = history
                .iter()
                .enumerate()
                .map(|(at, op)| format!("  {at}: {op:?}"))
                .collect();
            panic!(
                "{engine} departs from the model: {broken}\n{}",
                steps.join("\n")
            );
        }
        Err(aborted) => panic!("{engine}: {aborted}"),
    }
}
