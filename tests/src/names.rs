//! N and D: what names, owners and durations are, and in which order a call's arguments are judged.

use crate::failure::{refused, Refusal};
use crate::fixture::Fixture;
use crate::steps::{grant, open, sight, TTL};
use crate::{ensure_eq, CaseResult};

/// What is no name and no owner.
fn nameless() -> Vec<String> {
    let mut list: Vec<String> = [
        "",
        " ",
        "\t\n ",
        "\u{3000}\u{2003}",
        "\0",
        "a\0",
        "\0a",
        "a\0b",
    ]
    .map(str::to_owned)
    .into();
    list.extend([
        "x".repeat(513),
        // 171 times 3 bytes: the limit counts bytes, not characters.
        "\u{20ac}".repeat(171),
        " ".repeat(512),
        "x".repeat(1_000_000),
    ]);
    list
}

pub(crate) async fn n1_names_and_owners_that_are_none(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let token = grant(&*store, "lock", "owner", TTL).await?.token();
    let before = sight(&*store).await?;
    for wrong in &nameless() {
        refused(store.try_lock(wrong, "owner", TTL).await, Refusal::Name)?;
        refused(store.try_lock("lock", wrong, TTL).await, Refusal::Name)?;
        refused(store.lock_handle(wrong, "owner", token), Refusal::Name)?;
        refused(store.lock_handle("lock", wrong, token), Refusal::Name)?;
        refused(store.lock_info(wrong).await, Refusal::Name)?;
        refused(store.force_release(wrong, token).await, Refusal::Name)?;
    }
    ensure_eq!(sight(&*store).await?, before);
    Ok(())
}

pub(crate) async fn n1_names_at_the_limit_are_accepted(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for right in [
        "x".to_owned(),
        "x".repeat(512),
        "\u{20ac}".repeat(170) + "xy",
        " x".to_owned(),
        "\u{1}".to_owned(),
    ] {
        let lock = grant(&*store, &right, &right, TTL).await?;
        ensure_eq!((lock.name(), lock.owner()), (&*right, &*right));
    }
    Ok(())
}
