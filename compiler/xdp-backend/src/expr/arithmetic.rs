//! Operators of two operands in C, and slices of what is wider than a word.

use super::*;

impl Generator<'_> {
    pub(super) fn binary(
        &mut self,
        expr: &Expr,
        op: BinaryOp,
        left: &Expr,
        right: &Expr,
    ) -> String {
        use BinaryOp::{
            Add, And, BitAnd, BitOr, BitXor, Concat, Div, Eq, Ge, Gt, Le, Lt, Mod, Mul, Ne, Or,
            SaturatingAdd, SaturatingSub, ShiftLeft, ShiftRight, Sub,
        };
        if matches!(op, ShiftLeft | ShiftRight) {
            return self.shift(op, left, right);
        }
        let width = self.width(left);
        if width > 128 && matches!(op, Eq | Ne) {
            return self.wide_equal(op, left, right, width);
        }
        let width = self.narrow(left);
        let right_width = self.narrow(right);
        let (a, b) = (self.expr(left), self.expr(right));
        let wide = compute_type(width);
        let minus = is_signed(&left.ty);
        let compare = |symbol: &str| {
            if minus {
                format!("({} {symbol} {})", signed(&a, width), signed(&b, width))
            } else {
                format!("({a} {symbol} {b})")
            }
        };
        match op {
            Add if width > 64 => truncate(&format!("({wide}){a} + sp_opaque128({b})"), width),
            Sub if width > 64 => truncate(&format!("({wide}){a} - sp_opaque128({b})"), width),
            Add => truncate(&format!("({wide}){a} + {b}"), width),
            Sub => truncate(&format!("({wide}){a} - {b}"), width),
            Mul if width > 64 => truncate(&format!("sp_mul128({a}, {b})"), width),
            Mul => truncate(&format!("({wide}){a} * {b}"), width),
            Div | Mod => self.divide(op, &a, right, width, minus),
            SaturatingAdd | SaturatingSub => self.saturate(expr, op, &a, &b, width, minus),
            BitAnd => format!("({a} & {b})"),
            BitOr if width > 64 => format!("({a} | sp_opaque128({b}))"),
            BitXor if width > 64 => format!("({a} ^ sp_opaque128({b}))"),
            BitOr => format!("({a} | {b})"),
            BitXor => format!("({a} ^ {b})"),
            Eq => format!("({a} == {b})"),
            Ne => format!("({a} != {b})"),
            Lt => compare("<"),
            Le => compare("<="),
            Gt => compare(">"),
            Ge => compare(">="),
            And => format!("({a} && {b})"),
            Or => format!("({a} || {b})"),
            Concat => {
                let total = width + right_width;
                if total > 128 {
                    return self.too_wide(expr.location, total);
                }
                let b = if total > 64 { format!("sp_opaque128({b})") } else { b };
                let high = shift_left(&format!("({}){a}", compute_type(total)), right_width, total);
                format!("({})({high} | {b})", c_type(total))
            }
            ShiftLeft | ShiftRight => self.internal(expr.location, "shift"),
        }
    }

    pub(super) fn divide(
        &mut self,
        op: BinaryOp,
        a: &str,
        right: &Expr,
        width: u32,
        minus: bool,
    ) -> String {
        let ExprKind::Const(divisor) = &right.kind else {
            if width > 64 || minus {
                self.error(
                    right.location,
                    "division by a value not known at compile time works on bit<W> up to 64 bits",
                    None,
                );
            }
            let b = self.expr(right);
            let symbol = if op == BinaryOp::Div { '/' } else { '%' };
            return format!("({}){a} {symbol} {b}", c_type(width));
        };
        if minus || divisor.is_zero() || divisor.is_negative() {
            self.error(
                right.location,
                "division needs bit<W> operands and a positive divisor",
                None,
            );
            return "0".into();
        }
        let power = divisor.bits() - 1;
        if (BigInt::one() << power) == *divisor {
            return if op == BinaryOp::Div {
                truncate(
                    &shift_right(&format!("({}){a}", compute_type(width)), power as u32, width),
                    width,
                )
            } else {
                format!("({a} & {})", literal(&(divisor - 1), width))
            };
        }
        if width > 64 {
            self.error(
                right.location,
                "division of more than 64 bits works by powers of two only",
                None,
            );
            return "0".into();
        }
        let symbol = if op == BinaryOp::Div { '/' } else { '%' };
        format!(
            "(({})(({}){a} {symbol} {}))",
            c_type(width),
            compute_type(width),
            literal(divisor, width)
        )
    }

    pub(super) fn saturate(
        &mut self,
        expr: &Expr,
        op: BinaryOp,
        a: &str,
        b: &str,
        width: u32,
        minus: bool,
    ) -> String {
        let add = op == BinaryOp::SaturatingAdd;
        if minus {
            if width > 64 {
                self.error(
                    expr.location,
                    "saturating arithmetic on int<W> works up to 64 bits",
                    None,
                );
                return "0".into();
            }
            let symbol = if add { '+' } else { '-' };
            let (a, b) = (signed(a, width), signed(b, width));
            return truncate(&format!("sp_sat_signed((sp_s128){a} {symbol} {b}, {width})"), width);
        }
        if add {
            let bits = if width <= 64 { 64 } else { 128 };
            return format!("({})sp_sat_add{bits}({a}, {b}, {})", c_type(width), mask_text(width));
        }
        if width > 64 {
            return format!("({})({a} > {b} ? {a} - sp_opaque128({b}) : 0)", c_type(width));
        }
        format!("({})sp_sat_sub({a}, {b})", c_type(width))
    }

    pub(super) fn shift(&mut self, op: BinaryOp, left: &Expr, right: &Expr) -> String {
        let width = self.narrow(left);
        let a = self.expr(left);
        let minus = is_signed(&left.ty);
        let apply = |amount: &str| match (op, minus) {
            (BinaryOp::ShiftLeft, _) if width > 64 => {
                truncate(&format!("sp_shl128({a}, {amount})"), width)
            }
            (_, false) if width > 64 => format!("sp_shr128({a}, {amount})"),
            (_, true) if width > 64 => {
                truncate(&format!("sp_sar128({}, {amount})", signed(&a, width)), width)
            }
            (BinaryOp::ShiftLeft, _) => {
                truncate(&format!("({}){a} << {amount}", compute_type(width)), width)
            }
            (_, false) => format!("({})(({}){a} >> {amount})", c_type(width), compute_type(width)),
            (_, true) => truncate(&format!("{} >> {amount}", signed(&a, width)), width),
        };
        let beyond = || {
            if minus && op == BinaryOp::ShiftRight {
                apply(&(width - 1).to_string())
            } else {
                literal(&BigInt::zero(), width)
            }
        };
        if let ExprKind::Const(amount) = &right.kind {
            return match amount.to_u32().filter(|amount| *amount < width) {
                Some(amount) => apply(&amount.to_string()),
                None => beyond(),
            };
        }
        self.narrow(right);
        let b = self.expr(right);
        let amount = self.temporary("__u32", &format!("({b} < {width} ? {b} : {width})"));
        format!("({amount} < {width} ? {} : {})", apply(&amount), beyond())
    }

    pub(super) fn wide_equal(
        &mut self,
        op: BinaryOp,
        left: &Expr,
        right: &Expr,
        width: u32,
    ) -> String {
        let (a, b) = (self.expr(left), self.expr(right));
        let words = width.div_ceil(8);
        let same: Vec<String> =
            (0..words).map(|i| format!("{a}.byte[{i}] == {b}.byte[{i}]")).collect();
        format!("{}({})", if op == BinaryOp::Ne { "!" } else { "" }, same.join(" && "))
    }

    /// A slice of a value wider than 128 bits. Such a value is kept as big-endian bytes; the unused
    /// bits of the first byte are zero.
    pub(super) fn wide_slice(
        &mut self,
        location: Location,
        value: &str,
        base: u32,
        high: u32,
        low: u32,
    ) -> String {
        let width = high - low + 1;
        if width > 128 {
            return self.too_wide(location, width);
        }
        let bytes = base.div_ceil(8);
        let mut parts = Vec::new();
        // Byte i (from the end) holds bits 8i..8i+7.
        for index in low / 8..=high / 8 {
            let byte = format!("({}){value}.byte[{}]", compute_type(width), bytes - 1 - index);
            let at = i64::from(index * 8) - i64::from(low);
            parts.push(match at {
                0 => byte,
                1.. => shift_left(&byte, at as u32, width),
                _ => shift_right(&byte, at.unsigned_abs() as u32, width),
            });
        }
        truncate(&parts.join(" | "), width)
    }
}
