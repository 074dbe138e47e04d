//! How many trials each campaign has in each size: the one table to tune.

use super::Size;

/// One size of one campaign.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Trials of the whole campaign.
    pub trials: u64,
    /// Trials of a part.
    pub part: u64,
    /// What a part took on two cores, in seconds: by that `--minutes` judges the first part, before there is a measure.
    pub seconds: u64,
}

const fn of(trials: u64, part: u64, seconds: u64) -> Plan {
    Plan { trials, part, seconds }
}

/// Name, quick, night. One life of `kills` in twelve ends by a clean stop: 1,100 of them are a thousand kills. A part
/// of a night takes 1 to 32 minutes, so that little is lost when it is cut off; all of quick takes some five minutes.
pub const SIZES: &[(&str, Plan, Plan)] = &[
    ("simulation", of(6_000, 6_000, 60), of(1_000_000, 50_000, 400)),
    ("sequences", of(5_000, 5_000, 10), of(200_000, 50_000, 100)),
    ("mutants", of(143, 143, 40), of(143, 143, 300)),
    ("power", of(4_000, 4_000, 20), of(50_000, 10_000, 60)),
    ("kills", of(60, 60, 60), of(1_100, 100, 120)),
    ("kills-zookeeper", of(20, 20, 50), of(1_100, 100, 300)),
    ("files", of(60, 60, 15), of(110_344, 1_505, 300)),
    ("limits", of(6, 6, 15), of(300, 60, 200)),
    ("nodes", of(6, 6, 20), of(740, 74, 420)),
    ("outages", of(5, 5, 15), of(10, 10, 180)),
    ("soak", of(5, 5, 40), of(120, 60, 1_900)),
];

/// The plan of this campaign.
///
/// # Panics
/// No line of [`SIZES`] has that name: a mistake of this program.
pub fn plan(name: &str, size: Size) -> Plan {
    let found = SIZES.iter().find(|(known, ..)| *known == name);
    let Some((_, quick, night)) = found else { panic!("no sizes are known of the campaign {name}") };
    match size {
        Size::Quick => *quick,
        Size::Night => *night,
    }
}
