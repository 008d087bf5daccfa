//! The garbage-collection window. Lists of keys come in one by one and are then worked on together.

use alkstore::{validate, Candidate, Claim, Key, Millis, Result, Timestamp};
use js_sys::Uint8Array;
use wasm_bindgen::prelude::{wasm_bindgen, JsValue};

use crate::boundary::{
    answer, first, from_revision, instant, limit, number, operate, revision, rows, Store,
};
use crate::changes::restage;
use crate::lifecycle::count;

/// Begins a list of keys.
#[wasm_bindgen]
pub fn begin_batch() {
    operate((), |store| {
        store.batch = Vec::new();
        Ok(())
    });
}

/// Adds a key, with its instant or the number of its claim.
#[wasm_bindgen]
pub fn batch_key(key_bytes: u32, with: f64) -> f64 {
    answer(|store| {
        first(key_bytes, |key| {
            store.batch.push((Key::new(key)?.into_owned(), with));
            Ok(true)
        })
    })
}

/// Adds the keys of the list, each due at its instant.
#[wasm_bindgen]
pub fn window_stage(keep: bool, now: f64) -> f64 {
    answer(|store| {
        let batch = batch(store)?;
        let candidate = |(key, at)| {
            Ok(Candidate {
                key,
                visible_after: instant(at)?,
            })
        };
        let candidates: Vec<_> = batch.into_iter().map(candidate).collect::<Result<_>>()?;
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
        let keys: Vec<_> = batch(store)?.into_iter().map(|(key, _)| key).collect();
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
        |row, push| {
            push(Uint8Array::from(row.key.as_bytes()).into());
            push(row.visible_after.as_millis().into());
        },
    )
}

/// Hands out what is due, as key, instant, number of the claim and its deadline.
#[wasm_bindgen]
pub fn window_claim(due: f64, lease: f64, at_most: f64, now: f64) -> JsValue {
    rows(
        |store| {
            let lease = validate::duration(&store.gate, Millis(lease))?;
            let (due, now) = (instant(due)?, instant(now)?);
            store.state.window_claim(due, lease, limit(at_most), now)
        },
        |row, push| {
            push(Uint8Array::from(row.key.as_bytes()).into());
            push(row.visible_after.as_millis().into());
            push(from_revision(row.id).into());
            push(row.until.as_millis().into());
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

fn batch(store: &mut Store) -> Result<Vec<(Key<'static>, f64)>> {
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
    batch(store)?.into_iter().map(claim).collect()
}
