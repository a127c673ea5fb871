//! What a case found, for people and for JSON.

use crate::stf::{Pattern, Port, StfError};
use serde::Serialize;
use std::fmt;

/// One case's result.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// The STF file.
    pub case: String,
    /// Packets that went in.
    pub packets: usize,
    /// Packets that came out as expected.
    pub matched: usize,
    /// What went wrong; empty: passed.
    pub failures: Vec<Failure>,
}

impl CaseReport {
    /// The report of a case that could not run.
    pub fn failed(case: &str, line: u32, reason: String) -> CaseReport {
        let failure = Failure { file: case.to_owned(), line, column: None, reason, diff: None };
        CaseReport { case: case.to_owned(), packets: 0, matched: 0, failures: vec![failure] }
    }

    /// The report of a file that is not STF.
    pub fn malformed(case: &str, errors: Vec<StfError>) -> CaseReport {
        let failure = |error: StfError| Failure {
            file: error.path,
            line: error.line,
            column: Some(error.column),
            reason: error.reason,
            diff: None,
        };
        CaseReport {
            case: case.to_owned(),
            packets: 0,
            matched: 0,
            failures: errors.into_iter().map(failure).collect(),
        }
    }

    /// Did everything come out as expected?
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

/// One thing that went wrong.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The STF file.
    pub file: String,
    /// Its line; 0: no line in particular.
    pub line: u32,
    /// Where in the line (from 1, in characters), if the line is not STF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// What happened.
    pub reason: String,
    /// Expected and got, byte by byte, where it is about a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, _) => write!(formatter, "{}: {}", self.file, self.reason)?,
            (line, None) => write!(formatter, "{}:{line}: {}", self.file, self.reason)?,
            (line, Some(column)) => {
                write!(formatter, "{}:{line}:{column}: {}", self.file, self.reason)?
            }
        }
        match &self.diff {
            Some(diff) => write!(formatter, "\n{diff}"),
            None => Ok(()),
        }
    }
}

/// Bytes in a line of a diff.
const LINE_BYTES: usize = 16;

fn nibble(digit: u8) -> char {
    char::from_digit(u32::from(digit), 16).unwrap_or('?')
}

/// The packet in hexadecimal, 16 bytes a line.
pub fn dump(packet: &[u8]) -> String {
    let lines = packet.chunks(LINE_BYTES).enumerate().map(|(index, bytes)| {
        let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("  {:#06x}  {}", index * LINE_BYTES, bytes.join(" "))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Expected above got, with a mark under each digit that differs. Lines that agree are left out,
/// but for one before and after.
pub fn diff(pattern: &Pattern, packet: &[u8]) -> String {
    let bytes = pattern.nibbles.len().div_ceil(2).max(packet.len());
    let lines = bytes.div_ceil(LINE_BYTES);
    let differs = |line: usize| {
        (line * LINE_BYTES * 2..((line + 1) * LINE_BYTES).min(bytes) * 2)
            .any(|index| in_play(pattern, packet, index) && !pattern.nibble_fits(index, packet))
    };
    let mut text: Vec<String> = vec![];
    let mut skipped = false;
    for line in 0..lines {
        if !(differs(line)
            || (line > 0 && differs(line - 1))
            || (line + 1 < lines && differs(line + 1)))
        {
            skipped = true;
            continue;
        }
        if std::mem::take(&mut skipped) {
            text.push("  …".to_owned());
        }
        let [expected, got, marks] = diff_line(pattern, packet, line * LINE_BYTES, bytes);
        text.push(format!("  {:#06x}  expected  {expected}", line * LINE_BYTES));
        text.push(format!("          got       {got}"));
        if !marks.trim().is_empty() {
            text.push(format!("                    {}", marks.trim_end()));
        }
    }
    text.join("\n")
}

/// Is this nibble compared at all? Past an open pattern's end nothing is.
fn in_play(pattern: &Pattern, packet: &[u8], index: usize) -> bool {
    index < pattern.nibbles.len() || (pattern.exact_length && index < packet.len() * 2)
}

fn diff_line(pattern: &Pattern, packet: &[u8], from: usize, bytes: usize) -> [String; 3] {
    let mut rows = [String::new(), String::new(), String::new()];
    for byte in from..(from + LINE_BYTES).min(bytes) {
        for index in [byte * 2, byte * 2 + 1] {
            let expected = match pattern.nibbles.get(index) {
                Some(Some(digit)) => nibble(*digit),
                Some(None) => '*',
                None => ' ',
            };
            let got = packet
                .get(byte)
                .map_or(' ', |value| nibble(if index % 2 == 0 { value >> 4 } else { value & 15 }));
            let bad = in_play(pattern, packet, index) && !pattern.nibble_fits(index, packet);
            rows[0].push(expected);
            rows[1].push(got);
            rows[2].push(if bad { '^' } else { ' ' });
        }
        rows.iter_mut().for_each(|row| row.push(' '));
    }
    rows.map(|row| row.trim_end().to_owned())
}

/// What differs, in a sentence.
pub fn difference(pattern: &Pattern, packet: &[u8], port: Port, from_line: u32) -> String {
    let nibbles = pattern.nibbles.len().max(packet.len() * 2);
    let mut bad: Vec<usize> = (0..nibbles)
        .filter(|index| in_play(pattern, packet, *index) && !pattern.nibble_fits(*index, packet))
        .map(|index| index / 2)
        .collect();
    bad.dedup();
    let expected = pattern.nibbles.len() / 2;
    let lengths = match packet.len().cmp(&expected) {
        std::cmp::Ordering::Less => {
            format!("; it has {} bytes, {expected} or more expected", packet.len())
        }
        std::cmp::Ordering::Greater if pattern.exact_length => {
            format!("; it has {} bytes, {expected} expected", packet.len())
        }
        _ => String::new(),
    };
    let first = bad.first().copied().unwrap_or(0);
    let count = bad.len();
    format!(
        "port {port}: the packet (from line {from_line}) differs in {count} bytes, first at byte {first}{lengths}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_what_differs() {
        let pattern =
            Pattern { nibbles: vec![Some(1), Some(2), None, Some(4)], exact_length: true };
        let text = diff(&pattern, &[0x12, 0x35, 0x66]);
        assert_eq!(
            text,
            "  0x0000  expected  12 *4\n          got       12 35 66\n                        ^ ^^"
        );
        let sentence = difference(&pattern, &[0x12, 0x35, 0x66], Port::Number(4), 9);
        assert_eq!(
            sentence,
            "port 4: the packet (from line 9) differs in 2 bytes, first at byte 1; it has 3 bytes, 2 expected"
        );
        let open = Pattern { exact_length: false, ..pattern };
        assert_eq!(diff(&open, &[0x12, 0x34, 0x66]), "");
    }
}
