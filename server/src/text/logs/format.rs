//! The two forms of a line of the log: text for people, and one JSON object a line for programs that collect logs.
//!
//! The lines of the subscriber are written by `tracing_subscriber`. This file writes those that do not come through the
//! subscriber (a panic, the last words of a process that failed, a gap), in the same form.

use serde_json::json;
use tracing::Level;

use crate::text::human_time::{now_ns, rfc3339_ms};

/// The end of a line of text that was cut.
const CUT: &[u8] = b" ... (this line was longer, and was cut)\n";

/// How many bytes of a line that was cut its JSON object quotes are room divided by this: each byte takes up to six
/// there (`\u0000`).
const QUOTED_PART: usize = 16;

/// The form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

impl LogFormat {
    /// `text` or `json`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }

    /// A line as the subscriber would write it.
    pub(super) fn line(self, level: Level, target: &str, message: &str) -> String {
        let now = rfc3339_ms(now_ns() / 1_000_000);
        match self {
            Self::Text => format!("{now} {level:>5} {target}: {message}\n"),
            Self::Json => format!(
                "{{\"timestamp\":{},\"level\":{},\"message\":{},\"target\":{}}}\n",
                json!(now),
                json!(level.as_str()),
                json!(message),
                json!(target)
            ),
        }
    }

    /// Words that text shows as they are, with a newline behind them.
    pub(super) fn words(self, target: &str, words: &str) -> String {
        match self {
            Self::Text => format!("{words}\n"),
            Self::Json => self.line(Level::ERROR, target, words.trim()),
        }
    }

    /// What is left of a line that is longer than `most` bytes, which is all the room there is.
    pub(super) fn cut(self, line: &[u8], most: usize) -> Vec<u8> {
        match self {
            Self::Text => [&line[..most - CUT.len()], CUT].concat(),
            Self::Json => {
                let begin = String::from_utf8_lossy(&line[..most / QUOTED_PART]);
                let message = format!("a line of {} bytes was cut; it began: {begin}", line.len());
                self.line(Level::WARN, module_path!(), &message).into_bytes()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_line_of_json_is_one_object_whatever_its_words_are() {
        let words = "thread 'x' panicked:\n\"a\\b\" \u{1b}[0m\u{0}";
        for line in [
            LogFormat::Json.line(Level::WARN, "xuid::text", words),
            LogFormat::Json.words("xuid", &format!("\n{words}\n")),
        ] {
            assert_eq!(line.find('\n'), Some(line.len() - 1), "{line:?}");
            let object: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(object["message"], json!(words.trim()));
            assert!(object["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')));
        }
    }

    #[test]
    fn a_line_that_is_cut_finds_room_in_either_form() {
        let most = 4_096;
        for byte in [b'x', 0, 0xff, b'"'] {
            let line = vec![byte; most + 1];
            for format in [LogFormat::Text, LogFormat::Json] {
                let cut = format.cut(&line, most);
                assert!(cut.len() <= most && cut.ends_with(b"\n"), "{} bytes of {byte}", cut.len());
            }
            let object: Value = serde_json::from_slice(&LogFormat::Json.cut(&line, most)).unwrap();
            assert!(object["message"].as_str().unwrap().contains("4097 bytes"));
        }
    }
}
