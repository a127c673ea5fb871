//! Annotations (spec §20).

use super::{Parser, Res};
use crate::ast::{
    Annotation, AnnotationBody, AnnotationToken, AnnotationTokenKind, Annotations, Ident,
    NamedValue,
};
use crate::diagnostic::Diagnostic;
use crate::lexer::{Tok, string_value};

impl Parser<'_> {
    pub(super) fn annotations(&mut self) -> Res<Annotations> {
        let mut out = Vec::new();
        while self.at(Tok::At) {
            out.push(self.annotation()?);
        }
        Ok(out)
    }

    fn annotation(&mut self) -> Res<Annotation> {
        let at = self.expect(Tok::At)?;
        let name = self.annotation_name()?;
        if name.as_str() == "pragma" {
            return self.pragma(at);
        }
        let body = match self.peek() {
            Tok::LParen => self.unstructured_body()?,
            Tok::LBracket => self.structured_body()?,
            _ => AnnotationBody::Empty,
        };
        Ok(Annotation { name, body, span: at.to(self.prev_span()) })
    }

    fn annotation_name(&mut self) -> Res<Ident> {
        if self.peek().is_keyword() {
            let span = self.bump();
            return Ok(Ident { name: self.intern(span), span });
        }
        self.name("an annotation's name after `@`")
    }

    /// `@pragma name tokens`, to the end of the line.
    fn pragma(&mut self, at: crate::span::Span) -> Res<Annotation> {
        let name = self.annotation_name()?;
        let mut tokens = Vec::new();
        while !matches!(self.peek(), Tok::EndPragma | Tok::Eof) {
            tokens.push(self.annotation_token());
        }
        let span = at.to(self.prev_span());
        if self.at(Tok::EndPragma) {
            self.bump_raw();
        }
        let body = if tokens.is_empty() {
            AnnotationBody::Empty
        } else {
            AnnotationBody::Unstructured(tokens)
        };
        Ok(Annotation { name, body, span })
    }

    fn unstructured_body(&mut self) -> Res<AnnotationBody> {
        let open = self.expect(Tok::LParen)?;
        let mut tokens = Vec::new();
        let mut depth = 0usize;
        loop {
            match self.peek() {
                Tok::Eof => {
                    let d = Diagnostic::error(open, "the `(` of this annotation is never closed");
                    return Err(self.fail(d));
                }
                Tok::RParen if depth == 0 => {
                    self.bump_raw();
                    return Ok(AnnotationBody::Unstructured(tokens));
                }
                Tok::LParen => depth += 1,
                Tok::RParen => depth -= 1,
                _ => {}
            }
            tokens.push(self.annotation_token());
        }
    }

    fn annotation_token(&mut self) -> AnnotationToken {
        let (span, tok) = (self.span(), self.peek());
        let kind = match tok {
            Tok::Str => AnnotationTokenKind::Str,
            Tok::Int => AnnotationTokenKind::Int,
            t if t == Tok::Ident || t.is_keyword() => AnnotationTokenKind::Word,
            _ => AnnotationTokenKind::Punct,
        };
        let text = if tok == Tok::Str {
            string_value(self.token_text(span)).into()
        } else {
            self.intern(span)
        };
        self.bump_raw();
        AnnotationToken { text, kind, span }
    }

    fn structured_body(&mut self) -> Res<AnnotationBody> {
        self.expect(Tok::LBracket)?;
        let is_pairs = self.peek().is_name() && self.nth(1) == Tok::Assign;
        let body = if is_pairs {
            AnnotationBody::KeyValues(self.comma_list(Tok::RBracket, true, Self::named_value)?)
        } else {
            AnnotationBody::Expressions(self.comma_list(Tok::RBracket, true, Self::expression)?)
        };
        self.expect(Tok::RBracket)?;
        Ok(body)
    }

    /// `name = expression`
    pub(super) fn named_value(&mut self) -> Res<NamedValue> {
        let name = self.name("a name")?;
        self.expect(Tok::Assign)?;
        let value = self.expression()?;
        let span = name.span.to(value.span);
        Ok(NamedValue { name, value, span })
    }
}
