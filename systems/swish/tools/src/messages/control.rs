//! Messages between agents and controllers: the platform's frame, over the controllers' port.

use serde_json::{Value, json};
use swish_protocol::control::{
    ASK, CONTROLLER_PORT, Message, ORDER, Order, PART, REPORT, Report, Task, View, What, Which,
    name_hash,
};
use trace::{Fields, MessageBody};
use wire::Malformed;

/// The port that controllers listen on, if their configuration does not say another one.
pub(super) const PORTS: [u16; 1] = [CONTROLLER_PORT];

/// A switch tells how far it is; a controller tells it what to do; state is asked for, and goes in
/// parts.
pub(super) const TYPES: [(u8, &str); 4] = [
    (REPORT, "SHARED_REPORT"),
    (ORDER, "SHARED_ORDER"),
    (ASK, "SHARED_ASK"),
    (PART, "SHARED_PART"),
];

/// The name of a type.
pub(super) fn name(number: u8) -> Option<&'static str> {
    TYPES.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// Reads a datagram.
pub(super) fn decode(datagram: &[u8]) -> Result<MessageBody, Malformed> {
    // (The frame and the type are good: so what follows them is not.)
    let wrong = match datagram.get(3) {
        Some(&(ASK | PART)) => Malformed::LengthMismatch,
        _ => Malformed::Json,
    };
    Message::decode(datagram).map(|message| body(&message)).map_err(|_| wrong)
}

fn body(message: &Message) -> MessageBody {
    let (number, rest, fields) = match message {
        Message::Report(report) => (REPORT, report_text(report), report_fields(report)),
        Message::Order(order) => (ORDER, order_text(order), order_fields(order)),
        Message::Ask(which, offset, since) => {
            let mut fields = which_fields(*which);
            fields.extend([("offset", json!(offset)), ("since", json!(since))]);
            (ASK, format!("{} from byte {offset} on", which_text(*which)), fields)
        }
        Message::Part(which, part) => {
            let (offset, total, bytes) = (part.offset, part.total, part.bytes.len());
            let mut fields = which_fields(*which);
            fields.extend([
                ("offset", json!(offset)),
                ("total", json!(total)),
                ("brings", json!(bytes)),
            ]);
            let rest = format!(
                "{} bytes {offset} to {}",
                which_text(*which),
                bytes as u64 + u64::from(offset)
            );
            (PART, format!("{rest} of {total}"), fields)
        }
    };
    MessageBody {
        name: name(number).unwrap_or("?"),
        fields: Fields(fields),
        rest,
        ..MessageBody::default()
    }
}

type Named = Vec<(&'static str, Value)>;

/// Groups without windows have a number of another meaning in their place: the round of the lease,
/// or none.
fn report_text(report: &Report) -> String {
    let Report { group, view, switch, incarnation, .. } = report;
    let mut text = format!("group {group} view {view} of {switch} incarnation {incarnation}");
    text += &match (&report.chain, &report.eventual) {
        (Some(chain), _) => {
            let copying = if chain.copying { ", is given keys" } else { "" };
            format!(
                " round {} batches {}, {} at all{copying}",
                report.window, chain.applied, chain.committed
            )
        }
        (None, Some(it)) => {
            format!(" rounds {} lives {} waiting {}", it.rounds, it.lives, it.waiting)
        }
        (None, None) => format!(" window {}", report.window),
    };
    if report.sealed > 0 {
        text += &format!(" sealed {}", report.sealed);
    }
    if report.still_ms > 0 {
        text += &format!(" still {} ms", report.still_ms);
    }
    if report.leaves {
        text += if report.empty { " leaves, empty" } else { " leaves" };
    }
    text
}

fn report_fields(report: &Report) -> Named {
    vec![
        ("group", json!(report.group)),
        ("view", json!(report.view)),
        ("switch", json!(report.switch)),
        ("incarnation", json!(report.incarnation)),
        ("window", json!(report.window)),
        ("sealed", json!(report.sealed)),
        ("still_ms", json!(report.still_ms)),
        ("leaves", json!(report.leaves)),
        ("chain", json!(report.chain)),
        ("eventual", json!(report.eventual)),
    ]
}

/// What an order is called, and the number of its decision.
fn task(task: &Task) -> (&'static str, Option<u32>) {
    match task {
        Task::Heard => ("heard", None),
        Task::Seal { number } => ("seal", Some(*number)),
        Task::Take(view) => ("take", Some(view.number)),
        Task::Removed { number, .. } => ("removed", Some(*number)),
        Task::Sum { view, .. } => ("sum", Some(*view)),
    }
}

fn members(view: &View) -> Vec<String> {
    view.members.iter().map(|it| it.address.to_string()).collect()
}

fn order_text(order: &Order) -> String {
    let Order { group, incarnation, task: it } = order;
    let text = match it {
        Task::Heard => "heard".to_owned(),
        Task::Seal { number } => format!("seal {number}"),
        Task::Take(view) => format!("view {} members {}", view.number, members(view).join(" ")),
        Task::Removed { number, why: None } => format!("view {number} removed"),
        Task::Removed { number, why: Some(why) } => {
            format!("view {number} removed, as {},", why.excluded.text())
        }
        Task::Sum { view, before } => format!("view {view} sum of lives {:08x}", before.number()),
    };
    format!("group {group} {text} for incarnation {incarnation}")
}

fn order_fields(order: &Order) -> Named {
    let (name, number) = task(&order.task);
    let of_view = match &order.task {
        Task::Take(view) => Some(members(view)),
        _ => None,
    };
    let excluded = match &order.task {
        Task::Take(view) if !view.excluded.is_empty() => Some(view.excluded.clone()),
        Task::Removed { why: Some(why), .. } => Some(vec![why.excluded.clone()]),
        _ => None,
    };
    vec![
        ("group", json!(order.group)),
        ("view", json!(number)),
        ("incarnation", json!(order.incarnation)),
        ("task", json!(name)),
        ("members", json!(of_view)),
        ("excluded", json!(excluded)),
    ]
}

fn what(what: What) -> &'static str {
    match what {
        What::Value => "value",
        What::Half => "half",
        What::Source => "source",
        What::Extra => "extra",
    }
}

/// A group's name is a number here.
fn group(which: Which) -> String {
    // (Without `@group` it is this one.)
    if which.group == name_hash("main") { "main".into() } else { format!("#{:08x}", which.group) }
}

fn which_text(which: Which) -> String {
    format!("group {} view {} {}", group(which), which.number, what(which.what))
}

fn which_fields(which: Which) -> Named {
    vec![
        ("group", json!(group(which))),
        ("view", json!(which.number)),
        ("what", json!(what(which.what))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SwiSh;
    use std::net::Ipv4Addr;
    use swish_protocol::control::{Member, Part, Turn};
    use swish_protocol::exclusion::{Excluded, Why};
    use trace::Messages;

    fn line(message: &Message) -> (&'static str, String, Fields) {
        let bytes = message.encode();
        let body = SwiSh.decode(&bytes, &trace::Objects::default()).expect("a message");
        assert_eq!(SwiSh.name(bytes[3]), Some(body.name));
        (body.name, body.rest, body.fields)
    }

    #[test]
    fn what_agents_and_controllers_say_is_told() {
        let report = r#"{"group":"main","switch":"10.9.0.2","incarnation":7,"sent_ns":1,"layout":2,
            "sums":true,"view":3,"window":77,"phase":6,"sealed":4,"known":4,"asks":false,
            "whole":0,"lacks":0,"still_ms":0"#;
        let report = |more: &str| {
            Message::Report(serde_json::from_str(&format!("{report}{more}}}")).expect("a report"))
        };
        let (name, text, fields) = line(&report(""));
        assert_eq!(name, "SHARED_REPORT");
        assert_eq!(text, "group main view 3 of 10.9.0.2 incarnation 7 window 77 sealed 4");
        assert_eq!(fields.get("view"), Some(&json!(3)));
        let chain = r#","chain":{"copying":true,"waits":false,"applied":9,"committed":8}"#;
        assert!(line(&report(chain)).1.contains(" round 77 batches 9, 8 at all, is given keys"));

        let address = Ipv4Addr::new(10, 9, 0, 1);
        let view = View {
            number: 5,
            members: vec![Member { number: 0, address, incarnation: 7 }],
            turn: Turn::Go,
            window: 78,
            value: false,
            extra: false,
            counted: vec![],
            lease: None,
            joins: vec![],
            away: false,
            base: None,
            excluded: vec![],
        };
        let order = |task| Message::Order(Order { group: "main".into(), incarnation: 7, task });
        let (name, text, fields) = line(&order(Task::Take(view)));
        assert_eq!(
            (name, text.as_str()),
            ("SHARED_ORDER", "group main view 5 members 10.9.0.1 for incarnation 7")
        );
        assert_eq!(fields.get("members"), Some(&json!(["10.9.0.1"])));
        assert!(line(&order(Task::Seal { number: 6 })).1.contains("main seal 6 for"));
        let other = Ipv4Addr::new(10, 9, 0, 2);
        let excluded = Excluded { switch: address, view: 6, pairs: vec![(other, address)] };
        let why = Some(Why { excluded, since_ms: 1, left_ms: 2 });
        let (_, text, fields) = line(&order(Task::Removed { number: 6, why }));
        let because = "10.9.0.1 is excluded from view 6 on: 10.9.0.2 lacked messages of 10.9.0.1";
        assert!(
            text.starts_with(&format!("group main view 6 removed, as {because}, for")),
            "{text}"
        );
        assert_eq!(fields.get("excluded").expect("it")[0]["switch"], "10.9.0.1");

        let which = Which { group: name_hash("main"), number: 5, what: What::Value };
        let (name, text, _) = line(&Message::Ask(which, 1200, 1));
        assert_eq!(
            (name, text.as_str()),
            ("SHARED_ASK", "group main view 5 value from byte 1200 on")
        );
        let part = Part { offset: 1200, total: 1300, bytes: vec![0; 100] };
        let other = Which { group: 0xabc, ..which };
        let (name, text, _) = line(&Message::Part(other, part));
        let expected = "group #00000abc view 5 value bytes 1200 to 1300 of 1300";
        assert_eq!((name, text.as_str()), ("SHARED_PART", expected));
    }

    #[test]
    fn what_is_cut_short_is_malformed() {
        let mut bytes =
            Message::Order(Order { group: "main".into(), incarnation: 7, task: Task::Heard })
                .encode();
        bytes.pop();
        let refused = SwiSh.decode(&bytes, &trace::Objects::default());
        assert!(refused.is_err());
    }
}
