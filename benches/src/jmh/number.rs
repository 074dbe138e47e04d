//! Numbers as JMH's JSON has them: what is not a number is the text `"NaN"`, and percentiles are keyed by their level.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The percentiles that JMH writes, and the keys it writes them under.
const LEVELS: [(f64, &str); 10] = [
    (0.0, "0.0"),
    (50.0, "50.0"),
    (90.0, "90.0"),
    (95.0, "95.0"),
    (99.0, "99.0"),
    (99.9, "99.9"),
    (99.99, "99.99"),
    (99.999, "99.999"),
    (99.9999, "99.9999"),
    (100.0, "100.0"),
];

/// A figure at each of JMH's percentiles: 0, 50, 90, 95, 99, 99.9, 99.99, 99.999, 99.9999 and 100.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentiles([f64; LEVELS.len()]);

impl Percentiles {
    /// What `at` says of each.
    pub(super) fn of(at: impl Fn(f64) -> f64) -> Self {
        Self(LEVELS.map(|(level, _)| at(level)))
    }

    /// The figure at one of those percentiles; not a number for any other.
    #[must_use]
    pub fn at(&self, percent: f64) -> f64 {
        let place = LEVELS.iter().position(|(level, _)| (level - percent).abs() < 1e-9);
        place.map_or(f64::NAN, |place| self.0[place])
    }
}

impl Serialize for Percentiles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(LEVELS.len()))?;
        for ((_, key), value) in LEVELS.iter().zip(self.0) {
            map.serialize_entry(key, &Figure::from(value))?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Percentiles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = BTreeMap::<String, Figure>::deserialize(deserializer)?;
        let mut figures = [f64::NAN; LEVELS.len()];
        for (figure, (_, key)) in figures.iter_mut().zip(LEVELS) {
            let value = found.get(key).ok_or_else(|| Error::custom(format!("no percentile '{key}'")))?;
            *figure = value.value().map_err(Error::custom)?;
        }
        Ok(Self(figures))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Figure {
    Number(f64),
    Text(String),
}

impl From<f64> for Figure {
    fn from(value: f64) -> Self {
        if value.is_nan() { Self::Text("NaN".to_owned()) } else { Self::Number(value) }
    }
}

impl Figure {
    fn value(&self) -> Result<f64, String> {
        match self {
            Self::Number(value) => Ok(*value),
            Self::Text(text) if text == "NaN" => Ok(f64::NAN),
            Self::Text(text) => Err(format!("'{text}' is not a number")),
        }
    }
}

/// One number that may be none.
pub(super) mod nan {
    use super::{Deserialize, Deserializer, Error, Figure, Serialize, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(in crate::jmh) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        Figure::from(*value).serialize(serializer)
    }

    pub(in crate::jmh) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Figure::deserialize(deserializer)?.value().map_err(Error::custom)
    }
}

/// Two of them.
pub(super) mod nan_pair {
    use super::{Deserialize, Deserializer, Error, Figure, Serialize, Serializer};

    pub(in crate::jmh) fn serialize<S: Serializer>(
        pair: &[f64; 2],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        pair.map(Figure::from).serialize(serializer)
    }

    pub(in crate::jmh) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<[f64; 2], D::Error> {
        let [low, high] = <[Figure; 2]>::deserialize(deserializer)?;
        Ok([low.value().map_err(Error::custom)?, high.value().map_err(Error::custom)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_keep_their_keys_and_what_is_no_number() {
        let percentiles = Percentiles::of(|level| if level > 99.9 { f64::NAN } else { level });
        let text = serde_json::to_string(&percentiles).unwrap();
        assert!(text.starts_with(r#"{"0.0":0.0,"50.0":50.0"#), "{text}");
        assert!(text.ends_with(r#""100.0":"NaN"}"#), "{text}");
        let back: Percentiles = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
        assert!((back.at(95.0) - 95.0).abs() < 1e-12);
        assert!(back.at(100.0).is_nan() && back.at(42.0).is_nan());
        assert!(serde_json::from_str::<Percentiles>("{}").is_err());
    }
}
