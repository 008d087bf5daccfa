//! G2: a dry run predicts the run that follows.

use alkstore::{sweep, PutOptions, Restage, Store, SweepOptions};

use crate::fixture::{Engine, Fixture};
use crate::interposed::{held, Outside, Source};
use crate::steps::{candidates, claimed, open, secs, sight, stored, waiting, HOUR};
use crate::sweep::{adds_up, figures};
use crate::{ensure, ensure_eq, CaseResult};

/// A stream of numbers that is the same every time.
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

/// Rows and entries of every sort. Answers the payloads.
async fn mixture(f: &dyn Fixture, store: &dyn Store, dice: &mut Dice) -> CaseResult<Vec<Vec<u8>>> {
    let now = store.now().await?;
    let mut payloads = Vec::new();
    for n in 0..12 {
        let name = format!(
            "{}{n}",
            ["a", "b", "live", "stuck"][usize::try_from(dice.roll(4)).unwrap_or(0)]
        );
        if store
            .window_info(name.as_bytes())
            .await?
            .is_some_and(|row| row.reclaiming || row.claimed_until.is_some())
        {
            continue;
        }
        match dice.roll(4) {
            0 => {}
            1 => {
                let lapsing = PutOptions::replace().ttl(secs(1));
                store.put(name.as_bytes(), b"lapsing", lapsing).await?;
            }
            _ => {
                let options = PutOptions::replace();
                store.put(name.as_bytes(), name.as_bytes(), options).await?;
            }
        }
        if dice.roll(3) > 0 {
            payloads.push(name.clone().into_bytes());
        }
        match dice.roll(6) {
            0 => {
                claimed(store, &[&name]).await?;
            }
            1 => {
                let claims = claimed(store, &[&name]).await?;
                store.window_mark(&claims, None).await?;
                store
                    .window_requeue(&claims, now.plus(secs(dice.roll(3))))
                    .await?;
            }
            _ => {
                let staged = candidates(&[(&name, now.plus(secs(dice.roll(4))))])?;
                store.window_stage(&staged, Restage::Keep).await?;
            }
        }
    }
    f.advance(secs(2)).await?;
    Ok(payloads)
}

pub(crate) async fn g2_a_dry_run_changes_nothing_and_comes_true(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let (mut deleted, mut held_up) = (0, 0);
    for round in 0..40 {
        let payloads = mixture(f, &*store, &mut dice).await?;
        let mut outside = Outside::default();
        held(&outside.payloads).extend(payloads.into_iter().map(|key| (key, 3)));
        outside.stuck = (0..12).map(|n| format!("stuck{n}").into_bytes()).collect();
        let source = Source::by(|key| key.starts_with(b"live"));
        let mut options = Vec::new();
        let (batch, limit) = (1 + dice.roll(5), dice.roll(14));
        for _ in 0..2 {
            let mut one = SweepOptions::new().source(&source);
            one = one.batch(usize::try_from(batch).unwrap_or(1)).limit(limit);
            options.push(if round % 2 == 0 {
                one
            } else {
                one.reclaimer(&outside)
            });
        }
        let before = (sight(&*store).await?, waiting(&*store).await?);
        let there = held(&outside.payloads).clone();
        let first = stored(&*store, b"zz", b"").await?;
        ensure!(store.delete(b"zz", None).await?);
        let dry = match options.pop() {
            Some(options) => sweep(&*store, options.dry_run()).await?,
            None => return Ok(()),
        };
        ensure!(dry.dry_run);
        let second = stored(&*store, b"zz", b"").await?;
        ensure!(store.delete(b"zz", None).await?);
        if !matches!(f.engine(), Engine::Postgres | Engine::Fleet) {
            ensure_eq!(second.get(), first.get() + 1, "a dry run draws no revision");
        }
        ensure_eq!(
            (sight(&*store).await?, waiting(&*store).await?),
            before,
            "round {round}"
        );
        ensure_eq!(*held(&outside.payloads), there, "round {round}");
        for options in options {
            let run = sweep(&*store, options).await?;
            ensure_eq!(figures(&dry), figures(&run), "round {round}");
            ensure_eq!(dry.error.is_some(), run.error.is_some(), "round {round}");
            adds_up(&run)?;
            deleted += run.deleted;
            held_up += run.failed;
        }
        if round % 7 == 0 {
            f.advance(HOUR).await?;
        }
    }
    ensure!(
        deleted > 20 && held_up > 20,
        "{deleted} deleted, {held_up} held up"
    );
    Ok(())
}
