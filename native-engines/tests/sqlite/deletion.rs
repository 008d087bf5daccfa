//! Deletion with an outside payload, by several handles and processes on one file.

use alkstore::{
    Candidate, Changeset, Claim, EngineWindowState as _, Entries as _, ErrorKind, Key, ManualClock,
    PutMode, PutOptions, Reclaim, Restage, StoreExt as _, Timestamp, Transactions as _, TxPut,
    WindowRow,
};
use alkstore_native::sqlite::rusqlite::TransactionBehavior;
use alkstore_native::sqlite::SqliteStore;

use crate::support::{
    assert_intact, assert_waits, block_on, connect, fresh, open, open_at, role, say, spawn, START,
    TTL,
};

fn key(name: &str) -> Key<'static> {
    Key::new(name.as_bytes().to_vec()).unwrap()
}

fn due(name: &str) -> Candidate {
    Candidate {
        key: key(name),
        visible_after: START,
    }
}

async fn stage(store: &SqliteStore, names: &[&str]) {
    let rows: Vec<Candidate> = names.iter().map(|name| due(name)).collect();
    store.window_stage(&rows, Restage::Move).await.unwrap();
}

async fn claim(store: &SqliteStore) -> Vec<Claim> {
    store.window_claim(START, TTL, usize::MAX).await.unwrap()
}

/// An entry of four bytes whose row is claimed and marked.
async fn marked(store: &SqliteStore, name: &str) -> Vec<Claim> {
    let put = store.put(name.as_bytes(), b"four", PutOptions::replace());
    put.await.unwrap();
    stage(store, &[name]).await;
    let claims = claim(store).await;
    let answers = store.window_mark(&claims, None).await.unwrap();
    assert_eq!(answers, [Reclaim::Marked]);
    claims
}

fn put_of(name: &str) -> Changeset {
    let mut changeset = Changeset::new();
    changeset
        .put(key(name), b"new"[..].into(), PutMode::Replace, None)
        .unwrap();
    changeset
}

/// R4: another process publishes while this one has begun to delete.
#[test]
fn r4_w8_a_put_after_another_processs_mark_is_a_conflict() {
    const TEST: &str = "deletion::r4_w8_a_put_after_another_processs_mark_is_a_conflict";
    if let Some((path, _)) = role() {
        let store = open(&path);
        block_on(async {
            loop {
                match store.put(b"k", b"new", PutOptions::create()).await {
                    Ok(put) => return say(format_args!("stored {}", put.is_stored())),
                    Err(error) => {
                        assert!(error.is_retryable(), "{error}");
                        say(format_args!("{:?}", error.kind()));
                    }
                }
            }
        });
        return;
    }
    let (_folder, path) = fresh();
    let store = open(&path);
    let claims = block_on(marked(&store, "k"));
    let mut other = spawn(TEST, &path, "");
    for _ in 0..3 {
        assert_eq!(other.line().as_deref(), Some("Conflict"));
    }
    let answers = block_on(store.window_finish(&claims, None)).unwrap();
    assert_eq!(answers, [Reclaim::Deleted { bytes: 4 }]);
    assert_eq!(
        other.finish().last().map(String::as_str),
        Some("stored true")
    );
    assert_eq!(&*block_on(store.get(b"k")).unwrap().unwrap().value, b"new");
}

/// R3, R5 to R7: a caller's transaction publishes the key, which has an entry or not, and a mark comes meanwhile.
#[test]
fn r5_r6_r7_a_mark_waits_for_the_callers_transaction() {
    for (there, commits) in [(true, true), (true, false), (false, true), (false, false)] {
        let (_folder, path) = fresh();
        let store = open_at(&path, &ManualClock::new(START));
        let mut connection = connect(&path);
        if there {
            block_on(store.put(b"k", b"four", PutOptions::create())).unwrap();
        }
        block_on(stage(&store, &["k"]));
        let claims = block_on(claim(&store));
        let mut publication = store.begin();
        block_on(async {
            publication.get(b"k").await.unwrap();
            let put = publication.put(b"k", b"four", PutMode::Create, None).await;
            assert_eq!(put.unwrap() == TxPut::Staged, !there);
        });
        let changeset = publication.into_changeset().unwrap();
        let tx = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .unwrap();
        store.apply_in(&tx, &changeset).unwrap();
        let mut mark = store.window_mark(&claims, None);
        assert_waits(&mut mark);
        if commits {
            tx.commit().unwrap();
            assert_eq!(block_on(mark).unwrap(), [Reclaim::Voided]);
            assert!(block_on(store.get(b"k")).unwrap().is_some());
            continue;
        }
        tx.rollback().unwrap();
        assert_eq!(block_on(mark).unwrap(), [Reclaim::Marked]);
        let gone = if there {
            Reclaim::Deleted { bytes: 4 }
        } else {
            Reclaim::Absent
        };
        assert_eq!(
            block_on(store.window_finish(&claims, None)).unwrap(),
            [gone]
        );
    }
}

/// R22: until the deletion is committed a reader, which waits for nobody, has the whole value; then there is none.
#[test]
fn r22_a_reader_meets_a_deletion_that_is_not_committed() {
    let (_folder, path) = fresh();
    let store = open_at(&path, &ManualClock::new(START));
    let whole = vec![7; 300_000];
    block_on(store.put(b"k", &whole, PutOptions::create())).unwrap();
    let mut deletion = Changeset::new();
    deletion.delete(key("k")).unwrap();
    let mut connection = connect(&path);
    let tx = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    store.apply_in(&tx, &deletion).unwrap();
    let read = block_on(store.get(b"k")).unwrap().unwrap();
    assert!(*read.value == *whole);
    tx.commit().unwrap();
    assert_eq!(block_on(store.get(b"k")).unwrap(), None);
    assert!(*read.value == *whole, "what was read stays whole");
}

#[test]
fn w8_every_way_to_write_a_marked_key_is_a_conflict() {
    let (_folder, path) = fresh();
    let clock = ManualClock::new(START);
    let (store, other) = (open_at(&path, &clock), open_at(&path, &clock));
    block_on(async {
        let claims = marked(&store, "k").await;
        let entry = other.get(b"k").await.unwrap().unwrap();
        let modes = [
            PutMode::Create,
            PutMode::Replace,
            PutMode::Update(entry.version),
        ];
        for mode in modes {
            let put = other.put(b"k", b"new", PutOptions::with_mode(mode)).await;
            let error = put.unwrap_err();
            assert_eq!(
                (error.kind(), error.is_retryable()),
                (ErrorKind::Conflict, true)
            );
        }
        let error = other.commit_changeset(put_of("k")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(other.window_unstage(&[key("k")]).await.unwrap(), 0);
        assert_eq!(other.window_settle(&claims).await.unwrap(), 0);
        assert_eq!(other.get(b"k").await.unwrap(), Some(entry));

        // A lapsed entry goes with the row, and counts as none.
        let brief = PutOptions::replace().ttl(TTL / 2);
        other.put(b"brief", b"v", brief).await.unwrap();
        stage(&other, &["brief"]).await;
        let claims = claim(&other).await;
        clock.advance(TTL / 2);
        let judged = store.window_judge(&[key("brief"), key("k")]).await.unwrap();
        assert_eq!(judged, [Reclaim::Absent, Reclaim::Deleted { bytes: 4 }]);
        let answers = store.window_delete(&claims, None).await.unwrap();
        assert_eq!(answers, [Reclaim::Absent]);
    });
    let rows: i64 = connect(&path)
        .query_row("SELECT count(*) FROM alkstore_entry", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 1, "only the marked one is left");
}

/// T5: the caller's own transaction meets the mark as well, and stays open.
#[test]
fn t5_w8_a_marked_key_is_a_conflict_in_the_callers_transaction() {
    let (_folder, path) = fresh();
    let store = open_at(&path, &ManualClock::new(START));
    let claims = block_on(marked(&store, "k"));
    let mut connection = connect(&path);
    connection
        .execute_batch("CREATE TABLE invoice (number INTEGER PRIMARY KEY)")
        .unwrap();
    let tx = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    tx.execute("INSERT INTO invoice VALUES (1)", []).unwrap();
    let error = store.apply_in(&tx, &put_of("k")).unwrap_err();
    assert_eq!(
        (error.kind(), error.is_retryable()),
        (ErrorKind::Conflict, true)
    );
    store.apply_in(&tx, &put_of("other")).unwrap();
    tx.commit().unwrap();
    block_on(async {
        assert_eq!(&*store.get(b"k").await.unwrap().unwrap().value, b"four");
        assert!(store.get(b"other").await.unwrap().is_some());
        let answers = store.window_finish(&claims, None).await.unwrap();
        assert_eq!(answers, [Reclaim::Deleted { bytes: 4 }]);
    });
}

#[test]
fn w8_killed_between_mark_and_finish_the_deletion_is_finished_later() {
    const TEST: &str = "deletion::w8_killed_between_mark_and_finish_the_deletion_is_finished_later";
    if let Some((path, _)) = role() {
        let store = open_at(&path, &ManualClock::new(START));
        block_on(marked(&store, "k"));
        say("marked");
        loop {
            std::thread::park();
        }
    }
    let (_folder, path) = fresh();
    let mut child = spawn(TEST, &path, "");
    assert_eq!(child.line().as_deref(), Some("marked"));
    child.kill();
    assert_intact(&path);
    let clock = ManualClock::new(START);
    let store = open_at(&path, &clock);
    block_on(async {
        assert_eq!(claim(&store).await, [], "the lease stands");
        clock.advance(TTL);
        assert_eq!(store.window_take(START, None).await.unwrap(), []);
        let put = store.put(b"k", b"new", PutOptions::create()).await;
        assert_eq!(put.unwrap_err().kind(), ErrorKind::Conflict);
        let claims = claim(&store).await;
        assert!(claims.len() == 1 && claims[0].reclaiming, "{claims:?}");
        // Putting it back does not take the mark away.
        assert_eq!(store.window_requeue(&claims, START).await.unwrap(), 1);
        let claims = claim(&store).await;
        assert_eq!((claims[0].reclaiming, claims[0].requeues), (true, 1));
        let answers = store.window_delete(&claims, None).await.unwrap();
        assert_eq!(answers, [Reclaim::Marked], "something outside may be left");
        let answers = store.window_finish(&claims, None).await.unwrap();
        assert_eq!(answers, [Reclaim::Deleted { bytes: 4 }]);
        let put = store.put(b"k", b"new", PutOptions::create()).await;
        assert!(put.unwrap().is_stored());
    });
}

#[test]
fn w8_a_sweep_that_another_handle_replaced_is_fenced_off() {
    let (_folder, path) = fresh();
    let clock = ManualClock::new(START);
    let (store, other) = (open_at(&path, &clock), open_at(&path, &clock));
    block_on(async {
        let first = store.sweep_begin(TTL).await.unwrap().unwrap();
        assert_eq!(other.sweep_begin(TTL).await.unwrap(), None);
        assert_eq!(store.sweep_begin(TTL).await.unwrap(), None, "nor again");
        assert!(other.sweep_extend(first, TTL * 2).await.unwrap());
        clock.advance(TTL);
        stage(&store, &["k"]).await;
        let claims = store.window_claim(START, TTL * 9, 1).await.unwrap();
        clock.advance(TTL);
        let second = other.sweep_begin(TTL).await.unwrap().unwrap();
        assert!(second > first);
        assert!(!store.sweep_extend(first, TTL).await.unwrap());
        assert!(!store.sweep_end(first).await.unwrap());
        let refused = [
            store.window_mark(&claims, Some(first)).await,
            store.window_finish(&claims, Some(first)).await,
            store.window_delete(&claims, Some(first)).await,
            store.window_mark(&[], Some(first)).await,
        ];
        for answer in refused {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::LeaseLost);
        }
        let row = store.window_info(b"k").await.unwrap().unwrap();
        assert!(!row.reclaiming);
        let answers = other.window_delete(&claims, Some(second)).await.unwrap();
        assert_eq!(answers, [Reclaim::Absent]);
        assert!(other.sweep_end(second).await.unwrap());
        assert!(store.sweep_begin(TTL).await.unwrap().is_some());
    });
}

/// Waiting, marked and claimed rows stand in three indexes; a listing and a claim merge them.
#[test]
fn w5_w8_rows_of_every_kind_come_in_one_order() {
    let (_folder, path) = fresh();
    let clock = ManualClock::new(START);
    let store = open_at(&path, &clock);
    let at = |nanos: i64| Timestamp::from_nanos(START.as_nanos() - 10 + nanos);
    let rows: Vec<Candidate> = (0..9)
        .map(|n| Candidate {
            key: key(&format!("k{}", (n * 5) % 9)),
            visible_after: at(n / 2),
        })
        .collect();
    let mut order: Vec<(Timestamp, Key<'static>)> = rows
        .iter()
        .map(|row| (row.visible_after, row.key.clone()))
        .collect();
    order.sort();
    block_on(async {
        store.window_stage(&rows, Restage::Move).await.unwrap();
        let claims = claim(&store).await;
        let third = |n: usize| -> Vec<Claim> {
            let every = claims.iter().enumerate().filter(|(i, _)| i % 3 == n);
            every.map(|(_, claim)| claim.clone()).collect()
        };
        // A third marked, a third put back where they were; then all lapse.
        store.window_mark(&third(0), None).await.unwrap();
        for back in third(1) {
            let due = back.visible_after;
            assert_eq!(store.window_requeue(&[back], due).await.unwrap(), 1);
        }
        let stats = store.window_stats(at(1)).await.unwrap();
        assert_eq!((stats.rows, stats.due, stats.claimed), (9, 4, 6));
        assert_eq!((stats.reclaiming, stats.requeued), (3, 3));
        assert_eq!(stats.oldest, Some(at(0)));
        clock.advance(TTL);
        let stats = store.window_stats(at(1)).await.unwrap();
        assert_eq!((stats.rows, stats.due, stats.claimed), (9, 4, 0));

        // The two oldest are claimed anew: a marked one and one that waits.
        let again = store.window_claim(START, TTL, 2).await.unwrap();
        let keys = |claims: &[Claim]| -> Vec<_> {
            let each = claims.iter();
            each.map(|claim| (claim.visible_after, claim.key.clone()))
                .collect()
        };
        assert_eq!(keys(&again), order[..2]);
        assert_eq!(
            again.iter().map(|c| c.reclaiming).collect::<Vec<_>>(),
            [true, false]
        );
        assert_eq!(again.iter().map(|c| c.requeues).collect::<Vec<_>>(), [0, 1]);

        let mut listed: Vec<WindowRow> = Vec::new();
        loop {
            let page = store.window_list(listed.last(), 2).await.unwrap();
            assert!(page.len() <= 2);
            if page.is_empty() {
                break;
            }
            listed.extend(page);
        }
        let shown: Vec<_> = listed
            .iter()
            .map(|row| (row.visible_after, row.key.clone()))
            .collect();
        assert_eq!(shown, order);
        assert_eq!(listed[0].claimed_until, Some(again[0].until));
        assert_eq!(listed[4].claimed_until, None, "put back");
        assert_eq!(listed[5].claimed_until, Some(claims[5].until), "lapsed");
        for row in &listed {
            let info = store.window_info(row.key.as_bytes()).await.unwrap();
            assert_eq!(info.as_ref(), Some(row));
        }

        // Claims that others found lapsed did not become void by it.
        let answers = store.window_mark(&claims, None).await.unwrap();
        assert_eq!(answers[2], Reclaim::Lapsed);
        assert_eq!(answers[4], Reclaim::Voided, "put back");

        // Marked rows are passed over.
        let taken = store.window_take(START, None).await.unwrap();
        assert_eq!(taken.len(), 9 - 3 - 1);
        let rest = claim(&store).await;
        assert_eq!(keys(&rest), [order[3].clone(), order[6].clone()]);
        assert!(rest.iter().all(|claim| claim.reclaiming));
    });
    assert_intact(&path);
}

/// More than one transaction takes.
#[test]
fn w8_very_many_claims_in_one_call() {
    const ROWS: usize = 20_001;
    let (_folder, path) = fresh();
    let store = open_at(&path, &ManualClock::new(START));
    let rows: Vec<Candidate> = (0..ROWS).map(|n| due(&format!("{n:06}"))).collect();
    block_on(async {
        store.window_stage(&rows, Restage::Move).await.unwrap();
        store
            .put(b"020000", b"v", PutOptions::replace())
            .await
            .unwrap();
        let claims = claim(&store).await;
        assert_eq!(claims.len(), ROWS);
        let answers = store.window_finish(&claims, None).await.unwrap();
        assert_eq!(answers, vec![Reclaim::Unmarked; ROWS]);
        let answers = store.window_mark(&claims, None).await.unwrap();
        assert_eq!(answers, vec![Reclaim::Marked; ROWS]);
        let answers = store.window_finish(&claims, None).await.unwrap();
        assert_eq!(answers[..ROWS - 1], vec![Reclaim::Absent; ROWS - 1]);
        assert_eq!(answers[ROWS - 1], Reclaim::Deleted { bytes: 1 });
        let answers = store.window_finish(&claims, None).await.unwrap();
        assert_eq!(answers, vec![Reclaim::Voided; ROWS]);
        assert_eq!(store.window_stats(START).await.unwrap().rows, 0);
    });
}
