//! The deparser in C: in place where the packet's layout stays, else one move of the head and only
//! what changed or moved is written.

use crate::generator::Generator;
use crate::layout::{HeaderPlace, Place};
use crate::mutations::{Mutation, planted};
use crate::packet::{Bits, Run, runs, store_run};
use p4_ir::{Expr, ExprKind, Location, Type};

/// A header that the deparser may put into the packet.
pub(crate) struct Emitted {
    header: HeaderPlace,
    /// C variable: was it emitted?
    flag: String,
    location: Location,
}

/// With more headers than this, `sp_blur` hides from the verifier which are valid. The verifier
/// would follow each combination otherwise.
const FEW_HEADERS: usize = 4;

impl Generator<'_> {
    /// The whole deparser. Expects `data`, `data_end`, `cursor` (bytes parsed).
    pub(crate) fn deparser(&mut self) {
        let program = self.program;
        if self.facts.same_layout {
            self.block(&program.deparser.body);
            return;
        }
        self.declare_local("__u32", "sp_new_bytes", "0");
        // What was emitted is written also if the program leaves early.
        let (end, leaves) = ("deparser_emitted", self.facts.leaves_deparser);
        if leaves {
            self.exit_label = end.into();
            self.return_label = end.into();
        }
        self.block(&program.deparser.body);
        let emitted = std::mem::take(&mut self.emitted);
        self.out.nowhere();
        if leaves {
            self.out.line(format!("{end}: ;"));
        }
        let blur = self.forgets || emitted.len() > FEW_HEADERS;
        let zero = if blur { self.hidden_zero() } else { String::new() };
        if blur {
            self.out.line(format!("cursor = sp_blur(cursor, {zero});"));
        }
        for item in &emitted {
            let Emitted { header, flag, .. } = item;
            let size = self.size_text(header);
            if blur {
                self.out.line(format!("{flag} = sp_blur_bit({flag}, {zero});"));
                self.out.line(format!("sp_new_bytes += {flag} * {size};"));
            } else {
                self.out.line(format!("if ({flag}) sp_new_bytes += {size};"));
            }
            if self.forgets {
                // clang would gather all flags before it adds them.
                self.out.line("asm volatile(\"\" : \"+r\"(sp_new_bytes) : : \"memory\");");
            }
        }
        self.out.line("__s32 sp_grow = (__s32)(sp_new_bytes - cursor);");
        self.open("if (sp_grow != 0)");
        self.out.line(if planted(Mutation::ShortPacketLost) {
            "if (bpf_xdp_adjust_head(xdp, -sp_grow)) goto verdict_drop;"
        } else {
            "if (sp_move_head(xdp, sp_grow, sp_bytes, sp_padding)) goto verdict_drop;"
        });
        self.out.line("data = (void *)(long)xdp->data + sp_padding;");
        self.out.line("data_end = (void *)(long)xdp->data_end;");
        self.out.line("sp_bytes += sp_grow;");
        self.out.line("}");
        self.out.line(if blur {
            format!("__u32 sp_at = sp_blur(0, {zero});")
        } else {
            "__u32 sp_at = 0;".into()
        });
        for item in &emitted {
            self.write_moved(item, &zero);
            if self.forgets {
                self.read_anew();
            }
        }
    }

    /// `emit(x)`
    pub(crate) fn emit(&mut self, header: &Expr, location: Location) {
        match self.place(header) {
            Some(Place::Header(place)) => self.emit_header(place, location),
            Some(Place::Union(members)) => {
                for member in members {
                    if let Place::Header(place) = member {
                        self.emit_header(place, location);
                    }
                }
            }
            Some(Place::Stack(stack)) => {
                for index in 0..stack.size {
                    self.emit_header(stack.element(&index.to_string(), None), location);
                }
            }
            _ if matches!(header.ty, Type::Header(_))
                && matches!(header.kind, ExprKind::HeaderValue(_)) =>
            {
                self.error(
                    location,
                    "emit of a header expression: assign it to a variable first",
                    None,
                );
            }
            _ => {
                self.internal(location, "emit of a value that is not a header");
            }
        }
    }

    fn emit_header(&mut self, place: HeaderPlace, location: Location) {
        let (bits, _) = crate::layout::header_bits(self.program, place.ty);
        if bits % 8 != 0 {
            let name = &self.program.header_types[place.ty.index()].name;
            let message = format!("header {name} has {bits} bits: only whole bytes can be emitted");
            self.error(location, &message, Some("add a padding field"));
            return;
        }
        if self.facts.same_layout {
            self.write_in_place(&place);
            return;
        }
        let name = format!("sp_emit{}", self.emitted.len());
        let flag = match self.forgets {
            true => self.layout.declare("__u8".into(), &name, String::new(), true, "0"),
            false => self.declare_local("__u8", &name, "0"),
        };
        self.out.line(format!("{flag} = {};", place.valid()));
        self.emitted.push(Emitted { header: place, flag, location });
    }

    /// A valid header's bytes, as C.
    fn size_text(&self, place: &HeaderPlace) -> String {
        let (fixed, varbit) = self.header_bytes(place.ty);
        match self.varbit_member(place) {
            Some(c) if varbit > 0 => format!("({fixed} + ({c}.bits >> 3))"),
            _ => fixed.to_string(),
        }
    }

    fn varbit_member(&self, place: &HeaderPlace) -> Option<String> {
        let fields = &self.program.header_types[place.ty.index()].fields;
        let field = fields.iter().find(|field| matches!(field.ty, Type::Varbit { .. }))?;
        Some(format!("{}.{}", place.c, crate::layout::member_name(&field.name)))
    }

    /// The header's fixed part as runs of whole bytes; those without a dirty field are left out if
    /// `dirty`.
    fn header_runs(&mut self, place: &HeaderPlace, dirty: bool) -> Vec<Run> {
        let mut values = Vec::new();
        let mut changed = Vec::new();
        for index in 0..self.program.header_types[place.ty.index()].fields.len() {
            if let Some(Place::Scalar(scalar)) = self.header_field(place, index as u32) {
                changed.push(self.facts.is_dirty(&place.key, index as u32));
                values.push(Bits { value: scalar.c, width: scalar.width });
            }
        }
        let found = runs(&values).into_iter();
        found.filter(|run| !dirty || run.members.clone().any(|index| changed[index])).collect()
    }

    fn varbit_dirty(&self, place: &HeaderPlace) -> bool {
        let fields = &self.program.header_types[place.ty.index()].fields;
        fields
            .iter()
            .position(|field| matches!(field.ty, Type::Varbit { .. }))
            .is_some_and(|index| self.facts.is_dirty(&place.key, index as u32))
    }

    /// Same layout: what the header had in the packet stays, but for dirty fields.
    fn write_in_place(&mut self, place: &HeaderPlace) {
        let dirty = self.header_runs(place, true);
        if dirty.is_empty() {
            return;
        }
        let last = dirty.last().map_or(0, |run| run.offset + run.bytes);
        self.open(&format!("if ({})", place.valid()));
        let at = match self.facts.offsets.get(&place.key) {
            Some(offset) => offset.to_string(),
            None => format!("({} & SP_OFFSET_MASK)", place.offset),
        };
        self.out.line(format!("__u8 *sp_h = data + {at};"));
        self.out.line(format!("if ((void *)(sp_h + {last}) > data_end) goto verdict_drop;"));
        for run in &dirty {
            for line in store_run("sp_h", run, false) {
                self.out.line(line);
            }
        }
        self.out.line("}");
    }

    /// General layout: at `sp_at`, whole unless it already stands there.
    fn write_moved(&mut self, item: &Emitted, zero: &str) {
        let place = &item.header;
        let (fixed, varbit) = self.header_bytes(place.ty);
        let dirty = self.header_runs(place, true);
        let whole = self.header_runs(place, false);
        self.out.at(item.location);
        self.open(&format!("if ({})", item.flag));
        self.out.line("__u8 *sp_h = data + (sp_at & SP_OFFSET_MASK);");
        self.out.line(format!("if ((void *)(sp_h + {fixed}) > data_end) goto verdict_drop;"));
        let varbit_dirty = self.varbit_dirty(place);
        self.open(&format!(
            "if ({} + sp_grow == sp_at{})",
            place.offset,
            if varbit_dirty { " && 0" } else { "" }
        ));
        for run in &dirty {
            for line in store_run("sp_h", run, false) {
                self.out.line(line);
            }
        }
        self.out.line("} else {");
        for run in &whole {
            for line in store_run("sp_h", run, false) {
                self.out.line(line);
            }
        }
        if let Some(c) = self.varbit_member(place).filter(|_| varbit > 0) {
            self.open(&format!("for (__u32 sp_i = 0; sp_i < {varbit}; sp_i++)"));
            self.out
                .line(format!("if (sp_i >= ({c}.bits >> 3) || (void *)(sp_h + {fixed} + sp_i + 1) > data_end) break;"));
            self.out.line(format!("sp_put8(sp_h + {fixed} + sp_i, {c}.byte[sp_i]);"));
            self.out.line("}");
        }
        self.out.line("}");
        let size = self.size_text(place);
        self.out.line(if zero.is_empty() {
            format!("sp_at += {size};")
        } else {
            format!("sp_at = sp_blur(sp_at + {size}, {zero});")
        });
        self.out.line("}");
    }
}
