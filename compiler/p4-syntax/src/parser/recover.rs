//! Going on after an error, and lists in braces, which is where the parser does.

use super::{Failed, Parser, Res};
use crate::diagnostic::Diagnostic;
use crate::lexer::Tok;
use crate::span::Span;

impl Parser<'_> {
    /// Skips what is left of an item that began at token `start` and failed: to behind its `;`, to
    /// behind the `}` that closes it, or to a token that begins another item. `depth`: open braces
    /// around the item.
    pub(super) fn recover(&mut self, depth: i32, start: usize, starts_item: fn(&Self) -> bool) {
        let mut first = true;
        loop {
            match self.peek() {
                Tok::Eof => return,
                Tok::Semi if self.braces <= depth => {
                    self.bump();
                    return;
                }
                Tok::RBrace if self.braces <= depth => {
                    // The end of the list that holds the item; at the top level it closes nothing.
                    if depth == 0 {
                        self.bump();
                    }
                    return;
                }
                Tok::RBrace => {
                    self.bump();
                    if self.braces <= depth && !self.continues_item() {
                        self.eat(Tok::Semi);
                        return;
                    }
                }
                _ if self.braces <= depth && (!first || self.pos > start) && starts_item(self) => {
                    return;
                }
                _ => {
                    self.bump();
                }
            }
            first = false;
        }
    }

    /// Whether the token after a `}` shows that the item goes on.
    fn continues_item(&self) -> bool {
        !matches!(self.peek(), Tok::Semi | Tok::RBrace | Tok::At | Tok::LBrace | Tok::Eof)
            && !self.peek().is_keyword()
            && !self.peek().is_name()
    }

    /// Items up to the `}` that closes `open`, the span of the `{` just consumed. `ends_early`
    /// recognises what can stand in an outer list only: then the `}` is missing. Returns the items
    /// and where they end.
    pub(super) fn list<T>(
        &mut self,
        open: Span,
        ends_early: fn(&Self) -> bool,
        starts_item: fn(&Self) -> bool,
        mut item: impl FnMut(&mut Self) -> Res<T>,
    ) -> (Vec<T>, Span) {
        let depth = self.braces;
        let mut items = Vec::new();
        loop {
            if self.at(Tok::RBrace) {
                return (items, self.bump());
            }
            if self.at(Tok::Eof) || ends_early(self) {
                let message = format!("expected `}}`, found {}", self.found());
                let d =
                    Diagnostic::error(self.span(), message).note_at(open, "this `{` is not closed");
                self.report(d);
                self.braces = depth - 1;
                return (items, self.prev_span().at_end());
            }
            let start = self.pos;
            match item(self) {
                Ok(i) => items.push(i),
                Err(Failed) => {
                    self.recover(depth, start, starts_item);
                    if self.pos == start && !self.at(Tok::RBrace) {
                        self.bump();
                    }
                }
            }
            // An item that ended early has lost count.
            self.braces = self.braces.max(depth);
        }
    }

    /// `item, item, ...` up to `close`, which is not consumed; a trailing comma is allowed if
    /// `trailing`.
    pub(super) fn comma_list<T>(
        &mut self,
        close: Tok,
        trailing: bool,
        mut item: impl FnMut(&mut Self) -> Res<T>,
    ) -> Res<Vec<T>> {
        let mut items = Vec::new();
        while !self.at(close) {
            items.push(item(self)?);
            if !self.at(Tok::Comma) {
                break;
            }
            self.bump();
            if self.at(close) && !trailing {
                return Err(self.unexpected("another item after the comma"));
            }
        }
        if !self.at(close) {
            let expected = format!("`,` or {}", close.describe());
            return Err(self.unexpected(&expected));
        }
        Ok(items)
    }

    /// A keyword that begins a declaration at the top level and nothing inside braces.
    pub(super) fn starts_top_level(&self) -> bool {
        use Tok::*;
        matches!(
            self.peek(),
            Header | HeaderUnion | Struct | Enum | Typedef | Parser | Control | Package | Extern
        ) || (matches!(self.peek(), MatchKind | Error) && self.nth(1) == LBrace)
    }

    pub(super) fn starts_declaration(&self) -> bool {
        self.starts_top_level() || matches!(self.peek(), Tok::Const | Tok::Action | Tok::At)
    }

    /// What can stand neither in a block nor in a state: it ends one whose `}` is missing.
    pub(super) fn ends_block(&self) -> bool {
        self.starts_top_level()
            || matches!(self.peek(), Tok::Action | Tok::Table)
            || self.at_state()
            || (self.at(Tok::Apply) && self.nth(1) == Tok::LBrace)
    }

    pub(super) fn at_state(&self) -> bool {
        self.at(Tok::State) && self.nth(1).is_name() && self.nth(2) == Tok::LBrace
    }

    pub(super) fn starts_statement(&self) -> bool {
        use Tok::*;
        self.ends_block()
            || matches!(
                self.peek(),
                If | Switch | For | Return | Exit | Break | Continue | Const | Transition
            )
    }

    /// Where a table ends if its `}` is missing.
    pub(super) fn ends_table(&self) -> bool {
        self.starts_top_level()
            || matches!(self.peek(), Tok::Action | Tok::Table)
            || self.at_apply_block()
    }

    pub(super) fn at_apply_block(&self) -> bool {
        self.at(Tok::Apply) && self.nth(1) == Tok::LBrace
    }
}
