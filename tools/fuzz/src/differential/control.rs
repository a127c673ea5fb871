//! Controls, actions and functions.

use super::object::Inside;
use super::program::STANDARD;
use super::shape::Shape;
use super::statement::{Action, Array, Body, Function, MAX_LISTED};
use super::table::table;
use super::types::{Named, Ty, literal, record_leaves, record_paths, scalar};
use super::whole::drawn;
use rand::Rng;
use rand::rngs::StdRng;

/// A parameter of a control that other controls apply; scalars are called `q0`, `q1`, … by their
/// place, and so are structs and headers.
#[derive(Clone)]
pub(super) enum Parameter {
    /// Headers, metadata, intrinsic metadata, all `inout`.
    Whole,
    /// (`in`, `inout` or `out`, type)
    Scalar(&'static str, Ty),
    /// An `inout` header of this type.
    Header(usize),
    /// An `inout` struct of this type.
    Record(usize),
}

/// A control that other controls apply.
#[derive(Clone)]
pub(super) struct SubControl {
    name: String,
    parameters: Vec<Parameter>,
}

/// One of them, instantiated in a control.
#[derive(Clone)]
pub(super) struct Instance {
    pub name: String,
    pub parameters: Vec<Parameter>,
}

/// Code that sees a control's parameters.
pub(super) fn inside<'a>(
    shape: &'a Shape,
    random: &'a mut StdRng,
    parameters: &[Parameter],
) -> Body<'a> {
    let whole = parameters.iter().any(|parameter| matches!(parameter, Parameter::Whole));
    let mut body = if whole { shape.body(random, true) } else { shape.bare(random, true) };
    body.in_control = whole;
    for (index, parameter) in parameters.iter().enumerate() {
        let name = format!("q{index}");
        match parameter {
            Parameter::Whole => {}
            Parameter::Scalar(direction, ty) => {
                let named = Named { path: name, ty: *ty };
                if *direction != "in" {
                    body.writable.push(named.clone());
                }
                // Several times, so that they are used.
                body.readable.extend([named.clone(), named.clone(), named]);
            }
            Parameter::Header(kind) => body.see_headers(vec![(name, *kind)]),
            Parameter::Record(kind) => {
                let leaves = record_leaves(&shape.records, &name, *kind);
                body.readable.extend(leaves.clone());
                body.writable.extend(leaves);
                body.records.extend(record_paths(&shape.records, &name, *kind));
            }
        }
    }
    body
}

/// A control that verifies or updates checksums.
pub(super) fn checksums(
    shape: &Shape,
    random: &mut StdRng,
    head: &str,
    block: &str,
    lines: &mut Vec<String>,
) {
    lines.push(format!("control {}{block}({head}) {{", shape.prefix));
    lines.push("    apply {".into());
    for (path, kind) in shape.all_headers() {
        let fields = shape.named(&path, kind);
        let Some(target) =
            fields.iter().find(|field| field.ty == Ty::bits(16) || field.ty == Ty::bits(32))
        else {
            continue;
        };
        if !random.random_bool(if shape.keeps_layout { 0.6 } else { 0.3 }) {
            continue;
        }
        let mut list: Vec<String> = fields
            .iter()
            .filter(|field| field.path != target.path)
            .map(|field| field.path.clone())
            .collect();
        let mut bits: u32 = fields
            .iter()
            .filter(|field| field.path != target.path)
            .map(|field| field.ty.width())
            .sum();
        let room = MAX_LISTED.saturating_sub(bits + 16);
        let others: Vec<(String, usize)> =
            shape.all_headers().into_iter().filter(|(other, _)| *other != path).collect();
        let varbit = random.random_bool(if shape.keeps_layout { 0.9 } else { 0.5 });
        let wholes = if varbit { shape.varbits() } else { others };
        let whole = drawn(&wholes, &shape.header_types, room, random)
            .filter(|_| varbit || random.random_bool(0.3));
        if list.is_empty() && whole.is_none() {
            continue;
        }
        if !bits.is_multiple_of(16) {
            let rest = 16 - bits % 16;
            list.push(format!("{rest}w{}", random.random_range(0..1u32 << rest)));
            bits += rest;
        }
        if let Some((header, most)) = whole {
            list.insert(random.random_range(0..=list.len()), header);
            bits += most;
        }
        let algorithm = if bits > 1000 {
            "csum16"
        } else {
            ["csum16", "csum16", "crc16", "crc32", "xor16"][random.random_range(0..5)]
        };
        let payload =
            if algorithm == "csum16" && random.random_bool(0.15) { "_with_payload" } else { "" };
        let word = if block == "Verify" { "verify" } else { "update" };
        lines.push(format!(
            "        {word}_checksum{payload}({path}.isValid(), {{ {} }}, {}, HashAlgorithm.{algorithm});",
            list.join(", "),
            target.path
        ));
    }
    lines.extend(["    }".into(), "}".into()]);
}

/// What of a control is not drawn.
pub(super) struct Control<'a> {
    /// `Ingress`, `Egress`, or another name.
    pub block: &'a str,
    /// How it declares its parameters.
    pub head: String,
    pub parameters: Vec<Parameter>,
    /// How many statements.
    pub budget: usize,
}

/// A control that others can apply; it may apply those that are there before it.
pub(super) fn sub_control(
    shape: &mut Shape,
    index: u32,
    random: &mut StdRng,
    whole: &str,
    lines: &mut Vec<String>,
) {
    let mut parameters = if random.random_bool(0.6) { vec![Parameter::Whole] } else { Vec::new() };
    for _ in 0..random.random_range(1..4) {
        let direction = ["in", "inout", "inout", "out"][random.random_range(0..4)];
        parameters.push(match random.random_range(0..5) {
            0 => Parameter::Header(random.random_range(0..2)),
            1 if !shape.records.is_empty() => {
                Parameter::Record(random.random_range(0..shape.records.len()))
            }
            _ => Parameter::Scalar(direction, scalar(random)),
        });
    }
    let declare = |(index, parameter): (usize, &Parameter)| match parameter {
        Parameter::Whole => format!("{whole}{STANDARD}"),
        Parameter::Scalar(direction, ty) => format!("{direction} {} q{index}", ty.name()),
        Parameter::Header(kind) => format!("inout {} q{index}", shape.header_types[*kind].name),
        Parameter::Record(kind) => format!("inout {} q{index}", shape.records[*kind].name),
    };
    let head = parameters.iter().enumerate().map(declare).collect::<Vec<String>>().join(", ");
    let block = format!("Sub{index}");
    let budget = random.random_range(1..4);
    control(
        shape,
        random,
        &Control { block: &block, head, parameters: parameters.clone(), budget },
        lines,
    );
    shape.controls.push(SubControl { name: format!("{}{block}", shape.prefix), parameters });
}

fn arrays(most: u32, random: &mut StdRng, lines: &mut Vec<String>) -> Vec<Array> {
    let mut found = Vec::new();
    for index in 0..random.random_range(0..most) {
        let size = random.random_range(1..6);
        let ty = random.random_bool(0.7).then(|| Ty::bits(super::types::width(random)));
        let name = if ty.is_some() { format!("r{index}") } else { format!("c{index}") };
        lines.push(match ty {
            Some(ty) => format!("    register<{}>({size}) {name};", ty.name()),
            None => format!("    counter({size}, CounterType.packets_and_bytes) {name};"),
        });
        found.push(Array { name, ty, size });
    }
    found
}

/// Of those that a control with these parameters has the arguments for.
fn instances(
    shape: &Shape,
    parameters: &[Parameter],
    random: &mut StdRng,
    lines: &mut Vec<String>,
) -> Vec<Instance> {
    let is_whole = |parameter: &Parameter| matches!(parameter, Parameter::Whole);
    let whole = parameters.iter().any(is_whole);
    let mut found = Vec::new();
    for sub in shape.controls.iter().filter(|sub| whole || !sub.parameters.iter().any(is_whole)) {
        for _ in 0..[0, 1, 1, 2][random.random_range(0..4)] {
            let name = format!("i{}", found.len());
            lines.push(format!("    {}() {name};", sub.name));
            found.push(Instance { name, parameters: sub.parameters.clone() });
        }
    }
    found
}

/// A whole control.
pub(super) fn control(
    shape: &Shape,
    random: &mut StdRng,
    of: &Control<'_>,
    lines: &mut Vec<String>,
) {
    let Control { block, head, parameters, budget } = of;
    lines.push(format!("control {}{block}({head}) {{", shape.prefix));
    let arrays = arrays(if *budget > 0 { 3 } else { 1 }, random, lines);
    let instances =
        if *budget > 0 { instances(shape, parameters, random, lines) } else { Vec::new() };
    let object = shape.object.as_ref().filter(|_| *block == "Ingress");
    lines.extend(object.map(|object| format!("    {}", object.declaration())));
    let mut actions = Vec::new();
    for index in 0..if *budget > 0 { random.random_range(1..5) } else { 0 } {
        let body = inside(shape, random, parameters);
        actions.push(action(body, index, &arrays, lines));
    }
    let mut tables = Vec::new();
    for index in 0..if *budget > 0 { random.random_range(0..3) } else { 0 } {
        let body = inside(shape, random, parameters);
        tables.push(table(body, index, &actions, lines));
    }
    lines.push("    apply {".into());
    if *block == "Ingress" && random.random_bool(0.9) {
        lines.push(format!("        sm.egress_spec = {};", random.random_range(0..511)));
    }
    let mut body = inside(shape, random, parameters);
    body.arrays = arrays;
    body.actions = actions;
    body.tables = tables;
    body.instances = instances;
    // What nobody wrote has no value.
    for (index, parameter) in parameters.iter().enumerate() {
        if let Parameter::Scalar("out", ty) = parameter {
            let value = literal(*ty, body.random);
            body.line(format!("q{index} = {value};"));
        }
    }
    for _ in 0..if *budget > 0 { body.random.random_range(0..3) } else { 0 } {
        let ty = scalar(body.random);
        body.declare(ty);
    }
    if let Some(object) = object {
        object.use_in(&mut Inside::new(&mut body));
    }
    body.statements(*budget, 2);
    if *block == "Ingress" {
        ending(&mut body);
    }
    lines.append(&mut body.lines);
    lines.extend(["    }".into(), "}".into()]);
}

/// How an ingress ends.
fn ending(body: &mut Body<'_>) {
    for table in std::mem::take(&mut body.tables) {
        body.line(format!("{}.apply();", table.name));
    }
    if body.random.random_bool(0.2) {
        let value = body.expression(Ty::bits(9), 2);
        body.line(format!("sm.egress_spec = {value};"));
    }
    if body.random.random_bool(0.05) {
        let condition = body.expression(Ty::Bool, 2);
        body.line(format!("if ({condition}) {{"));
        body.line("    mark_to_drop(sm);");
        body.line("}");
    }
    if body.random.random_bool(0.06) {
        let most = if body.random.random() { 14 } else { 100 };
        let length = body.random.random_range(1..most);
        body.line(format!("truncate({length});"));
    }
}

fn action(mut body: Body<'_>, index: u32, arrays: &[Array], lines: &mut Vec<String>) -> Action {
    let parameters: Vec<Ty> =
        (0..body.random.random_range(0..3)).map(|_| scalar(body.random)).collect();
    let listed: Vec<String> =
        parameters.iter().enumerate().map(|(i, ty)| format!("{} p{i}", ty.name())).collect();
    lines.push(format!("    action a{index}({}) {{", listed.join(", ")));
    body.may_exit = false;
    body.arrays = arrays.to_vec();
    let own = parameters.iter().enumerate().map(|(i, ty)| Named { path: format!("p{i}"), ty: *ty });
    // Several times, so that they are used.
    body.readable.extend(own.clone().flat_map(|named| [named.clone(), named.clone(), named]));
    let count = body.random.random_range(1..3);
    body.statements(count, 1);
    if body.random.random_bool(0.06) {
        let condition = body.expression(Ty::Bool, 2);
        let word = if body.random.random() { "return;" } else { "exit;" };
        body.line(format!("if ({condition}) {{"));
        body.line(format!("    {word}"));
        body.line("}");
        body.statements(1, 0);
    }
    lines.append(&mut body.lines);
    lines.push("    }".into());
    Action { name: format!("a{index}"), parameters }
}

/// A function.
pub(super) fn function(
    shape: &mut Shape,
    index: u32,
    random: &mut StdRng,
    lines: &mut Vec<String>,
) {
    let name = format!("{}fun{index}", shape.prefix);
    let result = scalar(random);
    let parameters: Vec<(&'static str, Ty)> = (0..random.random_range(1..4))
        .map(|_| (["in", "in", "inout", "out"][random.random_range(0..4)], scalar(random)))
        .collect();
    let listed: Vec<String> = parameters
        .iter()
        .enumerate()
        .map(|(i, (direction, ty))| format!("{direction} {} p{i}", ty.name()))
        .collect();
    lines.push(format!("{} {name}({}) {{", result.name(), listed.join(", ")));
    let named: Vec<(usize, Named)> = parameters
        .iter()
        .enumerate()
        .map(|(i, (_, ty))| (i, Named { path: format!("p{i}"), ty: *ty }))
        .collect();
    let mut body = shape.bare(random, false);
    body.functions.clear();
    body.writable = named
        .iter()
        .filter(|(i, _)| parameters[*i].0 != "in")
        .map(|(_, named)| named.clone())
        .collect();
    body.indent = 1;
    // What nobody wrote has no value.
    for (i, (direction, ty)) in parameters.iter().enumerate() {
        if *direction == "out" {
            let value = literal(*ty, body.random);
            body.line(format!("p{i} = {value};"));
        }
    }
    body.readable = named.into_iter().map(|(_, named)| named).collect();
    let count = body.random.random_range(0..3);
    body.statements(count, 1);
    if body.random.random_bool(0.4) {
        let (condition, value) = (body.expression(Ty::Bool, 2), body.expression(result, 2));
        body.line(format!("if ({condition}) {{"));
        body.line(format!("    return {value};"));
        body.line("}");
    }
    let value = body.expression(result, 2);
    body.line(format!("return {value};"));
    lines.append(&mut body.lines);
    lines.push("}".into());
    shape.functions.push(Function { name, result, parameters });
}
