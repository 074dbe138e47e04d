//! What a machine does before the power is cut: random load, idling, bursts, stops, kills and restarts, with
//! images made all along.

use xuid_id::{DEFAULT_EPOCH_MS, Layout};

use crate::registry::local::simulated::MemoryHints;
use crate::registry::local::{FileIdentity, MemoryDisk};
use crate::registry::{ClusterId, Genesis};
use crate::settings::Settings;
use crate::testing::crash_images::host::{Disks, Host};
use crate::testing::crash_images::known::Known;
use crate::testing::crash_images::land::Span;
use crate::testing::crash_images::power::{Fault, Image, PROCESSES};
use crate::testing::simulation::history::{BEGIN, MS, SECOND};
use crate::testing::support::rng::Rng;

/// Workers of the registry: enough that a few crashes do not use them up for a minute.
const WORKERS: u32 = 8;

/// More events than this are not needed for the images of a scenario: each has points, and an image is made every 48th.
const MOST_EVENTS: u32 = 10_000;

/// The machine's file of the registry.
pub(crate) const FILE: FileIdentity = FileIdentity { inode: 42, born_ns: 1, device: 1, machine: 1 };

/// What a scenario leaves to be judged.
pub(crate) struct Scenario {
    pub(crate) layout: Layout,
    pub(crate) settings: Settings,
    pub(crate) fault: Fault,
    pub(crate) images: Vec<Image>,
    /// All that was issued; each image has a part of it, from the beginning on.
    pub(crate) issued: Vec<Span>,
}

/// The scenario of this seed, with so many images.
pub(crate) fn run(seed: u64, images: usize, fault: Fault) -> Result<Scenario, String> {
    let mut rng = Rng::new(seed);
    let (time_bits, sequence_bits, tick_us) =
        rng.pick(&[(57, 3, 10_000), (55, 5, 10_000), (53, 7, 10_000), (55, 5, 1_000), (52, 8, 1_000)]);
    let layout = Layout::new(time_bits, 3, sequence_bits, tick_us, DEFAULT_EPOCH_MS)
        .map_err(|error| error.to_string())?;
    let settings = settings(&mut rng);
    let floor = layout.tick_at_ns(BEGIN - 3_600 * SECOND).unwrap_or(0);
    let genesis = Genesis::new(ClusterId::from_bytes([7; 16]), layout, floor, WORKERS);
    let disks = Disks {
        registry: MemoryDisk::with_registry(&genesis, FILE),
        hints: MemoryHints::default(),
        spills: [const { None }; PROCESSES],
        known: Known::default(),
    };
    let mut host = Host::new((layout, settings.clone(), fault), disks, BEGIN, images, &mut rng);
    let processes = rng.within(1, PROCESSES as u64) as usize;
    host.begin(0, true)?;
    for _ in 0..MOST_EVENTS {
        if host.power.is_done() {
            break;
        }
        let process = host.rng.below(processes as u64) as usize;
        event(&mut host, process)?;
    }
    host.verdict()?;
    Ok(Scenario { layout, settings, fault, images: host.power.take_images(), issued: host.power.issued() })
}

fn settings(rng: &mut Rng) -> Settings {
    let seconds = std::time::Duration::from_secs;
    Settings {
        wait: std::time::Duration::ZERO,
        window_max: seconds(rng.pick(&[1, 2, 10, 60])),
        max_age: seconds(rng.pick(&[30, 3_600, 3_600, 3_600])),
        slots: 64,
        ..Settings::default()
    }
}

fn event(host: &mut Host, process: usize) -> Result<(), String> {
    if host.processes[process].is_none() {
        host.begin(process, false)?;
    }
    match host.rng.below(20) {
        0..6 => {
            for _ in 0..host.rng.within(1, 12) {
                host.call(process);
                let pause = host.rng.magnitude(50_000, 20 * MS);
                host.pass(pause);
            }
        }
        6..11 => {
            let idle = host.rng.magnitude(100 * MS, 8 * SECOND);
            host.pass(idle);
        }
        11..13 => {
            let rounds = host.rng.within(1, 8) as u32;
            host.burst(process, rounds);
        }
        13..16 => host.power.write_back(),
        16..18 => host.stop(process),
        18 => host.kill(process),
        _ => {
            // Stopped and begun at once, as an update does.
            host.stop(process);
            host.begin(process, false)?;
        }
    }
    host.power.point();
    host.verdict()
}
