//! A store's beginning and end, and what is about all of it.

use alkstore::{validate, Changeset, Error, ErrorKind, Gate, Key, Result};
use alkstore_mem::{Options, Seeds, State};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::boundary::{self, answer, fill, first, instant, leave, limit, number, text, Store};

/// Makes the store of this instance. The seeds are random, drawn by the caller; limits may be infinite.
#[wasm_bindgen]
pub fn create(
    hash_high: u32,
    hash_low: u32,
    mint_high: u32,
    mint_low: u32,
    max_locks: f64,
    max_entries: f64,
    max_bytes: f64,
) {
    let seeds = Seeds {
        hash: u64::from(hash_high) << 32 | u64::from(hash_low),
        mint: u64::from(mint_high) << 32 | u64::from(mint_low),
    };
    let mut options = Options::default();
    options.max_locks = limit(max_locks);
    options.max_entries = limit(max_entries);
    options.max_bytes = limit(max_bytes);
    fill(Store {
        gate: Gate::open(),
        state: State::new(seeds, options),
        open: Vec::new(),
        next_tx: 1,
        changes: Changeset::default(),
        batch: Default::default(),
        snapshot: Vec::new(),
    });
}

/// Closes the store and lets go of everything in it.
#[wasm_bindgen]
pub fn close() -> f64 {
    crate::sweep::sweep_drop();
    answer(|store| {
        let first_time = store.gate.close();
        if first_time {
            let nobody = Seeds { hash: 0, mint: 0 };
            store.state = State::new(nobody, Options::default());
            store.open = Vec::new();
            store.changes = Changeset::default();
            store.batch = Default::default();
            store.snapshot = Vec::new();
        }
        Ok(first_time)
    })
}

/// Fails where the store is closed.
#[wasm_bindgen]
pub fn check_open() -> f64 {
    answer(|store| store.gate.check().map(|()| true))
}

/// Fails where the first text is no lock name. For calls whose later arguments JavaScript has to refuse itself.
#[wasm_bindgen]
pub fn check_name(name_bytes: u32) -> f64 {
    answer(|_| {
        first(name_bytes, |name| {
            alkstore::LockName::new(text(name)?).map(|_| true)
        })
    })
}

/// The same for a key.
#[wasm_bindgen]
pub fn check_key(key_bytes: u32) -> f64 {
    answer(|_| first(key_bytes, |key| Key::new(key).map(|_| true)))
}

/// Fails where something of so many bytes is too long to be a name (0), an owner (1), a key (2) or a value (3): for
/// what does not fit into the input region, or should not be copied in vain.
#[wasm_bindgen]
pub fn check_length(what: u32, bytes: f64) -> f64 {
    let bytes = limit(bytes);
    answer(|_| {
        match what {
            0 => validate::name_length(bytes),
            1 => validate::owner_length(bytes),
            2 => validate::key_length(bytes),
            _ => validate::value(bytes),
        }
        .map(|()| true)
    })
}

/// Leaves the numbers of locks, entries, window rows and bytes, and the last revision.
#[wasm_bindgen]
pub fn stats() -> f64 {
    answer(|store| {
        store.gate.check()?;
        let stats = store.state.stats();
        #[allow(clippy::cast_precision_loss)] // no count here reaches 2^53
        leave([
            stats.locks as f64,
            stats.entries as f64,
            stats.window as f64,
            stats.bytes as f64,
            stats.revision as f64,
        ]);
        Ok(true)
    })
}

/// Deletes lapsed rows; answers how many.
#[wasm_bindgen]
pub fn purge_lapsed(at_most: f64, now: f64) -> f64 {
    number(|store| {
        store.gate.check()?;
        let purged = store.state.purge_lapsed(limit(at_most), instant(now)?);
        Ok(count(purged))
    })
}

/// Takes a snapshot and keeps it until [`end_snapshot`]; answers its length and leaves its address.
#[wasm_bindgen]
pub fn snapshot() -> f64 {
    number(|store| {
        store.gate.check()?;
        store.snapshot = store.state.snapshot()?;
        leave([address(&store.snapshot)]);
        Ok(count(store.snapshot.len()))
    })
}

/// Makes room for a snapshot of so many bytes, to be written at the address that is left.
#[wasm_bindgen]
pub fn begin_restore(bytes: f64) -> f64 {
    answer(|store| {
        store.gate.check()?;
        store.snapshot = zeroed(limit(bytes))?;
        leave([address(&store.snapshot)]);
        Ok(true)
    })
}

/// Becomes what the snapshot that was written holds.
#[wasm_bindgen]
pub fn restore() -> f64 {
    answer(|store| {
        let bytes = std::mem::take(&mut store.snapshot);
        store.gate.check()?;
        store.state.restore(&bytes).map(|()| true)
    })
}

/// Lets go of the snapshot.
#[wasm_bindgen]
pub fn end_snapshot() {
    boundary::operate((), |store| {
        store.snapshot = Vec::new();
        Ok(())
    });
}

/// So many zeroes, or an error where memory ends.
fn zeroed(bytes: usize) -> Result<Vec<u8>> {
    let mut zeroes = Vec::new();
    zeroes.try_reserve_exact(bytes).map_err(|_| {
        Error::new(
            ErrorKind::CapacityExceeded,
            "there is no memory left to copy the snapshot in",
        )
    })?;
    zeroes.resize(bytes, 0);
    Ok(zeroes)
}

#[allow(clippy::cast_precision_loss)] // an address in wasm is below 2^32
fn address(bytes: &[u8]) -> f64 {
    bytes.as_ptr().addr() as f64
}

/// A count of things in memory, far below 2^53.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn count(things: usize) -> f64 {
    things as f64
}
