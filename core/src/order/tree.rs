//! A tree whose short names are kept in it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

use inline::Name;

/// Names or keys in bytewise order, each with the number under which its owner keeps what belongs to it. For engines.
#[derive(Clone, Debug, Default)]
pub struct Order(BTreeMap<Name, u32>);

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

/// Names that the tree compares without following a pointer, and keeps without an allocation for each.
mod inline {
    use alloc::boxed::Box;
    use core::borrow::Borrow;
    use core::cmp::Ordering;

    /// Room for an instant and a key that is a hash of 32 bytes; about what an allocation of its own would take.
    const ROOM: usize = 46;

    #[derive(Clone, Debug)]
    pub(super) enum Name {
        Short(u8, [u8; ROOM]),
        Long(Box<[u8]>),
    }

    impl From<&[u8]> for Name {
        fn from(bytes: &[u8]) -> Self {
            let mut room = [0; ROOM];
            match (room.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
                (Some(part), Ok(length)) => {
                    part.copy_from_slice(bytes);
                    Self::Short(length, room)
                }
                _ => Self::Long(bytes.into()),
            }
        }
    }

    impl Borrow<[u8]> for Name {
        #[inline]
        fn borrow(&self) -> &[u8] {
            match self {
                Self::Short(length, room) => room.get(..usize::from(*length)).unwrap_or(room),
                Self::Long(bytes) => bytes,
            }
        }
    }

    impl core::ops::Deref for Name {
        type Target = [u8];

        #[inline]
        fn deref(&self) -> &[u8] {
            self.borrow()
        }
    }

    impl PartialEq for Name {
        fn eq(&self, other: &Self) -> bool {
            **self == **other
        }
    }

    impl Eq for Name {}

    impl PartialOrd for Name {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Name {
        fn cmp(&self, other: &Self) -> Ordering {
            (**self).cmp(&**other)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_length_are_in_bytewise_order() {
        let mut names: Vec<Vec<u8>> = Vec::new();
        for length in [0, 1, 45, 46, 47, 255, 256, 300] {
            for end in [0, 1, 255] {
                let mut name = alloc::vec![7; length];
                name.push(end);
                names.push(name);
            }
        }
        let mut order = Order::default();
        for (number, name) in (0..).zip(&names) {
            order.insert(name, number);
        }
        let sorted = |order: &Order| {
            let numbers = order.all().into_iter();
            numbers
                .map(|number| names[number as usize].clone())
                .collect::<Vec<_>>()
        };
        let mut expected = names.clone();
        expected.sort();
        assert_eq!(sorted(&order), expected);
        for name in names.iter().step_by(2) {
            order.remove(name);
            assert_eq!(order.get(name), None);
            expected.retain(|other| other != name);
        }
        assert_eq!(sorted(&order), expected);
    }
}
