//! The wire format of protocol buffers: fields of messages, without a schema.
//!
//! ```text
//! message = field…        field = tag varint (number << 3 | type), value        type 0: varint · 1: 8 bytes · 2: length varint, bytes · 5: 4 bytes
//! ```
//!
//! Source: <https://protobuf.dev/programming-guides/encoding/>.

use super::varint;

/// A field's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value<'a> {
    Number(u64),
    /// Text, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
}

/// The fields of a message. Ends at the first field that is damaged; see [`is_damaged`](Self::is_damaged).
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    is_damaged: bool,
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message, is_damaged: false }
    }

    /// Whether the bytes after the last field are no field.
    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Returns how many bytes have not been read.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = varint::take(&mut self.rest)?;
        let value = match tag & 7 {
            0 => Value::Number(varint::take(&mut self.rest)?),
            1 => Value::Number(u64::from_le_bytes(*self.bytes(8)?.first_chunk()?)),
            2 => {
                let length = usize::try_from(varint::take(&mut self.rest)?).ok()?;
                Value::Bytes(self.bytes(length)?)
            }
            5 => Value::Number(u64::from(u32::from_le_bytes(*self.bytes(4)?.first_chunk()?))),
            _ => return None,
        };
        Some((tag >> 3, value))
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<(u64, Value<'a>)> {
        if self.rest.is_empty() || self.is_damaged {
            return None;
        }
        let whole = self.rest;
        let field = self.field();
        if field.is_none() {
            (self.rest, self.is_damaged) = (whole, true);
        }
        field
    }
}

impl<'a> Value<'a> {
    /// Returns a number, or 0 if the value is of another type.
    pub(super) fn number(self) -> u64 {
        match self {
            Value::Number(number) => number,
            Value::Bytes(_) => 0,
        }
    }

    /// Returns the bytes of a text or message; none if the value is a number.
    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Value::Number(_) => &[],
            Value::Bytes(bytes) => bytes,
        }
    }

    /// Visits the numbers of a repeated field of 8 bytes, packed or not.
    pub(super) fn fixed_numbers(self, mut each: impl FnMut(u64)) {
        match self {
            Value::Number(number) => each(number),
            Value::Bytes(packed) => packed.as_chunks::<8>().0.iter().for_each(|number| each(u64::from_le_bytes(*number))),
        }
    }

    /// Visits the numbers of a repeated field, packed or not.
    #[inline]
    pub(super) fn numbers(self, mut each: impl FnMut(u64)) {
        match self {
            Value::Number(number) => each(number),
            Value::Bytes(mut packed) => {
                while let Some(number) = varint::take(&mut packed) {
                    each(number);
                }
            }
        }
    }
}

/// A message that is being written.
#[derive(Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    /// Appends a number. 0 is the value of a field that is not there.
    pub(super) fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.varint(field << 3);
            self.varint(value);
        }
    }

    /// Appends a number that is there even if it is 0.
    pub(super) fn present(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    /// Appends a number of 8 bytes.
    pub(super) fn fixed_number(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends numbers of 8 bytes in packed form.
    pub(super) fn fixed_numbers(&mut self, field: u64, values: impl Iterator<Item = u64>) {
        let packed: Vec<u8> = values.flat_map(u64::to_le_bytes).collect();
        self.bytes(field, &packed);
    }

    /// Appends numbers in packed form.
    pub(super) fn numbers(&mut self, field: u64, values: &[u64]) {
        let mut packed = Message::default();
        values.iter().for_each(|value| packed.varint(*value));
        self.bytes(field, &packed.0);
    }

    /// Appends a text or a message.
    pub(super) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn varint(&mut self, value: u64) {
        varint::push(&mut self.0, value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_of_all_types_are_read() {
        let bytes = b"\x08\x96\x01\x12\x03abc\x19\x01\0\0\0\0\0\0\0\x25\x02\0\0\0\x32\x03\x01\x80\x02";
        let mut fields = Fields::of(bytes);
        let all: Vec<_> = fields.by_ref().collect();
        let packed = all[4].1;
        assert_eq!(all[..4], [(1, Value::Number(150)), (2, Value::Bytes(b"abc")), (3, Value::Number(1)), (4, Value::Number(2))]);
        let mut numbers = Vec::new();
        packed.numbers(|number| numbers.push(number));
        assert_eq!((numbers, fields.is_damaged()), (vec![1, 256], false));
        let mut cut = Fields::of(&bytes[..bytes.len() - 1]);
        assert_eq!((cut.by_ref().count(), cut.is_damaged(), cut.left()), (4, true, 4));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(number in 1u64.., text in ".{0,300}", many in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut message = Message::default();
            message.number(1, number);
            message.number(2, 0);
            message.bytes(3, text.as_bytes());
            message.numbers(15, &many);
            let fields: Vec<_> = Fields::of(&message.0).collect();
            prop_assert_eq!(fields[0], (1, Value::Number(number)));
            prop_assert_eq!(fields[1], (3, Value::Bytes(text.as_bytes())));
            let mut read = Vec::new();
            fields[2].1.numbers(|number| read.push(number));
            prop_assert_eq!((fields[2].0, read), (15, many));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            Fields::of(&bytes).for_each(|(_, value)| value.numbers(|_| {}));
        }
    }
}
