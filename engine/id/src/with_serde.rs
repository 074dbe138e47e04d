//! Ids in serde's formats: decimal text where people read the format, since a double holds 53 bits; a number elsewhere.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::form::Form;
use crate::id::Id;

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&Form::Decimal.text(*self))
        } else {
            serializer.serialize_u64(self.raw())
        }
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(TextOrNumber)
        } else {
            deserializer.deserialize_u64(TextOrNumber)
        }
    }
}

struct TextOrNumber;

impl Visitor<'_> for TextOrNumber {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id: a decimal number from 0 to 9223372036854775807, as text or as an integer")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Id, E> {
        Id::try_from(number).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Id, E> {
        Id::try_from(number).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
        Form::Decimal.parse(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, to_string};

    use super::*;
    use crate::id::LAST_ID;

    #[test]
    fn json_has_ids_as_text_and_both_are_read() {
        let last = Id::new(LAST_ID);
        assert_eq!(to_string(&[last, Id::new(0)]).unwrap(), "[\"9223372036854775807\",\"0\"]");
        for text in ["\"9223372036854775807\"", "9223372036854775807"] {
            assert_eq!(from_str::<Id>(text).unwrap(), last, "{text}");
        }
        for (text, words) in [
            ("\"9223372036854775808\"", "above 9223372036854775807"),
            ("9223372036854775808", "9223372036854775808 is no id"),
            ("-1", "-1 is no id"),
            ("1.0", "as text or as an integer"),
            ("\"ten\"", "character 1 is 't'"),
            ("null", "an id: a decimal number"),
        ] {
            let error = from_str::<Id>(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
