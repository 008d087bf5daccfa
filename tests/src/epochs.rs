//! W10: one sweep at a time, and the fence that its epoch is.

use alkstore::{Claim, PutOptions, Reclaim, Revision, Store, StoreExt as _};

use crate::failure::{refused, Refusal};
use crate::fixture::{Capability, Fixture, Limits, START};
use crate::steps::{
    before, claimed, grant, key, marked, open, other_than, secs, sight, stored, waiting, HOUR,
    NANO, TTL,
};
use crate::{ensure, ensure_eq, CaseResult, Failure};

const SWEEP: &str = "__alkstore_sweep";

/// Begins a sweep that nothing stands in the way of.
async fn begin(store: &dyn Store) -> CaseResult<Revision> {
    let busy = Failure::new("another sweep is under way");
    store.sweep_begin(TTL).await?.ok_or(busy)
}

pub(crate) async fn w10_one_sweep_at_a_time(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    let mut last = begin(&*store).await?;
    for _ in 0..3 {
        ensure_eq!(other.sweep_begin(TTL).await?, None);
        ensure_eq!(
            store.sweep_begin(TTL).await?,
            None,
            "not by the same either"
        );
        ensure!(!store.sweep_end(other_than(last)?).await?);
        ensure!(!store.sweep_extend(other_than(last)?, HOUR).await?);
        ensure!(store.sweep_extend(last, HOUR).await?, "it is still the one");
        ensure!(store.sweep_end(last).await?);
        ensure!(!store.sweep_end(last).await?, "over is over");
        ensure!(!store.sweep_extend(last, TTL).await?);
        let next = begin(&*other).await?;
        ensure!(next > last, "{next} after {last}");
        ensure!(!store.sweep_extend(last, TTL).await?);
        ensure!(!store.sweep_end(last).await?);
        ensure_eq!(store.sweep_begin(TTL).await?, None);
        ensure!(other.sweep_end(next).await?);
        last = begin(&*store).await?;
        ensure!(last > next, "{last} after {next}");
    }
    Ok(())
}

pub(crate) async fn w10_stores_do_not_meet_in_a_sweep(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let stranger = open(f).await?;
    let epoch = begin(&*store).await?;
    let theirs = begin(&*stranger).await?;
    ensure!(store.sweep_end(epoch).await?);
    ensure!(stranger.sweep_extend(theirs, TTL).await?);
    ensure!(stranger.sweep_end(theirs).await?);
    Ok(())
}

pub(crate) async fn w10_a_sweep_lapses_by_the_store_clock(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    let epoch = begin(&*store).await?;
    f.set_clock(before(START.plus(TTL), NANO)).await?;
    ensure_eq!(other.sweep_begin(TTL).await?, None);
    ensure!(store.sweep_extend(epoch, secs(5)).await?);
    f.advance(secs(5)).await?;
    if !f.engine().has(Capability::SweepLease) {
        // It lasts as long as its connection.
        ensure!(store.sweep_extend(epoch, TTL).await?);
        ensure_eq!(other.sweep_begin(TTL).await?, None);
        return Ok(());
    }
    ensure!(
        !store.sweep_extend(epoch, TTL).await?,
        "a lapsed sweep is not resurrected"
    );
    let next = begin(&*other).await?;
    ensure!(next > epoch);
    ensure!(!store.sweep_extend(epoch, TTL).await?);
    ensure!(!store.sweep_end(epoch).await?);
    f.advance(TTL.saturating_sub(NANO)).await?;
    ensure!(other.sweep_extend(next, TTL).await?);
    Ok(())
}

/// Every call that takes a fence, with this one.
async fn lost(store: &dyn Store, claims: &[Claim], fence: Revision) -> CaseResult {
    let fence = Some(fence);
    for claims in [claims, &[]] {
        refused(store.window_mark(claims, fence).await, Refusal::LeaseLost)?;
        refused(store.window_finish(claims, fence).await, Refusal::LeaseLost)?;
        refused(store.window_delete(claims, fence).await, Refusal::LeaseLost)?;
    }
    Ok(())
}

pub(crate) async fn w8_w10_a_sweep_that_is_over_changes_nothing(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    stored(&*store, b"k", b"v").await?;
    stored(&*store, b"m", b"v").await?;
    let mut claims = marked(&*store, &["m"]).await?;
    claims.extend(claimed(&*store, &["k"]).await?);
    let rows = waiting(&*store).await?;
    let never = other_than(claims[1].id)?;
    lost(&*store, &claims, never).await?;
    let epoch = begin(&*store).await?;
    lost(&*store, &claims, never).await?;
    lost(&*store, &claims, claims[0].id).await?;
    ensure!(store.sweep_end(epoch).await?);
    lost(&*store, &claims, epoch).await?;
    let next = begin(&*other).await?;
    lost(&*store, &claims, epoch).await?;
    if f.engine().has(Capability::SweepLease) {
        f.advance(TTL).await?;
        lost(&*other, &claims, next).await?;
    }
    ensure_eq!(waiting(&*store).await?, rows);
    ensure_eq!(store.list(b"", None, 9).await?.len(), 2);
    Ok(())
}

pub(crate) async fn w8_w10_the_current_sweep_passes_the_fence(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for name in [b"k", b"m"] {
        stored(&*store, name, b"v").await?;
    }
    let claims = claimed(&*store, &["k", "m"]).await?;
    let fence = Some(begin(&*store).await?);
    f.set_clock(before(START.plus(TTL), NANO)).await?;
    ensure_eq!(store.window_mark(&[], fence).await?, []);
    ensure_eq!(
        store.window_mark(&claims[..1], fence).await?,
        [Reclaim::Marked]
    );
    let gone = Reclaim::Deleted { bytes: 1 };
    ensure_eq!(store.window_finish(&claims[..1], fence).await?, [gone]);
    ensure_eq!(store.window_delete(&claims[1..], fence).await?, [gone]);
    // And without a fence nobody asks whether there is a sweep.
    stored(&*store, b"n", b"v").await?;
    let claims = claimed(&*store, &["n"]).await?;
    ensure_eq!(store.window_delete(&claims, None).await?, [gone]);
    Ok(())
}

pub(crate) async fn n3_w10_the_lock_of_the_sweep_is_out_of_reach(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let epoch = begin(&*store).await?;
    let reserved = Refusal::Reserved;
    refused(store.try_lock(SWEEP, "o", TTL).await, reserved)?;
    refused(store.lock_handle(SWEEP, "o", epoch), reserved)?;
    refused(store.lock_info(SWEEP).await, reserved)?;
    refused(store.force_release(SWEEP, epoch).await, reserved)?;
    let fenced = PutOptions::create().guard(SWEEP, epoch);
    refused(store.put(b"k", b"v", fenced).await, reserved)?;
    refused(store.begin().guard(SWEEP, epoch), reserved)?;
    ensure!(store.sweep_extend(epoch, TTL).await?, "it stands");
    // Nor do other locks meet it.
    let lock = grant(&*store, "sweep", "o", TTL).await?;
    ensure!(!store.force_release("sweep", epoch).await?);
    ensure!(!store.sweep_end(lock.token()).await?);
    ensure!(lock.release().await?);
    ensure!(store.sweep_end(epoch).await?);
    ensure_eq!(sight(&*store).await?.locks, []);
    Ok(())
}

pub(crate) async fn w10_a_full_store_begins_no_sweep(f: &dyn Fixture) -> CaseResult {
    let limits = Limits {
        locks: Some(1),
        ..Limits::default()
    };
    if !f.engine().has(Capability::Limits) {
        return refused(f.open(limits).await, Refusal::Argument);
    }
    let store = f.open(limits).await?;
    let lock = grant(&*store, "a", "o", TTL).await?;
    refused(store.sweep_begin(TTL).await, Refusal::Capacity)?;
    ensure!(lock.release().await?);
    let epoch = begin(&*store).await?;
    refused(store.try_lock("a", "o", TTL).await, Refusal::Capacity)?;
    // It lapses as any lock does, and makes room.
    f.advance(TTL).await?;
    grant(&*store, "a", "o", TTL).await?;
    ensure!(!store.sweep_extend(epoch, TTL).await?);
    ensure_eq!(store.window_unstage(&[key(b"k")?]).await?, 0);
    Ok(())
}
