//! Keys with values as lines of JSON.

use netchain_client::Key;
use serde::Deserialize;
use serde_json::{Value, json};

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub key: Key,
    pub value: Vec<u8>,
}

/// A line, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: Option<String>,
    key_hex: Option<String>,
    value: Option<String>,
    value_hex: Option<String>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let good = digits.len().is_multiple_of(2) && digits.bytes().all(|it| it.is_ascii_hexdigit());
    let byte = |at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    if good { (0..digits.len()).step_by(2).map(byte).collect() } else { None }
}

fn is_text(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// A key as an object with one field: its name, or its digits if it has none.
pub(crate) fn named(key: &Key) -> Value {
    let length = key.0.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    match std::str::from_utf8(&key.0[..length]) {
        Ok(name) if is_text(name) => json!({ "key": name }),
        _ => json!({ "key_hex": hex(&key.0) }),
    }
}

/// The field and the text of a value: `value`, or `value_hex` if it is no text.
pub(crate) fn valued(value: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(value) {
        Ok(text) if is_text(text) => ("value", text.to_owned()),
        _ => ("value_hex", hex(value)),
    }
}

impl Pair {
    /// The line, without its end.
    pub(crate) fn line(&self) -> String {
        let (mut line, (field, value)) = (named(&self.key), valued(&self.value));
        line[field] = value.into();
        line.to_string()
    }

    /// Of a line; else what is wrong with it.
    pub(crate) fn read(line: &str) -> Result<Pair, String> {
        let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let key = match (line.key, line.key_hex) {
            (Some(name), None) => Key::from_name(&name).map_err(|error| error.to_string())?,
            (None, Some(digits)) => {
                let bytes = from_hex(&digits).and_then(|bytes| bytes.try_into().ok());
                Key(bytes.ok_or("key_hex: write 32 hexadecimal digits")?)
            }
            _ => return Err("write key or key_hex".into()),
        };
        let value = match (line.value, line.value_hex) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(digits)) => {
                from_hex(&digits).ok_or("value_hex: write pairs of hexadecimal digits")?
            }
            _ => return Err("write value or value_hex".into()),
        };
        if value.len() > netchain_protocol::VALUE_MAX {
            return Err(format!("the value has {} bytes; a value has at most 128", value.len()));
        }
        Ok(Pair { key, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let names: [&[u8]; 4] = [b"greeting", b"a\0b", &[0xff; 16], b""];
        let values: [&[u8]; 4] = [b"hello", b"", &[0xff, 0], b"two\nlines"];
        for (name, value) in names.into_iter().flat_map(|name| values.map(|value| (name, value))) {
            let mut key = [0; 16];
            key[..name.len()].copy_from_slice(name);
            let pair = Pair { key: Key(key), value: value.to_vec() };
            let line = pair.line();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(Pair::read(&line), Ok(pair), "{line}");
        }
        let line = Pair { key: Key::from_name("a").unwrap(), value: b"b".to_vec() }.line();
        assert_eq!(line, r#"{"key":"a","value":"b"}"#);
    }

    #[test]
    fn faults_are_named() {
        for (line, said) in [
            (r#"{"key":"seventeen-letters","value":""}"#, "17 bytes"),
            (r#"{"key":"a","key_hex":"00","value":""}"#, "key or key_hex"),
            (r#"{"key_hex":"0g","value":""}"#, "32 hexadecimal digits"),
            (r#"{"key":"a"}"#, "value or value_hex"),
            (r#"{"key":"a","value_hex":"012"}"#, "pairs of hexadecimal digits"),
            (r#"{"key":"a","value":"b","more":1}"#, "more"),
        ] {
            let error = Pair::read(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
        let long = format!(r#"{{"key":"a","value":"{}"}}"#, "x".repeat(129));
        assert!(Pair::read(&long).unwrap_err().contains("129 bytes"));
    }
}
