//! The list of all cases, and of the ids that it must cover.

use alkstore::BoxFuture;
use futures_util::FutureExt as _;

use crate::fixture::Fixture;
use crate::{CaseResult, Failure};

use crate::locks::*;
use crate::names::*;

/// Calls `$callback! { case case ... }` with the name of every case.
#[macro_export]
macro_rules! for_each_case {
    ($callback:ident) => {
        $callback! {
            // Names, owners, durations.
            n1_names_and_owners_that_are_none
            n1_names_at_the_limit_are_accepted

            // Named locks.
            l1_absent_is_granted
            l1_lapsed_is_granted_at_the_deadline
            l1_lapsed_is_granted_anew_to_its_owner
            l1_names_do_not_meet
            l2_the_owner_gets_its_grant_again
            l2_each_handle_of_a_grant_works
            l3_losing_is_a_value_and_changes_nothing
            l3_a_failure_is_never_losing
            l4_one_live_grant_at_any_instant
            l5_renew_is_absolute_and_may_shorten
            l5_renew_at_the_deadline_is_false
            l5_renew_without_a_row_is_false
            l5_renew_of_another_grant_is_false
            l5_k1_renew_after_lapse_and_takeover_is_false
            l6_release_frees_the_name_at_once
            l6_the_lapsed_row_of_its_holder_is_released
            l6_release_of_another_grant_is_false
            l6_k2_a_late_release_spares_the_newer_lease
            l7_a_handle_remembers_no_answer
            l8_dropping_a_handle_frees_nothing
            l9_lapsed_rows_stay_until_they_are_purged
            l10_tokens_increase_across_everything
            l10_tokens_increase_across_reopening
            l12_a_dropped_acquire_is_void_or_comes_back
            l12_a_dropped_renew_moves_the_deadline_or_not
            l12_a_dropped_release_frees_or_not
            l13_a_closed_store_fails_the_locks
            l14_transactions_neither_see_nor_hold_locks
            l15_lock_info_shows_the_row
            l15_list_locks_pages_in_bytewise_order
            l15_force_release_frees_exactly_that_grant
            l16_a_handle_is_rebuilt_from_its_parts
            l16_a_handle_outlives_its_store_variable
        }
    };
}

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name, which begins with the ids that it covers.
    pub name: &'static str,
    /// The case itself.
    pub run: for<'a> fn(&'a dyn Fixture) -> BoxFuture<'a, CaseResult>,
}

impl Case {
    /// The ids that the case covers, in lower case: the parts of its name up to the first that is no id.
    pub fn ids(&self) -> impl Iterator<Item = &'static str> {
        self.name.split('_').take_while(|part| {
            let number = part.trim_start_matches(|c: char| c.is_ascii_lowercase());
            part.len() == number.len() + 1
                && number.chars().all(|c| c.is_ascii_digit())
                && !number.is_empty()
        })
    }
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! table {
    ($($case:ident)*) => {
        /// All cases.
        pub const CASES: &[Case] = &[$(Case {
            name: stringify!($case),
            run: |fixture| $case(fixture).boxed(),
        }),*];
    };
}
for_each_case!(table);

/// Runs the case of this name.
pub async fn run(name: &str, fixture: &dyn Fixture) -> CaseResult {
    match CASES.iter().find(|case| case.name == name) {
        Some(case) => (case.run)(fixture).await,
        None => Err(Failure::new(format_args!("there is no case {name:?}"))),
    }
}

/// The ids that must have a case each.
pub const REQUIRED: &[&str] = &[
    "n1", "n2", "n3", "n4", "d1", //
    "l1", "l2", "l3", "l4", "l5", "l6", "l7", "l8", "l9", "l10", "l12", "l13", "l14", "l15",
    "l16", //
    "e1", "e2", "e3", "e4", "e5", "e6", "e7", //
    "t1", "t2", "t3", "t4", //
    "w1", "w2", "w3", "w4", "w5", "w6", "w7", //
    "c1", "c2", "s1", "s2", //
    "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k9", "k11", "k13", //
    "r1", "r2", "r9", "r15", "r16", "r19", "r22",
];

/// The ids without a case here, and who shows them instead.
pub const ELSEWHERE: &[(&str, &str)] = &[
    (
        "d2",
        "only JavaScript arms timers: the npm package's own tests",
    ),
    (
        "l11",
        "needs a wait for a row: memory in `threads.rs`, SQL engines with a paused connection",
    ),
    (
        "t5",
        "a caller's own SQL transaction: the tests of each SQL engine",
    ),
    ("w8", "comes with the sweep"),
    (
        "k8",
        "needs a pool of connections: the tests of the Postgres engine",
    ),
    (
        "k10",
        "keepalives are JavaScript's: the npm package's own tests",
    ),
    (
        "k12",
        "event loops are JavaScript's: the npm package's own tests",
    ),
];
