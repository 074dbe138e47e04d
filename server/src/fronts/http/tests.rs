//! The conversation without a socket: bytes in, bytes out.

use std::cell::Cell;

use tokio::runtime::Builder;
use xuid_engine::clock::{Clock, Reading, SystemClock};
use xuid_engine::sequence::store::database::TinyToken;

use super::*;
use crate::config::Tokens;
use crate::fronts::buffers::OUTBOX_HIGH;
use crate::fronts::fixture::{self, Home, TWICE_FEW};

type Talk = fixture::Talk<Session>;

fn client(home: &Home) -> Talk {
    Talk::new(Session::new(Arc::clone(&home.server), None))
}

impl Talk {
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
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
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
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
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
    assert_eq!(client(&home).get("/tinyid/id/nextSegmentIdSimple?bizType=odd"), ok("0,1,9,2,1"));
    assert_eq!(client(&home).get("/tinyid/id/nextSegmentIdSimple?bizType=auto:tiny"), ok("0,200,1000,1,0"));
    let (status, said) = talk.get("/tinyid/id/nextId?bizType=typo");
    assert!(status == 200 && said.starts_with(r#"{"data":null,"code":6,"message":""#), "{said}");
    assert_eq!(talk.get("/tinyid/id/nextIdSimple?bizType=typo"), ok(""));
    assert!(talk.get("/tinyid/id/nextId?bizType=orders&batchSize=x").1.contains("\"code\":6"));
    let most = talk.get("/tinyid/id/nextIdSimple?bizType=orders&batchSize=1000000").1;
    assert_eq!(most.split(',').count(), 100_000);
}

thread_local! {
    /// So many readings from now on one panics on this thread; 0: none.
    static FAILS_AT: Cell<u32> = const { Cell::new(0) };
}

struct FailingClock;

impl Clock for FailingClock {
    fn read(&self) -> Reading {
        let left = FAILS_AT.get();
        FAILS_AT.set(left.saturating_sub(1));
        assert_ne!(left, 1, "a defect");
        SystemClock.read()
    }
}

/// The ids are taken when the store has said how many a segment has, long after the request was read.
#[test]
fn a_panic_over_a_request_that_waited_is_answered_and_costs_its_limit_nothing() {
    let tokens = Tokens::parse("[token.t]\nsecrets = [\"s3cret\"]\nids_per_second = 1000").unwrap();
    let home = Home::with_sequences_by(Arc::new(FailingClock), tokens);
    let mut talk = client(&home);
    let path = "/tinyid/id/nextSegmentIdSimple?bizType=orders&token=s3cret";
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    for at in [1, 2] {
        talk.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        let done = runtime.block_on(talk.session.waited());
        FAILS_AT.set(at);
        talk.session.finish(done, &mut talk.outbox);
        assert_eq!(FAILS_AT.get(), 0, "there were fewer readings");
        assert!(talk.outbox.rest().starts_with(b"HTTP/1.1 200 OK\r\n"));
        talk.outbox.consume(talk.outbox.len());
        assert_eq!((home.server.traffic.panics(), talk.session.in_flight()), (at.into(), 0));
    }
    assert_eq!(talk.get(path), ok("0,200,1000,1,0"));
}

/// Asks for so many fresh ids, more than there are, and waits.
fn wait_for_fresh(talk: &mut Talk, fields: &str, count: u32) {
    let body = format!(r#"{{"count":{count},"order":"fresh","wait_ms":20000}}"#);
    let length = body.len();
    let head = format!(
        "POST /v1/ids HTTP/1.1\r\nHost: x\r\n{fields}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    talk.send(format!("{head}{body}").as_bytes());
    assert_eq!(talk.session.in_flight(), 1, "so many of the last ten milliseconds there are not");
}

#[test]
fn ids_that_a_client_waited_for_in_vain_are_given_back_to_its_limit() {
    fixture::are_given_back(|home| {
        let mut talk = client(home);
        wait_for_fresh(&mut talk, "Authorization: Bearer few\r\n", TWICE_FEW);
        talk
    });
}

#[test]
fn a_request_for_many_ids_that_waited_leaves_no_room_for_as_many_behind() {
    let home = Home::opaque();
    let mut talk = client(&home);
    wait_for_fresh(&mut talk, "", 100_000);
    talk.settle();
    assert!(talk.outbox.rest().starts_with(b"HTTP/1.1 200 OK\r\n"));
    assert!(talk.session.pieces.capacity() <= take::PIECES_KEPT, "{}", talk.session.pieces.capacity());
}

#[test]
fn a_long_path_and_a_long_token_leave_no_room_for_as_much_behind() {
    let home = Home::new(Tokens::default());
    let mut talk = client(&home);
    let long = "x".repeat(15_000);
    let key = format!("GET /api/snowflake/get/{long}");
    let (head, fields) = (key.replacen("GET", "HEAD", 1), format!("Authorization: Bearer {long}\r\n"));
    for (line, fields, told) in [
        (key.as_str(), "", 200),
        ("GET /api/snowflake/get/x", fields.as_str(), 200),
        (head.as_str(), "", 405),
    ] {
        assert_eq!(talk.ask(line, fields, "").0, told);
        let (path, token) = (talk.session.asked.path.capacity(), talk.session.shown.token.capacity());
        assert!(path.max(token) <= TEXT_KEPT, "{path} of a path, {token} of a token");
    }
}

#[test]
fn a_wrong_token_of_tinyid_is_told_as_tinyid_tells_it() {
    let home = Home::with_sequences(Tokens::of("s3cret"));
    let mut talk = client(&home);
    let said = talk.get("/tinyid/id/nextId?bizType=orders&token=wrong");
    assert_eq!(said, ok(r#"{"data":null,"code":5,"message":"token is error"}"#));
    assert!(talk.session.take_rejection() && talk.session.is_leaving() && !talk.session.was_greeted());
    assert_eq!(client(&home).get("/tinyid/id/nextIdSimple?bizType=orders"), ok(""));
    assert_eq!(client(&home).get("/tinyid/id/nextIdSimple?bizType=orders&token=s3cret"), ok("1"));
}

/// What a row of tinyid's allows counts for its request alone.
#[test]
fn a_token_of_tinyid_widens_no_other_ones_rights_on_its_connection() {
    let tokens = "[token.t]\nsecrets = [\"s3cret\"]\nnames = [\"auto:*\"]\nrights = [\"next\", \"create\"]";
    let row = TinyToken { token: "row".into(), name: "orders".into() };
    let home = Home::with_sequences(Tokens::parse(tokens).unwrap()).with_tiny_token(row);
    let mut talk = client(&home);
    for _ in 0..2 {
        let (status, said) = talk.ask("GET /v1/sequences/orders", "Authorization: Bearer s3cret\r\n", "");
        assert_eq!(status, 403, "{said}");
        let (status, said) = talk.get("/tinyid/id/nextIdSimple?bizType=orders&token=row");
        assert!(status == 200 && said.parse::<u64>().is_ok(), "{said}");
    }
}

/// A web page may send a POST to a port of the reader's own machine, and cannot leave this field out.
#[test]
fn a_page_of_another_place_is_refused_whatever_it_asks_for() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    let create = r#"{"biz_tag":"planted"}"#;
    for site in ["cross-site", "same-site", "what comes next"] {
        let fields = format!("Sec-Fetch-Site: {site}\r\nContent-Type: text/plain\r\n");
        for line in ["POST /api/leaf", "GET /api/segment/get/orders", "GET /tinyid/id/nextId?bizType=orders"]
        {
            let (status, said) = talk.ask(line, &fields, if line.starts_with("POST") { create } else { "" });
            assert!(status == 403 && said.contains("Sec-Fetch-Site"), "{site}, {line}: {status} {said}");
        }
    }
    assert_eq!(talk.get("/v1/sequences/planted").0, 404);
    for site in ["none", "same-origin"] {
        let fields = format!("sec-fetch-site: {site}\r\n");
        assert_eq!(talk.ask("GET /api/segment/get/orders", &fields, "").0, 200, "{site}");
    }
    // Clients that are no browsers.
    assert_eq!(talk.ask("POST /api/leaf", "", create).0, 200);
}

#[test]
fn the_four_calls_of_api_leaf_answer_as_their_document_says() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
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
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
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

/// Else its client waits for a body whose length it was told, and which does not come.
#[test]
fn bytes_that_are_no_request_are_answered_with_a_body_also_behind_a_head() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    let said = talk.say(b"HEAD /v1/decode/1 HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n\r\n");
    let (_, refusal) = said.split_once("\r\n\r\n").unwrap();
    let (head, body) = refusal.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400 ") && head.contains("Connection: close"), "{head}");
    assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head}, and {} bytes", body.len());
}

#[test]
fn what_v1_refuses_is_a_problem_with_its_status() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
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
fn large_replies_are_refused_while_what_others_do_not_read_is_too_much() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    let count = |count: u32| format!("{{\"count\":{count}}}");
    let paths = ["POST /v1/ids", "POST /v1/sequences/orders/next"];
    let list = |talk: &mut Talk, limit: u32| talk.get(&format!("/v1/sequences?limit={limit}")).0;
    let held = home.with_too_much_unread();
    for path in paths {
        let (status, said) = talk.json(path, &count(1_025));
        assert!(status == 503 && said.contains("do not read"), "{path}: {said}");
        assert_eq!(talk.json(path, &count(1_024)).0, 200, "{path}");
    }
    assert_eq!((list(&mut talk, 129), list(&mut talk, 128)), (503, 200));
    drop(held);
    assert_eq!(list(&mut talk, 129), 200);
    for path in paths {
        assert_eq!(talk.json(path, &count(1_025)).0, 200, "{path}");
    }
}

#[test]
fn a_token_is_asked_for_at_every_path_and_one_guess_ends_the_connection() {
    let home = Home::with_sequences(Tokens::of("s3cret"));
    for path in
        ["/api/segment/get/orders", "/decodeSnowflakeId", "/api/leaf?biz_tag=orders", "/v1/sequences", "/x"]
    {
        let mut talk = client(&home);
        let said = talk.say(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").repeat(2).as_bytes());
        assert!(said.starts_with("HTTP/1.1 401 ") && said.matches("HTTP/1.1").count() == 1, "{said}");
        assert!(
            said.contains("\r\nWWW-Authenticate: Bearer\r\n") && said.contains("\r\nConnection: close\r\n")
        );
        assert!(talk.session.take_rejection() && !talk.session.was_greeted());
        assert_eq!(talk.send(b""), Need::End);
    }
    // What is refused before a token is looked at has one try, too.
    for line in ["GET /tinyid/x", "DELETE /tinyid/id/nextId"] {
        let mut talk = client(&home);
        let said = talk.say(format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n").repeat(2).as_bytes());
        assert!(
            said.matches("HTTP/1.1").count() == 1 && said.contains("\r\nConnection: close\r\n"),
            "{said}"
        );
        assert_eq!(talk.send(b""), Need::End);
    }
    let mut talk = client(&home);
    let token = "Authorization: Bearer s3cret\r\n";
    assert_eq!(talk.ask("GET /api/segment/get/orders", token, ""), ok("1"));
    assert!(talk.session.was_greeted());
    assert_eq!(talk.ask("GET /api/segment/get/orders", token, ""), ok("2"));
    home.server.access.replace(Tokens::of("other"), None);
    assert_eq!(talk.ask("GET /api/segment/get/orders", token, "").0, 401, "it counts no more");
    let mut talk = client(&home);
    assert_eq!(talk.ask("GET /api/segment/get/orders", "Authorization: Bearer other\r\n", ""), ok("3"));
    assert_eq!(talk.get("/api/segment/get/orders").0, 401, "each request shows its own");
}

#[test]
fn requests_in_one_piece_are_answered_in_their_order_however_they_are_cut() {
    let home = Home::with_sequences(Tokens::default());
    let (mut talk, mut input, mut numbers) = (client(&home), String::new(), Vec::new());
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
    let home = Home::with_sequences(Tokens::default());
    let get = |version: &str, fields: &str| {
        format!("GET /api/segment/get/orders HTTP/{version}\r\nHost: x\r\n{fields}\r\n")
    };
    let mut talk = client(&home);
    let said = talk.say(get("1.0", "Connection: keep-alive\r\n").as_bytes());
    assert!(said.contains("\r\nConnection: keep-alive\r\n") && talk.send(b"") == Need::Input, "{said}");
    let said = talk.say(get("1.0", "").as_bytes());
    assert!(said.contains("\r\nConnection: close\r\n") && talk.send(b"") == Need::End, "{said}");
    let mut talk = client(&home);
    let said = talk.say(get("1.1", "Connection: close\r\n").repeat(2).as_bytes());
    assert!(said.matches("HTTP/1.1 200").count() == 1 && talk.send(b"") == Need::End, "{said}");
    let mut talk = client(&home);
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
    let home = Home::with_sequences(Tokens::default());
    let smuggled = "GET /api/segment/get/orders HTTP/1.1\r\nHost: x\r\n\r\n";
    for front in
        ["Content-Length: 1\r\nContent-Length: 2\r\n", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"]
    {
        let mut talk = client(&home);
        let said = talk
            .say(format!("POST /v1/ids HTTP/1.1\r\nHost: x\r\n{front}\r\n0\r\n\r\n{smuggled}").as_bytes());
        assert!(said.starts_with("HTTP/1.1 400 ") && said.matches("HTTP/1.1").count() == 1, "{said}");
        assert!(said.contains("\r\nConnection: close\r\n") && talk.send(b"") == Need::End);
        assert!(!talk.session.was_greeted());
    }
    assert!(client(&home).say(b"\x16\x03\x01\x02").starts_with("HTTP/1.1 400 "));
    assert_eq!(client(&home).get("/api/segment/get/orders"), ok("1"), "nothing was taken by it");
}

#[test]
fn a_client_that_waits_for_it_is_told_once_to_send_its_body() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    let head = "POST /v1/sequences/orders/next HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
                Expect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    assert_eq!(talk.say(head.as_bytes()), "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(talk.say(b"{"), "");
    assert!(talk.say(b"}").ends_with(r#"{"ids":["1"]}"#));
    assert!(talk.say(format!("{head}{{}}").as_bytes()).starts_with("HTTP/1.1 200 "));
}

#[test]
fn one_that_reads_nothing_is_not_read_from() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    let asked = "GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
    assert_eq!(talk.send(asked.as_bytes()), Need::Room);
    assert!(talk.outbox.len() >= OUTBOX_HIGH && talk.outbox.len() < 2 * OUTBOX_HIGH);
}

#[test]
fn opaque_ids_come_one_by_one_open_and_have_no_order() {
    let home = Home::opaque();
    let mut talk = client(&home);
    let (status, runs) = talk.json("POST /v1/ids?as=runs", r#"{"count":3}"#);
    let runs: serde_json::Value = serde_json::from_str(&runs).unwrap();
    assert_eq!((status, runs["runs"].as_array().unwrap().len()), (200, 3), "{runs}");
    let id = runs["runs"][0]["first"].as_str().unwrap();
    let engine = &home.server.engine;
    let worker = format!(r#""worker":{}}}"#, engine.workers()[0]);
    let (_, parts) = talk.get(&format!("/v1/decode/{id}"));
    assert!(parts.contains(&worker), "{parts}");
    let (_, parts) = talk.get(&format!("/decodeSnowflakeId?snowflakeId={id}"));
    assert!(parts.contains(&format!(r#""workerId":"{}""#, engine.workers()[0])), "{parts}");
    let (status, problem) = talk.json("POST /v1/ids", r#"{"order":"ordered"}"#);
    assert!(status == 409 && problem.contains(r#""code":"NO_ORDER""#), "{status} {problem}");
    assert_eq!(talk.json("POST /v1/ids", r#"{"order":"fresh"}"#).0, 200);
}
