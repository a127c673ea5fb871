//! Tables.

use super::{Parser, Res};
use crate::ast::{
    ActionRef, Annotations, KeyElement, TableDecl, TableEntry, TableProperty, TablePropertyValue,
};
use crate::lexer::Tok;
use crate::span::Span;

impl Parser<'_> {
    pub(super) fn table(&mut self, annotations: Annotations, start: Span) -> Res<TableDecl> {
        self.bump();
        let name = self.name("the table's name")?;
        self.declare_value(&name);
        let open = self.expect(Tok::LBrace)?;
        let (properties, close) =
            self.list(open, Self::ends_table, Self::starts_property, Self::table_property);
        Ok(TableDecl { annotations, name, properties, span: start.to(close) })
    }

    fn starts_property(&self) -> bool {
        self.at(Tok::Const) || (self.peek().is_name() && self.nth(1) == Tok::Assign)
    }

    /// Inside a property's braces: whether another property begins, so that the `}` is missing.
    fn at_next_property(&self) -> bool {
        let n = usize::from(self.at(Tok::Const));
        self.nth(n).is_name() && self.nth(n) != Tok::Priority && self.nth(n + 1) == Tok::Assign
    }

    fn table_property(&mut self) -> Res<TableProperty> {
        let start = self.span();
        let annotations = self.annotations()?;
        let is_const = self.eat(Tok::Const);
        let kind = self.peek();
        let name = self.name("a table property")?;
        self.expect(Tok::Assign)?;
        let value = match kind {
            Tok::Key => TablePropertyValue::Key(self.elements(Self::key_element)?),
            Tok::Actions => TablePropertyValue::Actions(self.elements(Self::action_list_item)?),
            Tok::Entries => TablePropertyValue::Entries(self.elements(Self::entry)?),
            _ => {
                let value = self.expression()?;
                self.expect_semi("the property")?;
                TablePropertyValue::Expr(value)
            }
        };
        let span = start.to(self.prev_span());
        Ok(TableProperty { annotations, is_const, name, value, span })
    }

    fn elements<T>(&mut self, item: impl FnMut(&mut Self) -> Res<T>) -> Res<Vec<T>> {
        let open = self.expect(Tok::LBrace)?;
        Ok(self.list(open, |p| p.ends_table() || p.at_next_property(), |_| false, item).0)
    }

    fn key_element(&mut self) -> Res<KeyElement> {
        let expr = self.expression()?;
        self.expect(Tok::Colon)?;
        let match_kind = self.name("a match kind, like `exact`")?;
        let annotations = self.annotations()?;
        self.expect_semi("the key element")?;
        let span = expr.span.to(self.prev_span());
        Ok(KeyElement { expr, match_kind, annotations, span })
    }

    fn action_list_item(&mut self) -> Res<ActionRef> {
        let start = self.span();
        let annotations = self.annotations()?;
        let action = self.action_ref(annotations, start)?;
        self.expect_semi("the action")?;
        Ok(action)
    }

    fn action_ref(&mut self, annotations: Annotations, start: Span) -> Res<ActionRef> {
        let path = self.path("an action's name")?;
        let args = if self.at(Tok::LParen) { Some(self.arguments()?) } else { None };
        Ok(ActionRef { annotations, path, args, span: start.to(self.prev_span()) })
    }

    fn entry(&mut self) -> Res<TableEntry> {
        let start = self.span();
        let is_const = self.eat(Tok::Const);
        let mut priority = None;
        if self.at(Tok::Priority) && self.nth(1) == Tok::Assign {
            self.bump();
            self.bump();
            let value = self.expression()?;
            priority = Some(value);
            self.expect(Tok::Colon)?;
        }
        let keyset = self.keyset()?;
        self.expect(Tok::Colon)?;
        let at = self.span();
        let action = self.action_ref(Vec::new(), at)?;
        let annotations = self.annotations()?;
        self.expect_semi("the entry")?;
        Ok(TableEntry {
            is_const,
            priority,
            keyset,
            action,
            annotations,
            span: start.to(self.prev_span()),
        })
    }
}
