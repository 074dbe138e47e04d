//! End to end: what a person does with the server, and what goes wrong around it, done to the real binary.
//!
//! Every test prints what it measured; `cargo test -p xuid-tests --release -- --nocapture` shows it while it runs.

mod bad_blocks;
mod bench;
mod burst_after_idle;
mod disk;
mod documented;
mod figures;
mod foreign_folders;
mod last_words;
mod layouts;
mod lives;
mod many_names;
mod memory;
mod moving;
mod other_language;
mod overwritten;
mod provenance;
mod quick_start;
mod registry_damage;
mod restore_runbook;
mod restored_files;
mod restored_registry;
mod rights;
mod rubbish;
mod sequences;
mod silence;
mod stops;
mod strangers;
mod stuck_log;
mod two_servers;
mod watchdog;
