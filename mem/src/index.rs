//! Names in numbered slots: the part of a table that does not depend on what its rows are, so that wasm carries it once.

use std::collections::{BinaryHeap, VecDeque};
use std::hash::BuildHasher;

use alkstore::order::Order;
use alkstore::Timestamp;
use foldhash::fast::SeedableRandomState;
use foldhash::SharedSeed;
use hashbrown::HashTable;

use crate::deadlines::Deadlines;

/// How many names without a row are remembered.
pub(crate) const MAX_GHOSTS: usize = 1024;

/// Which slot a name has, found by the name and by a [`Handle`]; which slot lapses first; which come in what order.
///
/// A slot that is left stays behind as a *ghost* for a while: it keeps its name, so that taking the same name again
/// neither allocates nor inserts, and so that a caller may keep the slot's handle and skip the look-up. Only
/// [`MAX_GHOSTS`] are kept, oldest out first, so names that never come back take no lasting room.
#[derive(Debug)]
pub(crate) struct Index {
    names: HashTable<u32>,
    hasher: SeedableRandomState,
    cells: Vec<Cell>,
    /// The first slot without a name; each names the next in its `link`.
    free: u32,
    /// Slots that were left, oldest first; some are held again.
    ghosts: VecDeque<u32>,
    pub(crate) deadlines: Deadlines,
    /// Names of held slots, in order. Built when somebody first lists, and kept up from then on.
    order: Option<Order>,
    held: usize,
    generation: u32,
}

#[derive(Debug)]
struct Cell {
    name: Box<[u8]>,
    generation: u32,
    /// One of the constants below; of a slot without a name the next such.
    link: u32,
}

/// The slot is held.
const HELD: u32 = u32::MAX;
/// The slot is held, and stands in the queue of ghosts since before.
const HELD_QUEUED: u32 = u32::MAX - 1;
/// The slot was left, and stands in the queue of ghosts.
const GHOST: u32 = u32::MAX - 2;
/// There is no next slot without a name.
const NO_SLOT: u32 = u32::MAX - 3;

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
    /// In this slot, held or a ghost.
    At(u32),
    /// Nowhere yet; its hash.
    New(u64),
}

impl Index {
    /// An empty index. `seed` keys the hash; whoever cannot guess it cannot make names collide. `generation` must be
    /// above those of an index that this one replaces.
    pub(crate) fn new(seed: u64, generation: u32) -> Self {
        Self {
            names: HashTable::new(),
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            cells: Vec::new(),
            free: NO_SLOT,
            ghosts: VecDeque::new(),
            deadlines: Deadlines::default(),
            order: None,
            held: 0,
            generation,
        }
    }

    /// The number of held slots.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// A number above every generation given so far.
    pub(crate) fn next_generation(&self) -> u32 {
        self.generation
    }

    /// Finds `name`.
    pub(crate) fn find(&self, name: &[u8]) -> Place {
        let hash = self.hasher.hash_one(name);
        self.names
            .find(hash, |&slot| &*self.cells[slot as usize].name == name)
            .map_or(Place::New(hash), |&slot| Place::At(slot))
    }

    /// Finds what `handle` was given for, unless its slot has another name by now.
    #[inline]
    pub(crate) fn resolve(&self, handle: Handle) -> Option<u32> {
        self.cells
            .get(handle.slot as usize)
            .filter(|cell| cell.generation == handle.generation)
            .map(|_| handle.slot)
    }

    /// The handle of `name`, where it has a slot, held or a ghost.
    pub(crate) fn look_up(&self, name: &[u8]) -> Option<Handle> {
        match self.find(name) {
            Place::At(slot) => Some(self.handle(slot)),
            Place::New(_) => None,
        }
    }

    /// The handle of `slot`.
    #[inline]
    pub(crate) fn handle(&self, slot: u32) -> Handle {
        Handle {
            slot,
            generation: self.cells[slot as usize].generation,
        }
    }

    /// The name of `slot`.
    #[inline]
    pub(crate) fn name(&self, slot: u32) -> &[u8] {
        &self.cells[slot as usize].name
    }

    /// The name at `place`, which is `name` where it has no slot yet.
    #[inline]
    pub(crate) fn name_at<'a>(&'a self, place: Place, name: &'a [u8]) -> &'a [u8] {
        match place {
            Place::At(slot) => self.name(slot),
            Place::New(_) => name,
        }
    }

    /// Holds the slot of the place that [`find`](Self::find) gave for `name`.
    #[inline(never)]
    pub(crate) fn hold(&mut self, place: Place, name: &[u8], deadline: Option<Timestamp>) -> u32 {
        let slot = match place {
            Place::At(slot) => slot,
            Place::New(hash) => self.settle(hash, name),
        };
        self.deadlines.set(slot, deadline);
        let cell = &mut self.cells[slot as usize];
        cell.link = match cell.link {
            HELD | HELD_QUEUED => return slot,
            GHOST => HELD_QUEUED,
            _ => HELD,
        };
        self.held += 1;
        if let Some(order) = &mut self.order {
            order.insert(&cell.name, slot);
        }
        slot
    }

    /// Leaves `slot`, which becomes a ghost, if it was held.
    #[inline(never)]
    pub(crate) fn leave(&mut self, slot: u32) {
        let cell = &mut self.cells[slot as usize];
        let queued = match cell.link {
            HELD => false,
            HELD_QUEUED => true,
            _ => return,
        };
        cell.link = GHOST;
        self.held -= 1;
        if let Some(order) = &mut self.order {
            order.remove(&cell.name);
        }
        self.deadlines.set(slot, None);
        if !queued {
            self.ghosts.push_back(slot);
            if self.ghosts.len() > MAX_GHOSTS {
                self.forget_oldest_ghost();
            }
        }
    }

    /// Names and numbers of the held slots, in no order.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&[u8], u32)> {
        held(&self.cells)
    }

    /// Names and numbers of the held slots, in bytewise order of the names.
    pub(crate) fn sorted(&self) -> Vec<(&[u8], u32)> {
        let mut names = Vec::with_capacity(self.held);
        names.extend(held(&self.cells));
        sort(names)
    }

    /// The held slots whose names begin with `prefix` and come after `after`, in bytewise order, `limit` at most.
    pub(crate) fn page(&mut self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Vec<u32> {
        let cells = &self.cells;
        self.order
            .get_or_insert_with(|| {
                let mut order = Order::default();
                for (name, slot) in held(cells) {
                    order.insert(name, slot);
                }
                order
            })
            .page(prefix, after, limit)
    }

    /// Gives a name a slot.
    fn settle(&mut self, hash: u64, name: &[u8]) -> u32 {
        let generation = self.generation;
        self.generation = self.generation.wrapping_add(1);
        let cell = Cell {
            name: name.into(),
            generation,
            link: NO_SLOT,
        };
        let slot = self.free;
        let slot = if let Some(vacant) = self.cells.get_mut(slot as usize) {
            self.free = vacant.link;
            *vacant = cell;
            slot
        } else {
            self.cells.push(cell);
            // An index of 2^32 slots would take more than 200 GB: memory ends first.
            u32::try_from(self.cells.len() - 1).unwrap_or(NO_SLOT)
        };
        let (cells, hasher) = (&self.cells, &self.hasher);
        self.names.insert_unique(hash, slot, |&slot| {
            hasher.hash_one(&*cells[slot as usize].name)
        });
        slot
    }

    fn forget_oldest_ghost(&mut self) {
        let Some(slot) = self.ghosts.pop_front() else {
            return;
        };
        let cell = &mut self.cells[slot as usize];
        if cell.link == HELD_QUEUED {
            cell.link = HELD;
            return;
        }
        let name = std::mem::take(&mut cell.name);
        cell.generation = self.generation;
        self.generation = self.generation.wrapping_add(1);
        cell.link = self.free;
        self.free = slot;
        let hash = self.hasher.hash_one(&*name);
        if let Ok(found) = self.names.find_entry(hash, |&other| other == slot) {
            found.remove();
        }
    }
}

/// Names and numbers of the slots that are held, in no order.
fn held(cells: &[Cell]) -> impl Iterator<Item = (&[u8], u32)> {
    (0..)
        .zip(cells)
        .filter(|(_, cell)| cell.link >= HELD_QUEUED)
        .map(|(slot, cell)| (&*cell.name, slot))
}

/// One sort for all tables, and one whose code is a fifth of `sort_unstable`'s: wasm carries it.
pub(crate) fn sort(names: Vec<(&[u8], u32)>) -> Vec<(&[u8], u32)> {
    BinaryHeap::from(names).into_sorted_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(index: &mut Index, name: &[u8]) -> Handle {
        let place = index.find(name);
        let slot = index.hold(place, name, None);
        index.handle(slot)
    }

    #[test]
    fn names_that_never_come_back_take_no_lasting_room() {
        let mut index = Index::new(7, 0);
        for n in 0..100_000_u32 {
            let handle = hold(&mut index, &n.to_le_bytes());
            index.leave(handle.slot);
        }
        assert_eq!(index.held(), 0);
        assert!(index.cells.len() <= MAX_GHOSTS + 1, "{}", index.cells.len());
        assert!(index.names.len() <= MAX_GHOSTS + 1);
        assert!(index.ghosts.len() <= MAX_GHOSTS + 1);
    }

    #[test]
    fn a_handle_ends_with_its_name() {
        let mut index = Index::new(7, 0);
        let first = hold(&mut index, b"first");
        index.leave(first.slot);
        assert_eq!(
            index.resolve(first),
            Some(first.slot),
            "a ghost keeps its name"
        );
        assert_eq!(hold(&mut index, b"first"), first);
        index.leave(first.slot);
        for n in 0..=u32::try_from(MAX_GHOSTS).unwrap() {
            let other = hold(&mut index, &n.to_le_bytes());
            index.leave(other.slot);
        }
        assert_eq!(index.resolve(first), None);
        assert_ne!(hold(&mut index, b"first"), first);
    }

    #[test]
    fn listing_is_in_order_before_and_after_changes() {
        let mut index = Index::new(7, 0);
        for name in ["b", "a/2", "a/1", "a/10", "c"] {
            hold(&mut index, name.as_bytes());
        }
        let names = |index: &mut Index, prefix: &str, after: Option<&str>, limit| -> Vec<String> {
            let slots = index.page(prefix.as_bytes(), after.map(str::as_bytes), limit);
            let name = |slot: &u32| String::from_utf8(index.name(*slot).to_vec()).unwrap();
            slots.iter().map(name).collect()
        };
        assert_eq!(
            names(&mut index, "", None, 9),
            ["a/1", "a/10", "a/2", "b", "c"]
        );
        assert_eq!(names(&mut index, "a/", Some("a/1"), 9), ["a/10", "a/2"]);
        assert_eq!(names(&mut index, "b", Some("a"), 9), ["b"]);
        assert_eq!(names(&mut index, "", None, 2), ["a/1", "a/10"]);
        assert!(names(&mut index, "", None, 0).is_empty());
        let Place::At(slot) = index.find(b"a/10") else {
            panic!("a/10 is there")
        };
        index.leave(slot);
        index.leave(slot);
        hold(&mut index, b"a/0");
        assert_eq!(names(&mut index, "a", None, 9), ["a/0", "a/1", "a/2"]);
        let sorted: Vec<_> = index
            .sorted()
            .iter()
            .map(|(name, _)| name.to_vec())
            .collect();
        assert_eq!(
            sorted,
            ["a/0", "a/1", "a/2", "b", "c"].map(|name| name.as_bytes().to_vec())
        );
        assert_eq!(index.held(), 5);
    }
}
