//! The numbers of named sequences as families of samples. A server without sequences has none of them.

use std::collections::BTreeMap;
use std::time::Duration;

use xuid_engine::sequence::{NameFigures, SequencesStats};

use super::family::{Family, Kind, Samples, counter, counter_by, family, gauge, gauge_by, times_by};
use crate::state::sequences::ServedSequences;

/// Names that have samples of their own: the busiest ones.
const BUSIEST: usize = 100;

/// The name of the rest. No sequence is called that: names do not begin with `@`.
const OTHERS: &str = "@others";

/// Thirty million years: a number that every reader keeps exactly.
const MOST_SECONDS: u64 = 1_000_000_000_000_000;

pub(super) fn families(sequences: &ServedSequences) -> Vec<Family> {
    let stats = sequences.all.stats();
    let now = sequences.all.status();
    let (is_up, is_witness_up) = (now.store_trouble.is_none(), now.witness_trouble.is_none());
    let mut families = ids(&stats);
    families.extend(of_names(sequences, &stats));
    let grants = &stats.grants;
    families.extend([
        counter_by(
            "xuid_sequence_grants",
            "Grants that the store was asked for, by what became of them",
            "outcome",
            &[
                ("granted", grants.granted),
                ("seen", grants.seen),
                ("late", grants.late),
                ("unwitnessed", grants.unwitnessed),
                ("behind", grants.behind),
                ("leapt", grants.leapt),
                ("unknown", grants.unknown),
                ("away", grants.away),
                ("absent", grants.absent),
                ("exhausted", grants.exhausted),
                ("refused", grants.refused),
            ],
        ),
        counter(
            "xuid_sequence_store_went_back",
            "Grants that were thrown away because the store had granted them before",
            grants.seen + grants.behind,
        ),
        counter(
            "xuid_sequence_identity_changes",
            "Times names were closed as the store may be another one, and times another one was gone on with",
            stats.identity_changes,
        ),
        times_by(
            "xuid_sequence_grant_seconds",
            "How long a batch of grants took: at the store, and until the witness had taken it",
            "at",
            &[("store", stats.store), ("witness", stats.witness)],
        ),
        gauge("xuid_sequence_store_up", "1 if the store of the sequences answered last", u64::from(is_up)),
        gauge(
            "xuid_sequence_witness_up",
            "1 if the witness of the sequences answered last, or none is asked",
            u64::from(is_witness_up),
        ),
        gauge(
            "xuid_sequence_waits_for_fence",
            "1 if the store may have gone back, and nothing is granted until a fence",
            u64::from(now.behind.is_some()),
        ),
        gauge_by(
            "xuid_sequence_names",
            "Names that this server knows, and of these those of which it holds numbers",
            "state",
            &[("known", stats.names as u64), ("holding", stats.holding as u64)],
        ),
        gauge("xuid_sequence_waiting", "Calls for numbers that wait now", stats.waiting),
        counter("xuid_sequence_refused_calls", "Calls that might wait and got no numbers", stats.refused),
        counter("xuid_sequence_panics", "Panics of the thread that asks the store", stats.panics),
    ]);
    families
}

fn ids(stats: &SequencesStats) -> Vec<Family> {
    let (figures, wasted) = (&stats.figures, &stats.figures.wasted);
    vec![
        counter(
            "xuid_sequence_all_issued",
            "Numbers that became callers', of all sequences together",
            figures.issued,
        ),
        counter("xuid_sequence_granted", "Numbers of sequences in grants that were used", figures.granted),
        counter("xuid_sequence_reclaimed", "Numbers that an earlier life left", figures.reclaimed),
        counter("xuid_sequence_saved", "Numbers saved for a later life", figures.saved),
        counter_by(
            "xuid_sequence_wasted",
            "Numbers that no caller will ever get, by cause",
            "cause",
            &[
                ("contiguous", wasted.contiguous),
                ("thread", wasted.thread),
                ("leap", wasted.leap),
                ("strict", wasted.strict),
                ("dropped", wasted.dropped),
            ],
        ),
    ]
}

/// What is told of the busiest names, and of the rest as one.
fn of_names(sequences: &ServedSequences, stats: &SequencesStats) -> Vec<Family> {
    let busiest = sequences.all.busiest(BUSIEST);
    let by_name = |of: &dyn Fn(&NameFigures) -> Option<u64>| -> BTreeMap<String, u64> {
        busiest.iter().filter_map(|(name, here)| Some((name.to_string(), of(here)?))).collect()
    };
    let with_rest = |mut samples: BTreeMap<String, u64>, all: u64| -> Vec<(String, u64)> {
        let named: u64 = samples.values().sum();
        samples.insert(OTHERS.to_owned(), all.saturating_sub(named));
        samples.into_iter().collect()
    };
    let issued = with_rest(by_name(&|here| Some(here.figures.issued)), stats.figures.issued);
    let held = with_rest(by_name(&|here| Some(here.figures.held)), stats.figures.held);
    let lasts = by_name(&|here| here.hold.map(|lasts| lasts.as_secs())).into_iter().collect();
    let exhaustion = by_name(&until_exhausted).into_iter().collect();
    vec![
        family(
            "xuid_sequence_issued",
            "Numbers that became a caller's",
            Kind::Counter,
            Samples::By("name", issued),
        ),
        family(
            "xuid_sequence_held",
            "Numbers that this server holds",
            Kind::Gauge,
            Samples::By("name", held),
        ),
        family(
            "xuid_sequence_hold_seconds",
            "How long what is held of a sequence lasts at its present rate",
            Kind::Gauge,
            Samples::By("name", lasts),
        ),
        family(
            "xuid_sequence_exhaustion_seconds",
            "How long the numbers of a sequence last at this server's present rate",
            Kind::Gauge,
            Samples::By("name", exhaustion),
        ),
    ]
}

fn until_exhausted(here: &NameFigures) -> Option<u64> {
    let settings = here.settings?;
    let left =
        (settings.last.saturating_add(1)).saturating_sub(here.mark) / u64::from(settings.increment.max(1));
    let seconds = Duration::try_from_secs_f64((left + here.figures.held) as f64 / here.rate).ok()?;
    Some(seconds.as_secs().min(MOST_SECONDS))
}
