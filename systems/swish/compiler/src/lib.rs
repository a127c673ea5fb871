//! SwiSh's back end: SharedCounter and SharedSketch of `stateplane/swish.p4`, and the calls of
//! their runtime (`bpf/swish/`) in the fixed places of the packet path.

#![forbid(unsafe_code)]

mod meaning;
mod object;

pub use meaning::{Meaning, supply};
use object::SharedObject;
use p4_ir::{ExternInstance, Program};
use swish_protocol::objects::{COUNTER, SKETCH, SYSTEM};
use xdp_backend::system::{
    Context, Generator, Header, Leaving, ObjectCall, Pipeline, Rule, StateSystem, System, Writer,
    calls_outside,
};

const EXTERN_TYPES: &[&str] = &[COUNTER, SKETCH];

macro_rules! headers {
    ($($name:literal),+) => {
        &[$(($name, include_str!(concat!("../../../../bpf/swish/", $name)))),+]
    };
}

const HEADERS: &[Header] = headers!(
    "stateplane_shared.h",
    "stateplane_shared_frame.h",
    "stateplane_shared_layouts.h",
    "stateplane_shared_merge.h",
    "stateplane_shared_message.h",
    "stateplane_shared_window.h"
);

const CONTEXT: Context = Context { ty: "struct sp_shared_context", name: "shared", initial: "{}" };

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
        &["sp_shared_receive"]
    }

    fn own_functions(&self) -> &'static [&'static str] {
        // Only `sp_shared_receive` and the generator call them.
        &["sp_shared_handle", "sp_shared_fill", "sp_shared_put", "sp_shared_put_cells"]
    }

    fn begin(&self) -> Box<dyn StateSystem> {
        Box::new(State::default())
    }
}

/// The objects of one program.
#[derive(Default)]
struct State {
    objects: Vec<SharedObject>,
    /// The names of groups, by number.
    groups: Vec<String>,
    /// Calls that update, in the program's text.
    updates: usize,
}

impl StateSystem for State {
    fn declare(&mut self, generator: &mut Generator<'_>, instance: &ExternInstance, id: u16) {
        let object = SharedObject::declare(generator, instance, id, &mut self.groups);
        self.objects.push(object);
    }

    fn call(&mut self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        let name = &call.instance.c_name;
        if let Some(object) = self.objects.iter().find(|it| it.c_name == *name) {
            self.updates += usize::from(object.call(generator, call));
        }
    }

    fn check(&self, generator: &mut Generator<'_>) {
        object::place(generator, &self.objects);
        let Some(object) = self.objects.first() else { return };
        if self.updates > UPDATES_MAX {
            let message = format!(
                "{} updates of shared variables in the program, more than the {UPDATES_MAX} that a \
                 packet can keep until its end",
                self.updates
            );
            let help = "join calls: compute index and amount first, and update once";
            generator.error(object.location, &message, Some(help));
        }
        let others = generator.manifest.state_objects.iter().find(|it| it.system != SYSTEM);
        if let Some(other) = others {
            let message = format!(
                "{} beside {} {}: a packet may wait or run again for that, and would count twice",
                object.described, other.kind, other.name
            );
            let help = "keep them in two programs, on two switches of the path";
            generator.error(object.location, &message, Some(help));
        }
        for (id, location) in calls_outside(generator.program, EXTERN_TYPES) {
            let (rule, name) = (&RULES[OUTSIDE], extern_name(generator.program, id.index()));
            generator.error(location, &format!("{name}: {}", rule.broken), Some(rule.remedy));
        }
    }

    fn map_count(&self, instance: &ExternInstance) -> usize {
        // Those of the runtime (stateplane_shared.h and its parts), with the first object.
        let first = self.objects.first().is_some_and(|it| it.c_name == instance.c_name);
        if first { 15 } else { 0 }
    }

    fn switch_id(&self) -> Option<&'static str> {
        None
    }

    fn includes(&self, text: &mut Writer) {
        if !self.objects.is_empty() {
            object::includes(&self.objects, self.updates.clamp(1, UPDATES_MAX), text);
        }
    }

    fn receive(&self, text: &mut Writer) {
        if !self.objects.is_empty() {
            text.line("sp_shared_claim_frame(xdp);");
        }
    }

    fn context(&self) -> Option<Context> {
        (!self.objects.is_empty()).then_some(CONTEXT)
    }

    fn before_verdict(&self, leaving: Leaving<'_>) -> Option<String> {
        if self.objects.is_empty() {
            return None;
        }
        Some(match leaving {
            Leaving::Drop => "sp_shared_commit(&shared);".into(),
            // This packet enters the program again, from its beginning.
            Leaving::Held => "sp_shared_forget(&shared);".into(),
            Leaving::Forward(_) | Leaving::ToHost | Leaving::Replaced => {
                "if (sp_shared_commit(&shared)) return sp_drop(ingress_port);".into()
            }
        })
    }

    fn to_host(&self) -> Option<&'static str> {
        None
    }

    fn generated(&self) -> Option<&'static str> {
        (!self.objects.is_empty()).then_some("sp_shared_generated")
    }

    fn programs(&self, _: &mut Writer, _: &Pipeline) {}
}

fn extern_name(program: &Program, index: usize) -> &str {
    program.externs.get(index).map_or("?", |it| &it.name)
}
