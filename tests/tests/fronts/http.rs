//! The port for HTTP by curl, and what reaches it besides.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xuid_tests::{Rng, Serve, Server, clock, process};

use crate::LONG;

/// Segments that each of the clients of tinyid asks for, of a hundred ids.
const SEGMENTS: usize = 250;

fn serve() -> Result<Serve> {
    let serve = Serve::fresh()?.arg("--http").arg("127.0.0.1:0").arg("--sequences").arg("registry");
    Ok(serve.arg("--sequence-create").arg("test:*").arg("--sequence-step").arg("100"))
}

/// What curl prints: the body, and the status behind it.
fn curl(server: &Server, path: &str, words: &[&str]) -> Result<(String, u16)> {
    let mut command = Command::new("curl");
    command.args(["-sS", "-w", "\n%{http_code}"]).args(words).arg(format!("http://{}{path}", server.http()?));
    let (code, stdout, stderr) = process::run(command, LONG)?;
    ensure!(code == Some(0), "curl {path} says: {stderr}{stdout}");
    let (body, status) = stdout.rsplit_once('\n').context("no status")?;
    Ok((body.to_owned(), status.parse()?))
}

/// What a connection says to bytes, to its end.
fn exchange(server: &Server, bytes: &[u8]) -> Result<String> {
    let mut stream = TcpStream::connect(server.http()?)?;
    stream.set_read_timeout(Some(Duration::from_mins(1)))?;
    stream.write_all(bytes)?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn curl_gets_from_every_path_what_its_clients_know() -> Result<()> {
    let server = serve()?.start()?;
    let json = ["-H", "Content-Type: application/json"];
    let put = |body| [&["-X", "PUT", "-d", body][..], &json].concat();
    let done = r#"{"code":0,"msg":"success","data":null}"#;
    let (create, init) = (r#"{"biz_tag":"tag","descprition":"x"}"#, r#"{"biz_tag":"tag"}"#);
    for (path, words, body) in [
        ("/api/leaf", [&["-d", create][..], &json].concat(), done),
        ("/api/leaf/init/cache", put(init), done),
        ("/api/leaf/step", put(r#"{"step":100,"biz_tag":"tag"}"#), done),
        ("/api/leaf?biz_tag=tag", vec![], r#"{"code":0,"msg":"success","data":{"ID":1}}"#),
        ("/api/segment/get/tag", vec![], "2"),
        ("/api/segment/get/tag", vec!["-X", "POST"], "3"),
        ("/tinyid/id/nextId?bizType=tag&token=x", vec![], r#"{"data":[4],"code":200,"message":""}"#),
        ("/tinyid/id/nextIdSimple", vec!["-d", "bizType=tag&token=x&batchSize=3"], "5,6,7"),
        ("/tinyid/id/nextSegmentIdSimple?bizType=tag&token=x", vec![], "7,27,107,1,0"),
        (
            "/tinyid/id/nextSegmentId?bizType=tag&token=x",
            vec![],
            r#"{"data":{"maxId":207,"loadingId":127,"currentId":107,"delta":1,"remainder":0},"code":200,"message":""}"#,
        ),
        (
            "/decodeSnowflakeId?snowflakeId=4198400",
            vec![],
            r#"{"timestamp":"1524153600001(2018-04-19 16:00:00.001)","sequenceId":"0","workerId":"1"}"#,
        ),
    ] {
        let said = curl(&server, path, &words)?;
        ensure!(said == (body.to_owned(), 200), "{path}: {said:?}");
    }
    let id: u64 = curl(&server, "/api/snowflake/get/any", &[])?.0.parse()?;
    ensure!(id > 1 << 32);
    let (page, status) = curl(&server, "/api/segment/get/typo", &[])?;
    ensure!(status == 500 && page.contains("\"message\":\"Result{id=-2, status=EXCEPTION}\""), "{page}");
    ensure!(curl(&server, "/v1/openapi.json", &[])?.1 == 200);
    server.stop().map(drop)
}

#[test]
fn tinyids_clients_cut_segments_into_ids_of_which_none_comes_twice() -> Result<()> {
    let home = tempfile::tempdir()?;
    let start = || {
        let serve =
            Serve::new(home.path())?.arg("--http").arg("127.0.0.1:0").arg("--sequences").arg("registry");
        serve.arg("--sequence-create").arg("test:*").arg("--sequence-step").arg("100").start()
    };
    let mut server = start()?;
    let name = format!("test:{}", Rng::from_env("tinyid").below(1_000_000));
    let mut all = BTreeSet::new();
    for life in 0..2 {
        let addr = server.http()?;
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let line = format!(
                    "GET /tinyid/id/nextSegmentIdSimple?bizType={name}&token=x HTTP/1.1\r\nHost: x\r\n\r\n"
                );
                thread::spawn(move || -> Result<Vec<u64>> {
                    let (mut stream, mut ids) = (TcpStream::connect(addr)?, Vec::new());
                    stream.set_read_timeout(Some(LONG))?;
                    for _ in 0..SEGMENTS {
                        stream.write_all(line.as_bytes())?;
                        let (mut said, mut piece) = (String::new(), [0; 1_024]);
                        while said.split_once("\r\n\r\n").is_none_or(|(_, body)| body.is_empty()) {
                            let count = stream.read(&mut piece)?;
                            ensure!(count > 0, "closed behind {said:?}");
                            said.push_str(str::from_utf8(&piece[..count])?);
                        }
                        let body = said.split_once("\r\n\r\n").context("no body")?.1;
                        let parts = body.split(',').map(str::parse).collect::<Result<Vec<u64>, _>>()?;
                        let [current, _, most, delta, remainder] = parts[..] else { anyhow::bail!("{body}") };
                        ids.extend((current + 1..=most).filter(|id| id % delta == remainder));
                    }
                    Ok(ids)
                })
            })
            .collect();
        for worker in workers {
            for id in worker.join().ok().context("a client panicked")?? {
                ensure!(all.insert(id), "{id} came twice");
            }
        }
        if life == 0 {
            // Killed in the middle of what it held: a gap, and nothing twice.
            server.kill()?;
            server = start()?;
        }
    }
    ensure!(all.len() == 2 * 4 * SEGMENTS * 100, "{} ids", all.len());
    println!("{} ids up to {:?}", all.len(), all.last());
    server.stop().map(drop)
}

#[test]
fn requests_in_one_piece_are_answered_in_their_order_and_a_stop_answers_what_was_asked() -> Result<()> {
    let server = serve()?.start()?;
    let get = "GET /api/segment/get/test:a HTTP/1.1\r\nHost: x\r\n";
    let said = exchange(
        &server,
        format!("{}{get}Connection: close\r\n\r\n", format!("{get}\r\n").repeat(999)).as_bytes(),
    )?;
    let bodies: Vec<&str> = said
        .split("HTTP/1.1 200 OK\r\n")
        .skip(1)
        .filter_map(|reply| reply.split("\r\n\r\n").nth(1))
        .collect();
    ensure!(bodies.len() == 1_000, "{} replies", bodies.len());
    ensure!(bodies.iter().enumerate().all(|(at, body)| *body == (at + 1).to_string()), "{bodies:?}");
    let mut open = TcpStream::connect(server.http()?)?;
    open.set_read_timeout(Some(LONG))?;
    open.write_all(format!("{get}\r\n").as_bytes())?;
    let stopping = thread::spawn(move || server.stop());
    let mut said = String::new();
    open.read_to_string(&mut said)?;
    ensure!(said.ends_with("\r\n\r\n1001"), "{said}");
    stopping.join().ok().context("a thread panicked")?.map(drop)
}

#[test]
fn bad_peers_are_gone_by_their_deadlines_and_others_are_served() -> Result<()> {
    let server = serve()?.start()?;
    let begin = clock::now();
    let mut bad = Vec::new();
    for said in [&b""[..], b"GET / HT", b"POST /v1/ids HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n\r\n{"] {
        for _ in 0..20 {
            let mut stream = TcpStream::connect(server.http()?)?;
            stream.set_read_timeout(Some(LONG))?;
            stream.write_all(said)?;
            bad.push(stream);
        }
    }
    let rubbish = exchange(&server, b"\x16\x03\x01 rubbish\r\n\r\n")?;
    ensure!(rubbish.starts_with("HTTP/1.1 400 "), "{rubbish}");
    let huge = exchange(&server, b"POST /v1/ids HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n")?;
    ensure!(huge.starts_with("HTTP/1.1 413 "), "{huge}");
    ensure!(curl(&server, "/api/segment/get/test:b", &[])?.0 == "1");
    for mut stream in bad {
        let mut said = Vec::new();
        stream.read_to_end(&mut said)?;
    }
    let took = begin.elapsed();
    ensure!(took > Duration::from_secs(8) && took < Duration::from_secs(25), "gone after {took:?}");
    server.stop().map(drop)
}

#[test]
fn a_token_is_asked_for_as_each_kind_of_client_says_one() -> Result<()> {
    let server = serve()?.env("XUID_TOKEN", "s3cret").start()?;
    let header = ["-H", "Authorization: Bearer s3cret"];
    for path in ["/api/segment/get/test:c", "/api/leaf?biz_tag=test:c", "/v1/sequences", "/v1/openapi.json"] {
        ensure!(curl(&server, path, &[])?.1 == 401, "{path} without a token");
        ensure!(
            curl(&server, path, &["-H", "Authorization: Bearer wrong"])?.1 == 401,
            "{path} with a wrong one"
        );
        ensure!(curl(&server, path, &header)?.1 == 200, "{path} with one");
    }
    let tiny = "/tinyid/id/nextIdSimple?bizType=test:c&token=";
    ensure!(curl(&server, &format!("{tiny}wrong"), &[])? == (String::new(), 200));
    ensure!(curl(&server, &format!("{tiny}s3cret"), &[])? == ("3".to_owned(), 200));
    let said = curl(&server, "/tinyid/id/nextId?bizType=test:c&token=wrong", &[])?;
    ensure!(said == (r#"{"data":null,"code":5,"message":"token is error"}"#.to_owned(), 200), "{said:?}");
    server.stop().map(drop)
}

#[test]
fn off_loopback_it_needs_tls_and_a_token_and_off_nothing_listens() -> Result<()> {
    let refused = Serve::fresh()?.arg("--http").arg("0.0.0.0:0").run_to_exit()?;
    ensure!(refused.code == Some(2) && refused.stderr.contains("http is bound to 0.0.0.0"), "{refused:?}");
    let server = Serve::fresh()?.start()?;
    ensure!(server.http().is_err() && !server.banner().contains("clients of"), "{server}");
    server.stop().map(drop)
}

#[test]
fn schemathesis_finds_nothing_against_the_document_of_v1() -> Result<()> {
    let program = std::env::var_os("XUID_SCHEMATHESIS")
        .context("XUID_SCHEMATHESIS names the program: tests/run fronts sets it")?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/http");
    for token in [None, Some("s3cret")] {
        let mut serve = serve()?;
        let mut command = Command::new(&program);
        command.arg("--config-file").arg(folder.join("schemathesis.toml")).arg("run");
        if let Some(token) = token {
            serve = serve.env("XUID_TOKEN", token);
            command.args(["--header", &format!("Authorization: Bearer {token}")]);
        }
        let server = serve.start()?;
        // It leaves its notes where it runs.
        let home = tempfile::tempdir()?;
        command.arg(format!("http://{}/v1/openapi.json", server.http()?)).args(["-n", "50", "--no-color"]);
        command.current_dir(home.path());
        let (code, stdout, stderr) = process::run(command, 2 * LONG)?;
        ensure!(code == Some(0), "schemathesis says: {stderr}{stdout}");
        println!("{}", stdout.lines().filter(|line| line.contains("generated")).collect::<String>());
        server.stop()?;
    }
    Ok(())
}
