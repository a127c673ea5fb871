//! Operators and their precedence (spec, grammar: `%left ...`), lowest first.

use super::Parser;
use crate::ast::BinaryOp;
use crate::lexer::Tok;

/// Binding strength; more binds tighter.
pub(super) fn precedence(op: BinaryOp) -> u8 {
    use BinaryOp::*;
    match op {
        Or => 1,
        And => 2,
        Eq | Ne => 3,
        Lt | Le | Gt | Ge => 4,
        BitOr => 5,
        BitXor => 6,
        BitAnd => 7,
        Shl | Shr => 8,
        Concat | Add | Sub | SatAdd | SatSub => 9,
        Mul | Div | Mod => 10,
    }
}

impl Parser<'_> {
    /// Whether the token after the current one follows it without a gap.
    fn joined(&self) -> bool {
        self.span_of(self.pos).end == self.span_of(self.pos + 1).start
    }

    /// The infix operator at the current token and how many tokens it takes.
    pub(super) fn binary_op(&self) -> Option<(BinaryOp, usize)> {
        use BinaryOp::*;
        let op = match self.peek() {
            Tok::Gt if self.joined() && self.nth(1) == Tok::Gt => return Some((Shr, 2)),
            // `>>=` assigns.
            Tok::Gt if self.joined() && self.nth(1) == Tok::Ge => return None,
            // `[low +: width]`
            Tok::Plus if self.nth(1) == Tok::Colon => return None,
            Tok::Star => Mul,
            Tok::Slash => Div,
            Tok::Percent => Mod,
            Tok::Plus => Add,
            Tok::Minus => Sub,
            Tok::SatPlus => SatAdd,
            Tok::SatMinus => SatSub,
            Tok::PlusPlus => Concat,
            Tok::Shl => Shl,
            Tok::Lt => Lt,
            Tok::Le => Le,
            Tok::Gt => Gt,
            Tok::Ge => Ge,
            Tok::EqEq => Eq,
            Tok::NotEq => Ne,
            Tok::Amp => BitAnd,
            Tok::Caret => BitXor,
            Tok::Pipe => BitOr,
            Tok::AndAnd => And,
            Tok::OrOr => Or,
            _ => return None,
        };
        Some((op, 1))
    }

    /// `=` or a compound assignment at the current token: its operator and how many tokens it
    /// takes.
    pub(super) fn assign_op(&self) -> Option<(Option<BinaryOp>, usize)> {
        use BinaryOp::*;
        let op = match self.peek() {
            Tok::Assign => return Some((None, 1)),
            Tok::Gt if self.joined() && self.nth(1) == Tok::Ge => return Some((Some(Shr), 2)),
            Tok::PlusAssign => Add,
            Tok::MinusAssign => Sub,
            Tok::StarAssign => Mul,
            Tok::SlashAssign => Div,
            Tok::PercentAssign => Mod,
            Tok::SatPlusAssign => SatAdd,
            Tok::SatMinusAssign => SatSub,
            Tok::ShlAssign => Shl,
            Tok::AmpAssign => BitAnd,
            Tok::PipeAssign => BitOr,
            Tok::CaretAssign => BitXor,
            _ => return None,
        };
        Some((Some(op), 1))
    }
}
