//! Locks in memory.

use std::borrow::Cow;
use std::sync::Arc;

use alkstore::rules::lock::{self, Acquisition, Grant};
use alkstore::{LockInfo, LockName, Owner, Payload, Result, Revision, Timestamp, Ttl};

use crate::index::{Handle, Place};
use crate::state::{signed, Growth, State};

/// A grant as [`State::try_lock`] answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The grant's token.
    pub token: Revision,
    /// When it lapses.
    pub deadline: Timestamp,
    /// Where its name is, for calls that would rather not look it up again.
    pub handle: Handle,
}

/// Who asks for a lock.
#[derive(Clone, Copy, Debug)]
pub enum Claimant<'a> {
    /// An owner with a name.
    Named(&'a Owner<'a>),
    /// Nobody yet: the grant's owner is minted from its token, so that it equals no other, and is spelled out only when
    /// somebody asks. See [`State::minted_owner`].
    Fresh,
}

#[derive(Debug)]
pub(crate) struct LockRow {
    pub(crate) owner: OwnerText,
    pub(crate) token: Revision,
}

/// An owner as it is kept.
#[derive(Debug)]
pub(crate) enum OwnerText {
    Named(Arc<str>),
    Minted,
}

impl OwnerText {
    /// The bytes that it counts for: what is minted is kept nowhere.
    fn size(&self) -> usize {
        match self {
            Self::Named(owner) => owner.len(),
            Self::Minted => 0,
        }
    }
}

/// An owner as it is compared: equal where the spelled-out texts are.
#[derive(Clone, Copy, PartialEq)]
enum OwnerRef<'a> {
    Named(&'a str),
    Minted(Revision),
    Fresh,
}

/// Spells minted owners: a random prefix and the grant's token.
#[derive(Debug)]
pub(crate) struct Mint(Box<str>);

impl Mint {
    pub(crate) fn new(random: u64) -> Self {
        Self(format!("~{random:016x}-").into())
    }

    fn spell(&self, token: Revision) -> String {
        format!("{}{token}", self.0)
    }

    fn read<'a>(&self, owner: &'a str) -> OwnerRef<'a> {
        let minted = owner.strip_prefix(&*self.0).and_then(|digits| {
            let token = digits.parse().ok().and_then(Revision::new)?;
            // "+7" and "07" also parse, but are no spelling of this mint's.
            digits
                .starts_with(|c| matches!(c, '1'..='9'))
                .then_some(token)
        });
        minted.map_or(OwnerRef::Named(owner), OwnerRef::Minted)
    }
}

impl<V: Payload> State<V> {
    /// L1 to L4. `None` where another owner's lease is live.
    pub fn try_lock(
        &mut self,
        name: &LockName<'_>,
        claimant: Claimant<'_>,
        ttl: Ttl,
        now: Timestamp,
    ) -> Result<Option<Granted>> {
        let name = name.as_str().as_bytes();
        let place = self.locks.find(name);
        self.acquire(place, name, claimant, ttl, now)
    }

    /// The same for a name that was found before; the outer `None` where the handle has ended.
    pub fn try_lock_by(
        &mut self,
        handle: Handle,
        claimant: Claimant<'_>,
        ttl: Ttl,
        now: Timestamp,
    ) -> Option<Result<Option<Granted>>> {
        let slot = self.locks.resolve(handle)?;
        Some(self.acquire(Place::At(slot), b"", claimant, ttl, now))
    }

    /// The handle of a name that has a row, or had one lately.
    pub fn lock_handle(&self, name: &LockName<'_>) -> Option<Handle> {
        self.locks.look_up(name.as_str().as_bytes())
    }

    /// L5. The new deadline, or `None` where the grant is not there or not live.
    pub fn renew(
        &mut self,
        name: &LockName<'_>,
        owner: &Owner<'_>,
        token: Revision,
        ttl: Ttl,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let place = self.locks.find(name.as_str().as_bytes());
        let owner = self.mint.read(owner.as_str());
        let deadline = lock::renew(self.grant(place).as_ref(), &owner, token, ttl, now)?;
        self.move_deadline(place, deadline)
    }

    /// L5 for the holder of a [`Granted::handle`], who need not name the owner: a token is given once, so the row with
    /// this token is that grant.
    pub fn renew_by(
        &mut self,
        handle: Handle,
        token: Revision,
        ttl: Ttl,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let place = Place::At(self.locks.resolve(handle)?);
        let row = self.grant(place)?;
        let deadline = lock::renew(Some(&row), &row.owner, token, ttl, now)?;
        self.move_deadline(place, deadline)
    }

    /// L6. Whether the grant was there.
    pub fn release(&mut self, name: &LockName<'_>, owner: &Owner<'_>, token: Revision) -> bool {
        let place = self.locks.find(name.as_str().as_bytes());
        let owner = self.mint.read(owner.as_str());
        let freed = lock::release(self.grant(place).as_ref(), &owner, token);
        freed && self.remove_lock(place)
    }

    /// L6 for the holder of a [`Granted::handle`]; see [`renew_by`](Self::renew_by).
    pub fn release_by(&mut self, handle: Handle, token: Revision) -> bool {
        let Some(slot) = self.locks.resolve(handle) else {
            return false;
        };
        let place = Place::At(slot);
        lock::force_release(self.grant(place).as_ref(), token) && self.remove_lock(place)
    }

    /// L15. Whether exactly that grant was there.
    pub fn force_release(&mut self, name: &LockName<'_>, token: Revision) -> bool {
        let place = self.locks.find(name.as_str().as_bytes());
        lock::force_release(self.grant(place).as_ref(), token) && self.remove_lock(place)
    }

    /// L15.
    pub fn lock_info(&self, name: &LockName<'_>, now: Timestamp) -> Option<LockInfo> {
        match self.locks.find(name.as_str().as_bytes()) {
            Place::At(slot) => self.info(slot, now),
            Place::New(_) => None,
        }
    }

    /// L15.
    pub fn list_locks(
        &mut self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Vec<LockInfo> {
        let slots = self
            .locks
            .page(prefix.as_bytes(), after.map(str::as_bytes), limit);
        let info = |slot| self.info(slot, now);
        slots.into_iter().filter_map(info).collect()
    }

    /// The owner of the [`Fresh`](Claimant::Fresh) grant `token`.
    pub fn minted_owner(&self, token: Revision) -> String {
        self.mint.spell(token)
    }

    pub(crate) fn owner_text<'a>(&self, row: &'a LockRow) -> Cow<'a, str> {
        match &row.owner {
            OwnerText::Named(owner) => Cow::Borrowed(owner),
            OwnerText::Minted => Cow::Owned(self.mint.spell(row.token)),
        }
    }

    /// The owner of the grant `token` as it is kept: one that this state minted, and that comes back in a snapshot,
    /// takes no more room than before.
    pub(crate) fn keep_owner(&self, owner: &str, token: Revision) -> OwnerText {
        if self.mint.read(owner) == OwnerRef::Minted(token) {
            OwnerText::Minted
        } else {
            OwnerText::Named(owner.into())
        }
    }

    pub(crate) fn put_lock(
        &mut self,
        place: Place,
        name: &[u8],
        row: LockRow,
        deadline: Timestamp,
    ) -> u32 {
        self.bytes += row.owner.size();
        let (slot, old) = self.locks.occupy(place, name, row, Some(deadline));
        match old {
            Some(old) => self.bytes -= old.owner.size(),
            None => self.bytes += self.locks.name(slot).len(),
        }
        slot
    }

    pub(crate) fn remove_lock(&mut self, place: Place) -> bool {
        let Place::At(slot) = place else { return false };
        let name_bytes = self.locks.name(slot).len();
        let Some(row) = self.locks.vacate(slot) else {
            return false;
        };
        self.bytes -= name_bytes + row.owner.size();
        true
    }

    /// `name` may be empty where `place` has it.
    fn acquire(
        &mut self,
        mut place: Place,
        name: &[u8],
        claimant: Claimant<'_>,
        ttl: Ttl,
        now: Timestamp,
    ) -> Result<Option<Granted>> {
        let owner = match claimant {
            Claimant::Named(owner) => self.mint.read(owner.as_str()),
            Claimant::Fresh => OwnerRef::Fresh,
        };
        let row = self.grant(place);
        let deadline = match (lock::acquire(row.as_ref(), &owner, ttl, now), row, place) {
            (Acquisition::Granted(deadline), ..) => deadline,
            (Acquisition::Kept, Some(grant), Place::At(slot)) => {
                return Ok(Some(Granted {
                    token: grant.token,
                    deadline: grant.deadline,
                    handle: self.locks.handle(slot),
                }));
            }
            _ => return Ok(None),
        };
        let owner = match claimant {
            Claimant::Named(owner) => OwnerText::Named(self.share(owner)),
            Claimant::Fresh => OwnerText::Minted,
        };
        let owner_bytes = owner.size();
        self.check_revisions(1)?;
        let mut name = Cow::Borrowed(name);
        if self
            .refuses(self.lock_growth(place, &name, owner_bytes))
            .is_some()
        {
            // A purge may take the name away from its slot, so it is found anew.
            name = Cow::Owned(self.locks.name_at(place, &name).to_vec());
            self.make_room(now, |state| {
                state.lock_growth(state.locks.find(&name), &name, owner_bytes)
            })?;
            place = self.locks.find(&name);
        }
        let token = self.draw()?;
        let slot = self.put_lock(place, &name, LockRow { owner, token }, deadline);
        Ok(Some(Granted {
            token,
            deadline,
            handle: self.locks.handle(slot),
        }))
    }

    /// The text of an owner, shared with the last one where they are the same: most leases in a process are one
    /// owner's.
    fn share(&mut self, owner: &Owner<'_>) -> Arc<str> {
        if *self.last_owner != *owner.as_str() {
            self.last_owner = owner.as_str().into();
        }
        self.last_owner.clone()
    }

    fn lock_growth(&self, place: Place, name: &[u8], owner_bytes: usize) -> Growth {
        match self.locks.row(place) {
            Some(old) => Growth {
                bytes: signed(owner_bytes) - signed(old.owner.size()),
                ..Growth::default()
            },
            None => Growth {
                locks: 1,
                bytes: signed(owner_bytes + self.locks.name_at(place, name).len()),
                ..Growth::default()
            },
        }
    }

    fn grant(&self, place: Place) -> Option<Grant<OwnerRef<'_>>> {
        let row = self.locks.row(place)?;
        Some(Grant {
            owner: match &row.owner {
                OwnerText::Named(owner) => self.mint.read(owner),
                OwnerText::Minted => OwnerRef::Minted(row.token),
            },
            token: row.token,
            deadline: self.locks.deadline(place)?,
        })
    }

    fn move_deadline(&mut self, place: Place, deadline: Timestamp) -> Option<Timestamp> {
        let Place::At(slot) = place else { return None };
        self.locks.deadlines.set(slot, Some(deadline));
        Some(deadline)
    }

    fn info(&self, slot: u32, now: Timestamp) -> Option<LockInfo> {
        let place = Place::At(slot);
        let row = self.locks.row(place)?;
        let deadline = self.locks.deadline(place)?;
        Some(LockInfo {
            name: std::str::from_utf8(self.locks.name(slot)).ok()?.into(),
            owner: self.owner_text(row).into_owned(),
            token: row.token,
            deadline,
            lapsed: deadline.lapsed(now),
        })
    }
}
