//! Hostile arguments, beyond those that break a single rule.
//!
//! | input | cases |
//! |---|---|
//! | names and owners | `n1_*`, `n2_*`, `n3_*` |
//! | durations | `d1_*` |
//! | keys and values | `e1_*` |
//! | several things wrong at once | `n4_*` |
//! | snapshots | `s2_*`; crafted ones, whose checksum fits, in the engine's own tests |
//! | closed stores, closed twice, handles of a closed store | `l13_*`, `c1_*` |
//! | prefixes, limits, handles of another store | here |
//! | JavaScript's own types, ports, URLs, files, calls from within a clock | the tests of the engine or binding that takes them |

use alkstore::{Changeset, Key, PutMode, PutOptions, Restage, Timestamp, Value};

use crate::failure::{refused, Refusal};
use crate::fixture::{Fixture, START};
use crate::steps::{grant, open, revision, sight, stage, stored, TTL};
use crate::{ensure, ensure_eq, CaseResult};

pub(crate) async fn bad_input_prefixes_are_no_names_but_bounded(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let name = "x".repeat(512);
    grant(&*store, &name, "o", TTL).await?;
    ensure_eq!(store.list_locks(&name, None, 10).await?.len(), 1);
    ensure_eq!(store.list_locks("", Some(&name), 10).await?, []);
    for too_long in [
        name.clone() + "x",
        "\u{20ac}".repeat(171),
        "x".repeat(1_000_000),
    ] {
        refused(
            store.list_locks(&too_long, None, 10).await,
            Refusal::Argument,
        )?;
        refused(
            store.list_locks("", Some(&too_long), 10).await,
            Refusal::Argument,
        )?;
        refused(
            store.list_locks(&too_long, None, 0).await,
            Refusal::Argument,
        )?;
    }
    for odd in [" ", "\0", "__alkstore_", "\u{10ffff}", "%", "x%", "_", "["] {
        ensure_eq!(store.list_locks(odd, None, 10).await?, [], "{odd:?}");
    }
    for (after, found) in [("\0", 1), (" ", 1), ("\u{10ffff}", 0)] {
        ensure_eq!(
            store.list_locks("", Some(after), 10).await?.len(),
            found,
            "{after:?}"
        );
    }
    let key = [0xff; 1024];
    stored(&*store, &key, b"v").await?;
    ensure_eq!(store.list(&key, None, 10).await?.len(), 1);
    ensure_eq!(store.list(b"", Some(&key), 10).await?, []);
    for too_long in [vec![0xff; 1025], vec![0; 1_000_000]] {
        refused(store.list(&too_long, None, 10).await, Refusal::Argument)?;
        refused(
            store.list(b"", Some(&too_long), 10).await,
            Refusal::Argument,
        )?;
        refused(store.list(&too_long, None, 0).await, Refusal::Argument)?;
    }
    Ok(())
}

pub(crate) async fn bad_input_limits_may_be_huge(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    grant(&*store, "a", "o", TTL).await?;
    stored(&*store, b"k", b"v").await?;
    let most = usize::MAX;
    ensure_eq!(store.list_locks("", None, most).await?.len(), 1);
    ensure_eq!(store.list(b"", None, most).await?.len(), 1);
    ensure_eq!(store.purge_lapsed(most).await?, 0);
    stage(&*store, &[("k", START), ("l", START)]).await?;
    ensure_eq!(store.window_claim(Timestamp::MIN, TTL, most).await?, []);
    ensure_eq!(store.window_take(Timestamp::MIN, Some(most)).await?, []);
    let claims = store.window_claim(Timestamp::MAX, TTL, most).await?;
    ensure_eq!(claims.len(), 2);
    ensure_eq!(store.window_requeue(&claims, Timestamp::MIN).await?, 2);
    ensure_eq!(store.window_list(None, most).await?.len(), 2);
    ensure_eq!(
        store.window_take(Timestamp::MIN, Some(most)).await?.len(),
        2
    );
    Ok(())
}

pub(crate) async fn bad_input_handles_of_another_store_do_nothing(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = open(f).await?;
    // The other store is some revisions ahead, so that numbers cannot meet by chance.
    for _ in 0..20 {
        other.put(b"k", b"v", PutOptions::replace()).await?;
    }
    let foreign = grant(&*other, "a", "o", TTL).await?;
    grant(&*store, "a", "o", TTL).await?;
    let version = stored(&*store, b"k", b"v").await?;
    let held = sight(&*store).await?;
    let mut handle = store.lock_handle("a", "o", foreign.token())?;
    ensure!(!handle.renew(TTL).await?);
    ensure!(!handle.release().await?);
    ensure!(!store.force_release("a", foreign.token()).await?);
    let fenced = PutOptions::replace().guard("a", foreign.token());
    refused(store.put(b"k", b"w", fenced).await, Refusal::LeaseLost)?;
    let theirs = other.get(b"k").await?.map(|entry| entry.version);
    ensure!(theirs > Some(version));
    if let Some(theirs) = theirs {
        ensure!(!store
            .put(b"k", b"w", PutOptions::update(theirs))
            .await?
            .is_stored());
        ensure!(!store.delete(b"k", Some(theirs)).await?);
    }
    ensure_eq!(sight(&*store).await?, held);
    Ok(())
}

pub(crate) async fn bad_input_a_changeset_refuses_before_it_grows(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for wrong in [&b""[..], &[0; 1025]] {
        refused(Key::new(wrong.to_vec()), Refusal::Argument)?;
    }
    let huge = Value::from(vec![0; alkstore::MAX_VALUE_BYTES + 1]);
    let mut changeset = Changeset::new();
    let key = || Key::new(&b"k"[..]);
    refused(
        changeset.put(key()?, huge, PutMode::Replace, None),
        Refusal::Argument,
    )?;
    changeset.put(key()?, Value::from(&b"v"[..]), PutMode::Replace, None)?;
    changeset.stage(key()?, Timestamp::MIN, Restage::Keep)?;
    ensure_eq!(store.commit_changeset(changeset).await?.versions.len(), 1);
    // A part that was refused leaves nothing behind, neither the check that it implies nor its bytes.
    let largest = Value::from(vec![0; alkstore::MAX_VALUE_BYTES]);
    let small = || Value::from(&b"w"[..]);
    let mut changeset = Changeset::new();
    changeset.delete(key()?)?;
    for implies_a_check in [PutMode::Create, PutMode::Update(revision(9)?)] {
        refused(
            changeset.put(key()?, small(), implies_a_check, None),
            Refusal::Argument,
        )?;
    }
    changeset.put(
        Key::new(&b"l"[..])?,
        largest.clone(),
        PutMode::Replace,
        None,
    )?;
    let m = || Key::new(&b"m"[..]);
    for mode in [PutMode::Create, PutMode::Replace] {
        // The value alone would fit; its key is counted too.
        refused(
            changeset.put(m()?, largest.clone(), mode, None),
            Refusal::Argument,
        )?;
    }
    let rest = alkstore::MAX_CHANGESET_BYTES - alkstore::MAX_VALUE_BYTES - "klm".len();
    for (more, fits) in [(1, false), (0, true)] {
        let value = Value::from(vec![0; rest + more]);
        let put = changeset.put(m()?, value, PutMode::Replace, None);
        if fits {
            put?;
        } else {
            refused(put, Refusal::Argument)?;
        }
    }
    let mut changeset = Changeset::new();
    changeset.put(key()?, small(), PutMode::Replace, None)?;
    refused(
        changeset.put(key()?, small(), PutMode::Create, None),
        Refusal::Argument,
    )?;
    ensure_eq!(
        store.commit_changeset(changeset).await?.versions.len(),
        1,
        "nothing is checked to be absent"
    );
    Ok(())
}

pub(crate) async fn bad_input_keys_that_look_like_something_else(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let keys: [&[u8]; 12] = [
        b"__proto__",
        b"constructor",
        b"__alkstore_x",
        b"../x",
        b"'; drop table entries; --",
        b"%",
        b"_",
        b"\\x00",
        b"\xff\xfe",
        b"\0",
        b" ",
        b"caf\xe9",
    ];
    for key in keys {
        stored(&*store, key, key).await?;
        stage(&*store, &[("other", START)]).await?;
    }
    for key in keys {
        let read = store.get(key).await?.map(|entry| entry.value);
        ensure_eq!(read.as_deref(), Some(key));
        ensure!(store.delete(key, None).await?);
    }
    ensure_eq!(store.list(b"", None, 100).await?, []);
    Ok(())
}
