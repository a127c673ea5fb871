//! The parser in C: states are labels, the cursor is a byte offset, every access is checked against
//! the packet's end.

use crate::expr::{is_signed, literal, signed, truncate};
use crate::generator::Generator;
use crate::layout::{HeaderPlace, Place, Scalar, c_type, scalar_width};
use crate::mutations::{Mutation, planted};
use crate::packet::{load_bits, wide_bytes};
use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_ir::MAX_PARSER_ROUNDS;
use p4_ir::{
    Expr, ExprKind, HeaderTypeId, Location, Match, StructTypeId, Target, Transition, Type,
};

/// With more ways through the parser, times tables behind it, the verifier is kept from following
/// the pipeline once for each. It costs a few nanoseconds for each header, so not where the
/// verifier can do without.
const FEW_PATHS: u64 = 400;

impl Generator<'_> {
    /// All states, from `start`.
    pub(crate) fn parser(&mut self) {
        let program = self.program;
        if self.facts.on_cycles.contains(&true) {
            self.declare_local("__u32", "sp_rounds", "0");
        }
        self.block(&program.parser.prologue);
        for (index, state) in program.parser.states.iter().enumerate() {
            self.out.at(state.location);
            self.out.line(format!("{}: ;", state_label(&state.name)));
            self.open("");
            if self.facts.on_cycles[index] {
                self.begin_round(state.continues);
            } else if self.forgets {
                self.forget_way();
            }
            self.block(&state.body);
            self.out.at(state.location);
            match &state.transition {
                Transition::To(target) => self.go(*target),
                Transition::Select { keys, cases } => self.select(keys, cases),
            }
            self.out.line("}");
        }
        self.out.nowhere();
        self.out.line("parser_end: ;");
        if self.many_paths() {
            self.forget_validity();
        }
    }

    /// Begins a state on a cycle: counts it, and makes the verifier forget what differs from the
    /// round before. One counter serves all loops, as the verifier would follow each combination of
    /// several. Variables are in the scratch map, whose content the verifier never knows
    /// (`first_placement`); clang must read them from there again.
    fn begin_round(&mut self, continues: bool) {
        if !continues {
            self.open(&format!("if (++sp_rounds > {MAX_PARSER_ROUNDS})"));
            let timeout = self.error_constant("ParserTimeout");
            self.parser_error(&timeout);
            self.out.line("}");
        }
        self.forget_way();
    }

    /// The verifier forgets by which way it came here.
    fn forget_way(&mut self) {
        let zero = self.hidden_zero();
        self.out.line(format!("cursor = sp_blur(cursor, {zero});"));
        self.read_anew();
    }

    /// clang reads from memory again what it has in registers. Where the verifier forgets all,
    /// clang computes addresses again, too, which it would keep on the stack.
    pub(crate) fn read_anew(&mut self) {
        let outputs = if self.forgets { "\"+r\"(state), \"+r\"(data) " } else { "" };
        self.out.line(format!("asm volatile(\"\" : {outputs}: : \"memory\");"));
    }

    /// Would the verifier drown in combinations of valid headers?
    fn many_paths(&self) -> bool {
        self.forgets
            || self.facts.parser_paths.saturating_mul(1 + self.program.tables.len() as u64)
                > FEW_PATHS
    }

    /// From here on the verifier holds any header for valid or not, so that the parser's paths are
    /// one.
    fn forget_validity(&mut self) {
        fn headers(place: &Place, found: &mut Vec<String>) {
            match place {
                Place::Header(header) => found.push(header.c.clone()),
                Place::Struct(_, places) | Place::Union(places) => {
                    places.iter().for_each(|place| headers(place, found));
                }
                Place::Stack(stack) => {
                    found.extend(
                        (0..stack.size).map(|index| stack.element(&index.to_string(), None).c),
                    );
                }
                _ => {}
            }
        }
        let mut found = Vec::new();
        if let Some(place) = self.layout.variables.get(&self.program.headers) {
            headers(place, &mut found);
        }
        let zero = self.hidden_zero();
        for header in found {
            self.out.line(format!("{header}.sp_valid = sp_blur_bit({header}.sp_valid, {zero});"));
        }
        self.out.line(format!("cursor = sp_blur(cursor, {zero});"));
    }

    fn go(&mut self, target: Target) {
        let text = match target {
            // What goes wrong sets parser_error; a plain `transition reject` has NoError, as in
            // bmv2.
            Target::Accept | Target::Reject => {
                let no_error = self.error_constant("NoError");
                self.overwrite("parser_error", &no_error);
                "goto parser_end;".to_string()
            }
            Target::State(index) => match self.program.parser.states.get(index as usize) {
                Some(state) => format!("goto {};", state_label(&state.name)),
                None => "goto parser_end;".into(),
            },
        };
        self.out.line(text);
    }

    fn select(&mut self, keys: &[Expr], cases: &[(Vec<Match>, Target, Location)]) {
        let mut values = Vec::new();
        for key in keys {
            let width = self.width(key);
            let text = self.expr(key);
            values.push((self.temporary(&c_type(width), &text), width));
        }
        let mut default = false;
        for (matches, target, location) in cases {
            self.out.at(*location);
            let mut tests = Vec::new();
            for (((value, width), key), matched) in values.iter().zip(keys).zip(matches) {
                tests.extend(self.match_test(
                    value,
                    *width,
                    is_signed(&key.ty),
                    matched,
                    *location,
                ));
            }
            if tests.is_empty() {
                self.go(*target);
                default = true;
                break;
            }
            self.open(&format!("if ({})", tests.join(" && ")));
            self.go(*target);
            self.out.line("}");
            self.forget_keys(&values);
        }
        if !default {
            let no_match = self.error_constant("NoMatch");
            self.parser_error(&no_match);
        }
    }

    /// Behind a test that failed: the verifier would follow what each test says of the keys.
    pub(crate) fn forget_keys(&mut self, keys: &[(String, u32)]) {
        if !self.forgets || keys.len() < 2 {
            return;
        }
        let zero = self.hidden_zero();
        for (key, width) in keys {
            let text = match width {
                0..=64 => truncate(&format!("sp_forget({key}, {zero})"), *width),
                _ => format!(
                    "SP_U128(sp_forget(sp_high64({key}), {zero}), sp_forget((__u64){key}, {zero}))"
                ),
            };
            self.out.line(format!("{key} = {text};"));
        }
    }

    /// The C condition of one match; None if it is always true.
    pub(crate) fn match_test(
        &mut self,
        value: &str,
        width: u32,
        minus: bool,
        matched: &Match,
        location: Location,
    ) -> Option<String> {
        if width > 128 {
            self.error(
                location,
                "keys wider than 128 bits are not supported by the XDP target",
                None,
            );
            return None;
        }
        let text = |number: &BigInt| literal(number, width);
        match matched {
            Match::Any => None,
            Match::Value(number) => Some(format!("{value} == {}", text(number))),
            Match::Mask { value: number, mask } => {
                let all = (BigInt::from(1) << width) - 1;
                if mask == &BigInt::from(0) {
                    None
                } else if mask == &all || planted(Mutation::IgnoredMasks) {
                    Some(format!("{value} == {}", text(number)))
                } else {
                    let both = number & mask;
                    Some(format!("({value} & {}) == {}", text(mask), text(&both)))
                }
            }
            Match::Range { low, high } if minus => {
                let (value, low, high) =
                    (signed(value, width), signed(&text(low), width), signed(&text(high), width));
                Some(format!("{value} >= {low} && {value} <= {high}"))
            }
            Match::Range { low, high } => {
                Some(format!("{value} >= {} && {value} <= {}", text(low), text(high)))
            }
            Match::ValueSet(_) => {
                self.error(
                    location,
                    "parser value sets are not supported by the XDP target yet",
                    None,
                );
                None
            }
        }
    }

    /// An error's number, as C.
    pub(crate) fn error_constant(&self, name: &str) -> String {
        let index = self.program.errors.iter().position(|error| error == name).unwrap_or(0);
        format!("{index}U /* error.{name} */")
    }

    /// Sets parser_error and ends parsing.
    pub(crate) fn parser_error(&mut self, error: &str) {
        if let Some(scalar) = self.standard("parser_error") {
            self.out.line(format!("{} = {error};", scalar.c));
        }
        self.out.line("goto parser_end;");
    }

    /// Goes on only if the condition holds.
    pub(crate) fn parser_check(&mut self, condition: &str, error: &str) {
        self.open(&format!("if (!({condition}))"));
        let error = self.error_constant(error);
        self.parser_error(&error);
        self.out.line("}");
    }

    /// A pointer into the packet with at least `bytes` behind it.
    fn packet_pointer(&mut self, at: &str, bytes: &str) -> String {
        self.temporaries += 1;
        let name = format!("sp_p{}", self.temporaries);
        self.out.line(format!("__u8 *{name} = data + {at};"));
        self.parser_check(&format!("(void *)({name} + {bytes}) <= data_end"), "PacketTooShort");
        name
    }

    /// The cursor as an offset that the verifier accepts.
    fn cursor() -> &'static str {
        "(cursor & SP_OFFSET_MASK)"
    }

    /// `extract(header)`
    pub(crate) fn extract(
        &mut self,
        header: &Expr,
        varbit_bits: Option<&Expr>,
        location: Location,
    ) {
        let next =
            if let ExprKind::StackNext(stack) = &header.kind { self.place(stack) } else { None };
        let Some(Place::Header(place)) = self.place(header) else {
            self.internal(location, "extract into a value that is not a header");
            return;
        };
        let (fixed_bits, varbit) = crate::layout::header_bits(self.program, place.ty);
        if fixed_bits % 8 != 0 {
            let name = &self.program.header_types[place.ty.index()].name;
            let message =
                format!("header {name} has {fixed_bits} bits: only whole bytes can be extracted");
            self.error(location, &message, Some("add a padding field"));
            return;
        }
        let bytes = fixed_bits / 8;
        let guard = place.guard.clone();
        // An element beyond the stack: the packet's bytes are taken all the same, and lost.
        if let Some(guard) = &guard {
            self.open(&format!("if (!({guard}))"));
            self.extract_nothing(bytes, varbit, varbit_bits);
            self.out.line("}");
        }
        self.guarded(guard, |g| {
            g.open("");
            let offset = g.facts.offsets.get(&place.key).filter(|_| !g.forgets);
            // The verifier notes how much of the packet is there for known offsets.
            let at = offset.map_or_else(|| Self::cursor().to_string(), u32::to_string);
            let moves = offset.is_none();
            let size = varbit_bits.map(|bits| g.varbit_size(bits));
            let pointer = g.packet_pointer(&at, &bytes.to_string());
            match (varbit, &size) {
                (Some(max), Some(size)) => g.extract_varbit(&place, &pointer, bytes, max, size),
                (Some(_), None) => {
                    g.error(
                        location,
                        "a header with a varbit field needs extract(header, size_in_bits)",
                        None,
                    );
                }
                _ => {}
            }
            g.load_header(&place, &pointer, 0, bytes);
            g.set_valid(&place, true);
            if !place.offset.is_empty() {
                g.out.line(format!("{} = cursor;", place.offset));
            }
            g.out.line(format!("cursor += {bytes};"));
            if let (Some(_), Some(_)) = (varbit, varbit_bits) {
                g.out.line("cursor += sp_varbit_bytes;");
            }
            if moves {
                g.forget_cursor();
            }
            if let Some(Place::Stack(stack)) = next {
                g.out.line(format!("{} += 1;", stack.next));
            }
            g.out.line("}");
        });
    }

    /// Loads the fixed fields from `pointer`, starting at `bit`; `limit` bytes may be read.
    fn load_header(&mut self, place: &HeaderPlace, pointer: &str, mut bit: u32, limit: u32) {
        let kept = self.facts.kept_fields(self.program, &place.key, place.ty);
        for (index, kept) in kept.into_iter().enumerate() {
            if let Some(Place::Scalar(scalar)) = self.header_field(place, index as u32) {
                if kept {
                    self.load_scalar(&scalar, pointer, bit, limit);
                }
                bit += scalar.width;
            }
        }
    }

    fn load_scalar(&mut self, scalar: &Scalar, pointer: &str, mut bit: u32, limit: u32) {
        if scalar.width <= 128 {
            let value = load_bits(pointer, bit, scalar.width, limit);
            self.out.line(format!("{} = {value};", scalar.c));
            return;
        }
        for (index, width) in wide_bytes(scalar.width) {
            let value = load_bits(pointer, bit, width, limit);
            self.out.line(format!("{}.byte[{index}] = {value};", scalar.c));
            bit += width;
        }
    }

    /// A varbit's size in bits, evaluated before the packet is looked at (P4-16 §13.8.2).
    fn varbit_size(&mut self, bits: &Expr) -> String {
        let value = self.expr(bits);
        let size = self.temporary("__u32", &value);
        self.parser_check(&format!("({size} & 7) == 0"), "ParserInvalidArgument");
        size
    }

    /// Ends the parser if a varbit's size is beyond its type. The packet has the `bytes` before it,
    /// at `pointer`; if it has not that size, it is that which is wrong (P4-16 §13.8.2).
    fn check_varbit_size(&mut self, pointer: &str, size: &str, bytes: u32, max: u32) {
        self.open(&format!("if ({size} > {max})"));
        // What an offset cannot say is more than any packet has.
        let end = format!("{pointer} + {bytes} + (({size} >> 3) & SP_OFFSET_MASK)");
        let has = format!("({size} >> 3) <= SP_OFFSET_MASK && (void *)({end}) <= data_end");
        self.parser_check(&has, "PacketTooShort");
        let error = self.error_constant("HeaderTooShort");
        self.parser_error(&error);
        self.out.line("}");
    }

    fn extract_varbit(
        &mut self,
        place: &HeaderPlace,
        pointer: &str,
        bytes: u32,
        max: u32,
        size: &str,
    ) {
        let Some(index) = self.program.header_types[place.ty.index()]
            .fields
            .iter()
            .position(|field| matches!(field.ty, Type::Varbit { .. }))
        else {
            return;
        };
        self.check_varbit_size(pointer, size, bytes, max);
        self.out.line(format!("__u32 sp_varbit_bytes = {size} >> 3;"));
        self.parser_check(
            &format!("(void *)({pointer} + {bytes} + sp_varbit_bytes) <= data_end"),
            "PacketTooShort",
        );
        if !self.facts.kept_fields(self.program, &place.key, place.ty)[index] {
            return;
        }
        let Some(Place::Varbit(field)) = self.header_field(place, index as u32) else { return };
        self.out.line(format!("{}.bits = {size};", field.c));
        let copied = !self.facts.same_layout
            || self.facts.is_dirty(&place.key, index as u32)
            || self.facts.reads_varbit(&place.key, index as u32);
        if copied {
            // What clang knows of the size makes the loop's own bound superfluous to it; the
            // verifier may not know it.
            self.out.line("__u32 sp_copied = sp_varbit_bytes;");
            self.out.line("asm volatile(\"\" : \"+r\"(sp_copied));");
            self.open(&format!("for (__u32 sp_i = 0; sp_i < {}; sp_i++)", max.div_ceil(8)));
            self.out
                .line(format!("if (sp_i >= sp_copied || (void *)({pointer} + {bytes} + sp_i + 1) > data_end) break;"));
            self.out.line(format!("{}.byte[sp_i] = sp_get8({pointer} + {bytes} + sp_i);", field.c));
            self.out.line("}");
        }
    }

    /// What `extract` does to the packet, without a header to put it into.
    fn extract_nothing(&mut self, bytes: u32, varbit: Option<u32>, bits: Option<&Expr>) {
        let (Some(max), Some(bits)) = (varbit, bits) else { return self.skip(&bytes.to_string()) };
        let size = self.varbit_size(bits);
        let pointer = self.packet_pointer(Self::cursor(), &bytes.to_string());
        self.check_varbit_size(&pointer, &size, bytes, max);
        self.skip(&format!("({bytes} + ({size} >> 3))"));
    }

    /// Moves the cursor by so many bytes (C).
    pub(crate) fn skip(&mut self, bytes: &str) {
        self.open("");
        self.packet_pointer(Self::cursor(), bytes);
        self.out.line(format!("cursor += {bytes};"));
        self.forget_cursor();
        self.out.line("}");
    }

    /// Behind a loop each number of rounds would be a path of its own for the verifier.
    fn forget_cursor(&mut self) {
        if !self.facts.loop_heads.is_empty() || self.many_paths() {
            let zero = self.hidden_zero();
            self.out.line(format!("cursor = sp_blur(cursor, {zero});"));
        }
    }

    /// `advance(bits)`
    pub(crate) fn advance(&mut self, bits: &Expr) {
        if let ExprKind::Const(value) = &bits.kind {
            let bits_wanted = value.to_u32().unwrap_or(u32::MAX);
            if bits_wanted % 8 != 0 {
                let error = self.error_constant("ParserInvalidArgument");
                return self.parser_error(&error);
            }
            self.skip(&(bits_wanted / 8).to_string());
            return;
        }
        let value = self.expr(bits);
        self.open("");
        let size = self.temporary("__u32", &value);
        self.parser_check(&format!("({size} & 7) == 0"), "ParserInvalidArgument");
        self.parser_check(&format!("({size} >> 3) <= SP_OFFSET_MASK"), "PacketTooShort");
        self.skip(&format!("({size} >> 3)"));
        self.out.line("}");
    }

    /// `lookahead<bit<W>>()`
    pub(crate) fn lookahead_scalar(&mut self, expr: &Expr) -> String {
        let width = self.width(expr);
        if width > 128 {
            self.error(
                expr.location,
                "lookahead of more than 128 bits at once",
                Some("look ahead a struct of fields"),
            );
            return "0".into();
        }
        let bytes = width.div_ceil(8);
        let pointer = self.packet_pointer(Self::cursor(), &bytes.to_string());
        let value = load_bits(&pointer, 0, width, bytes);
        self.temporary(&c_type(width), &value)
    }

    /// A field of `lookahead<T>()`.
    pub(crate) fn lookahead_field(&mut self, base: &Expr, index: u32) -> String {
        let fields = match base.ty {
            Type::Header(id) => &self.program.header_types[id.index()].fields,
            Type::Struct(id) => &self.program.struct_types[id.index()].fields,
            _ => return self.internal(base.location, "field of a scalar look-ahead"),
        };
        let widths: Vec<u32> =
            fields.iter().map(|field| scalar_width(&field.ty).unwrap_or(0)).collect();
        let bit: u32 = widths.iter().take(index as usize).sum();
        let total: u32 = widths.iter().sum();
        let Some(width) =
            widths.get(index as usize).copied().filter(|width| (1..=128).contains(width))
        else {
            return self.internal(base.location, "look-ahead field without a scalar type");
        };
        let bytes = total.div_ceil(8);
        let pointer = self.packet_pointer(Self::cursor(), &bytes.to_string());
        let value = load_bits(&pointer, bit, width, bytes);
        self.temporary(&c_type(width), &value)
    }

    /// `h = lookahead<H>()`
    pub(crate) fn lookahead_header(&mut self, place: &HeaderPlace, location: Location) {
        let (bits, varbit) = crate::layout::header_bits(self.program, place.ty);
        if varbit.is_some() {
            self.error(location, "lookahead of a header with a varbit field", None);
        }
        let bytes = bits.div_ceil(8);
        self.open("");
        let pointer = self.packet_pointer(Self::cursor(), &bytes.to_string());
        self.guarded(place.guard.clone(), |g| {
            g.load_header(place, &pointer, 0, bytes);
            g.set_valid(place, true);
        });
        self.out.line("}");
    }

    /// `s = lookahead<S>()`
    pub(crate) fn lookahead_struct(
        &mut self,
        id: StructTypeId,
        places: &[Place],
        location: Location,
    ) {
        let bits = self.struct_bits(id);
        let bytes = bits.div_ceil(8);
        self.open("");
        let pointer = self.packet_pointer(Self::cursor(), &bytes.to_string());
        let mut bit = 0;
        self.load_places(places, &pointer, &mut bit, bytes, location);
        self.out.line("}");
    }

    fn load_places(
        &mut self,
        places: &[Place],
        pointer: &str,
        bit: &mut u32,
        limit: u32,
        location: Location,
    ) {
        for place in places {
            match place {
                Place::Scalar(scalar) => {
                    self.load_scalar(scalar, pointer, *bit, limit);
                    *bit += scalar.width;
                }
                Place::Struct(_, inner) => self.load_places(inner, pointer, bit, limit, location),
                Place::Header(header) => {
                    self.load_header(header, pointer, *bit, limit);
                    self.set_valid(header, true);
                    *bit += self.header_width(header.ty);
                }
                _ => {
                    self.internal(location, "look-ahead of this type");
                }
            }
        }
    }

    fn header_width(&self, id: HeaderTypeId) -> u32 {
        crate::layout::header_bits(self.program, id).0
    }

    fn struct_bits(&self, id: StructTypeId) -> u32 {
        let fields = &self.program.struct_types[id.index()].fields;
        fields
            .iter()
            .map(|field| match &field.ty {
                Type::Struct(inner) => self.struct_bits(*inner),
                Type::Header(inner) => self.header_width(*inner),
                other => scalar_width(other).unwrap_or(0),
            })
            .sum()
    }
}

fn state_label(name: &str) -> String {
    format!("state_{name}")
}
