#![no_main]

#[allow(dead_code, reason = "each target uses one body")]
#[path = "../../../server/protocol/tests/protocol/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|input: &[u8]| bodies::request(input));
