//! Parsers and their states.

use super::{Parser, Res};
use crate::ast::{
    Annotations, ApplyTypeDecl, Declaration, Ident, ParserDecl, ParserState, SelectCase, Statement,
    Transition, TransitionKind, ValueSetDecl,
};
use crate::diagnostic::Diagnostic;
use crate::lexer::Tok;
use crate::span::Span;

enum Item {
    Local(Declaration),
    State(ParserState),
}

enum InState {
    Statement(Statement),
    Transition(Transition),
}

impl Parser<'_> {
    /// `parser P(...);` or `parser P(...)(...) { ... }`
    pub(super) fn parser_declaration(
        &mut self,
        annotations: Annotations,
        start: Span,
    ) -> Res<Declaration> {
        self.bump();
        let name = self.name("the parser's name")?;
        self.declare_type(&name);
        self.scoped(|p| {
            let ty = p.apply_type(annotations, name, start)?;
            if p.at(Tok::Semi) {
                p.bump();
                return Ok(Declaration::ParserType(ty));
            }
            p.parser_body(ty, start)
        })
    }

    fn parser_body(&mut self, ty: ApplyTypeDecl, start: Span) -> Res<Declaration> {
        let constructor_params = self.constructor_params()?;
        let open = self.expect_body()?;
        let ends = |p: &Self| p.starts_top_level() || matches!(p.peek(), Tok::Action | Tok::Table);
        let mut states_seen = false;
        let (items, close) = self.list(open, ends, Self::starts_state_item, |p| {
            let item = p.parser_item()?;
            match &item {
                Item::State(_) => states_seen = true,
                Item::Local(d) if states_seen => {
                    let d = Diagnostic::error(
                        d.span(),
                        "declarations must stand before the parser's first state",
                    );
                    p.report_always(d);
                }
                Item::Local(_) => {}
            }
            Ok(item)
        });
        let (mut locals, mut states) = (Vec::new(), Vec::new());
        for item in items {
            match item {
                Item::Local(d) => locals.push(d),
                Item::State(s) => states.push(s),
            }
        }
        Ok(Declaration::Parser(ParserDecl {
            ty,
            constructor_params,
            locals,
            states,
            span: start.to(close),
        }))
    }

    fn starts_state_item(&self) -> bool {
        self.at_state() || matches!(self.peek(), Tok::Const | Tok::ValueSet)
    }

    fn parser_item(&mut self) -> Res<Item> {
        let start = self.span();
        let annotations = self.annotations()?;
        if self.at_state() {
            return Ok(Item::State(self.state(annotations, start)?));
        }
        Ok(Item::Local(match self.peek() {
            Tok::Const => Declaration::Constant(self.constant(annotations, start)?),
            Tok::ValueSet => Declaration::ValueSet(self.value_set(annotations, start)?),
            _ => self.instance_or_variable(annotations, start, "a state or a declaration")?,
        }))
    }

    fn value_set(&mut self, annotations: Annotations, start: Span) -> Res<ValueSetDecl> {
        self.bump();
        self.expect(Tok::Lt)?;
        let elem = self.type_ref()?;
        self.expect(Tok::Gt)?;
        self.expect(Tok::LParen)?;
        let size = self.expression()?;
        self.expect(Tok::RParen)?;
        let name = self.name("the value set's name")?;
        self.declare_value(&name);
        self.expect_semi("the value set")?;
        Ok(ValueSetDecl { annotations, elem, size, name, span: start.to(self.prev_span()) })
    }

    fn state(&mut self, annotations: Annotations, start: Span) -> Res<ParserState> {
        self.bump();
        let name = self.name("the state's name")?;
        let open = self.expect(Tok::LBrace)?;
        let outer = std::mem::replace(&mut self.in_state, true);
        let result = self.scoped(|p| {
            Ok(p.list(open, Self::ends_block, Self::starts_statement, Self::state_item))
        });
        self.in_state = outer;
        let (items, close) = result?;
        let (statements, transition) = self.split_state(items);
        Ok(ParserState { annotations, name, statements, transition, span: start.to(close) })
    }

    fn state_item(&mut self) -> Res<InState> {
        if self.at(Tok::Transition) {
            return Ok(InState::Transition(self.transition()?));
        }
        Ok(InState::Statement(self.statement()?))
    }

    fn split_state(&mut self, items: Vec<InState>) -> (Vec<Statement>, Option<Transition>) {
        let (mut statements, mut transition) = (Vec::new(), None);
        for item in items {
            match (item, &transition) {
                (InState::Statement(s), None) => statements.push(s),
                (InState::Transition(t), None) => transition = Some(t),
                (
                    InState::Statement(Statement { span, .. })
                    | InState::Transition(Transition { span, .. }),
                    Some(t),
                ) => {
                    let d = Diagnostic::error(span, "nothing can follow a state's `transition`")
                        .note_at(t.span, "the state ends here");
                    self.report_always(d);
                }
            }
        }
        (statements, transition)
    }

    fn transition(&mut self) -> Res<Transition> {
        let start = self.bump();
        let kind = if self.at(Tok::Select) {
            self.select()?
        } else {
            TransitionKind::Direct(self.next_state()?)
        };
        Ok(Transition { kind, span: start.to(self.prev_span()) })
    }

    fn next_state(&mut self) -> Res<Ident> {
        let name = self.name("the next state's name")?;
        self.expect_semi("the state's name")?;
        Ok(name)
    }

    fn select(&mut self) -> Res<TransitionKind> {
        self.bump();
        self.expect(Tok::LParen)?;
        let exprs = self.comma_list(Tok::RParen, false, Self::expression)?;
        self.expect(Tok::RParen)?;
        let open = self.expect(Tok::LBrace)?;
        let starts_case = |p: &Self| matches!(p.peek(), Tok::Default | Tok::DontCare);
        let (cases, _) = self.list(open, Self::ends_block, starts_case, |p| {
            let keyset = p.keyset()?;
            p.expect(Tok::Colon)?;
            let state = p.next_state()?;
            let span = keyset.span.to(p.prev_span());
            Ok(SelectCase { keyset, state, span })
        });
        Ok(TransitionKind::Select { exprs, cases })
    }
}
