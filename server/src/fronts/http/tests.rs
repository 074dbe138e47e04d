//! The conversation without a socket: bytes in, bytes out.

use std::time::Duration;

use tokio::runtime::Builder;
use xuid_engine::registry::local::sequences::LocalSequences;
use xuid_engine::sequence::store::NewSequence;
use xuid_engine::sequence::store::registry::RegistryStore;
use xuid_engine::sequence::{NamePattern, Sequences};
use xuid_engine::{Engine, Floor};
use xuid_protocol::Limits as ProtocolLimits;

use super::*;
use crate::config::Tokens;
use crate::state::access::AccessRules;
use crate::state::sequences::ServedSequences;
use crate::state::server::{Limits, Places};

/// So long may ids take that must come: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server in a folder of its own that keeps sequences, `orders` among them.
struct Home {
    server: Arc<Server>,
    _folder: tempfile::TempDir,
}

impl Home {
    fn new(tokens: Tokens) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let decade = Duration::from_hours(10 * 365 * 24);
        let engine =
            Engine::builder().data_dir(folder.path()).floor(Floor::Epoch).max_age(decade).backfill(decade);
        let limits = Limits { wait: PATIENCE, protocol: ProtocolLimits::default() };
        let places =
            Places { listen: "127.0.0.1:7654".parse().unwrap(), admin: None, resp: None, http: None };
        let server = Server::new(engine.build().unwrap(), limits, AccessRules::new(tokens, None), places);
        let records = || Box::new(LocalSequences::open_or_create(folder.path(), None).unwrap());
        let store = Box::new(RegistryStore::new(records()));
        let builder = Sequences::builder(store).records(records()).data_dir(folder.path());
        let all = builder.create(["auto:*"].map(NamePattern::new)).build().unwrap();
        all.create(&"orders".parse().unwrap(), NewSequence::default()).wait().unwrap();
        let sequences = ServedSequences { all, step: 1_000 };
        Self { server: Arc::new(server.with_sequences(Some(sequences))), _folder: folder }
    }

    fn talk(&self) -> Talk {
        Talk {
            session: Session::new(Arc::clone(&self.server), None),
            inbox: Inbox::default(),
            outbox: Outbox::default(),
        }
    }
}

/// A client and its session, with buffers in between.
struct Talk {
    session: Session,
    inbox: Inbox,
    outbox: Outbox,
}

impl Talk {
    fn send(&mut self, bytes: &[u8]) -> Need {
        self.inbox.room(bytes.len()).extend_from_slice(bytes);
        self.session.receive(&mut self.inbox, &mut self.outbox, usize::MAX)
    }

    /// What so many bytes are answered with, waiting included.
    fn say(&mut self, bytes: &[u8]) -> String {
        self.send(bytes);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            while self.session.in_flight() > 0 {
                let done = self.session.waited().await;
                self.session.finish(done, &mut self.outbox);
                self.session.receive(&mut self.inbox, &mut self.outbox, usize::MAX);
            }
        });
        let said = String::from_utf8(self.outbox.rest().to_vec()).unwrap();
        self.outbox.consume(self.outbox.len());
        said
    }

    /// Status and body of the reply to one request.
    fn ask(&mut self, line: &str, fields: &str, body: &str) -> (u16, String) {
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let said = self.say(format!("{line} HTTP/1.1\r\nHost: x\r\n{fields}{length}\r\n{body}").as_bytes());
        let (head, body) = said.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{line}: {said:?}"));
        let length = format!("\r\nContent-Length: {}", body.len());
        assert!(line.starts_with("HEAD") || head.ends_with(&length), "{head}");
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    fn get(&mut self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path}"), "", "")
    }

    fn json(&mut self, line: &str, body: &str) -> (u16, String) {
        self.ask(line, "Content-Type: application/json\r\n", body)
    }
}

fn ok(body: &str) -> (u16, String) {
    (200, body.to_owned())
}

#[test]
fn leafs_paths_answer_as_leaf_does() {
    let home = Home::new(Tokens::default());
    let mut talk = home.talk();
    assert_eq!(talk.get("/api/segment/get/orders"), ok("1"));
    assert_eq!(talk.ask("POST /api/segment/get/%6frders", "", ""), ok("2"));
    assert_eq!(talk.get("/api/segment/get/auto:new"), ok("1"), "created by its first use");
    let (status, id) = talk.get("/api/snowflake/get/whatever");
    assert!(status == 200 && id.parse::<u64>().unwrap() > 1 << 32, "{id}");
    assert_eq!(talk.ask("HEAD /api/segment/get/orders", "", "").0, 405);
    assert_eq!(talk.get("/api/segment/get/orders"), ok("3"), "HEAD took none");
    let said = talk.get("/decodeSnowflakeId?snowflakeId=4198400").1;
    let wanted = r#"{"timestamp":"1524153601000(2018-04-19 16:00:01.000)","sequenceId":"0","workerId":"1"}"#;
    assert_eq!(said, wanted.replace("1000(2018-04-19 16:00:01.000", "0001(2018-04-19 16:00:00.001"));
    for (path, code) in [("typo", -2), ("%40any", -2), ("", -2)] {
        let path = format!("/api/segment/get/{path}");
        let (status, said) = talk.get(&path);
        let page: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(
            (status, &page["status"], &page["path"]),
            (500, &500.into(), &path.as_str().into()),
            "{said}"
        );
        assert_eq!(page["message"], format!("Result{{id={code}, status=EXCEPTION}}"));
        assert!(
            page["timestamp"].is_u64()
                && page["detail"].is_string()
                && page["error"] == "Internal Server Error"
        );
    }
}

#[test]
fn tinyids_paths_answer_as_tinyid_does() {
    let home = Home::new(Tokens::default());
    let mut talk = home.talk();
    let wanted = r#"{"data":[1],"code":200,"message":""}"#;
    assert_eq!(talk.get("/tinyid/id/nextId?bizType=orders&token=any"), ok(wanted));
    assert_eq!(talk.get("/tinyid/id/nextIdSimple?bizType=orders&token=x&batchSize=3"), ok("2,3,4"));
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let said = talk.ask("POST /tinyid/id/nextIdSimple", form, "bizType=orders&batchSize=2&token=x");
    assert_eq!(said, ok("5,6"));
    assert_eq!(talk.get("/tinyid/id/nextSegmentIdSimple?bizType=orders&token=x"), ok("6,206,1006,1,0"));
    let wanted = r#"{"data":{"maxId":2006,"loadingId":1206,"currentId":1006,"delta":1,"remainder":0},"code":200,"message":""}"#;
    assert_eq!(talk.get("/tinyid/id/nextSegmentId?bizType=orders&token=x"), ok(wanted));
    assert_eq!(talk.json("PUT /v1/sequences/odd", r#"{"increment":2,"remainder":1,"step":5}"#).0, 201);
    assert_eq!(home.talk().get("/tinyid/id/nextSegmentIdSimple?bizType=odd"), ok("0,1,9,2,1"));
    assert_eq!(home.talk().get("/tinyid/id/nextSegmentIdSimple?bizType=auto:tiny"), ok("0,200,1000,1,0"));
    let (status, said) = talk.get("/tinyid/id/nextId?bizType=typo");
    assert!(status == 200 && said.starts_with(r#"{"data":null,"code":6,"message":""#), "{said}");
    assert_eq!(talk.get("/tinyid/id/nextIdSimple?bizType=typo"), ok(""));
    assert!(talk.get("/tinyid/id/nextId?bizType=orders&batchSize=x").1.contains("\"code\":6"));
    let most = talk.get("/tinyid/id/nextIdSimple?bizType=orders&batchSize=1000000").1;
    assert_eq!(most.split(',').count(), 100_000);
}

#[test]
fn a_wrong_token_of_tinyid_is_told_as_tinyid_tells_it() {
    let home = Home::new(Tokens::of("s3cret"));
    let mut talk = home.talk();
    let said = talk.get("/tinyid/id/nextId?bizType=orders&token=wrong");
    assert_eq!(said, ok(r#"{"data":null,"code":5,"message":"token is error"}"#));
    assert!(talk.session.take_rejection() && talk.session.is_leaving() && !talk.session.was_greeted());
    assert_eq!(home.talk().get("/tinyid/id/nextIdSimple?bizType=orders"), ok(""));
    assert_eq!(home.talk().get("/tinyid/id/nextIdSimple?bizType=orders&token=s3cret"), ok("1"));
}

#[test]
fn the_four_calls_of_api_leaf_answer_as_their_document_says() {
    let home = Home::new(Tokens::default());
    let mut talk = home.talk();
    let done = r#"{"code":0,"msg":"success","data":null}"#;
    let create = r#"{"biz_tag":"test_create_one","descprition":"test api one"}"#;
    assert_eq!(talk.json("POST /api/leaf", create), ok(done));
    assert_eq!(
        talk.get("/api/leaf?biz_tag=test_create_one"),
        ok(r#"{"code":0,"msg":"success","data":{"ID":1}}"#)
    );
    assert_eq!(talk.json("PUT /api/leaf/step", r#"{"step":10000,"biz_tag":"test_create_one"}"#), ok(done));
    assert_eq!(talk.json("PUT /api/leaf/init/cache", r#"{"biz_tag":"test_create_one"}"#), ok(done));
    let shown = talk.get("/v1/sequences/test_create_one").1;
    assert!(shown.contains(r#""step":"10000""#), "{shown}");
    for bad in ["{", "[]", "{}", r#"{"biz_tag":7}"#, r#"{"biz_tag":"a","step":"x"}"#] {
        assert_eq!(talk.json("POST /api/leaf", bad), ok(r#"{"code":1000,"msg":"param Invalid"}"#), "{bad}");
    }
    let (status, said) = talk.get("/api/leaf?biz_tag=typo");
    assert!(status == 200 && said.starts_with(r#"{"code":1001,"msg":""#), "{said}");
    assert_eq!(talk.ask("DELETE /api/leaf", "", "").0, 405);
}

#[test]
fn our_own_paths_take_create_alter_and_show() {
    let home = Home::new(Tokens::default());
    let mut talk = home.talk();
    let (status, said) = talk.json("POST /v1/ids", r#"{"count":3,"order":"ordered"}"#);
    let ids: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(status == 200 && ids["ids"].as_array().unwrap().len() == 3 && ids["ids"][0].is_string());
    let said = talk.json("POST /v1/ids?as=runs", r#"{"count":1}"#).1;
    assert!(
        said.starts_with(r#"{"runs":[{"first":""#) && said.ends_with(r#"","count":1,"stride":1}]}"#),
        "{said}"
    );
    assert_eq!(talk.json("POST /v1/sequences/orders/next", r#"{"count":2}"#), ok(r#"{"ids":["1","2"]}"#));
    let runs = ok(r#"{"runs":[{"first":"3","count":5,"stride":1}]}"#);
    assert_eq!(talk.json("POST /v1/sequences/orders/next?as=runs", r#"{"count":5,"contiguous":true}"#), runs);
    let new = r#"{"start":"10","last":12,"step":7}"#;
    assert_eq!(talk.json("PUT /v1/sequences/a%2Fb", new).0, 201);
    assert_eq!(talk.json("PUT /v1/sequences/a%2Fb", new).0, 200);
    assert_eq!(talk.json("PUT /v1/sequences/a%2Fb", "{}").0, 409);
    assert_eq!(talk.json("POST /v1/sequences/a%2Fb/next", r#"{"count":3}"#).1, r#"{"ids":["10","11","12"]}"#);
    assert_eq!(talk.json("POST /v1/sequences/a%2Fb/next", "{}").0, 409, "exhausted");
    assert_eq!(talk.json("PATCH /v1/sequences/a%2Fb", r#"{"last":"20"}"#).0, 200);
    assert_eq!(talk.json("PATCH /v1/sequences/a%2Fb", r#"{"last":15}"#).0, 400);
    let (status, said) = talk.get("/v1/sequences?limit=1");
    assert!(status == 200 && said.contains(r#""name":"a/b""#) && !said.contains("orders"), "{said}");
    assert!(talk.get("/v1/sequences?after=a%2Fb").1.contains("orders"));
    let said = talk.get("/v1/decode/4198400").1;
    let wanted = r#"{"id":"4198400","sequence":0,"time":"2018-04-19T16:00:00.001Z","unix_ms":1524153600001,"worker":1}"#;
    assert_eq!(said, wanted);
    let head = talk.say(b"HEAD /v1/decode/4198400 HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", wanted.len())), "{head}");
}

#[test]
fn what_v1_refuses_is_a_problem_with_its_status() {
    let home = Home::new(Tokens::default());
    let mut talk = home.talk();
    for (line, body, status, code) in [
        ("POST /v1/ids", "{\"count\":0}", 400, "COUNT"),
        ("POST /v1/ids", "{\"count\":131073}", 400, "COUNT"),
        ("POST /v1/ids", "{\"count\":-1}", 400, "BAD_REQUEST"),
        ("POST /v1/ids", "{\"count\":\"1\"}", 400, "BAD_REQUEST"),
        ("POST /v1/ids", "{\"order\":\"none\"}", 400, "BAD_REQUEST"),
        ("POST /v1/ids", "{\"typo\":1}", 400, "BAD_REQUEST"),
        ("POST /v1/ids", "[]", 400, "BAD_REQUEST"),
        ("POST /v1/ids?as=x", "{}", 400, "BAD_REQUEST"),
        ("POST /v1/ids?x=y", "{}", 400, "BAD_REQUEST"),
        ("GET /v1/ids", "", 405, "UNKNOWN_OP"),
        ("POST /v1/sequences/orders/next", "{\"order\":\"fresh\"}", 400, "BAD_REQUEST"),
        ("POST /v1/sequences/typo/next", "{}", 404, "NO_SEQUENCE"),
        ("GET /v1/sequences/typo", "", 404, "NO_SEQUENCE"),
        ("GET /v1/sequences/%40any", "", 400, "BAD_REQUEST"),
        ("GET /v1/sequences/%ff", "", 400, "BAD_REQUEST"),
        ("GET /v1/sequences?limit=0", "", 400, "BAD_REQUEST"),
        ("GET /v1/sequences?limit=+1", "", 400, "BAD_REQUEST"),
        ("PUT /v1/sequences/x", "{\"step\":0}", 400, "BAD_REQUEST"),
        ("DELETE /v1/sequences/orders", "", 405, "UNKNOWN_OP"),
        ("GET /v1/sequences/orders/next", "", 405, "UNKNOWN_OP"),
        ("GET /v1/decode/x", "", 400, "BAD_REQUEST"),
        ("GET /v1/decode/9223372036854775808", "", 400, "BAD_REQUEST"),
        ("POST /v1/openapi.json", "{}", 405, "UNKNOWN_OP"),
        ("GET /v1/other", "", 404, "UNKNOWN_OP"),
        ("GET /", "", 404, "UNKNOWN_OP"),
    ] {
        let (found, said) = talk.json(line, body);
        let problem: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(
            (found, &problem["status"], &problem["code"]),
            (status, &status.into(), &code.into()),
            "{line}"
        );
    }
    assert_eq!(talk.ask("POST /v1/ids", "", "{}").0, 415);
    assert_eq!(talk.ask("POST /v1/ids", "Content-Type: text/plain\r\n", "{}").0, 415);
    let said = talk.say(b"PUT /v1/ids HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(
        said.contains("\r\nAllow: POST\r\n") && said.contains("Content-Type: application/problem+json\r\n"),
        "{said}"
    );
    assert_eq!(talk.json("POST /v1/sequences/orders/next", "{}").1, r#"{"ids":["1"]}"#, "none was taken");
}

#[test]
fn a_token_is_asked_for_at_every_path_and_one_guess_ends_the_connection() {
    let home = Home::new(Tokens::of("s3cret"));
    for path in
        ["/api/segment/get/orders", "/decodeSnowflakeId", "/api/leaf?biz_tag=orders", "/v1/sequences", "/x"]
    {
        let mut talk = home.talk();
        let said = talk.say(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").repeat(2).as_bytes());
        assert!(said.starts_with("HTTP/1.1 401 ") && said.matches("HTTP/1.1").count() == 1, "{said}");
        assert!(
            said.contains("\r\nWWW-Authenticate: Bearer\r\n") && said.contains("\r\nConnection: close\r\n")
        );
        assert!(talk.session.take_rejection() && !talk.session.was_greeted());
        assert_eq!(talk.send(b""), Need::End);
    }
    let mut talk = home.talk();
    let token = "Authorization: Bearer s3cret\r\n";
    assert_eq!(talk.ask("GET /api/segment/get/orders", token, ""), ok("1"));
    assert!(talk.session.was_greeted());
    assert_eq!(talk.ask("GET /api/segment/get/orders", token, ""), ok("2"));
    home.server.access.replace(Tokens::of("other"), None);
    assert_eq!(talk.ask("GET /api/segment/get/orders", token, "").0, 401, "it counts no more");
    let mut talk = home.talk();
    assert_eq!(talk.ask("GET /api/segment/get/orders", "Authorization: Bearer other\r\n", ""), ok("3"));
    assert_eq!(talk.get("/api/segment/get/orders").0, 401, "each request shows its own");
}

#[test]
fn requests_in_one_piece_are_answered_in_their_order_however_they_are_cut() {
    let home = Home::new(Tokens::default());
    let (mut talk, mut input, mut numbers) = (home.talk(), String::new(), Vec::new());
    for n in 1..=300 {
        input.push_str("GET /api/segment/get/orders HTTP/1.1\r\nHost: x\r\n\r\n");
        numbers.push(n.to_string());
        if n % 7 == 0 {
            input.push_str(
                "POST /v1/ids HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
                            Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
            );
            numbers.push("ids".into());
        }
    }
    let mut said = String::new();
    for piece in input.as_bytes().chunks(37) {
        said.push_str(&talk.say(piece));
    }
    let bodies: Vec<&str> = said.split("HTTP/1.1 200 OK\r\n").skip(1).collect();
    assert_eq!(bodies.len(), numbers.len());
    for (body, number) in bodies.iter().zip(&numbers) {
        let body = body.split_once("\r\n\r\n").unwrap().1;
        assert!(body == number || number == "ids" && body.starts_with("{\"ids\""), "{body} for {number}");
    }
}

#[test]
fn a_connection_lives_on_or_ends_as_its_client_wants_it() {
    let home = Home::new(Tokens::default());
    let get = |version: &str, fields: &str| {
        format!("GET /api/segment/get/orders HTTP/{version}\r\nHost: x\r\n{fields}\r\n")
    };
    let mut talk = home.talk();
    let said = talk.say(get("1.0", "Connection: keep-alive\r\n").as_bytes());
    assert!(said.contains("\r\nConnection: keep-alive\r\n") && talk.send(b"") == Need::Input, "{said}");
    let said = talk.say(get("1.0", "").as_bytes());
    assert!(said.contains("\r\nConnection: close\r\n") && talk.send(b"") == Need::End, "{said}");
    let mut talk = home.talk();
    let said = talk.say(get("1.1", "Connection: close\r\n").repeat(2).as_bytes());
    assert!(said.matches("HTTP/1.1 200").count() == 1 && talk.send(b"") == Need::End, "{said}");
    let mut talk = home.talk();
    assert!(!talk.say(get("1.1", "").as_bytes()).contains("\r\nConnection:"));
    talk.session.go_away(&mut talk.outbox);
    let said = talk.say(get("1.1", "").repeat(3).as_bytes());
    assert!(
        said.matches("HTTP/1.1 200").count() == 3 && said.matches("Connection: close").count() == 1,
        "{said}"
    );
    assert_eq!(talk.send(b""), Need::End);
}

#[test]
fn what_is_no_request_is_told_so_and_ends_its_connection() {
    let home = Home::new(Tokens::default());
    let smuggled = "GET /api/segment/get/orders HTTP/1.1\r\nHost: x\r\n\r\n";
    for front in
        ["Content-Length: 1\r\nContent-Length: 2\r\n", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"]
    {
        let mut talk = home.talk();
        let said = talk
            .say(format!("POST /v1/ids HTTP/1.1\r\nHost: x\r\n{front}\r\n0\r\n\r\n{smuggled}").as_bytes());
        assert!(said.starts_with("HTTP/1.1 400 ") && said.matches("HTTP/1.1").count() == 1, "{said}");
        assert!(said.contains("\r\nConnection: close\r\n") && talk.send(b"") == Need::End);
        assert!(!talk.session.was_greeted());
    }
    assert!(home.talk().say(b"\x16\x03\x01\x02").starts_with("HTTP/1.1 400 "));
    assert_eq!(home.talk().get("/api/segment/get/orders"), ok("1"), "nothing was taken by it");
}

#[test]
fn a_client_that_waits_for_it_is_told_once_to_send_its_body() {
    let home = Home::new(Tokens::default());
    let mut talk = home.talk();
    let head = "POST /v1/sequences/orders/next HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
                Expect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    assert_eq!(talk.say(head.as_bytes()), "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(talk.say(b"{"), "");
    assert!(talk.say(b"}").ends_with(r#"{"ids":["1"]}"#));
    assert!(talk.say(format!("{head}{{}}").as_bytes()).starts_with("HTTP/1.1 200 "));
}

#[test]
fn one_that_reads_nothing_is_not_read_from() {
    let home = Home::new(Tokens::default());
    let mut talk = home.talk();
    let asked = "GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
    assert_eq!(talk.send(asked.as_bytes()), Need::Room);
    assert!(talk.outbox.len() >= OUTBOX_HIGH && talk.outbox.len() < 2 * OUTBOX_HIGH);
}
