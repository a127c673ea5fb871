//! Expressions in C. Every emitted expression is unsigned and below 2^width; signed operations
//! extend the sign where they need it.

mod arithmetic;

use crate::generator::Generator;
use crate::layout::{HeaderPlace, Place, Scalar, c_type, header_bits, member_name, scalar_width};
use num_bigint::BigInt;
use num_traits::{One, Signed, ToPrimitive, Zero};
use p4_ir::{BinaryOp, Expr, ExprKind, Location, Type, UnaryOp};

/// 2^width - 1 as C.
pub(crate) fn mask_text(width: u32) -> String {
    literal(&((BigInt::one() << width) - 1), width)
}

/// A constant of `width` bits as C; negative ones in two's complement.
pub(crate) fn literal(value: &BigInt, width: u32) -> String {
    let value = if value.is_negative() { value + (BigInt::one() << width) } else { value.clone() };
    let small = value < BigInt::from(10);
    let hex = |value: u64| if small { value.to_string() } else { format!("0x{value:x}") };
    match width {
        0..=32 => format!("{}U", hex(value.to_u64().unwrap_or(0) & 0xffff_ffff)),
        33..=64 => format!("{}ULL", hex(value.to_u64().unwrap_or(0))),
        _ => {
            let low = (&value & BigInt::from(u64::MAX)).to_u64().unwrap_or(0);
            let high = ((&value >> 64u32) & BigInt::from(u64::MAX)).to_u64().unwrap_or(0);
            format!("SP_U128(0x{high:x}ULL, 0x{low:x}ULL)")
        }
    }
}

/// The type that C computes in: at least 32 bits, so that nothing is promoted to int.
fn compute_type(width: u32) -> &'static str {
    match width {
        0..=32 => "__u32",
        33..=64 => "__u64",
        _ => "sp_u128",
    }
}

/// The value as a signed C integer.
pub(crate) fn signed(value: &str, width: u32) -> String {
    match width {
        0..=32 => format!("sp_signed32({value}, {width})"),
        33..=64 => format!("sp_signed64({value}, {width})"),
        _ => format!("sp_signed128({value}, {width})"),
    }
}

/// Cuts a C expression down to `width` bits and gives it its C type.
pub(crate) fn truncate(value: &str, width: u32) -> String {
    match width {
        8 | 16 | 32 | 64 | 128 => format!("({})({value})", c_type(width)),
        _ => format!("({})(({value}) & {})", c_type(width), mask_text(width)),
    }
}

/// A value of `width` bits shifted by a constant; above 64 bits never by C's own shift
/// (stateplane_xdp.h, `sp_shl128`).
pub(crate) fn shift_left(value: &str, by: u32, width: u32) -> String {
    match (by, width) {
        (0, _) => value.into(),
        (_, 0..=64) => format!("({value} << {by})"),
        _ => format!("sp_shl128({value}, {by})"),
    }
}

/// As [`shift_left`], to the right, without a sign.
pub(crate) fn shift_right(value: &str, by: u32, width: u32) -> String {
    match (by, width) {
        (0, _) => value.into(),
        (_, 0..=64) => format!("({value} >> {by})"),
        _ => format!("sp_shr128({value}, {by})"),
    }
}

/// Is there a branch to the value? Several such values in one expression would multiply the ways
/// that the verifier follows. A bool has but two.
fn is_chosen(expr: &Expr) -> bool {
    let constant = |expr: &Expr| matches!(expr.kind, ExprKind::Const(_));
    expr.ty != Type::Bool
        && match &expr.kind {
            ExprKind::Ternary(..) => true,
            ExprKind::Cast(operand) => operand.ty == Type::Bool,
            ExprKind::Field(base, _) => is_chosen(base),
            ExprKind::Index(_, index) => !constant(index),
            ExprKind::Binary(op, _, right) => match op {
                BinaryOp::SaturatingAdd | BinaryOp::SaturatingSub => true,
                BinaryOp::ShiftLeft | BinaryOp::ShiftRight => !constant(right),
                _ => false,
            },
            _ => false,
        }
}

pub(crate) fn is_signed(ty: &Type) -> bool {
    matches!(ty, Type::Bits { signed: true, .. })
}

impl Generator<'_> {
    /// Width of a scalar expression.
    pub fn width(&mut self, expr: &Expr) -> u32 {
        match scalar_width(&expr.ty) {
            Some(width) => width,
            None => {
                self.error(expr.location, "a scalar value is needed here", None);
                32
            }
        }
    }

    /// The C of a scalar expression. May emit lines first (look-ahead, checks of a stack's bounds).
    pub fn expr(&mut self, expr: &Expr) -> String {
        let text = self.remembered(expr);
        if !self.forgets || !is_chosen(expr) {
            return text;
        }
        match scalar_width(&expr.ty) {
            Some(width @ 1..=64) => {
                let zero = self.hidden_zero();
                truncate(&format!("sp_forget({text}, {zero})"), width)
            }
            _ => text,
        }
    }

    /// The same. The verifier may know what it comes to.
    fn remembered(&mut self, expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::Const(value) => {
                let width = self.width(expr);
                if width > 128 { self.wide_literal(value, width) } else { literal(value, width) }
            }
            ExprKind::Var(_)
            | ExprKind::Index(..)
            | ExprKind::StackNext(_)
            | ExprKind::StackLast(_) => self.read_place(expr),
            ExprKind::Field(base, index) => match &base.kind {
                ExprKind::StructValue(fields) | ExprKind::HeaderValue(fields) => {
                    match fields.get(*index as usize) {
                        Some(field) => self.expr(field),
                        None => self.internal(expr.location, "field out of range"),
                    }
                }
                ExprKind::Lookahead => self.lookahead_field(base, *index),
                ExprKind::Ternary(condition, then, otherwise) => {
                    let pick = |side: &Expr| Expr {
                        kind: ExprKind::Field(Box::new(side.clone()), *index),
                        ty: expr.ty.clone(),
                        location: expr.location,
                    };
                    let (condition, then, otherwise) =
                        (self.expr(condition), self.expr(&pick(then)), self.expr(&pick(otherwise)));
                    format!("({condition} ? {then} : {otherwise})")
                }
                _ => self.read_place(expr),
            },
            ExprKind::StackLastIndex(stack) => match self.place(stack) {
                Some(Place::Stack(stack)) => format!("({} - 1)", stack.next),
                _ => self.internal(expr.location, "lastIndex of a value that is not a stack"),
            },
            ExprKind::IsValid(header) => match self.place(header) {
                Some(Place::Header(header)) => header.valid(),
                Some(Place::Union(members)) => {
                    let parts: Vec<String> = members
                        .iter()
                        .filter_map(|member| {
                            if let Place::Header(h) = member { Some(h.valid()) } else { None }
                        })
                        .collect();
                    format!("({})", parts.join(" | "))
                }
                _ => self.internal(expr.location, "isValid of a value that is not a header"),
            },
            ExprKind::Slice { base, high, low } => {
                let width = high - low + 1;
                let base_width = self.width(base);
                let value = self.expr(base);
                if base_width > 128 {
                    return self.wide_slice(expr.location, &value, base_width, *high, *low);
                }
                truncate(&shift_right(&value, *low, base_width), width)
            }
            ExprKind::Unary(op, operand) => {
                let width = self.narrow(operand);
                let value = self.expr(operand);
                match op {
                    UnaryOp::Negate if width > 64 => {
                        truncate(&format!("0 - sp_opaque128({value})"), width)
                    }
                    UnaryOp::Negate => {
                        truncate(&format!("0 - ({}){value}", compute_type(width)), width)
                    }
                    UnaryOp::Complement => {
                        truncate(&format!("~({}){value}", compute_type(width)), width)
                    }
                    UnaryOp::Not => format!("!({value})"),
                }
            }
            ExprKind::Binary(op, left, right) => self.binary(expr, *op, left, right),
            ExprKind::Cast(operand) => self.cast(expr, operand),
            ExprKind::Ternary(condition, then, otherwise) => {
                let (condition, then, otherwise) =
                    (self.expr(condition), self.expr(then), self.expr(otherwise));
                format!("({condition} ? {then} : {otherwise})")
            }
            ExprKind::Lookahead => self.lookahead_scalar(expr),
            ExprKind::Str(_)
            | ExprKind::StructValue(_)
            | ExprKind::HeaderValue(_)
            | ExprKind::InvalidHeader => self.internal(expr.location, "a scalar was expected"),
        }
    }

    /// A constant of more than 128 bits: bytes, the highest first. Set one by one: what clang 14
    /// copies from constant memory lets it forget stores before it (it replaces the load by its
    /// value, and the load's place in the order of accesses by the same).
    fn wide_literal(&mut self, value: &BigInt, width: u32) -> String {
        let value =
            if value.is_negative() { value + (BigInt::one() << width) } else { value.clone() };
        let bytes = width.div_ceil(8);
        self.temporaries += 1;
        let name = format!("sp_t{}", self.temporaries);
        let stores: Vec<String> = (0..bytes)
            .map(|i| {
                let byte: BigInt = (&value >> (8 * (bytes - 1 - i))) & BigInt::from(255);
                format!("{name}.byte[{i}] = 0x{byte:x};")
            })
            .collect();
        self.out.line(format!("struct sp_wide{bytes} {name};"));
        self.out.line(stores.join(" "));
        name
    }

    /// Width of an operand of arithmetic: at most 128.
    fn narrow(&mut self, operand: &Expr) -> u32 {
        let width = self.width(operand);
        if width > 128 {
            self.too_wide(operand.location, width);
            return 128;
        }
        width
    }

    fn too_wide(&mut self, location: Location, width: u32) -> String {
        self.error(
            location,
            &format!("arithmetic on {width} bits: the XDP target computes with at most 128"),
            Some("values wider than 128 bits can be extracted, copied, compared, sliced and emitted; split the field"),
        );
        "0".into()
    }

    fn cast(&mut self, expr: &Expr, operand: &Expr) -> String {
        let to = self.width(expr);
        let from = self.width(operand);
        let value = self.expr(operand);
        if to > 128 || from > 128 {
            if to == from {
                return value;
            }
            if from > 128 && to <= 128 {
                return self.wide_slice(expr.location, &value, from, to - 1, 0);
            }
            return self.too_wide(expr.location, to.max(from));
        }
        if to == from {
            return value;
        }
        if to > from {
            if is_signed(&operand.ty) {
                return truncate(&format!("({}){}", compute_type(to), signed(&value, from)), to);
            }
            return format!("({}){value}", c_type(to));
        }
        truncate(&value, to)
    }

    fn read_place(&mut self, expr: &Expr) -> String {
        match self.place(expr) {
            Some(Place::Scalar(scalar) | Place::Varbit(scalar)) => scalar.read(),
            Some(_) => self.internal(expr.location, "a scalar was expected"),
            None => "0".into(),
        }
    }

    /// The storage that an l-value names. None after an error.
    pub(crate) fn place(&mut self, expr: &Expr) -> Option<Place> {
        match &expr.kind {
            ExprKind::Var(id) => self.layout.variables.get(id).cloned(),
            ExprKind::Field(base, index) => match self.place(base)? {
                Place::Struct(_, fields) | Place::Union(fields) => {
                    fields.get(*index as usize).cloned()
                }
                Place::Header(header) => self.header_field(&header, *index),
                _ => {
                    self.internal(expr.location, "field of a scalar");
                    None
                }
            },
            ExprKind::Index(base, index) => {
                let Some(Place::Stack(stack)) = self.place(base) else {
                    self.internal(expr.location, "index into a value that is not a stack");
                    return None;
                };
                if let ExprKind::Const(value) = &index.kind {
                    // In the source that is an error; what was inlined may come to it, and then it
                    // is undefined as at run time.
                    let inside = value.to_u32().filter(|value| *value < stack.size);
                    let guard = inside.is_none().then(|| "0".to_string());
                    return Some(Place::Header(
                        stack.element(&inside.unwrap_or(0).to_string(), guard),
                    ));
                }
                let width = self.narrow(index);
                let value = self.expr(index);
                let whole = if width > 64 {
                    let value = self.temporary(&c_type(width), &value);
                    format!("(sp_high64({value}) ? ~0ULL : (__u64){value})")
                } else {
                    value
                };
                // Hidden before the check, so that what is checked is what the address is made of,
                // also to the verifier.
                let at = self.temporary("__u64", &format!("sp_index({whole})"));
                let guard = format!("{at} < {}", stack.size);
                Some(Place::Header(stack.element(&at, Some(guard))))
            }
            ExprKind::StackNext(base) | ExprKind::StackLast(base) => {
                let Some(Place::Stack(stack)) = self.place(base) else {
                    self.internal(expr.location, "next of a value that is not a stack");
                    return None;
                };
                let last = matches!(expr.kind, ExprKind::StackLast(_));
                let back = if last { " - 1" } else { "" };
                // Hidden before the check, as an index is.
                let at = self.temporary("__u64", &format!("sp_index({}{back})", stack.next));
                self.parser_check(&format!("{at} < {}", stack.size), "StackOutOfBounds");
                Some(Place::Header(stack.element(&at, None)))
            }
            _ => {
                self.internal(expr.location, "not an l-value");
                None
            }
        }
    }

    /// The storage of a header's field.
    pub(crate) fn header_field(&mut self, header: &HeaderPlace, index: u32) -> Option<Place> {
        let field = self.program.header_types[header.ty.index()].fields.get(index as usize)?;
        let c = format!("{}.{}", header.c, member_name(&field.name));
        let guard = header.guard.clone();
        Some(match &field.ty {
            Type::Varbit { max_width } => Place::Varbit(Scalar { c, width: *max_width, guard }),
            other => Place::Scalar(Scalar { c, width: scalar_width(other).unwrap_or(32), guard }),
        })
    }

    /// A header's size in bytes: fixed part, and varbit's greatest.
    pub(crate) fn header_bytes(&self, ty: p4_ir::HeaderTypeId) -> (u32, u32) {
        let (fixed, varbit) = header_bits(self.program, ty);
        (fixed / 8, varbit.unwrap_or(0).div_ceil(8))
    }
}

impl Scalar {
    /// As a value.
    pub(crate) fn read(&self) -> String {
        match &self.guard {
            Some(guard) if self.width > 128 => {
                format!("({guard} ? {} : (struct sp_wide{}){{}})", self.c, self.width.div_ceil(8))
            }
            Some(guard) => format!("({guard} ? {} : 0)", self.c),
            None => self.c.clone(),
        }
    }

    /// A varbit field's bits and their number, as a value.
    pub(crate) fn read_varbit(&self) -> String {
        match &self.guard {
            Some(guard) => {
                format!("({guard} ? {} : (struct sp_varbit{}){{}})", self.c, self.width.div_ceil(8))
            }
            None => self.c.clone(),
        }
    }
}

impl HeaderPlace {
    /// Its validity, as a value.
    pub(crate) fn valid(&self) -> String {
        match &self.guard {
            Some(guard) => format!("({guard} ? {}.sp_valid : 0)", self.c),
            None => format!("{}.sp_valid", self.c),
        }
    }
}

impl crate::layout::StackPlace {
    /// One element; `index` is C.
    pub(crate) fn element(&self, index: &str, guard: Option<String>) -> HeaderPlace {
        let known = index.bytes().all(|c| c.is_ascii_digit());
        let index = if known { index.to_string() } else { format!("sp_index({index})") };
        let c = format!("{}[{index}]", self.c);
        HeaderPlace {
            c: if known { c } else { format!("(*sp_element(&{c}))") },
            offset: format!("{}[{index}]", self.offsets),
            ty: self.ty,
            guard,
            key: self.key.clone(),
            rivals: Vec::new(),
        }
    }
}
