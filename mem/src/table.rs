//! Rows by name: the structure under locks, entries and the window.

use std::ops::{Deref, DerefMut};

use alkstore::Timestamp;

use crate::index::{Index, Place};

/// An [`Index`] of names, and a row for each slot that is held.
#[derive(Debug)]
pub(crate) struct Table<R> {
    index: Index,
    rows: Vec<Option<R>>,
}

impl<R> Table<R> {
    /// An empty table; see [`Index::new`].
    pub(crate) fn new(seed: u64, generation: u32) -> Self {
        Self {
            index: Index::new(seed, generation),
            rows: Vec::new(),
        }
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.index.held()
    }

    /// The row at `place`.
    #[inline]
    pub(crate) fn row(&self, place: Place) -> Option<&R> {
        match place {
            Place::At(slot) => self.rows.get(slot as usize)?.as_ref(),
            Place::New(_) => None,
        }
    }

    /// The deadline of the row at `place`.
    #[inline]
    pub(crate) fn deadline(&self, place: Place) -> Option<Timestamp> {
        match place {
            Place::At(slot) => self.index.deadlines.get(slot),
            Place::New(_) => None,
        }
    }

    /// Puts `row` at the place that [`find`](Index::find) gave for `name`, which may be left out where the place has
    /// it; answers its slot and the row that was there.
    pub(crate) fn occupy(
        &mut self,
        place: Place,
        name: &[u8],
        row: R,
        deadline: Option<Timestamp>,
    ) -> (u32, Option<R>) {
        let slot = self.index.hold(place, name, deadline);
        if let Some(cell) = self.rows.get_mut(slot as usize) {
            return (slot, cell.replace(row));
        }
        // The index numbers its slots without gaps.
        self.rows.push(Some(row));
        (slot, None)
    }

    /// Takes the row out of `slot`, which becomes a ghost.
    pub(crate) fn vacate(&mut self, slot: u32) -> Option<R> {
        let row = self.rows.get_mut(slot as usize)?.take()?;
        self.index.leave(slot);
        Some(row)
    }
}

impl<R> Deref for Table<R> {
    type Target = Index;

    fn deref(&self) -> &Index {
        &self.index
    }
}

impl<R> DerefMut for Table<R> {
    fn deref_mut(&mut self) -> &mut Index {
        &mut self.index
    }
}
