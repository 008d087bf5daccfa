//! T3 and T4: what a commit must find, and changesets without a transaction.

use alkstore::{
    Changeset, Commit, Expect, LockName, PutMode, PutOptions, Restage, Revision, Store,
    StoreExt as _, Ttl, TxPut, Value, MAX_CHANGESET_BYTES, MAX_CHANGESET_ITEMS, MAX_VALUE_BYTES,
};

use crate::failure::{refused, Refusal};
use crate::fixture::{Fixture, START};
use crate::steps::{
    drain, entry, expiry, grant, key, ms, open, other_than, secs, sight, stage, stored, HOUR, TTL,
};
use crate::{ensure, ensure_eq, CaseResult};

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
