//! Turns the kernel verifier's log into a P4 place, a reason and a hint.

use crate::LineMap;
use p4_ir::Location;

/// Why the kernel refused a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierReport {
    /// The P4 statement that the refused instruction comes from, if the log names a line.
    pub location: Option<Location>,
    /// The verifier's own words.
    pub reason: String,
    /// What helps.
    pub hint: String,
}

/// Reads a verifier log: the last `; source @ file.c:line` before the complaint names the C line.
pub fn explain(log: &str, c_source: &str, line_map: &LineMap) -> VerifierReport {
    let mut line = None;
    let mut reason = String::new();
    for text in log.lines() {
        let text = text.trim();
        if let Some(comment) = text.strip_prefix("; ") {
            line = c_line(comment, c_source).or(line);
        } else if let Some(at) = text.find("BPF program is too large") {
            reason = text[at..].to_string();
        } else if is_complaint(text) {
            reason = text.to_string();
        }
    }
    let hint = hint_for(&reason);
    VerifierReport { location: line.and_then(|line| line_map.place(line)), reason, hint: hint.into() }
}

/// `text @ file.c:12` (kernel 6.9 and later), else the line with that text.
fn c_line(comment: &str, c_source: &str) -> Option<usize> {
    if let Some((_, place)) = comment.rsplit_once(" @ ")
        && let Some((file, line)) = place.rsplit_once(':')
        && file.ends_with(".c")
    {
        return line.parse().ok();
    }
    let mut matching = c_source.lines().enumerate().filter(|(_, line)| line.trim() == comment.trim());
    let (index, _) = matching.next()?;
    matching.next().is_none().then_some(index + 1)
}

/// Not an instruction, a register dump or a statistic.
fn is_complaint(text: &str) -> bool {
    let instruction = text.split_once(':').is_some_and(|(number, _)| number.chars().all(|c| c.is_ascii_digit()));
    let noise = ["processed ", "verification time", "stack depth", "from ", "-- ", "mark_precise", "last_idx", "regs="];
    !text.is_empty()
        && !instruction
        && !noise.iter().any(|prefix| text.starts_with(prefix))
        && !text.starts_with("libbpf:")
        && !text.starts_with("parent ")
        && !text.starts_with("insns_state")
}

fn hint_for(reason: &str) -> &'static str {
    if reason.contains("too large") || reason.contains("too complex") || reason.contains("insns") {
        "the program has too many paths: split long parser chains, or bound header stacks and loops more tightly"
    } else if reason.contains("number of maps") {
        "the program has too many tables, registers, counters and FlowState objects (a ternary table, and a default action that can be changed, \
         take one map more each): join some, or give small tables const entries and const default actions, which need no map"
    } else if reason.contains("stack") {
        "the program keeps too much on BPF's 512 bytes of stack: use smaller hash inputs, keys or header stacks"
    } else if reason.contains("invalid access to packet") || reason.contains("pkt") {
        "an access that the verifier cannot bound: limit the computed offset (varbit size, advance) with a mask or an if"
    } else if reason.contains("infinite loop") || reason.contains("back-edge") {
        "a parser loop without a bound that the verifier sees: loop over a header stack"
    } else {
        "this is a fault of the compiler: please report the program; --emit-c shows the C"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_maps_are_the_programs_fault() {
        let log = "The total number of maps per program has reached the limit of 64\nprocessed 0 insns\n";
        let report = explain(log, "", &LineMap::default());
        assert!(report.reason.contains("limit of 64") && report.hint.contains("join some"), "{report:?}");
    }

    #[test]
    fn names_the_p4_line_of_the_last_instruction() {
        let place = Location { file: 0, line: 120, column: 5 };
        let map = LineMap { lines: vec![None, Some(place), None] };
        let log = "0: R1=ctx() R10=fp0\n; x = y; @ prog.c:2\n5: (71) r1 = *(u8 *)(r2 +0)\ninvalid access to packet, off=0 size=1, R2(id=0,off=0,r=0)\nR2 offset is outside of the packet\nprocessed 6 insns\n";
        let report = explain(log, "a\nx = y;\nb\n", &map);
        assert_eq!(report.location, Some(place));
        assert_eq!(report.reason, "R2 offset is outside of the packet");
        let old_kernel = log.replace(" @ prog.c:2", "");
        assert_eq!(explain(&old_kernel, "a\nx = y;\nb\n", &map).location, Some(place));
    }
}
