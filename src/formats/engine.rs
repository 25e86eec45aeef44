//! Messages that are exchanged with engines, besides profiles.
//!
//! ```text
//! ExportProfilesServiceResponse = partial success (1)      partial success = rejected profiles (1), message (2)
//! Status = code (1), message (2)                           in place of the response, if the request was refused
//! SelectMergeProfileRequest = type (1), selector (2), from (3), until (4)
//! ```

use super::protobuf::{Fields, Message};

/// Returns how many profiles of a request were not taken, and why.
#[must_use]
pub fn rejected(response: &[u8]) -> (u64, String) {
    let success =
        Fields::of(response).filter(|(number, _)| *number == 1).map(|(_, value)| value.bytes()).last().unwrap_or_default();
    let (mut count, mut why) = (0, String::new());
    for (number, value) in Fields::of(success) {
        match number {
            1 => count = value.number(),
            2 => why = text(value.bytes()),
            _ => {}
        }
    }
    (count, why)
}

/// Returns the message of a `Status`.
#[must_use]
pub fn message_of_status(status: &[u8]) -> String {
    Fields::of(status).filter(|(number, _)| *number == 2).map(|(_, value)| text(value.bytes())).last().unwrap_or_default()
}

/// Returns the question to Pyroscope for all samples of a type and a selector, between two times in milliseconds since 1970.
#[must_use]
pub fn pyroscope_question(kind: &str, selector: &str, (from, until): (u64, u64)) -> Vec<u8> {
    let mut message = Message::default();
    message.bytes(1, kind.as_bytes());
    message.bytes(2, selector.as_bytes());
    message.number(3, from);
    message.number(4, until);
    message.0
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        assert_eq!(rejected(b""), (0, String::new()));
        assert_eq!(rejected(b"\x0a\x00"), (0, String::new()));
        assert_eq!(rejected(b"\x0a\x07\x08\x05\x12\x03old"), (5, "old".to_owned()));
        assert_eq!(message_of_status(b"\x08\x03\x12\x02no"), "no");
        assert_eq!((rejected(b"\xff\xff").0, message_of_status(b"\xff\x12")), (0, String::new()));
    }
}
