//! Several processes on one file.

use std::collections::BTreeSet;

use alkstore::{
    Candidate, EngineWindowState as _, Entries as _, Key, Lifecycle as _, Locks as _, PutOptions,
    Reclaim, Restage,
};

use crate::support::{assert_intact, block_on, fresh, open, role, say, spawn, Process, TTL};

const PROCESSES: usize = 4;

#[test]
fn c2_k9_many_processes_open_an_empty_file_at_once() {
    const TEST: &str = "processes::c2_k9_many_processes_open_an_empty_file_at_once";
    if let Some((path, me)) = role() {
        let store = open(&path);
        block_on(async {
            let lock = store.try_lock("first", &me, TTL).await.unwrap();
            let put = store
                .put(b"first", b"", PutOptions::create())
                .await
                .unwrap();
            say(format_args!("{} {}", lock.is_some(), put.is_stored()));
            store.close().await.unwrap();
        });
        return;
    }
    for _ in 0..5 {
        let (_folder, path) = fresh();
        let children: Vec<Process> = (0..8)
            .map(|n| spawn(TEST, &path, &format!("p{n}")))
            .collect();
        let said: Vec<String> = children.into_iter().flat_map(Process::finish).collect();
        let count = |part: usize| {
            said.iter()
                .filter(|line| line.split(' ').nth(part) == Some("true"))
                .count()
        };
        assert_eq!((said.len(), count(0), count(1)), (8, 1, 1), "{said:?}");
        assert_intact(&path);
    }
}

/// A critical section that would show any overlap: a file beside the store is read and written back, one higher.
#[test]
fn l4_l10_processes_exclude_each_other() {
    const TEST: &str = "processes::l4_l10_processes_exclude_each_other";
    const ROUNDS: usize = 100;
    if let Some((path, me)) = role() {
        let store = open(&path);
        let counter = path.with_extension("counter");
        block_on(async {
            let mut done = 0;
            while done < ROUNDS {
                let Some(lock) = store.try_lock("section", &me, TTL).await.unwrap() else {
                    continue;
                };
                let count: usize = std::fs::read_to_string(&counter).unwrap().parse().unwrap();
                std::fs::write(&counter, (count + 1).to_string()).unwrap();
                say(lock.token());
                assert!(lock.release().await.unwrap());
                done += 1;
            }
        });
        return;
    }
    let (_folder, path) = fresh();
    let counter = path.with_extension("counter");
    std::fs::write(&counter, "0").unwrap();
    let children: Vec<Process> = (0..PROCESSES)
        .map(|n| spawn(TEST, &path, &format!("p{n}")))
        .collect();
    let mut tokens = BTreeSet::new();
    for child in children {
        let mine: Vec<u64> = child.finish().iter().map(|t| t.parse().unwrap()).collect();
        assert!(mine.is_sorted(), "{mine:?}");
        tokens.extend(mine);
    }
    assert_eq!(tokens.len(), PROCESSES * ROUNDS, "no token twice");
    let count = std::fs::read_to_string(&counter).unwrap();
    assert_eq!(
        count,
        (PROCESSES * ROUNDS).to_string(),
        "no two inside at once"
    );
    assert_intact(&path);
}

#[test]
fn r18_processes_take_disjoint_sets_and_leave_nothing() {
    const TEST: &str = "processes::r18_processes_take_disjoint_sets_and_leave_nothing";
    const KEYS: usize = 2_000;
    if let Some((path, how)) = role() {
        let store = open(&path);
        block_on(async {
            loop {
                let now = store.now().await.unwrap();
                let keys: Vec<_> = if how == "take" {
                    let taken = store.window_take(now, Some(10)).await.unwrap();
                    taken.into_iter().map(|row| row.key).collect()
                } else {
                    let claims = store.window_claim(now, TTL, 10).await.unwrap();
                    if how == "claim" {
                        assert_eq!(store.window_settle(&claims).await.unwrap(), claims.len());
                    } else {
                        let marked = store.window_mark(&claims, None).await.unwrap();
                        assert!(marked.iter().all(|answer| *answer == Reclaim::Marked));
                        let gone = store.window_finish(&claims, None).await.unwrap();
                        assert!(gone.iter().all(|answer| *answer == Reclaim::Absent));
                    }
                    claims.into_iter().map(|claim| claim.key).collect()
                };
                assert!(keys.len() <= 10);
                // A file that is busy must never look like a window where nothing is due.
                if keys.is_empty() {
                    break;
                }
                for key in keys {
                    say(String::from_utf8_lossy(key.as_bytes()));
                }
            }
        });
        return;
    }
    for how in ["take", "claim", "mark"] {
        let (_folder, path) = fresh();
        let store = open(&path);
        block_on(async {
            let visible_after = store.now().await.unwrap();
            let rows: Vec<Candidate> = (0..KEYS)
                .map(|n| Candidate {
                    key: Key::new(format!("{n}").into_bytes()).unwrap(),
                    visible_after,
                })
                .collect();
            store.window_stage(&rows, Restage::Move).await.unwrap();
        });
        let children: Vec<Process> = (0..PROCESSES).map(|_| spawn(TEST, &path, how)).collect();
        let said: Vec<String> = children.into_iter().flat_map(Process::finish).collect();
        let distinct: BTreeSet<&String> = said.iter().collect();
        assert_eq!((said.len(), distinct.len()), (KEYS, KEYS), "{how}");
        assert_intact(&path);
    }
}
