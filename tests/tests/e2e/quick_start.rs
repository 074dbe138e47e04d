//! The first minutes with the server: start it on nothing, and try what its banner says.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::io::{ioctl_fionbio, ioctl_fionread};
use serde_json::Value;
use tempfile::TempDir;
use xuid_tests::{Ledger, Order, Output, Serve, Xuid, binary, clock, http, process};

/// The default layout: milliseconds since 2018-04-20 00:00 +08:00, 10 bits of worker, 12 of sequence.
const EPOCH_MS: u64 = 1_524_153_600_000;

fn ids(output: &Output) -> Result<Vec<u64>> {
    output.ok()?.lines().map(|line| line.trim().parse().with_context(|| format!("no id: {line}"))).collect()
}

/// `YYYY-MM-DDTHH:MM:SS.mmm` in UTC, by the calendar's arithmetic (400 years are 146,097 days).
fn utc(unix_ms: u64) -> String {
    let (days, ms) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}", ms % 1_000)
}

#[test]
fn a_server_started_on_nothing_answers_the_commands_of_its_banner() -> Result<()> {
    let home = TempDir::new()?;
    let server = Serve::bare()?.cwd(home.path()).start()?;
    let banner = server.banner();
    println!("quick start: the banner\n{banner}");
    let mut ledger = Ledger::default();
    banner_commands_work(&banner, home.path(), &mut ledger)?;
    let data = home.path().join("xuid-data");
    ensure!(data.is_dir() && data.join("node.json").is_file(), "the default folder is ./xuid-data");

    let addr = server.addr.to_string();
    let before = clock::unix_ms();
    let next = ids(&Xuid::new(["next", "-n", "5", "--server", &addr])?.run()?)?;
    let after = clock::unix_ms();
    ensure!(next.len() == 5, "five ids: {next:?}");
    for id in &next {
        ledger.add_id(*id);
    }
    for order in ["any", "fresh", "ordered"] {
        let more = Xuid::new(["next", "-n", "1000", "--order", order, "--server", &addr])?.run()?;
        let more = ids(&more)?;
        ensure!(more.len() == 1_000);
        ensure!(order != "ordered" || more.is_sorted(), "ordered ids ascend");
        ledger.extend(more);
    }
    ledger.check()?;
    decode_tells_the_wall_time(&next, before, after)?;

    let inspected = Xuid::new(["inspect"])?.arg(&data).run()?;
    ensure!(inspected.ok()?.to_lowercase().contains("extents"), "inspect: {}", inspected.stdout);
    let workers = Xuid::new(["workers"])?.cwd(home.path()).run()?;
    let worker = (next[0] >> 12 & 0x3ff).to_string();
    ensure!(workers.ok()?.contains(&worker), "worker {worker} is not in\n{}", workers.stdout);
    let json = Xuid::new(["next", "-n", "2", "--json", "--server", &addr])?.run()?;
    ensure!(json.ok()?.contains('"'), "ids in JSON are strings: {}", json.stdout);
    for (path, word) in [("/livez", ""), ("/readyz", ""), ("/metrics", "# TYPE"), ("/", "xuid")] {
        let (status, body) = http::get(server.admin, path)?;
        ensure!(status == 200 && body.contains(word), "{path} answers {status}: {body}");
    }
    server.stop().map(drop)
}

/// The search path of a person who installed the binary.
fn path_with_binary() -> Result<String> {
    let dir = binary()?.parent().context("a folder")?.display();
    Ok(format!("{dir}:{}", std::env::var("PATH").unwrap_or_default()))
}

/// Runs what the banner says, word by word, in the folder where the server was started.
fn banner_commands_work(banner: &str, cwd: &Path, ledger: &mut Ledger) -> Result<()> {
    let (_, tries) = banner.split_once("try:").context("nothing to try")?;
    let tries: Vec<&str> = tries.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    ensure!(tries.len() == 3, "three commands to try: {tries:?}");
    for line in tries {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(cwd).env("PATH", path_with_binary()?);
        let (code, stdout, stderr) = process::run(shell, Duration::from_secs(20))?;
        println!("quick start: $ {line}\n{stdout}{stderr}");
        ensure!(code == Some(0) && !stdout.trim().is_empty(), "{line}: {code:?} {stderr}");
        if line.contains(" next ") {
            stdout.lines().map(str::trim).try_for_each(|id| id.parse().map(|id| ledger.add_id(id)))?;
        }
        // The id to decode is one that the server issued to its banner.
        if let Some((_, id)) = line.split_once(" decode ") {
            ledger.add_id(id.trim().parse()?);
        }
    }
    ensure!(ledger.report().ids == 6, "five ids and the one of the banner");
    Ok(())
}

/// `xuid decode` against the arithmetic of the layout and against the clock.
fn decode_tells_the_wall_time(next: &[u64], before: u64, after: u64) -> Result<()> {
    for id in next {
        let output = Xuid::new(["decode", "--json", &id.to_string()])?.run()?;
        let decoded = output.json()?;
        let unix_ms = decoded["unix_ms"].as_u64().context("unix_ms")?;
        ensure!(unix_ms == (id >> 22) + EPOCH_MS, "{id} is of {unix_ms}?");
        // `any` at light load: of the last two seconds; a server that just began may not reach back at all.
        ensure!(unix_ms + 2_100 >= before && unix_ms <= after + 20, "{unix_ms} is not in {before}..{after}");
        ensure!(decoded["id"].as_str() == Some(&id.to_string()), "{decoded}");
        ensure!(decoded["worker"].as_u64() == Some(id >> 12 & 0x3ff), "{decoded}");
        ensure!(decoded["sequence"].as_u64() == Some(id & 0xfff), "{decoded}");
        let time = decoded["time"].as_str().context("time")?;
        ensure!(time.starts_with(&utc(unix_ms)), "{time} is not {}", utc(unix_ms));
        let plain = Xuid::new(["decode", &id.to_string()])?.run()?;
        let shown = plain.ok()?;
        ensure!(shown.contains(&format!(".{:03}", unix_ms % 1_000)), "no milliseconds in {shown}");
    }
    Ok(())
}

#[test]
fn decode_knows_other_layouts_and_epochs_offline() -> Result<()> {
    ensure!(utc(951_782_400_000) == "2000-02-29T00:00:00.000", "the calendar of this test");
    let id = ((1_000_000_u64 << 21) + (300 << 12) + 77).to_string();
    let decoded = Xuid::new(["decode", "--json", "--layout", "42/9/12", "--epoch", "1600000000000", &id])?
        .run()?
        .json()?;
    let field = |name: &str| decoded[name].as_u64();
    ensure!(field("unix_ms") == Some(1_600_001_000_000), "{decoded}");
    ensure!((field("worker"), field("sequence")) == (Some(300), Some(77)), "{decoded}");
    Ok(())
}

#[test]
fn wrong_usage_ends_with_2_and_failure_with_1_and_both_say_why() -> Result<()> {
    let home = TempDir::new()?;
    for wrong in
        [&["serve", "--nonsense"][..], &["nonsense"], &["next", "--order", "sideways"], &["next", "-n", "x"]]
    {
        let said = Xuid::new(wrong)?.cwd(home.path()).run()?.refused(2)?;
        ensure!(wrong.iter().any(|word| said.contains(word)), "{wrong:?}: {said}");
    }
    let said = Xuid::new(["next", "--server", "127.0.0.1:1"])?.run()?.refused(1)?;
    ensure!(said.contains("127.0.0.1:1"), "{said}");
    let nowhere = home.path().join("nowhere");
    let said = Xuid::new(["inspect"])?.arg(&nowhere).run()?.refused(1)?;
    ensure!(said.contains("nowhere"), "{said}");
    ensure!(!nowhere.exists(), "inspect is read-only");
    let nonsense = Xuid::new(["decode", "twelve"])?.run()?;
    ensure!(matches!(nonsense.code, Some(1 | 2)) && nonsense.stderr.contains("twelve"), "{nonsense:?}");
    Ok(())
}

#[test]
fn an_unknown_key_or_an_impossible_value_is_an_error_that_names_it() -> Result<()> {
    let home = TempDir::new()?;
    let config = home.path().join("xuid.toml");
    for (text, names) in
        [("lisen = \"127.0.0.1:0\"\n", &["lisen"][..]), ("wait = \"yesterday\"\n", &["wait", "yesterday"])]
    {
        fs::write(&config, text)?;
        let output = Serve::bare()?.cwd(home.path()).arg("--config").arg(&config).run_to_exit()?;
        ensure!(matches!(output.code, Some(1 | 2)), "{output:?}");
        let said = format!("{}{}", output.stdout, output.stderr);
        ensure!(names.iter().all(|name| said.contains(name)), "{names:?} not named: {said}");
        ensure!(
            !home.path().join("xuid-data").exists(),
            "nothing is created before the settings are checked"
        );
    }
    let output = Serve::bare()?.cwd(home.path()).env("XUID_WAIT", "-3s").run_to_exit()?;
    ensure!(matches!(output.code, Some(1 | 2)) && output.stderr.contains("-3s"), "{output:?}");
    // A flag goes before a variable, a variable before the file.
    let (file_dir, env_dir, flag_dir) =
        (home.path().join("file"), home.path().join("env"), home.path().join("flag"));
    fs::write(&config, format!("data_dir = {file_dir:?}\n"))?;
    let with = |serve: Serve| -> Result<Serve> { Ok(serve.cwd(home.path()).arg("--config").arg(&config)) };
    with(Serve::bare()?)?.start()?.stop()?;
    with(Serve::bare()?)?.env("XUID_DATA_DIR", &env_dir.to_string_lossy()).start()?.stop()?;
    ensure!(file_dir.is_dir() && env_dir.is_dir() && !flag_dir.exists());
    let server = with(Serve::new(&flag_dir)?)?.env("XUID_DATA_DIR", "/dev/null/impossible").start()?;
    server.client()?.next(Order::Any)?;
    server.stop()?;
    ensure!(flag_dir.is_dir());
    Ok(())
}

#[test]
fn the_json_of_a_decode_of_several_ids_has_one_object_an_id() -> Result<()> {
    let output = Xuid::new(["decode", "--json", "4194304", "8388608"])?.run()?;
    let objects: Vec<Value> =
        serde_json::Deserializer::from_str(output.ok()?).into_iter().collect::<Result<_, _>>()?;
    // Either a line each, or one array of them.
    let flat: Vec<Value> = match &objects[..] {
        [Value::Array(list)] => list.clone(),
        other => other.to_vec(),
    };
    ensure!(flat.len() == 2 && flat[1]["id"].as_str() == Some("8388608"), "{flat:?}");
    Ok(())
}

#[test]
fn a_list_goes_whole_into_a_pipe_that_does_not_block() -> Result<()> {
    let (mut reader, writer) = std::io::pipe()?;
    ioctl_fionbio(&writer, true)?;
    let ids = (1..=5_000_u64).map(|tick| (tick << 22).to_string());
    let mut child = Command::new(binary()?).arg("decode").args(ids).stdout(writer).spawn()?;
    // From 64 KiB on it takes no more.
    clock::wait_until("the pipe is full, or given up", Duration::from_secs(20), || {
        Ok(child.try_wait()?.is_some() || ioctl_fionread(&reader)? >= 56 << 10)
    })?;
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    let (status, lines) = (child.wait()?, text.lines().count());
    ensure!(status.success() && lines == 5_000 && text.ends_with('\n'), "{status}, {lines} lines");
    Ok(())
}
