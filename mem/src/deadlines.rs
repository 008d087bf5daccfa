//! Which slot lapses first: a heap of slots by deadline that knows where each slot is.

use alkstore::Timestamp;

/// Children of a node. Four keep the tree shallow, and a node's children in one cache line.
const ARITY: usize = 4;

/// The place of a slot that has no deadline.
const NOWHERE: u32 = u32::MAX;

/// The deadlines of a table's slots. Finding the earliest takes no time; setting or clearing one is logarithmic, and
/// constant where deadlines are set in their order and cleared soon, as leases are. Nothing stale is ever kept, so the
/// heap is as large as the number of deadlines.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    heap: Vec<u32>,
    at: Vec<Timestamp>,
    place: Vec<u32>,
}

impl Deadlines {
    /// The deadline of `slot`.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<Timestamp> {
        match self.place.get(slot as usize) {
            Some(&place) if place != NOWHERE => self.at.get(slot as usize).copied(),
            _ => None,
        }
    }

    /// The slot that lapses first, and when.
    pub(crate) fn earliest(&self) -> Option<(u32, Timestamp)> {
        let slot = *self.heap.first()?;
        Some((slot, self.at[slot as usize]))
    }

    /// All slots that have one, in no order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.heap.iter().copied()
    }

    /// Sets or clears the deadline of `slot`.
    #[inline(never)]
    pub(crate) fn set(&mut self, slot: u32, deadline: Option<Timestamp>) {
        let index = slot as usize;
        let Some(deadline) = deadline else {
            return self.clear(slot);
        };
        if self.place.len() <= index {
            self.place.resize(index + 1, NOWHERE);
            self.at.resize(index + 1, Timestamp::MIN);
        }
        let before = self.at[index];
        self.at[index] = deadline;
        let place = self.place[index];
        if place == NOWHERE {
            self.heap.push(slot);
            self.rise(self.heap.len() - 1);
        } else if deadline < before {
            self.rise(place as usize);
        } else {
            self.sink(place as usize);
        }
    }

    fn clear(&mut self, slot: u32) {
        let Some(&place) = self.place.get(slot as usize) else {
            return;
        };
        if place == NOWHERE {
            return;
        }
        self.place[slot as usize] = NOWHERE;
        let place = place as usize;
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            // The slot that came from the end may belong further up or further down.
            self.rise(place);
            self.sink(place);
        }
    }

    fn rise(&mut self, mut place: usize) {
        let slot = self.heap[place];
        let deadline = self.at[slot as usize];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            let above = self.heap[parent];
            if self.at[above as usize] <= deadline {
                break;
            }
            self.put(above, place);
            place = parent;
        }
        self.put(slot, place);
    }

    fn sink(&mut self, mut place: usize) {
        let slot = self.heap[place];
        let deadline = self.at[slot as usize];
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.at[self.heap[child] as usize])
            else {
                break;
            };
            let below = self.heap[least];
            if deadline <= self.at[below as usize] {
                break;
            }
            self.put(below, place);
            place = least;
        }
        self.put(slot, place);
    }

    #[allow(clippy::cast_possible_truncation)] // there are fewer places than slots, and slots are u32
    fn put(&mut self, slot: u32, place: usize) {
        self.heap[place] = slot;
        self.place[slot as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_right_after_any_history() {
        let mut deadlines = Deadlines::default();
        let mut plain = std::collections::BTreeMap::new();
        let mut random: u64 = 1;
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let slot = u32::try_from(random >> 58).unwrap();
            let deadline = (random >> 40) % 3 != 0;
            let deadline = deadline
                .then(|| Timestamp::from_nanos(i64::try_from((random >> 20) % 1000).unwrap()));
            deadlines.set(slot, deadline);
            match deadline {
                Some(at) => plain.insert(slot, at),
                None => plain.remove(&slot),
            };
            assert_eq!(deadlines.get(slot), deadline);
            assert_eq!(
                deadlines.earliest().map(|(_, at)| at),
                plain.values().min().copied()
            );
            assert_eq!(deadlines.heap.len(), plain.len());
        }
    }
}
