//! Locks. Those that end in `_by` take the place of a name instead of the name, and answer `ENDED` where the place is
//! another's by now.

use alkstore::{validate, LockInfo, Millis, Owner, Result};
use alkstore_mem::{Claimant, Granted, Handle};
use wasm_bindgen::prelude::{wasm_bindgen, JsValue};

use crate::boundary::{
    answer, both, first, from_revision, instant, leave, limit, number, one_or_both, operate,
    revision, rows, text, Cells, Store, ENDED, NONE,
};

/// Takes a lock: answers the token and leaves deadline, slot and generation; 0 where it is held elsewhere, and then
/// leaves slot and generation all the same. Without an owner the grant gets one of its own.
#[wasm_bindgen]
pub fn try_lock(name_bytes: u32, owner_bytes: u32, ttl: f64, now: f64) -> f64 {
    number(|store| {
        one_or_both(name_bytes, owner_bytes, |name, owner| {
            let spelled = owner.map_or(Ok(FRESH), text)?;
            let request = validate::acquire(&store.gate, text(name)?, spelled, Millis(ttl))?;
            let claimant = owner.map_or(Claimant::Fresh, |_| Claimant::Named(&request.owner));
            let now = instant(now)?;
            let grant = store
                .state
                .try_lock(&request.name, claimant, request.ttl, now)?;
            if grant.is_none() {
                leave_place(0.0, store.state.lock_handle(&request.name));
            }
            Ok(granted(grant))
        })
    })
}

/// The same for the name at a place.
#[wasm_bindgen]
pub fn try_lock_by(slot: u32, generation: u32, owner_bytes: u32, ttl: f64, now: f64) -> f64 {
    number(|store| {
        let handle = Handle { slot, generation };
        if owner_bytes == NONE {
            return acquire_by(store, handle, Claimant::Fresh, ttl, now);
        }
        both(0, owner_bytes, |_, owner| {
            let owner = Owner::new(text(owner)?)?;
            acquire_by(store, handle, Claimant::Named(&owner), ttl, now)
        })
    })
}

/// Moves a grant's deadline and leaves the new one. Without an owner, of the grant that has one of its own.
#[wasm_bindgen]
pub fn renew(name_bytes: u32, owner_bytes: u32, token: f64, ttl: f64, now: f64) -> f64 {
    answer(|store| {
        let ttl = validate::duration(&store.gate, Millis(ttl))?;
        let (token, now) = (revision(token)?, instant(now)?);
        named(
            store,
            name_bytes,
            owner_bytes,
            token,
            |store, name, owner| {
                let deadline = store.state.renew(name, owner, token, ttl, now);
                if let Some(deadline) = deadline {
                    leave([deadline.as_millis()]);
                }
                deadline.is_some()
            },
        )
    })
}

/// The same for the holder of a place; 0 also where the place has ended.
#[wasm_bindgen]
pub fn renew_by(slot: u32, generation: u32, token: f64, ttl: f64, now: f64) -> f64 {
    answer(|store| {
        let ttl = validate::duration(&store.gate, Millis(ttl))?;
        let handle = Handle { slot, generation };
        let deadline = store
            .state
            .renew_by(handle, revision(token)?, ttl, instant(now)?);
        if let Some(deadline) = deadline {
            leave([deadline.as_millis()]);
        }
        Ok(deadline.is_some())
    })
}

/// Deletes a grant.
#[wasm_bindgen]
pub fn release(name_bytes: u32, owner_bytes: u32, token: f64) -> f64 {
    answer(|store| {
        store.gate.check()?;
        let token = revision(token)?;
        named(
            store,
            name_bytes,
            owner_bytes,
            token,
            |store, name, owner| store.state.release(name, owner, token),
        )
    })
}

/// The same for the holder of a place; 0 also where the place has ended.
#[wasm_bindgen]
pub fn release_by(slot: u32, generation: u32, token: f64) -> f64 {
    answer(|store| {
        store.gate.check()?;
        let handle = Handle { slot, generation };
        Ok(store.state.release_by(handle, revision(token)?))
    })
}

/// Fails where no lease can be rebuilt from these.
#[wasm_bindgen]
pub fn check_lease(name_bytes: u32, owner_bytes: u32, token: f64) -> f64 {
    answer(|store| {
        both(name_bytes, owner_bytes, |name, owner| {
            validate::handle(&store.gate, text(name)?, text(owner)?)?;
            revision(token).map(|_| true)
        })
    })
}

/// The owner of a grant that was taken without one.
#[wasm_bindgen]
pub fn minted_owner(token: f64) -> JsValue {
    let owner = operate(None, |store| {
        Ok(Some(store.state.minted_owner(revision(token)?)))
    });
    owner.map_or(JsValue::FALSE, JsValue::from)
}

/// Deletes exactly this grant, whoever holds it.
#[wasm_bindgen]
pub fn force_release(name_bytes: u32, token: f64) -> f64 {
    answer(|store| {
        first(name_bytes, |name| {
            let name = validate::lock(&store.gate, text(name)?)?;
            Ok(store.state.force_release(&name, revision(token)?))
        })
    })
}

/// A lock's row as name, owner, token, deadline and whether it has lapsed; nothing where there is none.
#[wasm_bindgen]
pub fn lock_info(name_bytes: u32, now: f64) -> JsValue {
    rows(
        |store| {
            first(name_bytes, |name| {
                let name = validate::lock(&store.gate, text(name)?)?;
                let now = instant(now)?;
                Ok(store.state.lock_info(&name, now).into_iter().collect())
            })
        },
        flatten,
    )
}

/// The rows of locks, like [`lock_info`].
#[wasm_bindgen]
pub fn list_locks(prefix_bytes: u32, after_bytes: u32, at_most: f64, now: f64) -> JsValue {
    rows(
        |store| {
            one_or_both(prefix_bytes, after_bytes, |prefix, after| {
                let after = after.map(text).transpose()?;
                let prefix = text(prefix)?;
                validate::list_locks(&store.gate, prefix, after)?;
                let now = instant(now)?;
                Ok(store.state.list_locks(prefix, after, limit(at_most), now))
            })
        },
        flatten,
    )
}

/// Stands in for the owner that a grant is about to get, so that all other arguments are judged as ever.
const FRESH: &str = "~";

#[inline]
fn acquire_by(
    store: &mut Store,
    handle: Handle,
    claimant: Claimant<'_>,
    ttl: f64,
    now: f64,
) -> Result<f64> {
    let ttl = validate::duration(&store.gate, Millis(ttl))?;
    match store
        .state
        .try_lock_by(handle, claimant, ttl, instant(now)?)
    {
        Some(answer) => Ok(granted(answer?)),
        None => Ok(ENDED),
    }
}

#[inline]
fn granted(grant: Option<Granted>) -> f64 {
    grant.map_or(0.0, |grant| {
        leave_place(grant.deadline.as_millis(), Some(grant.handle));
        from_revision(grant.token)
    })
}

fn leave_place(deadline: f64, handle: Option<Handle>) {
    let (slot, generation) = handle.map_or((NONE, 0), |at| (at.slot, at.generation));
    leave([deadline, f64::from(slot), f64::from(generation)]);
}

fn named<T>(
    store: &mut Store,
    name_bytes: u32,
    owner_bytes: u32,
    token: alkstore::Revision,
    work: impl FnOnce(&mut Store, &alkstore::LockName<'_>, &Owner<'_>) -> T,
) -> Result<T> {
    one_or_both(name_bytes, owner_bytes, |name, owner| {
        let name = alkstore::LockName::new(text(name)?)?;
        let owner = match owner {
            Some(owner) => Owner::new(text(owner)?)?,
            None => Owner::new(store.state.minted_owner(token))?,
        };
        Ok(work(store, &name, &owner))
    })
}

fn flatten(row: &LockInfo, cells: &Cells) {
    cells.text(&row.name);
    cells.text(&row.owner);
    cells.number(from_revision(row.token));
    cells.number(row.deadline.as_millis());
    cells.flag(row.lapsed);
}
