//! A drawn program: its text, its case, and the model that says what the case expects.

use super::few;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::collections::HashMap;
use std::fmt::Write;

/// Widths of values.
const WIDTHS: [u32; 5] = [8, 16, 32, 48, 64];

/// An object: the user's own value, or one for each of the user's keys.
struct State {
    has_key: bool,
    width: u32,
}

/// What a `set` makes of an object's value.
#[derive(Clone, Copy)]
enum Change {
    Add,
    Xor,
    Replace,
    /// Adds another object's value, which the packet has looked up.
    AddOther(usize),
}

#[derive(Clone, Copy)]
enum Step {
    Get(usize),
    /// If the packet's bit of this object is set.
    Set(usize, Change),
    /// Looks up again what the packet may have set.
    GetAgain(usize),
}

pub(super) struct Drawn {
    states: Vec<State>,
    steps: Vec<Step>,
}

/// What a packet asks for.
struct Request {
    op: u8,
    user: u8,
    keys: Vec<u8>,
    operand: u32,
}

fn shuffled(random: &mut StdRng, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.shuffle(random);
    order
}

fn change(random: &mut StdRng, known: &[usize], of: usize) -> Change {
    let others: Vec<usize> = known.iter().copied().filter(|other| *other != of).collect();
    match random.random_range(0..5) {
        0 => Change::Xor,
        1 => Change::Replace,
        2 | 3 if !others.is_empty() => {
            Change::AddOther(others[random.random_range(0..others.len())])
        }
        _ => Change::Add,
    }
}

impl Drawn {
    pub(super) fn new(random: &mut StdRng) -> Drawn {
        let count = random.random_range(1..=3);
        let states = (0..count)
            .map(|_| State { has_key: random.random(), width: WIDTHS[random.random_range(0..5)] })
            .collect();
        let (mut steps, mut known, mut late) = (Vec::new(), Vec::new(), Vec::new());
        for of in shuffled(random, count) {
            steps.push(Step::Get(of));
            known.push(of);
            if random.random() {
                let change = change(random, &known, of);
                steps.push(Step::Set(of, change));
                if random.random_bool(0.3) {
                    steps.push(Step::GetAgain(of));
                }
            } else {
                late.push(of);
            }
        }
        late.shuffle(random);
        for of in late {
            let change = change(random, &known, of);
            steps.push(Step::Set(of, change));
            if random.random_bool(0.3) {
                steps.push(Step::GetAgain(of));
            }
        }
        Drawn { states, steps }
    }

    /// Packets of it set several objects.
    pub(super) fn has_groups(&self) -> bool {
        self.states.len() > 1
    }

    /// The P4 text.
    pub(super) fn text(&self) -> String {
        let (mut fields, mut types, mut objects, mut code) = Default::default();
        self.write_objects(&mut fields, &mut types, &mut objects);
        for step in &self.steps {
            self.write_step(*step, &mut code);
        }
        let mut outs = String::new();
        for of in 0..self.states.len() {
            let _ = writeln!(outs, "        hdr.request.out{of} = (bit<64>)v{of}.w;");
        }
        format!(
            "#include <core.p4>\n#include <v1model.p4>\n#include <stateplane.p4>\n\
             header request_t {{\n    bit<8> op;\n    bit<8> user;\n    bit<32> operand;\n{fields}}}\n\
             struct headers_t {{\n    request_t request;\n}}\n{types}struct metadata_t {{ }}\n\
             parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,\n         \
             inout standard_metadata_t standard_metadata) {{\n    state start {{\n        \
             packet.extract(hdr.request);\n        transition accept;\n    }}\n}}\n\
             control V(inout headers_t hdr, inout metadata_t meta) {{ apply {{ }} }}\n\
             control I(inout headers_t hdr, inout metadata_t meta,\n          \
             inout standard_metadata_t standard_metadata) {{\n{objects}    apply {{\n        \
             standard_metadata.egress_spec = 1;\n{code}{outs}    }}\n}}\n\
             control E(inout headers_t hdr, inout metadata_t meta,\n          \
             inout standard_metadata_t standard_metadata) {{ apply {{ }} }}\n\
             control C(inout headers_t hdr, inout metadata_t meta) {{ apply {{ }} }}\n\
             control D(packet_out packet, in headers_t hdr) {{\n    \
             apply {{ packet.emit(hdr); }}\n}}\n\
             V1Switch(P(), V(), I(), E(), C(), D()) main;\n"
        )
    }

    fn write_objects(&self, fields: &mut String, types: &mut String, objects: &mut String) {
        for (of, state) in self.states.iter().enumerate() {
            let _ = writeln!(fields, "    bit<8> key{of};\n    bit<64> out{of};");
            let own = if state.has_key { " bit<8> own;" } else { "" };
            let _ = writeln!(types, "struct key{of}_t {{ bit<8> user;{own} }}");
            let _ = writeln!(types, "struct value{of}_t {{ bit<{}> w; }}", state.width);
            let _ = writeln!(
                objects,
                "    FlowState<key{of}_t, value{of}_t>(64, Consistency.LINEARIZABLE, \
                 Allocator.ZERO, 1) o{of};"
            );
        }
    }

    fn write_step(&self, step: Step, code: &mut String) {
        let _ = match step {
            Step::Get(of) => {
                let own = if self.states[of].has_key {
                    format!(", hdr.request.key{of}")
                } else {
                    String::new()
                };
                writeln!(
                    code,
                    "        key{of}_t k{of} = {{ hdr.request.user{own} }};\n        \
                     value{of}_t v{of};\n        \
                     if (o{of}.get_or_allocate(k{of}, v{of}) != StateResult.HIT) {{\n            \
                     mark_to_drop(standard_metadata);\n            return;\n        }}"
                )
            }
            Step::Set(of, change) => {
                let ty = format!("bit<{}>", self.states[of].width);
                let value = match change {
                    Change::Add => format!("v{of}.w + ({ty})hdr.request.operand"),
                    Change::Xor => format!("v{of}.w ^ ({ty})hdr.request.operand"),
                    Change::Replace => format!("({ty})hdr.request.operand"),
                    Change::AddOther(other) => format!("v{of}.w + ({ty})v{other}.w"),
                };
                writeln!(
                    code,
                    "        if (hdr.request.op[{of}:{of}] == 1) {{\n            v{of}.w = {value};\n            \
                     o{of}.set(k{of}, v{of});\n        }}"
                )
            }
            Step::GetAgain(of) => writeln!(code, "        o{of}.get(k{of}, v{of});"),
        };
    }

    /// Packets, and what must come out of them. Some of the time another switch goes on.
    pub(super) fn case(&self, random: &mut StdRng) -> String {
        let mut text = "# store:\n".to_owned();
        let mut stored = HashMap::new();
        for _ in 0..random.random_range(20..50) {
            if random.random_bool(0.05) {
                text += "# takes_over: another switch\nclock 2000ms\n";
            }
            let request = Request {
                op: random.random(),
                user: few(random),
                keys: self.states.iter().map(|_| few(random)).collect(),
                operand: random.random(),
            };
            let outs = self.expected(&mut stored, &request);
            let none = vec![0; outs.len()];
            let _ = writeln!(text, "packet 0 {}", request.frame(&none));
            let _ = writeln!(text, "expect 1 {}$", request.frame(&outs));
        }
        text
    }

    /// The model: the packet's steps one after the other, on what is stored.
    fn expected(
        &self,
        stored: &mut HashMap<(usize, u8, Option<u8>), u64>,
        request: &Request,
    ) -> Vec<u64> {
        let key =
            |of: usize| (of, request.user, self.states[of].has_key.then_some(request.keys[of]));
        let mut values = vec![0; self.states.len()];
        for step in &self.steps {
            let Step::Set(of, change) = *step else {
                let (Step::Get(of) | Step::GetAgain(of) | Step::Set(of, _)) = *step;
                values[of] = *stored.entry(key(of)).or_insert(0);
                continue;
            };
            if request.op >> of & 1 == 0 {
                continue;
            }
            let operand = u64::from(request.operand);
            let changed = match change {
                Change::Add => values[of].wrapping_add(operand),
                Change::Xor => values[of] ^ operand,
                Change::Replace => operand,
                Change::AddOther(other) => values[of].wrapping_add(values[other]),
            };
            values[of] = changed & (u64::MAX >> (64 - self.states[of].width));
            stored.insert(key(of), values[of]);
        }
        values
    }
}

impl Request {
    fn frame(&self, outs: &[u64]) -> String {
        let mut text = format!("{:02x}{:02x}{:08x}", self.op, self.user, self.operand);
        for (key, out) in self.keys.iter().zip(outs) {
            let _ = write!(text, "{key:02x}{out:016x}");
        }
        text
    }
}
