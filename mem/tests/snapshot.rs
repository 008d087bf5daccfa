//! Snapshots that no store wrote: cut, changed, and sealed anew with a checksum that fits.
#![allow(clippy::unwrap_used)] // in a test an unwrap is its failure

use std::error::Error as _;
use std::time::Duration;

use alkstore::{
    Candidate, Error, ErrorKind, Key, ManualClock, PutOptions, Restage, Revision, Timestamp,
};
use alkstore_mem::{MemStore, SnapshotError, Stats};
use crc::{Crc, CRC_32_ISO_HDLC};

const HEADER: usize = 8 + 4;
const COUNTER: usize = HEADER;
const COUNTS: usize = COUNTER + 8;
const ROWS: usize = COUNTS + 3 * 8;

fn store() -> MemStore<ManualClock> {
    MemStore::new(ManualClock::new(Timestamp::from_nanos(1_000)))
}

/// One row of each kind, the first of them with names of one byte.
fn sample() -> Vec<u8> {
    let store = store();
    store.try_lock("n", "o", Duration::from_secs(9)).unwrap();
    store.put(b"k", b"value", &PutOptions::create()).unwrap();
    let ttl = PutOptions::create().ttl(Duration::from_secs(5));
    store.put(b"l", b"", &ttl).unwrap();
    let candidate = |key: &'static [u8]| Candidate {
        key: Key::new(key).unwrap(),
        visible_after: Timestamp::from_nanos(-5),
    };
    store
        .window_stage(&[candidate(b"a"), candidate(b"b")], Restage::Move)
        .unwrap();
    store
        .window_claim(Timestamp::from_nanos(0), Duration::from_secs(1), 1)
        .unwrap();
    store.snapshot().unwrap()
}

fn seal(bytes: &mut [u8]) {
    let end = bytes.len() - 4;
    let sum = Crc::<u32>::new(&CRC_32_ISO_HDLC).checksum(&bytes[..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
}

/// Restores into a store that holds something, and sees to it that a refusal leaves it as it was.
fn refusal(bytes: &[u8]) -> SnapshotError {
    let store = store();
    store
        .put(b"mine", b"untouched", &PutOptions::create())
        .unwrap();
    let before: Stats = store.stats().unwrap();
    let error: Error = store.restore(bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(store.stats().unwrap(), before);
    assert_eq!(&*store.get(b"mine").unwrap().unwrap().value, b"untouched");
    *error
        .source()
        .unwrap()
        .downcast_ref::<SnapshotError>()
        .unwrap()
}

#[test]
fn s1_a_snapshot_comes_back_whole() {
    let bytes = sample();
    let copy = store();
    copy.restore(&bytes).unwrap();
    let stats = copy.stats().unwrap();
    assert_eq!((stats.locks, stats.entries, stats.window), (1, 2, 2));
    assert_eq!(stats.bytes, 2 + 1 + 5 + 1 + 2);
    assert_eq!(&*copy.get(b"k").unwrap().unwrap().value, b"value");
    let mut again = copy.snapshot().unwrap();
    again[COUNTER..COUNTS].copy_from_slice(&bytes[COUNTER..COUNTS]);
    seal(&mut again);
    assert_eq!(again, bytes, "all but the counter is as it was");
}

#[test]
fn s1_revisions_go_on_above_both_lineages() {
    let bytes = sample();
    let taken = store().stats().unwrap().revision.max(4);
    let store = store();
    for n in 0..10_u8 {
        store.put(&[n], b"", &PutOptions::create()).unwrap();
    }
    store.restore(&bytes).unwrap();
    let next = store
        .put(b"next", b"", &PutOptions::create())
        .unwrap()
        .version()
        .unwrap();
    assert!(next.get() > (1 << 32) + taken.max(10));
}

#[test]
fn s2_cut_at_every_byte() {
    let bytes = sample();
    for end in 0..bytes.len() {
        refusal(&bytes[..end]);
        if end >= HEADER + 4 {
            let mut cut = bytes[..end].to_vec();
            seal(&mut cut);
            refusal(&cut);
        }
    }
}

#[test]
fn s2_each_bit_flipped() {
    let bytes = sample();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        refusal(&flipped);
    }
}

#[test]
fn s2_flipped_and_sealed_never_panics() {
    let bytes = sample();
    for bit in COUNTER * 8..(bytes.len() - 4) * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        seal(&mut flipped);
        let store = store();
        if store.restore(&flipped).is_ok() {
            store.snapshot().unwrap();
            store.window_take(Timestamp::MAX, None).unwrap();
            store.purge_lapsed(usize::MAX).unwrap();
        }
    }
}

#[test]
fn s2_what_cannot_be() {
    let bytes = sample();
    let changed = |at: usize, new: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        seal(&mut bytes);
        refusal(&bytes)
    };
    assert_eq!(refusal(b""), SnapshotError::NotASnapshot);
    assert_eq!(refusal(b"ALKSNAQ\0"), SnapshotError::NotASnapshot);
    assert_eq!(
        changed(8, &2_u32.to_le_bytes()),
        SnapshotError::Newer { version: 2 }
    );
    assert_eq!(
        changed(8, &0_u32.to_le_bytes()),
        SnapshotError::NotASnapshot
    );
    for bomb in [u64::MAX, 1 << 63, 1 << 32] {
        assert!(matches!(
            changed(COUNTS, &bomb.to_le_bytes()),
            SnapshotError::Truncated | SnapshotError::Invalid(_)
        ));
        changed(COUNTS + 8, &bomb.to_le_bytes());
        changed(COUNTS + 16, &bomb.to_le_bytes());
    }
    let invalid = |error| assert!(matches!(error, SnapshotError::Invalid(_)), "{error}");
    invalid(changed(COUNTER, &1_u64.to_le_bytes())); // tokens above it
    invalid(changed(COUNTER, &Revision::MAX.to_le_bytes())); // nothing left to give
    invalid(changed(COUNTER, &u64::MAX.to_le_bytes()));
    invalid(changed(ROWS + 2, b" ")); // a name of white space
    invalid(changed(ROWS + 2, &[0xff])); // no UTF-8
    let token = ROWS + 2 + 1 + 2 + 1;
    invalid(changed(token, &0_u64.to_le_bytes()));
    let mut longer = bytes.clone();
    longer.push(0);
    seal(&mut longer);
    invalid(refusal(&longer));
    // The two candidates: the second one named like the first, and before it.
    let second = bytes.len() - 4 - (2 + 1 + 8 + 1);
    assert_eq!(&bytes[second..second + 3], b"\x01\0b");
    invalid(changed(second + 2, b"a"));
    invalid(changed(second + 2, b"A"));
    invalid(changed(second + 2 + 1 + 8, &[2])); // a flag that is neither
}
