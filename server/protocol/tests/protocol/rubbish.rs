//! Bytes from anywhere: no panic, no claim believed, and the same result however they are cut.

use proptest::prelude::*;
use xuid_protocol::{ParsedReply, ParsedRequest, Phase, Preface, check_preface, parse_reply, parse_request};

use crate::bodies;
use crate::values::{answer, encode_request, request};

const MAX_BODY: u32 = 64;

/// What a server sees of its input: each frame as text, so that it outlives the buffer, and what is left over.
fn serve(pieces: &[&[u8]]) -> (Vec<String>, usize) {
    let (mut buf, mut seen, mut need) = (Vec::new(), Vec::new(), 0);
    for piece in pieces {
        buf.extend_from_slice(piece);
        while buf.len() >= need {
            match parse_request(&buf, Phase::Serving, MAX_BODY) {
                ParsedRequest::Incomplete { need: more } => {
                    assert!(more > buf.len() && more <= 16 + MAX_BODY as usize, "{more} with {}", buf.len());
                    need = more;
                }
                ParsedRequest::Frame { consumed, request_id, op, request } => {
                    assert!((16..=buf.len()).contains(&consumed));
                    let closes = request.as_ref().is_err_and(|refusal| refusal.closes);
                    seen.push(format!("{request_id} {op} {request:?}"));
                    if closes {
                        return (seen, 0);
                    }
                    buf.drain(..consumed);
                    need = 0;
                }
            }
        }
    }
    (seen, buf.len())
}

/// The same for a client.
fn listen(pieces: &[&[u8]]) -> (Vec<String>, usize) {
    let (mut buf, mut seen, mut need) = (Vec::new(), Vec::new(), 0);
    for piece in pieces {
        buf.extend_from_slice(piece);
        while buf.len() >= need {
            match parse_reply(&buf, MAX_BODY) {
                Err(bad) => {
                    seen.push(bad.to_string());
                    return (seen, 0);
                }
                Ok(ParsedReply::Incomplete { need: more }) => {
                    assert!(more > buf.len() && more <= 16 + MAX_BODY as usize, "{more} with {}", buf.len());
                    need = more;
                }
                Ok(ParsedReply::Frame { consumed, request_id, op, reply }) => {
                    assert!((16..=buf.len()).contains(&consumed));
                    seen.push(format!("{request_id} {op} {reply:?}"));
                    buf.drain(..consumed);
                    need = 0;
                }
            }
        }
    }
    (seen, buf.len())
}

/// Frames that are valid, nearly valid or noise.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    static TEXT: [u8; 30] = [7; 30];
    let valid = (request(&TEXT), any::<u64>())
        .prop_map(|(request, id)| {
            let mut bytes = Vec::new();
            encode_request(&mut bytes, id, &request);
            bytes
        })
        .boxed();
    let answers = (answer(), any::<u64>()).prop_map(|(answer, id)| {
        let mut bytes = Vec::new();
        answer.encode(&mut bytes, id);
        bytes
    });
    let near =
        (valid.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut bytes, at, byte)| {
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        });
    let framed =
        (any::<u8>(), prop::collection::vec(any::<u8>(), 0..70), 0..4_u16).prop_map(|(op, body, status)| {
            let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
            bytes.extend([op, 0]);
            bytes.extend((status / 3).to_le_bytes());
            bytes.extend(9_u64.to_le_bytes());
            bytes.extend(body);
            bytes
        });
    let noise = prop::collection::vec(any::<u8>(), 0..50);
    let part = prop_oneof![4 => valid, 4 => answers, 2 => near, 6 => framed, 1 => noise];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn frames_are_the_same_however_the_bytes_are_cut(bytes in stream(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(bytes.len() + 1);
        let (front, back) = bytes.split_at(cut);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        let (served, heard) = (serve(&[&bytes]), listen(&[&bytes]));
        prop_assert_eq!(&serve(&[front, back]), &served);
        prop_assert_eq!(&listen(&[front, back]), &heard);
        prop_assert_eq!(serve(&single), served);
        prop_assert_eq!(listen(&single), heard);
    }

    #[test]
    fn what_is_taken_from_any_bytes_is_what_lies_in_them(bytes in stream(), noise in prop::collection::vec(any::<u8>(), 0..80)) {
        for input in [bytes, noise] {
            bodies::request(&input);
            bodies::reply(&input);
            bodies::preface(&input);
        }
    }

    #[test]
    fn a_preface_is_the_same_however_it_is_cut(bytes in prop::collection::vec(any::<u8>(), 0..12), right in 0..9_usize) {
        let mut bytes = bytes;
        let right = right.min(bytes.len()).min(8);
        bytes[..right].copy_from_slice(&xuid_protocol::PREFACE[..right]);
        let verdict = |bytes: &[u8]| match check_preface(bytes) {
            Preface::Incomplete { need } => { assert!(need > bytes.len()); None }
            Preface::Whole => Some(true),
            Preface::Foreign(_) => Some(false),
        };
        let first = (0..=bytes.len()).find_map(|len| verdict(&bytes[..len]));
        prop_assert_eq!(first, verdict(&bytes));
    }
}

#[test]
fn a_claim_is_refused_by_its_header_alone() {
    for claim in [MAX_BODY + 1, 1 << 20, u32::MAX] {
        for op in [0x02, 0x10, 0x55, 0xff] {
            let mut header = [0; 16];
            header[..4].copy_from_slice(&claim.to_le_bytes());
            header[4] = op;
            header[8] = 9;
            let (seen, _) = serve(&[&header]);
            assert!(seen[0].contains("TOO_LARGE") && seen[0].contains(&claim.to_string()), "{seen:?}");
        }
    }
}

#[test]
fn runs_that_would_hold_one_id_several_times_are_no_reply() {
    for (count, stride, fits) in [(3, 1, true), (3, 0, false), (1, 0, true), (2, u32::MAX, true)] {
        let mut bytes = Vec::new();
        bytes.extend(24_u32.to_le_bytes());
        bytes.extend([0x92, 0, 0, 0]);
        bytes.extend(7_u64.to_le_bytes());
        bytes.extend([count, 1_u32].map(u32::to_le_bytes).as_flattened());
        bytes.extend(1_000_u64.to_le_bytes());
        bytes.extend([count, stride].map(u32::to_le_bytes).as_flattened());
        assert_eq!(parse_reply(&bytes, 1 << 20).is_ok(), fits, "{count} ids with a stride of {stride}");
    }
}

/// The reply of that op with ids in it: NEXT, ARRAY of two, RUNS of one run.
fn reply_with(op: u8, first: u64, count: u32, stride: u32) -> Vec<u8> {
    let mut body = Vec::new();
    match op {
        0x90 => body.extend(first.to_le_bytes()),
        0x91 => {
            body.extend([2_u32, 0].map(u32::to_le_bytes).as_flattened());
            body.extend([7, first].map(u64::to_le_bytes).as_flattened());
        }
        _ => {
            body.extend([count, 1_u32].map(u32::to_le_bytes).as_flattened());
            body.extend(first.to_le_bytes());
            body.extend([count, stride].map(u32::to_le_bytes).as_flattened());
        }
    }
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend([op, 0, 0, 0]);
    bytes.extend(7_u64.to_le_bytes());
    bytes.extend(body);
    bytes
}

#[test]
fn a_number_of_64_bits_is_no_id_wherever_it_stands_in_a_reply() {
    const LARGEST: u64 = (1 << 63) - 1;
    for op in [0x90, 0x91, 0x92] {
        for (first, fits) in [(0, true), (LARGEST, true), (LARGEST + 1, false), (u64::MAX, false)] {
            let reply = reply_with(op, first, 1, 1);
            assert_eq!(parse_reply(&reply, 1 << 20).is_ok(), fits, "{first} in op {op:02x}");
        }
    }
    // The last id of a run counts.
    for (first, count, stride, fits) in [
        (LARGEST - 1, 2, 1, true),
        (LARGEST - 1, 3, 1, false),
        (LARGEST - 4_096, 2, 4_096, true),
        (LARGEST - 4_095, 2, 4_096, false),
        (1, u32::MAX, u32::MAX, false),
    ] {
        let reply = reply_with(0x92, first, count, stride);
        let parsed = parse_reply(&reply, 1 << 20);
        assert_eq!(parsed.is_ok(), fits, "{count} ids from {first} on, {stride} apart: {parsed:?}");
    }
}
