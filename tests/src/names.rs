//! N and D: what names, owners and durations are, and in which order a call's arguments are judged.

use std::time::Duration;

use alkstore::{
    Changeset, Lock, LockName, PutMode, PutOptions, Restage, StoreExt as _, Timestamp, TtlError,
    MAX_VALUE_BYTES,
};

use crate::failure::{refused, Refusal};
use crate::fixture::{Fixture, START};
use crate::steps::{
    before, drain, expiry, grant, lose, ms, open, row, secs, sight, stage, CENTURY, HOUR, NANO, TTL,
};
use crate::{ensure, ensure_eq, CaseResult};

/// What is neither a name nor an owner.
fn nameless() -> Vec<String> {
    let short = [
        "",
        " ",
        "\t\n ",
        "\u{a0}",
        "\u{3000}\u{2003}",
        "\0",
        "a\0",
        "\0a",
        "a\0b",
    ];
    let long = [
        "x".repeat(513),
        // 171 times 3 bytes: the limit counts bytes, not characters.
        "\u{20ac}".repeat(171),
        // 128 times 4 bytes and one: counted in UTF-16 it would fit.
        "\u{1f600}".repeat(128) + "x",
        " ".repeat(512),
        "__alkstore_".to_owned() + &"x".repeat(502),
        "x".repeat(1_000_000),
    ];
    short.map(str::to_owned).into_iter().chain(long).collect()
}

/// What is a name and an owner, however it looks; pairwise distinct.
fn strange() -> Vec<String> {
    let short = [
        "x",
        "X",
        "x ",
        " x",
        "x\n",
        "\u{1}",
        "\u{7f}",
        "\u{200b}",
        "\u{feff}",
        "\u{fffd}",
        "caf\u{e9}",
        "cafe\u{301}",
        "\u{212b}",
        "\u{c5}",
        "A\u{30a}",
        "\u{5e9}\u{5dc}\u{5d5}\u{5dd}",
        "\u{202e}gnp.exe",
        "../x",
        "..",
        "/",
        "\\",
        "a/b/c",
        "'; drop--",
        "%_",
        "%",
        "*",
        "$1",
        "{}",
        "__proto__",
        "constructor",
        "null",
        "0",
        "\u{1f600}",
        "\"quoted\"",
        "line\r\nbreak",
        "__alkstore",
        "_alkstore_x",
        " __alkstore_x",
        "__ALKSTORE_x",
        "x__alkstore_",
    ];
    let long = [
        "x".repeat(512),
        "x".repeat(511),
        "\u{20ac}".repeat(170) + "xy",
        "\u{1f600}".repeat(128),
    ];
    short.map(str::to_owned).into_iter().chain(long).collect()
}

pub(crate) async fn n1_what_is_no_name_is_refused_everywhere(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let token = grant(&*store, "lock", "owner", TTL).await?.token();
    store.put(b"k", b"v", PutOptions::create()).await?;
    let before = sight(&*store).await?;
    for wrong in &nameless() {
        refused(store.try_lock(wrong, "owner", TTL).await, Refusal::Name)?;
        refused(store.try_lock("lock", wrong, TTL).await, Refusal::Name)?;
        refused(store.lock_handle(wrong, "owner", token), Refusal::Name)?;
        refused(store.lock_handle("lock", wrong, token), Refusal::Name)?;
        refused(store.lock_info(wrong).await, Refusal::Name)?;
        refused(store.force_release(wrong, token).await, Refusal::Name)?;
        let fenced = PutOptions::replace().guard(wrong, token);
        refused(store.put(b"k", b"w", fenced).await, Refusal::Name)?;
        refused(store.begin().guard(wrong, token), Refusal::Name)?;
    }
    ensure_eq!(sight(&*store).await?, before);
    Ok(())
}

pub(crate) async fn n1_n2_strange_names_are_distinct_and_opaque(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let strange = strange();
    for name in &strange {
        let lock = grant(&*store, name, name, TTL).await?;
        ensure_eq!((lock.name(), lock.owner()), (&**name, &**name));
    }
    let mut sorted = strange.clone();
    sorted.sort();
    let rows = store.list_locks("", None, 1000).await?;
    let listed: Vec<_> = rows.iter().map(|row| (&row.name, &row.owner)).collect();
    let expected: Vec<_> = sorted.iter().map(|name| (name, name)).collect();
    ensure_eq!(listed, expected);
    for name in &strange {
        let info = row(&*store, name).await?;
        ensure_eq!((&info.name, &info.owner), (name, name));
        ensure!(
            store.lock_handle(name, name, info.token)?.release().await?,
            "{name:?}"
        );
    }
    ensure_eq!(store.list_locks("", None, 10).await?, []);
    Ok(())
}

pub(crate) async fn n2_owners_are_compared_bytewise(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for (name, owner) in strange().iter().enumerate() {
        let name = format!("lock-{name}");
        let token = grant(&*store, &name, owner, TTL).await?.token();
        for other in &strange() {
            if other == owner {
                ensure_eq!(grant(&*store, &name, other, TTL).await?.token(), token);
            } else {
                lose(&*store, &name, other, TTL).await?;
            }
        }
    }
    Ok(())
}

pub(crate) async fn n3_reserved_names_are_refused_everywhere(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let token = grant(&*store, "lock", "owner", TTL).await?.token();
    let before = sight(&*store).await?;
    let longest = "__alkstore_".to_owned() + &"x".repeat(501);
    for reserved in [
        "__alkstore_",
        "__alkstore_x",
        "__alkstore_\n",
        "__alkstore_ ",
        "__alkstore_sweep",
        &longest,
    ] {
        refused(
            store.try_lock(reserved, "owner", TTL).await,
            Refusal::Reserved,
        )?;
        refused(
            store.lock_handle(reserved, "owner", token),
            Refusal::Reserved,
        )?;
        refused(store.lock_info(reserved).await, Refusal::Reserved)?;
        refused(
            store.force_release(reserved, token).await,
            Refusal::Reserved,
        )?;
        let fenced = PutOptions::create().guard(reserved, token);
        refused(store.put(b"k", b"v", fenced).await, Refusal::Reserved)?;
        refused(store.begin().guard(reserved, token), Refusal::Reserved)?;
    }
    ensure_eq!(sight(&*store).await?, before);
    Ok(())
}

pub(crate) async fn n3_owners_are_not_subject_to_it(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for owner in ["__alkstore_", "__alkstore_x"] {
        let lock = grant(&*store, "a", owner, TTL).await?;
        ensure_eq!(lock.owner(), owner);
        let mut handle = store.lock_handle("a", owner, lock.token())?;
        ensure!(handle.renew(TTL).await?);
        ensure!(handle.release().await?);
    }
    Ok(())
}

pub(crate) async fn n3_a_message_shows_no_control_characters(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let token = grant(&*store, "a\u{202e}\n", "o", ms(1)).await?.token();
    f.advance(ms(1)).await?;
    let fenced = PutOptions::create().guard("a\u{202e}\n", token);
    let errors = [
        store
            .try_lock("__alkstore_\u{1b}[2J\n\u{202e}", "o", TTL)
            .await
            .err(),
        store.put(b"k", b"v", fenced).await.err(),
    ];
    for error in errors {
        let text = error.map(|error| error.to_string()).unwrap_or_default();
        ensure!(!text.is_empty(), "the call went through");
        let hostile = |c: char| c.is_control() || c == '\u{202e}';
        ensure!(!text.contains(hostile), "{text:?}");
    }
    Ok(())
}

/// An invalid argument hides every later one, and a closed store is noticed last. `Reserved`, `Name` and `Duration`
/// tell the first three apart.
pub(crate) async fn n4_arguments_are_judged_in_order(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut lock = grant(&*store, "lock", "owner", TTL).await?;
    let before = sight(&*store).await?;
    in_order(&*store, &mut *lock).await?;
    ensure_eq!(sight(&*store).await?, before);
    store.close().await?;
    in_order(&*store, &mut *lock).await?;
    refused(store.try_lock("lock", "owner", TTL).await, Refusal::Closed)
}

async fn in_order(store: &dyn alkstore::Store, lock: &mut dyn Lock) -> CaseResult {
    let token = lock.token();
    let zero = Duration::ZERO;
    let positive = Refusal::Duration(TtlError::NotPositive);
    for (name, owner, ttl, first) in [
        ("__alkstore_x", "", zero, Refusal::Reserved),
        ("__alkstore_x", "", TTL, Refusal::Reserved),
        ("__alkstore_x", "owner", zero, Refusal::Reserved),
        ("", "owner", zero, Refusal::Name),
        ("lock", "", zero, Refusal::Name),
        ("lock", "owner", zero, positive),
    ] {
        refused(store.try_lock(name, owner, ttl).await, first)?;
    }
    refused(lock.renew(zero).await, positive)?;
    refused(
        store.lock_handle("__alkstore_x", "", token),
        Refusal::Reserved,
    )?;
    refused(store.lock_handle("lock", "", token), Refusal::Name)?;
    refused(store.lock_info("").await, Refusal::Name)?;
    refused(
        store.force_release("__alkstore_x", token).await,
        Refusal::Reserved,
    )?;
    let long = "x".repeat(513);
    refused(store.list_locks(&long, None, 1).await, Refusal::Argument)?;
    refused(
        store.list_locks("", Some(&long), 1).await,
        Refusal::Argument,
    )?;

    let huge = vec![0; MAX_VALUE_BYTES + 1];
    let wrong = || PutOptions::create().ttl(zero).guard("__alkstore_x", token);
    refused(store.put(b"", b"v", wrong()).await, Refusal::Argument)?;
    refused(store.put(b"k", &huge, wrong()).await, Refusal::Argument)?;
    refused(store.put(b"k", b"v", wrong()).await, positive)?;
    refused(
        store.put(b"k", b"v", wrong().ttl(TTL)).await,
        Refusal::Reserved,
    )?;
    refused(store.get(b"").await, Refusal::Argument)?;
    refused(store.delete(b"", None).await, Refusal::Argument)?;
    refused(store.touch(b"", zero).await, Refusal::Argument)?;
    refused(store.touch(b"k", zero).await, positive)?;
    let long = [0; 1025];
    refused(store.list(&long, None, 1).await, Refusal::Argument)?;
    refused(store.list(b"", Some(&long), 1).await, Refusal::Argument)?;
    refused(store.window_claim(START, zero, 1).await, positive)?;
    refused(store.window_info(b"").await, Refusal::Argument)?;
    refused(store.sweep_begin(zero).await, positive)?;
    refused(store.sweep_extend(token, zero).await, positive)
}

/// The durations that the guard refuses, and why.
const REFUSED: [(Duration, TtlError); 6] = [
    (Duration::ZERO, TtlError::NotPositive),
    (
        Duration::from_nanos(3_155_760_000_000_000_001),
        TtlError::TooLong,
    ),
    (Duration::from_millis(3_155_760_000_001), TtlError::TooLong),
    (Duration::from_secs(1 << 53), TtlError::TooLong),
    (Duration::from_secs(u64::MAX), TtlError::TooLong),
    (Duration::MAX, TtlError::TooLong),
];

pub(crate) async fn d1_the_duration_guard_is_everywhere(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let mut lock = grant(&*store, "lock", "owner", TTL).await?;
    store.put(b"k", b"v", PutOptions::create().ttl(TTL)).await?;
    stage(&*store, &[("k", START)]).await?;
    let before = sight(&*store).await?;
    for (ttl, reason) in REFUSED {
        let guard = Refusal::Duration(reason);
        refused(store.try_lock("free", "owner", ttl).await, guard)?;
        refused(store.try_lock("lock", "owner", ttl).await, guard)?;
        refused(store.try_lock("lock", "other", ttl).await, guard)?;
        refused(lock.renew(ttl).await, guard)?;
        for mode in [PutMode::Create, PutMode::Replace] {
            let options = PutOptions::with_mode(mode).ttl(ttl);
            refused(store.put(b"k", b"w", options.clone()).await, guard)?;
            refused(store.put(b"new", b"w", options).await, guard)?;
            let mut tx = store.begin();
            refused(tx.put(b"new", b"w", mode, Some(ttl)).await, guard)?;
        }
        refused(store.touch(b"k", ttl).await, guard)?;
        refused(store.window_claim(START, ttl, 1).await, guard)?;
        refused(
            store.window_stage_after(&[], ttl, Restage::Keep).await,
            guard,
        )?;
        refused(store.sweep_begin(ttl).await, guard)?;
        refused(store.sweep_extend(lock.token(), ttl).await, guard)?;
    }
    ensure_eq!(sight(&*store).await?, before);
    ensure_eq!(drain(&*store).await?, [("k".to_owned(), START)]);
    Ok(())
}

pub(crate) async fn d1_the_extremes_are_kept_exactly(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for (name, ttl) in [
        ("nano", NANO),
        ("quarter", Duration::from_micros(250)),
        ("odd", Duration::from_nanos(1_234_567)),
        ("wrap", Duration::from_millis(1 << 31)),
        ("century", CENTURY),
    ] {
        let mut lock = grant(&*store, name, "o", ttl).await?;
        ensure_eq!(
            row(&*store, name).await?.deadline,
            START.plus(ttl),
            "{name}"
        );
        ensure!(lock.renew(ttl).await?);
        ensure_eq!(
            row(&*store, name).await?.deadline,
            START.plus(ttl),
            "{name}"
        );
        let key = name.as_bytes();
        store.put(key, b"v", PutOptions::create().ttl(ttl)).await?;
        ensure_eq!(expiry(&*store, key).await?, Some(START.plus(ttl)), "{name}");
        ensure!(store.touch(key, ttl).await?);
        ensure_eq!(expiry(&*store, key).await?, Some(START.plus(ttl)), "{name}");
    }
    f.advance(NANO).await?;
    ensure!(row(&*store, "nano").await?.lapsed);
    ensure!(!row(&*store, "quarter").await?.lapsed);
    // A JavaScript number keeps no nanoseconds so far from the epoch.
    f.set_clock(before(START.plus(CENTURY), ms(1))).await?;
    ensure!(!row(&*store, "century").await?.lapsed);
    ensure!(row(&*store, "wrap").await?.lapsed);
    f.advance(ms(1)).await?;
    ensure!(row(&*store, "century").await?.lapsed);
    Ok(())
}

/// The last whole second of the range of timestamps, and less than a second more.
const LAST_SECOND: Timestamp = Timestamp::from_nanos(9_223_372_036_000_000_000);

pub(crate) async fn d1_a_deadline_past_the_range_saturates(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    f.set_clock(LAST_SECOND).await?;
    let mut lock = grant(&*store, "a", "o", HOUR).await?;
    ensure_eq!(row(&*store, "a").await?.deadline, Timestamp::MAX);
    ensure!(!row(&*store, "a").await?.lapsed);
    lose(&*store, "a", "p", TTL).await?;
    ensure!(lock.renew(CENTURY).await?);
    ensure_eq!(row(&*store, "a").await?.deadline, Timestamp::MAX);
    store
        .put(b"k", b"v", PutOptions::create().ttl(CENTURY))
        .await?;
    ensure!(store.touch(b"k", CENTURY).await?);
    ensure_eq!(expiry(&*store, b"k").await?, Some(Timestamp::MAX));
    stage(&*store, &[("k", LAST_SECOND)]).await?;
    let claims = store.window_claim(LAST_SECOND, CENTURY, 1).await?;
    ensure_eq!(
        claims.iter().map(|claim| claim.until).collect::<Vec<_>>(),
        [Timestamp::MAX]
    );
    ensure_eq!(store.window_settle(&claims).await?, 1);
    Ok(())
}

pub(crate) async fn d1_k7_clocks_before_the_epoch_work(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let early = Timestamp::from_nanos(-1_000_000_000_000);
    f.set_clock(early).await?;
    ensure_eq!(store.now().await?, early);
    let lock = grant(&*store, "a", "o", secs(1000)).await?;
    ensure_eq!(row(&*store, "a").await?.deadline, Timestamp::from_nanos(0));
    store
        .put(b"k", b"v", PutOptions::create().ttl(secs(999)))
        .await?;
    f.set_clock(Timestamp::from_nanos(-1)).await?;
    lose(&*store, "a", "p", TTL).await?;
    ensure_eq!(store.get(b"k").await?, None);
    f.set_clock(Timestamp::from_nanos(0)).await?;
    ensure!(grant(&*store, "a", "p", TTL).await?.token() > lock.token());
    Ok(())
}

pub(crate) async fn d1_a_changeset_takes_only_checked_durations(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for (ttl, reason) in REFUSED {
        refused(alkstore::Ttl::new(ttl), Refusal::Duration(reason))?;
    }
    let mut changeset = Changeset::new();
    let ttl = alkstore::Ttl::new(CENTURY)?;
    changeset.put(
        alkstore::Key::new(&b"k"[..])?,
        (&b"v"[..]).into(),
        PutMode::Create,
        Some(ttl),
    )?;
    let token = grant(&*store, "a", "o", TTL).await?.token();
    changeset.guard(LockName::new("a")?, token)?;
    store.commit_changeset(changeset).await?;
    ensure_eq!(expiry(&*store, b"k").await?, Some(START.plus(CENTURY)));
    Ok(())
}
