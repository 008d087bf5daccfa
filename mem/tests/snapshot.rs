//! Snapshots that no store wrote: cut, changed, and sealed anew with a checksum that fits.
#![allow(clippy::unwrap_used)] // in a test an unwrap is its failure

use std::error::Error as _;
use std::time::Duration;

use alkstore::{
    Candidate, Claim, Error, ErrorKind, Key, ManualClock, PutOptions, Reclaim, Restage, Revision,
    Timestamp, WindowRow,
};
use alkstore_mem::{MemStore, SnapshotError, Stats};
use crc::{Crc, CRC_32_ISO_HDLC};

const HEADER: usize = 8 + 4;
const COUNTER: usize = HEADER;
const COUNTS: usize = COUNTER + 8;
const ROWS: usize = COUNTS + 3 * 8;
/// What ends a row of the window: the mark, and how often it was put back.
const TAIL: usize = 1 + 4;

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

fn claim(store: &MemStore<ManualClock>, limit: usize) -> Vec<Claim> {
    store
        .window_claim(Timestamp::from_nanos(0), Duration::from_secs(1), limit)
        .unwrap()
}

/// Two rows: `a` marked, `b` put back 258 times, so that two bytes of its count are not zero.
fn marked() -> Vec<u8> {
    let store = store();
    let candidate = |key: &'static [u8]| Candidate {
        key: Key::new(key).unwrap(),
        visible_after: Timestamp::from_nanos(-5),
    };
    store
        .window_stage(&[candidate(b"b")], Restage::Move)
        .unwrap();
    for _ in 0..258 {
        let claims = claim(&store, 1);
        store
            .window_requeue(&claims, claims[0].visible_after)
            .unwrap();
    }
    store
        .window_stage(&[candidate(b"a")], Restage::Move)
        .unwrap();
    let claims = claim(&store, 1);
    assert_eq!(claims[0].key.as_bytes(), b"a");
    store.window_mark(&claims, None).unwrap();
    store.snapshot().unwrap()
}

fn rows(store: &MemStore<ManualClock>) -> Vec<WindowRow> {
    store.window_list(None, usize::MAX).unwrap()
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
    for bytes in [sample(), marked()] {
        for end in 0..bytes.len() {
            refusal(&bytes[..end]);
            if end >= HEADER + 4 {
                let mut cut = bytes[..end].to_vec();
                seal(&mut cut);
                refusal(&cut);
            }
        }
    }
}

#[test]
fn s2_each_bit_flipped() {
    for bytes in [sample(), marked()] {
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            refusal(&flipped);
        }
    }
}

#[test]
fn s2_flipped_and_sealed_never_panics() {
    for bytes in [sample(), marked(), first_version(&sample())] {
        // The lowest bit of the version is among them: what was written in one format is then read in the other.
        for bit in 8 * 8..(bytes.len() - 4) * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            seal(&mut flipped);
            let store = store();
            if store.restore(&flipped).is_ok() {
                store.snapshot().unwrap();
                let claims = claim(&store, usize::MAX);
                store.window_mark(&claims, None).unwrap();
                store.window_requeue(&claims, Timestamp::MAX).unwrap();
                store.window_take(Timestamp::MAX, None).unwrap();
                store.purge_lapsed(usize::MAX).unwrap();
            }
        }
    }
}

#[test]
fn s1_a_mark_and_a_count_come_back() {
    let copy = store();
    copy.restore(&marked()).unwrap();
    let [a, b] = <[WindowRow; 2]>::try_from(rows(&copy)).unwrap();
    assert_eq!(
        (a.key.as_bytes(), a.reclaiming, a.requeues),
        (&b"a"[..], true, 0)
    );
    assert_eq!(
        (b.key.as_bytes(), b.reclaiming, b.requeues, b.claimed_until),
        (&b"b"[..], false, 258, None)
    );
    assert_eq!(a.claimed_until, Some(Timestamp::from_nanos(1_000_001_000)));
    let refused = copy.put(b"a", b"v", &PutOptions::create()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    copy.put(b"b", b"v", &PutOptions::create()).unwrap();
}

/// The bytes that version 1 of the format would have had for a store whose rows were neither marked nor put back.
fn first_version(bytes: &[u8]) -> Vec<u8> {
    let mut first = bytes[..8].to_vec();
    first.extend_from_slice(&1_u32.to_le_bytes());
    let window = bytes.len() - 4 - (WAITING + CLAIMED);
    first.extend_from_slice(&bytes[HEADER..window]);
    let (claimed, waiting) = bytes[window..bytes.len() - 4].split_at(CLAIMED);
    for row in [claimed, waiting] {
        first.extend_from_slice(&row[..row.len() - TAIL]);
    }
    first.extend_from_slice(&[0; 4]);
    seal(&mut first);
    first
}

/// The two rows of the window in [`sample`]: key, instant, whether it is claimed, perhaps the claim, and the rest.
const WAITING: usize = (2 + 1) + 8 + 1 + TAIL;
const CLAIMED: usize = (2 + 1) + 8 + 1 + 16 + TAIL;

#[test]
fn s1_the_first_version_is_read() {
    let (old, new) = (store(), store());
    let bytes = sample();
    old.restore(&first_version(&bytes)).unwrap();
    new.restore(&bytes).unwrap();
    assert_eq!(old.snapshot().unwrap(), new.snapshot().unwrap());
    assert_eq!(rows(&old).len(), 2);

    // One that was written by hand, byte by byte.
    let mut by_hand = b"ALKSNAP\0\x01\0\0\0".to_vec();
    for number in [7_u64, 0, 0, 2] {
        by_hand.extend_from_slice(&number.to_le_bytes());
    }
    by_hand.extend_from_slice(b"\x01\0k");
    by_hand.extend_from_slice(&5_i64.to_le_bytes());
    by_hand.push(1);
    by_hand.extend_from_slice(&7_u64.to_le_bytes());
    by_hand.extend_from_slice(&99_i64.to_le_bytes());
    by_hand.extend_from_slice(b"\x02\0kk");
    by_hand.extend_from_slice(&(-5_i64).to_le_bytes());
    by_hand.push(0);
    by_hand.extend_from_slice(&[0; 4]);
    seal(&mut by_hand);
    old.restore(&by_hand).unwrap();
    let row = |key: &'static [u8], visible_after, claimed_until: Option<i64>| WindowRow {
        key: Key::new(key).unwrap(),
        visible_after: Timestamp::from_nanos(visible_after),
        claimed_until: claimed_until.map(Timestamp::from_nanos),
        reclaiming: false,
        requeues: 0,
    };
    assert_eq!(rows(&old), [row(b"kk", -5, None), row(b"k", 5, Some(99))]);
    // A first version that has what the second brought is none.
    let mut mixed = bytes.clone();
    mixed[8] = 1;
    seal(&mut mixed);
    assert!(matches!(refusal(&mixed), SnapshotError::Invalid(_)));
    let mut mixed = first_version(&bytes);
    mixed[8] = 2;
    seal(&mut mixed);
    refusal(&mixed);
}

#[test]
fn s1_a_restored_store_is_not_being_swept() {
    let swept = store();
    swept.try_lock("n", "o", Duration::from_secs(9)).unwrap();
    let without = swept.snapshot().unwrap();
    let epoch = swept.sweep_begin(Duration::from_secs(9)).unwrap().unwrap();
    assert_eq!(swept.stats().unwrap().locks, 2);
    let bytes = swept.snapshot().unwrap();
    let text = b"__alkstore_sweep";
    assert!(!bytes.windows(text.len()).any(|part| part == text));
    // But for the counter, which has passed the epoch, the sweep left no trace.
    assert_eq!(bytes.len(), without.len());
    assert_eq!(
        bytes[COUNTS..bytes.len() - 4],
        without[COUNTS..bytes.len() - 4]
    );
    for copy in [store(), swept] {
        copy.restore(&bytes).unwrap();
        assert_eq!(copy.stats().unwrap().locks, 1);
        assert_eq!(copy.list_locks("__alkstore_", None, 9).unwrap(), []);
        let lost = copy.window_mark(&[], Some(epoch)).unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::LeaseLost);
        assert!(!copy.sweep_extend(epoch, Duration::from_secs(9)).unwrap());
        assert!(!copy.sweep_end(epoch).unwrap());
        let next = copy.sweep_begin(Duration::from_secs(9)).unwrap().unwrap();
        assert!(next.get() > epoch.get() + (1 << 32));
        assert_eq!(
            copy.window_mark(&[], Some(next)).unwrap(),
            [] as [Reclaim; 0]
        );
    }
}

#[test]
fn s2_a_row_of_the_sweep_is_refused() {
    // Only engines name this lock, and they leave it out.
    let store = store();
    let long = "n".repeat("__alkstore_sweep".len());
    store.try_lock(&long, "o", Duration::from_secs(9)).unwrap();
    let mut bytes = store.snapshot().unwrap();
    bytes[ROWS + 2..ROWS + 2 + long.len()].copy_from_slice(b"__alkstore_sweep");
    seal(&mut bytes);
    assert!(matches!(refusal(&bytes), SnapshotError::Invalid(_)));
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
        changed(8, &3_u32.to_le_bytes()),
        SnapshotError::Newer { version: 3 }
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
    let second = bytes.len() - 4 - WAITING;
    assert_eq!(&bytes[second..second + 3], b"\x01\0b");
    invalid(changed(second + 2, b"a"));
    invalid(changed(second + 2, b"A"));
    invalid(changed(second + 2 + 1 + 8, &[2])); // a flag that is neither
    let mark = second + WAITING - TAIL;
    invalid(changed(mark, &[2]));
    // Any count can be, and a mark without a claim.
    let mut odd = bytes.clone();
    odd[mark..mark + TAIL].copy_from_slice(&[1, 0xff, 0xff, 0xff, 0xff]);
    seal(&mut odd);
    let store = store();
    store.restore(&odd).unwrap();
    let row = store.window_info(b"b").unwrap().unwrap();
    assert_eq!((row.reclaiming, row.requeues), (true, u32::MAX));
    // It counts no further, and does not wrap.
    store
        .window_unstage(&[Key::new(&b"a"[..]).unwrap()])
        .unwrap();
    let claims = claim(&store, 9);
    assert_eq!(store.window_requeue(&claims, Timestamp::MIN).unwrap(), 1);
    assert_eq!(store.window_info(b"b").unwrap().unwrap().requeues, u32::MAX);
}
