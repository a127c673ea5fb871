//! STF, the format of packet tests. One command a line; `#` starts a comment.
//! docs/packet-tests.md describes it.
//!
//! What a case needs around it stands in comments such as `# define: NAME`: [`crate::setup`].

mod command;

pub use crate::comparison::Comparison;
use crate::setup::{self, Setup};
use crate::system::{Line, Systems};
pub use command::COMMANDS;
use command::command;
pub(crate) use command::words;
use dataplane::{ActionSpec, EntrySpec};

/// A parsed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// As given, for messages.
    pub path: String,
    /// What it needs around it.
    pub setup: Setup,
    /// Commands with their line numbers, from 1.
    pub commands: Vec<(u32, Command)>,
}

/// Where a packet comes from or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Port {
    /// A P4 port other than [`HOST_PORT`].
    Number(u32),
    /// The kernel.
    Host,
}

/// The P4 port that stands for the kernel: other tools' ports are numbers only.
pub const HOST_PORT: u32 = 510;

/// The P4 port that packets to drop go to; ports are below.
const DROP_PORT: u32 = 511;

impl From<u32> for Port {
    fn from(number: u32) -> Port {
        if number == HOST_PORT { Port::Host } else { Port::Number(number) }
    }
}

impl std::fmt::Display for Port {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Port::Number(number) => write!(formatter, "{number}"),
            Port::Host => write!(formatter, "{HOST_PORT} (the kernel)"),
        }
    }
}

/// The bytes that are expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Half bytes; none: any.
    pub nibbles: Vec<Option<u8>>,
    /// The packet must end where the pattern does.
    pub exact_length: bool,
}

impl Pattern {
    /// Does nibble `index` of the packet fit?
    pub fn nibble_fits(&self, index: usize, packet: &[u8]) -> bool {
        let Some(wanted) = self.nibbles.get(index) else { return !self.exact_length };
        let Some(byte) = packet.get(index / 2) else { return false };
        let nibble = if index.is_multiple_of(2) { byte >> 4 } else { byte & 15 };
        wanted.is_none_or(|wanted| wanted == nibble)
    }

    /// Does the packet fit?
    pub fn fits(&self, packet: &[u8]) -> bool {
        let nibbles = self.nibbles.len().max(if self.exact_length { packet.len() * 2 } else { 0 });
        (0..nibbles).all(|index| self.nibble_fits(index, packet))
    }
}

/// A line's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A packet comes in.
    Packet {
        /// P4 port.
        port: u32,
        /// The frame.
        bytes: Vec<u8>,
    },
    /// A packet goes out.
    Expect {
        /// Where.
        port: Port,
        /// None: whatever it is.
        pattern: Option<Pattern>,
    },
    /// A table entry.
    Add {
        /// Table.
        table: String,
        /// Entry.
        entry: EntrySpec,
    },
    /// A default action.
    SetDefault {
        /// Table.
        table: String,
        /// Action.
        action: ActionSpec,
    },
    /// Nothing more has come out.
    NoPacket,
    /// Nothing to wait for.
    Wait,
    /// A counter's value.
    CheckCounter {
        /// Counter.
        counter: String,
        /// Element.
        index: u32,
        /// Bytes instead of packets.
        bytes: bool,
        /// How it is compared.
        comparison: Comparison,
        /// Expected.
        value: u64,
    },
    /// A register's value.
    CheckRegister {
        /// Register.
        register: String,
        /// Element.
        index: u32,
        /// How it is compared.
        comparison: Comparison,
        /// Expected.
        value: u128,
    },
    /// One of the gateway's counts.
    CheckGateway {
        /// Of [`dataplane::GATEWAY_DROPS`] or [`dataplane::GATEWAY_EVENTS`].
        name: String,
        /// How it is compared.
        comparison: Comparison,
        /// Expected.
        value: u64,
    },
    /// The switch dies, and one with empty state takes its place.
    TakesOver {
        /// The same one, in its next life.
        same: bool,
    },
    /// Time passes.
    Clock {
        /// By so much.
        nanoseconds: u64,
    },
}

/// A line that is not STF.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}:{line}:{column}: {reason}")]
pub struct StfError {
    /// File.
    pub path: String,
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    /// What is wrong.
    pub reason: String,
}

/// A word and its column (from 0, in bytes).
pub type Word<'a> = (usize, &'a str);
/// Column (in bytes) and reason.
pub type Wrong = (usize, String);

/// What is wrong, and where.
///
/// # Errors
/// Always.
pub fn wrong<T>(column: usize, reason: impl Into<String>) -> Result<T, Wrong> {
    Err((column, reason.into()))
}

impl Case {
    /// Parses a file's text; all the lines that are wrong are reported at once.
    ///
    /// # Errors
    /// Each of these lines.
    pub fn parse(path: &str, text: &str, systems: Systems) -> Result<Case, Vec<StfError>> {
        let mut case = Case { path: path.to_owned(), setup: Setup::default(), commands: vec![] };
        let mut errors = vec![];
        for (number, line) in (1..).zip(text.lines()) {
            let code = line.split('#').next().unwrap_or_default();
            let read = if let Some((keyword, from)) = setup::keyword(line, systems) {
                case.setup.read(Line::new(number, keyword, line, from), systems)
            } else if code.trim().is_empty() {
                Ok(None)
            } else {
                command(code).map(Some)
            };
            match read {
                Ok(command) => case.commands.extend(command.map(|command| (number, command))),
                Err((column, reason)) => {
                    let before = line.get(..column.min(line.len())).unwrap_or(line);
                    let column = before.chars().count() as u32 + 1;
                    errors.push(StfError { path: path.to_owned(), line: number, column, reason });
                }
            }
        }
        if errors.is_empty() { Ok(case) } else { Err(errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Command {
        command(line).unwrap_or_else(|(column, reason)| panic!("{line}: {column}: {reason}"))
    }

    fn pattern_of(line: &str) -> Pattern {
        match one(line) {
            Command::Expect { pattern: Some(pattern), .. } => pattern,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn reads_packets_and_patterns() {
        assert_eq!(
            one("packet 3 00 1122 a B"),
            Command::Packet { port: 3, bytes: vec![0, 0x11, 0x22, 0xab] }
        );
        assert_eq!(one("packet 3"), Command::Packet { port: 3, bytes: vec![] });
        let open = pattern_of("expect 1 0* 22");
        assert!(open.fits(&[0x0f, 0x22]) && open.fits(&[0x01, 0x22, 0x33]));
        assert!(!open.fits(&[0x1f, 0x22]) && !open.fits(&[0x01]));
        let closed = pattern_of("expect 1 0* 22$");
        assert!(closed.fits(&[0x0f, 0x22]) && !closed.fits(&[0x01, 0x22, 0x33]));
        for kernel in ["expect host", "expect 510"] {
            assert_eq!(one(kernel), Command::Expect { port: Port::Host, pattern: None });
        }
        assert!(command("packet 510 00").is_err());
    }

    #[test]
    fn reads_entries() {
        let Command::Add { table, entry } = one(
            "add ingress.t 10 hdr.a[0].b:0x1*  c : 10.0.0.0/8 h.isValid():1 act(x:1, 00:11:22:33:44:55) = $e1",
        ) else {
            panic!()
        };
        assert_eq!((table.as_str(), entry.priority), ("ingress.t", Some(10)));
        let keys: Vec<_> = entry
            .keys
            .iter()
            .map(|key| (key.name.as_deref().unwrap(), key.text.as_str()))
            .collect();
        assert_eq!(keys, [("hdr.a[0].b", "0x1*"), ("c", "10.0.0.0/8"), ("h.isValid()", "1")]);
        assert_eq!(entry.action.name, "act");
        let arguments =
            [(Some("x".to_owned()), "1".to_owned()), (None, "00:11:22:33:44:55".to_owned())];
        assert_eq!(entry.action.arguments, arguments);
        let Command::Add { entry, .. } = one("add t k:1 act (5)") else { panic!() };
        assert_eq!((entry.priority, entry.action.arguments.len()), (None, 1));
        let Command::SetDefault { table, action } = one("setdefault t act(mac:00:11:22:33:44:55)")
        else {
            panic!()
        };
        assert_eq!((table.as_str(), action.arguments[0].0.as_deref()), ("t", Some("mac")));
        assert_eq!(action.arguments[0].1, "00:11:22:33:44:55");
    }

    #[test]
    fn reads_checks_and_time() {
        let comparison = Comparison::Equal;
        let check = Command::CheckCounter {
            counter: "c".into(),
            index: 2,
            bytes: true,
            comparison,
            value: 64,
        };
        assert_eq!(one("check_counter c(2) bytes == 64"), check);
        let check =
            Command::CheckRegister { register: "r".into(), index: 0, comparison, value: 255 };
        assert_eq!(one("check_register r(0) == 0xff"), check);
        for (operator, smaller, equal, greater) in [
            ("==", false, true, false),
            ("!=", true, false, true),
            ("<", true, false, false),
            ("<=", true, true, false),
            (">", false, false, true),
            (">=", false, true, true),
        ] {
            let line = format!("check_counter c(0) {operator} 5");
            let Command::CheckCounter { comparison, bytes: false, value: 5, .. } = one(&line)
            else {
                panic!("{line}")
            };
            assert_eq!(
                [4, 5, 6].map(|found| comparison.holds(found, 5)),
                [smaller, equal, greater],
                "{operator}"
            );
        }
        assert!(
            command("check_counter c(0) <> 5").is_err()
                && command("check_counter c(0) == 5 6").is_err()
        );
        let check = Command::CheckGateway {
            name: "other_mac".into(),
            comparison: Comparison::Equal,
            value: 1,
        };
        assert_eq!(one("check_gateway other_mac == 1"), check);
        assert!(command("check_gateway nothing == 1").is_err());
        assert_eq!(one("clock 5ms"), Command::Clock { nanoseconds: 5_000_000 });
    }

    #[test]
    fn says_where_a_line_is_wrong() {
        let text = "# fine\npacket x 00\n  packet 1 0g\npacket 1 000\nexpect 1 00$1\nadd t k:1\nadd t k act()\nsend 1\nclock 5\nadd t k:1 é(\npacket 511 00";
        let errors = Case::parse("x.stf", text, Systems::NONE).unwrap_err();
        let places: Vec<_> = errors.iter().map(|error| (error.line, error.column)).collect();
        assert_eq!(
            places,
            [(2, 8), (3, 13), (4, 13), (5, 13), (6, 7), (7, 7), (8, 1), (9, 7), (10, 13), (11, 8)]
        );
        assert!(errors[0].to_string().starts_with("x.stf:2:8: "));
    }

    #[test]
    fn never_panics() {
        // A small generator with a fixed seed: every run tries the same lines.
        let mut state = 0x5eed_u64;
        let alphabet: Vec<char> =
            "add t(k:1) =$*é#0x,packet expect\t/&setdefault".chars().collect();
        for _ in 0..20_000 {
            let mut line = String::new();
            for _ in 0..(state % 24) {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                line.push(alphabet[(state >> 33) as usize % alphabet.len()]);
            }
            state = state.wrapping_add(1);
            for command in [
                "",
                "add ",
                "setdefault ",
                "check_counter ",
                "expect 1 ",
                "# port: 1 ",
                "#takes_over:",
            ] {
                let _ = Case::parse("x", &format!("{command}{line}"), Systems::NONE);
            }
        }
    }
}
