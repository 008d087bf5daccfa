//! T: transactions and changesets.

use alkstore::{
    Changeset, Expect, PutMode, PutOptions, Restage, StoreExt as _, TxEntry, TxPut, Value,
};

use crate::failure::{refused, Refusal};
use crate::fixture::{Fixture, START};
use crate::steps::{
    drain, entry, expiry, grant, key, ms, open, other_than, sight, stage, stored, HOUR, TTL,
};
use crate::{ensure, ensure_eq, CaseResult};

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
