//! What each tier is worth: `cargo bench -p xuid-benches --bench ablation`.

fn main() -> anyhow::Result<()> {
    xuid_benches::targets::ablation::print()
}
