//! Where ids came from: of those that clients got none is ever said not to be issued, and of those that nobody got most
//! are. `XUID_LONG=1` takes a million of each.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;
use xuid_tests::{FakeClock, Order, Rng, Serve, Server, Xuid, clock, folder, op};

const WAIT: Duration = Duration::from_secs(5);

/// Milliseconds of tick 0 of the default layout.
const EPOCH_MS: u64 = 1_524_153_600_000;

fn is_long() -> bool {
    std::env::var_os("XUID_LONG").is_some()
}

/// Ids of each sort.
fn many() -> usize {
    if is_long() { 1_000_000 } else { 24_000 }
}

fn id(unix_ms: u64, worker: u64, sequence: u64) -> u64 {
    (unix_ms - EPOCH_MS) << 22 | worker << 12 | sequence
}

fn worker(id: u64) -> u64 {
    id >> 12 & 0x3ff
}

fn unix_ms(id: u64) -> u64 {
    (id >> 22) + EPOCH_MS
}

/// What one life issued, and who it was.
struct Life {
    pid: u32,
    ids: Vec<u64>,
}

/// What the command says of those ids, in their order.
fn ask(home: &Path, ids: &[u64], more: &[&str]) -> Result<Vec<Value>> {
    let input = home.join("ids");
    let text = ids.iter().fold(String::new(), |mut text, id| {
        // Writing into a string does not fail.
        let _ = writeln!(text, "{id}");
        text
    });
    fs::write(&input, text)?;
    let said = Xuid::new(["provenance", "--json", "-", "--data-dir"])?.arg(home.join("data"));
    let said = more.iter().fold(said, Xuid::arg).fed(&input)?;
    let answers: Vec<Value> =
        said.ok()?.lines().map(serde_json::from_str).collect::<Result<_, _>>().context("not JSON")?;
    ensure!(answers.len() == ids.len(), "{} answers to {} ids", answers.len(), ids.len());
    for (answer, id) in answers.iter().zip(ids) {
        ensure!(answer["id"].as_str() == Some(&*id.to_string()), "{answer} for {id}");
    }
    Ok(answers)
}

/// Fails where an id that a client got is said not to be issued.
fn all_may_be_issued(home: &Path, ids: &[u64], more: &[&str]) -> Result<Vec<Value>> {
    let answers = ask(home, ids, more)?;
    if let Some(wrong) = answers.iter().find(|answer| answer["issued"] != "maybe") {
        bail!("a client got this one: {wrong}");
    }
    Ok(answers)
}

/// Takes ids of all orders, and some at a time from what is put aside.
fn take(server: &Server, count: usize, life: &mut Life) -> Result<()> {
    take_of(server, count, life, &Order::ALL)
}

fn take_of(server: &Server, count: usize, life: &mut Life, orders: &[Order]) -> Result<()> {
    let mut client = server.client()?;
    let before = life.ids.len();
    let mut round = 0_u32;
    while life.ids.len() - before < count {
        round += 1;
        let order = orders[round as usize % orders.len()];
        life.ids.push(client.next(order)?);
        life.ids.extend(client.array(100 + round % 400, WAIT, order)?);
        for run in client.runs(500, WAIT, order)? {
            life.ids.extend((0..u64::from(run.count)).map(|at| run.first + at * u64::from(run.stride)));
        }
    }
    Ok(())
}

/// Takes so much that some comes from the spill, and keeps a few ids of each run.
fn take_replayed(server: &Server, life: &mut Life) -> Result<()> {
    let mut client = server.client()?;
    for _ in 0..60 {
        for _ in 0..8 {
            for run in client.runs(131_072, WAIT, Order::Any)? {
                life.ids.extend([run.first, run.first + u64::from(run.count / 2)]);
            }
        }
        if server.replayed()? > 3e6 {
            break;
        }
    }
    Ok(())
}

/// Lives with idle time, ended in turn by a stop and by a kill, with a switch of worker in some; all of their ids.
fn lives(home: &Path, count: usize) -> Result<Vec<Life>> {
    let data = home.join("data");
    let mut lives = Vec::new();
    for number in 0..5 {
        let wall = FakeClock::new()?;
        let server = wall.over(Serve::new(&data)?).start()?;
        let mut life = Life { pid: server.pid(), ids: Vec::new() };
        take(&server, count / 15, &mut life)?;
        if number >= 3 {
            take_replayed(&server, &mut life)?;
        }
        clock::idle(Duration::from_millis(2_500));
        take(&server, count / 15, &mut life)?;
        if number % 2 == 1 {
            // Farther back than is caught up with: another worker is taken.
            let before: HashSet<_> = life.ids.iter().copied().map(worker).collect();
            wall.shift(-8_000)?;
            let mut client = server.client()?;
            clock::wait_until("another worker", Duration::from_secs(20), || {
                let id = client.try_next(Order::Fresh)?;
                life.ids.extend(id);
                Ok(id.is_some_and(|id| !before.contains(&worker(id))))
            })?;
        }
        // Ordered ids wait until the clock has passed the last one.
        take_of(&server, count / 15, &mut life, &[Order::Any, Order::Fresh])?;
        clock::idle(Duration::from_millis(1_500));
        // Beside the live server, by the folder and by its own word.
        let some: Vec<_> = life.ids.iter().rev().step_by(97).take(40).copied().collect();
        all_may_be_issued(home, &some, &["--server", &server.addr.to_string()])?;
        server.end(number % 2 == 0)?;
        lives.push(life);
    }
    Ok(lives)
}

/// Each names the life that issued it, and a window that its tick is in; windows of a worker do not overlap.
fn names_window_and_holder(
    life: &Life,
    answers: &[Value],
    windows: &mut BTreeMap<(u64, u64), u64>,
) -> Result<u64> {
    let mut replayed = 0;
    for (id, answer) in life.ids.iter().zip(answers) {
        replayed += u64::from(answer["verdict"] == "replayed");
        let holder = answer["holder"].as_str().with_context(|| format!("no holder: {answer}"))?;
        ensure!(holder.ends_with(&format!(" pid {}", life.pid)), "{answer} was issued by {}", life.pid);
        ensure!(answer["when"].is_string(), "{answer}");
        let bound =
            |name: &str| answer["window"][name].as_u64().with_context(|| format!("no window: {answer}"));
        let (from, to) = (bound("from_unix_ms")?, bound("to_unix_ms")?);
        ensure!((from..to).contains(&unix_ms(*id)), "{answer} is not in its window");
        ensure!(answer["worker"] == worker(*id) && answer["tick_unix_ms"] == unix_ms(*id), "{answer}");
        let known = windows.insert((worker(*id), from), to);
        ensure!(known.is_none_or(|known| known == to), "{answer}: it ended at {known:?} before");
    }
    Ok(replayed)
}

#[test]
fn ids_that_clients_got_may_be_issued_and_name_their_holder_and_others_mostly_are_not() -> Result<()> {
    let home = TempDir::new()?;
    let home = home.path();
    let lives = lives(home, many())?;
    let (mut windows, mut replayed, mut got) = (BTreeMap::new(), 0, HashSet::new());
    for life in &lives {
        let answers = all_may_be_issued(home, &life.ids, &[])?;
        replayed += names_window_and_holder(life, &answers, &mut windows)?;
        got.extend(life.ids.iter().copied());
    }
    ensure!(replayed > 0, "nothing was replayed: the attack hits nothing");
    let mut last: Option<((u64, u64), u64)> = None;
    for (&(worker, from), &to) in &windows {
        let overlaps = last.is_some_and(|((of, _), end)| of == worker && end > from);
        ensure!(!overlaps, "windows of worker {worker} overlap: {last:?} and {from} to {to}");
        last = Some(((worker, from), to));
    }
    println!("provenance: {} ids in {} windows, {replayed} replayed", got.len(), windows.len());

    // From idle and future ticks, of other workers, and out of the spill, after a last life with idle time.
    let mut rng = Rng::from_env("provenance");
    let data = home.join("data");
    let server = Server::start(&data)?;
    let mut life = Life { pid: server.pid(), ids: Vec::new() };
    let begin = clock::unix_ms();
    take(&server, 2_000, &mut life)?;
    clock::idle(Duration::from_secs(5));
    let end = clock::unix_ms() - 1_500;
    got.extend(life.ids.iter().copied());
    let held = worker(life.ids[life.ids.len() - 1]);
    let mut absent = Vec::new();
    while absent.len() < many() {
        let sequence = rng.below(4_096);
        let drawn = match absent.len() % 4 {
            0 | 1 => id(begin + rng.below(end - begin), held, sequence),
            2 => id(end + 200_000 + rng.below(3_600_000), held, sequence),
            _ => id(begin + rng.below(end - begin), rng.below(1_024), sequence),
        };
        if !got.contains(&drawn) {
            absent.push(drawn);
        }
    }
    most_are_not_issued(home, &absent, "beside the server")?;
    all_may_be_issued(home, &life.ids, &[])?;
    server.stop()?;
    most_are_not_issued(home, &absent, "after its stop")?;
    all_may_be_issued(home, &life.ids, &[])?;
    Ok(())
}

/// At least nine of ten ids that nobody got are said not to be issued.
fn most_are_not_issued(home: &Path, absent: &[u64], when: &str) -> Result<()> {
    let answers = ask(home, absent, &[])?;
    let no = answers.iter().filter(|answer| answer["issued"] == "no").count();
    let mut verdicts: BTreeMap<&str, u64> = BTreeMap::new();
    for answer in &answers {
        *verdicts.entry(answer["verdict"].as_str().unwrap_or("?")).or_default() += 1;
    }
    println!("provenance, {when}: {no} of {} that nobody got are not issued: {verdicts:?}", absent.len());
    ensure!(no * 10 >= absent.len() * 9, "only {no} of {} {when}: {verdicts:?}", absent.len());
    ensure!(verdicts.contains_key("put aside") && verdicts.contains_key("not granted"), "{verdicts:?}");
    Ok(())
}

#[test]
fn a_server_answers_for_itself_and_knows_what_it_has_not_cut() -> Result<()> {
    let (_home, data, _) = folder::fresh()?;
    let server = Server::start(&data)?;
    let mut client = server.client()?;
    let mut ask = |id: u64| -> Result<Value> {
        Ok(serde_json::from_slice(&client.call(op::PROVENANCE, &id.to_le_bytes())?)?)
    };
    let got = server.client()?.next(Order::Fresh)?;
    let granted = ask(got)?;
    let fields: Vec<_> = granted.as_object().context("an object")?.keys().cloned().collect();
    let wanted = ["holder", "id", "issued", "sources", "tick_unix_ms", "verdict", "when", "window", "worker"];
    ensure!(fields.iter().all(|field| wanted.contains(&field.as_str())) && fields.len() == 9, "{granted}");
    ensure!(granted["verdict"] == "granted" && granted["issued"] == "maybe", "{granted}");
    ensure!(
        granted["holder"].as_str().is_some_and(|holder| holder.ends_with(&format!("pid {}", server.pid()))),
        "{granted}"
    );
    // Within the window, and to come.
    let ahead = granted["window"]["to_unix_ms"].as_u64().context("a window")? - 1;
    let (at, of) = (unix_ms(got), worker(got));
    let cases = [
        (id(ahead, of, 4_095), "not cut"),
        (id(at + 3_600_000, of, 0), "not granted"),
        (id(at, of ^ 1, 0), "not granted"),
        (id(EPOCH_MS + 5, of, 0), "impossible"),
    ];
    for (id, verdict) in cases {
        let found = ask(id)?;
        ensure!(found["verdict"] == verdict && found["issued"] == "no", "{verdict}: {found}");
        ensure!(found["window"].is_null() && found["holder"].is_null(), "{found}");
    }
    // What it cut meanwhile it does not deny.
    let more = server.client()?.array(5_000, WAIT, Order::Any)?;
    for id in more.into_iter().step_by(250) {
        let found = ask(id)?;
        ensure!(found["issued"] == "maybe", "{found}");
    }
    let said = Xuid::new(["provenance", &got.to_string(), "--server", &server.addr.to_string()])?.run()?;
    ensure!(said.ok()?.contains("may have been issued") && said.ok()?.contains(" pid "), "{}", said.ok()?);
    server.stop()?;
    Ok(())
}

/// What becomes of the notes, and the file that they are in.
type Harm = fn(&Path) -> Result<()>;

#[test]
fn notes_that_are_damaged_cut_off_or_gone_say_less_and_keep_no_server_from_starting() -> Result<()> {
    let (home, data, _) = folder::fresh()?;
    let server = Server::start(&data)?;
    let mut life = Life { pid: server.pid(), ids: Vec::new() };
    take(&server, 2_000, &mut life)?;
    server.stop()?;
    let notes = data.join("windows.log");
    let harms: [(&str, Harm); 6] = [
        ("damaged", |notes| {
            let len = fs::metadata(notes)?.len();
            (0..len / 64).try_for_each(|note| folder::flip(notes, note * 64 + 41, 1))
        }),
        ("cut off", |notes| folder::shorten(notes, fs::metadata(notes)?.len() / 2 + 7)),
        ("emptied", |notes| folder::shorten(notes, 0)),
        ("removed", |notes| Ok(fs::remove_file(notes)?)),
        ("a folder", |notes| {
            fs::remove_file(notes)?;
            Ok(fs::create_dir(notes)?)
        }),
        ("rubbish", |notes| {
            fs::remove_dir(notes)?;
            Ok(fs::File::create(notes)?.write_all(&vec![0x5a; 100_000])?)
        }),
    ];
    for (what, harm) in harms {
        harm(&notes).with_context(|| what.to_owned())?;
        let answers = all_may_be_issued(home.path(), &life.ids, &[]).with_context(|| what.to_owned())?;
        let named = answers.iter().filter(|answer| answer["holder"].is_string()).count();
        let server = Server::start(&data).with_context(|| what.to_owned())?;
        let mut next = Life { pid: server.pid(), ids: Vec::new() };
        take(&server, 500, &mut next)?;
        println!("notes {what}: {named} of {} name their holder", life.ids.len());
        let answers = all_may_be_issued(home.path(), &next.ids, &[]).with_context(|| what.to_owned())?;
        for answer in &answers {
            let pid = format!(" pid {}", next.pid);
            ensure!(
                answer["holder"].as_str().is_none_or(|holder| holder.ends_with(&pid)),
                "{what}: {answer}"
            );
        }
        server.end(what != "cut off")?;
        life.ids.extend(next.ids);
    }
    Ok(())
}

/// The file that a folder's notes are in stays within its size, and no command writes it.
#[test]
fn the_command_writes_nothing() -> Result<()> {
    let (home, data, _) = folder::fresh()?;
    let server = Server::start(&data)?;
    let got = server.client()?.next(Order::Fresh)?;
    server.stop()?;
    let state = |data: &Path| -> Result<Vec<(PathBuf, Vec<u8>)>> {
        let mut files = folder::files(data, "")?;
        files.sort();
        files.into_iter().map(|path| Ok((path.clone(), fs::read(&path)?))).collect()
    };
    let before = state(&data)?;
    all_may_be_issued(home.path(), &[got], &[])?;
    ensure!(state(&data)? == before, "something was written");
    Ok(())
}
