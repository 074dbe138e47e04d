//! What happens to servers and databases while numbers are taken. Each scene has a size, so that a test plays it small and
//! a campaign large.

mod databases;
mod failover;
mod many_names;
mod servers;

pub use databases::{database_deaths, database_standstill};
pub use failover::{Against, Loss, store_goes_back};
pub use many_names::{ManyNames, many_names};
pub use servers::{kills, many_servers, put_back, restarts};

use std::time::Duration;

use anyhow::Result;

use super::{Account, Call, Fleet, Name};
use crate::clock;
use crate::fronts::Front;

/// A machine that does much else.
const LONG: Duration = Duration::from_mins(2);

/// What a scene brought home.
#[derive(Debug, Default)]
pub struct Played {
    /// All that was taken.
    pub account: Account,
    /// From a start, or the end of a fault, to a first number.
    pub recoveries: Vec<Duration>,
}

impl Played {
    /// Nothing had to recover.
    pub fn of(account: Account) -> Self {
        Self { account, recoveries: Vec::new() }
    }

    /// The longest recovery.
    pub fn slowest(&self) -> Duration {
        self.recoveries.iter().copied().max().unwrap_or_default()
    }
}

/// One ordered number of a name, as a call of this life.
fn one(fleet: &Fleet, names: &[Name], (node, name): (usize, usize)) -> Result<Call> {
    let life = fleet.life(node)?;
    let mut client = fleet.client(node)?;
    let asked = clock::now();
    let numbers = vec![client.seq_next(&names[name].text)?];
    let (front, got) = (Front::Xuid, clock::now());
    Ok(Call { name, life, front, is_ordered: true, asked, got, numbers })
}
