//! W: the garbage-collection window.

use std::collections::BTreeSet;

use alkstore::{Candidate, Claim, Key, Put, PutOptions, Restage, Revision, Timestamp};
use futures_util::future::join_all;

use crate::failure::{refused, Refusal};
use crate::fixture::{Capability, Fixture, START};
use crate::steps::{
    before, candidates, drain, key, ms, open, other_than, secs, shown, stage, stored, CENTURY,
    HOUR, NANO, TTL,
};
use crate::{ensure, ensure_eq, CaseResult};

fn at(seconds: u64) -> Timestamp {
    START.plus(secs(seconds))
}

fn rows(rows: &[(&str, Timestamp)]) -> Vec<(String, Timestamp)> {
    rows.iter()
        .map(|(key, at)| ((*key).to_owned(), *at))
        .collect()
}

fn names(claims: &[Claim]) -> Vec<String> {
    claims
        .iter()
        .map(|claim| String::from_utf8_lossy(claim.key.as_bytes()).into_owned())
        .collect()
}

fn taken(candidates: &[Candidate]) -> Vec<(String, Timestamp)> {
    candidates.iter().map(shown).collect()
}

pub(crate) async fn w1_the_schema_is_made_as_often_as_asked(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    store.ensure_gc_schema().await?;
    stage(&*store, &[("k", START)]).await?;
    let claims = store.window_claim(START, TTL, 1).await?;
    let many = (0..8).map(|n| {
        if n % 2 == 0 {
            store.ensure_gc_schema()
        } else {
            other.ensure_gc_schema()
        }
    });
    for made in join_all(many).await {
        made?;
    }
    ensure_eq!(
        store.window_requeue(&claims, START).await?,
        1,
        "what was there stays"
    );
    ensure_eq!(drain(&*store).await?, rows(&[("k", START)]));
    Ok(())
}

pub(crate) async fn w2_staging_the_same_deadline_changes_nothing(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for restage in [Restage::Move, Restage::Keep] {
        for _ in 0..3 {
            store
                .window_stage(&candidates(&[("k", at(1)), ("k", at(1))])?, restage)
                .await?;
        }
        ensure_eq!(drain(&*store).await?, rows(&[("k", at(1))]));
    }
    store.window_stage(&[], Restage::Move).await?;
    ensure_eq!(drain(&*store).await?, []);
    Ok(())
}

pub(crate) async fn w2_a_new_deadline_moves_or_is_ignored(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    ensure_eq!(Restage::default(), Restage::Move);
    for (restage, second, expected) in [
        (Restage::Move, at(9), at(9)),
        (Restage::Move, at(1), at(1)),
        (Restage::Keep, at(9), at(5)),
        (Restage::Keep, at(1), at(5)),
    ] {
        stage(&*store, &[("k", at(5)), ("other", at(3))]).await?;
        store
            .window_stage(&candidates(&[("k", second)])?, restage)
            .await?;
        ensure_eq!(
            drain(&*store).await?,
            rows(&[("k", expected), ("other", at(3))]),
            "{restage:?} {second:?}"
        );
    }
    // A key named twice in one call is staged twice, in that order.
    for (restage, expected) in [(Restage::Move, at(2)), (Restage::Keep, at(7))] {
        store
            .window_stage(&candidates(&[("k", at(7)), ("k", at(2))])?, restage)
            .await?;
        ensure_eq!(
            drain(&*store).await?,
            rows(&[("k", expected)]),
            "{restage:?}"
        );
    }
    Ok(())
}

pub(crate) async fn w2_a_grace_counts_from_the_staging(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    f.advance(secs(3)).await?;
    let now = store.now().await?;
    let keys = [key(b"b")?, key(b"a")?, key(b"b")?];
    for (restage, first) in [(Restage::Move, at(5)), (Restage::Keep, at(5))] {
        stage(&*store, &[("a", first)]).await?;
        store.window_stage_after(&keys, secs(7), restage).await?;
        let a = if restage == Restage::Move {
            now.plus(secs(7))
        } else {
            first
        };
        ensure_eq!(
            drain(&*store).await?,
            rows(&[("a", a), ("b", now.plus(secs(7)))]),
            "{restage:?}"
        );
    }
    store
        .window_stage_after(&[key(b"a")?], CENTURY, Restage::Keep)
        .await?;
    ensure_eq!(drain(&*store).await?, rows(&[("a", now.plus(CENTURY))]));
    Ok(())
}

pub(crate) async fn w2_r1_repeated_marks_with_keep_are_swept_in_time(
    f: &dyn Fixture,
) -> CaseResult {
    let store = open(f).await?;
    let deadline = at(10);
    for pass in 0..10 {
        let now = store.now().await?;
        store
            .window_stage(&candidates(&[("k", now.plus(secs(10)))])?, Restage::Keep)
            .await?;
        ensure_eq!(store.window_take(now, None).await?, [], "pass {pass}");
        f.advance(secs(1)).await?;
    }
    let now = store.now().await?;
    ensure_eq!(now, deadline);
    ensure_eq!(
        taken(&store.window_take(now, None).await?),
        rows(&[("k", deadline)])
    );
    Ok(())
}

pub(crate) async fn w3_take_removes_what_is_due_oldest_first(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    ensure_eq!(
        store.window_take(Timestamp::MAX, None).await?,
        [],
        "a virgin store"
    );
    let staged = [
        ("e", at(5)),
        ("a", at(3)),
        ("d", at(1)),
        ("b", at(4)),
        ("c", at(2)),
    ];
    stage(&*store, &staged).await?;
    ensure_eq!(
        store.window_take(before(at(1), NANO), None).await?,
        [],
        "nothing is due"
    );
    ensure_eq!(store.window_take(at(9), Some(0)).await?, []);
    ensure_eq!(
        taken(&store.window_take(at(1), None).await?),
        rows(&[("d", at(1))]),
        "due at its very instant"
    );
    ensure_eq!(
        taken(&store.window_take(at(4), Some(2)).await?),
        rows(&[("c", at(2)), ("a", at(3))])
    );
    ensure_eq!(
        taken(&store.window_take(before(at(5), NANO), Some(9)).await?),
        rows(&[("b", at(4))])
    );
    ensure_eq!(
        store.window_take(before(at(5), NANO), None).await?,
        [],
        "future rows stay"
    );
    ensure_eq!(
        taken(&store.window_take(at(5), Some(1)).await?),
        rows(&[("e", at(5))])
    );
    ensure_eq!(store.window_take(Timestamp::MAX, None).await?, []);
    Ok(())
}

pub(crate) async fn w3_deadlines_may_lie_anywhere(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let early = Timestamp::from_nanos(-1_000_000_000);
    stage(
        &*store,
        &[
            ("max", Timestamp::MAX),
            ("min", Timestamp::MIN),
            ("zero", Timestamp::from_nanos(0)),
            ("early", early),
        ],
    )
    .await?;
    ensure_eq!(
        taken(&store.window_take(Timestamp::MIN, None).await?),
        rows(&[("min", Timestamp::MIN)])
    );
    ensure_eq!(
        taken(&store.window_take(early, None).await?),
        rows(&[("early", early)])
    );
    ensure_eq!(
        taken(&store.window_take(START, None).await?),
        rows(&[("zero", Timestamp::from_nanos(0))])
    );
    ensure_eq!(
        taken(&store.window_take(Timestamp::MAX, None).await?),
        rows(&[("max", Timestamp::MAX)])
    );
    Ok(())
}

pub(crate) async fn w3_keys_need_no_entry_and_keep_theirs(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"k", b"v").await?;
    let binary = Key::new(&b"\0\xff\xfe"[..])?;
    let row = Candidate {
        key: binary,
        visible_after: START,
    };
    stage(&*store, &[("k", START)]).await?;
    store
        .window_stage(std::slice::from_ref(&row), Restage::Move)
        .await?;
    let all = store.window_take(START, None).await?;
    ensure!(all.len() == 2 && all.contains(&row), "{all:?}");
    ensure!(
        store.get(b"k").await?.is_some(),
        "the window deletes no entry"
    );
    Ok(())
}

pub(crate) async fn w4_unstage_removes_claimed_or_not(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stage(
        &*store,
        &[("a", at(0)), ("b", at(1)), ("c", at(2)), ("d", HOUR_LATER)],
    )
    .await?;
    let claims = store.window_claim(at(0), TTL, 1).await?;
    ensure_eq!(names(&claims), ["a"]);
    let key = |name: &'static str| Key::new(name.as_bytes());
    ensure_eq!(store.window_unstage(&[]).await?, 0);
    ensure_eq!(store.window_unstage(&[key("never")?]).await?, 0);
    let gone = store
        .window_unstage(&[key("a")?, key("d")?, key("never")?, key("d")?])
        .await?;
    ensure_eq!(gone, 2, "each row is counted once");
    ensure_eq!(store.window_unstage(&[key("a")?, key("d")?]).await?, 0);
    ensure_eq!(store.window_settle(&claims).await?, 0);
    ensure_eq!(drain(&*store).await?, rows(&[("b", at(1)), ("c", at(2))]));
    Ok(())
}

const HOUR_LATER: Timestamp = Timestamp::from_nanos(START.as_nanos() + 3_600_000_000_000);

pub(crate) async fn w5_claims_hand_out_without_removing(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stage(
        &*store,
        &[("c", at(3)), ("a", at(2)), ("b", at(1)), ("d", at(4))],
    )
    .await?;
    f.advance(secs(3)).await?;
    ensure_eq!(store.window_claim(at(3), TTL, 0).await?, []);
    ensure_eq!(store.window_claim(before(at(1), NANO), TTL, 10).await?, []);
    let first = store.window_claim(at(3), TTL, 2).await?;
    ensure_eq!(names(&first), ["b", "a"], "oldest first");
    let second = store.window_claim(at(3), HOUR, 10).await?;
    ensure_eq!(
        names(&second),
        ["c"],
        "no row is handed out twice, no future row at all"
    );
    for (claim, due, until) in [
        (&first[0], at(1), at(3).plus(TTL)),
        (&first[1], at(2), at(3).plus(TTL)),
        (&second[0], at(3), at(3).plus(HOUR)),
    ] {
        ensure_eq!((claim.visible_after, claim.until), (due, until));
    }
    let ids: BTreeSet<_> = first.iter().chain(&second).map(|claim| claim.id).collect();
    ensure_eq!(ids.len(), 3, "each claim has its own number");
    ensure_eq!(
        taken(&store.window_take(Timestamp::MAX, None).await?),
        rows(&[("d", at(4))]),
        "take passes over claimed rows"
    );
    ensure_eq!(store.window_settle(&first).await?, 2);
    ensure_eq!(store.window_settle(&first).await?, 0, "settled is settled");
    ensure_eq!(store.window_settle(&[]).await?, 0);
    ensure_eq!(
        store
            .window_settle(&[second[0].clone(), second[0].clone()])
            .await?,
        1
    );
    f.advance(HOUR).await?;
    ensure_eq!(drain(&*store).await?, []);
    Ok(())
}

pub(crate) async fn w5_r9_a_crashed_sweeper_loses_no_candidate(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stage(&*store, &[("k", START), ("l", START)]).await?;
    let lost = store.window_claim(START, TTL, 10).await?;
    ensure_eq!(lost.len(), 2);
    let other = f.another(&store).await?;
    f.set_clock(before(START.plus(TTL), NANO)).await?;
    ensure_eq!(other.window_claim(Timestamp::MAX, TTL, 10).await?, []);
    f.advance(NANO).await?;
    let again = other.window_claim(START, TTL, 10).await?;
    ensure_eq!(
        names(&again),
        names(&lost),
        "at its very deadline the claim has lapsed"
    );
    ensure!(again.iter().zip(&lost).all(|(new, old)| new.id > old.id));
    ensure_eq!(
        store.window_settle(&lost).await?,
        0,
        "a lapsed claim removes nothing"
    );
    ensure_eq!(store.window_requeue(&lost, at(99)).await?, 0);
    ensure_eq!(other.window_settle(&again).await?, 2);
    Ok(())
}

pub(crate) async fn w5_a_lapsed_claim_settles_nothing(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stage(&*store, &[("k", START), ("l", START)]).await?;
    let claims = store.window_claim(START, TTL, 10).await?;
    f.set_clock(before(START.plus(TTL), NANO)).await?;
    ensure_eq!(
        store.window_settle(&claims[..1]).await?,
        1,
        "a nanosecond before its deadline it stands"
    );
    f.advance(NANO).await?;
    ensure_eq!(store.window_settle(&claims).await?, 0);
    ensure_eq!(store.window_requeue(&claims, at(99)).await?, 0);
    ensure_eq!(
        drain(&*store).await?.len(),
        1,
        "and its row is there to be taken"
    );
    Ok(())
}

pub(crate) async fn w5_requeue_puts_back(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stage(&*store, &[("a", at(0)), ("b", at(1)), ("c", at(2))]).await?;
    f.advance(secs(2)).await?;
    let claims = store.window_claim(at(2), TTL, 2).await?;
    ensure_eq!(store.window_requeue(&[], at(9)).await?, 0);
    ensure_eq!(store.window_requeue(&claims, at(9)).await?, 2);
    ensure_eq!(
        store.window_requeue(&claims, at(8)).await?,
        0,
        "the claim is over"
    );
    ensure_eq!(store.window_settle(&claims).await?, 0);
    ensure_eq!(names(&store.window_claim(at(8), TTL, 10).await?), ["c"]);
    ensure_eq!(
        taken(&store.window_take(at(9), Some(1)).await?).len(),
        1,
        "free at once, at its new instant"
    );
    ensure_eq!(store.window_take(before(at(9), NANO), None).await?, []);
    ensure_eq!(store.window_take(at(9), None).await?.len(), 1);
    // Earlier is fine, too.
    stage(&*store, &[("e", at(2))]).await?;
    let claims = store.window_claim(at(2), TTL, 2).await?;
    ensure_eq!(store.window_requeue(&claims, at(1)).await?, 1);
    ensure_eq!(drain(&*store).await?, rows(&[("e", at(1))]));
    Ok(())
}

pub(crate) async fn w5_r16_a_move_voids_a_claim(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"k", b"v").await?;
    for (restage, deadline, stands) in [
        (Restage::Move, at(60), false),
        (Restage::Move, before(START, NANO), false),
        (Restage::Move, START, true),
        (Restage::Keep, at(60), true),
    ] {
        stage(&*store, &[("k", START)]).await?;
        let claims = store.window_claim(START, TTL, 10).await?;
        ensure_eq!(claims.len(), 1, "{restage:?} {deadline:?}");
        store
            .window_stage(&candidates(&[("k", deadline)])?, restage)
            .await?;
        ensure_eq!(
            store.window_settle(&claims).await?,
            usize::from(stands),
            "{restage:?} {deadline:?}"
        );
        let rest = if stands {
            vec![]
        } else {
            rows(&[("k", deadline)])
        };
        ensure_eq!(drain(&*store).await?, rest, "{restage:?} {deadline:?}");
    }
    Ok(())
}

pub(crate) async fn w5_claims_lapse_by_the_store_clock_alone(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stage(&*store, &[("k", START)]).await?;
    // The caller's `now` decides what is due, not how long a claim lasts.
    let claims = store.window_claim(at(1_000_000), secs(1), 10).await?;
    ensure_eq!(
        claims.iter().map(|claim| claim.until).collect::<Vec<_>>(),
        [at(1)]
    );
    ensure_eq!(store.window_claim(Timestamp::MAX, TTL, 10).await?, []);
    ensure_eq!(store.window_take(Timestamp::MAX, None).await?, []);
    f.advance(secs(1)).await?;
    ensure_eq!(
        store.window_claim(START, TTL, 10).await?.len(),
        1,
        "a caller whose clock stands still sees the lapse"
    );
    Ok(())
}

pub(crate) async fn w5_only_the_claims_own_row_is_settled(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let stranger = open(f).await?;
    stage(&*store, &[("a", START), ("b", START)]).await?;
    let claims = store.window_claim(START, TTL, 10).await?;
    let forged = |key: &Key<'static>, id: Revision| Claim {
        key: key.clone(),
        id,
        ..claims[0].clone()
    };
    for claim in [
        forged(&claims[0].key, claims[1].id),
        forged(&claims[0].key, other_than(claims[0].id)?),
        forged(&Key::new(&b"c"[..])?, claims[0].id),
    ] {
        ensure_eq!(store.window_settle(std::slice::from_ref(&claim)).await?, 0);
        ensure_eq!(store.window_requeue(&[claim], at(9)).await?, 0);
    }
    ensure_eq!(
        stranger.window_settle(&claims).await?,
        0,
        "another store's claims"
    );
    // How long it still lasts is the store's knowledge, whatever the claim says.
    let long_lived: Vec<_> = claims
        .iter()
        .cloned()
        .map(|claim| Claim {
            until: Timestamp::MAX,
            ..claim
        })
        .collect();
    f.advance(TTL).await?;
    ensure_eq!(store.window_settle(&long_lived).await?, 0);
    ensure_eq!(drain(&*store).await?.len(), 2);
    Ok(())
}

pub(crate) async fn w5_r2_publication_gives_a_whole_fresh_window(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let version = stored(&*store, b"k", b"v").await?;
    stage(&*store, &[("k", at(10))]).await?;
    f.advance(secs(9)).await?;
    let hit = store.put(b"k", b"v", PutOptions::create()).await?;
    ensure_eq!(
        hit,
        Put::NotStored {
            current: Some(version)
        }
    );
    f.advance(secs(1)).await?;
    ensure_eq!(
        store.window_take(at(10), None).await?,
        [],
        "un-staged by the publication"
    );
    store
        .window_stage(&candidates(&[("k", at(20))])?, Restage::Keep)
        .await?;
    ensure_eq!(
        store.window_take(at(19), None).await?,
        [],
        "no trace of the old deadline"
    );
    ensure_eq!(
        taken(&store.window_take(at(20), None).await?),
        rows(&[("k", at(20))])
    );
    Ok(())
}

pub(crate) async fn w6_r19_the_store_clock_decides(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    let mut latest = START;
    for to in [
        START,
        at(5),
        before(START, HOUR),
        Timestamp::from_nanos(-7_000_000),
        START.plus(ms(1)),
    ] {
        f.set_clock(to).await?;
        latest = latest.max(to);
        let expected = if f.engine().has(Capability::StepsBack) {
            to
        } else {
            latest
        };
        ensure_eq!(store.now().await?, expected);
        ensure_eq!(other.now().await?, expected);
    }
    f.set_clock(at(6)).await?;
    f.advance(NANO).await?;
    ensure_eq!(store.now().await?, at(6).plus(NANO));
    // A sweep on a node whose own clock runs ten minutes ahead asks the store for the time.
    stage(&*store, &[("k", at(600))]).await?;
    ensure_eq!(store.window_take(other.now().await?, None).await?, []);
    ensure_eq!(store.window_claim(other.now().await?, TTL, 10).await?, []);
    ensure_eq!(drain(&*store).await?.len(), 1);
    Ok(())
}

pub(crate) async fn w7_r15_takers_get_disjoint_sets(f: &dyn Fixture) -> CaseResult {
    takers(f, false).await
}

pub(crate) async fn w7_r15_claimers_get_disjoint_sets(f: &dyn Fixture) -> CaseResult {
    takers(f, true).await
}

/// Two handles, 1000 due keys, at most 10 at a time, two calls in flight.
async fn takers(f: &dyn Fixture, claim: bool) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    let all: Vec<_> = (0..1000).map(|n| (format!("k{n:03}"), START)).collect();
    let all: Vec<_> = all.iter().map(|(key, at)| (&**key, *at)).collect();
    stage(&*store, &all).await?;
    let take = |handle: usize| {
        let store = if handle == 0 { &store } else { &other };
        async move {
            if claim {
                store
                    .window_claim(START, TTL, 10)
                    .await
                    .map(|claims| names(&claims))
            } else {
                let rows = store.window_take(START, Some(10)).await?;
                Ok(taken(&rows).into_iter().map(|(key, _)| key).collect())
            }
        }
    };
    let mut seen = BTreeSet::new();
    for _ in 0..200 {
        for batch in join_all((0..4).map(|n| take(n % 2))).await {
            let batch = batch?;
            ensure!(batch.len() <= 10, "{} rows for a limit of 10", batch.len());
            for key in batch {
                ensure!(seen.insert(key.clone()), "{key} was handed out twice");
            }
        }
    }
    ensure_eq!(seen.len(), 1000);
    Ok(())
}

pub(crate) async fn w5_a_refused_claim_claims_nothing(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stage(&*store, &[("k", START)]).await?;
    refused(
        store
            .window_claim(START, std::time::Duration::ZERO, 1)
            .await,
        Refusal::Duration(alkstore::TtlError::NotPositive),
    )?;
    ensure_eq!(store.window_claim(START, TTL, usize::MAX).await?.len(), 1);
    Ok(())
}
