//! The campaign of power cuts.

use super::campaign;
use crate::simulation::images;

/// Images where nobody asks for a range.
const DEFAULT: u64 = 320;

pub(super) fn run() {
    campaign("power", DEFAULT, images::image);
}
