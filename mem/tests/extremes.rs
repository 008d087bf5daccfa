//! The ends: of time, of the revisions, and of what a call may be asked for.
#![allow(clippy::unwrap_used)] // in a test an unwrap is its failure

use std::time::Duration;

use alkstore::{
    Candidate, Changeset, Error, ErrorKind, Key, ManualClock, PutMode, PutOptions, Restage,
    Revision, Timestamp, Value,
};
use alkstore_mem::MemStore;
use crc::{Crc, CRC_32_ISO_HDLC};

const TTL: Duration = Duration::from_secs(30);
const JUMP: u64 = 1 << 32;

fn at(start: Timestamp) -> (MemStore<ManualClock>, ManualClock) {
    let clock = ManualClock::new(start);
    (MemStore::new(clock.clone()), clock)
}

fn stage(store: &MemStore<ManualClock>, keys: &[&'static [u8]], due: Timestamp) {
    let row = |key: &&'static [u8]| Candidate {
        key: Key::new(*key).unwrap(),
        visible_after: due,
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    store.window_stage(&rows, Restage::Move).unwrap();
}

/// A store that has this many revisions left to give, with the rows of another.
fn nearly_spent(rows: &MemStore<ManualClock>, left: u64) -> MemStore<ManualClock> {
    let mut bytes = rows.snapshot().unwrap();
    let counter = Revision::MAX - JUMP - left;
    bytes[12..20].copy_from_slice(&counter.to_le_bytes());
    let end = bytes.len() - 4;
    let sum = Crc::<u32>::new(&CRC_32_ISO_HDLC).checksum(&bytes[..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
    let (store, _) = at(Timestamp::default());
    store.restore(&bytes).unwrap();
    store
}

fn spent<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CapacityExceeded, "{error}");
    assert!(error.to_string().contains("2^53"), "{error}");
}

#[test]
fn w7_at_the_end_of_time_a_claim_hands_out_each_row_once() {
    let (store, _) = at(Timestamp::MAX);
    stage(&store, &[b"a", b"b"], Timestamp::MIN);
    for _ in 0..3 {
        // A claim lapses as it is made: there is no later instant.
        let claims = store.window_claim(Timestamp::MAX, TTL, usize::MAX).unwrap();
        let mut keys: Vec<_> = claims.iter().map(|claim| claim.key.as_bytes()).collect();
        keys.sort_unstable();
        assert_eq!(keys, [b"a", b"b"]);
        assert!(claims.iter().all(|claim| claim.until == Timestamp::MAX));
        assert_eq!(store.window_settle(&claims).unwrap(), 0);
    }
    assert_eq!(store.window_take(Timestamp::MAX, None).unwrap().len(), 2);
}

#[test]
fn d1_both_ends_of_time_are_instants() {
    let (store, clock) = at(Timestamp::MIN);
    let mut lock = store.try_lock("a", "o", TTL).unwrap().unwrap();
    assert_eq!(lock.deadline(), Some(Timestamp::MIN.plus(TTL)));
    let mortal = PutOptions::create().ttl(TTL);
    store.put(b"k", b"v", &mortal).unwrap();
    assert!(store.get(b"k").unwrap().is_some());
    assert_eq!(store.purge_lapsed(usize::MAX).unwrap(), 0);
    clock.set(Timestamp::MAX);
    assert!(!lock.renew(TTL).unwrap());
    assert_eq!(store.get(b"k").unwrap(), None);
    assert_eq!(store.purge_lapsed(usize::MAX).unwrap(), 2);
    // What is taken now lapses now: time does not go on.
    let late = store.try_lock("a", "o", TTL).unwrap().unwrap();
    assert!(store.lock_info("a").unwrap().unwrap().lapsed);
    let other = store.try_lock("a", "p", TTL).unwrap().unwrap();
    assert!(other.token() > late.token());
    clock.set(Timestamp::MIN);
    assert!(store.try_lock("a", "o", TTL).unwrap().is_none());
    let copy = at(Timestamp::MIN).0;
    copy.restore(&store.snapshot().unwrap()).unwrap();
    assert_eq!(copy.lock_info("a").unwrap(), store.lock_info("a").unwrap());
}

#[test]
fn l10_with_the_last_revision_the_store_stops_giving_and_goes_on() {
    let (rows, _) = at(Timestamp::default());
    rows.put(b"k", b"v", &PutOptions::create()).unwrap();
    rows.put(b"l", b"v", &PutOptions::create()).unwrap();
    rows.try_lock("a", "o", TTL).unwrap().unwrap();
    stage(&rows, &[b"s"], Timestamp::MAX);
    let store = nearly_spent(&rows, 1);
    // One part more than there are revisions: nothing of it happens.
    let mut two = Changeset::new();
    for key in [&b"x"[..], b"y"] {
        let value = Value::from(&b"v"[..]);
        two.put(Key::new(key).unwrap(), value, PutMode::Create, None)
            .unwrap();
    }
    spent(store.commit_changeset(two));
    assert_eq!(store.get(b"x").unwrap(), None);
    let last = store.put(b"x", b"v", &PutOptions::create()).unwrap();
    assert_eq!(last.version().map(Revision::get), Some(Revision::MAX));
    let before = store.stats().unwrap();
    spent(store.put(b"y", b"v", &PutOptions::create()));
    spent(store.put(b"k", b"v", &PutOptions::replace()));
    spent(store.try_lock("b", "o", TTL));
    assert_eq!(store.stats().unwrap(), before);
    // What needs none goes on.
    assert!(!store
        .put(b"k", b"w", &PutOptions::create())
        .unwrap()
        .is_stored());
    let mut lock = store.try_lock("a", "o", TTL).unwrap().unwrap();
    assert!(store.try_lock("a", "p", TTL).unwrap().is_none());
    assert!(lock.renew(TTL).unwrap());
    assert!(lock.release().unwrap());
    assert!(store.touch(b"k", TTL).unwrap());
    assert!(store.delete(b"k", None).unwrap());
    let mut deletes = Changeset::new();
    deletes.delete(Key::new(&b"l"[..]).unwrap()).unwrap();
    store.commit_changeset(deletes).unwrap();
    assert_eq!(store.get(b"l").unwrap(), None);
    assert_eq!(
        store.window_claim(Timestamp::default(), TTL, 9).unwrap(),
        [],
        "nothing is due"
    );
    assert_eq!(store.window_take(Timestamp::MAX, None).unwrap().len(), 1);
}

#[test]
fn w5_the_last_revisions_are_claims_as_far_as_they_go() {
    let (rows, _) = at(Timestamp::default());
    stage(&rows, &[b"a", b"b", b"c"], Timestamp::MIN);
    let store = nearly_spent(&rows, 2);
    let claims = store.window_claim(Timestamp::default(), TTL, 9).unwrap();
    assert_eq!(claims.len(), 2, "two revisions were left");
    spent(store.window_claim(Timestamp::default(), TTL, 9));
    assert_eq!(store.window_settle(&claims).unwrap(), 2);
    let rest = store.window_take(Timestamp::default(), Some(usize::MAX));
    assert_eq!(rest.unwrap().len(), 1);
}

#[test]
fn s1_a_restore_that_would_leave_no_revisions_is_refused() {
    let (rows, _) = at(Timestamp::default());
    let store = nearly_spent(&rows, 7);
    let empty = rows.snapshot().unwrap();
    let error = store.restore(&empty).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(store
        .put(b"k", b"v", &PutOptions::create())
        .unwrap()
        .is_stored());
}

#[test]
fn n4_a_synchronous_transaction_judges_its_arguments_in_the_same_order() {
    let (store, _) = at(Timestamp::default());
    let mut tx = store.begin();
    let zero = Some(Duration::ZERO);
    let huge = vec![0; alkstore::MAX_VALUE_BYTES + 1];
    for mode in [PutMode::Create, PutMode::Replace] {
        let kind = |error: Error| error.kind();
        let refused = [
            tx.put(b"", b"v", mode, zero).map_err(kind),
            tx.put(b"k", &huge, mode, zero).map_err(kind),
            tx.put(b"k", b"v", mode, zero).map_err(kind),
        ];
        let expected = [
            ErrorKind::InvalidArgument,
            ErrorKind::InvalidArgument,
            ErrorKind::Database,
        ];
        assert_eq!(refused, expected.map(Err));
    }
}
