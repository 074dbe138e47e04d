#![no_main]
#![allow(dead_code, unused_imports, reason = "the server uses more of its settings than this target does")]

#[path = "../../../server/src/config/mod.rs"]
mod config;

#[path = "../../../server/src/text/mod.rs"]
mod text;

libfuzzer_sys::fuzz_target!(|input: &[u8]| config::read_file(input));
