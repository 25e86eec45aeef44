//! What an engine answers.
//!
//! ```text
//! ExportProfilesServiceResponse = partial success (1)      partial success = rejected profiles (1), message (2)
//! Status = code (1), message (2)                           in place of the response, if the request was refused
//! ```

use crate::formats::protobuf::Fields;

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
