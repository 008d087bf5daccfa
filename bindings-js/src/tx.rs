//! Transactions that a JavaScript function has open: core's overlay, by number.

use alkstore::{validate, Entry, Key, Overlay, PutMode, Result, Timestamp, TxPut};
use js_sys::Uint8Array;
use wasm_bindgen::prelude::{wasm_bindgen, JsValue};

use crate::boundary::{
    answer, first, from_revision, instant, invalid, leave, maybe_ttl, number, operate, put_mode,
    revision, text, Store,
};
use crate::changes::restage;
use crate::entries::committed;
use crate::value::JsBytes;

pub(crate) type Open = Overlay<JsBytes>;

/// Opens a transaction; answers its number.
#[wasm_bindgen]
pub fn tx_begin() -> f64 {
    number(|store| {
        store.gate.check()?;
        let id = store.next_tx;
        store.next_tx = id.wrapping_add(1);
        store.open.push((id, Overlay::default()));
        Ok(f64::from(id))
    })
}

/// What the transaction sees of a key: the value, and left behind its version or 0; `null` where there is none.
#[wasm_bindgen]
pub fn tx_get(id: u32, key_bytes: u32, now: f64) -> JsValue {
    operate(JsValue::FALSE, |store| {
        first(key_bytes, |key| {
            let key = Key::new(key)?;
            read(store, id, &key, instant(now)?)?;
            let Some(entry) = overlay(store, id)?.get(&key).flatten() else {
                return Ok(JsValue::NULL);
            };
            leave([entry.version.map_or(0.0, from_revision)]);
            Ok(entry.value.into_bytes().into())
        })
    })
}

/// Writes at the commit: 1, or 0 where it will not be stored, and left behind the version in the way, or 0.
#[wasm_bindgen]
#[allow(clippy::too_many_arguments)] // as for `put`
pub fn tx_put(
    id: u32,
    key_bytes: u32,
    value: Uint8Array,
    size: u32,
    create: bool,
    version: f64,
    has_ttl: bool,
    ttl: f64,
    now: f64,
) -> f64 {
    answer(|store| {
        first(key_bytes, |key| {
            let key = Key::new(key)?;
            validate::value(size as usize)?;
            let ttl = maybe_ttl(has_ttl, ttl)?;
            let mode = put_mode(create, version)?;
            if mode != PutMode::Replace {
                read(store, id, &key, instant(now)?)?;
            }
            store.gate.check()?;
            let put = overlay(store, id)?.put(&key, JsBytes::new(value, size), mode, ttl);
            Ok(match put {
                TxPut::Staged => true,
                TxPut::NotStored { current } => {
                    leave([current.map_or(0.0, from_revision)]);
                    false
                }
            })
        })
    })
}

/// Deletes at the commit; 0 where the transaction sees nothing.
#[wasm_bindgen]
pub fn tx_delete(id: u32, key_bytes: u32, now: f64) -> f64 {
    answer(|store| {
        first(key_bytes, |key| {
            let key = Key::new(key)?;
            read(store, id, &key, instant(now)?)?;
            Ok(overlay(store, id)?.delete(&key))
        })
    })
}

/// Stages a key at the commit.
#[wasm_bindgen]
pub fn tx_stage(id: u32, key_bytes: u32, visible_after: f64, keep: bool) -> f64 {
    answer(|store| {
        first(key_bytes, |key| {
            let key = Key::new(key)?;
            store.gate.check()?;
            let at = instant(visible_after)?;
            overlay(store, id)?.stage(&key, at, restage(keep));
            Ok(true)
        })
    })
}

/// Takes a key out of the window at the commit.
#[wasm_bindgen]
pub fn tx_unstage(id: u32, key_bytes: u32) -> f64 {
    answer(|store| {
        first(key_bytes, |key| {
            let key = Key::new(key)?;
            store.gate.check()?;
            overlay(store, id)?.unstage(&key);
            Ok(true)
        })
    })
}

/// Commits only if this grant is live then.
#[wasm_bindgen]
pub fn tx_guard(id: u32, name_bytes: u32, token: f64) -> f64 {
    answer(|store| {
        first(name_bytes, |name| {
            let name = validate::lock(&store.gate, text(name)?)?;
            overlay(store, id)?.guard(name, revision(token)?)?;
            Ok(true)
        })
    })
}

/// Commits, as [`commit_changes`](crate::changes::commit_changes) does.
#[wasm_bindgen]
pub fn tx_commit(id: u32, now: f64) -> JsValue {
    committed(|store| {
        store.gate.check()?;
        let changes = end(store, id)?.into_changeset()?;
        store.state.commit(changes, instant(now)?)
    })
}

/// Forgets a transaction. One that has ended already is no failure.
#[wasm_bindgen]
pub fn tx_rollback(id: u32) {
    operate((), |store| {
        store.open.retain(|(other, _)| *other != id);
        Ok(())
    });
}

fn overlay(store: &mut Store, id: u32) -> Result<&mut Open> {
    store
        .open
        .iter_mut()
        .find(|(other, _)| *other == id)
        .map(|(_, overlay)| overlay)
        .ok_or_else(|| invalid("the transaction has ended"))
}

fn end(store: &mut Store, id: u32) -> Result<Open> {
    let at = store.open.iter().position(|(other, _)| *other == id);
    at.map(|at| store.open.swap_remove(at).1)
        .ok_or_else(|| invalid("the transaction has ended"))
}

/// Makes the key known to the overlay.
fn read(store: &mut Store, id: u32, key: &Key<'_>, now: Timestamp) -> Result<()> {
    store.gate.check()?;
    if overlay(store, id)?.get(key).is_none() {
        let entry: Option<Entry<JsBytes>> = store.state.get(key, now);
        overlay(store, id)?.remember(key, entry);
    }
    Ok(())
}
