//! What is written is read, however the bytes are cut, and what a later server adds to a reply is passed over.

use proptest::prelude::*;
use xuid_protocol::{
    ArrayWriter, Hello, Op, ParsedReply, ParsedRequest, Phase, Refusal, Reply, Request, Run, RunsWriter,
    Status, TooLong, parse_reply, parse_request, reply_error, reply_hello, request_hello,
};

use crate::golden::says;
use crate::values::{answer, encode_request, hello_reply, request};

static TEXT: [u8; 255] = {
    let mut text = [0; 255];
    let mut at = 0;
    while at < text.len() {
        text[at] = at as u8;
        at += 1;
    }
    text
};

/// Makes the header of a lone frame say how long its body now is.
fn restate_length(frame: &mut [u8]) {
    let body_len = frame.len() as u32 - 16;
    frame[..4].copy_from_slice(&body_len.to_le_bytes());
}

/// Whether its last field ends where the frame does.
fn is_open(request: &Request<'_>) -> bool {
    matches!(request, Request::Ping(_) | Request::SeqCreate { .. } | Request::SeqAlter { .. })
}

fn phase_of(request: &Request<'_>) -> Phase {
    if request.op() == Op::Hello { Phase::Greeting } else { Phase::Serving }
}

proptest! {
    #[test]
    fn a_request_is_read_as_it_was_written(request in request(&TEXT), id: u64, rest in any::<[u8; 3]>()) {
        let mut bytes = vec![0xee; 5];
        encode_request(&mut bytes, id, &request);
        let len = bytes.len();
        bytes.extend(rest);
        let parsed = parse_request(&bytes[5..], phase_of(&request), 4_096);
        let op = request.op().code();
        prop_assert_eq!(
            parsed,
            ParsedRequest::Frame { consumed: len - 5, request_id: id, op, request: Ok(request) }
        );
        prop_assert_eq!(&bytes[..5], &[0xee; 5], "encoders append");
    }

    #[test]
    fn a_request_is_asked_for_until_its_last_byte_and_never_beyond(request in request(&TEXT), id: u64) {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, id, &request);
        for cut in 0..bytes.len() {
            let expected = if cut < 16 { 16 } else { bytes.len() };
            prop_assert_eq!(
                parse_request(&bytes[..cut], phase_of(&request), 4_096),
                ParsedRequest::Incomplete { need: expected }
            );
        }
    }

    #[test]
    fn one_byte_more_in_a_request_is_refused(request in request(&TEXT), id: u64, byte: u8) {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, id, &request);
        // Some have no end of their own, and NEXT of any has a second spelling.
        prop_assume!(!is_open(&request));
        prop_assume!(bytes[4] != Op::Next.code() || bytes.len() == 17);
        bytes.push(byte);
        restate_length(&mut bytes);
        let ParsedRequest::Frame { request: Err(refusal), .. } = parse_request(&bytes, phase_of(&request), 4_096)
        else { panic!("accepted") };
        prop_assert_eq!(refusal.status, Status::BAD_REQUEST);
    }

    #[test]
    fn one_byte_less_in_a_request_is_refused(request in request(&TEXT), id: u64) {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, id, &request);
        prop_assume!(bytes.len() > 16 && !is_open(&request) && !matches!(request, Request::Next { .. }));
        bytes.pop();
        restate_length(&mut bytes);
        let ParsedRequest::Frame { request: Err(refusal), .. } = parse_request(&bytes, phase_of(&request), 4_096)
        else { panic!("accepted") };
        prop_assert_eq!(refusal.status, Status::BAD_REQUEST);
    }

    #[test]
    fn a_reply_is_read_as_it_was_written(answer in answer(), id: u64) {
        let mut bytes = Vec::new();
        answer.encode(&mut bytes, id);
        for cut in 0..bytes.len() {
            let expected = if cut < 16 { 16 } else { bytes.len() };
            prop_assert_eq!(parse_reply(&bytes[..cut], 4_096), Ok(ParsedReply::Incomplete { need: expected }));
        }
        let Ok(ParsedReply::Frame { consumed, request_id, op, reply }) = parse_reply(&bytes, 4_096)
        else { panic!("not a reply") };
        prop_assert_eq!((consumed, op), (bytes.len(), bytes[4] & 0x7f));
        prop_assert_eq!(request_id, if reply == Reply::GoAway { 0 } else { id });
        prop_assert!(says(&reply, &answer), "{:?}", reply);
    }

    #[test]
    fn what_follows_the_fields_of_a_reply_is_passed_over(answer in answer(), id: u64, more in prop::collection::vec(any::<u8>(), 1..40)) {
        let mut bytes = Vec::new();
        answer.encode(&mut bytes, id);
        bytes.extend(&more);
        restate_length(&mut bytes);
        // These are all field, to their last byte.
        let is_open = matches!(
            Op::from_code(bytes[4] & 0x7f),
            Some(Op::Ping | Op::Info | Op::Stats | Op::Provenance | Op::SeqInfo | Op::SeqList | Op::SeqCreate | Op::SeqAlter)
        );
        prop_assume!(!is_open || bytes[6] != 0);
        let Ok(ParsedReply::Frame { consumed, reply, .. }) = parse_reply(&bytes, 4_096) else { panic!("not a reply") };
        prop_assert_eq!(consumed, bytes.len());
        prop_assert!(says(&reply, &answer), "{:?}", reply);
    }

    #[test]
    fn an_array_written_by_runs_holds_the_ids_of_the_runs(runs in prop::collection::vec((0..1_u64 << 62, 0..200_u32), 0..20)) {
        let ids: Vec<u64> = runs.iter().flat_map(|(first, len)| *first..*first + u64::from(*len)).collect();
        let mut out = Vec::new();
        let mut writer = ArrayWriter::begin(&mut out, 1, ids.len() as u32);
        for (first, len) in &runs {
            writer.run(*first, *len);
        }
        writer.finish();
        let Ok(ParsedReply::Frame { reply: Reply::Array(read), .. }) = parse_reply(&out, 1 << 20)
        else { panic!("not an array") };
        prop_assert!(read.iter().eq(ids));
    }

    #[test]
    fn runs_of_a_sequence_that_go_on_are_merged_whatever_their_stride(
        lens in prop::collection::vec((1..50_u32, 0..3_u64), 1..30), stride in 1..9_000_u32,
    ) {
        let mut out = Vec::new();
        let mut writer = RunsWriter::of_sequence(&mut out, 1, lens.iter().map(|(len, _)| len).sum());
        let (mut next, mut ids, mut seams) = (1_000, Vec::new(), 0);
        for (at, (count, gap)) in lens.iter().enumerate() {
            next += gap * u64::from(stride);
            seams += usize::from(at > 0 && *gap > 0);
            let run = Run { first: next, count: *count, stride };
            writer.push(run);
            ids.extend(run);
            next += u64::from(*count) * u64::from(stride);
        }
        writer.finish();
        let Ok(ParsedReply::Frame { op: 0x32, reply: Reply::Runs(read), .. }) = parse_reply(&out, 1 << 20)
        else { panic!("not runs") };
        prop_assert_eq!(read.len(), seams + 1);
        prop_assert!(read.iter().flatten().eq(ids));
    }

    #[test]
    fn runs_that_touch_are_merged_and_lose_no_id(lens in prop::collection::vec((0..50_u32, 0..3_u64), 1..30)) {
        let mut out = Vec::new();
        let mut writer = RunsWriter::begin(&mut out, 1, lens.iter().map(|(len, _)| len).sum());
        let (mut next, mut ids) = (1_000, Vec::new());
        for (len, gap) in &lens {
            next += gap;
            writer.run(next, *len);
            ids.extend(next..next + u64::from(*len));
            next += u64::from(*len);
        }
        writer.finish();
        let Ok(ParsedReply::Frame { reply: Reply::Runs(read), .. }) = parse_reply(&out, 1 << 20)
        else { panic!("not runs") };
        let runs: Vec<Run> = read.iter().collect();
        prop_assert!(runs.windows(2).all(|pair| pair[0].last().unwrap() + 1 < pair[1].first));
        prop_assert!(runs.into_iter().flatten().eq(ids));
    }
}

#[test]
fn a_token_or_name_that_does_not_fit_its_length_is_refused_and_nothing_is_written() {
    let long = "x".repeat(256);
    let mut out = vec![1];
    let client = request_hello(&mut out, 1, &Hello::new(&long)).unwrap_err();
    assert_eq!(client, TooLong { field: "client name", len: 256 });
    let token = request_hello(&mut out, 1, &Hello { token: long.as_bytes(), ..Hello::new("") }).unwrap_err();
    assert!(token.to_string().contains("256 bytes") && out == [1]);
    request_hello(&mut out, 1, &Hello { token: &long.as_bytes()[1..], ..Hello::new(&long[1..]) }).unwrap();
}

#[test]
fn texts_that_are_too_long_are_cut_between_characters() {
    let (mut out, long) = (Vec::new(), "ä".repeat(40_000));
    reply_error(&mut out, 1, 0x10, &Refusal::new(Status::INTERNAL, long.clone()));
    let Ok(ParsedReply::Frame { reply: Reply::Error(error), .. }) = parse_reply(&out, 1 << 20) else {
        panic!()
    };
    assert_eq!(error.text, long[..65_534]);
    out.clear();
    reply_hello(&mut out, 1, &xuid_protocol::HelloReply { server: &long, ..hello_reply() });
    let Ok(ParsedReply::Frame { reply: Reply::Hello(hello), .. }) = parse_reply(&out, 1 << 20) else {
        panic!()
    };
    assert_eq!(hello.server, &long[..254]);
}
