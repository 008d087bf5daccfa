//! S: snapshots of a whole store.

use std::sync::Arc;

use alkstore::{PutMode, PutOptions, Reclaim, StoreExt as _};

use crate::failure::{refused, Refusal};
use crate::fixture::{Capability, Fixture, Opened, Snapshots, START};
use crate::steps::{
    drain, expiry, grant, lose, marked, open, row, secs, sight, stage, stored, waiting, HOUR, TTL,
};
use crate::{ensure, ensure_eq, CaseResult, Failure};

/// The snapshots of a store; `None`, checked, for an engine without them.
fn snapshots(f: &dyn Fixture, store: &Opened) -> CaseResult<Option<Arc<dyn Snapshots>>> {
    let promised = f.engine().has(Capability::Snapshots);
    ensure_eq!(
        store.snapshots.is_some(),
        promised,
        "what {:?} can do",
        f.engine()
    );
    Ok(store.snapshots.clone())
}

/// A store with something of everything: live and lapsed, and claimed.
async fn furnished(f: &dyn Fixture) -> CaseResult<Opened> {
    let store = open(f).await?;
    grant(&*store, "live", "o", HOUR).await?;
    grant(&*store, "lapsed", "\u{1f600}", secs(1)).await?;
    stored(&*store, b"forever", b"v").await?;
    stored(&*store, b"empty", b"").await?;
    store
        .put(b"mortal\0\xff", &[7; 300], PutOptions::create().ttl(TTL))
        .await?;
    store
        .put(b"gone", b"v", PutOptions::create().ttl(secs(1)))
        .await?;
    stage(
        &*store,
        &[
            ("waiting", START.plus(TTL)),
            ("claimed", START),
            ("due", START.plus(secs(1))),
        ],
    )
    .await?;
    f.advance(secs(1)).await?;
    ensure_eq!(store.window_claim(START, HOUR, 1).await?.len(), 1);
    Ok(store)
}

pub(crate) async fn s1_a_snapshot_brings_everything_back(f: &dyn Fixture) -> CaseResult {
    let store = furnished(f).await?;
    let Some(from) = snapshots(f, &store)? else {
        return Ok(());
    };
    let held = sight(&*store).await?;
    let bytes = from.snapshot().await?;
    ensure_eq!(sight(&*store).await?, held, "a snapshot changes nothing");
    ensure_eq!(drain(&*store).await?.len(), 2);
    let other = open(f).await?;
    grant(&*other, "theirs", "p", TTL).await?;
    stored(&*other, b"theirs", b"v").await?;
    stage(&*other, &[("theirs", START)]).await?;
    let Some(to) = snapshots(f, &other)? else {
        return Ok(());
    };
    to.restore(&bytes).await?;
    ensure_eq!(sight(&*other).await?, held, "what was there before is gone");
    lose(&*other, "live", "p", TTL).await?;
    let token = row(&*other, "live").await?.token;
    ensure!(
        other.lock_handle("live", "o", token)?.renew(TTL).await?,
        "the grant is the same grant"
    );
    let window = drain(&*other).await?;
    ensure!(
        window.contains(&("waiting".to_owned(), START.plus(TTL))),
        "{window:?}"
    );
    ensure!(
        window.contains(&("due".to_owned(), START.plus(secs(1)))),
        "{window:?}"
    );
    Ok(())
}

pub(crate) async fn s1_no_candidate_is_lost_in_a_snapshot(f: &dyn Fixture) -> CaseResult {
    let store = furnished(f).await?;
    let Some(from) = snapshots(f, &store)? else {
        return Ok(());
    };
    let bytes = from.snapshot().await?;
    let other = open(f).await?;
    let Some(to) = snapshots(f, &other)? else {
        return Ok(());
    };
    to.restore(&bytes).await?;
    f.advance(HOUR).await?;
    let window: Vec<_> = drain(&*other)
        .await?
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    ensure_eq!(window, ["claimed", "due", "waiting"]);
    Ok(())
}

pub(crate) async fn s1_deadlines_are_absolute(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    grant(&*store, "a", "o", TTL).await?;
    store.put(b"k", b"v", PutOptions::create().ttl(TTL)).await?;
    store
        .put(b"l", b"v", PutOptions::create().ttl(HOUR))
        .await?;
    let Some(own) = snapshots(f, &store)? else {
        return Ok(());
    };
    let bytes = own.snapshot().await?;
    f.advance(TTL).await?;
    own.restore(&bytes).await?;
    ensure_eq!(row(&*store, "a").await?.deadline, START.plus(TTL));
    ensure!(row(&*store, "a").await?.lapsed, "time went on meanwhile");
    ensure_eq!(store.get(b"k").await?, None);
    ensure_eq!(expiry(&*store, b"l").await?, Some(START.plus(HOUR)));
    ensure_eq!(
        store.purge_lapsed(10).await?,
        2,
        "what lapsed can be purged"
    );
    grant(&*store, "a", "p", TTL).await?;
    Ok(())
}

pub(crate) async fn s1_l10_revisions_jump_past_the_snapshots_lineage(
    f: &dyn Fixture,
) -> CaseResult {
    let store = open(f).await?;
    let first = grant(&*store, "a", "o", TTL).await?;
    let Some(own) = snapshots(f, &store)? else {
        return Ok(());
    };
    let bytes = own.snapshot().await?;
    // Granted after the snapshot, so the snapshot does not know of it.
    ensure!(first.release().await?);
    let unknown = grant(&*store, "a", "p", TTL).await?;
    let fresh = open(f).await?;
    let Some(to) = snapshots(f, &fresh)? else {
        return Ok(());
    };
    to.restore(&bytes).await?;
    let back = row(&*fresh, "a").await?;
    ensure!(fresh.force_release("a", back.token).await?);
    let next = grant(&*fresh, "a", "q", TTL).await?.token();
    let jump = 1 << 32;
    ensure!(
        next.get() > back.token.get() + jump,
        "{next} after {}",
        back.token
    );
    ensure!(next > unknown.token());
    let version = stored(&*fresh, b"k", b"v").await?;
    ensure!(version.get() > jump);
    // The larger of both counters counts.
    to.restore(&bytes).await?;
    let after = grant(&*fresh, "b", "q", TTL).await?.token();
    ensure!(
        after.get() > version.get() + jump,
        "{after} after {version}"
    );
    // The old holder of the unknown grant is fenced out everywhere.
    let fenced = PutOptions::replace().guard("a", unknown.token());
    refused(fresh.put(b"k", b"late", fenced).await, Refusal::LeaseLost)
}

pub(crate) async fn s1_an_open_transaction_does_not_survive_a_restore(
    f: &dyn Fixture,
) -> CaseResult {
    let store = open(f).await?;
    let Some(own) = snapshots(f, &store)? else {
        return Ok(());
    };
    let empty = own.snapshot().await?;
    stored(&*store, b"k", b"v").await?;
    let mut tx = store.begin();
    ensure!(tx.get(b"k").await?.is_some());
    tx.put(b"out", b"v", PutMode::Replace, None).await?;
    own.restore(&empty).await?;
    refused(tx.commit().await, Refusal::Conflict)?;
    ensure_eq!(store.list(b"", None, 10).await?, []);
    // And what was restored is a working store.
    let version = stored(&*store, b"k", b"w").await?;
    ensure!(store.delete(b"k", Some(version)).await?);
    Ok(())
}

pub(crate) async fn s2_damaged_bytes_are_refused_whole(f: &dyn Fixture) -> CaseResult {
    let store = furnished(f).await?;
    let Some(own) = snapshots(f, &store)? else {
        return Ok(());
    };
    let bytes = own.snapshot().await?;
    let held = sight(&*store).await?;
    for cut in 0..bytes.len() {
        bad(&*own, &bytes[..cut], || {
            format!("cut to {cut} of {} bytes", bytes.len())
        })
        .await?;
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        bad(&*own, &flipped, || format!("bit {bit} flipped")).await?;
    }
    let with = |tail: &[u8]| [&*bytes, tail].concat();
    for (what, wrong) in [
        ("a trailing byte", with(&[0])),
        ("twice", with(&bytes)),
        ("zeros", vec![0; 100]),
        ("ones", vec![0xff; 100]),
        ("text", b"{\"locks\": []}".to_vec()),
        ("a byte before it", [&[0], &*bytes].concat()),
    ] {
        bad(&*own, &wrong, || what.to_owned()).await?;
    }
    ensure_eq!(sight(&*store).await?, held, "the store is unchanged");
    ensure_eq!(own.snapshot().await?.len(), bytes.len());
    // The revisions have not moved either.
    let next = stored(&*store, b"next", b"v").await?;
    ensure!(
        next.get() < 1 << 32,
        "a refused restore moved the revisions to {next}"
    );
    own.restore(&bytes).await?;
    ensure_eq!(sight(&*store).await?, held);
    Ok(())
}

async fn bad(snapshots: &dyn Snapshots, bytes: &[u8], what: impl Fn() -> String) -> CaseResult {
    refused(snapshots.restore(bytes).await, Refusal::Argument)
        .map_err(|broken| Failure::new(format_args!("{}: {broken}", what())))
}

pub(crate) async fn s1_w5_claims_after_a_restore_are_not_mistaken(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stage(&*store, &[("k", START)]).await?;
    let Some(own) = snapshots(f, &store)? else {
        return Ok(());
    };
    let bytes = own.snapshot().await?;
    let claims = store.window_claim(START, HOUR, 10).await?;
    own.restore(&bytes).await?;
    // The restored row was not claimed; the claim from the other course of events does not reach it.
    ensure_eq!(store.window_settle(&claims).await?, 0);
    let again = store.window_claim(START, HOUR, 10).await?;
    ensure_eq!(again.len(), 1);
    ensure!(again[0].id > claims[0].id);
    ensure_eq!(store.window_settle(&claims).await?, 0);
    ensure_eq!(store.window_settle(&again).await?, 1);
    Ok(())
}

pub(crate) async fn s1_w8_w10_marks_come_back_and_a_sweep_does_not(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"k", b"v").await?;
    let claims = marked(&*store, &["k"]).await?;
    ensure_eq!(store.window_requeue(&claims, START).await?, 1);
    let epoch = store.sweep_begin(HOUR).await?;
    let Some(own) = snapshots(f, &store)? else {
        return Ok(());
    };
    let rows = waiting(&*store).await?;
    let bytes = own.snapshot().await?;
    ensure_eq!(store.sweep_begin(HOUR).await?, None, "it goes on");
    let fresh = open(f).await?;
    let Some(to) = snapshots(f, &fresh)? else {
        return Ok(());
    };
    to.restore(&bytes).await?;
    ensure_eq!(waiting(&*fresh).await?, rows);
    ensure!(rows[0].reclaiming && rows[0].requeues == 1, "{rows:?}");
    refused(
        fresh.put(b"k", b"w", PutOptions::create()).await,
        Refusal::Conflict,
    )?;
    refused(fresh.window_mark(&[], epoch).await, Refusal::LeaseLost)?;
    let next = fresh.sweep_begin(HOUR).await?;
    ensure!(next > epoch, "{next:?} after {epoch:?}");
    let claims = fresh.window_claim(START, TTL, 9).await?;
    ensure!(claims[0].reclaiming);
    ensure_eq!(
        fresh.window_finish(&claims, next).await?,
        [Reclaim::Deleted { bytes: 1 }]
    );
    Ok(())
}
