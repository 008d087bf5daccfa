//! T: transactions and changesets.

use alkstore::{
    Changeset, Commit, Expect, Key, LockName, PutMode, PutOptions, Restage, Revision, Store,
    StoreExt as _, Ttl, TxEntry, TxPut, Value, MAX_CHANGESET_BYTES, MAX_CHANGESET_ITEMS,
    MAX_VALUE_BYTES,
};
use futures_util::FutureExt as _;

use crate::failure::{refused, Refusal};
use crate::fixture::{Fixture, START};
use crate::steps::{
    drain, entry, expiry, grant, ms, open, other_than, secs, sight, stage, stored, HOUR, TTL,
};
use crate::{ensure, ensure_eq, CaseResult};

fn key(bytes: &[u8]) -> CaseResult<Key<'static>> {
    Ok(Key::new(bytes.to_vec())?)
}

pub(crate) async fn t1_a_transaction_reads_its_own_writes(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let version = stored(&*store, b"old", b"1").await?;
    let mut tx = store.begin();
    let read = |value: &[u8], version| {
        Some(TxEntry {
            value: Value::from(value),
            version,
        })
    };
    ensure_eq!(tx.get(b"old").await?, read(b"1", Some(version)));
    ensure_eq!(tx.get(b"new").await?, None);
    ensure_eq!(
        tx.put(b"new", b"2", PutMode::Create, None).await?,
        TxPut::Staged
    );
    ensure_eq!(tx.get(b"new").await?, read(b"2", None));
    let twice = tx.put(b"new", b"3", PutMode::Create, None).await?;
    ensure_eq!(twice, TxPut::NotStored { current: None });
    ensure_eq!(tx.get(b"new").await?, read(b"2", None));
    ensure_eq!(
        tx.put(b"new", b"4", PutMode::Replace, None).await?,
        TxPut::Staged
    );
    ensure_eq!(tx.get(b"new").await?, read(b"4", None));
    let lost = tx.put(b"old", b"x", PutMode::Create, None).await?;
    ensure_eq!(
        lost,
        TxPut::NotStored {
            current: Some(version)
        }
    );
    let lost = tx
        .put(b"old", b"x", PutMode::Update(other_than(version)?), None)
        .await?;
    ensure_eq!(
        lost,
        TxPut::NotStored {
            current: Some(version)
        }
    );
    ensure_eq!(
        tx.put(b"old", b"5", PutMode::Update(version), None).await?,
        TxPut::Staged
    );
    // What the transaction wrote has no version yet, so no update can name it.
    let lost = tx.put(b"old", b"x", PutMode::Update(version), None).await?;
    ensure_eq!(lost, TxPut::NotStored { current: None });
    ensure!(tx.delete(b"old").await?);
    ensure!(!tx.delete(b"old").await?);
    ensure!(!tx.delete(b"never").await?);
    ensure_eq!(tx.get(b"old").await?, None);
    let lost = tx.put(b"old", b"x", PutMode::Update(version), None).await?;
    ensure_eq!(lost, TxPut::NotStored { current: None });
    ensure_eq!(
        tx.put(b"old", b"6", PutMode::Create, None).await?,
        TxPut::Staged
    );
    let commit = tx.commit().await?;
    let old = entry(&*store, b"old").await?;
    let new = entry(&*store, b"new").await?;
    ensure_eq!((&*old.value, &*new.value), (&b"6"[..], &b"4"[..]));
    ensure!(old.version > version);
    ensure_eq!(
        commit.versions,
        [(key(b"new")?, new.version), (key(b"old")?, old.version)]
    );
    ensure_eq!(commit.version(b"new"), Some(new.version));
    ensure_eq!(commit.version(b"never"), None);
    Ok(())
}

pub(crate) async fn t1_nothing_is_seen_before_the_commit(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    stored(&*store, b"gone", b"v").await?;
    stage(&*store, &[("unstaged", START)]).await?;
    let held = sight(&*other).await?;
    let mut tx = store.begin();
    tx.put(b"new", b"v", PutMode::Create, Some(TTL)).await?;
    ensure!(tx.delete(b"gone").await?);
    tx.stage(b"gone", START, Restage::Move)?;
    tx.unstage(b"unstaged")?;
    ensure_eq!(sight(&*other).await?, held);
    ensure_eq!(sight(&*store).await?, held);
    tx.commit().await?;
    ensure_eq!(other.get(b"gone").await?, None);
    ensure_eq!(&*entry(&*other, b"new").await?.value, b"v");
    ensure_eq!(drain(&*other).await?, [("gone".to_owned(), START)]);
    Ok(())
}

pub(crate) async fn t1_rollback_and_drop_forget_it(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let version = stored(&*store, b"k", b"v").await?;
    stage(&*store, &[("s", START)]).await?;
    let held = sight(&*store).await?;
    for roll_back in [true, false] {
        let mut tx = store.begin();
        tx.put(b"k", b"w", PutMode::Update(version), None).await?;
        tx.put(b"new", b"w", PutMode::Create, None).await?;
        ensure!(tx.delete(b"k").await?);
        tx.unstage(b"s")?;
        tx.stage(b"t", START, Restage::Move)?;
        if roll_back {
            tx.rollback();
        } else {
            drop(tx);
        }
        ensure_eq!(sight(&*store).await?, held);
    }
    ensure_eq!(drain(&*store).await?, [("s".to_owned(), START)]);
    Ok(())
}

pub(crate) async fn t1_ttls_count_from_the_commit(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut tx = store.begin();
    tx.put(b"k", b"v", PutMode::Create, Some(TTL)).await?;
    tx.put(b"r", b"v", PutMode::Replace, Some(ms(1))).await?;
    f.advance(HOUR).await?;
    tx.commit().await?;
    ensure_eq!(
        expiry(&*store, b"k").await?,
        Some(START.plus(HOUR).plus(TTL))
    );
    ensure_eq!(
        expiry(&*store, b"r").await?,
        Some(START.plus(HOUR).plus(ms(1)))
    );
    Ok(())
}

pub(crate) async fn t1_a_transaction_is_guarded(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let a = grant(&*store, "a", "o", TTL).await?.token();
    let b = grant(&*store, "b", "o", HOUR).await?.token();
    let mut tx = store.begin();
    tx.guard("a", a)?;
    tx.guard("a", a)?;
    refused(tx.guard("a", b), Refusal::Argument)?;
    // What was refused is not remembered: the guard that was there still counts.
    refused(tx.guard("a", b), Refusal::Argument)?;
    tx.commit().await?;
    let mut tx = store.begin();
    tx.guard("b", b)?;
    tx.guard("a", a)?;
    tx.put(b"k", b"1", PutMode::Replace, None).await?;
    tx.commit().await?;
    let held = sight(&*store).await?;
    for (name, token, later) in [
        ("a", b, ms(0)),
        ("b", other_than(b)?, ms(0)),
        ("c", a, ms(0)),
        ("a", a, TTL),
    ] {
        let mut tx = store.begin();
        tx.guard(name, token)?;
        if name != "b" {
            // One guard that holds does not make up for one that does not.
            tx.guard("b", b)?;
        }
        tx.put(b"k", b"2", PutMode::Replace, None).await?;
        tx.put(b"new", b"2", PutMode::Create, None).await?;
        // The guard is judged at the commit.
        f.advance(later).await?;
        refused(tx.commit().await, Refusal::LeaseLost)?;
        ensure_eq!(sight(&*store).await?.entries, held.entries);
    }
    Ok(())
}

pub(crate) async fn t2_reads_are_remembered(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    let version = stored(&*store, b"k", b"1").await?;
    let mut tx = store.begin();
    let first = tx.get(b"k").await?;
    ensure_eq!(tx.get(b"absent").await?, None);
    // An open transaction holds nothing: others write at once.
    ensure!(other
        .put(b"k", b"2", PutOptions::update(version))
        .await?
        .is_stored());
    stored(&*other, b"absent", b"now there").await?;
    ensure_eq!(tx.get(b"k").await?, first, "the first answer stands");
    ensure_eq!(tx.get(b"absent").await?, None);
    refused(tx.commit().await, Refusal::Conflict)
}

pub(crate) async fn t2_a_changeset_is_whole_or_nothing(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let a = stored(&*store, b"a", b"1").await?;
    stored(&*store, b"m", b"1").await?;
    stored(&*store, b"z", b"1").await?;
    stage(&*store, &[("m", START), ("w", START)]).await?;
    let held = sight(&*store).await?;
    // The check that fails is the first key, the last one, one in the middle.
    for broken in [&b"a"[..], b"m", b"z"] {
        let mut changeset = Changeset::new();
        for written in [&b"a"[..], b"b", b"m", b"z"] {
            changeset.put(
                key(written)?,
                Value::from(&b"2"[..]),
                PutMode::Replace,
                None,
            )?;
        }
        changeset.put(key(b"w")?, Value::from(&b"2"[..]), PutMode::Create, None)?;
        changeset.stage(key(b"s")?, START, Restage::Move)?;
        changeset.unstage(key(b"m")?)?;
        changeset.check(key(broken)?, Expect::Version(other_than(a)?))?;
        refused(store.commit_changeset(changeset).await, Refusal::Conflict)?;
        ensure_eq!(sight(&*store).await?, held, "{broken:?}");
    }
    ensure_eq!(
        drain(&*store).await?,
        [("m".to_owned(), START), ("w".to_owned(), START)]
    );
    Ok(())
}

pub(crate) async fn t2_l12_a_dropped_commit_is_whole_or_nothing(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for poll in [false, true] {
        let name = if poll { "b" } else { "a" };
        let mut changeset = Changeset::new();
        for part in 0..3 {
            let key = key(format!("{name}{part}").as_bytes())?;
            changeset.put(key, Value::from(&b"v"[..]), PutMode::Create, None)?;
        }
        let commit = store.commit_changeset(changeset);
        if poll {
            drop(commit.now_or_never());
        } else {
            drop(commit);
        }
        let there = store.list(name.as_bytes(), None, 10).await?.len();
        ensure!(there == 0 || there == 3, "{there} of 3 were written");
    }
    let put = store.put(b"c", b"v", PutOptions::create());
    drop(put.now_or_never());
    let there = store.get(b"c").await?;
    ensure_eq!(
        store
            .put(b"c", b"v", PutOptions::create())
            .await?
            .is_stored(),
        there.is_none()
    );
    Ok(())
}

/// A transaction that read `k` in one state commits after it has got into another.
pub(crate) async fn t3_what_was_read_must_still_hold(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let changes = [
        ("replaced", true),
        ("rewritten with the same value", true),
        ("deleted", true),
        ("lapsed", true),
        ("deleted and created anew", true),
        ("touched", false),
    ];
    for (change, conflicts) in changes {
        let k = change.as_bytes();
        store.put(k, b"v", PutOptions::create().ttl(TTL)).await?;
        let mut tx = store.begin();
        ensure!(tx.get(k).await?.is_some());
        tx.put(b"out", change.as_bytes(), PutMode::Replace, None)
            .await?;
        let before = store.get(b"out").await?;
        match change {
            "replaced" => ensure!(store.put(k, b"w", PutOptions::replace()).await?.is_stored()),
            "rewritten with the same value" => {
                ensure!(store
                    .put(k, b"v", PutOptions::replace().ttl(TTL))
                    .await?
                    .is_stored());
            }
            "deleted" => ensure!(store.delete(k, None).await?),
            "lapsed" => f.advance(TTL).await?,
            "deleted and created anew" => {
                ensure!(store.delete(k, None).await?);
                stored(&*store, k, b"v").await?;
            }
            _ => ensure!(store.touch(k, HOUR).await?),
        }
        let commit = tx.commit().await;
        if conflicts {
            refused(commit, Refusal::Conflict)?;
            ensure_eq!(store.get(b"out").await?, before, "{change}");
        } else {
            commit?;
            ensure_eq!(&*entry(&*store, b"out").await?.value, k);
        }
    }
    Ok(())
}

pub(crate) async fn t3_absence_that_was_read_must_still_hold(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    store
        .put(b"lapsed", b"v", PutOptions::create().ttl(ms(1)))
        .await?;
    f.advance(ms(1)).await?;
    for (k, conflicts) in [
        (&b"created"[..], true),
        (b"came and went", false),
        (b"lapsed", false),
    ] {
        let mut tx = store.begin();
        ensure_eq!(tx.get(k).await?, None);
        tx.put(b"out", k, PutMode::Replace, None).await?;
        if k != b"lapsed" {
            stored(&*store, k, b"v").await?;
        }
        if k == b"came and went" {
            ensure!(store.delete(k, None).await?);
        }
        let commit = tx.commit().await;
        if conflicts {
            refused(commit, Refusal::Conflict)?;
        } else {
            commit?;
        }
    }
    // A create, too, reads that there is nothing.
    let mut tx = store.begin();
    ensure_eq!(
        tx.put(b"race", b"mine", PutMode::Create, None).await?,
        TxPut::Staged
    );
    stored(&*store, b"race", b"theirs").await?;
    refused(tx.commit().await, Refusal::Conflict)?;
    ensure_eq!(&*entry(&*store, b"race").await?.value, b"theirs");
    // So does a deletion that finds nothing.
    let mut tx = store.begin();
    ensure!(!tx.delete(b"race2").await?);
    tx.put(b"out", b"x", PutMode::Replace, None).await?;
    stored(&*store, b"race2", b"theirs").await?;
    refused(tx.commit().await, Refusal::Conflict)
}

pub(crate) async fn t3_there_is_no_write_skew(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"alice", b"on call").await?;
    stored(&*store, b"bob", b"on call").await?;
    let mut first = store.begin();
    let mut second = store.begin();
    // Each goes off call because the other one is on it.
    for tx in [&mut first, &mut second] {
        ensure!(tx.get(b"alice").await?.is_some() && tx.get(b"bob").await?.is_some());
    }
    ensure!(first.delete(b"alice").await?);
    ensure!(second.delete(b"bob").await?);
    first.commit().await?;
    refused(second.commit().await, Refusal::Conflict)?;
    ensure_eq!(&*entry(&*store, b"bob").await?.value, b"on call");
    Ok(())
}

pub(crate) async fn t3_blind_writes_do_not_conflict(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut first = store.begin();
    let mut second = store.begin();
    first.put(b"k", b"first", PutMode::Replace, None).await?;
    second.put(b"k", b"second", PutMode::Replace, None).await?;
    let second = second.commit().await?.version(b"k");
    let first = first.commit().await?.version(b"k");
    ensure!(
        first > second && second.is_some(),
        "versions follow the order of the commits"
    );
    let read = entry(&*store, b"k").await?;
    ensure_eq!((&*read.value, Some(read.version)), (&b"first"[..], first));
    Ok(())
}

pub(crate) async fn t3_guards_are_judged_before_checks(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let version = stored(&*store, b"k", b"v").await?;
    let token = grant(&*store, "z", "o", TTL).await?.token();
    let changeset = |token| -> CaseResult<Changeset> {
        let mut changeset = Changeset::new();
        changeset.check(key(b"k")?, Expect::Absent)?;
        changeset.guard(LockName::new("z")?, token)?;
        Ok(changeset)
    };
    refused(
        store.commit_changeset(changeset(token)?).await,
        Refusal::Conflict,
    )?;
    refused(
        store.commit_changeset(changeset(other_than(token)?)?).await,
        Refusal::LeaseLost,
    )?;
    f.advance(TTL).await?;
    refused(
        store.commit_changeset(changeset(token)?).await,
        Refusal::LeaseLost,
    )?;
    ensure_eq!(entry(&*store, b"k").await?.version, version);
    Ok(())
}

pub(crate) async fn t3_the_size_of_a_changeset_is_capped(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut changeset = Changeset::new();
    for number in 0..MAX_CHANGESET_ITEMS {
        changeset.put(
            key(format!("{number:05}").as_bytes())?,
            Value::from(&b"v"[..]),
            PutMode::Create,
            None,
        )?;
    }
    refused(
        changeset.check(key(b"x")?, Expect::Absent),
        Refusal::Argument,
    )?;
    let token = grant(&*store, "a", "o", TTL).await?.token();
    refused(
        changeset.guard(LockName::new("a")?, token),
        Refusal::Argument,
    )?;
    let commit = store.commit_changeset(changeset).await?;
    ensure_eq!(commit.versions.len(), MAX_CHANGESET_ITEMS);
    ensure!(commit.versions.windows(2).all(|pair| pair[0].0 < pair[1].0));
    ensure_eq!(
        store.list(b"", None, usize::MAX).await?.len(),
        MAX_CHANGESET_ITEMS
    );

    let mut tx = store.begin();
    for number in 0..=MAX_CHANGESET_ITEMS {
        tx.put(
            format!("t{number}").as_bytes(),
            b"v",
            PutMode::Replace,
            None,
        )
        .await?;
    }
    refused(tx.commit().await, Refusal::Argument)?;
    ensure_eq!(store.list(b"t", None, 10).await?, []);
    Ok(())
}

pub(crate) async fn t3_the_bytes_of_a_changeset_are_capped(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let largest = Value::from(vec![0; MAX_VALUE_BYTES]);
    let rest = Value::from(vec![0; MAX_CHANGESET_BYTES - MAX_VALUE_BYTES - 2]);
    let mut changeset = Changeset::new();
    changeset.put(key(b"a")?, largest.clone(), PutMode::Replace, None)?;
    refused(
        changeset.put(key(b"b")?, largest.clone(), PutMode::Replace, None),
        Refusal::Argument,
    )?;
    changeset.put(key(b"b")?, rest, PutMode::Replace, None)?;
    refused(
        changeset.check(key(b"c")?, Expect::Absent),
        Refusal::Argument,
    )?;
    refused(
        changeset.put(key(b"c")?, Value::from(&b""[..]), PutMode::Replace, None),
        Refusal::Argument,
    )?;
    ensure_eq!(store.list(b"", None, 10).await?, []);
    Ok(())
}

pub(crate) async fn t4_a_changeset_is_committed_in_one_call(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let token = grant(&*store, "a", "o", TTL).await?.token();
    let checked = stored(&*store, b"checked", b"v").await?;
    let updated = stored(&*store, b"updated", b"v").await?;
    stored(&*store, b"deleted", b"v").await?;
    stage(
        &*store,
        &[
            ("created", START),
            ("moved", START),
            ("kept", START),
            ("out", START),
            ("again", START),
        ],
    )
    .await?;
    let later = START.plus(secs(1));
    let mut changeset = Changeset::new();
    ensure!(changeset.is_empty());
    changeset.guard(LockName::new("a")?, token)?;
    changeset.check(key(b"checked")?, Expect::Version(checked))?;
    changeset.check(key(b"absent")?, Expect::Absent)?;
    changeset.put(
        key(b"updated")?,
        Value::from(&b"u"[..]),
        PutMode::Update(updated),
        Some(Ttl::new(TTL)?),
    )?;
    changeset.put(
        key(b"created")?,
        Value::from(&b"c"[..]),
        PutMode::Create,
        None,
    )?;
    changeset.put(
        key(b"replaced")?,
        Value::from(&b""[..]),
        PutMode::Replace,
        None,
    )?;
    changeset.delete(key(b"deleted")?)?;
    changeset.delete(key(b"never")?)?;
    changeset.stage(key(b"moved")?, later, Restage::Move)?;
    changeset.stage(key(b"kept")?, later, Restage::Keep)?;
    changeset.stage(key(b"fresh")?, later, Restage::Keep)?;
    changeset.unstage(key(b"out")?)?;
    changeset.unstage(key(b"again")?)?;
    changeset.stage(key(b"again")?, later, Restage::Keep)?;
    ensure!(!changeset.is_empty());
    let commit = store.commit_changeset(changeset).await?;
    let mut written = Vec::new();
    for (name, value) in [
        (&b"created"[..], &b"c"[..]),
        (b"replaced", b""),
        (b"updated", b"u"),
    ] {
        let read = entry(&*store, name).await?;
        ensure_eq!(&*read.value, value);
        ensure_eq!(commit.version(name), Some(read.version));
        written.push((key(name)?, read.version));
    }
    ensure_eq!(commit, Commit { versions: written });
    ensure_eq!(expiry(&*store, b"updated").await?, Some(START.plus(TTL)));
    ensure!(entry(&*store, b"updated").await?.version > updated);
    ensure_eq!(entry(&*store, b"checked").await?.version, checked);
    ensure_eq!(store.get(b"deleted").await?, None);
    ensure_eq!(store.get(b"absent").await?, None);
    let waiting = drain(&*store).await?;
    let expected = [
        ("again", later),
        ("fresh", later),
        ("kept", START),
        ("moved", later),
    ];
    ensure_eq!(waiting, expected.map(|(name, at)| (name.to_owned(), at)));
    Ok(())
}

pub(crate) async fn t4_a_write_brings_its_own_check(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let version = stored(&*store, b"there", b"v").await?;
    let held = sight(&*store).await?;
    for (name, mode) in [
        (&b"there"[..], PutMode::Create),
        (b"there", PutMode::Update(other_than(version)?)),
        (b"absent", PutMode::Update(version)),
    ] {
        let mut changeset = Changeset::new();
        changeset.put(
            key(b"besides")?,
            Value::from(&b"w"[..]),
            PutMode::Replace,
            None,
        )?;
        changeset.put(key(name)?, Value::from(&b"w"[..]), mode, None)?;
        refused(store.commit_changeset(changeset).await, Refusal::Conflict)?;
        ensure_eq!(sight(&*store).await?, held, "{mode:?}");
    }
    Ok(())
}

pub(crate) async fn t4_contradictions_are_refused(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let (one, two) = (crate::steps::revision(1)?, crate::steps::revision(2)?);
    let value = || Value::from(&b"v"[..]);
    let mut changeset = Changeset::new();
    changeset.check(key(b"a")?, Expect::Absent)?;
    changeset.check(key(b"a")?, Expect::Absent)?;
    refused(
        changeset.check(key(b"a")?, Expect::Version(one)),
        Refusal::Argument,
    )?;
    refused(
        changeset.put(key(b"a")?, value(), PutMode::Update(one), None),
        Refusal::Argument,
    )?;
    changeset.put(key(b"a")?, value(), PutMode::Create, None)?;
    refused(
        changeset.put(key(b"a")?, value(), PutMode::Replace, None),
        Refusal::Argument,
    )?;
    refused(changeset.delete(key(b"a")?), Refusal::Argument)?;
    changeset.delete(key(b"b")?)?;
    refused(changeset.delete(key(b"b")?), Refusal::Argument)?;
    refused(
        changeset.put(key(b"b")?, value(), PutMode::Replace, None),
        Refusal::Argument,
    )?;
    changeset.stage(key(b"s")?, START, Restage::Move)?;
    refused(
        changeset.stage(key(b"s")?, START, Restage::Move),
        Refusal::Argument,
    )?;
    changeset.guard(LockName::new("l")?, one)?;
    changeset.guard(LockName::new("l")?, one)?;
    refused(changeset.guard(LockName::new("l")?, two), Refusal::Argument)?;
    refused(store.commit_changeset(changeset).await, Refusal::LeaseLost)?;
    ensure_eq!(store.list(b"", None, 10).await?, []);
    Ok(())
}

pub(crate) async fn t4_an_empty_changeset_commits(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    ensure_eq!(
        store.commit_changeset(Changeset::new()).await?,
        Commit::default()
    );
    ensure_eq!(store.begin().commit().await?, Commit::default());
    store.close().await?;
    refused(
        store.commit_changeset(Changeset::new()).await,
        Refusal::Closed,
    )
}

pub(crate) async fn t4_e6_a_create_publishes_at_the_commit_alone(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"there", b"v").await?;
    let staged = [("new", START), ("there", START)];
    // Rolled back, and refused: nothing is published.
    stage(&*store, &staged).await?;
    let mut tx = store.begin();
    tx.put(b"new", b"v", PutMode::Create, None).await?;
    tx.rollback();
    let mut tx = store.begin();
    tx.put(b"there", b"v", PutMode::Create, None).await?;
    tx.put(b"new", b"v", PutMode::Create, None).await?;
    store.put(b"there", b"w", PutOptions::replace()).await?;
    refused(tx.commit().await, Refusal::Conflict)?;
    ensure_eq!(
        drain(&*store).await?,
        staged.map(|(name, at)| (name.to_owned(), at))
    );
    // Committed: both, stored or not; a replacement publishes nothing.
    stage(&*store, &staged).await?;
    stage(&*store, &[("replaced", START)]).await?;
    let claims = store.window_claim(START, HOUR, 1).await?;
    let mut tx = store.begin();
    ensure!(matches!(
        tx.put(b"there", b"v", PutMode::Create, None).await?,
        TxPut::NotStored { current: Some(_) }
    ));
    ensure_eq!(
        tx.put(b"new", b"v", PutMode::Create, None).await?,
        TxPut::Staged
    );
    ensure_eq!(
        tx.put(b"replaced", b"v", PutMode::Replace, None).await?,
        TxPut::Staged
    );
    tx.commit().await?;
    f.advance(HOUR).await?;
    ensure_eq!(store.window_settle(&claims).await?, 0);
    ensure_eq!(drain(&*store).await?, [("replaced".to_owned(), START)]);
    Ok(())
}

pub(crate) async fn t4_the_last_word_of_a_transaction_on_the_window_counts(
    f: &dyn Fixture,
) -> CaseResult {
    let store = open(f).await?;
    let later = START.plus(secs(1));
    stage(&*store, &[("moved", START), ("fresh", START)]).await?;
    let mut tx = store.begin();
    tx.stage(b"moved", later, Restage::Move)?;
    // Kept is what this transaction itself staged before.
    tx.stage(b"moved", START.plus(HOUR), Restage::Keep)?;
    tx.stage(b"published", START, Restage::Move)?;
    tx.put(b"published", b"v", PutMode::Create, None).await?;
    tx.unstage(b"fresh")?;
    tx.stage(b"fresh", later, Restage::Keep)?;
    tx.stage(b"taken back", START, Restage::Move)?;
    tx.unstage(b"taken back")?;
    refused(tx.stage(b"", START, Restage::Move), Refusal::Argument)?;
    refused(tx.unstage(b""), Refusal::Argument)?;
    tx.commit().await?;
    let waiting = drain(&*store).await?;
    ensure_eq!(
        waiting,
        [("fresh".to_owned(), later), ("moved".to_owned(), later)]
    );
    Ok(())
}

pub(crate) async fn t3_versions_follow_the_order_of_commits(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut last: Vec<Option<Revision>> = vec![None; 3];
    for round in 0..9_usize {
        let mut changeset = Changeset::new();
        for (k, _) in last
            .iter()
            .enumerate()
            .filter(|(k, _)| (round + k) % 2 == 0)
        {
            changeset.put(
                key(&[b'a' + u8::try_from(k).unwrap_or(0)])?,
                Value::from(&b"v"[..]),
                PutMode::Replace,
                None,
            )?;
        }
        let commit = store.commit_changeset(changeset).await?;
        let mut numbers: Vec<_> = commit
            .versions
            .iter()
            .map(|(_, version)| *version)
            .collect();
        numbers.dedup();
        ensure_eq!(
            numbers.len(),
            commit.versions.len(),
            "no version is given twice"
        );
        for (written, version) in &commit.versions {
            let k = usize::from(written.as_bytes()[0] - b'a');
            ensure!(Some(*version) > last[k], "round {round}");
            last[k] = Some(*version);
        }
        let put = store
            .put(b"a", b"v", PutOptions::replace())
            .await?
            .version();
        ensure!(put > last[0]);
        last[0] = put;
    }
    contended(&*store).await
}

/// Each transaction adds one to a counter; those that meet retry, and none is lost.
async fn contended(store: &dyn Store) -> CaseResult {
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut tx = store.begin();
        let count = tx.get(b"count").await?.map_or(0, |entry| entry.value.len());
        tx.put(b"count", &vec![1; count + 1], PutMode::Replace, None)
            .await?;
        open.push(tx);
    }
    let mut lost = 0;
    for tx in open {
        if let Err(error) = tx.commit().await {
            refused::<()>(Err(error), Refusal::Conflict)?;
            lost += 1;
        }
    }
    ensure_eq!(lost, 3);
    ensure_eq!(entry(store, b"count").await?.value.len(), 1);
    Ok(())
}
