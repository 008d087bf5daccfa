//! Many clients at a few names, with leases shorter than their work, on the server's own clock: no two live grants,
//! tokens in the order of the grants, and a refusal only while another's lease is live.
//!
//! Every call is recorded with the instants before and after it, by the clock of the machine, which is the server's
//! too. What is judged is what those instants leave no doubt about.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::unwrap_used)] // what a test cannot go on without

mod postgres_support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use alkstore::Locks;
use postgres_support::{block_on, Place};

const CLIENTS: u64 = 16;
const NAMES: u64 = 8;
const ROUNDS: u64 = 500;

/// A grant and what became of it.
#[derive(Debug)]
struct Grant {
    owner: String,
    /// When the store decided, exactly.
    granted: i64,
    /// Deadlines, each with the instants around the call that set it.
    deadlines: Vec<(i64, i64, i64)>,
    /// The instants around a release that freed it.
    released: Option<(i64, i64)>,
}

impl Grant {
    /// Whether it may have been live somewhen in `from..=to`.
    fn may_be_live(&self, from: i64, to: i64) -> bool {
        self.deadlines
            .iter()
            .enumerate()
            .any(|(at, (begun, _, deadline))| {
                // A deadline may hold from the begin of the call that sets it to the end of the one that moves it.
                let replaced = self.deadlines.get(at + 1).map_or(i64::MAX, |next| next.1);
                let freed = self.released.map_or(i64::MAX, |released| released.1);
                *begun <= to && from <= *deadline.min(&replaced).min(&freed)
            })
    }

    /// Whether it was live at `instant` beyond doubt.
    fn must_be_live(&self, instant: i64) -> bool {
        self.deadlines
            .iter()
            .enumerate()
            .any(|(at, (_, ended, deadline))| {
                let replaced = self.deadlines.get(at + 1).map_or(i64::MAX, |next| next.0);
                let freed = self.released.map_or(i64::MAX, |released| released.0);
                *ended <= instant && instant < *deadline.min(&replaced).min(&freed)
            })
    }
}

#[derive(Debug, Default)]
struct Record {
    grants: BTreeMap<(u64, u64), Grant>,
    /// Name, owner and the instants around the call.
    refusals: Vec<(u64, String, i64, i64)>,
}

#[test]
fn l3_l4_l10_many_clients_at_few_names() {
    // The machine's clock is only the server's on this machine.
    let Some(cluster) = alkstore_tests::postgres::cluster(&[]) else {
        return;
    };
    let place = Place::on(&cluster.url());
    let record = block_on(async {
        let record = Arc::new(Mutex::new(Record::default()));
        let mut clients = Vec::new();
        for client in 0..CLIENTS {
            let store = place.open(place.options().pool_size(1)).await;
            clients.push(tokio::spawn(client_rounds(
                store,
                client,
                Arc::clone(&record),
            )));
        }
        for client in clients {
            client.await.unwrap();
        }
        Arc::into_inner(record).unwrap().into_inner().unwrap()
    });

    let mut names: BTreeMap<u64, Vec<(u64, &Grant)>> = BTreeMap::new();
    for ((name, token), grant) in &record.grants {
        names.entry(*name).or_default().push((*token, grant));
    }
    for grants in names.values() {
        for pair in grants.windows(2) {
            let ((token, before), (next, after)) = (pair[0], pair[1]);
            assert!(
                before.granted <= after.granted,
                "{token} {before:?}, {next} {after:?}"
            );
            assert!(
                !before.must_be_live(after.granted),
                "{token} {before:?}, {next} {after:?}"
            );
        }
    }
    for (name, owner, from, to) in &record.refusals {
        let held = names[name]
            .iter()
            .any(|(_, grant)| grant.owner != *owner && grant.may_be_live(*from, *to));
        assert!(
            held,
            "{owner} was refused {name} in {from}..{to} for nothing"
        );
    }
    // A run in which nobody met anybody shows nothing.
    assert!(
        record.grants.len() > 1_000,
        "{} grants",
        record.grants.len()
    );
    assert!(
        record.refusals.len() > 1_000,
        "{} refusals",
        record.refusals.len()
    );
}

async fn client_rounds(store: impl Locks, client: u64, record: Arc<Mutex<Record>>) {
    let mut random = client + 1;
    for round in 0..ROUNDS {
        let name = next(&mut random) % NAMES;
        // A fresh owner each time, so that every grant is a new one.
        let owner = format!("{client}-{round}");
        let ttl = Duration::from_micros(500 + next(&mut random) % 8_000);
        let begun = now();
        let lock = store
            .try_lock(&format!("n{name}"), &owner, ttl)
            .await
            .unwrap();
        let ended = now();
        let Some(mut lock) = lock else {
            record
                .lock()
                .unwrap()
                .refusals
                .push((name, owner, begun, ended));
            continue;
        };
        let deadline = lock.deadline().unwrap().as_nanos();
        let mut grant = Grant {
            owner,
            granted: deadline - i64::try_from(ttl.as_nanos()).unwrap(),
            deadlines: vec![(begun, ended, deadline)],
            released: None,
        };
        assert!(
            (begun..=ended).contains(&grant.granted),
            "the clocks are one"
        );
        let key = (name, lock.token().get());
        for _ in 0..next(&mut random) % 3 {
            // Longer or shorter.
            let ttl = Duration::from_micros(200 + next(&mut random) % 8_000);
            let begun = now();
            if lock.renew(ttl).await.unwrap() {
                grant
                    .deadlines
                    .push((begun, now(), lock.deadline().unwrap().as_nanos()));
            }
        }
        if next(&mut random) % 4 > 0 {
            let begun = now();
            if lock.release().await.unwrap() {
                grant.released = Some((begun, now()));
            }
        }
        let twice = record.lock().unwrap().grants.insert(key, grant);
        assert!(twice.is_none(), "token {key:?} was granted twice");
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    // The server's clock shows microseconds.
    i64::try_from(since.as_micros()).unwrap() * 1_000
}

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
