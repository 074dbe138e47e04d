//! Several real servers on one store, and all that may happen to them.

use std::time::Duration;

use anyhow::Result;
use xuid_tests::Rng;
use xuid_tests::sequences::Kind;
use xuid_tests::sequences::scenes::{self, Against, Loss};

/// Plays a scene on each of the four stores.
macro_rules! on_each {
    ($($scene:ident),* $(,)?) => {$(
        mod $scene {
            use super::*;

            #[test]
            fn folder() -> Result<()> {
                super::$scene(Kind::Folder)
            }

            #[test]
            fn zookeeper() -> Result<()> {
                super::$scene(Kind::ZooKeeper)
            }

            #[test]
            fn postgres() -> Result<()> {
                super::$scene(Kind::Postgres)
            }

            #[test]
            fn mariadb() -> Result<()> {
                super::$scene(Kind::MariaDb)
            }
        }
    )*};
}

on_each!(
    four_servers_issue_no_number_twice_and_in_order,
    servers_that_are_killed_leave_bounded_gaps_and_no_number_twice,
    clean_restarts_under_load_leave_no_gap,
    leftovers_that_are_put_back_and_copied_repeat_nothing,
);

fn four_servers_issue_no_number_twice_and_in_order(kind: Kind) -> Result<()> {
    let mut rng = Rng::from_env("four_servers");
    let account = scenes::many_servers(kind, 150_000, rng.word())?;
    println!("{kind:?}: {} numbers in {} calls", account.total(), account.calls.len());
    Ok(())
}

fn servers_that_are_killed_leave_bounded_gaps_and_no_number_twice(kind: Kind) -> Result<()> {
    let played = scenes::kills(kind, 10, Rng::from_env("kills").word())?;
    println!("{kind:?}: {} numbers, a first one in {:?}", played.account.total(), played.slowest());
    Ok(())
}

fn clean_restarts_under_load_leave_no_gap(kind: Kind) -> Result<()> {
    let played = scenes::restarts(kind, 5, Rng::from_env("restarts").word())?;
    println!("{kind:?}: {} numbers, a first one in {:?}", played.account.total(), played.slowest());
    Ok(())
}

fn leftovers_that_are_put_back_and_copied_repeat_nothing(kind: Kind) -> Result<()> {
    let account = scenes::put_back(kind, Rng::from_env("put_back").word())?;
    println!("{kind:?}: {} numbers", account.total());
    Ok(())
}

/// Plays a scene on both kinds of database.
macro_rules! on_databases {
    ($($scene:ident),* $(,)?) => {$(
        mod $scene {
            use super::*;

            #[test]
            fn postgres() -> Result<()> {
                super::$scene(Kind::Postgres)
            }

            #[test]
            fn mariadb() -> Result<()> {
                super::$scene(Kind::MariaDb)
            }
        }
    )*};
}

on_databases!(
    a_database_that_is_killed_fails_no_request_while_numbers_are_held,
    a_database_that_stands_still_fails_no_request_while_numbers_are_held,
    a_replica_that_lags_is_promoted_and_no_number_comes_twice,
    two_primaries_issue_no_number_twice,
    an_old_dump_under_running_servers_repeats_nothing,
    without_a_witness_numbers_end_until_a_fence,
    with_neither_witness_nor_fence_numbers_come_twice,
);

fn a_database_that_is_killed_fails_no_request_while_numbers_are_held(kind: Kind) -> Result<()> {
    let played = scenes::database_deaths(kind, 3, Rng::from_env("deaths").word())?;
    println!("{kind:?}: {} numbers, back in {:?}", played.account.total(), played.slowest());
    Ok(())
}

fn a_database_that_stands_still_fails_no_request_while_numbers_are_held(kind: Kind) -> Result<()> {
    let seed = Rng::from_env("standstill").word();
    let played = scenes::database_standstill(kind, Duration::from_secs(10), seed)?;
    println!("{kind:?}: {} numbers, back in {:?}", played.account.total(), played.slowest());
    Ok(())
}

fn goes_back(kind: Kind, loss: Loss, against: Against) -> Result<()> {
    let played = scenes::store_goes_back(kind, loss, against, Rng::from_env("goes_back").word())?;
    println!("{kind:?} {loss:?}: {} numbers, again in {:?}", played.account.total(), played.slowest());
    Ok(())
}

fn a_replica_that_lags_is_promoted_and_no_number_comes_twice(kind: Kind) -> Result<()> {
    goes_back(kind, Loss::Promotion, Against::Witness)
}

fn two_primaries_issue_no_number_twice(kind: Kind) -> Result<()> {
    goes_back(kind, Loss::TwoPrimaries, Against::Witness)
}

fn an_old_dump_under_running_servers_repeats_nothing(kind: Kind) -> Result<()> {
    goes_back(kind, Loss::OldDump, Against::Witness)
}

fn without_a_witness_numbers_end_until_a_fence(kind: Kind) -> Result<()> {
    goes_back(kind, Loss::Promotion, Against::Fence)?;
    goes_back(kind, Loss::OldDump, Against::Fence)
}

/// Each of the attacks above is one.
fn with_neither_witness_nor_fence_numbers_come_twice(kind: Kind) -> Result<()> {
    for loss in [Loss::Promotion, Loss::TwoPrimaries, Loss::OldDump] {
        goes_back(kind, loss, Against::Nothing)?;
    }
    Ok(())
}
