//! L12: futures that are dropped before they are done.

use alkstore::{Changeset, PutMode, PutOptions, Store, Value};
use futures_util::FutureExt as _;

use crate::fixture::{Fixture, START};
use crate::steps::{grant, key, lose, open, row, secs, HOUR, TTL};
use crate::{ensure, ensure_eq, CaseResult};

pub(crate) async fn l12_a_dropped_acquire_is_void_or_comes_back(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    // Never polled.
    drop(store.try_lock("a", "o", TTL));
    acquired_or_not(f, &*store, "a").await?;
    // Polled once, then dropped, whatever it said.
    drop(store.try_lock("b", "o", TTL).now_or_never());
    acquired_or_not(f, &*store, "b").await
}

async fn acquired_or_not(f: &dyn Fixture, store: &dyn Store, name: &str) -> CaseResult {
    let found = store.lock_info(name).await?;
    if let Some(row) = &found {
        ensure_eq!((&*row.owner, row.lapsed), ("o", false));
        lose(store, name, "p", TTL).await?;
    }
    let lock = grant(store, name, "o", TTL).await?;
    if let Some(row) = &found {
        ensure_eq!(
            lock.token(),
            row.token,
            "the same owner gets the grant back"
        );
    }
    f.advance(TTL).await?;
    grant(store, name, "p", TTL).await?;
    Ok(())
}

pub(crate) async fn l12_a_dropped_renew_moves_the_deadline_or_not(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut lock = grant(&*store, "a", "o", TTL).await?;
    f.advance(secs(1)).await?;
    drop(lock.renew(HOUR));
    drop(lock.renew(HOUR).now_or_never());
    let row = row(&*store, "a").await?;
    ensure!(row.deadline == START.plus(TTL) || row.deadline == START.plus(secs(1)).plus(HOUR));
    ensure_eq!(
        (&*row.owner, row.token, row.lapsed),
        ("o", lock.token(), false)
    );
    ensure!(lock.renew(TTL).await?, "the handle still works");
    ensure!(lock.release().await?);
    Ok(())
}

pub(crate) async fn l12_a_dropped_release_frees_or_not(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for (name, poll) in [("a", false), ("b", true)] {
        let lock = grant(&*store, name, "o", TTL).await?;
        let token = lock.token();
        let release = lock.release();
        if poll {
            drop(release.now_or_never());
        } else {
            drop(release);
        }
        match store.lock_info(name).await? {
            None => ensure!(grant(&*store, name, "p", TTL).await?.token() > token),
            Some(row) => {
                ensure_eq!((&*row.owner, row.token), ("o", token));
                ensure!(store.lock_handle(name, "o", token)?.release().await?);
                grant(&*store, name, "p", TTL).await?;
            }
        }
    }
    Ok(())
}

pub(crate) async fn t2_l12_a_dropped_commit_is_whole_or_nothing(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for poll in [false, true] {
        let name = if poll { "b" } else { "a" };
        let mut changeset = Changeset::new();
        for part in 0..3 {
            let key = key(format!("{name}{part}").as_bytes())?;
            changeset.put(key, Value::from(&b"v"[..]), PutMode::Create, None)?;
        }
        let commit = store.commit_changeset(changeset);
        if poll {
            drop(commit.now_or_never());
        } else {
            drop(commit);
        }
        let there = store.list(name.as_bytes(), None, 10).await?.len();
        ensure!(there == 0 || there == 3, "{there} of 3 were written");
    }
    let put = store.put(b"c", b"v", PutOptions::create());
    drop(put.now_or_never());
    let there = store.get(b"c").await?;
    ensure_eq!(
        store
            .put(b"c", b"v", PutOptions::create())
            .await?
            .is_stored(),
        there.is_none()
    );
    Ok(())
}
