#![no_main]
#![allow(dead_code, reason = "the server uses more of its parser than this target does")]

#[path = "../../../server/src/fronts/resp/parse.rs"]
mod parse;

libfuzzer_sys::fuzz_target!(|input: &[u8]| parse::any_bytes(input));
