//! Runs of sorted names.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// How many names stand together at most.
const RUN: usize = 255;

type Named = (Box<[u8]>, u32);

/// Names or keys in bytewise order, each with the number under which its owner keeps what belongs to it. For engines.
///
/// Runs of sorted names, none of them empty: a fifth of a tree's code. At 10^6 names in random order an insertion takes two
/// to three times as long as in a tree.
#[derive(Clone, Debug, Default)]
pub struct Order(Vec<Vec<Named>>);

impl Order {
    /// Adds `name`, or gives it another number.
    #[inline(never)]
    pub fn insert(&mut self, name: &[u8], number: u32) {
        let (at, found) = self.find(name);
        let Some(run) = self.0.get_mut(at) else {
            let mut run = Vec::with_capacity(4);
            run.push((name.into(), number));
            self.0.push(run);
            return;
        };
        match found {
            Ok(place) => run[place].1 = number,
            Err(place) => {
                run.insert(place, (name.into(), number));
                if run.len() > RUN {
                    // Names that come in order fill their runs.
                    let half = if place == RUN { RUN } else { RUN / 2 };
                    let rest = run.split_off(half);
                    self.0.insert(at + 1, rest);
                }
            }
        }
    }

    /// Takes `name` out, where it is there.
    #[inline(never)]
    pub fn remove(&mut self, name: &[u8]) {
        if let (at, Ok(place)) = self.find(name) {
            let run = &mut self.0[at];
            run.remove(place);
            let left = run.len();
            if left == 0 {
                self.0.remove(at);
            } else if self
                .0
                .get(at + 1)
                .is_some_and(|next| left + next.len() <= RUN / 2)
            {
                let mut next = self.0.remove(at + 1);
                self.0[at].append(&mut next);
            }
        }
    }

    /// The number of `name`.
    #[inline(never)]
    pub fn get(&self, name: &[u8]) -> Option<u32> {
        let (at, found) = self.find(name);
        Some(self.0.get(at)?.get(found.ok()?)?.1)
    }

    /// The number of the first name.
    pub fn first(&self) -> Option<u32> {
        Some(self.0.first()?.first()?.1)
    }

    /// The numbers of the names that begin with `prefix` and come after `after`, in order, `limit` at most.
    #[inline(never)]
    pub fn page(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Vec<u32> {
        let (at, found) = match after {
            Some(after) if after >= prefix => match self.find(after) {
                (at, Ok(place)) => (at, place + 1),
                (at, Err(place)) => (at, place),
            },
            _ => match self.find(prefix) {
                (at, Ok(place) | Err(place)) => (at, place),
            },
        };
        let mut from = found;
        let mut numbers = Vec::new();
        for run in self.0.iter().skip(at) {
            for (name, number) in run.iter().skip(from) {
                if numbers.len() == limit || !name.starts_with(prefix) {
                    return numbers;
                }
                numbers.push(*number);
            }
            from = 0;
        }
        numbers
    }

    /// All numbers, in the order of their names.
    pub fn all(&self) -> Vec<u32> {
        self.page(&[], None, usize::MAX)
    }

    /// The run that `name` is in, or would be, and where there.
    #[inline(never)]
    fn find(&self, name: &[u8]) -> (usize, Result<usize, usize>) {
        // The last run that begins no later.
        let first = |run: &Vec<Named>| {
            run.first()
                .map_or(Ordering::Less, |(first, _)| (**first).cmp(name))
        };
        let at = self
            .0
            .partition_point(|run| first(run) != Ordering::Greater);
        let at = at.saturating_sub(1);
        let run = self.0.get(at).map_or(&[][..], |run| run);
        (at, run.binary_search_by(|(other, _)| (**other).cmp(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    /// A stream of numbers that is the same every time.
    fn roll(dice: &mut u64, sides: u64) -> u64 {
        *dice ^= *dice << 13;
        *dice ^= *dice >> 7;
        *dice ^= *dice << 17;
        (*dice >> 11) % sides
    }

    #[test]
    fn it_is_what_a_tree_is() {
        let (mut order, mut tree) = (Order::default(), BTreeMap::new());
        let mut dice = 0x9E37_79B9_7F4A_7C15;
        // Grows, stands, shrinks to nothing, and comes in order.
        for (steps, adds) in [(6_000, 9), (6_000, 5), (30_000, 1), (3_000, 10)] {
            for step in 0..steps {
                let name = if adds == 10 {
                    step
                } else {
                    roll(&mut dice, 5_000)
                };
                let name = u32::try_from(name).unwrap().to_be_bytes();
                if roll(&mut dice, 10) < adds {
                    let number = u32::try_from(step).unwrap();
                    order.insert(&name, number);
                    tree.insert(name.to_vec(), number);
                } else {
                    order.remove(&name);
                    tree.remove(&name[..]);
                }
                assert_eq!(order.get(&name), tree.get(&name[..]).copied());
                assert_eq!(order.first(), tree.values().next().copied());
                if step % 97 == 0 {
                    let after = tree
                        .range(name.to_vec()..)
                        .filter(|(other, _)| ***other != name);
                    let after: Vec<_> = after.map(|(_, number)| *number).take(300).collect();
                    assert_eq!(order.page(&[], Some(&name), 300), after);
                    let within = tree
                        .iter()
                        .filter(|(other, _)| other.starts_with(&name[..3]));
                    let within: Vec<_> = within.map(|(_, number)| *number).collect();
                    assert_eq!(order.page(&name[..3], None, 9_999), within);
                    assert_eq!(order.all(), tree.values().copied().collect::<Vec<_>>());
                }
                assert!(order
                    .0
                    .iter()
                    .all(|run| !run.is_empty() && run.len() <= RUN));
            }
        }
    }
}
