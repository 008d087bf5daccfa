//! W8: deletion of what a key stands for, and then of its entry.

use alkstore::{
    Changeset, Claim, Key, PutMode, PutOptions, Reclaim, Restage, Revision, Store, StoreExt as _,
    Timestamp, Value,
};
use futures_util::future::join;

use crate::failure::{refused, Refusal};
use crate::fixture::{Capability, Fixture, Limits, START};
use crate::steps::{
    before, candidates, claimed, drain, entry, grant, key, marked, ms, open, other_than, secs,
    sight, stage, stored, waiting, HOUR, NANO, TTL,
};
use crate::{ensure, ensure_eq, CaseResult, Failure};

/// The three calls that act on claims.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Mark,
    Finish,
    Delete,
}

impl Step {
    const ALL: [Self; 3] = [Self::Mark, Self::Finish, Self::Delete];

    async fn take(self, store: &dyn Store, claims: &[Claim]) -> CaseResult<Vec<Reclaim>> {
        Ok(match self {
            Self::Mark => store.window_mark(claims, None).await?,
            Self::Finish => store.window_finish(claims, None).await?,
            Self::Delete => store.window_delete(claims, None).await?,
        })
    }
}

const fn deleted(bytes: u64) -> Reclaim {
    Reclaim::Deleted { bytes }
}

pub(crate) async fn w8_marked_and_finished(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"a", b"value").await?;
    stored(&*store, b"b", b"").await?;
    let claims = claimed(&*store, &["a", "b", "c"]).await?;
    let marks = store.window_mark(&claims, None).await?;
    ensure_eq!(marks, [Reclaim::Marked; 3]);
    let marks = store.window_mark(&claims, None).await?;
    ensure_eq!(marks, [Reclaim::Marked; 3], "marked is marked");
    ensure!(waiting(&*store).await?.iter().all(|row| row.reclaiming));
    ensure_eq!(&*entry(&*store, b"a").await?.value, b"value");
    // In the order of the claims, whatever that of the keys.
    let turned: Vec<_> = claims.iter().rev().cloned().collect();
    ensure_eq!(
        store.window_finish(&turned, None).await?,
        [Reclaim::Absent, deleted(0), deleted(5)]
    );
    ensure_eq!(sight(&*store).await?.entries, []);
    ensure_eq!(waiting(&*store).await?, []);
    ensure_eq!(
        store.window_finish(&claims, None).await?,
        [Reclaim::Voided; 3]
    );
    Ok(())
}

pub(crate) async fn w8_deleted_in_one_step(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"a", b"value").await?;
    stored(&*store, b"b", b"stays").await?;
    let claims = claimed(&*store, &["a", "b", "c"]).await?;
    ensure_eq!(
        store
            .window_delete(&[claims[2].clone(), claims[0].clone()], None)
            .await?,
        [Reclaim::Absent, deleted(5)]
    );
    let left: Vec<_> = waiting(&*store).await?;
    ensure_eq!(left.len(), 1);
    ensure_eq!(left[0].key, claims[1].key);
    ensure_eq!(store.get(b"a").await?, None);
    ensure!(store.get(b"b").await?.is_some(), "it was not asked for");
    Ok(())
}

pub(crate) async fn w8_one_key_twice_in_a_call(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for step in Step::ALL {
        stored(&*store, b"k", b"v").await?;
        let claims = claimed(&*store, &["k"]).await?;
        if step == Step::Finish {
            store.window_mark(&claims, None).await?;
        }
        let twice = [claims[0].clone(), claims[0].clone()];
        let expected = match step {
            Step::Mark => [Reclaim::Marked; 2],
            _ => [deleted(1), Reclaim::Voided],
        };
        ensure_eq!(step.take(&*store, &twice).await?, expected, "{step:?}");
        if step == Step::Mark {
            store.window_finish(&claims, None).await?;
        }
        ensure_eq!(store.get(b"k").await?, None);
        ensure_eq!(step.take(&*store, &[]).await?, [], "{step:?} of nothing");
    }
    ensure_eq!(waiting(&*store).await?, []);
    Ok(())
}

pub(crate) async fn w8_a_step_out_of_turn_changes_nothing(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"k", b"v").await?;
    stored(&*store, b"m", b"v").await?;
    let marks = marked(&*store, &["m"]).await?;
    let claims = claimed(&*store, &["k"]).await?;
    let (held, rows) = (sight(&*store).await?, waiting(&*store).await?);
    ensure_eq!(rows.len(), 2);
    ensure_eq!(
        store.window_finish(&claims, None).await?,
        [Reclaim::Unmarked]
    );
    ensure_eq!(store.window_delete(&marks, None).await?, [Reclaim::Marked]);
    ensure_eq!(sight(&*store).await?, held);
    ensure_eq!(waiting(&*store).await?, rows);
    // Both claims still stand.
    ensure_eq!(store.window_finish(&marks, None).await?, [deleted(1)]);
    ensure_eq!(store.window_delete(&claims, None).await?, [deleted(1)]);
    Ok(())
}

pub(crate) async fn w8_a_lapsed_entry_is_absent_and_goes(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for key in [b"a", b"b"] {
        let mortal = PutOptions::create().ttl(ms(5));
        store.put(key, b"v", mortal).await?;
    }
    let marks = marked(&*store, &["a"]).await?;
    let claims = claimed(&*store, &["b"]).await?;
    f.advance(ms(5)).await?;
    ensure_eq!(store.window_finish(&marks, None).await?, [Reclaim::Absent]);
    ensure_eq!(store.window_delete(&claims, None).await?, [Reclaim::Absent]);
    ensure_eq!(
        store.purge_lapsed(10).await?,
        0,
        "nothing of them is left to purge"
    );
    ensure_eq!(waiting(&*store).await?, []);
    Ok(())
}

pub(crate) async fn w8_a_marked_key_takes_no_put(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    let token = grant(&*store, "a", "o", HOUR).await?.token();
    let version = stored(&*store, b"k", b"v").await?;
    store
        .put(b"lapsed", b"v", PutOptions::create().ttl(ms(1)))
        .await?;
    f.advance(ms(1)).await?;
    let claims = marked(&*store, &["k", "lapsed", "new"]).await?;
    let (held, rows) = (sight(&*store).await?, waiting(&*store).await?);
    for name in ["k", "lapsed", "new"] {
        let at = name.as_bytes();
        for mode in [
            PutMode::Create,
            PutMode::Replace,
            PutMode::Update(version),
            PutMode::Update(other_than(version)?),
        ] {
            let options = PutOptions::with_mode(mode);
            refused(
                store.put(at, b"w", options.clone()).await,
                Refusal::Conflict,
            )?;
            let fenced = options.guard("a", token);
            refused(other.put(at, b"w", fenced).await, Refusal::Conflict)?;
            let mut changeset = Changeset::new();
            changeset.put(key(at)?, Value::from(&b"w"[..]), mode, None)?;
            changeset.put(
                key(b"beside")?,
                Value::from(&b"w"[..]),
                PutMode::Replace,
                None,
            )?;
            refused(other.commit_changeset(changeset).await, Refusal::Conflict)?;
        }
        let mut tx = store.begin();
        tx.put(b"beside", b"w", PutMode::Create, None).await?;
        tx.put(at, b"w", PutMode::Replace, None).await?;
        refused(tx.commit().await, Refusal::Conflict)?;
        // Where there is an entry it writes nothing, and is about to trust what is there.
        let mut tx = other.begin();
        tx.put(at, b"w", PutMode::Create, None).await?;
        refused(tx.commit().await, Refusal::Conflict)?;
    }
    let mut unstaged = Changeset::new();
    unstaged.unstage(key(b"k")?)?;
    refused(store.commit_changeset(unstaged).await, Refusal::Conflict)?;
    ensure_eq!(sight(&*store).await?, held, "nothing was written");
    ensure_eq!(waiting(&*store).await?, rows, "nothing was published");
    ensure_eq!(
        store.window_finish(&claims, None).await?,
        [deleted(1), Reclaim::Absent, Reclaim::Absent]
    );
    Ok(())
}

pub(crate) async fn w8_e5_a_failing_guard_is_judged_first(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"k", b"v").await?;
    let token = grant(&*store, "a", "o", ms(1)).await?.token();
    let claims = marked(&*store, &["k"]).await?;
    f.advance(ms(1)).await?;
    let fenced = PutOptions::replace().guard("a", token);
    refused(store.put(b"k", b"w", fenced).await, Refusal::LeaseLost)?;
    let mut tx = store.begin();
    tx.guard("a", token)?;
    tx.put(b"k", b"w", PutMode::Replace, None).await?;
    refused(tx.commit().await, Refusal::LeaseLost)?;
    ensure_eq!(store.window_finish(&claims, None).await?, [deleted(1)]);
    Ok(())
}

pub(crate) async fn w8_e4_what_is_marked_is_read_touched_and_deleted(
    f: &dyn Fixture,
) -> CaseResult {
    let store = open(f).await?;
    let version = stored(&*store, b"k", b"value").await?;
    stored(&*store, b"l", b"value").await?;
    let claims = marked(&*store, &["k", "l"]).await?;
    let rows = waiting(&*store).await?;
    let read = entry(&*store, b"k").await?;
    ensure_eq!((&*read.value, read.version), (&b"value"[..], version));
    ensure_eq!(store.list(b"", None, 9).await?.len(), 2);
    ensure!(store.touch(b"k", TTL).await?);
    let read = entry(&*store, b"k").await?;
    ensure_eq!(
        (read.version, read.expires_at),
        (version, Some(START.plus(TTL)))
    );
    // A transaction may rest on it, too.
    let mut tx = store.begin();
    ensure!(tx.get(b"k").await?.is_some());
    tx.put(b"beside", b"w", PutMode::Create, None).await?;
    tx.commit().await?;
    ensure!(!store.delete(b"k", Some(other_than(version)?)).await?);
    ensure!(store.delete(b"k", Some(version)).await?);
    let mut tx = store.begin();
    ensure!(tx.delete(b"l").await?);
    tx.commit().await?;
    ensure_eq!(store.list(b"", None, 9).await?.len(), 1);
    ensure_eq!(waiting(&*store).await?, rows, "the rows stay marked");
    ensure_eq!(
        store.window_finish(&claims, None).await?,
        [Reclaim::Absent; 2]
    );
    Ok(())
}

pub(crate) async fn w8_w2_w3_w4_a_marked_row_leaves_in_one_way(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"k", b"v").await?;
    let claims = marked(&*store, &["k"]).await?;
    let rows = waiting(&*store).await?;
    let later = START.plus(HOUR);
    for restage in [Restage::Move, Restage::Keep] {
        for deadline in [START, later, before(START, NANO)] {
            let row = candidates(&[("k", deadline)])?;
            store.window_stage(&row, restage).await?;
            let mut tx = store.begin();
            tx.stage(b"k", deadline, restage)?;
            tx.commit().await?;
            ensure_eq!(waiting(&*store).await?, rows, "{restage:?} {deadline:?}");
        }
    }
    ensure_eq!(store.window_unstage(&[key(b"k")?]).await?, 0);
    ensure_eq!(store.window_settle(&claims).await?, 0);
    ensure_eq!(store.window_take(Timestamp::MAX, None).await?, []);
    ensure_eq!(waiting(&*store).await?, rows, "the claim stands");
    ensure_eq!(store.window_mark(&claims, None).await?, [Reclaim::Marked]);
    // Once the claim has lapsed, too.
    f.advance(TTL).await?;
    ensure_eq!(store.window_take(Timestamp::MAX, None).await?, []);
    ensure_eq!(store.window_unstage(&[key(b"k")?]).await?, 0);
    ensure_eq!(store.window_settle(&claims).await?, 0);
    ensure_eq!(waiting(&*store).await?, rows);
    // And unmarked rows are passed over for it by nobody.
    stage(&*store, &[("later", later)]).await?;
    ensure_eq!(drain(&*store).await?, [("later".to_owned(), later)]);
    Ok(())
}

pub(crate) async fn w8_w5_requeue_keeps_the_mark_and_counts(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"k", b"v").await?;
    let claims = marked(&*store, &["k"]).await?;
    let later = START.plus(secs(5));
    ensure_eq!(store.window_requeue(&claims, later).await?, 1);
    let row = &waiting(&*store).await?[0];
    ensure_eq!(
        (row.reclaiming, row.requeues, row.claimed_until),
        (true, 1, None)
    );
    ensure_eq!(row.visible_after, later);
    refused(
        store.put(b"k", b"w", PutOptions::create()).await,
        Refusal::Conflict,
    )?;
    for step in Step::ALL {
        ensure_eq!(step.take(&*store, &claims).await?, [Reclaim::Voided]);
    }
    ensure_eq!(store.window_take(later, None).await?, []);
    ensure_eq!(
        store.window_claim(before(later, NANO), TTL, 9).await?.len(),
        0
    );
    let again = store.window_claim(later, TTL, 9).await?;
    ensure_eq!(again.len(), 1);
    ensure_eq!((again[0].reclaiming, again[0].requeues), (true, 1));
    ensure_eq!(again[0].visible_after, later);
    // The old claim is not the new one.
    ensure_eq!(store.window_requeue(&claims, later).await?, 0);
    for step in Step::ALL {
        ensure_eq!(step.take(&*store, &claims).await?, [Reclaim::Lapsed]);
    }
    ensure_eq!(store.window_requeue(&again, later).await?, 1);
    let third = store.window_claim(later, TTL, 9).await?;
    ensure_eq!((third[0].reclaiming, third[0].requeues), (true, 2));
    ensure_eq!(store.window_finish(&third, None).await?, [deleted(1)]);
    Ok(())
}

pub(crate) async fn w5_requeues_are_counted_from_the_staging(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let back = |deadline: Timestamp, expected: u32| {
        let store = &store;
        async move {
            let claims = store.window_claim(Timestamp::MAX, TTL, 9).await?;
            ensure_eq!(claims.len(), 1);
            ensure_eq!(claims[0].requeues, expected);
            ensure_eq!(store.window_requeue(&claims, deadline).await?, 1);
            Ok::<_, Failure>(())
        }
    };
    stage(&*store, &[("k", START)]).await?;
    for expected in 0..3 {
        back(START, expected).await?;
    }
    // The same deadline, and one that is ignored, leave the row as it is.
    stage(&*store, &[("k", START)]).await?;
    back(START, 3).await?;
    let later = candidates(&[("k", START.plus(secs(1)))])?;
    store.window_stage(&later, Restage::Keep).await?;
    back(START, 4).await?;
    // Another one makes it a fresh row.
    store.window_stage(&later, Restage::Move).await?;
    back(START, 0).await?;
    store.window_unstage(&[key(b"k")?]).await?;
    stage(&*store, &[("k", START)]).await?;
    back(START, 0).await?;
    Ok(())
}

pub(crate) async fn w8_r9_an_unfinished_deletion_is_claimed_again(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    stored(&*store, b"k", b"v").await?;
    let lost = marked(&*store, &["k"]).await?;
    ensure!(!lost[0].reclaiming, "it was not marked when it was claimed");
    f.set_clock(before(START.plus(TTL), NANO)).await?;
    ensure_eq!(other.window_claim(Timestamp::MAX, TTL, 9).await?, []);
    f.advance(NANO).await?;
    for step in Step::ALL {
        ensure_eq!(step.take(&*store, &lost).await?, [Reclaim::Lapsed]);
    }
    let again = other.window_claim(START, TTL, 9).await?;
    ensure_eq!(again.len(), 1);
    ensure_eq!((again[0].reclaiming, again[0].requeues), (true, 0));
    ensure!(again[0].id > lost[0].id);
    for step in Step::ALL {
        ensure_eq!(step.take(&*store, &lost).await?, [Reclaim::Lapsed]);
    }
    ensure_eq!(store.window_requeue(&lost, START).await?, 0);
    ensure!(store.get(b"k").await?.is_some());
    ensure_eq!(other.window_mark(&again, None).await?, [Reclaim::Marked]);
    ensure_eq!(other.window_finish(&again, None).await?, [deleted(1)]);
    Ok(())
}

/// What may befall a claim before its holder comes to deleting.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Deduplicated,
    Published,
    PublishedTogether,
    Moved,
    Unstaged,
    Settled,
    Requeued,
    StagedAnew,
    Lapsed,
    ClaimedAnew,
    Forged,
    Foreign,
}

pub(crate) async fn w8_r3_what_befell_the_claim_is_said(f: &dyn Fixture) -> CaseResult {
    for (fate, answer) in [
        (Fate::Deduplicated, Reclaim::Voided),
        (Fate::Published, Reclaim::Voided),
        (Fate::PublishedTogether, Reclaim::Voided),
        (Fate::Moved, Reclaim::Voided),
        (Fate::Unstaged, Reclaim::Voided),
        (Fate::Settled, Reclaim::Voided),
        (Fate::Requeued, Reclaim::Voided),
        (Fate::StagedAnew, Reclaim::Voided),
        (Fate::Lapsed, Reclaim::Lapsed),
        (Fate::ClaimedAnew, Reclaim::Lapsed),
        (Fate::Forged, Reclaim::Lapsed),
        (Fate::Foreign, Reclaim::Voided),
    ] {
        let store = open(f).await?;
        if !matches!(fate, Fate::Published) {
            stored(&*store, b"k", b"v").await?;
        }
        let mut claims = claimed(&*store, &["k"]).await?;
        befall(f, &*store, fate, &mut claims).await?;
        let (held, rows) = (sight(&*store).await?, waiting(&*store).await?);
        for step in Step::ALL {
            let answers = step.take(&*store, &claims).await?;
            ensure_eq!(answers, [answer], "{step:?} after {fate:?}");
        }
        ensure_eq!(sight(&*store).await?, held, "{fate:?}");
        ensure_eq!(waiting(&*store).await?, rows, "{fate:?}");
        // Nothing keeps the key from being staged, claimed and deleted.
        f.advance(HOUR).await?;
        stage(&*store, &[("k", START)]).await?;
        let claims = store.window_claim(Timestamp::MAX, TTL, 1).await?;
        let answers = store.window_delete(&claims, None).await?;
        ensure_eq!(answers, [deleted(1)], "{fate:?}");
    }
    Ok(())
}

async fn befall(
    f: &dyn Fixture,
    store: &dyn Store,
    fate: Fate,
    claims: &mut [Claim],
) -> CaseResult {
    match fate {
        Fate::Deduplicated | Fate::Published => {
            store.put(b"k", b"v", PutOptions::create()).await?;
        }
        Fate::PublishedTogether => {
            let mut tx = store.begin();
            ensure!(tx.delete(b"k").await?);
            tx.put(b"k", b"w", PutMode::Create, None).await?;
            tx.commit().await?;
        }
        Fate::Moved => stage(store, &[("k", START.plus(secs(9)))]).await?,
        Fate::Unstaged => ensure_eq!(store.window_unstage(&[key(b"k")?]).await?, 1),
        Fate::Settled => ensure_eq!(store.window_settle(claims).await?, 1),
        Fate::Requeued => ensure_eq!(store.window_requeue(claims, START).await?, 1),
        Fate::StagedAnew => {
            store.put(b"k", b"v", PutOptions::create()).await?;
            stage(store, &[("k", START)]).await?;
        }
        Fate::Lapsed => f.advance(TTL).await?,
        Fate::ClaimedAnew => {
            f.advance(TTL).await?;
            ensure_eq!(store.window_claim(START, TTL, 9).await?.len(), 1);
        }
        Fate::Forged => claims[0].id = other_than(claims[0].id)?,
        Fate::Foreign => claims[0].key = Key::new(&b"other"[..])?,
    }
    Ok(())
}

/// How long a claim lasts is the store's knowledge, whatever the claim says.
pub(crate) async fn w8_claims_lapse_by_the_store_clock(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"k", b"v").await?;
    let claims = claimed(&*store, &["k"]).await?;
    let claim = |until, reclaiming| {
        [Claim {
            until,
            reclaiming,
            requeues: 7,
            visible_after: Timestamp::MAX,
            ..claims[0].clone()
        }]
    };
    f.set_clock(before(START.plus(TTL), NANO)).await?;
    let early = claim(Timestamp::MIN, true);
    ensure_eq!(
        store.window_finish(&early, None).await?,
        [Reclaim::Unmarked]
    );
    ensure_eq!(store.window_mark(&early, None).await?, [Reclaim::Marked]);
    f.advance(NANO).await?;
    let late = claim(Timestamp::MAX, false);
    for step in Step::ALL {
        ensure_eq!(step.take(&*store, &late).await?, [Reclaim::Lapsed]);
    }
    Ok(())
}

pub(crate) async fn w8_r4_a_publisher_comes_after_the_end(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let writer = f.another(&store).await?;
    let first = stored(&*store, b"k", b"v").await?;
    let claims = marked(&*store, &["k"]).await?;
    refused(
        writer.put(b"k", b"w", PutOptions::create()).await,
        Refusal::Conflict,
    )?;
    ensure_eq!(store.window_finish(&claims, None).await?, [deleted(1)]);
    let version = stored(&*writer, b"k", b"w").await?;
    ensure!(version > first, "{version} after {first}");
    // It begins with a whole window, and a count of its own.
    ensure_eq!(store.window_info(b"k").await?, None);
    let late = candidates(&[("k", START.plus(HOUR))])?;
    store.window_stage(&late, Restage::Keep).await?;
    let row = store.window_info(b"k").await?;
    ensure_eq!(
        row.map(|row| (row.visible_after, row.reclaiming, row.requeues)),
        Some((START.plus(HOUR), false, 0))
    );
    Ok(())
}

/// A publisher and a sweeper at once: whoever comes first, a publisher who was not refused finds its entry.
pub(crate) async fn w8_r4_publisher_and_sweeper_at_once(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    for round in 0..24 {
        let there = round % 2 == 0;
        let (marks, put_first) = (round % 4 < 2, round % 8 < 4);
        store.delete(b"k", None).await?;
        if there {
            stored(&*store, b"k", b"v").await?;
        }
        let claims = claimed(&*store, &["k"]).await?;
        let step = if marks { Step::Mark } else { Step::Delete };
        let put = other.put(b"k", b"w", PutOptions::create());
        let (put, swept) = if put_first {
            join(put, step.take(&*store, &claims)).await
        } else {
            let (swept, put) = join(step.take(&*store, &claims), put).await;
            (put, swept)
        };
        let swept = swept?;
        let case = format!("round {round}: {put:?}, {swept:?}");
        match (&put, swept[0]) {
            (Err(_), Reclaim::Marked) => {
                refused(put, Refusal::Conflict)?;
                store.window_finish(&claims, None).await?;
                ensure_eq!(store.get(b"k").await?, None, "{case}");
                continue;
            }
            (Ok(put), Reclaim::Voided) => ensure_eq!(put.is_stored(), !there, "{case}"),
            (Ok(put), Reclaim::Deleted { .. }) => ensure!(there && put.is_stored(), "{case}"),
            (Ok(put), Reclaim::Absent) => ensure!(!there && put.is_stored(), "{case}"),
            _ => return Err(Failure::new(case)),
        }
        ensure!(store.get(b"k").await?.is_some(), "{case}");
    }
    Ok(())
}

/// S decided, W publishes the same bytes, and S's payload delete lands late: never after W's publication.
pub(crate) async fn w8_r8_a_late_finish_spares_the_new_entry(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let second = f.another(&store).await?;
    stored(&*store, b"k", b"v").await?;
    let slow = marked(&*store, &["k"]).await?;
    // Its payload is still being deleted when its claim lapses. A second sweeper takes over, and finishes.
    f.advance(TTL).await?;
    let fast = second.window_claim(START, TTL, 9).await?;
    ensure!(fast[0].reclaiming);
    refused(
        store.put(b"k", b"v", PutOptions::create()).await,
        Refusal::Conflict,
    )?;
    ensure_eq!(store.window_finish(&slow, None).await?, [Reclaim::Lapsed]);
    ensure_eq!(second.window_finish(&fast, None).await?, [deleted(1)]);
    let version = stored(&*store, b"k", b"v").await?;
    for step in Step::ALL {
        ensure_eq!(
            step.take(&*store, &slow).await?,
            [Reclaim::Voided],
            "there is no row any more"
        );
    }
    stage(&*store, &[("k", START)]).await?;
    let third = store.window_claim(Timestamp::MAX, TTL, 9).await?;
    ensure_eq!(store.window_mark(&third, None).await?, [Reclaim::Marked]);
    for step in Step::ALL {
        ensure_eq!(
            step.take(&*store, &slow).await?,
            [Reclaim::Lapsed],
            "the row is another's, marked or not"
        );
    }
    ensure_eq!(entry(&*store, b"k").await?.version, version);
    Ok(())
}

/// The payload is gone, and the sweeper with it: the next one finds it gone and finishes. Nobody trusts the key
/// meanwhile.
pub(crate) async fn w8_r10_a_crash_before_the_end_is_made_good(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let writer = f.another(&store).await?;
    stored(&*store, b"k", b"v").await?;
    marked(&*store, &["k"]).await?;
    for _ in 0..3 {
        f.advance(TTL).await?;
        refused(
            writer.put(b"k", b"v", PutOptions::create()).await,
            Refusal::Conflict,
        )?;
        let again = store.window_claim(START, TTL, 9).await?;
        ensure_eq!(again.len(), 1);
        ensure!(again[0].reclaiming);
        refused(
            writer.put(b"k", b"v", PutOptions::create()).await,
            Refusal::Conflict,
        )?;
    }
    f.advance(TTL).await?;
    let last = store.window_claim(START, TTL, 9).await?;
    ensure_eq!(store.window_mark(&last, None).await?, [Reclaim::Marked]);
    ensure_eq!(store.window_finish(&last, None).await?, [deleted(1)]);
    stored(&*writer, b"k", b"v").await?;
    Ok(())
}

/// What fails is put back for later, and later keys get their turn.
pub(crate) async fn w5_r20_what_keeps_failing_lets_others_pass(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let names = ["bad0", "bad1", "bad2", "bad3", "good0", "good1", "good2"];
    let rows: Vec<_> = (0..).map(secs).zip(names).collect();
    let rows: Vec<_> = rows
        .iter()
        .map(|(at, name)| (*name, START.plus(*at)))
        .collect();
    stage(&*store, &rows).await?;
    f.advance(HOUR).await?;
    let mut gone = 0;
    let mut now = store.now().await?;
    for round in 0..4 {
        let claims = store.window_claim(now, TTL, 4).await?;
        ensure!(claims.len() <= 4);
        let (bad, good): (Vec<_>, Vec<_>) = claims
            .into_iter()
            .partition(|claim| claim.key.as_bytes().starts_with(b"bad"));
        gone += store.window_delete(&good, None).await?.len();
        ensure_eq!(store.window_mark(&bad, None).await?.len(), bad.len());
        let later = now.plus(HOUR);
        ensure_eq!(store.window_requeue(&bad, later).await?, bad.len());
        if round % 2 == 1 {
            f.advance(HOUR).await?;
            now = store.now().await?;
        }
    }
    ensure_eq!(gone, 3, "all that can go has gone");
    let left = waiting(&*store).await?;
    ensure_eq!(left.len(), 4);
    ensure!(
        left.iter().all(|row| row.reclaiming && row.requeues == 2),
        "{left:?}"
    );
    Ok(())
}

pub(crate) async fn w8_a_full_store_can_delete(f: &dyn Fixture) -> CaseResult {
    let limits = Limits {
        bytes: Some(1000),
        entries: Some(1),
        ..Limits::default()
    };
    if !f.engine().has(Capability::Limits) {
        return refused(f.open(limits).await, Refusal::Argument);
    }
    let store = f.open(limits).await?;
    let full = |name: &'static str| {
        let store = &store;
        async move {
            refused(
                store
                    .put(name.as_bytes(), &[1; 900], PutOptions::create())
                    .await,
                Refusal::Capacity,
            )
        }
    };
    for two_steps in [true, false] {
        stored(&*store, b"k", &[1; 998]).await?;
        stage(&*store, &[("k", START)]).await?;
        full("l").await?;
        let claims = store.window_claim(START, TTL, 9).await?;
        if two_steps {
            ensure_eq!(store.window_mark(&claims, None).await?, [Reclaim::Marked]);
            full("l").await?;
            ensure_eq!(store.window_finish(&claims, None).await?, [deleted(998)]);
        } else {
            ensure_eq!(store.window_delete(&claims, None).await?, [deleted(998)]);
        }
        // The bytes of the entry and of the row are free again.
        let version = stored(&*store, b"l", &[1; 999]).await?;
        ensure!(store.delete(b"l", Some(version)).await?);
    }
    Ok(())
}

/// Dropped before it is done, a step was taken whole or not at all.
pub(crate) async fn w8_l12_a_dropped_step_is_taken_or_not(f: &dyn Fixture) -> CaseResult {
    use futures_util::FutureExt as _;
    let store = open(f).await?;
    for poll in [false, true] {
        for step in Step::ALL {
            for name in [b"a", b"b"] {
                store.put(name, b"v", PutOptions::replace()).await?;
            }
            let claims = claimed(&*store, &["a", "b"]).await?;
            if step == Step::Finish {
                store.window_mark(&claims, None).await?;
            }
            let future = step.take(&*store, &claims);
            if poll {
                drop(future.now_or_never());
            } else {
                drop(future);
            }
            let rows = waiting(&*store).await?;
            let entries = store.list(b"", None, 9).await?.len();
            ensure_eq!(rows.len(), entries, "{step:?}: a row goes with its entry");
            let marked = rows.iter().filter(|row| row.reclaiming).count();
            ensure!(marked == 0 || marked == rows.len(), "{rows:?}");
            // Whatever was done, the rest can be done.
            store.window_mark(&claims, None).await?;
            store.window_finish(&claims, None).await?;
            ensure_eq!(waiting(&*store).await?, []);
            ensure_eq!(store.list(b"", None, 9).await?, []);
        }
    }
    Ok(())
}

pub(crate) async fn w8_revisions_of_claims_are_no_others(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let stranger = open(f).await?;
    stored(&*store, b"k", b"v").await?;
    let claims = claimed(&*store, &["k"]).await?;
    for step in Step::ALL {
        let answers = step.take(&*stranger, &claims).await?;
        ensure_eq!(answers, [Reclaim::Voided], "another store's claims");
    }
    let largest = Claim {
        id: Revision::new(Revision::MAX).ok_or_else(|| Failure::new("no revision"))?,
        ..claims[0].clone()
    };
    for step in Step::ALL {
        let answers = step.take(&*store, std::slice::from_ref(&largest)).await?;
        ensure_eq!(answers, [Reclaim::Lapsed]);
    }
    ensure_eq!(store.window_delete(&claims, None).await?, [deleted(1)]);
    Ok(())
}
