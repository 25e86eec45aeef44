//! OTLP in JSON: the same messages with names in place of numbers of fields, after proto3's rules. Numbers of 64 bits are texts.
//!
//! One table of fields serves both directions.

use serde_json::{Map, Value as Json};

use crate::formats::FormatError;
use crate::formats::protobuf::{Fields, Message};

/// A field of a message.
struct Field {
    number: u64,
    name: &'static str,
    of: Of,
    is_list: bool,
}

/// The type of a field.
#[derive(Clone, Copy)]
enum Of {
    /// A number of 32 bits.
    Small,
    /// A number of 64 bits.
    Large,
    /// A number that takes 8 bytes in a message.
    Fixed,
    Text,
    Message(&'static [Field]),
}

const fn one(number: u64, name: &'static str, of: Of) -> Field {
    Field { number, name, of, is_list: false }
}

const fn list(number: u64, name: &'static str, of: Of) -> Field {
    Field { number, name, of, is_list: true }
}

const DATA: &[Field] =
    &[list(1, "resourceProfiles", Of::Message(RESOURCE_PROFILES)), one(2, "dictionary", Of::Message(DICTIONARY))];
const RESOURCE_PROFILES: &[Field] =
    &[one(1, "resource", Of::Message(RESOURCE)), list(2, "scopeProfiles", Of::Message(SCOPE_PROFILES))];
const RESOURCE: &[Field] = &[list(1, "attributes", Of::Message(KEY_VALUE))];
const KEY_VALUE: &[Field] = &[one(1, "key", Of::Text), one(2, "value", Of::Message(ANY))];
const ANY: &[Field] = &[one(1, "stringValue", Of::Text), one(3, "intValue", Of::Large)];
const SCOPE_PROFILES: &[Field] = &[one(1, "scope", Of::Message(SCOPE)), list(2, "profiles", Of::Message(PROFILE))];
const SCOPE: &[Field] = &[one(1, "name", Of::Text), one(2, "version", Of::Text)];
const PROFILE: &[Field] = &[
    one(1, "sampleType", Of::Message(VALUE_TYPE)),
    list(2, "samples", Of::Message(SAMPLE)),
    one(3, "timeUnixNano", Of::Fixed),
    one(4, "durationNano", Of::Large),
    one(5, "periodType", Of::Message(VALUE_TYPE)),
    one(6, "period", Of::Large),
];
const VALUE_TYPE: &[Field] = &[one(1, "typeStrindex", Of::Small), one(2, "unitStrindex", Of::Small)];
const SAMPLE: &[Field] = &[
    one(1, "stackIndex", Of::Small),
    list(2, "attributeIndices", Of::Small),
    one(3, "linkIndex", Of::Small),
    list(4, "values", Of::Large),
    list(5, "timestampsUnixNano", Of::Fixed),
];
const DICTIONARY: &[Field] = &[
    list(1, "mappingTable", Of::Message(MAPPING)),
    list(2, "locationTable", Of::Message(LOCATION)),
    list(3, "functionTable", Of::Message(FUNCTION)),
    list(4, "linkTable", Of::Message(&[])),
    list(5, "stringTable", Of::Text),
    list(6, "attributeTable", Of::Message(ATTRIBUTE)),
    list(7, "stackTable", Of::Message(STACK)),
];
const MAPPING: &[Field] = &[
    one(1, "memoryStart", Of::Large),
    one(2, "memoryLimit", Of::Large),
    one(3, "fileOffset", Of::Large),
    one(4, "filenameStrindex", Of::Small),
    list(5, "attributeIndices", Of::Small),
];
const LOCATION: &[Field] = &[
    one(1, "mappingIndex", Of::Small),
    one(2, "address", Of::Large),
    list(3, "lines", Of::Message(LINE)),
    list(4, "attributeIndices", Of::Small),
];
const LINE: &[Field] = &[one(1, "functionIndex", Of::Small), one(2, "line", Of::Large), one(3, "column", Of::Large)];
const FUNCTION: &[Field] = &[
    one(1, "nameStrindex", Of::Small),
    one(2, "systemNameStrindex", Of::Small),
    one(3, "filenameStrindex", Of::Small),
    one(4, "startLine", Of::Large),
];
const ATTRIBUTE: &[Field] =
    &[one(1, "keyStrindex", Of::Small), one(2, "value", Of::Message(ANY)), one(3, "unitStrindex", Of::Small)];
const STACK: &[Field] = &[list(1, "locationIndices", Of::Small)];

/// Converts `ProfilesData` to JSON.
pub(super) fn of_message(message: &[u8]) -> Vec<u8> {
    // Writing to memory cannot fail, and all keys are texts.
    serde_json::to_vec(&object(message, DATA)).unwrap_or_default()
}

fn object(message: &[u8], fields: &[Field]) -> Json {
    let mut object = Map::new();
    for (number, value) in Fields::of(message) {
        let Some(field) = fields.iter().find(|field| field.number == number) else { continue };
        let mut add = |json: Json| match object.get_mut(field.name) {
            Some(Json::Array(known)) if field.is_list => known.push(json),
            _ if field.is_list => drop(object.insert(field.name.to_owned(), Json::Array(vec![json]))),
            _ => drop(object.insert(field.name.to_owned(), json)),
        };
        match field.of {
            Of::Small => value.numbers(|number| add(number.into())),
            Of::Large => value.numbers(|number| add(number.cast_signed().to_string().into())),
            Of::Fixed => value.fixed_numbers(|number| add(number.to_string().into())),
            Of::Text => add(String::from_utf8_lossy(value.bytes()).into_owned().into()),
            Of::Message(fields) => add(self::object(value.bytes(), fields)),
        }
    }
    Json::Object(object)
}

/// Converts JSON to `ProfilesData`.
pub(in crate::formats) fn to_message(text: &[u8]) -> Result<Vec<u8>, FormatError> {
    let document: Json = serde_json::from_slice(text).map_err(|error| FormatError::Json { what: error.to_string() })?;
    Ok(message(&document, DATA).0)
}

fn message(document: &Json, fields: &[Field]) -> Message {
    let mut message = Message::default();
    for field in fields {
        let Some(value) = document.get(field.name) else { continue };
        let values = match value {
            Json::Array(values) if field.is_list => values,
            value => std::slice::from_ref(value),
        };
        let numbers = || values.iter().map(number);
        match field.of {
            Of::Small | Of::Large if field.is_list => message.numbers(field.number, &numbers().collect::<Vec<_>>()),
            Of::Fixed if field.is_list => message.fixed_numbers(field.number, numbers()),
            Of::Small | Of::Large => numbers().for_each(|number| message.present(field.number, number)),
            Of::Fixed => numbers().for_each(|number| message.fixed_number(field.number, number)),
            Of::Text => values.iter().for_each(|text| message.bytes(field.number, text.as_str().unwrap_or("").as_bytes())),
            Of::Message(fields) => {
                for value in values {
                    let of_value = self::message(value, fields);
                    message.bytes(field.number, &of_value.0);
                }
            }
        }
    }
    message
}

/// Returns a number, which may be written as a text.
fn number(value: &Json) -> u64 {
    let of_text =
        || value.as_str().and_then(|text| text.parse::<u64>().ok().or(text.parse::<i64>().ok().map(i64::cast_unsigned)));
    value.as_u64().or(value.as_i64().map(i64::cast_unsigned)).or_else(of_text).unwrap_or(0)
}
