//! The list of all cases, and of the ids that it must cover.
#![allow(clippy::wildcard_imports)] // every case, from whichever module

use alkstore::HookFuture;

use crate::fixture::Fixture;
use crate::{CaseResult, Failure};

use crate::bad_input::*;
use crate::cancellation::*;
use crate::changesets::*;
use crate::crashes::*;
use crate::deletion::*;
use crate::dry_runs::*;
use crate::entries::*;
use crate::epochs::*;
use crate::faults::*;
use crate::guards::*;
use crate::histories::*;
use crate::interleavings::*;
use crate::lifecycle::*;
use crate::locks::*;
use crate::names::*;
use crate::rows::*;
use crate::snapshots::*;
use crate::staging::*;
use crate::sweep::*;
use crate::transactions::*;
use crate::window::*;

/// Calls `$callback! { case case ... }` with the name of every case.
#[macro_export]
macro_rules! for_each_case {
    ($callback:ident) => {
        $callback! {
            // Names, owners, durations.
            n1_what_is_no_name_is_refused_everywhere
            n1_n2_strange_names_are_distinct_and_opaque
            n2_owners_are_compared_bytewise
            n3_reserved_names_are_refused_everywhere
            n3_owners_are_not_subject_to_it
            n3_a_message_shows_no_control_characters
            n4_arguments_are_judged_in_order
            d1_the_duration_guard_is_everywhere
            d1_the_extremes_are_kept_exactly
            d1_a_deadline_past_the_range_saturates
            d1_k7_clocks_before_the_epoch_work
            d1_a_changeset_takes_only_checked_durations

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
            l13_a_closed_store_fails_the_locks
            l14_transactions_neither_see_nor_hold_locks
            l15_lock_info_shows_the_row
            l15_list_locks_pages_in_bytewise_order
            l15_force_release_frees_exactly_that_grant
            l16_a_handle_is_rebuilt_from_its_parts
            l16_a_handle_outlives_its_store_variable

            // Dropped futures.
            l12_a_dropped_acquire_is_void_or_comes_back
            l12_a_dropped_renew_moves_the_deadline_or_not
            l12_a_dropped_release_frees_or_not
            t2_l12_a_dropped_commit_is_whole_or_nothing

            // Entries.
            e1_keys_have_1_to_1024_bytes
            e1_an_empty_value_is_not_absence
            e1_values_have_up_to_64_mib
            e2_create_lets_the_first_writer_win
            e2_replace_always_writes
            e2_update_compares_the_version
            e2_versions_increase_across_deletion_and_lapse
            e2_versions_and_tokens_are_never_shared
            e3_a_lapsed_entry_is_absent
            e3_replace_over_a_lapsed_entry_writes
            e3_touch_moves_the_deadline_alone
            e3_e7_lapsed_entries_are_purged
            e3_an_overwritten_deadline_purges_nothing
            e4_delete_compares_the_version
            e4_list_pages_in_bytewise_order
            e4_list_shows_keys_and_metadata
            e7_everything_is_there_from_the_first_call

            // Guards and publication.
            e5_a_fenced_write_needs_its_live_grant
            e5_renewal_keeps_the_fence_open
            e5_k13_the_successors_write_stands
            e5_e6_a_fenced_out_create_publishes_nothing
            e6_create_takes_the_key_out_of_the_window
            e6_other_modes_leave_the_window_alone
            e6_w5_publishing_voids_a_claim

            // Transactions.
            t1_a_transaction_reads_its_own_writes
            t1_nothing_is_seen_before_the_commit
            t1_rollback_and_drop_forget_it
            t1_ttls_count_from_the_commit
            t1_a_transaction_is_guarded
            t2_reads_are_remembered
            t2_a_changeset_is_whole_or_nothing

            // Changesets.
            t3_what_was_read_must_still_hold
            t3_absence_that_was_read_must_still_hold
            t3_there_is_no_write_skew
            t3_blind_writes_do_not_conflict
            t3_guards_are_judged_before_checks
            t3_the_size_of_a_changeset_is_capped
            t3_the_bytes_of_a_changeset_are_capped
            t4_a_changeset_is_committed_in_one_call
            t4_a_write_brings_its_own_check
            t4_contradictions_are_refused
            t4_an_empty_changeset_commits
            t4_e6_a_create_publishes_at_the_commit_alone
            t4_the_last_word_of_a_transaction_on_the_window_counts
            t3_versions_follow_the_order_of_commits

            // The window.
            w1_the_schema_is_made_as_often_as_asked
            w2_staging_the_same_deadline_changes_nothing
            w2_a_new_deadline_moves_or_is_ignored
            w2_a_grace_counts_from_the_staging
            w2_r1_repeated_marks_with_keep_are_swept_in_time
            w3_take_removes_what_is_due_oldest_first
            w3_deadlines_may_lie_anywhere
            w3_keys_need_no_entry_and_keep_theirs
            w4_unstage_removes_claimed_or_not
            w5_claims_hand_out_without_removing
            w5_r9_a_crashed_sweeper_loses_no_candidate
            w5_a_lapsed_claim_settles_nothing
            w5_requeue_puts_back
            w5_r16_a_move_voids_a_claim
            w5_claims_lapse_by_the_store_clock_alone
            w5_only_the_claims_own_row_is_settled
            w5_r2_publication_gives_a_whole_fresh_window
            w6_r19_the_store_clock_decides
            w7_r15_takers_get_disjoint_sets
            w7_r15_claimers_get_disjoint_sets
            w5_a_refused_claim_claims_nothing

            // Deletion.
            w8_marked_and_finished
            w8_deleted_in_one_step
            w8_one_key_twice_in_a_call
            w8_a_step_out_of_turn_changes_nothing
            w8_a_lapsed_entry_is_absent_and_goes
            w8_a_marked_key_takes_no_put
            w8_e5_a_failing_guard_is_judged_first
            w8_e4_what_is_marked_is_read_touched_and_deleted
            w8_w2_w3_w4_a_marked_row_leaves_in_one_way
            w8_w5_requeue_keeps_the_mark_and_counts
            w5_requeues_are_counted_from_the_staging
            w8_r9_an_unfinished_deletion_is_claimed_again
            w8_r3_what_befell_the_claim_is_said
            w8_claims_lapse_by_the_store_clock
            w8_r4_a_publisher_comes_after_the_end
            w8_r4_publisher_and_sweeper_at_once
            w8_r8_a_late_finish_spares_the_new_entry
            w8_r10_a_crash_before_the_end_is_made_good
            w5_r20_what_keeps_failing_lets_others_pass
            w8_a_full_store_can_delete
            w8_l12_a_dropped_step_is_taken_or_not
            w8_revisions_of_claims_are_no_others

            // What the window shows.
            w9_rows_are_listed_as_they_become_due
            w9_claims_marks_and_counts_are_shown
            w9_one_row_is_shown
            w9_the_window_in_numbers
            w8_w9_judging_changes_nothing

            // One sweep at a time.
            w10_one_sweep_at_a_time
            w10_stores_do_not_meet_in_a_sweep
            w10_a_sweep_lapses_by_the_store_clock
            w8_w10_a_sweep_that_is_over_changes_nothing
            w8_w10_the_current_sweep_passes_the_fence
            n3_w10_the_lock_of_the_sweep_is_out_of_reach
            w10_a_full_store_begins_no_sweep

            // The sweep.
            g1_what_is_due_is_deleted_oldest_first
            g1_r19_the_store_clock_at_the_start_decides
            g1_it_ends_at_its_limit_and_in_its_time
            g1_a_cancelled_sweep_puts_back_what_it_has
            g1_a_rate_paces_it
            g1_a_pause_hears_a_cancel
            g1_payloads_go_before_entries
            g1_every_source_protects
            g1_w8_what_is_marked_is_finished
            g1_options_that_cannot_be_meant_are_refused
            g3_the_report_counts_everything
            g3_a_second_sweep_is_told_so
            g4_r20_a_key_that_keeps_failing_backs_off
            g6_nothing_is_garbage_by_default
            g2_a_dry_run_changes_nothing_and_comes_true

            // A sweep among others, and its crashes.
            g1_r3_a_publication_voids_the_claim
            g1_r16_a_candidate_that_moved_is_spared
            g1_r17_a_source_that_fails_protects_everything
            g1_r8_a_late_deletion_hits_no_new_payload
            g1_a_reclaimer_answers_for_each_key
            g1_g3_an_engine_that_fails_ends_it
            g1_r14_a_sweep_that_lost_its_lease_deletes_nothing_more
            g1_r8_no_payload_is_touched_too_late
            g1_r22_a_reader_keeps_what_is_swept
            g5_r9_a_sweep_may_crash_at_every_step
            g5_r8_r10_a_sweep_with_payloads_may_crash_at_every_step
            g1_r1_repeated_mark_passes_put_nothing_off
            g1_r2_a_dedup_hit_gives_a_whole_fresh_window

            // Histories.
            g5_r3_r8_no_live_reference_points_at_nothing
            g5_a_reference_after_the_grace_is_not_safe

            // The mark pass.
            g1_a_mark_pass_stages_what_nothing_refers_to
            g1_a_mark_pass_lists_before_it_asks
            g1_r2_a_long_mark_pass_shortens_no_grace
            g1_a_mark_pass_that_learns_too_little_stages_nothing
            g1_a_short_grace_must_be_meant
            g1_a_mark_pass_has_any_number_of_pages

            // Opening, closing, limits.
            c1_after_close_everything_fails_closed
            c1_a_value_that_was_read_outlives_the_store
            c1_closing_one_handle
            c2_handles_share_their_state
            c2_k9_many_open_an_empty_store_at_once
            l9_a_full_store_purges_before_it_refuses_a_lock
            e2_a_full_store_refuses_an_entry
            e2_a_store_is_full_by_bytes
            errors_say_what_they_are

            // Snapshots.
            s1_a_snapshot_brings_everything_back
            s1_no_candidate_is_lost_in_a_snapshot
            s1_deadlines_are_absolute
            s1_l10_revisions_jump_past_the_snapshots_lineage
            s1_an_open_transaction_does_not_survive_a_restore
            s2_damaged_bytes_are_refused_whole
            s1_w5_claims_after_a_restore_are_not_mistaken
            s1_w8_w10_marks_come_back_and_a_sweep_does_not

            // Bad input.
            bad_input_prefixes_are_no_names_but_bounded
            bad_input_limits_may_be_huge
            bad_input_handles_of_another_store_do_nothing
            bad_input_a_changeset_refuses_before_it_grows
            bad_input_keys_that_look_like_something_else

            // Interleavings.
            k3_a_renewal_that_comes_too_late_revives_nothing
            k4_a_grant_counts_from_its_decision
            k5_l2_a_lost_answer_is_asked_for_again
            k6_e5_tokens_order_the_writers
            k7_the_clock_steps_and_stops
            k7_w5_claims_bear_a_clock_that_steps_back
            k11_a_release_meets_a_renewal_in_flight
            r22_a_reader_keeps_the_whole_value
        }
    };
}

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name, which begins with the ids that it covers.
    pub name: &'static str,
    /// The case itself.
    pub run: for<'a> fn(&'a dyn Fixture) -> HookFuture<'a, CaseResult>,
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
            run: |fixture| Box::pin($case(fixture)),
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
    "w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9", "w10", //
    "g1", "g2", "g3", "g4", "g5", "g6", //
    "c1", "c2", "s1", "s2", //
    "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k9", "k11", "k13", //
    "r1", "r2", "r3", "r4", "r8", "r9", "r10", "r14", "r15", "r16", "r17", "r19", "r20", "r22",
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
