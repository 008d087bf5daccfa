//! The garbage-collection window. Lists of keys come in one by one and are then worked on together.

use alkstore::{validate, Candidate, Claim, Key, Millis, Reclaim, Result, Timestamp, WindowRow};
use wasm_bindgen::prelude::{wasm_bindgen, JsValue};

use crate::boundary::{
    answer, first, from_maybe_instant, from_revision, instant, leave, limit, maybe_revision,
    number, one_or_both, operate, revision, rows, Batch, Cells, Store,
};
use crate::changes::restage;
use crate::lifecycle::count;

/// Begins a list of keys.
#[wasm_bindgen]
pub fn begin_batch() {
    operate((), |store| {
        store.batch = Default::default();
        Ok(())
    });
}

/// Adds a key, with its instant or the number of its claim.
#[wasm_bindgen]
pub fn batch_key(key_bytes: u32, with: f64) -> f64 {
    answer(|store| {
        first(key_bytes, |key| {
            store.batch.0.push(Key::new(key)?.into_owned());
            store.batch.1.push(with);
            Ok(true)
        })
    })
}

/// Adds the keys of the list, each due at its instant.
#[wasm_bindgen]
pub fn window_stage(keep: bool, now: f64) -> f64 {
    answer(|store| {
        let (keys, instants) = batch(store)?;
        let candidate = |(key, at)| {
            Ok(Candidate {
                key,
                visible_after: instant(at)?,
            })
        };
        let candidates = keys.into_iter().zip(instants).map(candidate);
        let candidates: Vec<_> = candidates.collect::<Result<_>>()?;
        store
            .state
            .window_stage(&candidates, restage(keep), instant(now)?)?;
        Ok(true)
    })
}

/// Takes the keys of the list out; answers how many were there.
#[wasm_bindgen]
pub fn window_unstage() -> f64 {
    number(|store| {
        let (keys, _) = batch(store)?;
        Ok(count(store.state.window_unstage(&keys)))
    })
}

/// Removes and returns what is due, as key and instant.
#[wasm_bindgen]
pub fn window_take(due: f64, at_most: f64, now: f64) -> JsValue {
    rows(
        |store| {
            store.gate.check()?;
            let (due, now) = (instant(due)?, instant(now)?);
            Ok(store.state.window_take(due, Some(limit(at_most)), now))
        },
        |row, cells| {
            cells.key(&row.key);
            cells.number(row.visible_after.as_millis());
        },
    )
}

/// Hands out what is due, as key, instant, number of the claim, its deadline, whether it is being reclaimed, and how
/// often it was put back.
#[wasm_bindgen]
pub fn window_claim(due: f64, lease: f64, at_most: f64, now: f64) -> JsValue {
    rows(
        |store| {
            let lease = validate::duration(&store.gate, Millis(lease))?;
            let (due, now) = (instant(due)?, instant(now)?);
            store.state.window_claim(due, lease, limit(at_most), now)
        },
        |row, cells| {
            cells.key(&row.key);
            cells.number(row.visible_after.as_millis());
            cells.number(from_revision(row.id));
            cells.number(row.until.as_millis());
            cells.flag(row.reclaiming);
            cells.number(row.requeues.into());
        },
    )
}

/// Removes the keys of the claims in the list that still stand; answers how many.
#[wasm_bindgen]
pub fn window_settle(now: f64) -> f64 {
    number(|store| {
        let claims = claims(store)?;
        Ok(count(store.state.window_settle(&claims, instant(now)?)))
    })
}

/// Puts the keys of the claims in the list that still stand back; answers how many.
#[wasm_bindgen]
pub fn window_requeue(visible_after: f64, now: f64) -> f64 {
    number(|store| {
        let claims = claims(store)?;
        let (at, now) = (instant(visible_after)?, instant(now)?);
        Ok(count(store.state.window_requeue(&claims, at, now)))
    })
}

/// Begins the deletion of the keys of the claims in the list (0), finishes it (1), or does both in one step (2). The
/// epoch may be 0. Answers what became of each: see [`flatten_outcome`].
#[wasm_bindgen]
pub fn window_reclaim(how: u32, epoch: f64, now: f64) -> JsValue {
    rows(
        |store| {
            let claims = claims(store)?;
            let (fence, now) = (maybe_revision(epoch)?, instant(now)?);
            match how {
                0 => store.state.window_mark(&claims, fence, now),
                1 => store.state.window_finish(&claims, fence, now),
                _ => store.state.window_delete(&claims, fence, now),
            }
        },
        flatten_outcome,
    )
}

/// What deleting each key of the list would meet.
#[wasm_bindgen]
pub fn window_judge(now: f64) -> JsValue {
    rows(
        |store| {
            let (keys, _) = batch(store)?;
            Ok(store.state.window_judge(&keys, instant(now)?))
        },
        flatten_outcome,
    )
}

/// The rows of the window after the one of this key and instant, in the order in which they become due; see
/// [`flatten_row`].
#[wasm_bindgen]
pub fn window_list(after_bytes: u32, visible_after: f64, at_most: f64) -> JsValue {
    rows(
        |store| {
            one_or_both(0, after_bytes, |_, after| {
                let after = match after {
                    Some(key) => Some(row_at(store, Key::new(key)?, visible_after)?),
                    None => None,
                };
                store.gate.check()?;
                Ok(store.state.window_list(after.as_ref(), limit(at_most)))
            })
        },
        flatten_row,
    )
}

/// The row of a key; nothing where it is not in the window.
#[wasm_bindgen]
pub fn window_info(key_bytes: u32) -> JsValue {
    rows(
        |store| {
            first(key_bytes, |key| {
                let key = validate::key(&store.gate, key)?;
                Ok(store.state.window_info(&key).into_iter().collect())
            })
        },
        flatten_row,
    )
}

/// Leaves the numbers of rows, of those due, claimed, being reclaimed and put back, and the oldest instant, or NaN.
#[wasm_bindgen]
pub fn window_stats(due: f64, now: f64) -> f64 {
    answer(|store| {
        store.gate.check()?;
        let stats = store.state.window_stats(instant(due)?, instant(now)?);
        #[allow(clippy::cast_precision_loss)] // no count here reaches 2^53
        leave([
            stats.rows as f64,
            stats.due as f64,
            stats.claimed as f64,
            stats.reclaiming as f64,
            stats.requeued as f64,
            from_maybe_instant(stats.oldest),
        ]);
        Ok(true)
    })
}

/// Becomes the one sweep: its epoch, or 0 where there is another.
#[wasm_bindgen]
pub fn sweep_begin(ttl: f64, now: f64) -> f64 {
    number(|store| {
        let ttl = validate::duration(&store.gate, Millis(ttl))?;
        let epoch = store.state.sweep_begin(ttl, instant(now)?)?;
        Ok(epoch.map_or(0.0, from_revision))
    })
}

/// Extends a sweep that is the current one.
#[wasm_bindgen]
pub fn sweep_extend(epoch: f64, ttl: f64, now: f64) -> f64 {
    answer(|store| {
        let ttl = validate::duration(&store.gate, Millis(ttl))?;
        Ok(store
            .state
            .sweep_extend(revision(epoch)?, ttl, instant(now)?))
    })
}

/// Ends a sweep that is the current one.
#[wasm_bindgen]
pub fn sweep_end(epoch: f64) -> f64 {
    answer(|store| {
        store.gate.check()?;
        Ok(store.state.sweep_end(revision(epoch)?))
    })
}

/// The row to go on after. A number of milliseconds may be some nanoseconds off the row's own instant, by which the row
/// would be met again or its neighbours passed over: where the row is still there, its own instant counts.
fn row_at(store: &Store, key: Key<'_>, visible_after: f64) -> Result<WindowRow> {
    let at = instant(visible_after)?;
    let near = |row: &WindowRow| instant(row.visible_after.as_millis()).ok() == Some(at);
    Ok(match store.state.window_info(&key).filter(near) {
        Some(row) => row,
        None => WindowRow {
            key: key.into_owned(),
            visible_after: at,
            claimed_until: None,
            reclaiming: false,
            requeues: 0,
        },
    })
}

/// Key, instant, the deadline of its claim (or NaN), whether it is being reclaimed, how often it was put back.
fn flatten_row(row: &WindowRow, cells: &Cells) {
    cells.key(&row.key);
    cells.number(row.visible_after.as_millis());
    cells.number(from_maybe_instant(row.claimed_until));
    cells.flag(row.reclaiming);
    cells.number(row.requeues.into());
}

/// The bytes of the entry that was deleted, or minus the index in the table of `js/window.js`.
fn flatten_outcome(outcome: &Reclaim, cells: &Cells) {
    #[allow(clippy::cast_precision_loss)] // a value is far shorter than 2^53
    let number = match *outcome {
        Reclaim::Deleted { bytes } => bytes as f64,
        Reclaim::Marked => -1.0,
        Reclaim::Absent => -2.0,
        Reclaim::Unmarked => -3.0,
        Reclaim::Voided => -4.0,
        // Memory knows no pins and no references.
        _ => -5.0,
    };
    cells.number(number);
}

fn batch(store: &mut Store) -> Result<Batch> {
    let batch = std::mem::take(&mut store.batch);
    store.gate.check()?;
    Ok(batch)
}

/// The claims in the list. They are known by key and number; what else a claim tells is for its holder.
fn claims(store: &mut Store) -> Result<Vec<Claim>> {
    let claim = |(key, id)| {
        Ok(Claim {
            key,
            id: revision(id)?,
            visible_after: Timestamp::MIN,
            until: Timestamp::MIN,
            reclaiming: false,
            requeues: 0,
        })
    };
    let (keys, ids) = batch(store)?;
    keys.into_iter().zip(ids).map(claim).collect()
}
