//! STF, the format of packet tests. One command a line; `#` starts a comment.
//! docs/packet-tests.md describes it.
//!
//! What a case needs around it stands in comments such as `# define: NAME`: [`crate::setup`].

pub use crate::comparison::Comparison;
use crate::setup::{self, Setup};
use crate::system::{Line, Systems};
use dataplane::{ActionSpec, EntrySpec, KeySpec, gateway_counters};

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

/// Words at depth 0 of parentheses, so that `act(a: 1, b: 2)` is one.
pub(crate) fn words(line: &str) -> Vec<Word<'_>> {
    let (mut found, mut start, mut depth) = (vec![], None, 0i32);
    for (index, character) in line.char_indices() {
        if character.is_whitespace() && depth <= 0 {
            if let Some(from) = start.take() {
                found.push((from, &line[from..index]));
            }
            continue;
        }
        start.get_or_insert(index);
        depth += i32::from(character == '(') - i32::from(character == ')');
    }
    if let Some(from) = start {
        found.push((from, &line[from..]));
    }
    found
}

/// The words that a command line may begin with.
pub const COMMANDS: [&str; 10] = [
    "add",
    "setdefault",
    "packet",
    "expect",
    "no_packet",
    "wait",
    "check_counter",
    "check_register",
    "check_gateway",
    "clock",
];

fn command(line: &str) -> Result<Command, Wrong> {
    let words = words(line);
    let Some(((at, name), rest)) = words.split_first() else { return wrong(0, "no command") };
    let end = line.trim_end().len();
    if !COMMANDS.contains(name) {
        return wrong(*at, format!("unknown command {name:?}; there is {}", COMMANDS.join(", ")));
    }
    match *name {
        "packet" => {
            let (port, data) = port(rest, end)?;
            let Port::Number(port) = port else {
                return wrong(rest[0].0, "packets do not come in from the kernel");
            };
            Ok(Command::Packet { port, bytes: hex(data)? })
        }
        "expect" => {
            let (port, data) = port(rest, end)?;
            Ok(Command::Expect { port, pattern: pattern(data)? })
        }
        "add" => add(line, rest, end),
        "setdefault" => set_default(line, rest, end),
        "no_packet" => only(rest, Command::NoPacket),
        "wait" => only(rest, Command::Wait),
        "check_counter" => check_counter(rest, end),
        "check_register" => check_register(rest, end),
        "check_gateway" => check_gateway(rest, end),
        "clock" => clock(rest, end),
        // (In COMMANDS, but without a line above: a test finds it.)
        _ => wrong(*at, format!("command {name:?} is not supported")),
    }
}

fn only(rest: &[Word<'_>], command: Command) -> Result<Command, Wrong> {
    match rest.first() {
        Some((at, _)) => wrong(*at, "nothing may follow here"),
        None => Ok(command),
    }
}

fn port<'a, 'b>(rest: &'b [Word<'a>], end: usize) -> Result<(Port, &'b [Word<'a>]), Wrong> {
    let Some(((at, text), data)) = rest.split_first() else {
        return wrong(end, "a port number belongs here");
    };
    match (*text, text.parse::<u32>()) {
        ("host", _) => Ok((Port::Host, data)),
        (_, Ok(number)) if number >= DROP_PORT => {
            wrong(*at, format!("port {number} is not below {DROP_PORT}, which is the drop port"))
        }
        (_, Ok(number)) => Ok((number.into(), data)),
        _ => wrong(*at, format!("{text:?} is not a port number")),
    }
}

fn hex(data: &[Word<'_>]) -> Result<Vec<u8>, Wrong> {
    let mut nibbles = vec![];
    for (at, word) in data {
        for (offset, character) in word.char_indices() {
            match character.to_digit(16) {
                Some(digit) => nibbles.push(digit as u8),
                None => {
                    return wrong(at + offset, format!("{character:?} is not a hexadecimal digit"));
                }
            }
        }
    }
    if nibbles.len() % 2 == 1 {
        let end = data.last().map_or(0, |(at, word)| at + word.len());
        return wrong(end, "half a byte is missing: the packet has an odd number of digits");
    }
    Ok(nibbles.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn pattern(data: &[Word<'_>]) -> Result<Option<Pattern>, Wrong> {
    let mut pattern = Pattern { nibbles: vec![], exact_length: false };
    for (at, word) in data {
        for (offset, character) in word.char_indices() {
            if pattern.exact_length {
                return wrong(at + offset, "nothing may follow $");
            }
            match (character, character.to_digit(16)) {
                ('$', _) => pattern.exact_length = true,
                ('*', _) => pattern.nibbles.push(None),
                (_, Some(digit)) => pattern.nibbles.push(Some(digit as u8)),
                _ => {
                    return wrong(
                        at + offset,
                        format!("{character:?} is not a hexadecimal digit, * or $"),
                    );
                }
            }
        }
    }
    Ok((!data.is_empty()).then_some(pattern))
}

fn add(line: &str, rest: &[Word<'_>], end: usize) -> Result<Command, Wrong> {
    let Some(((_, table), rest)) = rest.split_first() else {
        return wrong(end, "a table belongs here");
    };
    let (priority, rest) = match rest.split_first() {
        // `10` is a priority; `key:10` and `act()` are not.
        Some(((at, text), after))
            if text.starts_with(|first: char| first.is_ascii_digit()) && !text.contains(':') =>
        {
            match text.parse() {
                Ok(priority) => (Some(priority), after),
                Err(_) => return wrong(*at, format!("{text:?} is not a priority")),
            }
        }
        _ => (None, rest),
    };
    let words = glue(line, rest);
    // `= $handle` at the end names the entry for other tools.
    let words = match words.iter().position(|(_, word)| word.starts_with('=')) {
        Some(handle) => &words[..handle],
        None => &words[..],
    };
    let Some(((at, action_text), keys)) = words.split_last() else {
        return wrong(end, "keys and an action belong here");
    };
    let mut entry = EntrySpec { keys: vec![], priority, action: action(*at, action_text)? };
    for (at, word) in keys {
        let Some((name, text)) = word.split_once(':') else {
            return wrong(*at, format!("{word:?} is not KEY:VALUE"));
        };
        if name.trim().is_empty() || text.trim().is_empty() {
            return wrong(*at, format!("{word:?} is not KEY:VALUE"));
        }
        entry
            .keys
            .push(KeySpec { name: Some(name.trim().to_owned()), text: text.trim().to_owned() });
    }
    Ok(Command::Add { table: (*table).to_owned(), entry })
}

/// Joins what white space has torn apart: `key: value`, `key :value`, `act (1)`.
fn glue<'a>(line: &'a str, words: &[Word<'a>]) -> Vec<Word<'a>> {
    let mut glued: Vec<Word<'a>> = vec![];
    for (at, word) in words {
        let joins = |last: &Word<'_>| {
            last.1.ends_with(':')
                || word.starts_with(':')
                || (word.starts_with('(') && !last.1.contains(['(', ':']))
        };
        match glued.last_mut().filter(|last| joins(last)) {
            Some(last) => last.1 = &line[last.0..at + word.len()],
            None => glued.push((*at, word)),
        }
    }
    glued
}

fn action(at: usize, text: &str) -> Result<ActionSpec, Wrong> {
    let Some((name, rest)) = text.split_once('(') else {
        if text.contains(':') {
            return wrong(at, "an action belongs at the end, after the keys");
        }
        return Ok(ActionSpec { name: text.to_owned(), arguments: vec![] });
    };
    let Some(inside) = rest.trim_end().strip_suffix(')') else {
        return wrong(at + text.len(), "`)` is missing");
    };
    let mut spec = ActionSpec { name: name.trim().to_owned(), arguments: vec![] };
    if spec.name.is_empty() {
        return wrong(at, "an action's name belongs before `(`");
    }
    for argument in inside.split(',').filter(|_| !inside.trim().is_empty()) {
        let column = at + (argument.as_ptr() as usize - text.as_ptr() as usize);
        let (name, value) = match argument.split_once(':') {
            // A MAC or IPv6 address by position has colons too; a parameter's name starts with a
            // letter and is no hexadecimal group.
            Some((name, value)) if !name.trim().is_empty() && !value.contains(':') => {
                (Some(name.trim().to_owned()), value)
            }
            Some((name, value))
                if name.contains(|letter: char| !letter.is_ascii_hexdigit() && letter != ' ') =>
            {
                (Some(name.trim().to_owned()), value)
            }
            _ => (None, argument),
        };
        if value.trim().is_empty() {
            return wrong(column, "an argument's value is missing");
        }
        spec.arguments.push((name, value.trim().to_owned()));
    }
    Ok(spec)
}

fn set_default(line: &str, rest: &[Word<'_>], end: usize) -> Result<Command, Wrong> {
    let Some(((_, table), rest)) = rest.split_first() else {
        return wrong(end, "a table belongs here");
    };
    match &glue(line, rest)[..] {
        [(at, text)] => {
            Ok(Command::SetDefault { table: (*table).to_owned(), action: action(*at, text)? })
        }
        [] => wrong(end, "an action belongs here"),
        [_, (at, _), ..] => wrong(*at, "nothing may follow the action"),
    }
}

/// `NAME(INDEX)`
fn element(rest: &[Word<'_>], end: usize) -> Result<(String, u32), Wrong> {
    let Some((at, text)) = rest.first() else { return wrong(end, "NAME(INDEX) belongs here") };
    let parts =
        text.split_once('(').and_then(|(name, index)| Some((name, index.strip_suffix(')')?)));
    match parts.map(|(name, index)| (name, index.trim().parse())) {
        Some((name, Ok(index))) if !name.is_empty() => Ok((name.to_owned(), index)),
        _ => wrong(*at, format!("{text:?} is not NAME(INDEX)")),
    }
}

/// `== N`, or another comparison.
fn comparison(rest: &[Word<'_>], end: usize) -> Result<(Comparison, u128), Wrong> {
    let Some(((at, operator), rest)) = rest.split_first() else {
        return wrong(end, "`== NUMBER` belongs here");
    };
    let Some(comparison) = Comparison::of(operator) else {
        return wrong(*at, format!("{operator:?}: ==, !=, <, <=, > or >= belongs here"));
    };
    match rest {
        [] => wrong(end, "a number belongs here"),
        [(at, text)] => match dataplane::value::parse_value("value", text, 128) {
            Ok(value) => Ok((comparison, value)),
            Err(error) => wrong(*at, error.to_string()),
        },
        [_, (at, _), ..] => wrong(*at, "nothing may follow the number"),
    }
}

fn check_counter(rest: &[Word<'_>], end: usize) -> Result<Command, Wrong> {
    let (counter, index) = element(rest, end)?;
    let (bytes, rest) = match rest.get(1) {
        Some((_, "bytes")) => (true, &rest[2..]),
        Some((_, "packets")) => (false, &rest[2..]),
        _ => (false, &rest[1..]),
    };
    let (comparison, value) = comparison(rest, end)?;
    let Ok(value) = u64::try_from(value) else {
        return wrong(end, "the number does not fit 64 bits");
    };
    Ok(Command::CheckCounter { counter, index, bytes, comparison, value })
}

fn check_register(rest: &[Word<'_>], end: usize) -> Result<Command, Wrong> {
    let (register, index) = element(rest, end)?;
    let (comparison, value) = comparison(&rest[1..], end)?;
    Ok(Command::CheckRegister { register, index, comparison, value })
}

fn check_gateway(rest: &[Word<'_>], end: usize) -> Result<Command, Wrong> {
    let Some(((at, name), rest)) = rest.split_first() else {
        return wrong(end, "a count's name belongs here");
    };
    if !gateway_counters().any(|(known, _)| known == *name) {
        let known = gateway_counters().map(|(known, _)| known).collect::<Vec<_>>().join(", ");
        return wrong(*at, format!("{name:?} is none of the gateway's counts: {known}"));
    }
    let (comparison, value) = comparison(rest, end)?;
    let Ok(value) = u64::try_from(value) else {
        return wrong(end, "the number does not fit 64 bits");
    };
    Ok(Command::CheckGateway { name: (*name).to_owned(), comparison, value })
}

fn clock(rest: &[Word<'_>], end: usize) -> Result<Command, Wrong> {
    let [(at, text)] = rest else { return wrong(end, "a duration belongs here, such as 5ms") };
    let unit_at = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let scale = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return wrong(*at, format!("{text:?} is not a duration: write 5ns, 5us, 5ms or 5s")),
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale)) {
        Some(nanoseconds) => Ok(Command::Clock { nanoseconds }),
        None => wrong(*at, format!("{text:?} is not a duration of at most 2^64 ns")),
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
