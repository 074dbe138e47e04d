//! The clients of all languages, driven by one set of stories: each story is told to a program that the client ships,
//! which speaks JSON lines ([`conform`]), against real servers and one that lies.

mod conform;
mod forks;
mod ids;
mod languages;
mod liar;
mod lies;
mod losses;
mod packages;
mod several;
mod vectors;

/// Each story as a test of its own in the module of each language: `python::ids_of_each_call_come_once`.
macro_rules! stories {
    ($($file:ident::$story:ident,)*) => {
        stories!(@in python Python: $($file::$story,)*);
        stories!(@in go Go: $($file::$story,)*);
        stories!(@in java Java: $($file::$story,)*);
        stories!(@in node Node: $($file::$story,)*);
        stories!(@in rust Rust: $($file::$story,)*);
    };
    (@in $module:ident $language:ident: $($file:ident::$story:ident,)*) => {
        mod $module {
            $(#[test]
            fn $story() -> anyhow::Result<()> {
                crate::$file::$story(crate::languages::Language::$language)
            })*
        }
    };
}

stories! {
    ids::ids_of_each_call_come_once,
    ids::ids_of_each_call_are_of_the_layout,
    ids::numbers_of_a_sequence_come_once_and_without_a_gap,
    losses::a_server_killed_and_back_issues_nothing_twice,
    losses::a_server_that_drains_is_left_for_another_one,
    losses::a_server_replaced_by_one_of_another_cluster_yields_no_id,
    losses::a_server_stopped_for_ten_seconds_is_waited_for,
    losses::a_reply_cut_in_the_middle_yields_no_id,
    lies::a_lie_ends_the_connection_and_yields_no_id,
    lies::a_port_that_speaks_http_is_told_by_its_words,
    lies::a_server_that_hangs_up_before_hello_is_told_of,
    lies::a_silent_server_is_given_up_and_a_call_to_it_can_be_cancelled,
    several::clients_begin_at_any_of_their_servers,
    several::a_client_returns_to_its_first_choice,
    several::nothing_held_is_handed_out_once_a_stranger_was_met,
    vectors::every_vector_holds_and_a_changed_byte_is_found,
}
