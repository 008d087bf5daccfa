//! Byte strings in their order. One type for everyone who needs it, so that wasm carries the code of one tree.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

/// Names or keys in bytewise order, each with the number under which its owner keeps what belongs to it. For engines.
#[derive(Clone, Debug, Default)]
pub struct Order(BTreeMap<Box<[u8]>, u32>);

impl Order {
    /// Adds `name`, or gives it another number.
    #[inline(never)]
    pub fn insert(&mut self, name: &[u8], number: u32) {
        self.0.insert(name.into(), number);
    }

    /// Takes `name` out, where it is there.
    #[inline(never)]
    pub fn remove(&mut self, name: &[u8]) {
        self.0.remove(name);
    }

    /// The number of `name`.
    #[inline(never)]
    pub fn get(&self, name: &[u8]) -> Option<u32> {
        self.0.get(name).copied()
    }

    /// The number of the first name.
    #[inline(never)]
    pub fn first(&self) -> Option<u32> {
        self.0.first_key_value().map(|(_, number)| *number)
    }

    /// The numbers of the names that begin with `prefix` and come after `after`, in order, `limit` at most.
    #[inline(never)]
    pub fn page(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Vec<u32> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut numbers = Vec::new();
        for (name, number) in self.0.range::<[u8], _>((start, Bound::Unbounded)) {
            if numbers.len() == limit || !name.starts_with(prefix) {
                break;
            }
            numbers.push(*number);
        }
        numbers
    }

    /// All numbers, in the order of their names.
    pub fn all(&self) -> Vec<u32> {
        self.page(&[], None, usize::MAX)
    }
}
