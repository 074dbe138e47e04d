//! Mutants: the engine with a guard taken out. Each must be caught; a test that notices nothing proves nothing.
//!
//! [`MUTANTS`] is the one table of them. Where the histories of the simulator can catch one, they must: within [`MOST`]
//! of their theme here, and within 5,000 of any in the campaign `mutants`. What no history meets has a named test: in
//! [`doubts`], [`forks`], [`records`], [`refusals`] and [`threads`], in [`twins`](super::simulation::twins), or beside
//! the code that it is about. Models of loom are in `crate::loom`, which is another build.
//!
//! Two guards that stand in for each other are taken out together.

mod doubts;
mod forks;
mod histories;
mod records;
mod refusals;
mod threads;

use std::ops::Range;

use crate::registry::ownership::{Identity, Ownership, Window, WorkerRequest};
use crate::registry::{Registry, Token};
use crate::sys::guards::Guard;
use crate::testing::sequences;
use crate::testing::simulation::workload::Theme;
use crate::testing::simulation::{history, seed};

/// Within so many histories of its theme the loss of a guard must show.
const MOST: u64 = 2_000;

/// The engine without some guards.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    pub(crate) out: &'static [Guard],
    /// What it makes untrue.
    pub(crate) keeps: &'static str,
    pub(crate) caught: Caught,
}

/// What catches a mutant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Caught {
    /// A history says one of these; they are frequent in those of a theme.
    History(Theme, &'static [&'static str]),
    /// A history of named sequences says one of these.
    Sequences(&'static [&'static str]),
    /// A test of this binary, which takes the guard out itself.
    Test(&'static str),
    /// A model of loom, in the build for loom, which takes the guard out itself.
    Model(&'static str),
    /// A test of another package's binary.
    TestOf(&'static str, &'static str),
}

/// An id that came twice, or one that was about to: it was issued from land of somebody else, or is in two places.
const TWICE: &[&str] = &["an id came twice", "does not own that tick", "a plot in two places"];

/// A clean stop does not add up: an id is in two places, or in none.
const ACCOUNTS: &[&str] = &["ids in and"];

macro_rules! mutants {
    ($($name:literal, $out:expr, $keeps:literal, $caught:expr;)*) => {
        pub(crate) const MUTANTS: &[Mutant] =
            &[$(Mutant { name: $name, out: &$out, keeps: $keeps, caught: $caught },)*];
    };
}

use Caught::{History, Model, Sequences, Test, TestOf};
use Guard as G;

mutants! {
    "layout-not-compared", [G::LayoutCompared], "U1",
        Test("testing::mutants::refusals::an_engine_of_another_layout_is_refused");
    "folder-of-another-cluster", [G::FolderOfCluster], "U1",
        Test("testing::mutants::refusals::a_folder_of_another_cluster_is_refused");
    "spill-of-another-cluster", [G::SpillOfCluster, G::AbsentMarkRefused], "U1",
        Test("testing::mutants::records::a_spill_of_another_cluster_is_not_replayed");

    "window-before-mark", [G::WindowAfterMark], "U2", History(Theme::Crashes, TWICE);
    "mark-ahead-taken", [G::MarkNotAhead], "U2", History(Theme::Crashes, &["not recovered"]);
    "window-below-floor", [G::Floor], "U2",
        Test("testing::mutants::records::a_window_begins_at_the_floor");
    "window-of-years", [G::FurthestWindow], "U2", History(Theme::Far, &["and the registry's time allows"]);
    "version-not-compared", [G::VersionCompared], "U2", History(Theme::Faults, TWICE);
    "unknown-taken-for-ours", [G::UnknownIsNotOurs], "U2", History(Theme::Faults, TWICE);
    "token-not-compared", [G::OwnToken], "U2", History(Theme::Faults, TWICE);
    "operation-not-compared", [G::OwnOperation], "U2", History(Theme::Faults, TWICE);
    "end-not-compared", [G::OwnEnd], "U2",
        Test("testing::mutants::doubts::a_renewal_of_a_copy_with_the_same_operation_number_is_told_by_its_end");
    "claim-not-compared", [G::ClaimCompared], "U2", History(Theme::SmallSteps, TWICE);
    "renewal-not-compared", [G::RenewalCompared], "U2",
        Test("testing::mutants::doubts::a_renewal_of_a_copy_is_not_taken_for_one_that_is_in_doubt");
    "renewal-makes-a-held", [G::RenewalOfHeldWorker], "U2",
        Test("testing::simulation::twins::a_leap_that_leaves_a_renewal_under_way_is_found_out");
    "record-went-back", [G::RecordWentBack], "U2",
        Test("testing::mutants::records::a_record_that_went_back_is_left");
    "hand-back-inside-a-tick", [G::HandBackWholeTicks], "U2", History(Theme::Crashes, TWICE);
    "handed-back-and-cut", [G::HandBackLast], "U2", History(Theme::SmallSteps, TWICE);
    "not-sealed", [G::SealFirst], "U2", Model("loom::shutdown::loom_an_unsealed_minter_is_found_out");

    "copied-registry-opened", [G::FileIdentity], "U2",
        Test("testing::mutants::refusals::a_copied_registry_is_refused");
    "registry-made-over-another", [G::NamedOnce], "U2",
        Test("registry::local::tests::folder::a_registry_that_is_there_is_not_replaced_by_one_that_was_begun_before");
    "restored-registry-opened", [G::HintCompared, G::PutBackRefused], "U2",
        Test("registry::local::tests::restored::without_the_hints_what_was_granted_is_granted_again");
    "written-over-and-used", [G::PutBackRefused], "U2",
        Test("registry::local::tests::overwritten::without_the_comparison_a_worker_of_another_process_is_granted_again");
    "hint-before-its-record", [G::HintLast], "liveness",
        Test("registry::local::tests::power::a_hint_that_is_written_before_its_record_refuses_a_registry_that_only_met_a_power_cut");
    "write-without-its-era", [G::EraNamed], "U2",
        Test("registry::zookeeper::tests::without_the_era_in_a_write_one_of_before_a_fence_is_stored_after_it");
    "version-without-its-era", [G::EraTagged], "U2",
        Test("registry::zookeeper::tests::without_the_era_in_a_version_one_of_before_a_fence_fits_after_it");
    "answer-over-another-connection", [G::SameConnection], "U2",
        Test("registry::zookeeper::tests::without_a_look_at_the_connection_an_answer_over_the_next_one_is_believed");
    "broken-off-look-believed", [G::LookToItsEnd], "U2",
        Test("registry::zookeeper::tests::without_an_end_of_its_look_a_restored_registry_is_believed");
    "ended-eras-not-learnt", [G::EndedLearnt], "U2",
        Test("registry::zookeeper::tests::without_the_names_of_ended_eras_one_that_is_put_back_is_taken_for_a_fence_s");
    "ensemble-not-synced-with", [G::SyncFirst], "liveness",
        Test("registry::zookeeper::tests::without_the_sync_a_server_is_believed_that_may_lag_behind");
    "memory-without-checksum", [G::HintChecked], "liveness",
        Test("registry::zookeeper::restore_check::tests::without_its_checksum_a_memory_with_a_flipped_bit_is_believed");
    "believed-after-a-failed-sync", [G::WrittenAgain], "U2",
        Test("registry::local::tests::power::what_is_not_written_again_after_a_failed_sync_goes_back_with_a_power_cut");
    "doubt-not-noted", [G::DoubtNoted], "U2",
        Test("registry::local::tests::panics::a_change_that_a_panic_broke_off_is_known_to_the_folder_once_it_is_believed");
    "no-sync-at-opening", [G::SyncAtOpening], "U2",
        Test("registry::local::tests::power::without_the_sync_at_opening_the_test_finds_a_record_lost");
    "no-sync-before-a-change", [G::SyncBefore], "U2",
        Test("registry::local::tests::power::without_the_sync_before_a_change_the_test_finds_a_record_lost");
    "no-sync-between-copies", [G::SyncBetween], "U2",
        Test("registry::local::tests::power::without_the_sync_between_the_copies_the_test_finds_a_record_lost");
    "one-copy-only", [G::SecondCopy], "U2",
        Test("registry::local::tests::power::without_the_second_copy_the_test_finds_a_confirmed_value_lost");
    "no-sync-before-headers", [G::HeaderSyncBefore], "liveness",
        Test("registry::local::tests::header::without_the_sync_before_the_headers_are_written_the_test_finds_both_lost");
    "no-sync-between-headers", [G::HeaderSyncBetween], "liveness",
        Test("registry::local::tests::header::without_the_sync_between_the_headers_the_test_finds_both_lost");
    "sound-header-first", [G::HeaderSpareFirst], "liveness",
        Test("registry::local::tests::header::where_the_sound_header_is_written_first_the_test_finds_both_lost");

    "frontier-behind", [G::FrontierFirst], "U3", History(Theme::Calm, TWICE);
    "failed-append-kept", [G::FailedAppendWasted], "U3",
        Test("testing::mutants::records::what_a_failed_append_may_have_written_is_waste");
    "run-lost-in-a-ticket", [G::TicketReturns], "U3",
        Model("loom::tickets::loom_a_ticket_that_swallows_a_run_is_found_out");

    "grant-not-compared", [G::GrantCompared], "U4",
        Test("registry::ownership::tests::a_grant_in_doubt_is_not_ours_because_another_copy_of_the_spill_was_granted_as_much");
    "mark-after-issue", [G::MarkFirst], "U4", History(Theme::Crashes, TWICE);
    "mark-of-the-file", [G::MarkOfRegistry, G::GrantAtMark], "U4", History(Theme::Crashes, TWICE);
    "absent-mark-is-zero", [G::AbsentMarkRefused], "U4",
        Test("testing::mutants::records::a_spill_without_a_mark_is_not_replayed");
    "mark-went-back", [G::MarkWentBack], "U4",
        Test("testing::mutants::records::a_spill_whose_mark_went_back_is_given_up");
    "checksum-without-index", [], "U4", TestOf(
        "xuid-spill",
        "record::tests::without_the_index_in_the_checksum_a_granted_extent_comes_again",
    );

    "slot-read-then-cleared", [G::TakeBySwap], "U5",
        Model("loom::slots::loom_a_slot_read_and_then_cleared_is_found_out");
    "refill-overwrites", [G::RefillOnlyEmpty], "U5", History(Theme::Calm, ACCOUNTS);
    "answer-after-refill", [G::AnswerFirst], "liveness",
        Model("loom::refills::loom_an_answer_after_the_refill_loses_a_request");
    "answer-not-seen", [G::AnswerSeen], "liveness",
        Model("loom::refills::loom_a_take_that_acquires_nothing_loses_a_request");
    "panic-keeps-requests", [G::PanicAnswers], "liveness",
        Test("testing::mutants::threads::a_panic_of_the_producer_takes_requests_down");
    "generation-not-compared", [G::GenerationCompared], "U3", History(Theme::Calm, TWICE);
    "generation-after-take", [G::GenerationBeforeTake], "U7",
        Model("loom::thread_runs::loom_a_generation_read_after_the_take_keeps_a_void_run");
    "generation-after-wait", [G::GenerationBeforeWait], "U3",
        Test("testing::mutants::threads::of_a_run_that_comes_after_a_voiding_a_thread_that_waited_uses_one_id");
    "limit-not-voided", [G::LimitVoided], "U3",
        Test("testing::mutants::threads::a_handle_issues_nothing_after_the_shutdown");
    "turn-over-voids-no-run", [G::TurnOverVoids], "U7",
        Test("testing::mutants::threads::a_turn_over_voids_what_threads_and_handles_have_in_hand");
    "stop-voids-once", [G::StopVoidsAgain], "U3",
        Model("loom::shutdown::loom_a_stop_that_voids_runs_before_its_sweeps_only_is_found_out");
    "limit-before-generation", [G::GenerationThenLimits], "U7",
        Model("loom::thread_runs::loom_a_limit_that_is_zeroed_before_the_generation_is_over_is_found_out");
    "limit-of-a-later-generation", [G::GenerationBeforeLimit], "U7",
        Model("loom::thread_runs::loom_a_handle_that_reads_the_generation_after_the_take_keeps_a_void_run");
    "limit-not-looked-at-again", [G::LimitLooksAgain], "U7",
        Model("loom::thread_runs::loom_a_limit_that_is_not_looked_at_again_is_found_out");
    "limit-without-one-order", [G::LimitInOrder], "U7",
        Model("loom::thread_runs::loom_a_limit_without_one_order_is_found_out");
    "page-not-wiped", [G::ForkPage], "U3", Test("sys::fork_word::tests::a_page_that_is_not_wiped_is_found_out");
    "forked-stop-goes-on", [G::ForkedAtStop], "U3",
        Test("testing::mutants::forks::a_stop_that_goes_on_in_a_forked_child_spills_nothing");

    "cut-above-clock", [G::NotAboveClock], "U6", History(Theme::Calm, &["while E never passed tick"]);
    "clock-back-without-switch", [G::ClockBackAtSwitch], "U6", History(Theme::SmallSteps, &["back to"]);
    "window-without-end", [G::WindowEnd], "U6", History(Theme::Faults, TWICE);
    "sequence-overflows", [G::SequenceEnd], "U6", History(Theme::Calm, TWICE);
    "ordered-does-not-wait", [G::OrderedRises], "U6", History(Theme::Far, &["not recovered"]);
    "ordered-forgets", [G::OrderedAboveLast], "U6", History(Theme::Faults, &["issued the ordered id"]);
    "ordered-remembers-the-first", [G::OrderedRunWhole], "U6", Test(
        "testing::mutants::threads::ordered_ids_rise_above_the_whole_of_the_last_run_whatever_the_frontier_says",
    );

    "old-land-of-a-window", [G::AgeOfWindow], "U7",
        Test("testing::mutants::threads::land_that_is_too_old_is_not_cut");
    "old-land-of-the-spill", [G::AgeOfSpill], "U7",
        Test("testing::mutants::records::land_that_is_too_old_does_not_leave_the_reserve");
    "old-land-of-a-ticket", [G::AgeOfTicket], "U7",
        Test("background::windows::tests::ages::what_a_call_gathered_before_it_waited_long_is_not_among_what_it_gets");
    "old-land-of-returns", [G::AgeOfReturns], "U7",
        Test("background::windows::tests::ages::what_a_call_gathered_and_gave_back_late_is_not_handed_out_when_it_is_too_old");

    "leap-keeps-runs", [G::LeapDropsRuns], "copies", Test("testing::simulation::twins::a_leap_that_leaves_threads_their_runs_is_found_out");
    "leap-keeps-runs-until-a-turn", [G::LeapVoidsAtOnce], "copies",
        Test("testing::simulation::twins::from_the_reading_on_that_sees_a_leap_no_thread_goes_on_with_its_run");
    "leap-voids-runs-first", [G::LeapVoidsLast], "copies",
        Model("loom::thread_runs::loom_a_leap_that_voids_runs_before_its_sweeps_is_found_out");
    "leap-cuts-until-a-turn", [G::LeapStopsCuts], "copies",
        Test("testing::simulation::twins::the_call_that_meets_a_leap_cuts_nothing_that_the_other_copy_has");
    "leap-keeps-queue", [G::LeapDropsQueue], "copies", Test("testing::simulation::twins::a_leap_that_leaves_the_queue_is_found_out");
    "leap-keeps-ring", [G::LeapDropsRing], "copies", Test("testing::simulation::twins::a_leap_that_leaves_the_ring_is_found_out");
    "leap-keeps-returns", [G::LeapDropsReturns], "copies", Test("testing::simulation::twins::a_leap_that_leaves_what_calls_gave_back_is_found_out");
    "leap-keeps-what-was-gathered", [G::LeapDropsGathered], "copies", Test("testing::simulation::twins::waiting::a_call_that_waits_over_a_leap_gets_nothing_of_what_it_had_gathered_before");
    "leap-keeps-what-comes-back-later", [G::LeapWastesReturns], "copies",
        Test("testing::simulation::twins::waiting::what_a_call_was_done_with_before_a_leap_is_wasted_when_it_is_left_after_it");
    "leap-keeps-what-is-in-hand", [G::LeapWastesInHand], "copies",
        Test("testing::simulation::twins::waiting::a_call_that_gathers_over_a_leap_gets_nothing_of_what_it_had_before");
    "leap-keeps-what-is-done", [G::LeapWastesDone], "copies",
        Test("testing::simulation::twins::waiting::a_call_that_was_done_before_a_leap_and_is_read_after_it_waits_on_for_other_ids");
    "leap-keeps-what-is-aside", [G::LeapDropsAside], "copies", Test("testing::simulation::twins::a_leap_that_leaves_what_was_set_aside_is_found_out");
    "leap-keeps-reserve", [G::LeapDropsReserve], "copies", Test("testing::simulation::twins::a_leap_that_leaves_what_the_producer_holds_is_found_out");
    "leap-keeps-windows", [G::LeapDropsWindows], "copies", Test("testing::simulation::twins::a_leap_that_leaves_the_windows_is_found_out");
    "leap-keeps-claim", [G::LeapDropsClaim], "copies", Test("testing::simulation::twins::a_leap_that_leaves_a_claim_under_way_is_found_out");
    "leap-keeps-doubts", [G::LeapResetsIdentity], "copies", Test("testing::simulation::twins::a_leap_that_leaves_the_registry_thread_who_it_was_is_found_out");
    // Of the two either is enough, but a token is not always to be had.
    "leap-keeps-claim-in-doubt", [G::LeapDrawsToken, G::LeapForgetsClaim], "copies",
        Test("testing::simulation::twins::a_leap_that_leaves_a_claim_in_doubt_is_found_out");
    "leap-keeps-grant-in-doubt", [G::LeapForgetsGrant, G::LeapGivesUpSpill], "copies",
        Test("testing::simulation::twins::a_leap_that_leaves_a_grant_in_doubt_is_found_out");
    "leap-after-answers", [G::LeapBeforeAnswers], "copies", Test("testing::simulation::twins::a_leap_that_is_dealt_with_after_the_answers_is_found_out");
    "leap-unseen-by-stop", [G::LeapAtStop], "copies", Test("testing::simulation::twins::a_stop_that_does_not_look_for_a_leap_is_found_out");

    "copy-met-and-nothing-voided", [G::CopyVoids], "copies", Test("testing::simulation::twins::met::a_process_that_keeps_what_a_copy_of_it_has_is_found_out");
    "leap-keeps-own-spill", [G::LeapGivesUpSpill], "copies",
        Test("testing::simulation::twins::a_machine_that_is_put_back_with_its_registry_issues_nothing_of_its_spill_again");
    "leap-leaves-spill-to-the-next", [G::LeapErasesSpill], "copies",
        Test("testing::simulation::twins::a_machine_that_is_killed_before_its_registry_answered_a_leap_leaves_nothing_to_the_next_process");
    "copy-met-and-spill-kept", [G::CopyGivesUpSpill], "copies", Test("testing::simulation::twins::met::a_process_that_keeps_what_a_copy_of_it_has_is_found_out");

    "segment-taken-in-two-steps", [G::SegmentTakeIsOne], "Q4",
        Test("sequence::chain::segment::tests::a_take_in_two_steps_is_found_out");
    "grant-below-made-a-segment", [G::SegmentsAscend], "ordered",
        Test("sequence::chain::held::tests::a_grant_below_what_was_taken_is_not_for_ordered_calls");
    "rest-below-made-a-segment", [G::RestBelowIsLoose], "ordered",
        Test("sequence::names::named_table::tests::what_a_name_that_comes_back_has_below_its_ordered_ids_is_not_for_ordered_calls");
    "remainder-not-aligned", [G::GrantFits], "Q4",
        Test("sequence::chain::span::tests::a_grant_that_is_not_aligned_or_not_cut_is_found_out");
    "last-ignored", [G::GrantEnds], "Q4",
        Test("sequence::chain::span::tests::a_grant_that_is_not_aligned_or_not_cut_is_found_out");
    "seam-not-compared", [G::ContiguousTouches], "Q4",
        Test("sequence::chain::held::tests::neighbours_over_a_seam_are_neighbours");
    "name-twice-in-a-batch", [G::AskedOnce], "Q5",
        Test("sequence::tests::faults::a_name_that_is_due_twice_is_asked_for_once");
    "unknown-grant-used", [G::UnknownIsNoGrant, G::WitnessCompared, G::OwnAboveWitness], "Q2",
        Test("sequence::tests::faults::a_teller_without_a_guard_is_found_out");
    "used-before-the-witness", [G::WitnessFirst], "Q5",
        Test("sequence::tests::faults::a_teller_without_a_guard_is_found_out");
    "witness-not-compared", [G::WitnessCompared], "Q5", Sequences(&["came twice"]);
    "opened-leaves-a-gap", [G::OpenedIsSeen], "Q5",
        Test("sequence::background::witness::tests::what_a_witness_saw_is_opened_after_a_fence_and_nothing_below_the_next_grant_is_unseen");
    "witness-believed-below-own", [G::OwnAboveWitness], "Q5",
        Test("sequence::background::witness::tests::below_what_this_process_was_granted_there_is_no_gap");
    "gap-not-cut-out", [G::GapCutOut], "Q5",
        Test("sequence::background::witness::tests::a_witness_that_does_not_compare_or_cut_is_found_out");
    "identity-not-compared", [G::IdentityCompared], "Q5",
        Test("sequence::tests::faults::identities::another_identity_that_is_not_noticed_repeats_ids");
    "old-fence-believed", [G::FenceIsNews], "Q5",
        Test("sequence::tests::faults::identities::a_store_that_was_left_and_is_gone_back_to_for_its_old_fence_repeats_ids");
    "identity-not-kept", [G::IdentityIsKept], "Q5",
        Test("sequence::tests::faults::identities::a_store_that_can_not_be_written_down_is_not_gone_on_with");
    "new-witness-believed", [G::WitnessChangeFenced], "Q5",
        Test("sequence::background::identity::tests::a_witness_that_is_new_or_gone_needs_a_fence");
    "lost-fence-not-noticed", [G::FenceStays], "Q5",
        Test("sequence::tests::elsewhere::witnesses::a_dump_of_before_the_fence_that_a_witness_needed_waits_for_another_one");
    "own-witness-believed", [G::UnsharedIsWatched], "Q5",
        Test("sequence::tests::elsewhere::hosts::a_witness_that_each_host_has_of_its_own_is_no_proof");
    "own-record-forgotten", [G::OwnRecordIsMark], "Q5",
        Test("sequence::tests::elsewhere::hosts::a_dump_that_is_put_back_between_lives_is_noticed_by_what_a_witness_of_one_host_saw");
    "grant-moves-what-went-back", [G::GrantAboveFloor], "Q5",
        Test("sequence::tests::elsewhere::hosts::a_host_that_meets_a_dump_hides_it_from_no_other_one");
    "name-made-below-a-fence", [G::NewNamesAbove], "Q5",
        Test("sequence::store::registry::tests::behind_a_fence_of_a_registry_a_name_begins_above_what_the_fence_says");
    "closing-forgotten", [G::ClosingIsKept], "Q5",
        Test("sequence::tests::faults::identities::names_that_a_mark_closed_stay_closed_in_later_lives_until_a_fence");
    "leftovers-not-claimed", [G::LeftoversClaimed], "Q6",
        Test("sequence::leftovers::claim::tests::a_claim_that_is_not_compared_or_not_raised_is_found_out");
    "serial-not-raised", [G::SerialRaised], "Q6",
        Test("sequence::leftovers::claim::tests::a_claim_that_is_not_compared_or_not_raised_is_found_out");
    "leftovers-without-a-record", [G::LeftoversAbsentRefused], "Q6",
        Test("sequence::leftovers::claim::tests::a_batch_without_a_record_is_refused_and_a_claim_that_does_not_say_so_is_found_out");
    "left-marks-forgotten", [G::LeftMarksKept], "Q6",
        Test("sequence::tests::restarts::without_a_witness_what_an_earlier_life_left_shows_that_a_fence_went_too_low");
    "sequences-forked", [G::SequenceForked], "Q7",
        Test("sequence::tests::forks::a_page_that_is_not_wiped_and_a_refusal_that_is_left_out_are_found_out");
    "sequences-forked-stop-goes-on", [G::SequencesForkedAtStop], "Q7",
        Test("sequence::tests::forks::a_stop_whose_callers_fork_a_child_saves_nothing_there");
    "leap-keeps-segments", [G::LeapVoidsSegments], "Q7",
        Test("sequence::tests::leaps::the_call_that_meets_a_leap_gets_nothing_of_before_it");
    "leap-keeps-leftovers", [G::LeapVoidsLeftovers], "Q7",
        Test("sequence::tests::leaps::a_leap_voids_leftovers_that_no_name_has_taken");
    "leap-keeps-a-grant-under-way", [G::LeapDropsSegment], "Q7",
        Test("sequence::tests::leaps::a_grant_that_is_under_way_at_a_leap_is_not_used");
    "leap-keeps-a-hit", [G::LeapWastesHit], "Q7",
        Test("sequence::tests::leaps::a_call_that_takes_an_id_and_then_meets_a_leap_does_not_return_it");
    "leap-keeps-what-comes-back-to-a-name", [G::BackInItsGeneration], "Q7",
        Test("sequence::names::named::tests::what_a_thread_gives_back_after_a_leap_is_wasted");
    "leap-keeps-what-a-stop-saves", [G::LeapDropsSaved], "Q7",
        Test("sequence::tests::leaps::what_a_stop_saves_while_the_clock_leaps_is_not_kept");
    "leap-keeps-leftovers-under-way", [G::LeapDropsClaimed], "Q7",
        Test("sequence::tests::leaps::leftovers_whose_claim_is_under_way_at_a_leap_are_not_used");
    "leap-keeps-what-was-served", [G::LeapWastesServed], "Q7",
        Test("sequence::tests::leaps::what_a_call_was_served_with_before_a_leap_is_wasted");
    "strict-from-a-gap", [G::StrictAboveSeen], "strict",
        Test("sequence::background::witness::tests::a_strict_grant_in_a_gap_comes_too_late");
    "strict-ids-held", [G::StrictHoldsNothing], "strict",
        Test("sequence::tests::strict::what_a_strict_call_left_behind_is_no_later_call_s");
    "strict-below-its-own", [G::GrantAboveOwn], "strict",
        Test("sequence::tests::strict::strict_ids_of_one_process_ascend_also_where_a_store_without_a_witness_goes_back");
    "taken-as-of-the-note", [G::TakenAsOfEarliest], "bound",
        Test("sequence::chain::pace::tests::what_was_taken_at_some_time_before_a_note_counts_as_of_the_earliest");
    "strict-surplus-kept", [G::StrictServesWhoAsked], "strict",
        Test("sequence::tests::callers::a_strict_grant_is_for_those_who_waited_when_it_was_asked_for");
}

impl Mutant {
    /// The first history below `most` that says one of the signs, and what it says. With every guard in place the same
    /// history says nothing, or it is not the loss that shows.
    pub(crate) fn shows(&self, theme: Option<Theme>, signs: &[&str], most: u64) -> Option<(u64, String)> {
        self.shows_in(|seed| history(seed, theme, false).map(drop), signs, most)
    }

    /// The same of histories of named sequences.
    pub(crate) fn shows_in_sequences(&self, signs: &[&str], most: u64) -> Option<(u64, String)> {
        self.shows_in(sequences::verdict, signs, most)
    }

    fn shows_in(
        &self,
        play: impl Fn(u64) -> Result<(), String>,
        signs: &[&str],
        most: u64,
    ) -> Option<(u64, String)> {
        let is_sign = |why: &String| signs.iter().any(|sign| why.contains(sign));
        let failure = |n: u64| play(seed(n)).err().filter(is_sign).map(|why| (n, why));
        let found = Guard::without(self.out, || (0..most).find_map(failure));
        if let Some((n, why)) = &found {
            let whole = play(seed(*n)).err();
            assert_eq!(whole, None, "{}, history {n}, with every guard in place; without: {why}", self.name);
        }
        found
    }
}

#[test]
pub(crate) fn every_mutant_that_histories_can_catch_is_caught() {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        while let Some(mutant) = MUTANTS.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            let (shows, signs) = match mutant.caught {
                History(theme, signs) => (mutant.shows(Some(theme), signs, MOST), signs),
                Sequences(signs) => (mutant.shows_in_sequences(signs, MOST), signs),
                _ => continue,
            };
            match shows {
                Some((n, why)) => println!("{}, history {n}: {why}", mutant.name),
                None => panic!("{}: no history of {MOST} says {signs:?}", mutant.name),
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
}

#[test]
pub(crate) fn every_guard_has_a_mutant_and_every_mutant_a_name() {
    let out = |guard: &&Guard| MUTANTS.iter().any(|mutant| mutant.out.contains(guard));
    let lacking: Vec<_> = Guard::ALL.iter().filter(|guard| !out(guard)).collect();
    assert!(lacking.is_empty(), "nothing would notice the loss of {lacking:?}");
    let mut names: Vec<_> = MUTANTS.iter().map(|mutant| mutant.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), MUTANTS.len());
}

#[test]
pub(crate) fn with_every_guard_in_place_the_histories_of_the_mutants_find_nothing() {
    for theme in [Theme::Crashes, Theme::Far, Theme::Faults, Theme::SmallSteps, Theme::Calm] {
        for n in 0..50 {
            if let Err(why) = history(seed(n), Some(theme), false) {
                panic!("history {n}: {why}");
            }
        }
    }
}

fn ownership(registry: &(impl Registry + Clone + 'static), token: u8) -> Ownership {
    Ownership::new(Box::new(registry.clone()), Identity::new(Token([token; 16]), format!("test {token}")))
}

fn request(now: u64) -> WorkerRequest {
    WorkerRequest { now, start: now, end: now + 100, pinned: None, except: Vec::new() }
}

fn span(window: Window) -> Range<u64> {
    window.into_parts().1
}

/// Something is wrong without these guards, and nothing is with them.
pub(crate) fn only_without(out: &[Guard], wrong: impl Fn() -> Option<String>) {
    assert_eq!(wrong(), None, "with every guard in place");
    match Guard::without(out, wrong) {
        Some(why) => println!("without {out:?}: {why}"),
        None => panic!("without {out:?} nothing is wrong"),
    }
}
