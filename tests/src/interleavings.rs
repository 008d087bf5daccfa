//! K and R: interleavings, as far as calls on one engine can bring them about. Where a call must be stopped half-way,
//! behind a row lock or in the middle of a statement, the engine's own tests do it with a paused connection.

use alkstore::{PutOptions, Restage, Revision};
use futures_util::{future::join, FutureExt as _};

use crate::failure::{refused, Refusal};
use crate::fixture::{Capability, Fixture, START};
use crate::steps::{
    before, candidates, entry, grant, lose, ms, open, row, secs, sight, stored, HOUR, TTL,
};
use crate::{ensure, ensure_eq, CaseResult};

/// A call that was made before the deadline, and does its work after it.
pub(crate) async fn k3_a_renewal_that_comes_too_late_revives_nothing(
    f: &dyn Fixture,
) -> CaseResult {
    let store = open(f).await?;
    let mut lock = grant(&*store, "a", "A", TTL).await?;
    let held = row(&*store, "a").await?;
    let renew = lock.renew(HOUR);
    f.advance(TTL).await?;
    let renewed = renew.await?;
    let now = row(&*store, "a").await?;
    if renewed {
        // Then the work was done, and the time read, when the call was made.
        ensure_eq!(now.deadline, START.plus(HOUR));
    } else {
        ensure_eq!((now.deadline, now.token), (held.deadline, held.token));
        grant(&*store, "a", "B", TTL).await?;
    }
    Ok(())
}

/// The same for an acquisition: its deadline counts from the instant at which it was decided.
pub(crate) async fn k4_a_grant_counts_from_its_decision(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let b = grant(&*store, "a", "B", TTL).await?;
    let acquire = store.try_lock("a", "A", TTL);
    f.advance(secs(20)).await?;
    ensure!(b.release().await?);
    match acquire.await? {
        Some(lock) => {
            ensure_eq!(lock.deadline(), Some(START.plus(secs(20)).plus(TTL)));
            ensure_eq!(
                row(&*store, "a").await?.deadline,
                START.plus(secs(20)).plus(TTL)
            );
        }
        // Then it was decided when the call was made, while B held the lock.
        None => ensure_eq!(store.lock_info("a").await?, None),
    }
    Ok(())
}

pub(crate) async fn k5_l2_a_lost_answer_is_asked_for_again(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    // The first call takes effect, and nobody hears of it.
    drop(store.try_lock("a", "A", TTL).await?);
    let token = row(&*store, "a").await?.token;
    f.advance(secs(1)).await?;
    lose(&*store, "a", "B", TTL).await?;
    let again = grant(&*store, "a", "A", HOUR).await?;
    ensure_eq!(
        (again.token(), again.deadline()),
        (token, Some(START.plus(TTL)))
    );
    Ok(())
}

pub(crate) async fn k6_e5_tokens_order_the_writers(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut tokens: Vec<Revision> = Vec::new();
    let mut written = 0;
    // Each contender's critical section lasts longer than its lease: it writes only when the next one is in already.
    for n in 0..10_u32 {
        let lock = grant(&*store, "a", &format!("o{n}"), ms(10)).await?;
        ensure!(tokens.last().is_none_or(|last| *last < lock.token()));
        tokens.push(lock.token());
        // The present holder writes with every second turn, all earlier ones try to.
        let latest = tokens.len() - 1;
        for (writer, token) in tokens.iter().enumerate() {
            let options = PutOptions::replace().guard("a", *token);
            let put = store
                .put(b"k", &[u8::try_from(writer).unwrap_or(0)], options)
                .await;
            if writer == latest {
                ensure!(put?.is_stored());
                written = writer;
            } else {
                refused(put, Refusal::LeaseLost)?;
            }
        }
        ensure_eq!(usize::from(entry(&*store, b"k").await?.value[0]), written);
        f.advance(ms(10)).await?;
    }
    Ok(())
}

pub(crate) async fn k7_the_clock_steps_and_stops(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut last: Option<Revision> = None;
    let first = grant(&*store, "a", "A", TTL).await?;
    last = last.max(Some(first.token()));
    // An hour back, or, where time never runs back, a stop: A's lease lasts longer, for everybody alike.
    let steps_back = f.engine().has(Capability::StepsBack);
    let low = if steps_back {
        before(START, HOUR)
    } else {
        START
    };
    f.set_clock(before(START, HOUR)).await?;
    lose(&*store, "a", "B", TTL).await?;
    ensure_eq!(grant(&*store, "a", "A", TTL).await?.token(), first.token());
    let early = grant(&*store, "b", "B", TTL).await?;
    ensure_eq!(early.deadline(), Some(low.plus(TTL)));
    ensure!(
        Some(early.token()) > last,
        "no revision goes back with the clock"
    );
    last = Some(early.token());
    // It stops: nothing lapses, everything else goes on.
    for round in 0..5 {
        lose(&*store, "a", "B", TTL).await?;
        let version = store
            .put(b"k", b"v", PutOptions::replace().ttl(ms(1)))
            .await?
            .version();
        ensure!(version > last, "round {round}");
        last = version;
    }
    // An hour and more forward, as after a suspend: everything lapses at once.
    f.set_clock(START.plus(HOUR)).await?;
    let a = grant(&*store, "a", "B", TTL).await?;
    ensure!(Some(a.token()) > last);
    ensure_eq!(store.get(b"k").await?, None);
    // And back to before all of it: still one grant.
    f.set_clock(before(START, HOUR)).await?;
    lose(&*store, "a", "A", TTL).await?;
    let fenced = PutOptions::replace().guard("a", first.token());
    refused(store.put(b"k", b"late", fenced).await, Refusal::LeaseLost)?;
    ensure_eq!(
        store.get(b"k").await?.is_some(),
        steps_back,
        "the entry's deadline lies ahead again exactly where the clock does"
    );
    // Else the entry and B's first lock go.
    ensure_eq!(
        store.purge_lapsed(10).await?,
        if steps_back { 0 } else { 2 }
    );
    Ok(())
}

pub(crate) async fn k7_w5_claims_bear_a_clock_that_steps_back(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    store
        .window_stage(&candidates(&[("k", before(START, HOUR))])?, Restage::Move)
        .await?;
    let first = store.window_claim(START, TTL, 1).await?;
    f.advance(TTL).await?;
    let second = store.window_claim(START, TTL, 1).await?;
    ensure_eq!(second.len(), 1);
    // The first claim's deadline lies ahead again; its row is the second's all the same.
    f.set_clock(before(START, HOUR)).await?;
    ensure_eq!(store.window_settle(&first).await?, 0);
    ensure_eq!(store.window_claim(START, TTL, 1).await?, []);
    ensure_eq!(store.window_settle(&second).await?, 1);
    // A claim that was seen to have lapsed, and that nobody else has taken, lives again.
    f.set_clock(START).await?;
    store
        .window_stage(&candidates(&[("k", START), ("l", START)])?, Restage::Move)
        .await?;
    let claims = store.window_claim(START, TTL, 2).await?;
    f.advance(TTL).await?;
    let early = before(START, HOUR);
    ensure_eq!(store.window_claim(early, TTL, 1).await?, []);
    f.set_clock(START).await?;
    ensure_eq!(store.window_claim(START, TTL, 1).await?, []);
    ensure_eq!(store.window_take(START, None).await?, []);
    ensure_eq!(store.window_settle(&claims[..1]).await?, 1);
    // And when it lapses again, its row is there to be claimed again.
    f.advance(HOUR).await?;
    ensure_eq!(store.window_claim(START, TTL, 9).await?.len(), 1);
    Ok(())
}

pub(crate) async fn k11_a_release_meets_a_renewal_in_flight(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    for renewal_first in [true, false] {
        let mut lock = grant(&*store, "a", "A", TTL).await?;
        let token = lock.token();
        let same = other.lock_handle("a", "A", token)?;
        let (renew, release) = (lock.renew(HOUR), same.release());
        let (_, released) = if renewal_first {
            join(renew, release).await
        } else {
            let (released, renewed) = join(release, renew).await;
            (renewed, released)
        };
        ensure!(released?, "the grant was there, whatever the renewal did");
        ensure_eq!(
            store.lock_info("a").await?,
            None,
            "the lock is free afterwards"
        );
        ensure!(!lock.renew(HOUR).await?);
        ensure!(grant(&*store, "a", "B", TTL).await?.release().await?);
    }
    // A renewal that is given up, and then the release.
    let mut lock = grant(&*store, "a", "A", TTL).await?;
    drop(lock.renew(HOUR).now_or_never());
    ensure!(lock.release().await?);
    grant(&*store, "a", "B", TTL).await?;
    Ok(())
}

pub(crate) async fn r22_a_reader_keeps_the_whole_value(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let value: Vec<u8> = (0..100_000_u32)
        .map(|n| u8::try_from(n % 251).unwrap_or(0))
        .collect();
    stored(&*store, b"k", &value).await?;
    let before_write = entry(&*store, b"k").await?;
    ensure!(store
        .put(b"k", b"other", PutOptions::replace())
        .await?
        .is_stored());
    let before_delete = entry(&*store, b"k").await?;
    ensure!(store.delete(b"k", None).await?);
    stored(&*store, b"k", b"third").await?;
    ensure!(
        *before_write.value == *value,
        "the value changed under its reader"
    );
    ensure_eq!(&*before_delete.value, b"other");
    let (read, deleted) = join(store.get(b"k"), store.delete(b"k", None)).await;
    ensure!(deleted?);
    let read = read?.map(|entry| entry.value.to_vec());
    ensure!(
        read.is_none() || read.as_deref() == Some(b"third"),
        "{read:?}"
    );
    let held = sight(&*store).await?;
    ensure_eq!(held.entries, []);
    Ok(())
}
