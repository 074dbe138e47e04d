//! Ends the build with one sentence where the engine cannot run, before anything of it is compiled.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |key| env::var(key).unwrap_or_default();
    let (os, bits) = (target("CARGO_CFG_TARGET_OS"), target("CARGO_CFG_TARGET_POINTER_WIDTH"));
    if (os.as_str(), bits.as_str()) != ("linux", "64") {
        println!(
            "cargo::error=xuid-engine runs on 64-bit Linux only, and this build is for {bits}-bit {os}: use the crate \
             xuid-client here, which asks a server on Linux"
        );
    }
}
