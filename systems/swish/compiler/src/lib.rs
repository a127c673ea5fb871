//! SwiSh's back end: the variables of `stateplane/swish.p4`, and the calls of their runtime
//! (`bpf/swish/`) in the fixed places of the packet path. SDW is in `object`, EWO in `eventual`
//! and `records`, SRO in `strong`.

#![forbid(unsafe_code)]

mod annotations;
mod eventual;
mod meaning;
mod object;
mod own;
mod records;
mod strong;
mod strong_paths;
mod tables;

pub use meaning::{Meaning, supply};
use object::SharedObject;
use p4_ir::{Expr, ExternInstance, Program};
use records::Records;
use strong::Strong;
use swish_protocol::objects::{COUNTER, Consistency, REGISTER, SET, SKETCH, SYSTEM, TABLE};
use xdp_backend::system::{
    Context, Generator, Header, Leaving, ObjectCall, Pipeline, Rule, StateSystem, System, Writer,
    calls_outside,
};

const EXTERN_TYPES: &[&str] = &[COUNTER, SKETCH, TABLE, REGISTER, SET];
/// Those with keys and values, or keys alone.
const KEYED_TYPES: &[&str] = &[TABLE, REGISTER, SET];

macro_rules! headers {
    ($($name:literal),+) => {
        &[$(($name, include_str!(concat!("../../../../bpf/swish/", $name)))),+]
    };
}

const HEADERS: &[Header] = headers!(
    "stateplane_eventual.h",
    "stateplane_eventual_frame.h",
    "stateplane_eventual_layouts.h",
    "stateplane_lww.h",
    "stateplane_lww_frame.h",
    "stateplane_lww_layouts.h",
    "stateplane_strong.h",
    "stateplane_strong_chain.h",
    "stateplane_strong_commit.h",
    "stateplane_strong_layouts.h",
    "stateplane_strong_message.h",
    "stateplane_strong_order.h",
    "stateplane_strong_records.h",
    "stateplane_strong_round.h",
    "stateplane_strong_copy.h",
    "stateplane_strong_sweep.h",
    "stateplane_strong_lives.h",
    "stateplane_shared.h",
    "stateplane_shared_frame.h",
    "stateplane_shared_layouts.h",
    "stateplane_shared_merge.h",
    "stateplane_shared_tree.h",
    "stateplane_shared_hops.h",
    "stateplane_shared_message.h",
    "stateplane_shared_own.h",
    "stateplane_shared_window.h",
    "stateplane_swish.h"
);

const CONTEXT: Context = Context { ty: "struct sp_swish_context", name: "shared", initial: "{}" };

/// Updates of one packet at the most.
const UPDATES_MAX: usize = 16;

const OUTSIDE: usize = 0;

/// What programs are refused for, beside what each declaration and call is checked for.
static RULES: &[Rule] = &[Rule {
    id: "shared-outside-ingress-and-egress",
    broken: "a call in the parser, a checksum control or the deparser",
    remedy: "call it in ingress or egress: updates take effect when the packet leaves them",
    note: None,
    on_any_path: false,
}];

/// See the crate.
pub struct SwiSh;

impl System for SwiSh {
    fn extern_types(&self) -> &'static [&'static str] {
        EXTERN_TYPES
    }

    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn headers(&self) -> &'static [Header] {
        HEADERS
    }

    fn program_names(&self) -> &'static [&'static str] {
        &[
            "sp_shared_receive",
            "sp_eventual_receive",
            "sp_lww_order",
            "sp_strong_receive",
            "sp_strong_acked",
            "sp_strong_commit",
            "sp_strong_send",
            "sp_strong_again",
            "sp_strong_pass",
            "sp_strong_give",
            "sp_strong_take",
            "sp_strong_carry",
            "sp_strong_tell",
            "sp_strong_hear",
            "sp_strong_order",
            "sp_swish_chain",
            "sp_loop",
        ]
    }

    fn own_functions(&self) -> &'static [&'static str] {
        // Only the programs that receive messages, and the generator, call them. One that is
        // missing here counts as called by packets, and takes stack from the program's variables.
        &[
            "sp_shared_merge",
            "sp_shared_take",
            "sp_shared_put_cells",
            "sp_shared_put",
            "sp_shared_fill",
            "sp_shared_handle",
            "sp_shared_generated",
            "sp_shared_merge_block",
            "sp_shared_freshen",
            "sp_shared_merge_entry",
            "sp_shared_merge_one",
            "sp_shared_fill_line",
            "sp_shared_fill_one",
            "sp_shared_tag",
            "sp_shared_headers",
            "sp_shared_look_at_cpu",
            "sp_shared_drained",
            "sp_shared_time_window",
            "sp_shared_reset_word",
            "sp_shared_reset_member",
            "sp_shared_add_cpu",
            "sp_shared_branch",
            "sp_shared_branch_block",
            "sp_shared_branch_entry",
            "sp_shared_pace",
            "sp_shared_turn",
            "sp_eventual_look_at_column",
            "sp_eventual_column",
            "sp_eventual_raise_slot",
            "sp_eventual_merge_one",
            "sp_eventual_take",
            "sp_eventual_list_one",
            "sp_eventual_value_one",
            "sp_eventual_run_one",
            "sp_eventual_fill_changed",
            "sp_eventual_fill_run",
            "sp_eventual_fill_records",
            "sp_eventual_fill_frame",
            "sp_eventual_generated",
            "sp_lww_merge_one",
            "sp_lww_take",
            "sp_lww_put",
            "sp_lww_list_one",
            "sp_lww_listed_one",
            "sp_lww_run_one",
            "sp_lww_fill_changed",
            "sp_lww_fill_run",
            "sp_strong_try_lock",
            "sp_strong_take_view",
            "sp_strong_keep",
            "sp_strong_decide",
            "sp_strong_apply",
            "sp_strong_early_one",
            "sp_strong_member",
            "sp_strong_check",
            "sp_strong_give_some",
            "sp_strong_give_step",
            "sp_strong_take_record",
            "sp_strong_take_part",
            "sp_strong_round_comes",
            "sp_strong_send_round",
            "sp_strong_begin_round",
            "sp_strong_refuses",
            "sp_strong_sweep",
            "sp_strong_digest",
            "sp_strong_tag",
            "sp_strong_emit",
            "sp_strong_batch",
            "sp_strong_push",
            "sp_commit_leaves",
        ]
    }

    fn leaf_functions(&self) -> &'static [&'static str] {
        // (A loop's callback begins where its caller's frame ends, as a function does.)
        &[
            "sp_shared_line_ready",
            "sp_shared_list_block",
            "sp_shared_raise",
            "sp_shared_join",
            "sp_eventual_join_once",
            "sp_eventual_raise_once",
        ]
    }

    fn begin(&self) -> Box<dyn StateSystem> {
        Box::new(State::default())
    }
}

/// Stores what a call of an object found (`sp_result`), if the program wants it.
fn store_result(generator: &mut Generator<'_>, result: Option<&Expr>) {
    match result {
        Some(result) => generator.store(result, "sp_result"),
        None => generator.out.line("(void)sp_result;"),
    }
}

/// The objects of one program.
#[derive(Default)]
struct State {
    objects: Vec<SharedObject>,
    /// The names of groups, by number.
    groups: Vec<String>,
    /// Merges of the program's own.
    functions: own::Functions,
    /// Calls that update, in the program's text.
    updates: usize,
    /// Registers, tables and sets with EWO.
    records: Records,
    /// Those with SRO.
    strong: Strong,
}

impl State {
    /// Tells what stands beside the objects that must not.
    fn check_others(&self, generator: &mut Generator<'_>) {
        let help = "keep them in two programs, on two switches of the path";
        let first = self.objects.first().map(|it| (it.described.as_str(), it.location));
        let first = first.or(self.records.first());
        let Some((described, location)) = self.strong.first().or(first) else { return };
        let others = generator.manifest.state_objects.iter().find(|it| it.system != SYSTEM);
        if let Some(other) = others {
            let message = format!(
                "{described} beside {} {}: a packet may wait or run again for that, and would \
                 count twice",
                other.kind, other.name
            );
            generator.error(location, &message, Some(help));
        }
    }
}

impl State {
    fn has_windows(&self) -> bool {
        self.objects.iter().any(|it| !it.is_eventual())
    }

    fn has_eventual(&self) -> bool {
        self.objects.iter().any(SharedObject::is_eventual) || !self.records.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.records.is_empty() && self.strong.is_empty()
    }
}

impl StateSystem for State {
    fn declare(&mut self, generator: &mut Generator<'_>, instance: &ExternInstance, id: u16) {
        let is_keyed = KEYED_TYPES.contains(&instance.extern_type.as_str());
        annotations::check(generator, instance, !is_keyed);
        if is_keyed {
            if instance.merge.is_some() {
                refuse_merge(generator, instance);
            }
            match (instance.extern_type.as_str(), strong::consistency_of(instance)) {
                (_, Consistency::Ewo) => {
                    self.records.declare(generator, instance, id, &mut self.groups);
                }
                (SET, Consistency::Sdw) => refuse_set(generator, instance),
                _ => self.strong.declare(generator, instance, id),
            }
            return;
        }
        let object =
            SharedObject::declare(generator, instance, id, &mut self.groups, &mut self.functions);
        self.objects.push(object);
    }

    fn call(&mut self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        let name = &call.instance.c_name;
        if self.strong.has(name) {
            self.strong.call(generator, call);
        } else if self.records.has(name) {
            self.records.call(generator, call);
        } else if let Some(object) = self.objects.iter_mut().find(|it| it.c_name == *name) {
            if call.method == "sub" {
                object.lanes = 2;
            }
            self.updates += usize::from(object.call(generator, call));
        }
    }

    fn check(&self, generator: &mut Generator<'_>) {
        object::place(generator, &self.objects);
        eventual::place(generator, &self.objects);
        self.records.place(generator);
        self.strong.check_program(generator);
        self.check_others(generator);
        if let (Some(object), true) = (self.objects.first(), self.updates > UPDATES_MAX) {
            let message = format!(
                "{} updates of shared variables in the program, more than the {UPDATES_MAX} that a \
                 packet can keep until its end",
                self.updates
            );
            let help = "join calls: compute index and amount first, and update once";
            generator.error(object.location, &message, Some(help));
        }
        for (id, location) in calls_outside(generator.program, EXTERN_TYPES) {
            let (rule, name) = (&RULES[OUTSIDE], extern_name(generator.program, id.index()));
            generator.error(location, &format!("{name}: {}", rule.broken), Some(rule.remedy));
        }
    }

    fn map_count(&self, instance: &ExternInstance) -> usize {
        // With SRO beside others the packets' program has most: the rest is split.
        let together = !self.strong.is_empty() && (self.has_windows() || self.has_eventual());
        let of = |all: usize, packets: usize| if together { packets } else { all };
        if self.strong.has(&instance.c_name) {
            // stateplane_strong.h and stateplane_commit.h, with the first one.
            let runtime = of(30, 16) * usize::from(self.strong.is_first(&instance.c_name));
            return of(3, 2) + runtime;
        }
        // Those of the runtime, with the first object of each kind: two for messages
        // (stateplane_shared_message.h); stateplane_shared.h and its parts; stateplane_eventual.h.
        let first = |is_eventual: bool| {
            let found = self.objects.iter().find(|it| it.is_eventual() == is_eventual);
            usize::from(found.is_some_and(|it| it.c_name == instance.c_name))
        };
        let both = self.objects.first().is_some_and(|it| it.c_name == instance.c_name);
        if self.records.has(&instance.c_name) {
            // stateplane_lww.h, with the first one; and each has a queue of its own.
            let alone = !self.objects.iter().any(SharedObject::is_eventual);
            let runtime = of(10, 6) + of(11, 7) * usize::from(alone);
            return 1 + usize::from(self.records.is_first(&instance.c_name)) * runtime;
        }
        of(2, 1) * usize::from(both) + of(13, 5) * first(false) + of(9, 6) * first(true)
    }

    fn switch_id(&self) -> Option<&'static str> {
        None
    }

    fn includes(&self, text: &mut Writer) {
        if self.is_empty() {
            return;
        }
        let updates = self.updates.clamp(1, UPDATES_MAX);
        self.functions.includes(text);
        object::defines(&self.objects, updates, text);
        eventual::defines(&self.objects, &self.records, updates, text);
        self.strong.defines(text);
        text.line("#include \"stateplane_swish.h\"");
        text.line("");
    }

    fn receive(&self, text: &mut Writer) {
        if !self.is_empty() {
            text.line("sp_swish_claim(xdp);");
        }
    }

    fn context(&self) -> Option<Context> {
        if self.strong.is_empty() {
            return (!self.is_empty()).then_some(CONTEXT);
        }
        Some(strong::CONTEXT)
    }

    fn before_deparser(&self) -> Option<String> {
        (!self.strong.is_empty()).then(Strong::before_deparser)
    }

    fn before_verdict(&self, leaving: Leaving<'_>) -> Option<String> {
        let mut statements = vec![];
        if !self.strong.is_empty() {
            statements.extend(Strong::before_verdict(leaving));
        }
        // (Windows first: a packet that they drop changes nothing.)
        if self.has_windows() {
            let statement = match leaving {
                Leaving::Drop => "sp_shared_commit(&shared.windows);",
                // This packet enters the program again, from its beginning.
                Leaving::Held => "sp_shared_forget(&shared.windows);",
                Leaving::Forward(_) | Leaving::ToHost | Leaving::Replaced => {
                    "if (sp_shared_commit(&shared.windows)) return sp_drop(ingress_port);"
                }
            };
            statements.push(statement.to_owned());
        }
        if self.has_eventual() {
            let statement = match leaving {
                Leaving::Held => "sp_eventual_forget(&shared.eventual);",
                _ => "sp_eventual_commit(&shared.eventual);",
            };
            statements.push(statement.to_owned());
        }
        (!statements.is_empty()).then(|| statements.join("\n"))
    }

    fn to_host(&self) -> Option<&'static str> {
        None
    }

    fn generated(&self) -> Option<&'static str> {
        (!self.is_empty()).then_some("sp_swish_generated")
    }

    fn programs(&self, text: &mut Writer, pipeline: &Pipeline) {
        if !self.strong.is_empty() {
            Strong::programs(text, pipeline);
        }
    }
}

/// Tells why a register, table or set merges by no function.
fn refuse_merge(generator: &mut Generator<'_>, instance: &ExternInstance) {
    let why = match strong::consistency_of(instance) {
        Consistency::Ewo => "the last writer wins, and nothing is merged",
        _ => "each write is decided in one place, and nothing is merged",
    };
    let message = format!(
        "{} {}: @merge is of sketches of Sketch.OWN: of keys and values {why}",
        instance.extern_type, instance.name
    );
    let help = "leave it out; what is to merge can be a SharedSketch of Sketch.OWN";
    generator.error(instance.location, &message, Some(help));
}

/// Tells why a set has no SDW.
fn refuse_set(generator: &mut Generator<'_>, instance: &ExternInstance) {
    let message = format!("SharedSet {}: Shared.SDW: removed keys do not merge", instance.name);
    let help = "use Shared.EWO or Shared.SRO, or a SharedSketch of Sketch.BITS";
    generator.error(instance.location, &message, Some(help));
}

fn extern_name(program: &Program, index: usize) -> &str {
    program.externs.get(index).map_or("?", |it| &it.name)
}

#[cfg(test)]
mod tests {
    use super::{HEADERS, SwiSh};
    use xdp_backend::system::System;

    /// Headers of what packets call. (Two of SRO have functions of both.)
    const OF_PACKETS: [&str; 7] = [
        "stateplane_eventual.h",
        "stateplane_lww.h",
        "stateplane_shared.h",
        "stateplane_strong.h",
        "stateplane_strong_commit.h",
        "stateplane_strong_records.h",
        "stateplane_swish.h",
    ];

    /// The name of the function that begins in a line, if it has a frame of its own.
    fn function(line: &str) -> Option<&str> {
        let begins = ["static __noinline ", "static long ", "SP_SHARED_GLOBAL "];
        if !begins.iter().any(|it| line.starts_with(it)) {
            return None;
        }
        line.split('(').next()?.rsplit([' ', '*']).next()
    }

    #[test]
    fn functions_of_messages_take_no_stack_from_packets() {
        let own = SwiSh.own_functions();
        let mut count = 0;
        for (header, text) in HEADERS.iter().filter(|(name, _)| !OF_PACKETS.contains(name)) {
            for name in text.lines().filter_map(function) {
                count += 1;
                assert!(own.contains(&name), "{header}: {name} is not in `own_functions`");
            }
        }
        assert!(count > 40, "{count} functions: the headers are written in another way");
    }
}
