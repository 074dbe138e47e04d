//! `xuid serve`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tracing::{debug, info, warn};
use xuid_engine::registry::Workers;
use xuid_engine::registry::local::{self, LocalError};
use xuid_engine::stats::Status;
use xuid_engine::{BuildError, Engine};
use xuid_protocol::Limits as ProtocolLimits;

use crate::commands::banner;
use crate::config::{Flags, RegistrySetting, Settings};
use crate::fronts::{Front, admin};
use crate::net::allowed::Allowed;
use crate::net::io_threads::IoThreads;
use crate::net::listener;
use crate::net::reload::Reloads;
use crate::net::runtime::runtime;
use crate::net::service_manager::ServiceManager;
use crate::net::shutdown;
use crate::net::shutdown::{Signals, StopTimes};
use crate::registries::ensemble::Ensemble;
use crate::registries::new::workers_of_new;
use crate::registries::provenance::Looks;
use crate::registries::sequence_store;
use crate::registries::target::{Target, is_of_ensemble};
use crate::state::access::AccessRules;
use crate::state::sequences::ServedSequences;
use crate::state::server::{Limits, Origins, Places, Server};
use crate::text::exit::usage;
use crate::text::logs;

/// `xuid serve`: every setting is also a variable and a key of the file.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
}

/// Serves until a signal.
pub(crate) fn run(args: &Args) -> Result<()> {
    let settings = Settings::load(&args.flags)?;
    check_worker(&settings)?;
    let _flush = logs::init_for_server(&settings.log, settings.log_format)?;
    for warning in &settings.warnings {
        warn!("{warning}");
    }
    let allowed = Allowed::new(settings.max_connections, settings.threads)?;
    // Connections have threads of their own where there are several.
    let runtime = runtime(1)?;
    // What is made here is made outside of the runtime: where a thread or memory can't be had, this says so and ends,
    // while a runtime that is dropped within another one panics.
    let parts = Parts::make(&settings, &runtime)?;
    let served = runtime.block_on(serve(&settings, &args.flags, parts, allowed));
    // Whatever is left is the admin port: it has nothing to save.
    runtime.shutdown_timeout(Duration::from_millis(100));
    served
}

/// Refuses a worker that the registry will not have, before anything is made. How many a registry in an ensemble has is
/// known only there; then the start says it.
fn check_worker(settings: &Settings) -> Result<()> {
    let Some(worker) = settings.worker else { return Ok(()) };
    let folder = settings.data_dir.display();
    let below = |until| Workers { from: 0, until };
    let (workers, why) = match (&settings.registry, settings.layout) {
        (RegistrySetting::ZooKeeper(_), None) => return Ok(()),
        (RegistrySetting::ZooKeeper(_), Some(layout)) => {
            (below(layout.workers()), format!("the layout {layout} tells no more apart"))
        }
        (RegistrySetting::Local, layout) => match local::inspect(&settings.data_dir) {
            Ok(found) => (found.genesis.worker_range(), format!("the registry in {folder} has no more")),
            Err(LocalError::Absent { .. }) => {
                let layout = layout.unwrap_or_default();
                (below(workers_of_new(layout)), format!("a new registry of the layout {layout} has no more"))
            }
            // The start says what is wrong with it.
            Err(_) => return Ok(()),
        },
    };
    if workers.contains(worker) {
        return Ok(());
    }
    let (first, last) = (workers.from, workers.until.saturating_sub(1));
    Err(usage(format!("worker is {worker}; allowed is a number from {first} to {last}: {why}")).into())
}

/// What a server needs before it serves.
#[derive(Debug)]
struct Parts {
    clients: TcpListener,
    resp: Option<TcpListener>,
    http: Option<TcpListener>,
    probes: Option<TcpListener>,
    engine: Engine,
    sequences: Option<ServedSequences>,
    signals: Signals,
    reloads: Reloads,
    /// Outlives the listener, which ends when the server begins to drain: connections go on until they are drained.
    io_threads: Arc<IoThreads>,
    /// What is open to everybody.
    open: Vec<String>,
}

impl Parts {
    fn make(settings: &Settings, runtime: &Runtime) -> Result<Self> {
        // Before what may take long: the first process of a container gets no signal that it does not listen to.
        let signals = Signals::new(Some(stop_times(settings)))?;
        // The ports first: a second server started by mistake ends here, before it has taken a worker.
        let (clients, resp, http, probes, reloads) = {
            let _in = runtime.enter();
            shutdown::outlive_long_files()?;
            let reloads = Reloads::new()?;
            let clients = listener::bind("listen", &settings.listen)?;
            let bind = |key, address: &Option<String>| {
                address.as_deref().map(|address| listener::bind(key, address)).transpose()
            };
            let (resp, http) = (bind("resp", &settings.resp)?, bind("http", &settings.http)?);
            (clients, resp, http, bind("admin", &settings.admin)?, reloads)
        };
        let mut open = Vec::new();
        let ports = [
            ("listen", Some(&clients)),
            ("admin", probes.as_ref()),
            ("resp", resp.as_ref()),
            ("http", http.as_ref()),
        ];
        for (key, port) in ports {
            if let Some(port) = port {
                open.extend(settings.check_exposure(key, port.local_addr()?)?);
            }
        }
        // Nothing is to be saved here yet, and a signal still ends the process.
        let engine = build_engine(settings)?;
        let step = settings.sequences.step;
        let sequences = sequence_store::open(settings, &engine.genesis())?;
        let tiny_tokens = sequence_store::tiny_tokens(settings)?;
        let sequences = sequences.map(|all| ServedSequences { all, step, tiny_tokens });
        let io_threads = Arc::new(IoThreads::new(settings.threads, runtime)?);
        let signals = signals.begun();
        Ok(Self { clients, resp, http, probes, engine, sequences, signals, reloads, io_threads, open })
    }
}

async fn serve(settings: &Settings, flags: &Flags, parts: Parts, allowed: Allowed) -> Result<()> {
    let Parts { clients, resp, http, probes, engine, sequences, mut signals, reloads, io_threads, open } =
        parts;
    let places = Places {
        listen: clients.local_addr()?,
        admin: probes.as_ref().map(TcpListener::local_addr).transpose()?,
        resp: resp.as_ref().map(TcpListener::local_addr).transpose()?,
        http: http.as_ref().map(TcpListener::local_addr).transpose()?,
    };
    let protocol = ProtocolLimits {
        idle_ms: u32::try_from(settings.idle.as_millis()).unwrap_or(u32::MAX),
        ..ProtocolLimits::default()
    };
    let Allowed { connections, unread, .. } = allowed;
    let limits = Limits { wait: settings.wait, unread, connections, protocol };
    let access = AccessRules::new(settings.tokens.clone(), settings.tls.clone());
    access.limit_addresses(settings.address_ids_per_second);
    let (registry, folder) = (target(settings)?, settings.data_dir.clone());
    let looks = Looks::new(registry, folder);
    let origins = Origins(Box::new(move |engine: &Engine, name: &str, id| looks.at(engine, name, id)));
    let server = Server::new(engine, limits, access, places).with_sequences(sequences);
    let server = Arc::new(server.with_origins(origins));

    let permits = Arc::new(Semaphore::new(allowed.connections));
    let (of_server, of_permits, threads) =
        (Arc::clone(&server), Arc::clone(&permits), Arc::clone(&io_threads));
    let mut fronts = vec![(clients, Front::Xuid)];
    fronts.extend(resp.map(|resp| (resp, Front::Resp)));
    fronts.extend(http.map(|http| (http, Front::Http)));
    let mut accepting =
        tokio::spawn(listener::run(fronts, of_server, of_permits, threads, allowed.farewells));
    if let Some(probes) = probes {
        tokio::spawn(admin::run(probes, Arc::clone(&server), allowed.probes));
    }
    tokio::spawn(tell_stalls(Arc::clone(&server)));
    let manager = ServiceManager::of_environment();
    tokio::spawn(reloads.run(flags.clone(), Arc::clone(&server), manager.clone()));
    banner::print(&server, settings, &open);
    say(&server, settings);
    for sentence in open {
        warn!("{sentence}");
    }
    manager.ready(&server);
    tokio::spawn(manager.clone().feed_watchdog(Arc::clone(&server)));

    let stop = signals.first().await;
    let times = stop_times(settings);
    info!("{stop}: stopping within {:?}; once more ends at once", times.whole());
    manager.stopping(times.whole());
    let accepted = async { _ = (&mut accepting).await };
    let stopped = shutdown::stop(&server, &permits, allowed.connections, times, &stop, accepted).await;
    accepting.abort();
    // The accepting task holds its share of the I/O threads. Once it is gone, the connections end here, and each counts
    // what it had in hand. Those that this thread served are counted with it.
    if !accepting.is_finished() {
        let _ = accepting.await;
    }
    if let Some(io_threads) = Arc::into_inner(io_threads) {
        io_threads.end().await;
    }
    // An engine that did not stop may not answer either.
    stopped?;
    server.engine.publish();
    let stats = server.engine.stats();
    shutdown::say(&stats);
    #[cfg(feature = "crash-points")]
    crate::crash_points::account(&stats)?;
    Ok(())
}

/// So often it is seen whether there is something to say that the engine's producer cannot say.
const TELL: Duration = Duration::from_millis(250);

/// Says in the log that the registry is away, that the engine's producer stands still, and that both go on: the producer
/// itself cannot while a disk keeps it.
async fn tell_stalls(server: Arc<Server>) {
    let mut looks = tokio::time::interval(TELL);
    let mut stalled = false;
    loop {
        looks.tick().await;
        server.engine.tell_registry();
        match server.stalled() {
            Some(why) if !stalled => warn!("{why}"),
            None if stalled => info!("the engine's producer goes on"),
            _ => continue,
        }
        stalled = !stalled;
    }
}

fn stop_times(settings: &Settings) -> StopTimes {
    StopTimes { lame_duck: settings.lame_duck, drain: settings.drain }
}

/// What the banner says, for those who read logs.
fn say(server: &Server, settings: &Settings) {
    let Status { ready, notes, .. } = server.readiness();
    let places = server.places;
    info!(listen = %places.listen, registry = server.engine.registry(), workers = ?server.engine.workers(), ready, "serving");
    for note in notes {
        warn!("{note}");
    }
    debug!(?settings, "settings");
}

/// Its registry, to look at.
fn target(settings: &Settings) -> Result<Target> {
    Ok(match &settings.registry {
        RegistrySetting::Local => Target::Folder(settings.data_dir.clone()),
        RegistrySetting::ZooKeeper(url) => Target::Ensemble(Ensemble::new(url, &settings.access, None)?),
    })
}

fn build_engine(settings: &Settings) -> Result<Engine> {
    let mut builder = Engine::builder()
        .data_dir(&settings.data_dir)
        .floor(settings.floor)
        .workers(settings.workers)
        .max_age(settings.max_age)
        .wait(settings.wait)
        .backfill(settings.backfill)
        .window_max(settings.window_max)
        .rollback_wait(settings.rollback_wait)
        .drift(settings.drift)
        .max_forward(settings.max_forward);
    if let RegistrySetting::ZooKeeper(url) = &settings.registry {
        let folder = &settings.data_dir;
        let ensemble = Ensemble::new(url, &settings.access, Some(folder))?;
        xuid_spill::make_folder(folder)
            .with_context(|| format!("failed to make the data folder {}", folder.display()))?;
        builder = builder.registry(ensemble.open()?);
    }
    if let Some(worker) = settings.worker {
        builder = builder.worker(worker);
    }
    if let Some(layout) = settings.layout {
        builder = builder.layout(layout);
    }
    if let Some(key) = &settings.opaque_key {
        builder = builder.opaque_key(key.veil.clone());
    }
    builder.build().map_err(|error| match error {
        // Only what two settings say together gets so far.
        BuildError::Setting { setting, found, allowed } => {
            usage(format!("{setting} is {found}; allowed is {allowed}")).into()
        }
        BuildError::RegistryGone { path, cluster } if is_of_ensemble(&path) => anyhow::anyhow!(
            "the data folder {} belongs to cluster {cluster}, whose registry is in an ensemble: name it as before, with \
             --registry zookeeper://host:port/path or the variable XUID_REGISTRY, or use an empty folder, which is another \
             cluster",
            path.display()
        ),
        other => other.into(),
    })
}
