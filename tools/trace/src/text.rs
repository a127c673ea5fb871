//! One line an event, in columns that grow with what is in them.

use crate::event::{Body, ChainBody, Event, Field, Tag};
use crate::summary::Repeat;
use std::fmt::Write as _;

/// No column grows wider.
const WIDEST: usize = 56;
const NS_PER_S: u64 = 1_000_000_000;
const S_PER_DAY: u64 = 86_400;

/// Writes lines; remembers how wide its columns are.
#[derive(Clone, Debug)]
pub struct Columns {
    /// From, to, type, object, key.
    widths: [usize; 5],
}

impl Default for Columns {
    fn default() -> Columns {
        Columns { widths: [15, 15, 13, 8, 8] }
    }
}

impl Columns {
    /// The event's line, without a line end.
    pub fn line(&mut self, event: &Event, repeat: Option<Repeat>) -> String {
        let (object, key, rest) = match &event.body {
            Body::Message(message) => {
                let key = message.key_fields.as_deref();
                let key = key.map_or_else(|| message.key.clone(), fields);
                (message.object.clone(), key, message.rest.clone())
            }
            Body::Chain(chain) => {
                (format!("shard {}", chain.shard), String::new(), chain_rest(chain))
            }
            Body::Control { summary, .. } => (String::new(), String::new(), summary.clone()),
            Body::Other { .. } => (String::new(), String::new(), format!("{} bytes", event.bytes)),
            Body::Malformed { detail, .. } => {
                (String::new(), String::new(), format!("{detail}, {} bytes", event.bytes))
            }
            Body::Cut { captured, .. } => {
                let rest = format!("the capture has {captured} of its {} bytes", event.bytes);
                (String::new(), String::new(), rest)
            }
        };
        let cells = [
            event.from.to_string(),
            event.to.to_string(),
            event.type_name().to_owned(),
            object,
            key,
        ];
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.chars().count().min(WIDEST));
        }
        let [from, to, name, object, key] = &cells;
        let [a, b, c, d, e] = self.widths;
        let mut line = time(event.time_ns);
        // Writing to a string cannot fail.
        let _ =
            write!(line, "  {from:<a$} > {to:<b$}  {name:<c$}  {object:<d$}  {key:<e$}  {rest}");
        let note = match event.tag {
            Tag::Unchecked | Tag::Good => "",
            Tag::Wrong => "  WRONG TAG",
            Tag::UnknownSecret => "  UNKNOWN SECRET",
        };
        line.push_str(note);
        if let (Tag::UnknownSecret, Some(id)) = (event.tag, event.key_id) {
            let _ = write!(line, " {id}");
        }
        match repeat {
            Some(Repeat::Retransmission) => line.push_str("  (sent again)"),
            Some(Repeat::Duplicate) => line.push_str("  (duplicate)"),
            None => {}
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Time of the day, UTC, in microseconds.
fn time(ns: u64) -> String {
    let s = ns / NS_PER_S % S_PER_DAY;
    format!("{:02}:{:02}:{:02}.{:06}", s / 3_600, s / 60 % 60, s % 60, ns % NS_PER_S / 1_000)
}

/// Fields as `name=value`; of an enum, the member in the place of the number.
pub fn fields(fields: &[Field]) -> String {
    fields
        .iter()
        .map(|field| {
            let shown = field.member.as_ref().unwrap_or(&field.value);
            format!("{}={shown}", field.name)
        })
        .collect::<Vec<_>>()
        .join(" ")
}

fn chain_rest(chain: &ChainBody) -> String {
    let mut rest =
        format!("view {}  index {}  committed {}", chain.view, chain.index, chain.committed);
    if !chain.flags.is_empty() {
        let _ = write!(rest, "  {}", chain.flags.join("+"));
    }
    let mut effects: Vec<(&str, usize)> = vec![];
    for name in &chain.entries {
        match effects.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => effects.push((name, 1)),
        }
    }
    for (name, count) in effects {
        let _ = write!(rest, "  {count} {name}");
    }
    rest
}
