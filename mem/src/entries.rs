//! Entries and changesets in memory.

use alkstore::rules::changeset::{self, Rows};
use alkstore::rules::entry::{self, Head};
use alkstore::rules::{lock, window};
use alkstore::{
    Changeset, Commit, Entry, EntryMeta, EntryWrite, Error, Key, LockName, Payload, Put, PutMode,
    Restage, Result, Revision, Timestamp, Ttl,
};

use crate::index::{Handle, Place};
use crate::state::{signed, Growth, State};

#[derive(Debug)]
pub(crate) struct EntryRow<V> {
    pub(crate) value: V,
    pub(crate) version: Revision,
}

/// A put whose parts are valid.
#[derive(Clone, Debug)]
pub struct PutRow<'a, V> {
    /// The bytes.
    pub value: V,
    /// When to write.
    pub mode: PutMode,
    /// How long the entry lives.
    pub ttl: Option<Ttl>,
    /// The grant that must be live.
    pub guard: Option<(LockName<'a>, Revision)>,
}

/// Entries.
impl<V: Payload> State<V> {
    /// E4.
    pub fn get(&self, key: &Key<'_>, now: Timestamp) -> Option<Entry<V>> {
        self.entry(self.entries.find(key.as_bytes()), now)
    }

    /// The same for a key that was found before; the outer `None` where the handle has ended.
    pub fn get_by(&self, handle: Handle, now: Timestamp) -> Option<Option<Entry<V>>> {
        let slot = self.entries.resolve(handle)?;
        Some(self.entry(Place::At(slot), now))
    }

    /// The value alone, borrowed; see [`get_by`](Self::get_by).
    pub fn value_by(&self, handle: Handle, now: Timestamp) -> Option<Option<&V>> {
        let place = Place::At(self.entries.resolve(handle)?);
        Some(
            entry::live(self.head_at(place), now)
                .and_then(|_| self.entries.row(place))
                .map(|row| &row.value),
        )
    }

    /// The handle of a key that has a row, or had one lately.
    pub fn entry_handle(&self, key: &Key<'_>) -> Option<Handle> {
        self.entries.look_up(key.as_bytes())
    }

    /// E2, E5 and E6.
    pub fn put(&mut self, key: &Key<'_>, put: PutRow<'_, V>, now: Timestamp) -> Result<Put> {
        let place = self.entries.find(key.as_bytes());
        self.put_at(place, key.as_bytes(), put, now)
    }

    /// The same for a key that was found before; the outer `None` where the handle has ended.
    pub fn put_by(
        &mut self,
        handle: Handle,
        put: PutRow<'_, V>,
        now: Timestamp,
    ) -> Option<Result<Put>> {
        let slot = self.entries.resolve(handle)?;
        Some(self.put_at(Place::At(slot), b"", put, now))
    }

    /// E3.
    pub fn touch(&mut self, key: &Key<'_>, ttl: Ttl, now: Timestamp) -> bool {
        let place = self.entries.find(key.as_bytes());
        match (entry::touch(self.head_at(place), ttl, now), place) {
            (Some(deadline), Place::At(slot)) => {
                self.entries.deadlines.set(slot, Some(deadline));
                true
            }
            _ => false,
        }
    }

    /// E4.
    pub fn delete(&mut self, key: &Key<'_>, if_version: Option<Revision>, now: Timestamp) -> bool {
        let place = self.entries.find(key.as_bytes());
        entry::delete(self.head_at(place), if_version, now) && self.remove_entry(place)
    }

    /// E4.
    pub fn list(
        &mut self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
        now: Timestamp,
    ) -> Vec<EntryMeta> {
        let mut page = Vec::new();
        let mut from = after.map(<[u8]>::to_vec);
        // Lapsed rows are passed over, so one round may not fill the page.
        while page.len() < limit {
            let wanted = limit - page.len();
            let slots = self.entries.page(prefix, from.as_deref(), wanted);
            let Some(&last) = slots.last() else { break };
            let meta = |slot| self.meta(slot, now);
            page.extend(slots.iter().copied().filter_map(meta));
            if slots.len() < wanted {
                break;
            }
            from = Some(self.entries.name(last).to_vec());
        }
        page
    }

    pub(crate) fn put_entry(
        &mut self,
        place: Place,
        key: &[u8],
        row: EntryRow<V>,
        expires_at: Option<Timestamp>,
    ) {
        self.bytes += row.value.size();
        let (slot, old) = self.entries.occupy(place, key, row, expires_at);
        match old {
            Some(old) => self.bytes -= old.value.size(),
            None => self.bytes += self.entries.name(slot).len(),
        }
    }

    pub(crate) fn remove_entry(&mut self, place: Place) -> bool {
        let Place::At(slot) = place else { return false };
        let key_bytes = self.entries.name(slot).len();
        let Some(row) = self.entries.vacate(slot) else {
            return false;
        };
        self.bytes -= key_bytes + row.value.size();
        true
    }

    /// `key` may be empty where `place` has it.
    fn put_at(
        &mut self,
        mut place: Place,
        key: &[u8],
        put: PutRow<'_, V>,
        now: Timestamp,
    ) -> Result<Put> {
        if let Some((name, token)) = &put.guard {
            lock::guard(self.grant_of(name), name, *token, now)?;
        }
        if self.window.len() > 0 {
            window::write(self.window.get(self.entries.name_at(place, key)))?;
        }
        let plan = entry::put(self.head_at(place), put.mode, put.ttl, now);
        let answer = match plan.outcome {
            Err(current) => Put::NotStored { current },
            Ok(expires_at) => {
                self.check_revisions(1)?;
                let mut owned = Vec::new();
                let mut key = key;
                let size = put.value.size();
                if self.refuses(self.entry_growth(place, key, size)).is_some() {
                    // A purge may take the key away from its slot, so it is found anew.
                    owned.extend_from_slice(self.entries.name_at(place, key));
                    key = &owned;
                    self.make_room(now, |state| {
                        state.entry_growth(state.entries.find(key), key, size)
                    })?;
                    place = self.entries.find(key);
                }
                let version = self.draw()?;
                let row = EntryRow {
                    value: put.value,
                    version,
                };
                self.put_entry(place, key, row, expires_at);
                Put::Stored { version }
            }
        };
        if plan.publish && self.window.len() > 0 {
            let key = self.entries.name_at(place, key).to_vec();
            self.unstage_key(&key);
        }
        Ok(answer)
    }

    fn entry_growth(&self, place: Place, key: &[u8], size: usize) -> Growth {
        match self.entries.row(place) {
            Some(old) => Growth {
                bytes: signed(size) - signed(old.value.size()),
                ..Growth::default()
            },
            None => Growth {
                entries: 1,
                bytes: signed(self.entries.name_at(place, key).len() + size),
                ..Growth::default()
            },
        }
    }

    fn entry(&self, place: Place, now: Timestamp) -> Option<Entry<V>> {
        let head = entry::live(self.head_at(place), now)?;
        Some(Entry {
            value: self.entries.row(place)?.value.clone(),
            version: head.version,
            expires_at: head.expires_at,
        })
    }

    fn meta(&self, slot: u32, now: Timestamp) -> Option<EntryMeta> {
        let place = Place::At(slot);
        let head = entry::live(self.head_at(place), now)?;
        Some(EntryMeta {
            key: Key::new(self.entries.name(slot).to_vec()).ok()?,
            version: head.version,
            expires_at: head.expires_at,
            size: self.entries.row(place)?.value.size() as u64,
        })
    }

    pub(crate) fn head_at(&self, place: Place) -> Option<Head> {
        self.entries.row(place).map(|row| Head {
            version: row.version,
            expires_at: self.entries.deadline(place),
        })
    }

    pub(crate) fn grant_of(&self, name: &LockName<'_>) -> Option<(Revision, Timestamp)> {
        let place = self.locks.find(name.as_str().as_bytes());
        Some((self.locks.row(place)?.token, self.locks.deadline(place)?))
    }
}

/// Changesets.
impl<V: Payload> State<V> {
    /// T3.
    pub fn commit(&mut self, changeset: Changeset<V>, now: Timestamp) -> Result<Commit> {
        changeset::judge(&changeset, self, now)?;
        let writes = changeset
            .keys()
            .filter(|(_, ops)| matches!(ops.write, Some(EntryWrite::Put { .. })))
            .count();
        self.check_revisions(writes)?;
        self.make_room(now, |state| state.changeset_growth(&changeset))?;
        changeset::apply(changeset, self, now)
    }

    fn changeset_growth(&self, changeset: &Changeset<V>) -> Growth {
        let mut growth = Growth::default();
        for (key, ops) in changeset.keys() {
            let key = key.as_bytes();
            let old = self
                .entries
                .row(self.entries.find(key))
                .map(|row| row.value.size());
            match (&ops.write, old) {
                (Some(EntryWrite::Put { value, .. }), Some(old)) => {
                    growth.bytes += signed(value.size()) - signed(old);
                }
                (Some(EntryWrite::Put { value, .. }), None) => {
                    growth.entries += 1;
                    growth.bytes += signed(key.len() + value.size());
                }
                (Some(EntryWrite::Delete), Some(old)) => {
                    growth.entries -= 1;
                    growth.bytes -= signed(key.len() + old);
                }
                _ => {}
            }
            if ops.stage.is_some() && self.window.get(key).is_none() {
                growth.bytes += signed(key.len());
            }
        }
        growth
    }
}

impl<V: Payload> Rows<V> for State<V> {
    type Error = Error;

    fn grant(&mut self, name: &LockName<'_>) -> Result<Option<(Revision, Timestamp)>> {
        Ok(self.grant_of(name))
    }

    fn head(&mut self, key: &Key<'_>) -> Result<Option<Head>> {
        Ok(self.head_at(self.entries.find(key.as_bytes())))
    }

    fn waiting(&mut self, key: &Key<'_>) -> Result<Option<window::Row>> {
        Ok(self.window.get(key.as_bytes()).copied())
    }

    fn write(
        &mut self,
        key: &Key<'_>,
        value: V,
        expires_at: Option<Timestamp>,
    ) -> Result<Revision> {
        let version = self.draw()?;
        let place = self.entries.find(key.as_bytes());
        self.put_entry(
            place,
            key.as_bytes(),
            EntryRow { value, version },
            expires_at,
        );
        Ok(version)
    }

    fn remove(&mut self, key: &Key<'_>) -> Result<()> {
        self.remove_entry(self.entries.find(key.as_bytes()));
        Ok(())
    }

    fn unstage(&mut self, key: &Key<'_>) -> Result<()> {
        self.unstage_key(key.as_bytes());
        Ok(())
    }

    fn stage(&mut self, key: &Key<'_>, visible_after: Timestamp, restage: Restage) -> Result<()> {
        self.stage_key(key.as_bytes(), visible_after, restage);
        Ok(())
    }
}
