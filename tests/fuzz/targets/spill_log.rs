#![no_main]

#[path = "../../../spill/tests/spill/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|input: &[u8]| bodies::log(input));
