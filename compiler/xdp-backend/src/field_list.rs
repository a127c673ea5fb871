//! Field lists: the data of hashes and checksums.
//!
//! A list becomes a string of bits, as in bmv2 (calculations.cpp, BufBuilder). A field of an
//! invalid header adds no bits; a varbit field adds as many as it has; the fields behind them move
//! up. If all positions are known at compile time, they are constants in the C.

use crate::generator::Generator;
use crate::layout::Place;
use crate::mutations::{Mutation, planted};
use crate::packet::{Bits, Run, runs, store_run, wide_bytes};
use p4_ir::{Expr, ExprKind, Location, Type};

/// More bytes than this in one hash are an error: they lie on the stack.
const MAX_HASH_BYTES: u32 = 128;

/// A scalar of a field list.
pub(crate) struct ListField {
    pub bits: Bits,
    /// C: the header that the field belongs to is valid.
    pub valid: Option<String>,
    pub varbit: bool,
}

/// Whether a list has an odd number of bytes.
pub(crate) enum Odd {
    Known(bool),
    /// C: 1 if the number is odd, else 0.
    Text(String),
}

/// The bits of each run of neighbours that belong to one header, and so come or stay away together.
fn header_runs(list: &[ListField]) -> impl Iterator<Item = u32> {
    list.chunk_by(|a, b| a.valid == b.valid)
        .filter(|fields| fields[0].valid.is_some())
        .map(|fields| fields.iter().map(|field| field.bits.width).sum())
}

impl Generator<'_> {
    /// The scalars of a field list, in order; those of more than 128 bits byte by byte.
    pub(crate) fn fields_of(&mut self, data: &Expr) -> Vec<ListField> {
        let mut list = Vec::new();
        self.field_list(data, &mut list);
        list.into_iter().flat_map(narrow).collect()
    }

    fn field_list(&mut self, data: &Expr, list: &mut Vec<ListField>) {
        match (&data.kind, &data.ty) {
            (ExprKind::StructValue(fields), _) => {
                fields.iter().for_each(|field| self.field_list(field, list))
            }
            (
                _,
                Type::Struct(_)
                | Type::Header(_)
                | Type::Stack { .. }
                | Type::Union(_)
                | Type::Varbit { .. },
            ) => {
                if let Some(place) = self.place(data) {
                    let valid = self.owner_valid(data);
                    self.place_list(&place, valid, list, data.location);
                }
            }
            (_, Type::String) => {}
            _ => {
                let width = self.width(data);
                let value = self.expr(data);
                let valid = self.owner_valid(data);
                list.push(ListField { bits: Bits { value, width }, valid, varbit: false });
            }
        }
    }

    fn owner_valid(&mut self, data: &Expr) -> Option<String> {
        let ExprKind::Field(base, _) = &data.kind else { return None };
        if planted(Mutation::InvalidFieldsCounted) {
            return None;
        }
        if !matches!(base.ty, Type::Header(_))
            || matches!(base.kind, ExprKind::Lookahead | ExprKind::HeaderValue(_))
        {
            return None;
        }
        match self.place(base) {
            Some(Place::Header(header)) => Some(header.valid()),
            _ => None,
        }
    }

    fn place_list(
        &mut self,
        place: &Place,
        valid: Option<String>,
        list: &mut Vec<ListField>,
        location: Location,
    ) {
        match place {
            Place::Scalar(scalar) => {
                list.push(ListField {
                    bits: Bits { value: scalar.read(), width: scalar.width },
                    valid,
                    varbit: false,
                });
            }
            Place::Varbit(scalar) => {
                list.push(ListField {
                    bits: Bits { value: scalar.c.clone(), width: scalar.width },
                    valid,
                    varbit: true,
                });
            }
            Place::Struct(_, fields) => {
                fields.iter().for_each(|field| self.place_list(field, None, list, location))
            }
            Place::Header(header) => {
                for index in 0..self.program.header_types[header.ty.index()].fields.len() {
                    if let Some(field) = self.header_field(header, index as u32) {
                        self.place_list(&field, Some(header.valid()), list, location);
                    }
                }
            }
            Place::Stack(_) | Place::Union(_) => {
                self.error(
                    location,
                    "a header stack or union in a field list",
                    Some("list its fields"),
                );
            }
        }
    }

    /// C of the sum of a field list's 16-bit words, and whether its bytes are odd. 2^16 is 1 modulo
    /// 2^16 - 1, so whole fields can be added, shifted to their place in a word.
    pub(crate) fn checksum_sum(&mut self, list: &[ListField]) -> (String, Odd) {
        if list.is_empty() {
            return ("0ULL".into(), Odd::Known(false));
        }
        // A header's fields can be counted as zeros instead of left out, if they fill whole words.
        let varies = list.iter().any(|field| field.varbit);
        let known = !varies && header_runs(list).all(|bits| bits % 16 == 0);
        if known { self.sum_at_known_places(list) } else { self.sum_at_moving_places(list) }
    }

    fn sum_at_known_places(&mut self, list: &[ListField]) -> (String, Odd) {
        let mut bit = 0;
        // A running variable, so that long lists stay readable.
        let sum = self.temporary("__u64", "0");
        for field in list {
            bit += field.bits.width;
            let shift = (16 - bit % 16) % 16;
            let part = sum_part(&field.bits);
            let placed = if shift == 0 { part } else { format!("({part} << {shift})") };
            match &field.valid {
                Some(valid) => self.out.line(format!("{sum} += ({valid} ? {placed} : 0);")),
                None => self.out.line(format!("{sum} += {placed};")),
            }
        }
        (sum, Odd::Known(bit.div_ceil(8) % 2 == 1))
    }

    fn sum_at_moving_places(&mut self, list: &[ListField]) -> (String, Odd) {
        let sum = self.temporary("__u64", "0");
        let at = self.temporary("__u32", "0");
        for field in list {
            if let Some(valid) = &field.valid {
                self.open(&format!("if ({valid})"));
            }
            let (value, width) = (&field.bits.value, field.bits.width);
            let part =
                if field.varbit { self.varbit_sum(value, width) } else { sum_part(&field.bits) };
            match field.varbit {
                true if !planted(Mutation::WidestVarbit) => {
                    self.out.line(format!("{at} += {value}.bits;"))
                }
                _ => self.out.line(format!("{at} += {width};")),
            }
            self.out.line(format!("{sum} += {part} << (-{at} & 15);"));
            if field.valid.is_some() {
                self.out.line("}");
            }
        }
        (sum, Odd::Text(format!("(({at} + 7) >> 3 & 1)")))
    }

    /// C of a varbit's sum as if its last byte were the low half of a word.
    fn varbit_sum(&mut self, value: &str, width: u32) -> String {
        let sum = self.temporary("__u64", "0");
        let bytes = self.temporary("__u32", &format!("{value}.bits >> 3"));
        self.open(&format!("for (__u32 sp_i = 0; sp_i < {}; sp_i++)", width.div_ceil(8)));
        self.out.line(format!("if (sp_i >= {bytes}) break;"));
        self.out
            .line(format!("{sum} += (__u64){value}.byte[sp_i] << (({bytes} - sp_i & 1) ? 0 : 8);"));
        self.out.line("}");
        sum
    }

    /// C of a hash over a field list, and the hash's width.
    pub(crate) fn hash_value(
        &mut self,
        data: &Expr,
        algorithm: &str,
        location: Location,
    ) -> (String, u32) {
        let list = self.fields_of(data);
        let (function, width) = match algorithm {
            "csum16" => {
                let (sum, _) = self.checksum_sum(&list);
                return (format!("sp_csum_fold({sum})"), 16);
            }
            "crc32" | "crc32_custom" => ("sp_crc32", 32),
            "crc16" | "crc16_custom" => ("sp_crc16", 16),
            "xor16" => ("sp_xor16", 16),
            "identity" => ("sp_identity", 64),
            "random" => return (self.temporary("__u64", "sp_random64()"), 64),
            other => {
                self.error(
                    location,
                    &format!("hash algorithm {other} is not supported by the XDP target"),
                    None,
                );
                return ("0".into(), 32);
            }
        };
        let bits: u32 = list.iter().map(|field| field.bits.width).sum();
        let bytes = bits.div_ceil(8);
        if bytes > MAX_HASH_BYTES {
            let message = format!(
                "hash data of {bytes} bytes: the XDP target hashes at most {MAX_HASH_BYTES}"
            );
            self.error(location, &message, None);
            return ("0".into(), width);
        }
        self.temporaries += 1;
        let buffer = format!("sp_bytes{}", self.temporaries);
        // One byte more than the list has: sp_append writes to two at once.
        let size = (bytes + 1).next_multiple_of(8);
        self.out.line(format!("__u8 {buffer}[{size}] __attribute__((aligned(8))) = {{}};"));
        let hash = self.temporary("__u64", "0");
        self.hash_list(&list, (&buffer, size), &format!("{hash} = {function}"), bytes);
        (hash, width)
    }

    /// Writes a list to a buffer of zeros, then `call(buffer, length, most)`.
    fn hash_list(&mut self, list: &[ListField], buffer: (&str, u32), call: &str, bytes: u32) {
        let mut headers: Vec<&str> =
            list.iter().filter_map(|field| field.valid.as_deref()).collect();
        headers.dedup();
        let Some(runs) = runs_at_known_places(list) else {
            self.open("");
            self.hash_at_moving_places(list, buffer, call, bytes);
            return self.out.line("}");
        };
        if !headers.is_empty() {
            self.open(&format!("if ({})", headers.join(" && ")));
        }
        for line in runs.iter().flat_map(|run| store_run(buffer.0, run, true)) {
            self.out.line(line);
        }
        self.out.line(format!("{call}({}, {bytes}, {bytes});", buffer.0));
        if !headers.is_empty() {
            self.out.line("}");
            self.open("else");
            self.hash_at_moving_places(list, buffer, call, bytes);
            self.out.line("}");
        }
    }

    fn hash_at_moving_places(
        &mut self,
        list: &[ListField],
        buffer: (&str, u32),
        call: &str,
        bytes: u32,
    ) {
        let (name, size) = buffer;
        let at = self.temporary("__u32", "0");
        for field in list {
            if let Some(valid) = &field.valid {
                self.open(&format!("if ({valid})"));
            }
            self.append(field, name, size, &at);
            if field.valid.is_some() {
                self.out.line("}");
            }
        }
        let length = self.temporary("__u32", &format!("({at} + 7) >> 3"));
        self.out.line(format!("{call}({name}, {length}, {bytes});"));
    }

    /// Writes a field to the buffer, behind the bits that are there.
    fn append(&mut self, field: &ListField, buffer: &str, size: u32, at: &str) {
        let (value, width) = (&field.bits.value, field.bits.width);
        if field.varbit {
            self.open(&format!("for (__u32 sp_i = 0; sp_i < {}; sp_i++)", width.div_ceil(8)));
            self.out.line(format!("if (sp_i >= ({value}.bits >> 3)) break;"));
            self.out
                .line(format!("{at} = sp_append({buffer}, {size}, {at}, {value}.byte[sp_i], 8);"));
            self.out.line("}");
            return;
        }
        if width > 64 {
            let high = format!("sp_high64({value})");
            self.out
                .line(format!("{at} = sp_append({buffer}, {size}, {at}, {high}, {});", width - 64));
        }
        self.out.line(format!(
            "{at} = sp_append({buffer}, {size}, {at}, (__u64)({value}), {});",
            width.min(64)
        ));
    }
}

/// A field as values that are integers in C.
fn narrow(field: ListField) -> Vec<ListField> {
    if field.varbit || field.bits.width <= 128 {
        return vec![field];
    }
    let ListField { bits, valid, varbit } = field;
    let part = |(at, width)| {
        let value = format!("{}.byte[{at}]", bits.value);
        ListField { bits: Bits { value, width }, valid: valid.clone(), varbit }
    };
    wide_bytes(bits.width).map(part).collect()
}

/// The list as runs of whole bytes, if all headers are valid. None: a varbit field moves what
/// follows.
fn runs_at_known_places(list: &[ListField]) -> Option<Vec<Run>> {
    if list.iter().any(|field| field.varbit) {
        return None;
    }
    let values: Vec<Bits> = list.iter().map(|field| field.bits.clone()).collect();
    Some(runs(&values))
}

/// C of a scalar's sum as if its last bit were the last of a word.
fn sum_part(bits: &Bits) -> String {
    let value = &bits.value;
    match bits.width {
        0..=32 => format!("(__u64){value}"),
        33..=64 => format!("sp_csum_part64({value})"),
        _ => format!("sp_csum_part128({value})"),
    }
}
