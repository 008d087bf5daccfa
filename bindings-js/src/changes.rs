//! Changesets: put together call by call, then committed. No JavaScript of the user runs in between.

use alkstore::{Expect, Key, LockName, Restage};
use js_sys::Uint8Array;
use wasm_bindgen::prelude::{wasm_bindgen, JsValue};

use crate::boundary::{
    answer, first, instant, maybe_revision, maybe_ttl, operate, put_mode, revision, text, Store,
};
use crate::entries::committed;
use crate::value::JsBytes;

/// Begins with nothing, whatever was left of an earlier one.
#[wasm_bindgen]
pub fn begin_changes() {
    operate((), |store| {
        store.changes = alkstore::Changeset::default();
        Ok(())
    });
}

/// Adds a guard: the first text and its token.
#[wasm_bindgen]
pub fn change_guard(name_bytes: u32, token: f64) -> f64 {
    answer(|store| {
        first(name_bytes, |name| {
            let name = LockName::new(text(name)?)?;
            store.changes.guard(name, revision(token)?)?;
            Ok(true)
        })
    })
}

/// Adds a check: this version, or with 0 that there is none.
#[wasm_bindgen]
pub fn change_check(key_bytes: u32, version: f64) -> f64 {
    with_key(key_bytes, |store, key| {
        let expect = maybe_revision(version)?.map_or(Expect::Absent, Expect::Version);
        store.changes.check(key, expect)
    })
}

/// Adds a write, as [`put`](crate::entries::put) takes it.
#[wasm_bindgen]
pub fn change_put(
    key_bytes: u32,
    value: Uint8Array,
    size: u32,
    create: bool,
    version: f64,
    has_ttl: bool,
    ttl: f64,
) -> f64 {
    with_key(key_bytes, |store, key| {
        alkstore::validate::value(size as usize)?;
        let ttl = maybe_ttl(has_ttl, ttl)?;
        let mode = put_mode(create, version)?;
        store.changes.put(key, JsBytes::new(value, size), mode, ttl)
    })
}

/// Adds a deletion.
#[wasm_bindgen]
pub fn change_delete(key_bytes: u32) -> f64 {
    with_key(key_bytes, |store, key| store.changes.delete(key))
}

/// Adds a candidate for the window.
#[wasm_bindgen]
pub fn change_stage(key_bytes: u32, visible_after: f64, keep: bool) -> f64 {
    with_key(key_bytes, |store, key| {
        store
            .changes
            .stage(key, instant(visible_after)?, restage(keep))
    })
}

/// Takes a key out of the window.
#[wasm_bindgen]
pub fn change_unstage(key_bytes: u32) -> f64 {
    with_key(key_bytes, |store, key| store.changes.unstage(key))
}

/// Applies all of it, or nothing: the versions as key and version, or `false`.
#[wasm_bindgen]
pub fn commit_changes(now: f64) -> JsValue {
    committed(|store| {
        let changes = std::mem::take(&mut store.changes);
        store.gate.check()?;
        store.state.commit(changes, instant(now)?)
    })
}

pub(crate) fn restage(keep: bool) -> Restage {
    if keep {
        Restage::Keep
    } else {
        Restage::Move
    }
}

fn with_key(key_bytes: u32, add: impl FnOnce(&mut Store, Key<'_>) -> alkstore::Result<()>) -> f64 {
    answer(|store| first(key_bytes, |key| add(store, Key::new(key)?).map(|()| true)))
}
