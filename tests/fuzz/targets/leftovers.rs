#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| xuid_engine::fuzzing::leftovers(input));
