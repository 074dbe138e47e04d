//! What the servers beside ours are asked: requests without a number, answered in their order.

use std::collections::VecDeque;
use std::time::Duration;

use xuid_load::{Answer, Dialect};
use xuid_protocol::{Bulk, HEADER_LEN, Header, Order, Reply, request_array, request_ping};

/// Bytes of NEXT and of its reply, which the echo uses as well.
pub(super) const NEXT_REQUEST: usize = HEADER_LEN;
pub(super) const NEXT_REPLY: usize = HEADER_LEN + 8;

/// Ids of one ARRAY that is measured.
pub(super) const ARRAY_COUNT: u32 = 4_096;

/// The bytes of a reply at the front of others, and its number, once all of it is there.
type Parsed = Result<Option<(usize, u64)>, String>;

/// One request, again and again.
#[derive(Debug)]
pub(super) struct InOrder {
    request: Vec<u8>,
    parse: fn(&[u8]) -> Parsed,
    /// The numbers of those on their way.
    asked: VecDeque<u64>,
}

impl InOrder {
    /// `INCR` of one key of Redis.
    pub(super) fn incr() -> Self {
        Self::new(b"*2\r\n$4\r\nINCR\r\n$2\r\nid\r\n".to_vec(), integer)
    }

    /// An id of any order from our port for clients of Redis.
    pub(super) fn incr_any() -> Self {
        Self::new(b"*2\r\n$4\r\nINCR\r\n$4\r\n@any\r\n".to_vec(), integer)
    }

    /// The same from that for clients of HTTP, by a path of Leaf.
    pub(super) fn leaf_id() -> Self {
        Self::new(b"GET /api/snowflake/get/any HTTP/1.1\r\nHost: here\r\n\r\n".to_vec(), text_page)
    }

    /// Frames of NEXT's sizes, which nobody looks at.
    pub(super) fn echo() -> Self {
        Self::new(vec![0; NEXT_REQUEST], |bytes| Ok((bytes.len() >= NEXT_REPLY).then_some((NEXT_REPLY, 0))))
    }

    /// PINGs of a server of XUID/1, which answers them in their order.
    pub(super) fn ping() -> Self {
        let mut request = Vec::new();
        request_ping(&mut request, 0, b"");
        Self::new(request, |bytes| Ok(whole_frame(bytes)))
    }

    /// ARRAY of a bare loop, which writes no numbers of requests into its replies.
    pub(super) fn array() -> Self {
        let mut request = Vec::new();
        request_array(&mut request, 0, Bulk::new(ARRAY_COUNT, Order::Any, Duration::ZERO));
        Self::new(request, |bytes| Ok(whole_frame(bytes)))
    }

    fn new(request: Vec<u8>, parse: fn(&[u8]) -> Parsed) -> Self {
        Self { request, parse, asked: VecDeque::new() }
    }
}

impl Dialect for InOrder {
    fn request(&mut self, number: u64, out: &mut Vec<u8>) {
        self.asked.push_back(number);
        out.extend_from_slice(&self.request);
    }

    fn reply<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<Answer<'b>>, String> {
        let Some((len, id)) = (self.parse)(bytes)? else { return Ok(None) };
        let number = self.asked.pop_front().ok_or("answered more than it was asked")?;
        Ok(Some((len, number, Reply::Next(id))))
    }
}

/// Any reply of XUID/1.
fn whole_frame(bytes: &[u8]) -> Option<(usize, u64)> {
    let len = bytes.first_chunk().map(|head| HEADER_LEN + Header::decode(*head).body_len as usize);
    len.filter(|len| *len <= bytes.len()).map(|len| (len, 0))
}

/// `:17` and the end of the line.
fn integer(bytes: &[u8]) -> Parsed {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let digits = bytes[..end].strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r"));
    let number = digits.and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
    let number = number.ok_or_else(|| format!("answered {}", String::from_utf8_lossy(&bytes[..end])))?;
    Ok(Some((end + 1, number)))
}

/// A page that is a number.
fn text_page(bytes: &[u8]) -> Parsed {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let fail = || format!("answered {}", String::from_utf8_lossy(bytes));
    let head = str::from_utf8(&bytes[..end]).map_err(|_| fail())?;
    let mut lines = head.split("\r\n");
    let is_well = lines.next().is_some_and(|status| status.starts_with("HTTP/1.1 200 "));
    let fields = lines.filter_map(|line| line.split_once(": "));
    let len = fields
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .find_map(|(_, len)| len.parse().ok());
    let len: usize = len.filter(|_| is_well).ok_or_else(fail)?;
    let Some(page) = bytes.get(end + 4..end + 4 + len) else { return Ok(None) };
    let number = str::from_utf8(page).ok().and_then(|page| page.parse().ok()).ok_or_else(fail)?;
    Ok(Some((end + 4 + len, number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers and ids of replies that come in pieces.
    fn taken(mut dialect: InOrder, requests: u64, bytes: &[u8], piece: usize) -> Vec<(u64, u64)> {
        (0..requests).for_each(|number| dialect.request(number, &mut Vec::new()));
        let (mut taken, mut carry) = (Vec::new(), Vec::new());
        for part in bytes.chunks(piece) {
            carry.extend_from_slice(part);
            while let Some((len, number, Reply::Next(id))) = dialect.reply(&carry).unwrap() {
                taken.push((number, id));
                carry.drain(..len);
            }
        }
        assert!(carry.is_empty(), "{carry:?}");
        taken
    }

    #[test]
    fn replies_are_taken_in_order_however_they_are_cut() {
        let text = (0..50).map(|id| format!(":{}\r\n", id * id)).collect::<Vec<_>>().concat();
        for piece in [1, 7, 24, 1_000] {
            let wanted: Vec<_> = (0..50).map(|number| (number, number * number)).collect();
            assert_eq!(taken(InOrder::incr(), 50, text.as_bytes(), piece), wanted);
            let page = |id| {
                let body = u64::to_string(&id);
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                )
            };
            let pages = (0..50).map(|number| page(number * number)).collect::<Vec<_>>().concat();
            assert_eq!(taken(InOrder::leaf_id(), 50, pages.as_bytes(), piece), wanted);
            assert_eq!(taken(InOrder::echo(), 50, &[0x5a; 50 * NEXT_REPLY], piece).len(), 50);
        }
    }

    #[test]
    fn an_error_and_an_answer_to_nothing_are_none() {
        let mut incr = InOrder::incr();
        assert!(incr.reply(b":1\r\n").unwrap_err().contains("more than it was asked"));
        assert!(incr.reply(b"-ERR wrong\r\n").unwrap_err().contains("-ERR wrong"));
    }
}
