//! E: entries.

use alkstore::{Entry, EntryMeta, Put, PutMode, PutOptions, Revision, MAX_VALUE_BYTES};

use crate::failure::{refused, Refusal};
use crate::fixture::{Fixture, START};
use crate::steps::{
    before, drain, entry, expiry, grant, ms, open, other_than, secs, sight, stage, stored, HOUR,
    NANO, TTL,
};
use crate::{ensure, ensure_eq, CaseResult};

pub(crate) async fn e1_keys_have_1_to_1024_bytes(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let long = [7; 1025];
    for wrong in [&b""[..], &long] {
        refused(
            store.put(wrong, b"v", PutOptions::create()).await,
            Refusal::Argument,
        )?;
        refused(
            store.put(wrong, b"v", PutOptions::replace()).await,
            Refusal::Argument,
        )?;
        refused(store.get(wrong).await, Refusal::Argument)?;
        refused(store.touch(wrong, TTL).await, Refusal::Argument)?;
        refused(store.delete(wrong, None).await, Refusal::Argument)?;
    }
    ensure_eq!(store.list(b"", None, 10).await?, []);
    let keys: [&[u8]; 6] = [
        b"\0",
        b"\0\0",
        b" ",
        b"__alkstore_x",
        b"\xff\xfe",
        &long[..1024],
    ];
    for (number, key) in keys.into_iter().enumerate() {
        stored(&*store, key, &[u8::try_from(number).unwrap_or(0)]).await?;
    }
    for (number, key) in keys.into_iter().enumerate() {
        ensure_eq!(
            entry(&*store, key).await?.value.to_vec(),
            [u8::try_from(number).unwrap_or(0)]
        );
    }
    Ok(())
}

pub(crate) async fn e1_an_empty_value_is_not_absence(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let version = stored(&*store, b"k", b"").await?;
    let expected = Entry {
        value: (&b""[..]).into(),
        version,
        expires_at: None,
    };
    ensure_eq!(store.get(b"k").await?, Some(expected));
    let again = store.put(b"k", b"v", PutOptions::create()).await?;
    ensure_eq!(
        again,
        Put::NotStored {
            current: Some(version)
        }
    );
    ensure_eq!(store.list(b"", None, 10).await?[0].size, 0);
    ensure!(store.delete(b"k", None).await?);
    ensure_eq!(store.get(b"k").await?, None);
    Ok(())
}

pub(crate) async fn e1_values_have_up_to_64_mib(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let first = stored(&*store, b"k", b"small").await?;
    let mut bytes = vec![0_u8; MAX_VALUE_BYTES + 1];
    bytes[0] = 1;
    bytes[MAX_VALUE_BYTES - 1] = 2;
    for options in [
        PutOptions::create(),
        PutOptions::replace(),
        PutOptions::update(first),
    ] {
        refused(
            store.put(b"k", &bytes, options.clone()).await,
            Refusal::Argument,
        )?;
        refused(store.put(b"new", &bytes, options).await, Refusal::Argument)?;
    }
    ensure_eq!(entry(&*store, b"k").await?.version, first);
    ensure_eq!(store.get(b"new").await?, None);
    bytes.pop();
    ensure!(store
        .put(b"k", &bytes, PutOptions::replace())
        .await?
        .is_stored());
    let read = entry(&*store, b"k").await?.value;
    ensure!(*read == *bytes, "the value comes back as it was written");
    ensure_eq!(
        store.list(b"", None, 10).await?[0].size,
        MAX_VALUE_BYTES as u64
    );
    Ok(())
}

pub(crate) async fn e2_create_lets_the_first_writer_win(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    ensure_eq!(PutOptions::default().mode, PutMode::Create);
    let first = store
        .put(b"k", b"one", PutOptions::default().ttl(HOUR))
        .await?;
    let Put::Stored { version } = first else {
        ensure!(false, "{first:?}");
        return Ok(());
    };
    let held = sight(&*store).await?;
    f.advance(secs(1)).await?;
    for options in [PutOptions::create(), PutOptions::create().ttl(TTL)] {
        let second = store.put(b"k", b"two", options).await?;
        ensure_eq!(
            second,
            Put::NotStored {
                current: Some(version)
            }
        );
    }
    ensure_eq!(
        sight(&*store).await?,
        held,
        "a losing writer changes nothing"
    );
    Ok(())
}

pub(crate) async fn e2_replace_always_writes(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut last: Option<Revision> = None;
    for (value, ttl) in [
        (&b"one"[..], Some(TTL)),
        (b"two", None),
        (b"two", Some(HOUR)),
        (b"", None),
    ] {
        let mut options = PutOptions::replace();
        options.ttl = ttl;
        let put = store.put(b"k", value, options).await?;
        ensure!(put.is_stored());
        ensure!(put.version() > last, "each write has a higher version");
        last = put.version();
        let read = entry(&*store, b"k").await?;
        ensure_eq!((&*read.value, Some(read.version)), (value, last));
        ensure_eq!(
            read.expires_at,
            ttl.map(|ttl| START.plus(ttl)),
            "the write sets the deadline"
        );
    }
    Ok(())
}

pub(crate) async fn e2_update_compares_the_version(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let absent = store
        .put(b"k", b"v", PutOptions::update(crate::steps::revision(1)?))
        .await?;
    ensure_eq!(absent, Put::NotStored { current: None });
    ensure_eq!(store.get(b"k").await?, None);
    let first = stored(&*store, b"k", b"one").await?;
    let neighbour = stored(&*store, b"k2", b"other").await?;
    let held = sight(&*store).await?;
    for wrong in [other_than(first)?, neighbour] {
        let lost = store.put(b"k", b"lost", PutOptions::update(wrong)).await?;
        ensure_eq!(
            lost,
            Put::NotStored {
                current: Some(first)
            }
        );
    }
    ensure_eq!(sight(&*store).await?, held);
    let second = store
        .put(b"k", b"two", PutOptions::update(first))
        .await?
        .version();
    ensure!(second > Some(first));
    let late = store.put(b"k", b"late", PutOptions::update(first)).await?;
    ensure_eq!(late, Put::NotStored { current: second });
    ensure_eq!(&*entry(&*store, b"k").await?.value, b"two");
    Ok(())
}

pub(crate) async fn e2_versions_increase_across_deletion_and_lapse(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut last: Option<Revision> = None;
    let mut versions = Vec::new();
    for round in 0..12_u32 {
        let put = store
            .put(b"k", b"same", PutOptions::create().ttl(secs(1)))
            .await?;
        ensure!(put.is_stored(), "round {round}");
        ensure!(put.version() > last, "round {round}");
        last = put.version();
        versions.extend(last);
        match round % 3 {
            0 => ensure!(store.delete(b"k", last).await?),
            1 => f.advance(secs(1)).await?,
            _ => {
                f.advance(secs(1)).await?;
                ensure_eq!(store.purge_lapsed(10).await?, 1);
            }
        }
    }
    let current = stored(&*store, b"k", b"same").await?;
    for old in versions {
        let put = store.put(b"k", b"aba", PutOptions::update(old)).await?;
        ensure_eq!(
            put,
            Put::NotStored {
                current: Some(current)
            }
        );
        ensure!(!store.delete(b"k", Some(old)).await?);
    }
    Ok(())
}

pub(crate) async fn e2_versions_and_tokens_are_never_shared(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..10_u32 {
        let key = format!("k{}", round % 3);
        let put = store
            .put(key.as_bytes(), b"v", PutOptions::replace())
            .await?;
        ensure!(put.version().is_some_and(|version| seen.insert(version)));
        let token = grant(&*store, &format!("l{round}"), "o", TTL)
            .await?
            .token();
        ensure!(seen.insert(token), "{token} was given twice");
    }
    Ok(())
}

pub(crate) async fn e3_a_lapsed_entry_is_absent(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let put = store.put(b"k", b"v", PutOptions::create().ttl(TTL)).await?;
    let version = put.version();
    f.set_clock(before(START.plus(TTL), NANO)).await?;
    ensure!(store.get(b"k").await?.is_some());
    ensure_eq!(store.list(b"", None, 10).await?.len(), 1);
    let lost = store.put(b"k", b"w", PutOptions::create()).await?;
    ensure_eq!(lost, Put::NotStored { current: version });
    f.advance(NANO).await?;
    ensure_eq!(
        store.get(b"k").await?,
        None,
        "at its very deadline it has lapsed"
    );
    ensure_eq!(store.list(b"", None, 10).await?, []);
    if let Some(version) = version {
        let update = store.put(b"k", b"w", PutOptions::update(version)).await?;
        ensure_eq!(update, Put::NotStored { current: None });
        ensure!(!store.delete(b"k", Some(version)).await?);
    }
    ensure!(!store.delete(b"k", None).await?);
    ensure!(!store.touch(b"k", HOUR).await?);
    ensure_eq!(store.get(b"k").await?, None, "it is not resurrected");
    let again = store.put(b"k", b"w", PutOptions::create()).await?;
    ensure!(again.is_stored() && again.version() > version);
    ensure_eq!(
        expiry(&*store, b"k").await?,
        None,
        "the old deadline went with the old entry"
    );
    Ok(())
}

pub(crate) async fn e3_replace_over_a_lapsed_entry_writes(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let first = store
        .put(b"k", b"v", PutOptions::create().ttl(ms(1)))
        .await?
        .version();
    f.advance(ms(1)).await?;
    let second = store.put(b"k", b"w", PutOptions::replace()).await?;
    ensure!(second.is_stored() && second.version() > first);
    ensure_eq!(&*entry(&*store, b"k").await?.value, b"w");
    Ok(())
}

pub(crate) async fn e3_touch_moves_the_deadline_alone(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mortal = store
        .put(b"m", b"v", PutOptions::create().ttl(TTL))
        .await?
        .version();
    let immortal = Some(stored(&*store, b"i", b"w").await?);
    f.advance(secs(10)).await?;
    let now = START.plus(secs(10));
    for ttl in [HOUR, secs(1), TTL] {
        for (key, value, version) in [(b"m", b"v", mortal), (b"i", b"w", immortal)] {
            ensure!(store.touch(key, ttl).await?);
            let read = entry(&*store, key).await?;
            ensure_eq!((&*read.value, Some(read.version)), (&value[..], version));
            ensure_eq!(
                read.expires_at,
                Some(now.plus(ttl)),
                "absolute; it may shorten"
            );
        }
    }
    f.advance(TTL).await?;
    ensure_eq!(store.list(b"", None, 10).await?, []);
    ensure!(!store.touch(b"m", TTL).await?);
    ensure!(!store.touch(b"never", TTL).await?);
    ensure_eq!(store.list(b"", None, 10).await?, []);
    Ok(())
}

pub(crate) async fn e3_e7_lapsed_entries_are_purged(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for key in [b"a", b"b", b"c"] {
        store
            .put(key, b"v", PutOptions::create().ttl(secs(1)))
            .await?;
    }
    store
        .put(b"d", b"v", PutOptions::create().ttl(HOUR))
        .await?;
    stored(&*store, b"e", b"v").await?;
    grant(&*store, "lock", "o", secs(1)).await?;
    ensure_eq!(store.purge_lapsed(10).await?, 0);
    f.advance(secs(1)).await?;
    ensure_eq!(store.purge_lapsed(1).await?, 1);
    ensure_eq!(store.purge_lapsed(2).await?, 2);
    ensure_eq!(
        store.purge_lapsed(usize::MAX).await?,
        1,
        "three entries and one lock in all"
    );
    ensure_eq!(store.purge_lapsed(usize::MAX).await?, 0);
    let keys: Vec<_> = store
        .list(b"", None, 10)
        .await?
        .into_iter()
        .map(|m| m.key.into_bytes())
        .collect();
    ensure_eq!(keys, [b"d", b"e"]);
    Ok(())
}

pub(crate) async fn e3_an_overwritten_deadline_purges_nothing(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for key in [&b"replaced"[..], b"touched", b"recreated", b"renewed"] {
        store
            .put(key, b"v", PutOptions::create().ttl(secs(1)))
            .await?;
    }
    let mut lock = grant(&*store, "lock", "o", secs(1)).await?;
    store.put(b"replaced", b"w", PutOptions::replace()).await?;
    ensure!(store.touch(b"touched", HOUR).await?);
    ensure!(store.delete(b"recreated", None).await?);
    stored(&*store, b"recreated", b"w").await?;
    store
        .put(b"renewed", b"w", PutOptions::replace().ttl(secs(2)))
        .await?;
    ensure!(lock.renew(HOUR).await?);
    f.advance(secs(1)).await?;
    ensure_eq!(
        store.purge_lapsed(10).await?,
        0,
        "the old deadlines are void"
    );
    ensure_eq!(store.list(b"", None, 10).await?.len(), 4);
    f.advance(secs(1)).await?;
    ensure_eq!(store.purge_lapsed(10).await?, 1);
    ensure!(lock.release().await?);
    Ok(())
}

pub(crate) async fn e4_delete_compares_the_version(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    ensure!(!store.delete(b"k", None).await?);
    let version = stored(&*store, b"k", b"v").await?;
    let held = sight(&*store).await?;
    ensure!(!store.delete(b"k", Some(other_than(version)?)).await?);
    ensure!(!store.delete(b"K", None).await?);
    ensure_eq!(sight(&*store).await?, held);
    ensure!(store.delete(b"k", Some(version)).await?);
    ensure!(!store.delete(b"k", Some(version)).await?);
    ensure_eq!(store.get(b"k").await?, None);
    stored(&*store, b"k", b"v").await?;
    ensure!(store.delete(b"k", None).await?);
    ensure_eq!(store.list(b"", None, 10).await?, []);
    Ok(())
}

fn keys(page: Vec<EntryMeta>) -> Vec<Vec<u8>> {
    page.into_iter().map(|meta| meta.key.into_bytes()).collect()
}

/// Prefix, `after`, limit, and the keys that they give.
type Page<'a> = (&'a [u8], Option<&'a [u8]>, usize, &'a [&'a [u8]]);

pub(crate) async fn e4_list_pages_in_bytewise_order(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let all: [&[u8]; 14] = [
        b"\0",
        b"\0\0",
        b"\x01",
        b"%",
        b"A",
        b"_",
        b"a",
        b"a\0",
        b"a\0\xff",
        b"a\xff",
        b"a\xff\xff",
        b"b",
        b"\x80",
        b"\xff",
    ];
    for key in all.into_iter().rev() {
        stored(&*store, key, key).await?;
    }
    store
        .put(b"a\x01", b"lapsed", PutOptions::create().ttl(ms(1)))
        .await?;
    // Lapsed ones leave no gap in a page.
    store
        .put(b"a\0\x01", b"lapsed", PutOptions::create().ttl(ms(1)))
        .await?;
    f.advance(ms(1)).await?;
    ensure_eq!(keys(store.list(b"", None, 100).await?), all);
    let cases: [Page<'_>; 14] = [
        (b"a", None, 4, &[b"a", b"a\0", b"a\0\xff", b"a\xff"]),
        (
            b"a",
            None,
            100,
            &[b"a", b"a\0", b"a\0\xff", b"a\xff", b"a\xff\xff"],
        ),
        (b"a\xff", None, 100, &[b"a\xff", b"a\xff\xff"]),
        (b"\xff", None, 100, &[b"\xff"]),
        (b"\xff\xff", None, 100, &[]),
        (b"%", None, 100, &[b"%"]),
        (b"a", None, 2, &[b"a", b"a\0"]),
        (b"a", None, 0, &[]),
        (b"a", Some(b"a"), 2, &[b"a\0", b"a\0\xff"]),
        (b"a", Some(b"a\0\x01"), 1, &[b"a\0\xff"]),
        (b"a", Some(b""), 1, &[b"a"]),
        (b"a", Some(b"A"), 1, &[b"a"]),
        (b"a", Some(b"b"), 100, &[]),
        (b"", Some(b"\xff"), 100, &[]),
    ];
    for (prefix, after, limit, expected) in cases {
        let page = keys(store.list(prefix, after, limit).await?);
        ensure_eq!(page, expected, "{prefix:?} after {after:?} limit {limit}");
    }
    let mut walked: Vec<Vec<u8>> = Vec::new();
    loop {
        let page = keys(store.list(b"", walked.last().map(Vec::as_slice), 3).await?);
        if page.is_empty() {
            break;
        }
        walked.extend(page);
        ensure!(walked.len() <= all.len(), "the pages overlap: {walked:?}");
    }
    ensure_eq!(walked, all);
    Ok(())
}

pub(crate) async fn e4_list_shows_keys_and_metadata(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let a = stored(&*store, b"a", b"12345").await?;
    let b = store
        .put(b"b", b"", PutOptions::replace().ttl(TTL))
        .await?
        .version();
    let page = store.list(b"", None, 10).await?;
    let shown: Vec<_> = page
        .iter()
        .map(|m| (m.key.as_bytes(), Some(m.version), m.expires_at, m.size))
        .collect();
    ensure_eq!(
        shown,
        [
            (&b"a"[..], Some(a), None, 5),
            (b"b", b, Some(START.plus(TTL)), 0)
        ]
    );
    Ok(())
}

pub(crate) async fn e7_everything_is_there_from_the_first_call(f: &dyn Fixture) -> CaseResult {
    // Each store's very first operation is another one; nobody has called `ensure_gc_schema`.
    let store = open(f).await?;
    ensure_eq!(store.window_take(START, None).await?, []);
    let store = open(f).await?;
    stage(&*store, &[("k", START)]).await?;
    ensure!(store
        .put(b"k", b"v", PutOptions::create())
        .await?
        .is_stored());
    ensure_eq!(drain(&*store).await?, []);
    let store = open(f).await?;
    ensure!(store
        .put(b"k", b"v", PutOptions::create())
        .await?
        .is_stored());
    let store = open(f).await?;
    ensure_eq!(store.window_claim(START, TTL, 10).await?, []);
    let store = open(f).await?;
    ensure_eq!(store.purge_lapsed(10).await?, 0);
    let store = open(f).await?;
    ensure_eq!(store.lock_info("a").await?, None);
    Ok(())
}
