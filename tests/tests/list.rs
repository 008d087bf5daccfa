//! The list is whole: every id has a case, or a reason.
#![cfg(not(target_arch = "wasm32"))]

use std::collections::BTreeSet;

use alkstore_tests::{CASES, ELSEWHERE, REQUIRED};

#[test]
fn every_required_id_has_a_case() {
    let covered: BTreeSet<&str> = CASES.iter().flat_map(alkstore_tests::Case::ids).collect();
    let missing: Vec<_> = REQUIRED
        .iter()
        .filter(|id| !covered.contains(*id))
        .collect();
    assert!(missing.is_empty(), "no case covers {missing:?}");
}

#[test]
fn an_id_is_required_or_shown_elsewhere() {
    let elsewhere: BTreeSet<&str> = ELSEWHERE.iter().map(|(id, _)| *id).collect();
    for case in CASES {
        assert!(
            case.ids().next().is_some()
                || case.name.starts_with("bad_input_")
                || case.name.starts_with("errors_"),
            "{case:?} names no id"
        );
        for id in case.ids() {
            assert!(
                REQUIRED.contains(&id) && !elsewhere.contains(id),
                "{case:?}: {id} is in no list"
            );
        }
    }
    let whole: BTreeSet<&str> = REQUIRED.iter().copied().chain(elsewhere).collect();
    for (letter, last) in [
        ("n", 4),
        ("d", 2),
        ("l", 16),
        ("e", 7),
        ("t", 5),
        ("w", 10),
        ("g", 6),
        ("c", 2),
        ("s", 2),
        ("k", 13),
    ] {
        for number in 1..=last {
            let id = format!("{letter}{number}");
            assert!(whole.contains(&*id), "{id} is in no list");
        }
    }
}

#[test]
fn names_are_unique() {
    let names: BTreeSet<&str> = CASES.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), CASES.len());
}
