//! G1: the mark pass.

use std::sync::Mutex;

use alkstore::{
    stage_unreferenced, HookError, HookFuture, Key, LiveKeys, PutOptions, Restage, StageOptions,
    Timestamp, TtlError,
};
use futures_util::FutureExt as _;

use crate::failure::{refused, Refusal};
use crate::fixture::{Fixture, START};
use crate::interposed::{held, on, Interposed};
use crate::steps::{candidates, claimed, key, ms, open, secs, stage, stored, waiting, HOUR};
use crate::{ensure, ensure_eq, CaseResult};

const GRACE: std::time::Duration = secs(100);

/// Live keys, some at a time, or a failure.
struct Told<'a>(Vec<Result<Vec<&'a str>, &'static str>>);

impl LiveKeys for Told<'_> {
    fn next_keys(&mut self) -> HookFuture<'_, Result<Option<Vec<Key<'static>>>, HookError>> {
        let next = (!self.0.is_empty()).then(|| self.0.remove(0));
        Box::pin(async {
            let Some(keys) = next.transpose()? else {
                return Ok(None);
            };
            let keys: Result<Vec<_>, _> = keys
                .iter()
                .map(|key| Key::new(key.as_bytes().to_vec()))
                .collect();
            Ok(Some(keys?))
        })
    }
}

fn rows(rows: &[alkstore::WindowRow]) -> Vec<(String, Timestamp)> {
    rows.iter()
        .map(|row| {
            (
                String::from_utf8_lossy(row.key.as_bytes()).into_owned(),
                row.visible_after,
            )
        })
        .collect()
}

pub(crate) async fn g1_a_mark_pass_stages_what_nothing_refers_to(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for name in [
        "blob/a", "blob/b", "blob/c", "blob/d", "blob/e", "other", "bloc",
    ] {
        stored(&*store, name.as_bytes(), b"").await?;
    }
    store
        .put(b"blob/lapsed", b"", PutOptions::create().ttl(ms(1)))
        .await?;
    stage(
        &*store,
        &[
            ("blob/b", START),
            ("blob/c", START.plus(HOUR)),
            ("other", START),
        ],
    )
    .await?;
    claimed(&*store, &["blob/d"]).await?;
    f.advance(ms(1)).await?;
    let live = vec![
        Ok(vec!["blob/a", "blob/b"]),
        Ok(vec![]),
        Ok(vec!["blob/d", "unknown"]),
    ];
    let report = stage_unreferenced(
        &*store,
        &mut Told(live),
        StageOptions::new(GRACE).prefix(b"blob/"),
    )
    .await?;
    ensure_eq!(
        (report.listed, report.live, report.unstaged, report.staged),
        (5, 4, 2, 2)
    );
    let due = START.plus(ms(1)).plus(GRACE);
    ensure_eq!(
        rows(&waiting(&*store).await?),
        [
            ("other".to_owned(), START),
            ("blob/e".to_owned(), due),
            ("blob/c".to_owned(), START.plus(HOUR))
        ],
        "the live ones leave, claimed or not; what waits keeps its deadline"
    );
    Ok(())
}

/// So that what is published meanwhile is not staged, and the grace counts from after the live keys were learnt.
pub(crate) async fn g1_a_mark_pass_lists_before_it_asks(f: &dyn Fixture) -> CaseResult {
    struct Writes<'a>(Mutex<Option<HookFuture<'a, Result<(), HookError>>>>);
    impl LiveKeys for Writes<'_> {
        fn next_keys(&mut self) -> HookFuture<'_, Result<Option<Vec<Key<'static>>>, HookError>> {
            Box::pin(async {
                let write = held(&self.0).take();
                if let Some(write) = write {
                    write.await?;
                }
                Ok(None)
            })
        }
    }
    let store = open(f).await?;
    stored(&*store, b"old", b"").await?;
    let mut live = Writes(Mutex::new(Some(Box::pin(async {
        store.put(b"new", b"", PutOptions::create()).await?;
        f.advance(HOUR).await?;
        Ok(())
    }))));
    let report = stage_unreferenced(&*store, &mut live, StageOptions::new(GRACE)).await?;
    ensure_eq!((report.listed, report.staged), (1, 1));
    let due = START.plus(HOUR).plus(GRACE);
    ensure_eq!(rows(&waiting(&*store).await?), [("old".to_owned(), due)]);
    Ok(())
}

/// A pass may take long: a dedup hit in the middle of it has a whole grace period, also where it comes just before the call
/// that stages its key.
pub(crate) async fn g1_r2_a_long_mark_pass_shortens_no_grace(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for n in 0..1001 {
        stored(&*store, format!("{n:04}").as_bytes(), b"").await?;
    }
    let slow = Interposed::new(&*store, |moment| {
        let store = &*store;
        async move {
            if moment.is_before("window_stage_after", 2) {
                f.advance(GRACE).await?;
                store.put(b"1000", b"", PutOptions::create()).await?;
            }
            Ok(())
        }
        .boxed()
    });
    let none = &mut std::iter::empty();
    stage_unreferenced(&slow, none, StageOptions::new(GRACE)).await?;
    let last = store.window_info(b"1000").await?;
    ensure_eq!(
        last.map(|row| row.visible_after),
        Some(START.plus(GRACE).plus(GRACE))
    );
    Ok(())
}

pub(crate) async fn g1_a_mark_pass_that_learns_too_little_stages_nothing(
    f: &dyn Fixture,
) -> CaseResult {
    let store = open(f).await?;
    for name in ["a", "b", "c"] {
        stored(&*store, name.as_bytes(), b"").await?;
    }
    stage(&*store, &[("a", START), ("b", START)]).await?;
    let mut live = Told(vec![Ok(vec!["a"]), Err("the database is gone"), Ok(vec![])]);
    let failed = stage_unreferenced(&*store, &mut live, StageOptions::new(GRACE)).await;
    let Err(error) = failed else {
        return Err(crate::Failure::new("the pass went through"));
    };
    ensure_eq!(
        error.to_string(),
        "the live keys could not be learnt: nothing was staged"
    );
    let source = std::error::Error::source(&error).map(ToString::to_string);
    ensure_eq!(source.as_deref(), Some("the database is gone"));
    ensure_eq!(
        rows(&waiting(&*store).await?),
        [("b".to_owned(), START)],
        "what it learnt protects all the same"
    );
    Ok(())
}

pub(crate) async fn g1_a_short_grace_must_be_meant(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"k", b"").await?;
    let none = || std::iter::empty();
    let untouched = Interposed::new(&*store, |_| on());
    for (grace, refusal) in [
        (secs(60).saturating_sub(ms(1)), Refusal::Argument),
        (secs(0), Refusal::Duration(TtlError::NotPositive)),
        (
            std::time::Duration::MAX,
            Refusal::Duration(TtlError::TooLong),
        ),
    ] {
        let options = StageOptions::new(grace);
        refused(
            stage_unreferenced(&untouched, &mut none(), options).await,
            refusal,
        )?;
    }
    ensure_eq!(untouched.calls(), Vec::<&str>::new());
    let zero = StageOptions::new(secs(0)).allow_short_grace();
    let refusal = Refusal::Duration(TtlError::NotPositive);
    refused(
        stage_unreferenced(&*store, &mut none(), zero).await,
        refusal,
    )?;
    for options in [
        StageOptions::new(secs(60)),
        StageOptions::new(ms(1)).allow_short_grace(),
    ] {
        let report = stage_unreferenced(&*store, &mut none(), options).await?;
        ensure_eq!(report.staged, 1);
        ensure_eq!(store.window_unstage(&[key(b"k")?]).await?, 1);
    }
    Ok(())
}

pub(crate) async fn g1_a_mark_pass_has_any_number_of_pages(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let name = |n: usize| format!("{n:05}");
    for n in [999, 1000, 1001, 2001] {
        let there = store.list(b"", None, 10_000).await?.len();
        for n in there..n {
            stored(&*store, name(n).as_bytes(), b"").await?;
        }
        let asked = Mutex::new(0);
        let counted = Interposed::new(&*store, |moment| {
            if moment.is_before("window_stage_after", moment.nth) {
                *held(&asked) += 1;
            }
            async { Ok(()) }.boxed()
        });
        // Every third is live; told in pages of another size by the iterator.
        let live: Result<Vec<_>, _> = (0..n)
            .step_by(3)
            .map(|n| Key::new(name(n).into_bytes()))
            .collect();
        let live = live?;
        let known = live.len();
        let report =
            stage_unreferenced(&counted, &mut live.into_iter(), StageOptions::new(GRACE)).await?;
        ensure_eq!(
            (report.listed, report.live, report.staged),
            (n as u64, known as u64, (n - known) as u64)
        );
        ensure_eq!(waiting(&*store).await?.len(), n - known);
        ensure!(*held(&asked) >= (n - known).div_ceil(1000));
        let staged = candidates(&[(&name(0), START)])?;
        store.window_stage(&staged, Restage::Keep).await?;
    }
    Ok(())
}
