//! C, and what a store does at its limits.

use alkstore::{
    Candidate, Changeset, Key, Lock, PutMode, PutOptions, Restage, Store, StoreExt as _, Timestamp,
};
use futures_util::future::join_all;

use crate::failure::{refused, Refusal};
use crate::fixture::{Capability, Fixture, Limits, Opened, START};
use crate::steps::{grant, lose, ms, open, secs, sight, stage, stored, HOUR, TTL};
use crate::{ensure, ensure_eq, CaseResult};

/// Every operation that a store and what it has given out offer; each must fail as closed.
async fn all_closed(store: &dyn Store, mut lock: Box<dyn Lock>) -> CaseResult {
    let closed = Refusal::Closed;
    let token = lock.token();
    refused(store.try_lock("a", "o", TTL).await, closed)?;
    refused(store.lock_handle("a", "o", token), closed)?;
    refused(store.lock_info("a").await, closed)?;
    refused(store.list_locks("", None, 1).await, closed)?;
    refused(store.force_release("a", token).await, closed)?;
    refused(lock.renew(TTL).await, closed)?;
    refused(lock.release().await, closed)?;
    refused(store.get(b"k").await, closed)?;
    for mode in [PutMode::Create, PutMode::Replace, PutMode::Update(token)] {
        refused(
            store.put(b"k", b"v", PutOptions::with_mode(mode)).await,
            closed,
        )?;
    }
    refused(store.touch(b"k", TTL).await, closed)?;
    refused(store.delete(b"k", None).await, closed)?;
    refused(store.list(b"", None, 1).await, closed)?;
    refused(store.commit_changeset(Changeset::new()).await, closed)?;
    refused(store.begin().get(b"k").await, closed)?;
    refused(store.now().await, closed)?;
    refused(store.purge_lapsed(1).await, closed)?;
    refused(store.ensure_gc_schema().await, closed)?;
    refused(store.window_stage(&[], Restage::Move).await, closed)?;
    refused(
        store.window_stage_after(&[], TTL, Restage::Keep).await,
        closed,
    )?;
    refused(store.window_take(START, None).await, closed)?;
    refused(store.window_unstage(&[]).await, closed)?;
    refused(store.window_claim(START, TTL, 1).await, closed)?;
    refused(store.window_settle(&[]).await, closed)?;
    refused(store.window_requeue(&[], START).await, closed)?;
    refused(store.window_mark(&[], None).await, closed)?;
    refused(store.window_mark(&[], Some(token)).await, closed)?;
    refused(store.window_finish(&[], None).await, closed)?;
    refused(store.window_delete(&[], None).await, closed)?;
    refused(store.window_judge(&[]).await, closed)?;
    refused(store.window_list(None, 1).await, closed)?;
    refused(store.window_info(b"k").await, closed)?;
    refused(store.window_stats(START).await, closed)?;
    refused(store.sweep_begin(TTL).await, closed)?;
    refused(store.sweep_extend(token, TTL).await, closed)?;
    refused(store.sweep_end(token).await, closed)
}

pub(crate) async fn c1_after_close_everything_fails_closed(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"k", b"v").await?;
    stage(&*store, &[("k", START)]).await?;
    let lock = grant(&*store, "a", "o", TTL).await?;
    let rebuilt = store.lock_handle("a", "o", lock.token())?;
    let mut tx = store.begin();
    ensure!(tx.get(b"k").await?.is_some());
    tx.put(b"new", b"v", PutMode::Create, None).await?;
    store.close().await?;
    store.close().await?;
    refused(tx.get(b"other").await, Refusal::Closed)?;
    refused(tx.commit().await, Refusal::Closed)?;
    all_closed(&*store, lock).await?;
    all_closed(&*store, rebuilt).await?;
    if let Some(snapshots) = &store.snapshots {
        refused(snapshots.snapshot().await, Refusal::Closed)?;
        refused(
            snapshots.restore(&[]).await.map_err(closed_or_refused),
            Refusal::Closed,
        )?;
    }
    store.close().await?;
    Ok(())
}

/// Whether bytes or gate are judged first is not fixed for a restore.
fn closed_or_refused(error: alkstore::Error) -> alkstore::Error {
    if error.kind() == alkstore::ErrorKind::InvalidArgument {
        return alkstore::Error::closed();
    }
    error
}

pub(crate) async fn c1_a_value_that_was_read_outlives_the_store(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"k", b"value").await?;
    let read = store.get(b"k").await?.map(|entry| entry.value);
    store.close().await?;
    ensure_eq!(read.as_deref(), Some(&b"value"[..]));
    Ok(())
}

pub(crate) async fn c1_closing_one_handle(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    let lock = grant(&*store, "a", "o", TTL).await?;
    stored(&*store, b"k", b"v").await?;
    store.close().await?;
    if !f.engine().has(Capability::Durable) {
        // All handles are one.
        return all_closed(&*other, lock).await;
    }
    refused(lock.release().await, Refusal::Closed)?;
    lose(&*other, "a", "p", TTL).await?;
    ensure!(other.get(b"k").await?.is_some());
    f.advance(TTL).await?;
    grant(&*other, "a", "p", TTL).await?;
    other.close().await?;
    let again = f.another(&store).await?;
    lose(&*again, "a", "o", TTL).await?;
    ensure!(again.get(b"k").await?.is_some());
    Ok(())
}

pub(crate) async fn c2_handles_share_their_state(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    let stranger = open(f).await?;
    grant(&*store, "a", "o", TTL).await?;
    stored(&*other, b"k", b"v").await?;
    stage(&*store, &[("w", START)]).await?;
    lose(&*other, "a", "p", TTL).await?;
    ensure_eq!(sight(&*store).await?, sight(&*other).await?);
    ensure_eq!(other.window_take(START, None).await?.len(), 1);
    ensure_eq!(store.window_take(START, None).await?.len(), 0);
    // A store that was opened afresh is another namespace.
    ensure_eq!(stranger.lock_info("a").await?, None);
    ensure_eq!(stranger.get(b"k").await?, None);
    grant(&*stranger, "a", "p", TTL).await?;
    Ok(())
}

pub(crate) async fn c2_k9_many_open_an_empty_store_at_once(f: &dyn Fixture) -> CaseResult {
    let first = open(f).await?;
    let handles = join_all((0..8).map(|_| f.another(&first))).await;
    let handles: Vec<Opened> = handles.into_iter().collect::<Result<_, _>>()?;
    let tries = join_all(
        handles
            .iter()
            .enumerate()
            .map(|(n, store)| async move { store.try_lock("a", &format!("o{n}"), TTL).await }),
    )
    .await;
    let mut granted = 0;
    for lock in tries {
        granted += usize::from(lock?.is_some());
    }
    ensure_eq!(granted, 1);
    let puts = join_all(
        handles
            .iter()
            .map(|store| store.put(b"k", b"v", PutOptions::create())),
    )
    .await;
    let mut stored = 0;
    for put in puts {
        stored += usize::from(put?.is_stored());
    }
    ensure_eq!(stored, 1);
    Ok(())
}

/// A limited store; `None` for an engine without limits, which refuses to be given any.
async fn limited(f: &dyn Fixture, limits: Limits) -> CaseResult<Option<Opened>> {
    if f.engine().has(Capability::Limits) {
        return Ok(Some(f.open(limits).await?));
    }
    refused(f.open(limits).await, Refusal::Argument)?;
    Ok(None)
}

pub(crate) async fn l9_a_full_store_purges_before_it_refuses_a_lock(f: &dyn Fixture) -> CaseResult {
    let limits = Limits {
        locks: Some(3),
        ..Limits::default()
    };
    let Some(store) = limited(f, limits).await? else {
        return Ok(());
    };
    let mut stale = grant(&*store, "a", "o", secs(1)).await?;
    grant(&*store, "b", "o", HOUR).await?;
    grant(&*store, "c", "o", HOUR).await?;
    let full = sight(&*store).await?;
    refused(store.try_lock("d", "o", TTL).await, Refusal::Capacity)?;
    ensure_eq!(sight(&*store).await?, full);
    lose(&*store, "b", "p", TTL).await?;
    grant(&*store, "b", "o", TTL).await?;
    f.advance(secs(1)).await?;
    grant(&*store, "d", "o", HOUR).await?;
    ensure_eq!(
        store.lock_info("a").await?,
        None,
        "the lapsed row made room"
    );
    ensure!(!stale.renew(TTL).await?);
    ensure!(!stale.release().await?);
    refused(store.try_lock("a", "o", TTL).await, Refusal::Capacity)?;
    let lock = grant(&*store, "d", "o", HOUR).await?;
    ensure!(lock.release().await?);
    grant(&*store, "a", "o", TTL).await?;
    Ok(())
}

pub(crate) async fn e2_a_full_store_refuses_an_entry(f: &dyn Fixture) -> CaseResult {
    let limits = Limits {
        entries: Some(2),
        ..Limits::default()
    };
    let Some(store) = limited(f, limits).await? else {
        return Ok(());
    };
    store
        .put(b"a", b"v", PutOptions::create().ttl(secs(1)))
        .await?;
    let version = stored(&*store, b"b", b"v").await?;
    stage(&*store, &[("c", START)]).await?;
    let full = sight(&*store).await?;
    refused(
        store.put(b"c", b"v", PutOptions::create()).await,
        Refusal::Capacity,
    )?;
    refused(
        store.put(b"c", b"v", PutOptions::replace()).await,
        Refusal::Capacity,
    )?;
    let mut tx = store.begin();
    tx.put(b"b", b"w", PutMode::Replace, None).await?;
    tx.put(b"c", b"w", PutMode::Create, None).await?;
    refused(tx.commit().await, Refusal::Capacity)?;
    ensure_eq!(sight(&*store).await?, full, "nothing was applied");
    ensure_eq!(
        store.window_take(START, None).await?.len(),
        1,
        "and nothing published"
    );
    // What needs no new row goes on.
    ensure!(store
        .put(b"b", b"w", PutOptions::update(version))
        .await?
        .is_stored());
    ensure!(!store
        .put(b"b", b"x", PutOptions::create())
        .await?
        .is_stored());
    grant(&*store, "lock", "o", TTL).await?;
    // Room by deletion in the same changeset, then by lapsing.
    let mut tx = store.begin();
    ensure!(tx.delete(b"b").await?);
    tx.put(b"c", b"w", PutMode::Create, None).await?;
    tx.commit().await?;
    f.advance(secs(1)).await?;
    stored(&*store, b"d", b"v").await?;
    refused(
        store.put(b"e", b"v", PutOptions::create()).await,
        Refusal::Capacity,
    )
}

pub(crate) async fn e2_a_store_is_full_by_bytes(f: &dyn Fixture) -> CaseResult {
    let limits = Limits {
        bytes: Some(1000),
        ..Limits::default()
    };
    let Some(store) = limited(f, limits).await? else {
        return Ok(());
    };
    let version = stored(&*store, b"a", &[1; 600]).await?;
    let full = sight(&*store).await?;
    refused(
        store.put(b"b", &[1; 600], PutOptions::create()).await,
        Refusal::Capacity,
    )?;
    refused(
        store.put(b"a", &[1; 1100], PutOptions::replace()).await,
        Refusal::Capacity,
    )?;
    let far = Candidate {
        key: Key::new(vec![b'w'; 900])?,
        visible_after: Timestamp::MAX,
    };
    refused(
        store.window_stage(&[far], Restage::Move).await,
        Refusal::Capacity,
    )?;
    ensure_eq!(sight(&*store).await?, full);
    ensure_eq!(store.window_take(Timestamp::MAX, None).await?, []);
    // The bytes of what goes are free again, and replacing counts the difference alone.
    ensure!(store
        .put(b"a", &[2; 900], PutOptions::update(version))
        .await?
        .is_stored());
    ensure!(store.delete(b"a", None).await?);
    store
        .put(b"b", &[1; 900], PutOptions::create().ttl(ms(1)))
        .await?;
    f.advance(ms(1)).await?;
    stored(&*store, b"c", &[1; 900]).await?;
    ensure!(store.delete(b"c", None).await?);
    for way_out in 0..5 {
        let key = Key::new(vec![b'w'; 900])?;
        let row = Candidate {
            key: key.clone(),
            visible_after: START,
        };
        store.window_stage(&[row], Restage::Move).await?;
        refused(
            store.put(b"d", &[1; 900], PutOptions::create()).await,
            Refusal::Capacity,
        )?;
        match way_out {
            0 => ensure_eq!(store.window_take(START, None).await?.len(), 1),
            1 => ensure_eq!(store.window_unstage(&[key]).await?, 1),
            2 => {
                let claims = store.window_claim(START, TTL, 1).await?;
                ensure_eq!(store.window_settle(&claims).await?, 1);
            }
            3 => {
                let mut changeset = Changeset::new();
                changeset.unstage(key)?;
                store.commit_changeset(changeset).await?;
            }
            _ => {
                let published = store.put(key.as_bytes(), b"", PutOptions::create());
                refused(published.await, Refusal::Capacity)?;
                ensure_eq!(store.window_take(START, None).await?.len(), 1);
            }
        }
        stored(&*store, b"d", &[1; 900]).await?;
        ensure!(store.delete(b"d", None).await?);
    }
    // Names and owners count as well, until they are released or purged.
    let (name, owner) = ("n".repeat(450), "o".repeat(450));
    for release in [true, false] {
        let lock = grant(&*store, &name, &owner, ms(1)).await?;
        refused(
            store.put(b"d", &[1; 900], PutOptions::create()).await,
            Refusal::Capacity,
        )?;
        refused(
            store.try_lock(&"m".repeat(450), "o", TTL).await,
            Refusal::Capacity,
        )?;
        if release {
            ensure!(lock.release().await?);
        } else {
            f.advance(ms(1)).await?;
        }
        stored(&*store, b"d", &[1; 900]).await?;
        ensure!(store.delete(b"d", None).await?);
    }
    Ok(())
}

pub(crate) async fn errors_say_what_they_are(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let secret = "hunter2-the-value";
    stored(&*store, b"k", secret.as_bytes()).await?;
    let token = grant(&*store, "a", "o", ms(1)).await?.token();
    let mut tx = store.begin();
    ensure!(tx.get(b"k").await?.is_some());
    f.advance(ms(1)).await?;
    let lease_lost = store
        .put(
            b"k",
            secret.as_bytes(),
            PutOptions::replace().guard("a", token),
        )
        .await;
    store
        .put(b"k", secret.as_bytes(), PutOptions::replace())
        .await?;
    tx.put(b"k", secret.as_bytes(), PutMode::Replace, None)
        .await?;
    let conflict = tx.commit().await;
    let refused_key = store
        .put(b"", secret.as_bytes(), PutOptions::replace())
        .await;
    let refused_ttl = store
        .put(
            b"k",
            secret.as_bytes(),
            PutOptions::replace().ttl(std::time::Duration::ZERO),
        )
        .await;
    store.close().await?;
    let closed = store
        .put(b"k", secret.as_bytes(), PutOptions::replace())
        .await;
    let errors = [
        lease_lost.err(),
        conflict.err(),
        refused_key.err(),
        refused_ttl.err(),
        closed.err(),
    ];
    ensure!(errors.iter().all(Option::is_some), "{errors:?}");
    for error in errors.into_iter().flatten() {
        let text = format!("{error} {error:?}");
        ensure!(!text.contains(secret), "an error shows a value: {text}");
        ensure!(!error.to_string().is_empty());
    }
    Ok(())
}
