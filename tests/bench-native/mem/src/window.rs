//! The window in memory against what one writes by hand: a map from keys to instants, and a tree or a heap of both.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use alkstore::{Candidate, Key, Restage, Timestamp};
use alkstore_mem::MemStore;
use hashbrown::HashMap;
use measure::{child, peak, Table};

pub const MEMORY: &str = "--window-memory";
/// The latest instant of [`candidates`].
const NOW: i64 = 1_000_000;

/// Keys as the hashes of contents are: 32 bytes, in no order.
pub fn candidates(rows: usize) -> Vec<Candidate> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..rows)
        .map(|_| {
            let key: Vec<u8> = (0..4).flat_map(|_| next().to_be_bytes()).collect();
            Candidate {
                key: Key::new(key).unwrap(),
                visible_after: Timestamp::from_nanos((next() % NOW as u64) as i64),
            }
        })
        .collect()
}

type Bytes = Arc<[u8]>;

#[derive(Default)]
struct Tree(Mutex<(HashMap<Bytes, i64>, BTreeSet<(i64, Bytes)>)>);

impl Tree {
    fn stage(&self, rows: &[Candidate]) {
        let (instants, order) = &mut *self.0.lock().unwrap();
        for row in rows {
            let (key, at) = (Bytes::from(row.key.as_bytes()), row.visible_after.as_nanos());
            if let Some(before) = instants.insert(key.clone(), at) {
                order.remove(&(before, key.clone()));
            }
            order.insert((at, key));
        }
    }

    fn take(&self, limit: usize) -> Vec<(Bytes, i64)> {
        let (instants, order) = &mut *self.0.lock().unwrap();
        let mut taken = Vec::new();
        while taken.len() < limit && order.first().is_some_and(|first| first.0 <= NOW) {
            if let Some((at, key)) = order.pop_first() {
                instants.remove(&key);
                taken.push((key, at));
            }
        }
        taken
    }
}

/// Rows that moved stay in the heap, and are passed over when they come.
#[derive(Default)]
struct Heap(Mutex<(HashMap<Bytes, i64>, BinaryHeap<Reverse<(i64, Bytes)>>)>);

impl Heap {
    fn stage(&self, rows: &[Candidate]) {
        let (instants, order) = &mut *self.0.lock().unwrap();
        for row in rows {
            let (key, at) = (Bytes::from(row.key.as_bytes()), row.visible_after.as_nanos());
            if instants.insert(key.clone(), at) != Some(at) {
                order.push(Reverse((at, key)));
            }
        }
    }

    fn take(&self, limit: usize) -> Vec<(Bytes, i64)> {
        let (instants, order) = &mut *self.0.lock().unwrap();
        let mut taken = Vec::new();
        while taken.len() < limit && order.peek().is_some_and(|first| first.0 .0 <= NOW) {
            if let Some(Reverse((at, key))) = order.pop() {
                if instants.get(&key) == Some(&at) {
                    instants.remove(&key);
                    taken.push((key, at));
                }
            }
        }
        taken
    }
}

const TREE: &str = "map and BTreeSet behind a mutex";
const HEAP: &str = "map and BinaryHeap behind a mutex";

pub fn window(table: &mut Table) {
    let sizes: &[usize] = if table.full() { &[100_000, 1_000_000] } else { &[100_000] };
    for &rows in sizes {
        let all = candidates(rows);
        let rounds = 5;
        let timed = |work: &mut dyn FnMut()| {
            let begun = Instant::now();
            work();
            begun.elapsed().as_secs_f64()
        };
        let now = Timestamp::from_nanos(NOW);
        table.bulk(&format!("stage {rows}"), rows, &[(TREE, None), (HEAP, None)], rounds, || {
            let (own, tree, heap) = (MemStore::open(), Tree::default(), Heap::default());
            vec![
                timed(&mut || own.window_stage(&all, Restage::Move).unwrap()),
                timed(&mut || tree.stage(&all)),
                timed(&mut || heap.stage(&all)),
            ]
        });
        for limit in [rows, 1_000] {
            let how = if limit == rows { "all at once" } else { "in batches of 1000" };
            table.bulk(&format!("take {rows} {how}"), rows, &[(TREE, None), (HEAP, None)], rounds, || {
                let (own, tree, heap) = (MemStore::open(), Tree::default(), Heap::default());
                own.window_stage(&all, Restage::Move).unwrap();
                tree.stage(&all);
                heap.stage(&all);
                let drain = |take: &dyn Fn() -> usize| {
                    let mut taken = 0;
                    timed(&mut || {
                        while taken < rows {
                            let some = take();
                            assert!(some > 0);
                            taken += some;
                        }
                    })
                };
                vec![
                    drain(&|| own.window_take(now, Some(limit)).unwrap().len()),
                    drain(&|| tree.take(limit).len()),
                    drain(&|| heap.take(limit).len()),
                ]
            });
        }
        let [own, tree, heap] = ["own", "tree", "heap"].map(|who| {
            let bytes = child(&[MEMORY, who, &rows.to_string()]);
            // A key of 32 bytes and an instant.
            (bytes[0] / rows as f64 - 40.0, bytes[1] / rows as f64 - 40.0)
        });
        let note = format!("over key and instant; BTreeSet {:.0}, BinaryHeap {:.0}", tree.0, heap.0);
        table.figure(&format!("bytes a row of the window, {rows}"), "payload", own.0, None, &note);
        let note = format!("the process, rows included; BTreeSet {:.0}, BinaryHeap {:.0}", tree.1, heap.1);
        table.figure(&format!("peak bytes a row while {rows} are taken at once"), "payload", own.1, None, &note);
    }
}

/// What a window of so many rows takes, and what it takes at the peak when all are taken at once.
pub fn print_memory(who: &str, rows: &str) -> std::io::Result<()> {
    let rows: usize = rows.parse().map_err(std::io::Error::other)?;
    let all = candidates(rows);
    let (own, tree, heap) = (MemStore::open(), Tree::default(), Heap::default());
    let staged = measure::resident();
    match who {
        "own" => own.window_stage(&all, Restage::Move).unwrap(),
        "tree" => tree.stage(&all),
        _ => heap.stage(&all),
    }
    let kept = measure::resident() - staged;
    let peak = peak(|| {
        let taken = match who {
            "own" => own.window_take(Timestamp::from_nanos(NOW), None).unwrap().len(),
            "tree" => tree.take(rows).len(),
            _ => heap.take(rows).len(),
        };
        assert_eq!(taken, rows);
    });
    println!("{kept} {}", kept + peak);
    Ok(())
}
