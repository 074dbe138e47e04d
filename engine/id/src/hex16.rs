//! 16 bytes as 32 hexadecimal digits, and bytes as digits in general.

use std::fmt;

/// The 16 bytes of 32 hexadecimal digits without separators, upper or lower case; `None` for anything else.
#[must_use]
pub fn parse(text: &str) -> Option<[u8; 16]> {
    // from_str_radix alone would also take a leading `+`.
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = if digits { u128::from_str_radix(text, 16).ok() } else { None };
    value.map(u128::to_be_bytes)
}

/// Bytes as lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_32_hex_digits_are_16_bytes() {
        let bytes = [0xA5; 16];
        assert_eq!(parse(&Hex(&bytes).to_string()), Some(bytes));
        assert_eq!(parse(&"A5".repeat(16)), Some(bytes));
        let wrong =
            [String::new(), "a5".repeat(15), "a5".repeat(17), "+".repeat(32), format!("+{}", "a".repeat(31))];
        for text in wrong {
            assert_eq!(parse(&text), None, "{text:?} was taken");
        }
        assert_eq!(parse(&"é".repeat(16)), None);
    }
}
