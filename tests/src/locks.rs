//! L: named locks.

use std::collections::BTreeMap;

use alkstore::{LockInfo, PutMode, PutOptions, Revision, Store, StoreExt as _};

use crate::failure::{refused, Refusal};
use crate::fixture::{Capability, Fixture, START};
use crate::steps::{
    before, grant, lose, ms, open, other_than, row, secs, sight, CENTURY, HOUR, NANO, TTL,
};
use crate::{ensure, ensure_eq, CaseResult};

pub(crate) async fn l1_absent_is_granted(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    ensure_eq!(store.lock_info("a").await?, None);
    let lock = grant(&*store, "a", "o", TTL).await?;
    ensure_eq!((lock.name(), lock.owner()), ("a", "o"));
    ensure_eq!(lock.deadline(), Some(START.plus(TTL)));
    let expected = LockInfo {
        name: "a".into(),
        owner: "o".into(),
        token: lock.token(),
        deadline: START.plus(TTL),
        lapsed: false,
    };
    ensure_eq!(row(&*store, "a").await?, expected);
    ensure_eq!(store.list_locks("", None, 10).await?, [expected]);
    Ok(())
}

pub(crate) async fn l1_lapsed_is_granted_at_the_deadline(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let first = grant(&*store, "a", "o", TTL).await?;
    f.set_clock(before(START.plus(TTL), NANO)).await?;
    lose(&*store, "a", "p", TTL).await?;
    ensure!(!row(&*store, "a").await?.lapsed);
    f.advance(NANO).await?;
    ensure!(row(&*store, "a").await?.lapsed);
    let second = grant(&*store, "a", "p", TTL).await?;
    ensure!(second.token() > first.token());
    ensure_eq!(second.deadline(), Some(START.plus(TTL).plus(TTL)));
    let row = row(&*store, "a").await?;
    ensure_eq!(
        (&*row.owner, row.token, row.lapsed),
        ("p", second.token(), false)
    );
    Ok(())
}

pub(crate) async fn l1_lapsed_is_granted_anew_to_its_owner(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let first = grant(&*store, "a", "o", TTL).await?;
    f.advance(TTL).await?;
    let second = grant(&*store, "a", "o", secs(5)).await?;
    ensure!(
        second.token() > first.token(),
        "a lapsed grant is not the same grant"
    );
    ensure_eq!(
        row(&*store, "a").await?.deadline,
        START.plus(TTL).plus(secs(5))
    );
    Ok(())
}

pub(crate) async fn l1_names_do_not_meet(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let a = grant(&*store, "a", "o", TTL).await?;
    let b = grant(&*store, "b", "p", ms(1)).await?;
    ensure!(
        a.token() != b.token(),
        "revisions are unique in their store"
    );
    f.advance(ms(1)).await?;
    ensure!(!row(&*store, "a").await?.lapsed);
    grant(&*store, "b", "o", TTL).await?;
    lose(&*store, "a", "p", TTL).await
}

pub(crate) async fn l2_the_owner_gets_its_grant_again(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let first = grant(&*store, "a", "o", TTL).await?;
    let deadline = START.plus(TTL);
    f.advance(secs(1)).await?;
    for ttl in [ms(1), TTL, HOUR] {
        let again = grant(&*store, "a", "o", ttl).await?;
        ensure_eq!(again.token(), first.token());
        ensure_eq!(again.deadline(), Some(deadline), "the ttl is not refreshed");
        ensure_eq!(
            row(&*store, "a").await?.deadline,
            deadline,
            "the ttl is not refreshed"
        );
    }
    f.set_clock(before(deadline, NANO)).await?;
    ensure_eq!(grant(&*store, "a", "o", HOUR).await?.token(), first.token());
    f.set_clock(deadline).await?;
    grant(&*store, "a", "p", TTL).await?;
    Ok(())
}

pub(crate) async fn l2_each_handle_of_a_grant_works(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut first = grant(&*store, "a", "o", TTL).await?;
    let mut second = grant(&*store, "a", "o", TTL).await?;
    ensure!(first.renew(secs(60)).await?);
    ensure!(second.renew(secs(90)).await?);
    ensure_eq!(row(&*store, "a").await?.deadline, START.plus(secs(90)));
    ensure!(first.release().await?);
    ensure!(!second.release().await?);
    Ok(())
}

pub(crate) async fn l3_losing_is_a_value_and_changes_nothing(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut lock = grant(&*store, "a", "o", TTL).await?;
    let held = sight(&*store).await?;
    let second = f.another(&store).await?;
    for owner in ["p", "O", "o ", "oo", "a"] {
        lose(&*store, "a", owner, HOUR).await?;
        lose(&*second, "a", owner, ms(1)).await?;
    }
    ensure_eq!(sight(&*store).await?, held);
    ensure!(lock.renew(TTL).await?);
    Ok(())
}

pub(crate) async fn l3_a_failure_is_never_losing(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    grant(&*store, "a", "o", TTL).await?;
    refused(store.try_lock("a", "", TTL).await, Refusal::Name)?;
    store.close().await?;
    refused(store.try_lock("a", "p", TTL).await, Refusal::Closed)
}

/// Which of these grants are live, as a fenced write sees it.
async fn live(store: &dyn Store, grants: &[(String, Revision)]) -> CaseResult<Vec<String>> {
    let mut live = Vec::new();
    for (owner, token) in grants {
        let fenced = PutOptions::replace().guard("a", *token);
        match store.put(b"probe", owner.as_bytes(), fenced).await {
            Ok(_) => live.push(owner.clone()),
            error => refused(error, Refusal::LeaseLost)?,
        }
    }
    Ok(live)
}

pub(crate) async fn l4_one_live_grant_at_any_instant(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    let mut grants: Vec<(String, Revision)> = Vec::new();
    for step in 0..60_u64 {
        let owner = format!("o{}", step * 7 % 5);
        let handle = if step % 2 == 0 { &store } else { &other };
        if let Some(mut lock) = handle.try_lock("a", &owner, ms(10 + step % 3)).await? {
            if !grants.iter().any(|(_, token)| *token == lock.token()) {
                grants.push((owner, lock.token()));
            }
            if step % 4 == 0 {
                ensure!(lock.renew(ms(11)).await?);
            }
            if step % 9 == 0 {
                ensure!(lock.release().await?);
            }
        }
        let now = live(&*store, &grants).await?;
        ensure!(now.len() <= 1, "step {step}: {now:?} are live at once");
        let row = store.lock_info("a").await?.filter(|row| !row.lapsed);
        ensure_eq!(
            now.first(),
            row.as_ref().map(|row| &row.owner),
            "step {step}"
        );
        f.advance(ms(step % 7)).await?;
    }
    ensure!(
        grants.len() > 10,
        "the schedule is too tame: {} grants",
        grants.len()
    );
    Ok(())
}

pub(crate) async fn l5_renew_is_absolute_and_may_shorten(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut lock = grant(&*store, "a", "o", TTL).await?;
    f.advance(secs(10)).await?;
    let now = START.plus(secs(10));
    for ttl in [HOUR, TTL, ms(1), CENTURY, secs(1)] {
        ensure!(lock.renew(ttl).await?);
        ensure_eq!(row(&*store, "a").await?.deadline, now.plus(ttl));
        ensure_eq!(lock.deadline(), Some(now.plus(ttl)));
    }
    let row = row(&*store, "a").await?;
    ensure_eq!(
        (&*row.owner, row.token),
        ("o", lock.token()),
        "only the deadline moves"
    );
    f.advance(secs(1)).await?;
    grant(&*store, "a", "p", TTL).await?;
    Ok(())
}

pub(crate) async fn l5_renew_at_the_deadline_is_false(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut lock = grant(&*store, "a", "o", TTL).await?;
    f.set_clock(before(START.plus(TTL), NANO)).await?;
    ensure!(
        lock.renew(TTL).await?,
        "a nanosecond before its deadline the lease is live"
    );
    let deadline = before(START.plus(TTL), NANO).plus(TTL);
    f.set_clock(deadline).await?;
    ensure!(
        !lock.renew(TTL).await?,
        "at its deadline the lease has lapsed"
    );
    ensure_eq!(
        row(&*store, "a").await?.deadline,
        deadline,
        "a lapsed lease is not resurrected"
    );
    f.advance(HOUR).await?;
    ensure!(!lock.renew(TTL).await?);
    ensure_eq!(row(&*store, "a").await?.deadline, deadline);
    grant(&*store, "a", "p", TTL).await?;
    Ok(())
}

pub(crate) async fn l5_renew_without_a_row_is_false(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut lock = grant(&*store, "a", "o", TTL).await?;
    ensure!(store.force_release("a", lock.token()).await?);
    ensure!(!lock.renew(TTL).await?);
    ensure_eq!(store.lock_info("a").await?, None, "renew grants nothing");
    let mut never = store.lock_handle("never", "o", lock.token())?;
    ensure!(!never.renew(TTL).await?);
    ensure_eq!(store.lock_info("never").await?, None);
    Ok(())
}

pub(crate) async fn l5_renew_of_another_grant_is_false(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let lock = grant(&*store, "a", "o", TTL).await?;
    let held = sight(&*store).await?;
    for (name, owner, token) in [
        ("a", "p", lock.token()),
        ("a", "O", lock.token()),
        ("a", "o", other_than(lock.token())?),
        ("b", "o", lock.token()),
    ] {
        let mut handle = store.lock_handle(name, owner, token)?;
        ensure!(!handle.renew(HOUR).await?, "{name} {owner} {token}");
        ensure_eq!(sight(&*store).await?, held);
    }
    Ok(())
}

pub(crate) async fn l5_k1_renew_after_lapse_and_takeover_is_false(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut a = grant(&*store, "a", "A", TTL).await?;
    f.advance(TTL).await?;
    let mut b = grant(&*store, "a", "B", HOUR).await?;
    let held = sight(&*store).await?;
    ensure!(!a.renew(secs(5)).await?);
    ensure_eq!(sight(&*store).await?, held, "B's row is untouched");
    ensure!(b.renew(HOUR).await?);
    Ok(())
}

pub(crate) async fn l6_release_frees_the_name_at_once(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let lock = grant(&*store, "a", "o", TTL).await?;
    let first = lock.token();
    ensure!(lock.release().await?);
    ensure_eq!(store.lock_info("a").await?, None);
    ensure_eq!(store.list_locks("", None, 10).await?, []);
    let second = grant(&*store, "a", "p", TTL).await?;
    ensure!(second.token() > first);
    ensure!(
        !store.lock_handle("a", "o", first)?.release().await?,
        "it was released before"
    );
    ensure_eq!(row(&*store, "a").await?.owner, "p");
    Ok(())
}

pub(crate) async fn l6_the_lapsed_row_of_its_holder_is_released(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let lock = grant(&*store, "a", "o", TTL).await?;
    let parts = (
        lock.name().to_owned(),
        lock.owner().to_owned(),
        lock.token(),
    );
    f.advance(HOUR).await?;
    ensure!(row(&*store, "a").await?.lapsed);
    ensure!(lock.release().await?, "the stale holder's own row");
    ensure_eq!(store.lock_info("a").await?, None);
    let again = store.lock_handle(&parts.0, &parts.1, parts.2)?;
    ensure!(!again.release().await?, "row-less");
    Ok(())
}

pub(crate) async fn l6_release_of_another_grant_is_false(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let lock = grant(&*store, "a", "o", TTL).await?;
    let held = sight(&*store).await?;
    for (name, owner, token) in [
        ("a", "p", lock.token()),
        ("a", "o", other_than(lock.token())?),
        ("b", "o", lock.token()),
    ] {
        let handle = store.lock_handle(name, owner, token)?;
        ensure!(!handle.release().await?, "{name} {owner} {token}");
        ensure_eq!(sight(&*store).await?, held);
    }
    Ok(())
}

pub(crate) async fn l6_k2_a_late_release_spares_the_newer_lease(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut old = grant(&*store, "a", "A", TTL).await?;
    f.advance(TTL).await?;
    let new = grant(&*store, "a", "A", HOUR).await?;
    let held = sight(&*store).await?;
    ensure!(
        !old.renew(HOUR).await?,
        "a newer grant of the same owner is another grant"
    );
    ensure!(!old.release().await?);
    ensure_eq!(sight(&*store).await?, held, "the new lease stands");
    lose(&*store, "a", "B", TTL).await?;
    ensure!(new.release().await?);
    Ok(())
}

pub(crate) async fn l7_a_handle_remembers_no_answer(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let second = f.another(&store).await?;
    let mut lock = grant(&*store, "a", "o", TTL).await?;
    let mut same = second.lock_handle("a", "o", lock.token())?;
    ensure!(same.renew(HOUR).await?);
    f.advance(secs(60)).await?;
    // By what this handle was told the lease lapsed long ago; the store knows better.
    ensure!(lock.renew(TTL).await?);
    ensure!(same.release().await?);
    ensure!(!lock.renew(TTL).await?);
    ensure!(!lock.release().await?);
    Ok(())
}

pub(crate) async fn l8_dropping_a_handle_frees_nothing(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let lock = grant(&*store, "a", "o", TTL).await?;
    let token = lock.token();
    drop(lock);
    lose(&*store, "a", "p", TTL).await?;
    ensure_eq!(grant(&*store, "a", "o", TTL).await?.token(), token);
    f.advance(TTL).await?;
    grant(&*store, "a", "p", TTL).await?;
    Ok(())
}

pub(crate) async fn l9_lapsed_rows_stay_until_they_are_purged(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut handles = Vec::new();
    for (name, ttl) in [("a", secs(1)), ("b", secs(2)), ("c", secs(3)), ("d", HOUR)] {
        handles.push(grant(&*store, name, "o", ttl).await?);
    }
    ensure_eq!(store.purge_lapsed(10).await?, 0, "all are live");
    f.advance(secs(3)).await?;
    let lapsed = |rows: &[LockInfo]| rows.iter().filter(|row| row.lapsed).count();
    ensure_eq!(
        lapsed(&store.list_locks("", None, 10).await?),
        3,
        "nothing sweeps"
    );
    ensure_eq!(store.purge_lapsed(0).await?, 0);
    ensure_eq!(lapsed(&store.list_locks("", None, 10).await?), 3);
    ensure_eq!(store.purge_lapsed(2).await?, 2, "no more than the limit");
    ensure_eq!(lapsed(&store.list_locks("", None, 10).await?), 1);
    ensure_eq!(
        store.purge_lapsed(10).await?,
        1,
        "at its very deadline a row has lapsed"
    );
    ensure_eq!(store.purge_lapsed(10).await?, 0);
    let rest = store.list_locks("", None, 10).await?;
    ensure_eq!(rest.iter().map(|row| &*row.name).collect::<Vec<_>>(), ["d"]);
    for mut stale in handles.drain(..3) {
        ensure!(!stale.renew(TTL).await?);
        ensure!(
            !stale.release().await?,
            "after a purge the stale holder has no row"
        );
    }
    Ok(())
}

pub(crate) async fn l10_tokens_increase_across_everything(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    let mut last: BTreeMap<&str, Revision> = BTreeMap::new();
    for round in 0..40_u32 {
        for name in ["a", "b"] {
            let handle = if round % 3 == 0 { &other } else { &store };
            let owner = if round % 2 == 0 { "o" } else { "p" };
            let lock = grant(&**handle, name, owner, secs(1)).await?;
            if let Some(last) = last.insert(name, lock.token()) {
                ensure!(
                    lock.token() > last,
                    "round {round}: {} after {last}",
                    lock.token()
                );
            }
            match round % 5 {
                0 => ensure!(lock.release().await?),
                1 => ensure!(store.force_release(name, lock.token()).await?),
                2 => {
                    f.advance(secs(1)).await?;
                    ensure!(lock.release().await?, "round {round}");
                }
                3 => {
                    f.advance(secs(1)).await?;
                    ensure!(store.purge_lapsed(10).await? > 0, "round {round}");
                }
                _ => f.advance(secs(1)).await?,
            }
        }
    }
    Ok(())
}

pub(crate) async fn l10_tokens_increase_across_reopening(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let lock = grant(&*store, "a", "o", TTL).await?;
    let first = lock.token();
    ensure!(lock.release().await?);
    store.close().await?;
    let again = f.another(&store).await;
    if !f.engine().has(Capability::Durable) {
        // The state ended with its handle: nothing may answer in its name.
        return match again {
            Ok(again) => refused(again.try_lock("a", "o", TTL).await, Refusal::Closed),
            error => refused(error, Refusal::Closed),
        };
    }
    let second = grant(&*again?, "a", "o", TTL).await?;
    ensure!(second.token() > first);
    Ok(())
}

pub(crate) async fn l13_a_closed_store_fails_the_locks(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut lock = grant(&*store, "a", "o", TTL).await?;
    let rebuilt = store.lock_handle("a", "o", lock.token())?;
    store.close().await?;
    refused(store.try_lock("a", "o", TTL).await, Refusal::Closed)?;
    refused(store.try_lock("b", "o", TTL).await, Refusal::Closed)?;
    refused(lock.renew(TTL).await, Refusal::Closed)?;
    refused(store.lock_info("a").await, Refusal::Closed)?;
    refused(store.list_locks("", None, 10).await, Refusal::Closed)?;
    refused(
        store.force_release("a", lock.token()).await,
        Refusal::Closed,
    )?;
    refused(store.lock_handle("a", "o", lock.token()), Refusal::Closed)?;
    refused(lock.release().await, Refusal::Closed)?;
    refused(rebuilt.release().await, Refusal::Closed)
}

pub(crate) async fn l14_transactions_neither_see_nor_hold_locks(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let lock = grant(&*store, "a", "o", TTL).await?;
    let mut tx = store.begin();
    ensure_eq!(tx.get(b"a").await?, None, "a lock is no entry");
    tx.put(b"a", b"v", PutMode::Create, None).await?;
    // Locks come and go while the transaction is open, and it commits all the same.
    ensure!(lock.release().await?);
    let taken = grant(&*store, "a", "p", TTL).await?;
    tx.commit().await?;
    let row = row(&*store, "a").await?;
    ensure_eq!((&*row.owner, row.token), ("p", taken.token()));
    let mut tx = store.begin();
    tx.delete(b"a").await?;
    tx.commit().await?;
    lose(&*store, "a", "o", TTL).await
}

pub(crate) async fn l15_lock_info_shows_the_row(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut lock = grant(&*store, "a", "o", TTL).await?;
    ensure!(lock.renew(HOUR).await?);
    let mut expected = LockInfo {
        name: "a".into(),
        owner: "o".into(),
        token: lock.token(),
        deadline: START.plus(HOUR),
        lapsed: false,
    };
    f.set_clock(before(START.plus(HOUR), NANO)).await?;
    ensure_eq!(store.lock_info("a").await?.as_ref(), Some(&expected));
    f.advance(NANO).await?;
    expected.lapsed = true;
    ensure_eq!(store.lock_info("a").await?, Some(expected));
    ensure_eq!(store.lock_info("A").await?, None);
    ensure_eq!(store.lock_info("aa").await?, None);
    Ok(())
}

pub(crate) async fn l15_list_locks_pages_in_bytewise_order(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    // Bytewise: capitals before small letters, é (two bytes) after z, and an emoji after U+FFFD, which UTF-16 would
    // have the other way round.
    let names = [
        "!",
        "%_",
        "A",
        "B/1",
        "_",
        "a",
        "a ",
        "a/",
        "a/1",
        "a/10",
        "a/2",
        "a0",
        "b",
        "z",
        "\u{e9}",
        "\u{fffd}",
        "\u{1f600}",
    ];
    for name in names.iter().rev() {
        grant(
            &*store,
            name,
            "o",
            if name.len() % 2 == 0 { secs(1) } else { HOUR },
        )
        .await?;
    }
    f.advance(secs(1)).await?;
    let listed = |rows: Vec<LockInfo>| rows.into_iter().map(|row| row.name).collect::<Vec<_>>();
    ensure_eq!(
        listed(store.list_locks("", None, 100).await?),
        names,
        "lapsed ones too"
    );
    for row in store.list_locks("", None, 100).await? {
        ensure_eq!(row.lapsed, row.name.len() % 2 == 0, "{:?}", row.name);
        ensure_eq!(store.lock_info(&row.name).await?, Some(row));
    }
    for (prefix, expected) in [
        ("a/", &["a/", "a/1", "a/10", "a/2"][..]),
        ("a/1", &["a/1", "a/10"]),
        ("%", &["%_"]),
        ("_", &["_"]),
        ("\u{e9}", &["\u{e9}"]),
        ("b/", &[]),
        ("__alkstore_", &[]),
    ] {
        ensure_eq!(
            listed(store.list_locks(prefix, None, 100).await?),
            expected,
            "{prefix:?}"
        );
    }
    for (prefix, after, limit, expected) in [
        ("a/", Some("a/1"), 100, &["a/10", "a/2"][..]),
        ("a/", Some("a/1"), 1, &["a/10"]),
        ("a/", Some("a/10"), 0, &[]),
        ("a/", Some("a"), 2, &["a/", "a/1"]),
        ("a/", Some("a/2"), 100, &[]),
        ("a/", Some("zzz"), 100, &[]),
        ("", Some("a/11"), 2, &["a/2", "a0"]),
        ("", Some(""), 1, &["!"]),
        ("", None, 0, &[]),
    ] {
        let page = store.list_locks(prefix, after, limit).await?;
        ensure_eq!(
            listed(page),
            expected,
            "{prefix:?} after {after:?} limit {limit}"
        );
    }
    let mut walked: Vec<String> = Vec::new();
    loop {
        let page = store
            .list_locks("", walked.last().map(String::as_str), 3)
            .await?;
        ensure!(page.len() <= 3);
        if page.is_empty() {
            break;
        }
        walked.extend(page.into_iter().map(|row| row.name));
        ensure!(walked.len() <= names.len(), "the pages overlap: {walked:?}");
    }
    ensure_eq!(walked, names);
    Ok(())
}

pub(crate) async fn l15_force_release_frees_exactly_that_grant(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut lock = grant(&*store, "a", "o", TTL).await?;
    let other = grant(&*store, "b", "o", TTL).await?;
    let held = sight(&*store).await?;
    ensure!(!store.force_release("a", other_than(lock.token())?).await?);
    ensure!(!store.force_release("a", other.token()).await?);
    ensure!(!store.force_release("c", lock.token()).await?);
    ensure_eq!(sight(&*store).await?, held);
    ensure!(store.force_release("a", lock.token()).await?);
    ensure!(!store.force_release("a", lock.token()).await?);
    ensure!(!lock.renew(TTL).await?);
    let newer = grant(&*store, "a", "p", TTL).await?;
    ensure!(newer.token() > lock.token());
    ensure!(
        !store.force_release("a", lock.token()).await?,
        "the newer grant stands"
    );
    f.advance(TTL).await?;
    ensure!(
        store.force_release("a", newer.token()).await?,
        "a lapsed row, too"
    );
    ensure_eq!(store.lock_info("a").await?, None);
    ensure_eq!(row(&*store, "b").await?.token, other.token());
    Ok(())
}

pub(crate) async fn l16_a_handle_is_rebuilt_from_its_parts(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let second = f.another(&store).await?;
    let lock = grant(&*store, "a", "o", TTL).await?;
    let mut rebuilt = second.lock_handle("a", "o", lock.token())?;
    ensure_eq!(
        (rebuilt.name(), rebuilt.owner(), rebuilt.token()),
        ("a", "o", lock.token())
    );
    ensure_eq!(rebuilt.deadline(), None, "nobody has told it yet");
    f.advance(secs(1)).await?;
    ensure!(rebuilt.renew(HOUR).await?);
    ensure_eq!(rebuilt.deadline(), Some(START.plus(secs(1)).plus(HOUR)));
    ensure_eq!(
        row(&*store, "a").await?.deadline,
        START.plus(secs(1)).plus(HOUR)
    );
    let handed_on = store.lock_handle(rebuilt.name(), rebuilt.owner(), rebuilt.token())?;
    ensure!(handed_on.release().await?);
    ensure_eq!(store.lock_info("a").await?, None);
    Ok(())
}

pub(crate) async fn l16_a_handle_outlives_its_store_variable(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let keeper = f.another(&store).await?;
    let mut lock = grant(&*store, "a", "o", TTL).await?;
    drop(store);
    ensure!(lock.renew(HOUR).await?);
    ensure!(lock.release().await?);
    ensure_eq!(keeper.lock_info("a").await?, None);
    Ok(())
}
