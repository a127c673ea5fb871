//! The seam between the back end and the systems that bring state objects.
//!
//! A [`System`] is what is known before any program is; a [`StateSystem`] is its share of one run.
//! The generator calls it in fixed places and knows nothing else of it; README.md has the list.

pub use crate::contracts::{
    Call, Question, Rule, Seen, Storage, Verdict, Walk, Witness, calls_outside, verdict,
};
pub use crate::emit::Writer;
pub use crate::generator::Generator;
pub use crate::layout::scalar_width;
pub use crate::table::round_up;

use p4_ir::{Argument, Expr, ExternInstance, Location};

/// A runtime header: its file name and its text.
pub type Header = (&'static str, &'static str);

/// A system, as a registry above this crate lists it.
pub trait System: Sync {
    /// The extern types of its state objects. No other system may have the same.
    fn extern_types(&self) -> &'static [&'static str];

    /// What its programs are refused for; docs/p4-support.md shows these.
    fn rules(&self) -> &'static [Rule];

    /// Its C runtime, which emitted C includes.
    fn headers(&self) -> &'static [Header];

    /// XDP programs that its runtime, or [`StateSystem::programs`], adds to an object. Each has a
    /// stack of its own.
    fn program_names(&self) -> &'static [&'static str];

    /// Functions of its runtime that only its own programs call, and have the stack for.
    fn own_functions(&self) -> &'static [&'static str];

    /// Functions of its runtime that packets call and that call nothing: only one of them runs at a
    /// time.
    fn leaf_functions(&self) -> &'static [&'static str] {
        &[]
    }

    /// Begins the run over one program.
    fn begin(&self) -> Box<dyn StateSystem>;
}

/// A call of a state object's method.
pub struct ObjectCall<'a> {
    /// Whose.
    pub instance: &'a ExternInstance,
    /// Its name.
    pub method: &'a str,
    /// In the order of the declaration.
    pub arguments: &'a [Argument],
    /// The l-value that gets what it returns.
    pub result: Option<&'a Expr>,
    /// Where.
    pub location: Location,
}

/// How a packet leaves the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving<'a> {
    /// By the port that this C expression gives.
    Forward(&'a str),
    /// Dropped.
    Drop,
    /// Up to the kernel.
    ToHost,
    /// As another packet: an ICMP error takes its place.
    Replaced,
    /// Not yet: the gateway's runtime keeps it until its first fragment comes.
    Held,
}

/// A value of a system that goes with a packet through the pipeline, as a C variable.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// Its C type.
    pub ty: &'static str,
    /// Its name, which no other system's has.
    pub name: &'static str,
    /// What it is when a packet comes in by `ingress_port`.
    pub initial: &'static str,
}

impl Context {
    /// The C statement that makes it.
    fn start(&self) -> String {
        format!("{} {} = {};", self.ty, self.name, self.initial)
    }
}

/// The function with the P4 program, as the XDP programs of an object call it.
pub struct Pipeline {
    /// Of all systems that the program uses.
    pub(crate) contexts: Vec<Context>,
}

impl Pipeline {
    /// The parameters that the contexts take, behind others.
    pub(crate) fn parameters(&self) -> String {
        self.contexts.iter().map(|it| format!(", {} {}", it.ty, it.name)).collect()
    }

    /// A packet that has just come in goes through.
    pub(crate) fn enter(&self, text: &mut Writer) {
        self.contexts.iter().for_each(|it| text.line(it.start()));
        self.call(text, "ingress_port", "sp_bytes", false);
    }

    /// A packet that was here before goes through anew. `own` names the context that the caller has
    /// made; those of other systems start anew.
    pub fn enter_again(&self, text: &mut Writer, own: &str, port: &str) {
        let others: Vec<&Context> = self.contexts.iter().filter(|it| it.name != own).collect();
        if !others.is_empty() {
            text.line(format!("__u32 ingress_port = {port};"));
        }
        others.iter().for_each(|it| text.line(it.start()));
        self.call(text, port, "sp_length(xdp)", true);
    }

    /// `again`: the frame did not come in just now, so only its port tells by which interface it
    /// did.
    fn call(&self, text: &mut Writer, port: &str, bytes: &str, again: bool) {
        let arguments: String = self.contexts.iter().map(|it| format!(", {}", it.name)).collect();
        text.line(format!(
            "return sp_pipeline(xdp, {port}, {bytes}, {}{arguments});",
            u32::from(again)
        ));
    }
}

/// A system's share of the run over one program. Each place emits nothing for a program that has no
/// objects of the system.
pub trait StateSystem {
    /// Reads the declaration of one of its objects: checks it, and describes it in the manifest
    /// under this number, which no other object of the program has.
    fn declare(&mut self, generator: &mut Generator<'_>, instance: &ExternInstance, id: u16);

    /// Emits a call of one of its objects, after all objects are declared.
    fn call(&mut self, generator: &mut Generator<'_>, call: &ObjectCall<'_>);

    /// Tells what the program may not do with the objects, after the pipeline is emitted.
    fn check(&self, generator: &mut Generator<'_>);

    /// How many of a program's 64 maps an object takes for sure.
    fn map_count(&self, instance: &ExternInstance) -> usize;

    /// The C expression of `switch_id()`. None: the system's runtime has no such number.
    fn switch_id(&self) -> Option<&'static str>;

    /// Place: macros and includes, before the program's types.
    fn includes(&self, text: &mut Writer);

    /// Place: at the top of `sp_main`, before the P4 program. Claims packets that are messages of
    /// the system.
    fn receive(&self, text: &mut Writer);

    /// Place: parameters of the pipeline.
    fn context(&self) -> Option<Context>;

    /// Place: behind egress, for a packet that leaves by a port; its frame is as it came in. A C
    /// statement that may end the packet: what the program has asked for takes effect. Packets that
    /// leave otherwise do not get here, but their frames are the same at [`Self::before_verdict`].
    fn before_deparser(&self) -> Option<String> {
        None
    }

    /// Place: just before a verdict. C statements, one a line, that may return another one: an
    /// output that must wait for an update leaves with it.
    fn before_verdict(&self, leaving: Leaving<'_>) -> Option<String>;

    /// Place: the verdict of a packet that goes up to the kernel, as a C expression. The first
    /// system that has one decides.
    fn to_host(&self) -> Option<&'static str>;

    /// Place: the packet generator's program, `sp_generator`, which all systems share. The name of
    /// a C function that takes the `struct xdp_md *` of a generated frame and makes of it what is
    /// due: it returns a verdict, or -1 if nothing is due and the frame is as it was.
    fn generated(&self) -> Option<&'static str>;

    /// Place: behind `sp_main`. XDP programs of the object that need the pipeline.
    fn programs(&self, text: &mut Writer, pipeline: &Pipeline);
}

/// The systems that programs may use, each once.
#[derive(Clone, Copy)]
pub struct Systems(pub &'static [&'static dyn System]);

impl Systems {
    /// No system: programs have no state objects but registers and counters.
    pub const NONE: Systems = Systems(&[]);

    /// Which system has this extern type.
    pub(crate) fn owner(self, extern_type: &str) -> Option<usize> {
        self.0.iter().position(|system| system.extern_types().contains(&extern_type))
    }

    /// What programs are refused for by all systems.
    pub fn rules(self) -> impl Iterator<Item = &'static Rule> {
        self.0.iter().flat_map(|system| system.rules())
    }
}

impl std::fmt::Debug for Systems {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().flat_map(|system| system.extern_types())).finish()
    }
}

impl Generator<'_> {
    /// Calls the systems with this generator: they are taken out of it meanwhile.
    pub(crate) fn with_systems(
        &mut self,
        act: impl FnOnce(&mut Self, &mut [Box<dyn StateSystem>]),
    ) {
        let mut systems = std::mem::take(&mut self.systems);
        act(self, &mut systems);
        self.systems = systems;
    }

    /// Place: just before a verdict.
    pub(crate) fn leave(&mut self, leaving: Leaving<'_>) {
        for system in &self.systems {
            if let Some(statements) = system.before_verdict(leaving) {
                statements.lines().for_each(|statement| self.out.line(statement));
            }
        }
    }

    /// Place: behind egress.
    pub(crate) fn decided(&mut self) {
        for system in &self.systems {
            if let Some(statement) = system.before_deparser() {
                self.out.line(statement);
            }
        }
    }

    /// The verdict of a packet that goes up to the kernel.
    pub(crate) fn to_host(&self) -> &'static str {
        self.systems
            .iter()
            .find_map(|system| system.to_host())
            .unwrap_or("sp_to_host(ingress_port)")
    }

    /// What goes with a packet through the pipeline.
    pub(crate) fn pipeline_function(&self) -> Pipeline {
        Pipeline { contexts: self.systems.iter().filter_map(|system| system.context()).collect() }
    }
}
