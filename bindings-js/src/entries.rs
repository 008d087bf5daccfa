//! Entries. Those that end in `_by` take the place of a key instead of the key, and answer `undefined` or `ENDED` where
//! the place is another's by now.

use alkstore::{validate, Entry, Key, Millis, Put, Result};
use alkstore_mem::{Handle, PutRow};
use js_sys::Uint8Array;
use wasm_bindgen::prelude::{wasm_bindgen, JsValue};

use crate::boundary::{
    answer, first, from_maybe_instant, from_revision, instant, leave, limit, maybe_revision,
    number, one_or_both, operate, put_mode, revision, rows, text, Store, ENDED, NONE,
};
use crate::lifecycle::count;
use crate::value::JsBytes;

/// An entry's value, and left behind its version, its deadline and its place; `null` where there is none.
#[wasm_bindgen]
pub fn get(key_bytes: u32, now: f64) -> JsValue {
    operate(JsValue::FALSE, |store| {
        first(key_bytes, |key| {
            let key = validate::key(&store.gate, key)?;
            let found = store.state.get(&key, instant(now)?);
            Ok(shown(found, place(store, &key)))
        })
    })
}

/// The same for the key at a place.
#[wasm_bindgen]
pub fn get_by(slot: u32, generation: u32, now: f64) -> JsValue {
    operate(JsValue::FALSE, |store| {
        store.gate.check()?;
        let handle = Handle { slot, generation };
        match store.state.get_by(handle, instant(now)?) {
            Some(found) => Ok(shown(found, handle)),
            None => Ok(JsValue::UNDEFINED),
        }
    })
}

/// Writes an entry: answers the version, or 0 where it is not stored and leaves the version in the way, or 0. Then
/// leaves the key's place. `value` is JavaScript's to give away, `size` long.
///
/// `create` says whether the first writer wins, `version` (or 0) what to write over, `has_ttl` whether `ttl` counts;
/// the guard is the second text and its token.
#[wasm_bindgen]
#[allow(clippy::too_many_arguments)] // one call, and numbers are what calls can carry
pub fn put(
    key_bytes: u32,
    value: Uint8Array,
    size: u32,
    create: bool,
    version: f64,
    has_ttl: bool,
    ttl: f64,
    guard_bytes: u32,
    guard_token: f64,
    now: f64,
) -> f64 {
    number(|store| {
        one_or_both(key_bytes, guard_bytes, |key, guard| {
            let guard = guard
                .map(|guard| Ok::<_, alkstore::Error>((text(guard)?, revision(guard_token)?)))
                .transpose()?;
            let request = validate::put_parts(
                &store.gate,
                key,
                size as usize,
                put_mode(create, version)?,
                has_ttl.then_some(Millis(ttl)),
                guard,
            )?;
            let row = PutRow {
                value: JsBytes::new(value, size),
                mode: request.mode,
                ttl: request.ttl,
                guard: request.guard,
            };
            let put = store.state.put(&request.key, row, instant(now)?)?;
            Ok(stored(put, place(store, &request.key)))
        })
    })
}

/// The same for the key at a place, without a guard.
#[wasm_bindgen]
#[allow(clippy::too_many_arguments)] // as above
pub fn put_by(
    slot: u32,
    generation: u32,
    value: Uint8Array,
    size: u32,
    create: bool,
    version: f64,
    has_ttl: bool,
    ttl: f64,
    now: f64,
) -> f64 {
    number(|store| {
        validate::value(size as usize)?;
        let ttl = if has_ttl {
            Some(validate::duration(&store.gate, Millis(ttl))?)
        } else {
            store.gate.check()?;
            None
        };
        let row = PutRow {
            value: JsBytes::new(value, size),
            mode: put_mode(create, version)?,
            ttl,
            guard: None,
        };
        let handle = Handle { slot, generation };
        match store.state.put_by(handle, row, instant(now)?) {
            Some(put) => Ok(stored(put?, handle)),
            None => Ok(ENDED),
        }
    })
}

/// Moves an entry's deadline.
#[wasm_bindgen]
pub fn touch(key_bytes: u32, ttl: f64, now: f64) -> f64 {
    answer(|store| {
        first(key_bytes, |key| {
            let (key, ttl) = validate::touch(&store.gate, key, Millis(ttl))?;
            Ok(store.state.touch(&key, ttl, instant(now)?))
        })
    })
}

/// Deletes an entry; where `version` is not 0, only that one.
#[wasm_bindgen]
pub fn delete_entry(key_bytes: u32, version: f64, now: f64) -> f64 {
    answer(|store| {
        first(key_bytes, |key| {
            let key = validate::key(&store.gate, key)?;
            let version = maybe_revision(version)?;
            Ok(store.state.delete(&key, version, instant(now)?))
        })
    })
}

/// The rows of entries as key, version, deadline (or NaN) and size.
#[wasm_bindgen]
pub fn list(prefix_bytes: u32, after_bytes: u32, at_most: f64, now: f64) -> JsValue {
    rows(
        |store| {
            one_or_both(prefix_bytes, after_bytes, |prefix, after| {
                validate::list(&store.gate, prefix, after)?;
                let now = instant(now)?;
                Ok(store.state.list(prefix, after, limit(at_most), now))
            })
        },
        |row, cells| {
            cells.key(&row.key);
            cells.number(from_revision(row.version));
            cells.number(from_maybe_instant(row.expires_at));
            #[allow(clippy::cast_possible_truncation)] // values are far shorter than memory
            cells.number(count(row.size as usize));
        },
    )
}

/// The place of a key; one that no key ever has where it has none.
fn place(store: &Store, key: &Key<'_>) -> Handle {
    store.state.entry_handle(key).unwrap_or(Handle {
        slot: NONE,
        generation: 0,
    })
}

#[inline]
fn shown(found: Option<Entry<JsBytes>>, handle: Handle) -> JsValue {
    let Some(entry) = found else {
        return JsValue::NULL;
    };
    leave([
        from_revision(entry.version),
        from_maybe_instant(entry.expires_at),
        f64::from(handle.slot),
        f64::from(handle.generation),
    ]);
    entry.value.into_bytes().into()
}

#[inline]
fn stored(put: Put, handle: Handle) -> f64 {
    let (stored, current) = match put {
        Put::Stored { version } => (from_revision(version), 0.0),
        Put::NotStored { current } => (0.0, current.map_or(0.0, from_revision)),
    };
    leave([
        current,
        0.0,
        f64::from(handle.slot),
        f64::from(handle.generation),
    ]);
    stored
}

/// The versions that a commit gave, as key and version.
pub(crate) fn committed(operation: impl FnOnce(&mut Store) -> Result<alkstore::Commit>) -> JsValue {
    rows(
        |store| Ok(operation(store)?.versions),
        |(key, version), cells| {
            cells.key(key);
            cells.number(from_revision(*version));
        },
    )
}
