//! Sweeps in memory against taking the same entries out of a map by hand.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use alkstore::{
    sweep as sweep_store, Candidate, HookError, HookFuture, Key, LivenessSource, PutOptions, Restage, SweepOptions,
    Timestamp,
};
use alkstore_mem::MemStore;
use futures_executor::block_on;
use measure::Table;

use crate::window::candidates;

/// References to keys that are not in the window, so that all of it goes.
struct References(HashSet<Vec<u8>>);

impl LivenessSource for References {
    fn live<'a>(&'a self, keys: &'a [Key<'a>]) -> HookFuture<'a, Result<Vec<bool>, HookError>> {
        Box::pin(async { Ok(keys.iter().map(|key| self.0.contains(key.as_bytes())).collect()) })
    }
}

pub fn sweep(table: &mut Table) {
    let sizes: &[usize] = if table.full() { &[100_000, 1_000_000] } else { &[100_000] };
    for &rows in sizes {
        let all = candidates(rows);
        let references = References((0..rows).map(|n: usize| n.to_be_bytes().to_vec()).collect());
        for asks in [false, true] {
            let how = if asks { "asking a source" } else { "the window alone" };
            let peers = [("removal by key from a map behind a mutex", None), ("clearing such a map", None)];
            table.bulk(&format!("sweep {rows}, {how}"), rows, &peers, 3, || {
                let store = filled(&all);
                let options = if asks {
                    SweepOptions::new().source(&references)
                } else {
                    SweepOptions::new().window_decides()
                };
                let begun = Instant::now();
                let report = block_on(sweep_store(&store, options)).unwrap();
                let took = begun.elapsed().as_secs_f64();
                assert_eq!(report.deleted, rows as u64);
                let map = by_hand(&all);
                let begun = Instant::now();
                for row in &all {
                    assert!(map.lock().unwrap().remove(row.key.as_bytes()).is_some());
                }
                let removed = begun.elapsed().as_secs_f64();
                let map = by_hand(&all);
                let begun = Instant::now();
                map.lock().unwrap().clear();
                vec![took, removed, begun.elapsed().as_secs_f64()]
            });
        }
    }
}

fn filled(all: &[Candidate]) -> MemStore {
    let store = MemStore::open();
    for row in all {
        store.put(row.key.as_bytes(), &[7; 100], &PutOptions::create()).unwrap();
    }
    let due: Vec<_> = all
        .iter()
        .map(|row| Candidate {
            key: row.key.clone(),
            visible_after: Timestamp::from_nanos(0),
        })
        .collect();
    store.window_stage(&due, Restage::Move).unwrap();
    store
}

type Map = Mutex<hashbrown::HashMap<Vec<u8>, Arc<[u8]>>>;

fn by_hand(all: &[Candidate]) -> Map {
    let rows = all.iter().map(|row| (row.key.as_bytes().to_vec(), Arc::from([7; 100])));
    Mutex::new(rows.collect())
}
