//! E5 and E6: what a write rests on, and what it takes out of the window.

use alkstore::{Put, PutMode, PutOptions, Restage, Revision};

use crate::failure::{refused, Refusal};
use crate::fixture::{Fixture, START};
use crate::steps::{
    before, candidates, drain, entry, grant, ms, open, other_than, secs, sight, stage, stored,
    HOUR, NANO, TTL,
};
use crate::{ensure, ensure_eq, CaseResult};

/// A guard is judged at the instant of the write, and before the mode.
pub(crate) async fn e5_a_fenced_write_needs_its_live_grant(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let lock = grant(&*store, "a", "o", TTL).await?;
    let token = lock.token();
    let other = grant(&*store, "b", "o", HOUR).await?.token();
    let first = store
        .put(b"k", b"1", PutOptions::create().guard("a", token))
        .await?
        .version();
    let second = store
        .put(b"k", b"2", PutOptions::replace().guard("a", token))
        .await?
        .version();
    ensure!(second > first && first.is_some());
    let lost = store
        .put(b"k", b"x", PutOptions::create().guard("a", token))
        .await?;
    ensure_eq!(
        lost,
        Put::NotStored { current: second },
        "the guard holds, the mode does not"
    );
    let held = sight(&*store).await?;
    fenced_out(
        &*store,
        &[
            ("a", other),
            ("b", token),
            ("c", token),
            ("A", token),
            ("a", other_than(token)?),
        ],
        first,
    )
    .await?;
    ensure_eq!(sight(&*store).await?, held);
    f.set_clock(before(START.plus(TTL), NANO)).await?;
    ensure!(store
        .put(b"k", b"3", PutOptions::replace().guard("a", token))
        .await?
        .is_stored());
    f.advance(NANO).await?;
    let held = sight(&*store).await?;
    fenced_out(&*store, &[("a", token)], first).await?;
    ensure_eq!(
        sight(&*store).await?,
        held,
        "at the deadline the fence is closed"
    );
    ensure!(lock.release().await?);
    fenced_out(&*store, &[("a", token)], first).await
}

/// In every mode, over an entry and over none.
async fn fenced_out(
    store: &dyn alkstore::Store,
    guards: &[(&str, Revision)],
    version: Option<Revision>,
) -> CaseResult {
    let modes = [PutMode::Create, PutMode::Replace]
        .into_iter()
        .chain(version.map(PutMode::Update));
    for mode in modes {
        for (name, token) in guards {
            for key in [&b"k"[..], b"new"] {
                let options = PutOptions::with_mode(mode).guard(name, *token);
                refused(store.put(key, b"fenced", options).await, Refusal::LeaseLost)?;
            }
        }
    }
    ensure_eq!(store.get(b"new").await?, None);
    Ok(())
}

pub(crate) async fn e5_renewal_keeps_the_fence_open(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut lock = grant(&*store, "a", "o", TTL).await?;
    let fenced = PutOptions::replace().guard("a", lock.token());
    f.advance(secs(20)).await?;
    ensure!(lock.renew(TTL).await?);
    f.advance(secs(20)).await?;
    ensure!(store.put(b"k", b"v", fenced.clone()).await?.is_stored());
    ensure!(lock.renew(ms(1)).await?);
    f.advance(ms(1)).await?;
    refused(store.put(b"k", b"w", fenced).await, Refusal::LeaseLost)
}

pub(crate) async fn e5_k13_the_successors_write_stands(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let stale = grant(&*store, "a", "o", TTL).await?;
    store
        .put(
            b"k",
            b"old",
            PutOptions::replace().guard("a", stale.token()),
        )
        .await?;
    f.advance(TTL).await?;
    // The same owner again: the token counts, not the owner.
    let successor = grant(&*store, "a", "o", TTL).await?;
    store
        .put(
            b"k",
            b"new",
            PutOptions::replace().guard("a", successor.token()),
        )
        .await?;
    let held = sight(&*store).await?;
    refused(
        store
            .put(
                b"k",
                b"late",
                PutOptions::replace().guard("a", stale.token()),
            )
            .await,
        Refusal::LeaseLost,
    )?;
    ensure_eq!(sight(&*store).await?, held);
    Ok(())
}

pub(crate) async fn e5_e6_a_fenced_out_create_publishes_nothing(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"k", b"v").await?;
    stage(&*store, &[("k", START), ("n", START)]).await?;
    let token = grant(&*store, "a", "o", ms(1)).await?.token();
    f.advance(ms(1)).await?;
    for key in [b"k", b"n"] {
        let fenced = PutOptions::create().guard("a", token);
        refused(store.put(key, b"w", fenced).await, Refusal::LeaseLost)?;
    }
    ensure_eq!(
        drain(&*store).await?,
        [("k".to_owned(), START), ("n".to_owned(), START)]
    );
    Ok(())
}

pub(crate) async fn e6_create_takes_the_key_out_of_the_window(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"there", b"v").await?;
    store
        .put(b"lapsed", b"v", PutOptions::create().ttl(ms(1)))
        .await?;
    f.advance(ms(1)).await?;
    stage(
        &*store,
        &[
            ("there", START),
            ("new", START),
            ("lapsed", START),
            ("rest", START),
        ],
    )
    .await?;
    ensure!(store
        .put(b"new", b"v", PutOptions::create())
        .await?
        .is_stored());
    ensure!(!store
        .put(b"there", b"v", PutOptions::create())
        .await?
        .is_stored());
    ensure!(store
        .put(b"lapsed", b"v", PutOptions::create())
        .await?
        .is_stored());
    ensure_eq!(drain(&*store).await?, [("rest".to_owned(), START)]);
    Ok(())
}

pub(crate) async fn e6_other_modes_leave_the_window_alone(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let version = stored(&*store, b"k", b"v").await?;
    stage(&*store, &[("k", START), ("new", START)]).await?;
    store.put(b"new", b"v", PutOptions::replace()).await?;
    store.put(b"k", b"v", PutOptions::replace()).await?;
    store.put(b"k", b"v", PutOptions::update(version)).await?;
    let current = entry(&*store, b"k").await?.version;
    ensure!(store
        .put(b"k", b"v", PutOptions::update(current))
        .await?
        .is_stored());
    ensure!(store.touch(b"k", TTL).await?);
    ensure!(store.delete(b"k", None).await?);
    ensure_eq!(
        drain(&*store).await?,
        [("k".to_owned(), START), ("new".to_owned(), START)]
    );
    Ok(())
}

pub(crate) async fn e6_w5_publishing_voids_a_claim(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"k", b"v").await?;
    stage(&*store, &[("k", START)]).await?;
    let claims = store.window_claim(START, TTL, 10).await?;
    ensure_eq!(claims.len(), 1);
    ensure!(!store
        .put(b"k", b"v", PutOptions::create())
        .await?
        .is_stored());
    ensure_eq!(store.window_settle(&claims).await?, 0);
    ensure_eq!(store.window_requeue(&claims, START).await?, 0);
    // Staged again it is a fresh row, which the old claim does not reach.
    store
        .window_stage(&candidates(&[("k", START)])?, Restage::Keep)
        .await?;
    ensure_eq!(store.window_settle(&claims).await?, 0);
    ensure_eq!(drain(&*store).await?, [("k".to_owned(), START)]);
    Ok(())
}
