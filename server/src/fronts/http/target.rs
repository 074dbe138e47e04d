//! The target of a request: its path, and the fields of a query or a form.

use std::borrow::Cow;

use super::ask::Denial;

/// The path and the query of a target.
pub(super) fn split(target: &str) -> (&str, &str) {
    // The absolute form, which clients of proxies send.
    let target = match target.split_once("://") {
        Some(("http" | "https", rest)) => rest.find(['/', '?']).map_or("/", |at| &rest[at..]),
        _ => target,
    };
    target.split_once('?').unwrap_or((target, ""))
}

/// A part of a path without its escapes.
pub(super) fn segment(text: &str) -> Result<Cow<'_, [u8]>, Denial> {
    decoded(text.as_bytes(), false)
}

/// A name and its value.
type Field<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// The fields of a query or a form.
pub(super) struct Fields<'a>(Vec<Field<'a>>);

impl<'a> Fields<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, Denial> {
        let mut fields = Vec::new();
        for pair in text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
            let end = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            let value = pair.get(end + 1..).unwrap_or_default();
            fields.push((decoded(&pair[..end], true)?, decoded(value, true)?));
        }
        Ok(Self(fields))
    }

    /// Both together.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The first field of that name, which is taken out.
    pub(super) fn take(&mut self, name: &str) -> Option<Cow<'a, [u8]>> {
        let place = self.0.iter().position(|(found, _)| **found == *name.as_bytes())?;
        Some(self.0.remove(place).1)
    }

    /// Refuses fields that nobody took.
    pub(super) fn end(&self, known: &str) -> Result<(), Denial> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => {
                let name = String::from_utf8_lossy(&name[..name.len().min(64)]).into_owned();
                Err(Denial::bad(format!("{name:?} is no parameter here, or is there twice; known: {known}")))
            }
        }
    }
}

fn decoded(bytes: &[u8], plus_is_space: bool) -> Result<Cow<'_, [u8]>, Denial> {
    let is_escape = |byte: &u8| *byte == b'%' || plus_is_space && *byte == b'+';
    if !bytes.iter().any(is_escape) {
        return Ok(Cow::Borrowed(bytes));
    }
    let (mut out, mut rest) = (Vec::with_capacity(bytes.len()), bytes);
    while let [first, more @ ..] = rest {
        rest = more;
        match *first {
            b'+' if plus_is_space => out.push(b' '),
            b'%' => {
                let digits = more.first_chunk::<2>().filter(|two| two.iter().all(u8::is_ascii_hexdigit));
                let value = digits.and_then(|two| u8::from_str_radix(str::from_utf8(two).ok()?, 16).ok());
                out.push(
                    value.ok_or_else(|| Denial::bad("a % in the target goes with two hexadecimal digits"))?,
                );
                rest = &more[2..];
            }
            byte => out.push(byte),
        }
    }
    Ok(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_taken_apart_and_freed_of_its_escapes() {
        assert_eq!(split("/a/b?c=d?e"), ("/a/b", "c=d?e"));
        assert_eq!(split("http://host:1/a?b"), ("/a", "b"));
        assert_eq!((split("http://host"), split("*")), (("/", ""), ("*", "")));
        assert_eq!(&*segment("a%2fb%C3%A4+").unwrap(), "a/b\u{e4}+".as_bytes());
        for bad in ["%", "%2", "%zz", "%+1", "a%2"] {
            assert!(segment(bad).is_err(), "{bad}");
        }
        let mut fields = Fields::parse(b"a=1+2&b=%3D&&c&a=3").unwrap();
        assert_eq!(fields.take("a").as_deref(), Some(&b"1 2"[..]));
        assert_eq!(
            (fields.take("b").as_deref(), fields.take("c").as_deref()),
            (Some(&b"="[..]), Some(&b""[..]))
        );
        assert!(fields.end("a").is_err() && fields.take("a").is_some() && fields.end("a").is_ok());
    }
}
