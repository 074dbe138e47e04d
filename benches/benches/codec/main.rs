//! What stands between an id and its reader: the frames of XUID/1, and ids as text.

#[path = "../common/mod.rs"]
mod common;
mod frames;
mod text;

fn main() {
    let mut criterion = common::criterion();
    frames::all(&mut criterion);
    text::all(&mut criterion);
    criterion.final_summary();
}
