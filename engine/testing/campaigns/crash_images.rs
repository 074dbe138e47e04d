//! The campaign of power cuts.

use crate::testing::campaigns::campaign;

/// Images where nobody asks for a range.
const DEFAULT: u64 = 320;

pub(crate) fn run() {
    campaign("power", DEFAULT, crate::testing::crash_images::image);
}
