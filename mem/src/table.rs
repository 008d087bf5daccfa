//! Rows by name: the structure under locks and entries.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use alkstore::Timestamp;
use foldhash::fast::SeedableRandomState;
use foldhash::SharedSeed;
use hashbrown::HashTable;
use std::hash::BuildHasher;

use crate::deadlines::Deadlines;

/// How many names without a row are remembered.
const MAX_GHOSTS: usize = 1024;

/// A table of rows, found by name, by slot, by deadline, and in bytewise order of the names.
///
/// A row lives in a numbered slot. A slot that loses its row stays behind as a *ghost* for a while: it keeps its name,
/// so that taking the same name again neither allocates nor inserts, and so that a caller may keep the slot's
/// [`Handle`] and skip the look-up. Only [`MAX_GHOSTS`] are kept, oldest out first, so names that never come back take
/// no lasting room.
#[derive(Debug)]
pub(crate) struct Table<R> {
    names: HashTable<u32>,
    hasher: SeedableRandomState,
    slots: Vec<Slot<R>>,
    /// The first slot without a name; each names the next in its `link`.
    free: u32,
    /// Slots that lost their row, oldest first; some have a row again.
    ghosts: VecDeque<u32>,
    deadlines: Deadlines,
    /// Names with a row, in order. Built when somebody first lists, and kept up from then on.
    order: Option<BTreeMap<Box<[u8]>, u32>>,
    len: usize,
    generation: u32,
}

#[derive(Debug)]
struct Slot<R> {
    name: Box<[u8]>,
    row: Option<R>,
    generation: u32,
    /// Of a slot without a name: the next such. Of a named one: [`QUEUED`] or [`LOOSE`].
    link: u32,
}

/// The slot is in the queue of ghosts.
const QUEUED: u32 = u32::MAX - 1;
/// The slot is not; as a link between free slots: there is no next one.
const LOOSE: u32 = u32::MAX;

/// A slot as a caller may keep it: valid until the slot is given another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The slot's number.
    pub slot: u32,
    /// Told apart from later names of the same slot by this.
    pub generation: u32,
}

/// Where a name is, or would be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// In this slot, with a row or as a ghost.
    At(u32),
    /// Nowhere yet; its hash.
    New(u64),
}

impl<R> Table<R> {
    /// An empty table. `seed` keys the hash; whoever cannot guess it cannot make names collide. `generation` must be
    /// above those of a table that this one replaces.
    pub(crate) fn new(seed: u64, generation: u32) -> Self {
        Self {
            names: HashTable::new(),
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            slots: Vec::new(),
            free: LOOSE,
            ghosts: VecDeque::new(),
            deadlines: Deadlines::default(),
            order: None,
            len: 0,
            generation,
        }
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A number above every generation given so far.
    pub(crate) fn next_generation(&self) -> u32 {
        self.generation
    }

    /// Finds `name`.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Place {
        let hash = self.hasher.hash_one(name);
        self.names
            .find(hash, |&slot| &*self.slots[slot as usize].name == name)
            .map_or(Place::New(hash), |&slot| Place::At(slot))
    }

    /// Finds what `handle` was given for, unless its slot has another name by now.
    #[inline]
    pub(crate) fn resolve(&self, handle: Handle) -> Option<u32> {
        self.slots
            .get(handle.slot as usize)
            .filter(|slot| slot.generation == handle.generation)
            .map(|_| handle.slot)
    }

    /// The handle of `slot`.
    #[inline]
    pub(crate) fn handle(&self, slot: u32) -> Handle {
        Handle {
            slot,
            generation: self.slots[slot as usize].generation,
        }
    }

    /// The row at `place`.
    #[inline]
    pub(crate) fn row(&self, place: Place) -> Option<&R> {
        match place {
            Place::At(slot) => self.slots[slot as usize].row.as_ref(),
            Place::New(_) => None,
        }
    }

    /// The name of `slot`.
    pub(crate) fn name(&self, slot: u32) -> &[u8] {
        &self.slots[slot as usize].name
    }

    /// The deadline of the row in `slot`.
    #[inline]
    pub(crate) fn deadline(&self, place: Place) -> Option<Timestamp> {
        match place {
            Place::At(slot) => self.deadlines.get(slot),
            Place::New(_) => None,
        }
    }

    /// The slot whose row lapses first, and when.
    pub(crate) fn earliest(&self) -> Option<(u32, Timestamp)> {
        self.deadlines.earliest()
    }

    /// Moves the deadline of the row in `slot`.
    #[inline]
    pub(crate) fn set_deadline(&mut self, slot: u32, deadline: Option<Timestamp>) {
        self.deadlines.set(slot, deadline);
    }

    /// Puts `row` at the place that [`find`](Self::find) gave for `name`; answers its slot and the row that was there.
    pub(crate) fn occupy(
        &mut self,
        place: Place,
        name: &[u8],
        row: R,
        deadline: Option<Timestamp>,
    ) -> (u32, Option<R>) {
        let slot = match place {
            Place::At(slot) => slot,
            Place::New(hash) => self.settle(hash, name),
        };
        self.deadlines.set(slot, deadline);
        let old = self.slots[slot as usize].row.replace(row);
        if old.is_none() {
            self.len += 1;
            if let Some(order) = &mut self.order {
                order.insert(name.into(), slot);
            }
        }
        (slot, old)
    }

    /// Takes the row out of `slot`, which becomes a ghost.
    pub(crate) fn vacate(&mut self, slot: u32) -> Option<R> {
        let cell = &mut self.slots[slot as usize];
        let row = cell.row.take()?;
        self.len -= 1;
        self.deadlines.set(slot, None);
        if let Some(order) = &mut self.order {
            order.remove(&cell.name);
        }
        if cell.link != QUEUED {
            cell.link = QUEUED;
            self.ghosts.push_back(slot);
            if self.ghosts.len() > MAX_GHOSTS {
                self.forget_oldest_ghost();
            }
        }
        Some(row)
    }

    /// Names and slots that have a row, in bytewise order of the names.
    pub(crate) fn sorted(&self) -> Vec<(&[u8], u32)> {
        let mut names = Vec::with_capacity(self.len);
        for (slot, cell) in (0..).zip(&self.slots) {
            if cell.row.is_some() {
                names.push((&*cell.name, slot));
            }
        }
        sort(&mut names);
        names
    }

    /// The slots with a row whose names begin with `prefix` and come after `after`, in bytewise order.
    pub(crate) fn ordered<'a>(
        &'a mut self,
        prefix: &'a [u8],
        after: Option<&[u8]>,
    ) -> impl Iterator<Item = u32> + 'a {
        let slots = &self.slots;
        let order = self.order.get_or_insert_with(|| {
            // One by one: building a tree from an iterator sorts first, whose code is too large for wasm.
            let mut order = BTreeMap::new();
            for (slot, cell) in (0..).zip(slots) {
                if cell.row.is_some() {
                    order.insert(cell.name.clone(), slot);
                }
            }
            order
        });
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        order
            .range::<[u8], _>((start, Bound::Unbounded))
            .take_while(move |(name, _)| name.starts_with(prefix))
            .map(|(_, slot)| *slot)
    }

    /// Gives a name a slot.
    fn settle(&mut self, hash: u64, name: &[u8]) -> u32 {
        let generation = self.generation;
        self.generation = self.generation.wrapping_add(1);
        let cell = Slot {
            name: name.into(),
            row: None,
            generation,
            link: LOOSE,
        };
        let slot = self.free;
        let slot = if let Some(vacant) = self.slots.get_mut(slot as usize) {
            self.free = vacant.link;
            *vacant = cell;
            slot
        } else {
            self.slots.push(cell);
            // A table of 2^32 slots would take more than 200 GB: memory ends first.
            u32::try_from(self.slots.len() - 1).unwrap_or(LOOSE)
        };
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.names.insert_unique(hash, slot, |&slot| {
            hasher.hash_one(&*slots[slot as usize].name)
        });
        slot
    }

    fn forget_oldest_ghost(&mut self) {
        let Some(slot) = self.ghosts.pop_front() else {
            return;
        };
        let cell = &mut self.slots[slot as usize];
        if cell.row.is_some() {
            cell.link = LOOSE;
            return;
        }
        let name = std::mem::take(&mut cell.name);
        cell.generation = self.generation;
        cell.link = self.free;
        self.free = slot;
        self.generation = self.generation.wrapping_add(1);
        let hash = self.hasher.hash_one(&*name);
        if let Ok(found) = self.names.find_entry(hash, |&other| other == slot) {
            found.remove();
        }
    }
}

/// One sort for all tables, so that wasm carries its code once.
pub(crate) fn sort(names: &mut [(&[u8], u32)]) {
    names.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(table: &mut Table<u32>, name: &[u8], row: u32) -> Handle {
        let place = table.find(name);
        let (slot, _) = table.occupy(place, name, row, None);
        table.handle(slot)
    }

    #[test]
    fn names_that_never_come_back_take_no_lasting_room() {
        let mut table = Table::new(7, 0);
        for n in 0..100_000_u32 {
            let handle = put(&mut table, &n.to_le_bytes(), n);
            assert_eq!(table.vacate(handle.slot), Some(n));
        }
        assert!(table.slots.len() <= MAX_GHOSTS + 1, "{}", table.slots.len());
        assert!(table.names.len() <= MAX_GHOSTS + 1);
        assert!(table.ghosts.len() <= MAX_GHOSTS + 1);
    }

    #[test]
    fn a_handle_ends_with_its_name() {
        let mut table = Table::new(7, 0);
        let first = put(&mut table, b"first", 1);
        table.vacate(first.slot);
        assert_eq!(
            table.resolve(first),
            Some(first.slot),
            "a ghost keeps its name"
        );
        assert_eq!(put(&mut table, b"first", 2), first);
        table.vacate(first.slot);
        for n in 0..=u32::try_from(MAX_GHOSTS).unwrap() {
            let other = put(&mut table, &n.to_le_bytes(), n);
            table.vacate(other.slot);
        }
        assert_eq!(table.resolve(first), None);
        assert_ne!(put(&mut table, b"first", 3), first);
    }

    #[test]
    fn listing_is_in_order_before_and_after_changes() {
        let mut table = Table::new(7, 0);
        for name in ["b", "a/2", "a/1", "a/10", "c"] {
            put(&mut table, name.as_bytes(), 0);
        }
        let names = |table: &mut Table<u32>, prefix: &str, after: Option<&str>| -> Vec<String> {
            let slots: Vec<u32> = table
                .ordered(prefix.as_bytes(), after.map(str::as_bytes))
                .collect();
            slots
                .iter()
                .map(|slot| String::from_utf8(table.name(*slot).to_vec()).unwrap())
                .collect()
        };
        assert_eq!(
            names(&mut table, "", None),
            ["a/1", "a/10", "a/2", "b", "c"]
        );
        assert_eq!(names(&mut table, "a/", Some("a/1")), ["a/10", "a/2"]);
        assert_eq!(names(&mut table, "b", Some("a")), ["b"]);
        let Place::At(slot) = table.find(b"a/10") else {
            panic!("a/10 is there")
        };
        table.vacate(slot);
        put(&mut table, b"a/0", 0);
        assert_eq!(names(&mut table, "a", None), ["a/0", "a/1", "a/2"]);
    }
}
