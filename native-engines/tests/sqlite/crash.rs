//! A process that is killed while it writes.

use std::collections::HashMap;

use alkstore::{Entries as _, Lifecycle as _, Locks as _, PutOptions};
use alkstore_native::sqlite::{SqliteOptions, SqliteStore};

use crate::support::{assert_intact, block_on, fresh, role, say, spawn, TTL};

const KILLS: usize = 300;

/// The child acknowledges each write as its caller learns of it. After every kill, what was acknowledged last is there,
/// unless something later overwrote it, and no token or version was given out twice.
#[test]
fn l10_killed_in_mid_write_nothing_acknowledged_is_lost() {
    const TEST: &str = "crash::l10_killed_in_mid_write_nothing_acknowledged_is_lost";
    if let Some((path, round)) = role() {
        // Every other time, the releases wait for nothing.
        let relaxed = round.parse::<usize>().is_ok_and(|round| round % 2 == 1);
        let options = SqliteOptions::new().relaxed_release(relaxed);
        write_for_ever(&block_on(options.open(path)).unwrap(), &round);
    }
    let (_folder, path) = fresh();
    let mut highest = 0;
    let mut acknowledged: HashMap<String, u64> = HashMap::new();
    let mut total = 0;
    for round in 0..KILLS {
        let mut child = spawn(TEST, &path, &round.to_string());
        // Another number of writes each time; where in the next write the signal strikes is up to the scheduler.
        for _ in 0..=(round * 7) % 23 {
            let line = child.line().expect("the child writes for ever");
            let (what, number) = line.split_once(' ').unwrap();
            let number: u64 = number.parse().unwrap();
            assert!(number > highest, "{line} after {highest}, round {round}");
            highest = number;
            acknowledged.insert(what.to_owned(), number);
            total += 1;
        }
        child.kill();
        // What it said before the signal struck counts as well.
        while let Some(line) = child.line() {
            let Some((what, Ok(number))) = line.split_once(' ').map(|(w, n)| (w, n.parse::<u64>()))
            else {
                break;
            };
            assert!(number > highest, "{line} after {highest}, round {round}");
            highest = number;
            acknowledged.insert(what.to_owned(), number);
            total += 1;
        }
        assert_intact(&path);
        let store = block_on(SqliteStore::open(&path)).unwrap();
        block_on(async {
            for (what, number) in &acknowledged {
                let found = if let Some(key) = what.strip_prefix("entry:") {
                    let entry = store.get(key.as_bytes()).await.unwrap().expect(what);
                    assert_eq!(&*entry.value, expected(key).as_bytes());
                    entry.version.get()
                } else if let Some(name) = what.strip_prefix("lock:") {
                    let info = store.lock_info(name).await.unwrap().expect(what);
                    info.token.get()
                } else {
                    continue;
                };
                assert!(
                    found >= *number,
                    "{what}: {found} < {number}, round {round}"
                );
                // What was not acknowledged may be there, but then it is ahead of all that was.
                highest = highest.max(found);
            }
            store.close().await.unwrap();
        });
    }
    assert!(total > KILLS, "{total} writes were acknowledged");
}

/// Large enough that a write takes several pages.
fn expected(key: &str) -> String {
    key.repeat(1_000)
}

fn write_for_ever(store: &SqliteStore, round: &str) -> ! {
    block_on(async {
        for n in 0_usize.. {
            let key = format!("k{}", n % 5);
            let value = expected(&key);
            let put = store
                .put(key.as_bytes(), value.as_bytes(), PutOptions::replace())
                .await
                .unwrap();
            say(format_args!("entry:{key} {}", put.version().unwrap()));
            let lock = store
                .try_lock("passing", "any", TTL)
                .await
                .unwrap()
                .unwrap();
            // Where the one before was killed inside, its grant comes back, and with it a token that is not new.
            if n > 0 {
                say(format_args!("token {}", lock.token()));
            }
            assert!(lock.release().await.unwrap());
            if n == 0 {
                let name = format!("kept/{round}");
                let lock = store.try_lock(&name, round, TTL).await.unwrap().unwrap();
                say(format_args!("lock:{name} {}", lock.token()));
            }
        }
    });
    std::process::exit(0)
}
