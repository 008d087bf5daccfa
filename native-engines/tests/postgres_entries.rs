//! Entries and changesets on Postgres: writers that wait for each other, with a connection that is paused at the step
//! in question, and changesets inside the caller's own transaction.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::unwrap_used)] // what a test cannot go on without

mod postgres_support;

use std::sync::Arc;

use alkstore::{
    Candidate, Changeset, EngineWindowState, Entries, ErrorKind, Expect, Key, LockName, Locks, Put,
    PutMode, PutOptions, Restage, Result, Transactions,
};
use alkstore_native::postgres::{PgOptions, PgStore};
use postgres_support::{block_on, sqlstate, Place, SECOND, START};
use tokio_postgres::IsolationLevel;

fn key(key: &[u8]) -> Key<'_> {
    Key::new(key).unwrap()
}

fn puts(keys: &[&'static [u8]]) -> Changeset {
    let mut changeset = Changeset::new();
    for name in keys {
        changeset
            .put(key(name), (*name).into(), PutMode::Replace, None)
            .unwrap();
    }
    changeset
}

async fn value(store: &PgStore, key: &[u8]) -> Option<Vec<u8>> {
    store
        .get(key)
        .await
        .unwrap()
        .map(|entry| entry.value.to_vec())
}

#[test]
fn k13_a_fenced_write_that_waited_past_its_lease_writes_nothing() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = Arc::new(place.store().await);
        for pass in 0..6_u32 {
            let at = START.plus(SECOND * 10 * pass);
            store.set_clock(at).await.unwrap();
            store
                .put(b"k", b"first", PutOptions::replace())
                .await
                .unwrap();
            let lease = store.try_lock("n", "a", SECOND).await.unwrap().unwrap();
            let token = lease.token();
            // Somebody has the row in hand: with a lock on it, with a write of it, or by a changeset of their own that
            // has not committed.
            let mut raw = place.client().await;
            let mut other = raw.transaction().await.unwrap();
            let hold = match pass % 3 {
                0 => "SELECT FROM {s}.entries FOR UPDATE",
                1 => "UPDATE {s}.entries SET key = key",
                _ => {
                    store.apply_in(&mut other, &puts(&[b"k"])).await.unwrap();
                    "SELECT"
                }
            };
            other.execute(&place.fill(hold), &[]).await.unwrap();
            let stale = {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    if pass < 3 {
                        let fenced = PutOptions::replace().guard("n", token);
                        return store.put(b"k", b"stale", fenced).await.map(drop);
                    }
                    let mut changeset = puts(&[b"k", b"other"]);
                    changeset.guard(LockName::new("n")?, token)?;
                    store.commit_changeset(changeset).await.map(drop)
                })
            };
            let looker = place.client().await;
            place.until_waiting(&looker, 1).await;
            // The lease lapses and passes on, which nobody who waits for the entry may stop.
            store.set_clock(at.plus(SECOND)).await.unwrap();
            let successor = {
                let store = Arc::clone(&store);
                tokio::spawn(
                    async move { store.try_lock("n", "b", SECOND).await.map(Option::unwrap) },
                )
            };
            let granted = tokio::time::timeout(SECOND * 20, successor).await;
            let successor = granted.expect("the grant does not wait").unwrap().unwrap();
            other.commit().await.unwrap();

            let refused = stale.await.unwrap().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::LeaseLost, "{pass}");
            assert_ne!(value(&store, b"k").await.as_deref(), Some(&b"stale"[..]));
            assert_eq!(value(&store, b"other").await, None);
            let fenced = PutOptions::replace().guard("n", successor.token());
            let put = store.put(b"k", b"second", fenced).await.unwrap();
            assert!(put.is_stored());
        }
    });
}

#[test]
fn e5_a_fenced_write_keeps_the_grant_until_it_commits() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = Arc::new(place.store().await);
        let mut lock = store.try_lock("n", "a", SECOND).await.unwrap().unwrap();
        let token = lock.token();
        let mut raw = place.client().await;
        let mut tx = raw.transaction().await.unwrap();
        let mut changeset = puts(&[b"k"]);
        changeset.guard(LockName::new("n").unwrap(), token).unwrap();
        store.apply_in(&mut tx, &changeset).await.unwrap();

        // A renewal passes; the grant of a successor, and a release, wait.
        assert!(lock.renew(SECOND).await.unwrap());
        store.set_clock(START.plus(SECOND)).await.unwrap();
        let successor = {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                store
                    .try_lock("n", "b", SECOND)
                    .await
                    .map(|lock| lock.is_some())
            })
        };
        let release = {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.force_release("n", token).await })
        };
        let looker = place.client().await;
        place.until_waiting(&looker, 2).await;
        assert_eq!(value(&store, b"k").await, None);
        tx.commit().await.unwrap();
        assert!(successor.await.unwrap().unwrap());
        // It comes before the grant or after it, and frees that very token alone.
        let _ = release.await.unwrap().unwrap();
        assert_eq!(store.lock_info("n").await.unwrap().unwrap().owner, "b");
    });
}

#[test]
fn e5_a_fenced_put_keeps_the_grant_until_it_commits() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = Arc::new(place.store().await);
        let token = store
            .try_lock("n", "a", SECOND)
            .await
            .unwrap()
            .unwrap()
            .token();
        let raw = place.client().await;
        place.stall_inserts(&raw, "entries", "true").await;
        // It has judged its guard and is about to write.
        let put = {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let fenced = PutOptions::create().guard("n", token);
                store.put(b"k", b"v", fenced).await
            })
        };
        place.until_waiting(&raw, 1).await;
        let release = {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.force_release("n", token).await })
        };
        place.until_waiting(&raw, 2).await;
        place.let_go(&raw).await;
        assert!(put.await.unwrap().unwrap().is_stored());
        assert!(release.await.unwrap().unwrap());
    });
}

#[test]
fn e6_a_publication_does_not_pass_a_staging_in_flight() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        for publish in [
            |store: Arc<PgStore>| {
                tokio::spawn(
                    async move { store.put(b"k", b"v", PutOptions::create()).await.map(drop) },
                )
            },
            |store: Arc<PgStore>| {
                let mut changeset = Changeset::new();
                changeset
                    .put(key(b"k"), (&b"v"[..]).into(), PutMode::Create, None)
                    .unwrap();
                tokio::spawn(async move { store.commit_changeset(changeset).await.map(drop) })
            },
        ] {
            let place = Place::on(&place.url);
            let store = Arc::new(place.store().await);
            let raw = place.client().await;
            place.stall_inserts(&raw, "gc_window", "true").await;
            let stage = {
                let store = Arc::clone(&store);
                let candidate = Candidate {
                    key: key(b"k").into_owned(),
                    visible_after: START,
                };
                tokio::spawn(async move { store.window_stage(&[candidate], Restage::Move).await })
            };
            place.until_waiting(&raw, 1).await;
            let published = publish(Arc::clone(&store));
            place.until_waiting(&raw, 2).await;
            place.let_go(&raw).await;
            stage.await.unwrap().unwrap();
            published.await.unwrap().unwrap();
            assert_eq!(store.window_take(START, None).await.unwrap(), []);
        }
    });
}

#[test]
fn t3_two_changesets_that_read_what_the_other_writes_do_not_both_commit() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = Arc::new(place.store().await);
        let raw = place.client().await;
        place
            .stall_inserts(&raw, "entries", "NEW.value = 'y'")
            .await;
        let crossed = |reads: &'static [u8], writes: &'static [u8]| {
            let mut changeset = puts(&[writes]);
            changeset.check(key(reads), Expect::Absent).unwrap();
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.commit_changeset(changeset).await })
        };
        // It has judged its check and is about to write.
        let first = crossed(b"x", b"y");
        place.until_waiting(&raw, 1).await;
        let second = crossed(b"y", b"x");
        place.until_waiting(&raw, 2).await;
        place.let_go(&raw).await;
        assert!(first.await.unwrap().is_ok());
        let refused = second.await.unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        assert!(refused.is_retryable());
        assert_eq!(value(&store, b"x").await, None);
    });
}

#[test]
fn t3_crowds_of_changesets_over_the_same_keys_all_end() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = Arc::new(place.store().await);
        let keys: [&'static [u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"f"];
        let mut crowd = Vec::new();
        for n in 0..120_usize {
            let store = Arc::clone(&store);
            let mut changeset = puts(&[keys[n % 6], keys[(n + 1 + n / 6 % 5) % 6]]);
            changeset
                .stage(key(keys[(n + 3) % 6]), START, Restage::Move)
                .unwrap();
            changeset.unstage(key(keys[(n + 4) % 6])).unwrap();
            crowd.push(tokio::spawn(async move {
                store.commit_changeset(changeset).await.map(drop)
            }));
        }
        for one in crowd {
            one.await.unwrap().unwrap();
        }
    });
}

#[test]
fn t3_a_lost_deadlock_is_retried_inside() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        // The store's connections notice a deadlock long before the other one does.
        let url = format!("{} options='-c deadlock_timeout=500ms'", place.url);
        let quick = PgOptions::new(&url)
            .unwrap()
            .schema(&place.schema)
            .manual_clock(START);
        let store = Arc::new(place.open(quick).await);
        store.put(b"k", b"v", PutOptions::create()).await.unwrap();
        let raw = place.client().await;
        place
            .run(
                &raw,
                "BEGIN; SELECT FROM {s}.entries FOR UPDATE; SET LOCAL deadlock_timeout = '60s'",
            )
            .await;
        let write = {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.commit_changeset(puts(&[b"k"])).await })
        };
        let looker = place.client().await;
        place.until_waiting(&looker, 1).await;
        // The other one now wants what the changeset has: its stripe.
        let wanted = place
            .row(&looker, "SELECT classid::int4, objid::int4 FROM pg_locks WHERE locktype = 'advisory' AND granted \
                           AND mode = 'ExclusiveLock' AND pid IN (SELECT pid FROM pg_stat_activity \
                           WHERE wait_event_type = 'Lock' AND strpos(query, '{s}.commit_v2') > 0)")
            .await;
        let want = format!(
            "SELECT pg_advisory_xact_lock({}, {})",
            wanted.get::<_, i32>(0),
            wanted.get::<_, i32>(1)
        );
        place.run(&raw, &want).await;
        place.run(&raw, "COMMIT").await;
        assert_eq!(write.await.unwrap().unwrap().versions.len(), 1);
        assert_eq!(value(&store, b"k").await.as_deref(), Some(&b"k"[..]));
    });
}

#[test]
fn t3_the_largest_changeset_fits_into_the_servers_lock_table() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = place.store().await;
        let token = store
            .try_lock("n0", "a", SECOND)
            .await
            .unwrap()
            .unwrap()
            .token();
        let mut changeset = Changeset::new();
        for n in 0..alkstore::MAX_CHANGESET_ITEMS / 2 {
            let name = format!("n{n}");
            changeset
                .guard(LockName::new(&*name).unwrap(), token)
                .unwrap();
            changeset
                .put(
                    Key::new(name.into_bytes()).unwrap(),
                    (&b""[..]).into(),
                    PutMode::Create,
                    None,
                )
                .unwrap();
        }
        let refused = store.commit_changeset(changeset.clone()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::LeaseLost, "{refused:?}");
    });
}

#[test]
fn t5_business_rows_and_entries_commit_together_or_not_at_all() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = place.store().await;
        let mut raw = place.client().await;
        place.run(&raw, "CREATE TABLE {s}.orders (id bigint)").await;
        let insert = place.fill("INSERT INTO {s}.orders VALUES (1)");
        for commits in [false, true] {
            let mut tx = raw.transaction().await.unwrap();
            tx.execute(&insert, &[]).await.unwrap();
            let commit = store.apply_in(&mut tx, &puts(&[b"a", b"b"])).await.unwrap();
            assert_eq!(commit.versions.len(), 2);
            assert_eq!(
                value(&store, b"a").await,
                None,
                "nothing is seen before the commit"
            );
            if commits {
                tx.commit().await.unwrap();
                let entry = store.get(b"a").await.unwrap().unwrap();
                assert_eq!(Some(entry.version), commit.version(b"a"));
            } else {
                tx.rollback().await.unwrap();
                assert_eq!(value(&store, b"a").await, None);
            }
            let orders = place.row(&raw, "SELECT count(*) FROM {s}.orders").await;
            assert_eq!(orders.get::<_, i64>(0), i64::from(commits));
        }
    });
}

#[test]
fn t5_a_refused_changeset_leaves_the_transaction_usable() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = place.store().await;
        let mut raw = place.client().await;
        place.run(&raw, "CREATE TABLE {s}.orders (id bigint)").await;
        store
            .put(b"taken", b"", PutOptions::create())
            .await
            .unwrap();
        let token = store
            .try_lock("n", "a", SECOND)
            .await
            .unwrap()
            .unwrap()
            .token();
        assert!(store.force_release("n", token).await.unwrap());

        let mut tx = raw.transaction().await.unwrap();
        tx.execute(&place.fill("INSERT INTO {s}.orders VALUES (1)"), &[])
            .await
            .unwrap();
        let mut conflict = puts(&[b"a"]);
        conflict.check(key(b"taken"), Expect::Absent).unwrap();
        let refused = store.apply_in(&mut tx, &conflict).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        let mut lost = puts(&[b"a"]);
        lost.guard(LockName::new("n").unwrap(), token).unwrap();
        let refused = store.apply_in(&mut tx, &lost).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::LeaseLost);
        // One that is dropped in mid-way is rolled back to its savepoint as well.
        let mut other = place.client().await;
        let mut hold = other.transaction().await.unwrap();
        store.apply_in(&mut hold, &puts(&[b"held"])).await.unwrap();
        let both = puts(&[b"a", b"held"]);
        let waits = store.apply_in(&mut tx, &both);
        assert!(
            tokio::time::timeout(std::time::Duration::from_millis(50), waits)
                .await
                .is_err()
        );
        hold.rollback().await.unwrap();
        store.apply_in(&mut tx, &puts(&[b"b"])).await.unwrap();
        tx.commit().await.unwrap();

        assert_eq!(value(&store, b"a").await, None);
        assert!(value(&store, b"b").await.is_some());
        let orders = place.row(&raw, "SELECT count(*) FROM {s}.orders").await;
        assert_eq!(orders.get::<_, i64>(0), 1);
    });
}

#[test]
fn t5_other_isolation_levels_are_refused() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = place.store().await;
        let mut raw = place.client().await;
        for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
            let mut tx = raw
                .build_transaction()
                .isolation_level(level)
                .start()
                .await
                .unwrap();
            let refused: Result<_> = store.apply_in(&mut tx, &puts(&[b"a"])).await;
            let refused = refused.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
            assert!(refused.to_string().contains("READ COMMITTED"), "{refused}");
            assert_eq!(sqlstate(&refused), Some("ALK01"));
            tx.commit().await.unwrap();
        }
        assert_eq!(value(&store, b"a").await, None);
    });
}

#[test]
fn e2_creators_of_one_key_have_one_winner() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = Arc::new(place.store().await);
        let mut creators = Vec::new();
        for n in 0..40_u8 {
            let store = Arc::clone(&store);
            creators.push(tokio::spawn(async move {
                store.put(b"k", &[n], PutOptions::create()).await.unwrap()
            }));
        }
        let mut stored = Vec::new();
        let mut told = Vec::new();
        for creator in creators {
            match creator.await.unwrap() {
                Put::Stored { version } => stored.push(Some(version)),
                Put::NotStored { current } => told.push(current),
            }
        }
        assert_eq!(stored.len(), 1);
        assert!(told.iter().all(|current| *current == stored[0]));
    });
}
