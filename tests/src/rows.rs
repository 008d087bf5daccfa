//! W9: what can be seen of the window without changing it.

use alkstore::{Key, PutOptions, Reclaim, Restage, Timestamp, WindowRow, WindowStats};

use crate::failure::{refused, Refusal};
use crate::fixture::{Fixture, START};
use crate::steps::{
    before, candidates, claimed, key, marked, ms, open, secs, sight, stage, stored, waiting, HOUR,
    NANO, TTL,
};
use crate::{ensure, ensure_eq, CaseResult};

fn at(seconds: u64) -> Timestamp {
    START.plus(secs(seconds))
}

/// A row that was just staged.
fn fresh(name: &[u8], visible_after: Timestamp) -> CaseResult<WindowRow> {
    Ok(WindowRow {
        key: key(name)?,
        visible_after,
        claimed_until: None,
        reclaiming: false,
        requeues: 0,
    })
}

pub(crate) async fn w9_rows_are_listed_as_they_become_due(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    ensure_eq!(store.window_list(None, 9).await?, []);
    // At one instant the bytes of the keys decide.
    let order: [(&[u8], Timestamp); 8] = [
        (b"late", Timestamp::MIN),
        (b"z", before(START, NANO)),
        (b"A", START),
        (b"a", START),
        (b"a\0", START),
        (b"aa", START),
        (b"\xff\xfe", START),
        (b"0", Timestamp::MAX),
    ];
    let mut rows = Vec::new();
    for (name, visible_after) in order {
        rows.push(fresh(name, visible_after)?);
    }
    for row in rows.iter().rev() {
        let candidate = alkstore::Candidate {
            key: row.key.clone(),
            visible_after: row.visible_after,
        };
        store.window_stage(&[candidate], Restage::Move).await?;
    }
    ensure_eq!(store.window_list(None, usize::MAX).await?, rows);
    ensure_eq!(store.window_list(None, 0).await?, []);
    for size in 1..=rows.len() + 1 {
        let (mut seen, mut after): (Vec<WindowRow>, Option<WindowRow>) = (Vec::new(), None);
        loop {
            let page = store.window_list(after.as_ref(), size).await?;
            ensure!(page.len() <= size);
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            seen.extend(page);
        }
        ensure_eq!(seen, rows, "pages of {size}");
    }
    // A cursor is a place, whether its row is still there or not.
    store.window_unstage(&[key(b"a\0")?]).await?;
    let gone = rows.remove(4);
    ensure_eq!(store.window_list(Some(&gone), 9).await?, rows[4..]);
    let between = fresh(b"Z", START)?;
    ensure_eq!(store.window_list(Some(&between), 1).await?, rows[3..4]);
    Ok(())
}

pub(crate) async fn w9_claims_marks_and_counts_are_shown(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    stage(&*store, &[("a", at(0)), ("b", at(1)), ("c", at(2))]).await?;
    let claims = store.window_claim(at(1), TTL, 9).await?;
    store.window_mark(&claims[..1], None).await?;
    let mut rows = [
        fresh(b"a", at(0))?,
        fresh(b"b", at(1))?,
        fresh(b"c", at(2))?,
    ];
    rows[0].claimed_until = Some(START.plus(TTL));
    rows[0].reclaiming = true;
    rows[1].claimed_until = Some(START.plus(TTL));
    ensure_eq!(store.window_list(None, 9).await?, rows);
    ensure_eq!(other.window_list(None, 9).await?, rows, "by every handle");
    f.advance(TTL).await?;
    ensure_eq!(
        store.window_list(None, 9).await?,
        rows,
        "when the claim lapsed is shown until it is claimed anew"
    );
    let again = store.window_claim(at(1), HOUR, 1).await?;
    ensure_eq!(again[0].key, rows[0].key);
    rows[0].claimed_until = Some(START.plus(TTL).plus(HOUR));
    ensure_eq!(store.window_list(None, 9).await?, rows);
    ensure_eq!(store.window_requeue(&again, at(9)).await?, 1);
    rows[0].claimed_until = None;
    rows[0].visible_after = at(9);
    rows[0].requeues = 1;
    rows.rotate_left(1);
    ensure_eq!(store.window_list(None, 9).await?, rows);
    for row in &rows {
        let shown = other.window_info(row.key.as_bytes()).await?;
        ensure_eq!(shown.as_ref(), Some(row));
    }
    Ok(())
}

pub(crate) async fn w9_one_row_is_shown(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"entry", b"v").await?;
    ensure_eq!(store.window_info(b"entry").await?, None, "it does not wait");
    for name in [&b"k"[..], b"\0", &[0xff; 1024]] {
        let candidate = alkstore::Candidate {
            key: Key::new(name.to_vec())?,
            visible_after: at(3),
        };
        store.window_stage(&[candidate], Restage::Move).await?;
        ensure_eq!(store.window_info(name).await?, Some(fresh(name, at(3))?));
    }
    refused(store.window_info(b"").await, Refusal::Argument)?;
    refused(store.window_info(&[0; 1025]).await, Refusal::Argument)?;
    store.put(b"k", b"v", PutOptions::create()).await?;
    ensure_eq!(store.window_info(b"k").await?, None, "published");
    Ok(())
}

pub(crate) async fn w9_the_window_in_numbers(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let empty = WindowStats::default();
    ensure_eq!(store.window_stats(Timestamp::MAX).await?, empty);
    stage(
        &*store,
        &[("a", at(0)), ("b", at(1)), ("c", at(2)), ("d", at(3))],
    )
    .await?;
    let claims = store.window_claim(at(2), TTL, 9).await?;
    ensure_eq!(claims.len(), 3);
    store.window_mark(&claims[..1], None).await?;
    ensure_eq!(store.window_requeue(&claims[1..2], at(5)).await?, 1);
    let mut expected = WindowStats {
        rows: 4,
        due: 2,
        claimed: 2,
        reclaiming: 1,
        requeued: 1,
        oldest: Some(at(0)),
    };
    ensure_eq!(store.window_stats(at(2)).await?, expected);
    // What is due is judged by the caller's instant, claims by the store clock.
    for (now, due) in [
        (Timestamp::MIN, 0),
        (before(at(0), NANO), 0),
        (at(0), 1),
        (at(3), 3),
        (Timestamp::MAX, 4),
    ] {
        expected.due = due;
        ensure_eq!(store.window_stats(now).await?, expected, "{now:?}");
    }
    f.advance(TTL).await?;
    expected.claimed = 0;
    ensure_eq!(store.window_stats(Timestamp::MAX).await?, expected);
    Ok(())
}

pub(crate) async fn w8_w9_judging_changes_nothing(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for (name, value) in [(b"a", &b"value"[..]), (b"b", b""), (b"m", b"v")] {
        stored(&*store, name, value).await?;
    }
    let mortal = PutOptions::create().ttl(ms(1));
    store.put(b"lapsed", b"v", mortal).await?;
    f.advance(ms(1)).await?;
    marked(&*store, &["m"]).await?;
    claimed(&*store, &["a"]).await?;
    let row = candidates(&[("b", at(9))])?;
    store.window_stage(&row, Restage::Move).await?;
    let (held, rows) = (sight(&*store).await?, waiting(&*store).await?);
    let keys = [
        key(b"never")?,
        key(b"m")?,
        key(b"b")?,
        key(b"a")?,
        key(b"lapsed")?,
        key(b"a")?,
    ];
    let bytes = |bytes| Reclaim::Deleted { bytes };
    for _ in 0..2 {
        ensure_eq!(
            store.window_judge(&keys).await?,
            [
                Reclaim::Absent,
                bytes(1),
                bytes(0),
                bytes(5),
                Reclaim::Absent,
                bytes(5)
            ],
            "in the order of the keys, without regard to claims and marks"
        );
    }
    ensure_eq!(store.window_judge(&[]).await?, []);
    ensure_eq!(sight(&*store).await?, held);
    ensure_eq!(waiting(&*store).await?, rows);
    ensure_eq!(store.purge_lapsed(9).await?, 1, "the lapsed entry is left");
    Ok(())
}
