//! The order of the C's parts: definitions, includes, types, the pipeline, the programs around it.

use super::Generator;
use crate::emit::Writer;
use crate::layout::Declaration;
use crate::{Generated, LineMap, Options};

impl Generator<'_> {
    pub(super) fn assemble(mut self, options: &Options) -> Generated {
        let program = self.program;
        let files = |index: u32| {
            let path = program.files.get(index as usize).map_or("?", String::as_str);
            path.rsplit('/').next().unwrap_or(path).to_string()
        };
        let mut text = Writer::default();
        text.comment(&format!(
            "Compiled from {} by stateplane. Do not edit: change the P4 program.",
            options.program_name
        ));
        if self.payload_sums {
            text.line("#define SP_PAYLOAD_SUM");
        }
        text.line("#include \"stateplane_xdp.h\"");
        text.line("");
        let parts = self.gateway.defines();
        if !parts.is_empty() {
            parts.iter().for_each(|part| text.line(format!("#define {part}")));
            text.line("#include \"stateplane_gateway.h\"");
            text.line("");
        }
        self.systems.iter().for_each(|system| system.includes(&mut text));
        text.append(std::mem::take(&mut self.types));
        text.line("");
        let declarations = std::mem::take(&mut self.layout.declarations);
        let scratch = declarations.iter().any(|declaration| declaration.scratch);
        if scratch {
            write_scratch(&mut text, &declarations);
        }
        self.write_main(&mut text, &declarations, scratch);
        let (c_source, lines) = text.finish(files);
        Generated {
            c_source,
            manifest: self.manifest,
            line_map: LineMap { lines },
            kept_laws: self.kept_laws,
        }
    }

    fn write_main(&mut self, text: &mut Writer, declarations: &[Declaration], scratch: bool) {
        let contexts = self.pipeline_function().parameters();
        text.line("/* The P4 program. */");
        text.line(format!(
            "SP_INLINE int sp_pipeline(struct xdp_md *xdp, __u32 ingress_port, __u32 sp_bytes, \
             const __u32 sp_again{contexts})"
        ));
        text.line("{");
        // The brace above stands alone, so it has indented.
        text.line(format!(
            "if (sp_host_traffic && sp_is_host_traffic(xdp)) return {};",
            self.to_host()
        ));
        text.line("__u32 sp_padding = sp_test_padding();");
        text.line("sp_bytes -= sp_padding;");
        text.line("void *data = (void *)(long)xdp->data + sp_padding;");
        text.line("void *data_end = (void *)(long)xdp->data_end;");
        text.line("__u32 cursor = 0;");
        text.line("");
        if scratch {
            text.line("__u32 sp_state_key = 0;");
            text.line(
                "struct sp_state *state = bpf_map_lookup_elem(&sp_state_map, &sp_state_key);",
            );
            text.line("if (!state) return XDP_ABORTED;");
            // Offsets come last, and are set by who extracts.
            let zeroed = match declarations
                .iter()
                .find(|declaration| declaration.scratch && declaration.is_offset())
            {
                Some(offset) => format!("__builtin_offsetof(struct sp_state, {})", offset.name),
                None => "sizeof(*state)".into(),
            };
            text.line(format!("sp_clear(state, {zeroed});"));
        }
        for declaration in declarations {
            let Declaration { ty, name, array, scratch, initial } = declaration;
            let is_offset = declaration.is_offset();
            if *scratch && is_offset && self.facts.same_layout {
                continue; // only read if the header is valid, and then set
            }
            match (scratch, is_offset && !array.is_empty()) {
                (false, true) => {
                    let count = array.trim_matches(['[', ']']).parse().unwrap_or(1);
                    let list = vec!["SP_NO_OFFSET"; count].join(", ");
                    text.line(format!("{ty} {name}{array} = {{ {list} }};"));
                }
                (false, false) => text.line(format!("{ty} {name}{array} = {initial};")),
                (true, true) => {
                    let count: usize = array.trim_matches(['[', ']']).parse().unwrap_or(1);
                    for index in 0..count {
                        text.line(format!("state->{name}[{index}] = SP_NO_OFFSET;"));
                    }
                }
                (true, false) if is_offset => text.line(format!("state->{name} = SP_NO_OFFSET;")),
                (true, false) => {}
            }
        }
        for (ty, name, initial) in std::mem::take(&mut self.locals) {
            text.line(format!("{ty} {name} = {initial};"));
        }
        text.line("");
        text.append(std::mem::take(&mut self.out));
        text.line("}");
        self.write_programs(text);
    }

    /// The XDP programs around the pipeline.
    fn write_programs(&self, text: &mut Writer) {
        let pipeline = self.pipeline_function();
        text.line("");
        text.line("SEC(\"xdp.frags\")");
        text.line("int sp_main(struct xdp_md *xdp)");
        text.line("{");
        text.line("__u32 ingress_port = 0;");
        text.line("if (!sp_ingress_port(xdp, &ingress_port)) return XDP_PASS;");
        text.line("__u32 sp_bytes = sp_length(xdp);");
        text.line("sp_count_rx(ingress_port, sp_bytes);");
        self.systems.iter().for_each(|system| system.receive(text));
        pipeline.enter(text);
        text.line("}");
        self.systems.iter().for_each(|system| system.programs(text, &pipeline));
        self.write_generator(text);
    }

    /// The packet generator: each frame becomes what is due in the first system that has something.
    /// The agent makes as many frames as all of them have.
    fn write_generator(&self, text: &mut Writer) {
        let functions: Vec<_> = self.systems.iter().filter_map(|it| it.generated()).collect();
        if functions.is_empty() {
            return;
        }
        text.line("");
        text.line("/* The packet generator. */");
        text.line("SEC(\"xdp.frags\")");
        text.line("int sp_generator(struct xdp_md *xdp)");
        text.line("{");
        text.line("int sp_generated = -1;");
        for function in functions {
            text.line(format!("sp_generated = {function}(xdp);"));
            text.line("if (sp_generated != -1) return sp_generated;");
        }
        text.line("return XDP_DROP;");
        text.line("}");
    }
}

fn write_scratch(text: &mut Writer, declarations: &[Declaration]) {
    text.line("/* Headers and metadata that do not fit BPF's 512 bytes of stack. */");
    text.line("struct sp_state {");
    for offsets in [false, true] {
        let wanted =
            |declaration: &&Declaration| declaration.scratch && declaration.is_offset() == offsets;
        for declaration in declarations.iter().filter(wanted) {
            text.line(format!("{} {}{};", declaration.ty, declaration.name, declaration.array));
        }
    }
    text.line("} __attribute__((aligned(8)));");
    text.line("struct {");
    text.line("__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);");
    text.line("__type(key, __u32);");
    text.line("__type(value, struct sp_state);");
    text.line("__uint(max_entries, 1);");
    text.line("} sp_state_map SEC(\".maps\");");
    text.line("");
}
