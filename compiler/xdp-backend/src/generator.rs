//! Puts the C of a whole program together.

mod assemble;

use crate::atomic::{Held, Locks};
use crate::deparser::Emitted;
use crate::emit::Writer;
use crate::facts::Facts;
use crate::gateway::Uses;
use crate::layout::{Layout, Place, Scalar, c_type, header_tag, member_name, scalar_width};
use crate::mutations::{Mutation, planted};
use crate::system::{Leaving, StateSystem, Systems};
use crate::tree_table::Search;
use crate::updates::Updates;
use crate::{BackendError, Generated, KeptLaws, Options, Placement};
use manifest::Manifest;
use p4_ir::{Control, ExternId, LabelId, Location, Program, Type};
use std::collections::{HashMap, HashSet};

/// Which part of the pipeline is being emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Parser,
    VerifyChecksum,
    Ingress,
    Egress,
    ComputeChecksum,
    Deparser,
}

/// State of one run over a program.
pub struct Generator<'a> {
    /// What is compiled.
    pub program: &'a Program,
    pub(crate) facts: Facts,
    pub(crate) updates: Updates,
    pub(crate) locks: Locks,
    /// The lock that is held by what is being emitted.
    pub(crate) held: Option<Held>,
    pub(crate) layout: Layout,
    /// The body of the main function.
    pub out: Writer,
    /// Types and maps, before it.
    pub(crate) types: Writer,
    /// For the runtime: what has been declared so far.
    pub manifest: Manifest,
    /// Laws that hold of the program's merges, as far as systems have tried them.
    pub kept_laws: KeptLaws,
    pub(crate) section: Section,
    /// Where `exit` and `return` go.
    pub(crate) exit_label: String,
    pub(crate) return_label: String,
    /// Which copy of an action is being emitted (0: none), so that its labels are unique.
    pub(crate) instance: u32,
    pub(crate) instances: u32,
    pub(crate) temporaries: u32,
    /// In an action of a table: may it count in the entry's `value`?
    pub(crate) applied: Option<bool>,
    pub(crate) emitted: Vec<Emitted>,
    /// The systems that the program may use, and the share of each in this run.
    pub(crate) registry: Systems,
    pub(crate) systems: Vec<Box<dyn StateSystem>>,
    /// State objects declared so far; the last one's number.
    pub(crate) state_objects: u16,
    /// What it uses of the gateway's runtime.
    pub(crate) gateway: Uses,
    /// Some checksum covers the payload.
    pub(crate) payload_sums: bool,
    locals: Vec<(String, String, String)>,
    truncates: bool,
    /// The verifier must forget what each statement came to ([`Placement::Forgotten`]).
    pub(crate) forgets: bool,
    /// Ternary tables whose search function is declared.
    pub(crate) searched: HashSet<String>,
    /// Tables whose const entries are in decision trees.
    pub(crate) trees: HashMap<String, Search>,
    /// Bytes of constants that these take.
    pub(crate) constant_bytes: usize,
    /// `sp_hidden_zero` is declared.
    hides: bool,
    errors: Vec<BackendError>,
    reported: HashSet<(Location, String)>,
}

impl<'a> Generator<'a> {
    pub(crate) fn new(program: &'a Program, options: &Options) -> Generator<'a> {
        let facts = Facts::new(program);
        let updates = Updates::new(program);
        Generator {
            program,
            layout: Layout::new(program, options.placement, &facts),
            facts,
            locks: Locks::new(program, &updates),
            updates,
            held: None,
            out: Writer::default(),
            types: Writer::default(),
            manifest: Manifest {
                errors: program.errors.clone(),
                ..Manifest::new(&options.program_name)
            },
            kept_laws: KeptLaws::default(),
            section: Section::Parser,
            exit_label: String::new(),
            return_label: String::new(),
            instance: 0,
            instances: 0,
            temporaries: 0,
            applied: None,
            emitted: Vec::new(),
            registry: options.systems,
            systems: options.systems.0.iter().map(|system| system.begin()).collect(),
            state_objects: 0,
            gateway: Uses::new(program),
            payload_sums: false,
            locals: Vec::new(),
            truncates: false,
            forgets: options.placement == Placement::Forgotten,
            searched: HashSet::new(),
            trees: HashMap::new(),
            constant_bytes: 0,
            hides: false,
            errors: Vec::new(),
            reported: HashSet::new(),
        }
    }

    /// Notes an error once.
    pub fn error(&mut self, location: Location, message: &str, help: Option<&str>) {
        self.error_beside(location, message, help, None);
    }

    /// The same, with another place that matters.
    pub fn error_beside(
        &mut self,
        location: Location,
        message: &str,
        help: Option<&str>,
        note: Option<(Location, String)>,
    ) {
        if self.reported.insert((location, message.to_string())) {
            self.errors.push(BackendError {
                location,
                message: message.into(),
                help: help.map(str::to_string),
                note,
            });
        }
    }

    /// The front end broke its promise: reported, never a panic.
    pub fn internal(&mut self, location: Location, message: &str) -> String {
        self.error(location, &format!("internal: {message}"), Some("please report this program"));
        "0".into()
    }

    /// A field of standard_metadata.
    pub(crate) fn standard(&self, name: &str) -> Option<Scalar> {
        self.standard_in(self.layout.variables.get(&self.program.standard_metadata)?, name)
    }

    /// A field of standard_metadata, or of a copy of it.
    pub(crate) fn standard_in(&self, place: &Place, name: &str) -> Option<Scalar> {
        let variable = &self.program.variables[self.program.standard_metadata.index()];
        let Type::Struct(id) = variable.ty else { return None };
        let index = self.program.struct_types[id.index()]
            .fields
            .iter()
            .position(|field| field.name == name)?;
        match place {
            Place::Struct(_, fields) => match fields.get(index)? {
                Place::Scalar(scalar) => Some(scalar.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    /// A variable of the main function, declared at its top.
    pub fn declare_local(&mut self, ty: &str, name: &str, initial: &str) -> String {
        self.locals.push((ty.into(), name.into(), initial.into()));
        name.into()
    }

    /// A zero that the verifier does not know to be one, for `sp_blur`.
    pub(crate) fn hidden_zero(&mut self) -> String {
        if !self.hides {
            self.hides = true;
            let zero = if self.forgets { "sp_any_zero(xdp)" } else { "sp_unknown_zero(xdp)" };
            self.declare_local("__u64", "sp_hidden_zero", zero);
        }
        "sp_hidden_zero".into()
    }

    /// C variable with the length that `truncate` cuts the packet to.
    pub(crate) fn truncate_variable(&mut self) -> String {
        if !self.truncates {
            self.truncates = true;
            self.declare_local("__u32", "sp_truncate", "0xffffffff");
        }
        "sp_truncate".into()
    }

    /// The C label after a block.
    pub(crate) fn leave_label(&self, label: LabelId) -> String {
        match self.instance {
            0 => format!("leave_{}", label.0),
            instance => format!("leave_{}_{instance}", label.0),
        }
    }

    fn control(&mut self, section: Section, control: &'a Control) {
        self.section = section;
        let end = format!("end_{}", section_name(section));
        self.exit_label.clone_from(&end);
        self.return_label.clone_from(&end);
        self.out.nowhere();
        self.out.line("");
        self.out.comment(&format!("---- {}: {} ----", section_name(section), control.name));
        if section == Section::Deparser {
            self.deparser();
        } else {
            self.block(&control.body);
        }
        self.out.nowhere();
        self.out.line(format!("{end}: ;"));
    }

    /// All of it.
    pub(crate) fn run(mut self, options: &Options) -> Result<Generated, Vec<BackendError>> {
        let program = self.program;
        self.header_types();
        self.declare_actions();
        for table in &program.tables {
            self.declare_table(table);
        }
        for (index, instance) in program.externs.iter().enumerate() {
            self.declare_extern(ExternId(index as u32), instance);
        }
        self.declare_locks();
        self.pipeline();
        self.check_limits();
        self.manifest.headroom_bytes = self.headroom();
        if !self.errors.is_empty() {
            self.errors.sort_by_key(|error| {
                (error.location.file, error.location.line, error.location.column)
            });
            return Err(self.errors);
        }
        Ok(self.assemble(options))
    }

    fn header_types(&mut self) {
        let mut wide: Vec<u32> = self.layout.wide.iter().copied().collect();
        wide.sort_unstable();
        for bytes in wide {
            self.types.line(format!("struct sp_wide{bytes} {{"));
            self.types.line(format!("__u8 byte[{bytes}];"));
            self.types.line("};");
        }
        let mut varbits: Vec<u32> = self.layout.varbits.iter().copied().collect();
        varbits.sort_unstable();
        for bytes in varbits {
            self.types.line(format!("struct sp_varbit{bytes} {{"));
            self.types.line("__u32 bits;");
            self.types.line(format!("__u8 byte[{bytes}];"));
            self.types.line("};");
        }
        let whole =
            self.program.header_types.iter().map(|record| (header_tag(&record.name), record, None));
        let kept = std::mem::take(&mut self.layout.kept_types);
        let parts = kept.iter().map(|(name, id, kept)| {
            (name.clone(), &self.program.header_types[id.index()], Some(kept))
        });
        for (name, record, kept) in whole.chain(parts) {
            self.types.line(format!("struct {name} {{"));
            for (index, field) in record.fields.iter().enumerate() {
                if kept.is_some_and(|kept| !kept[index]) {
                    continue;
                }
                let name = member_name(&field.name);
                let text = match &field.ty {
                    Type::Varbit { max_width } => {
                        format!("struct sp_varbit{} {name};", max_width.div_ceil(8))
                    }
                    other => {
                        let width = scalar_width(other).unwrap_or(32);
                        // Without this a 128-bit member would align the struct to 16, which the
                        // stack of BPF has not.
                        let ty = if (65..=128).contains(&width) {
                            "sp_u128".to_string()
                        } else {
                            c_type(width)
                        };
                        format!("{ty} {name}; /* {width} bits */")
                    }
                };
                self.types.line(text);
            }
            self.types.line("__u8 sp_valid;");
            self.types.line("};");
        }
    }

    fn pipeline(&mut self) {
        let program = self.program;
        self.declare_gateway();
        self.out.nowhere();
        self.intrinsic_inputs();
        self.out.line("");
        self.out.comment(&format!("---- parser: {} ----", program.parser.name));
        self.section = Section::Parser;
        self.exit_label = "parser_end".into();
        self.return_label = "parser_end".into();
        self.parser();
        self.overwrite("checksum_error", "0");
        self.control(Section::VerifyChecksum, &program.verify_checksum);
        self.control(Section::Ingress, &program.ingress);
        self.between();
        self.control(Section::Egress, &program.egress);
        if let Some(port) = self.standard("egress_spec") {
            self.out.line(format!("if ({} == SP_DROP_PORT) goto verdict_drop;", port.c));
        }
        self.decided();
        self.control(Section::ComputeChecksum, &program.compute_checksum);
        self.control(Section::Deparser, &program.deparser);
        self.verdicts();
    }

    /// What simple_switch sets before the parser runs.
    fn intrinsic_inputs(&mut self) {
        let inputs = [
            ("ingress_port", "ingress_port"),
            ("packet_length", "sp_bytes"),
            ("ingress_global_timestamp", "((sp_now_ns() / 1000) & 0xffffffffffffULL)"),
        ];
        for (name, value) in inputs {
            // A helper call is not removed by clang: only where something reads it.
            if (name == "ingress_port" || self.facts.standard_reads.contains(name))
                && let Some(scalar) = self.standard(name)
            {
                self.out.line(format!("{} = {value};", scalar.c));
            }
        }
    }

    /// Sets a field of standard_metadata anew, as simple_switch does whatever the program wrote
    /// there.
    pub(crate) fn overwrite(&mut self, name: &str, value: &str) {
        if self.facts.standard_writes.contains(name)
            && self.facts.standard_reads.contains(name)
            && !planted(Mutation::StandardKept)
            && let Some(scalar) = self.standard(name)
        {
            self.out.line(format!("{} = {value};", scalar.c));
        }
    }

    /// Between ingress and egress (simple_switch.md): drop, else the port is decided.
    fn between(&mut self) {
        self.out.line("");
        let (Some(spec), Some(port)) = (self.standard("egress_spec"), self.standard("egress_port"))
        else {
            return;
        };
        self.out.line(format!("if ({} == SP_DROP_PORT) goto verdict_drop;", spec.c));
        self.out.line(format!("{} = {};", port.c, spec.c));
        // The packet has its port now: what the program writes there changes nothing, as in bmv2.
        if self.facts.standard_writes.contains("egress_port") {
            let decided = self.declare_local("__u16", "sp_decided_port", "0");
            self.out.line(format!("{decided} = {};", spec.c));
        }
        self.out.line(format!("{} = 0;", spec.c));
        self.overwrite("packet_length", "sp_bytes");
        for name in ["instance_type", "enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth"]
        {
            self.overwrite(name, "0");
        }
        if self.facts.standard_reads.contains("egress_global_timestamp")
            && let Some(scalar) = self.standard("egress_global_timestamp")
        {
            self.out.line(format!("{} = (sp_now_ns() / 1000) & 0xffffffffffffULL;", scalar.c));
        }
    }

    fn verdicts(&mut self) {
        self.out.line("");
        if self.truncates {
            self.open("if (sp_truncate < sp_bytes)");
            self.out.line(if planted(Mutation::ShortCutLost) {
                "if (bpf_xdp_adjust_tail(xdp, (int)(sp_truncate - sp_bytes))) goto verdict_drop;"
            } else {
                "if (sp_cut(xdp, sp_truncate, sp_padding)) goto verdict_drop;"
            });
            self.out.line("sp_bytes = sp_truncate;");
            self.out.line("}");
        }
        let port = match self.standard("egress_port") {
            Some(_) if self.facts.standard_writes.contains("egress_port") => {
                "sp_decided_port".to_string()
            }
            Some(port) => port.c,
            None => "0".to_string(),
        };
        self.finish_gateway();
        self.leave(Leaving::Forward(&port));
        self.send_by_kernel(&port);
        self.out.line(format!("return sp_forward({port}, sp_bytes);"));
        self.out.line("verdict_drop: ;");
        self.leave(Leaving::Drop);
        self.out.line("return sp_drop(ingress_port);");
        self.out.line("verdict_to_host: ;");
        self.leave(Leaving::ToHost);
        self.out.line(format!("return {};", self.to_host()));
    }

    /// Most bytes by which the packet may grow.
    fn headroom(&self) -> u32 {
        if self.facts.same_layout {
            return 0;
        }
        fn bytes(generator: &Generator<'_>, place: &Place) -> u32 {
            match place {
                Place::Header(header) => {
                    let (fixed, varbit) = generator.header_bytes(header.ty);
                    fixed + varbit
                }
                Place::Stack(stack) => generator.header_bytes(stack.ty).0 * stack.size,
                Place::Struct(_, fields) => {
                    fields.iter().map(|field| bytes(generator, field)).sum()
                }
                Place::Union(fields) => {
                    fields.iter().map(|field| bytes(generator, field)).max().unwrap_or(0)
                }
                _ => 0,
            }
        }
        self.layout.variables.get(&self.program.headers).map_or(0, |place| bytes(self, place))
    }
}

fn section_name(section: Section) -> String {
    match section {
        Section::Parser => "parser",
        Section::VerifyChecksum => "verify_checksum",
        Section::Ingress => "ingress",
        Section::Egress => "egress",
        Section::ComputeChecksum => "compute_checksum",
        Section::Deparser => "deparser",
    }
    .into()
}
