//! Servers of layouts of other generators: what they answer in each way is of that layout, and a crash repeats nothing.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use xuid_tests::{Client, ClientError, Order, Serve, Xuid, clock, folder, status};

const WAIT: Duration = Duration::from_secs(5);

/// A layout as a test knows it: by the arithmetic of those whose it is.
struct Known {
    name: &'static str,
    bits: u32,
    unix_ms: fn(u64) -> u64,
    worker: fn(u64) -> u64,
    sequence: fn(u64) -> u64,
    stride: u32,
}

const KNOWN: [Known; 3] = [
    Known {
        name: "twitter",
        bits: 63,
        unix_ms: |id| (id >> 22) + 1_288_834_974_657,
        worker: |id| id >> 12 & 0x3ff,
        sequence: |id| id & 0xfff,
        stride: 1,
    },
    Known {
        name: "sonyflake",
        bits: 63,
        unix_ms: |id| (id >> 24) * 10 + 1_409_529_600_000,
        worker: |id| id & 0xffff,
        sequence: |id| id >> 16 & 0xff,
        stride: 1 << 16,
    },
    Known {
        name: "js",
        bits: 53,
        unix_ms: |id| (id >> 12) + 1_524_153_600_000,
        worker: |id| id >> 7 & 0x1f,
        sequence: |id| id & 0x7f,
        stride: 1,
    },
];

impl Known {
    /// An id is new, within its bits, of about now, and the server takes it apart as its owners would.
    fn check(&self, client: &mut Client, id: u64, seen: &mut HashSet<u64>) -> Result<()> {
        let Self { name, bits, .. } = self;
        ensure!(seen.insert(id), "{name}: {id} came twice");
        ensure!(id >> bits == 0, "{name}: {id} has more than {bits} bits");
        let age = clock::unix_ms().abs_diff((self.unix_ms)(id));
        ensure!(age < 700_000, "{name}: {id} is {age} ms from now");
        let parts = client.decode(id)?;
        let told = (parts.unix_ms, u64::from(parts.worker), u64::from(parts.sequence));
        let wanted = ((self.unix_ms)(id), (self.worker)(id), (self.sequence)(id));
        ensure!(told == wanted, "{name}: {id} is told as {told:?} and is {wanted:?}");
        Ok(())
    }

    fn draw(&self, client: &mut Client, seen: &mut HashSet<u64>) -> Result<()> {
        for order in Order::ALL {
            let mut last = 0;
            for round in 1..=20 {
                let mut ids = vec![client.next(order)?];
                ids.extend(client.array(round * 3, WAIT, order)?);
                for run in client.runs(round * 5, WAIT, order)? {
                    ensure!(run.stride == self.stride, "{}: {run:?}", self.name);
                    ids.extend((0..u64::from(run.count)).map(|at| run.first + at * u64::from(run.stride)));
                }
                for id in ids {
                    ensure!(order != Order::Ordered || id > last, "{}: {id} after {last}", self.name);
                    last = id;
                    self.check(client, id, seen)?;
                }
            }
        }
        Ok(())
    }
}

#[test]
fn ids_of_named_layouts_are_what_their_owners_would_issue_and_no_crash_repeats_one() -> Result<()> {
    for known in &KNOWN {
        let (_home, data, _) = folder::fresh()?;
        let mut seen = HashSet::new();
        for life in 0..3 {
            let server = Serve::new(&data)?.arg("--layout").arg(known.name).arg("--floor=-3h").start()?;
            let mut client = server.client()?;
            known.draw(&mut client, &mut seen)?;
            // Long enough for the spill to have something.
            clock::idle(Duration::from_millis(1_500));
            if life == 1 {
                server.stop()?
            } else {
                server.kill()?
            };
        }
        println!("layouts: {} ids of {}, none twice", seen.len(), known.name);
    }
    Ok(())
}

/// The key of the published vector of Speck64/128.
const KEY: &str = "1b1a1918131211100b0a090803020100\n";

/// Opaque ids of every call, each opened by the server: new, one a run, and of now.
fn draw_opaque(client: &mut Client, seen: &mut HashSet<u64>) -> Result<()> {
    for order in [Order::Any, Order::Fresh] {
        for round in 1..=20 {
            let mut ids = vec![client.next(order)?];
            ids.extend(client.array(round * 3, WAIT, order)?);
            for run in client.runs(round * 5, WAIT, order)? {
                ensure!((run.count, run.stride) == (1, 1), "{run:?}");
                ids.push(run.first);
            }
            for id in ids {
                ensure!(id >> 63 == 0 && seen.insert(id), "{id} came twice, or is none");
                let age = clock::unix_ms().abs_diff(client.decode(id)?.unix_ms);
                ensure!(age < 700_000, "{id} is opened as {age} ms from now");
            }
        }
    }
    let asked = [
        client.next(Order::Ordered).map(drop),
        client.array(2, WAIT, Order::Ordered).map(drop),
        client.runs(2, WAIT, Order::Ordered).map(drop),
    ];
    for answer in asked {
        let is_refused = matches!(&answer, Err(ClientError::Refused(why)) if why.status == status::NO_ORDER);
        ensure!(is_refused, "{answer:?} to a call for ordered ids");
    }
    Ok(())
}

/// Where there is no registry, the server makes one of opaque ids; later ones need its key, and no crash repeats an id.
#[test]
fn opaque_ids_need_their_key_for_ever_and_no_crash_repeats_one() -> Result<()> {
    let (home, data, _) = folder::fresh()?;
    let [key, other] = [("key", KEY.to_owned()), ("other", KEY.replace('a', "b"))].map(|(name, text)| {
        let path = home.path().join(name);
        std::fs::write(&path, text).map(|()| path)
    });
    let (key, other) = (key?, other?);
    let mut seen = HashSet::new();
    for life in 0..3 {
        let server = Serve::new(&data)?.arg("--opaque-key-file").arg(&key).start()?;
        let (mut client, hello) = Client::hello(server.addr)?;
        ensure!(hello.face == 2, "{hello:?}");
        draw_opaque(&mut client, &mut seen)?;
        // Long enough for the spill to have something.
        clock::idle(Duration::from_millis(1_500));
        if life == 1 {
            server.stop()?
        } else {
            server.kill()?
        };
        for (given, says) in [(None, "no key was given"), (Some(&other), "not the one")] {
            let mut serve = Serve::new(&data)?;
            if let Some(given) = given {
                serve = serve.arg("--opaque-key-file").arg(given);
            }
            let refused = serve.run_to_exit()?.refused(1)?;
            ensure!(refused.contains(says), "{refused}");
        }
    }
    println!("layouts: {} opaque ids, none twice", seen.len());
    Ok(())
}

#[test]
fn decode_and_decode_at_take_a_layout_by_name() -> Result<()> {
    let id = (1_000_u64 << 24) | (7 << 16) | 0x2a;
    let said = Xuid::new(["decode", "--layout", "sonyflake", "--json", &id.to_string()])?.run()?;
    let json = said.json()?;
    ensure!(json["worker"] == 42 && json["sequence"] == 7, "{json}");
    let at = Xuid::new(["decode", "--layout", "sonyflake", "--at", "2014-09-01T00:00:10Z"])?.run()?;
    ensure!(at.ok()?.starts_with(&(1_000_u64 << 24).to_string()), "{at:?}");
    let refused = Xuid::new(["decode", "--layout", "sonyflak", "1"])?.run()?.refused(2)?;
    ensure!(refused.contains("sonyflake"), "{refused}");
    Ok(())
}
