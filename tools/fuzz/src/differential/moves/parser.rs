//! Parsers that other parsers apply.

use super::callable::{declared, parameters};
use super::{Callable, Inside, Kind, Place, Scope, Use};
use rand::Rng;
use rand::rngs::StdRng;

/// A parser of three states; it applies `inner`, if there is one.
pub(super) fn parser(
    prefix: &str,
    random: &mut StdRng,
    name: &str,
    functions: &[Callable],
    inner: Option<&Callable>,
    lines: &mut Vec<String>,
) -> Callable {
    let name = format!("{prefix}{name}");
    let parameters = parameters(random, 4);
    lines.push(format!("parser {name}(packet_in pkt, {}) {{", declared(prefix, &parameters)));
    lines.push("    bit<8> own = 5;".into());
    lines.push(format!("    {prefix}mh_t fresh;"));
    lines.push(format!("    {prefix}mh_t[{}] row;", super::ELEMENTS));
    lines.extend(inner.map(|inner| format!("    {}() inner;", inner.name)));
    let own = [("own", Kind::Byte), ("fresh", Kind::Head), ("row", Kind::Stack)];
    let mut scope = Scope::new(prefix, random, Inside::Parser);
    scope.functions = functions.to_vec();
    scope.cost = super::MOST_COST / 2;
    scope.places = own.map(|(path, kind)| Place { path: path.into(), kind, writable: true }).into();
    scope.indent = 2;
    for (at, state) in ["start", "more", "other"].iter().enumerate() {
        scope.lines.push(format!("    state {state} {{"));
        if at == 0 {
            scope.enter(&parameters);
        }
        let places = scope.places.len();
        steps(&mut scope, inner);
        let count = scope.random.random_range(0..3);
        scope.statements(count, 1);
        transition(&mut scope, &["more", "other", "accept"][at..]);
        scope.places.truncate(places);
        scope.lines.push("    }".into());
    }
    let cost = scope.cost - super::MOST_COST / 2;
    lines.append(&mut scope.lines);
    lines.push("}".into());
    Callable { name, result: None, parameters, cost, constructed: false }
}

fn steps(scope: &mut Scope<'_>, inner: Option<&Callable>) {
    match scope.pick(6) {
        0 => {
            if let Some(target) = scope.place(Kind::Head, Use::Change) {
                scope.line(format!("pkt.extract({target});"));
            }
        }
        1 => {
            if let Some(target) = scope.place(Kind::Stack, Use::Change) {
                scope.line(format!("pkt.extract({target}.next);"));
            }
        }
        2 => {
            let bits = scope.byte(2);
            scope.line(format!("pkt.advance((bit<32>)(({bits}) & 8));"));
        }
        3 => {
            let condition = scope.condition(2);
            scope.line(format!("verify({condition}, error.NoMatch);"));
        }
        4 => {
            let kind = [Kind::Head, Kind::Pair][scope.pick(2) as usize];
            if let Some(target) = scope.place(kind, Use::Change) {
                scope.line(format!("{target} = pkt.lookahead<{}>();", kind.name(scope.prefix)));
            }
        }
        _ => {
            if let Some(inner) = inner {
                let apply = Callable { name: "inner".into(), ..inner.clone() };
                scope.apply(&apply, "pkt");
            }
        }
    }
}

fn transition(scope: &mut Scope<'_>, targets: &[&str]) {
    if scope.pick(4) == 0 {
        let target = targets[scope.pick(targets.len() as u32) as usize];
        return scope.line(format!("transition {target};"));
    }
    let (first, second) = (scope.byte(2), scope.byte(2));
    let two = scope.pick(2) == 0;
    let stack = scope.place(Kind::Stack, Use::Read).filter(|_| scope.pick(3) == 0);
    let second = match stack {
        Some(stack) => format!("((bit<8>){stack}.lastIndex)"),
        None => second,
    };
    let keys = if two { format!("{first}, {second}") } else { first };
    scope.open(format!("transition select({keys}) {{"));
    for target in targets {
        let one = |scope: &mut Scope<'_>| match scope.pick(3) {
            0 => format!("{} &&& {}", scope.pick(4), 1 + scope.pick(3)),
            1 => format!("{} .. {}", scope.pick(100), 100 + scope.pick(156)),
            _ => scope.pick(256).to_string(),
        };
        let mut text = one(scope);
        if two {
            let other = one(scope);
            text = format!("({text}, {other})");
        }
        scope.line(format!("{text}: {target};"));
    }
    if scope.pick(8) > 0 {
        let target = targets[scope.pick(targets.len() as u32) as usize];
        scope.line(format!("default: {target};"));
    }
    scope.close();
}
