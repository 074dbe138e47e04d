//! A checksum before the text of a small file: eight hexadecimal digits and the end of their line.

/// Digits and the end of their line.
const LEN: usize = 9;

/// The text with its checksum.
pub(crate) fn with_checksum(text: Vec<u8>) -> Vec<u8> {
    [of(&text), text].concat()
}

/// The text of a file, and whether it has the checksum that stands before it; `None` where there is no room for one.
pub(crate) fn split_checksum(bytes: &[u8]) -> Option<(&[u8], bool)> {
    let (checksum, text) = bytes.split_at_checked(LEN)?;
    Some((text, checksum == of(text)))
}

fn of(text: &[u8]) -> Vec<u8> {
    format!("{:08x}\n", crc32c::crc32c(text)).into_bytes()
}
