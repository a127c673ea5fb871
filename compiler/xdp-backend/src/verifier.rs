//! Turns the words of the kernel's verifier into a P4 place, a reason and a remedy.

use crate::{BackendError, LineMap};
use p4_ir::{Location, Program};

/// Why the kernel refused a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierReport {
    /// The P4 statement that the refused instruction comes from, if the log names a line.
    pub location: Option<Location>,
    /// The verifier's own words, for reports of bugs.
    pub reason: String,
    /// What is wrong, in words of the program.
    pub message: String,
    /// What helps.
    pub hint: String,
    /// There were more ways through the program than the verifier follows.
    pub too_many_ways: bool,
    /// The stack was too small for the program with all that it calls.
    pub too_much_stack: bool,
}

impl VerifierReport {
    /// Nothing is wrong with the program.
    pub fn is_fault(&self) -> bool {
        self.message == FAULT
    }

    /// The report as an error with a place in the program.
    pub fn error(&self, program: &Program) -> BackendError {
        BackendError {
            location: self.location.unwrap_or_else(|| beginning(program)),
            message: self.message.clone(),
            help: Some(self.hint.clone()),
            note: None,
        }
    }
}

/// The place for what is wrong with a program as a whole: its parser's first state.
pub(crate) fn beginning(program: &Program) -> Location {
    program.parser.states.first().map_or_else(Location::default, |state| state.location)
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
    let (message, hint) = in_other_words(&reason);
    VerifierReport {
        location: line.and_then(|line| line_map.place(line)),
        message: message.into(),
        hint: hint.into(),
        too_many_ways: is_about_ways(&reason),
        too_much_stack: is_about_stack(&reason),
        reason,
    }
}

/// `text @ file.c:12` (kernel 6.9 and later), else the line with that text.
fn c_line(comment: &str, c_source: &str) -> Option<usize> {
    if let Some((_, place)) = comment.rsplit_once(" @ ")
        && let Some((file, line)) = place.rsplit_once(':')
        && file.ends_with(".c")
    {
        return line.parse().ok();
    }
    let mut matching =
        c_source.lines().enumerate().filter(|(_, line)| line.trim() == comment.trim());
    let (index, _) = matching.next()?;
    matching.next().is_none().then_some(index + 1)
}

/// Not an instruction, a register dump or a statistic.
fn is_complaint(text: &str) -> bool {
    let instruction =
        text.split_once(':').is_some_and(|(number, _)| number.chars().all(|c| c.is_ascii_digit()));
    let noise = [
        "processed ",
        "verification time",
        "stack depth",
        "from ",
        "-- ",
        "mark_precise",
        "last_idx",
        "regs=",
    ];
    !text.is_empty()
        && !instruction
        && !noise.iter().any(|prefix| text.starts_with(prefix))
        && !text.starts_with("libbpf:")
        && !text.starts_with("parent ")
        && !text.starts_with("insns_state")
}

fn is_about_ways(reason: &str) -> bool {
    reason.contains("program is too large") || reason.contains("too complex")
}

fn is_about_stack(reason: &str) -> bool {
    reason.contains("stack size")
}

const FAULT: &str = "the compiled program does something here that the kernel does not allow: this \
                     is a bug of the compiler";

/// What is said of a program that clang does not end with, and its remedy.
pub(crate) const TOO_SLOW: (&str, &str) = (
    "the program is too large: clang takes more than a minute for it; most of its C comes from this line",
    "each call copies the called function, so nested calls multiply: call less often, or split the program",
);

/// What is wrong with a program whose jumps are too far, and what helps.
pub(crate) const TOO_LONG: (&str, &str) = (
    "the program is too long: BPF's jumps reach over 32,767 instructions",
    "shorten actions and blocks, or let a table decide which of them a packet needs",
);

/// What is wrong, and what helps.
fn in_other_words(reason: &str) -> (&'static str, &'static str) {
    if is_about_ways(reason) {
        return (
            "the kernel checks at most 1,000,000 instructions over all paths through the program, and gave \
             up here",
            "shorten long parser chains, bound header stacks and loops more tightly, join `if`s that test the same \
             fields, or let a table decide",
        );
    }
    if reason.contains("number of maps") {
        return (
            "the program has more tables and objects than the 64 maps that the kernel gives a program",
            "join some, or give small tables const entries and const default actions, which need no map (a ternary \
             table, and a default action that can be changed, take one map more each)",
        );
    }
    if is_about_stack(reason) {
        return (
            "the program needs more than BPF's 512 bytes of stack, with the functions that it calls",
            "use smaller hash inputs, keys or header stacks",
        );
    }
    // Older clangs cut the distance of a far jump to 16 bits.
    if reason.contains("jump out of range") {
        return TOO_LONG;
    }
    let remedy = if reason.contains("packet") || reason.contains("pkt") {
        "please report the program; until then, a mask or an `if` that limits a computed offset (varbit size, \
         advance) may help"
    } else {
        "please report the program"
    };
    (FAULT, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_that_were_cut_are_a_program_that_is_too_long() {
        let report = explain(
            "jump out of range from insn 35 to -14224\nprocessed 0 insns\n",
            "",
            &LineMap::default(),
        );
        assert!(report.message.contains("too long") && !report.too_many_ways, "{report:?}");
    }

    #[test]
    fn too_many_maps_are_the_programs_fault() {
        let log =
            "The total number of maps per program has reached the limit of 64\nprocessed 0 insns\n";
        let report = explain(log, "", &LineMap::default());
        assert!(
            report.reason.contains("limit of 64") && report.hint.contains("join some"),
            "{report:?}"
        );
        assert!(report.message.contains("64 maps"), "{report:?}");
    }

    #[test]
    fn the_verifiers_words_are_not_the_message() {
        let of = |reason: &str| {
            explain(&format!("{reason}\nprocessed 0 insns\n"), "", &LineMap::default())
        };
        for (reason, part) in [
            ("BPF program is too large. Processed 1000001 insn", "1,000,000 instructions"),
            ("The sequence of 8193 jumps is too complex.", "1,000,000 instructions"),
            ("combined stack size of 3 calls is 544. Too large", "512 bytes of stack"),
            ("invalid unbounded variable-offset read from stack R4", "a bug of the compiler"),
            ("R2 offset is outside of the packet", "a bug of the compiler"),
        ] {
            let report = of(reason);
            assert_eq!(report.reason, reason);
            assert!(
                report.message.contains(part) && !report.message.contains(reason),
                "{report:?}"
            );
        }
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
