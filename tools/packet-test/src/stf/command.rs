//! Reads one command line of a case: its words, then what each command takes.

use super::{Command, DROP_PORT, Pattern, Port, Word, Wrong, wrong};
use crate::comparison::Comparison;
use dataplane::{ActionSpec, EntrySpec, KeySpec, gateway_counters};

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

pub(super) fn command(line: &str) -> Result<Command, Wrong> {
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

pub(super) fn only(rest: &[Word<'_>], command: Command) -> Result<Command, Wrong> {
    match rest.first() {
        Some((at, _)) => wrong(*at, "nothing may follow here"),
        None => Ok(command),
    }
}

pub(super) fn port<'a, 'b>(
    rest: &'b [Word<'a>],
    end: usize,
) -> Result<(Port, &'b [Word<'a>]), Wrong> {
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

pub(super) fn hex(data: &[Word<'_>]) -> Result<Vec<u8>, Wrong> {
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

pub(super) fn pattern(data: &[Word<'_>]) -> Result<Option<Pattern>, Wrong> {
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

pub(super) fn add(line: &str, rest: &[Word<'_>], end: usize) -> Result<Command, Wrong> {
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
pub(super) fn glue<'a>(line: &'a str, words: &[Word<'a>]) -> Vec<Word<'a>> {
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

pub(super) fn action(at: usize, text: &str) -> Result<ActionSpec, Wrong> {
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

pub(super) fn set_default(line: &str, rest: &[Word<'_>], end: usize) -> Result<Command, Wrong> {
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
pub(super) fn element(rest: &[Word<'_>], end: usize) -> Result<(String, u32), Wrong> {
    let Some((at, text)) = rest.first() else { return wrong(end, "NAME(INDEX) belongs here") };
    let parts =
        text.split_once('(').and_then(|(name, index)| Some((name, index.strip_suffix(')')?)));
    match parts.map(|(name, index)| (name, index.trim().parse())) {
        Some((name, Ok(index))) if !name.is_empty() => Ok((name.to_owned(), index)),
        _ => wrong(*at, format!("{text:?} is not NAME(INDEX)")),
    }
}

/// `== N`, or another comparison.
pub(super) fn comparison(rest: &[Word<'_>], end: usize) -> Result<(Comparison, u128), Wrong> {
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

pub(super) fn check_counter(rest: &[Word<'_>], end: usize) -> Result<Command, Wrong> {
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

pub(super) fn check_register(rest: &[Word<'_>], end: usize) -> Result<Command, Wrong> {
    let (register, index) = element(rest, end)?;
    let (comparison, value) = comparison(&rest[1..], end)?;
    Ok(Command::CheckRegister { register, index, comparison, value })
}

pub(super) fn check_gateway(rest: &[Word<'_>], end: usize) -> Result<Command, Wrong> {
    let Some(((at, name), rest)) = rest.split_first() else {
        return wrong(end, "a count's name belongs here");
    };
    if !gateway_counters().any(|(known, _)| known == *name) {
        let known = gateway_counters().map(|(known, _)| known).collect::<Vec<_>>().join(", ");
        return wrong(*at, format!("{name:?} is not a count of the gateway: {known}"));
    }
    let (comparison, value) = comparison(rest, end)?;
    let Ok(value) = u64::try_from(value) else {
        return wrong(end, "the number does not fit 64 bits");
    };
    Ok(Command::CheckGateway { name: (*name).to_owned(), comparison, value })
}

pub(super) fn clock(rest: &[Word<'_>], end: usize) -> Result<Command, Wrong> {
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
