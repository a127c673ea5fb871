//! Declarations.

use super::{Parser, Res};
use crate::ast::{
    ActionDecl, Annotations, ApplyTypeDecl, Block, ConstantDecl, ConstructorDecl, ControlDecl,
    Declaration, Direction, EnumDecl, EnumMember, ExternObjectDecl, FunctionDecl,
    FunctionPrototype, Ident, MemberListDecl, PackageDecl, Parameter, StructDecl, StructField,
    StructKind, TypeRef, TypedefDecl, TypedefTarget,
};
use crate::diagnostic::Diagnostic;
use crate::lexer::Tok;
use crate::span::Span;

/// What a control's body holds.
enum ControlItem {
    Local(Declaration),
    Apply(Block),
}

/// What an extern object's body holds.
enum ExternItem {
    Constructor(ConstructorDecl),
    Method(FunctionPrototype),
}

impl Parser<'_> {
    pub(super) fn top_level_declaration(&mut self) -> Res<Declaration> {
        let start = self.span();
        let annotations = self.annotations()?;
        match self.peek() {
            Tok::Const => Ok(Declaration::Constant(self.constant(annotations, start)?)),
            Tok::Extern => self.extern_declaration(annotations, start),
            Tok::Action => Ok(Declaration::Action(self.action(annotations, start)?)),
            Tok::Parser => self.parser_declaration(annotations, start),
            Tok::Control => self.control_declaration(annotations, start),
            Tok::Package => Ok(Declaration::Package(self.package(annotations, start)?)),
            Tok::Header | Tok::HeaderUnion | Tok::Struct => {
                Ok(Declaration::Struct(self.struct_decl(annotations, start)?))
            }
            Tok::Enum => Ok(Declaration::Enum(self.enum_decl(annotations, start)?)),
            Tok::Error if self.nth(1) == Tok::LBrace => {
                Ok(Declaration::Error(self.member_list(annotations, start)?))
            }
            Tok::MatchKind if self.nth(1) == Tok::LBrace => {
                Ok(Declaration::MatchKind(self.member_list(annotations, start)?))
            }
            Tok::Typedef => Ok(Declaration::Typedef(self.typedef(annotations, start)?)),
            Tok::Type if self.nth(1) != Tok::LParen => {
                Ok(Declaration::Typedef(self.typedef(annotations, start)?))
            }
            t if t == Tok::Dot || t.is_name() || Self::is_type_keyword(t) => {
                self.typed_declaration(annotations, start)
            }
            Tok::RBrace => {
                let d = Diagnostic::error(self.span(), "this `}` closes nothing");
                Err(self.fail(d))
            }
            _ => Err(self.unexpected("a declaration")),
        }
    }

    /// A function, or an instance: `T f(...) { ... }` or `T(...) name;`
    fn typed_declaration(&mut self, annotations: Annotations, start: Span) -> Res<Declaration> {
        let ty = self.type_ref()?;
        if self.at(Tok::LParen) {
            let args = self.arguments()?;
            return Ok(Declaration::Instantiation(self.instance_rest(
                annotations,
                ty,
                args,
                start,
            )?));
        }
        if self.peek().is_name() && matches!(self.nth(1), Tok::Assign | Tok::Semi) {
            let d = Diagnostic::error(
                start.to(self.span()),
                "variables cannot be declared at the top level",
            )
            .help("use `const`, or declare it in a control or parser");
            return Err(self.fail(d));
        }
        Ok(Declaration::Function(self.function_rest(annotations, ty, start)?))
    }

    /// The rest of a function, from the name on.
    fn function_rest(
        &mut self,
        annotations: Annotations,
        return_type: TypeRef,
        start: Span,
    ) -> Res<FunctionDecl> {
        let name = self.name("a function's or an instance's name")?;
        self.declare_value(&name);
        self.scoped(|p| {
            let prototype = p.prototype_rest(annotations, false, return_type, name, start)?;
            p.expect_function_body()?;
            let body = p.body()?;
            Ok(FunctionDecl { span: start.to(body.span), prototype, body })
        })
    }

    fn expect_function_body(&mut self) -> Res<()> {
        if self.at(Tok::Semi) {
            let d = Diagnostic::error(self.span(), "expected the function's body, found `;`")
                .help("only `extern` functions have no body");
            return Err(self.fail(d));
        }
        Ok(())
    }

    /// Type parameters and parameters, declared in the current scope.
    fn prototype_rest(
        &mut self,
        annotations: Annotations,
        is_abstract: bool,
        return_type: TypeRef,
        name: Ident,
        start: Span,
    ) -> Res<FunctionPrototype> {
        let type_params = self.opt_type_params()?;
        self.declare_types(&type_params);
        let params = self.parameters()?;
        let span = start.to(self.prev_span());
        Ok(FunctionPrototype {
            annotations,
            is_abstract,
            return_type,
            name,
            type_params,
            params,
            span,
        })
    }

    /// An instance or a variable in a parser or control; `what` is expected if it is neither.
    pub(super) fn instance_or_variable(
        &mut self,
        annotations: Annotations,
        start: Span,
        what: &str,
    ) -> Res<Declaration> {
        let t = self.peek();
        if !(t == Tok::Dot || t.is_name() || Self::is_type_keyword(t)) {
            return Err(self.unexpected(what));
        }
        let ty = self.type_ref()?;
        if self.at(Tok::LParen) {
            let args = self.arguments()?;
            return Ok(Declaration::Instantiation(self.instance_rest(
                annotations,
                ty,
                args,
                start,
            )?));
        }
        Ok(Declaration::Variable(self.variable_rest(annotations, ty, start)?))
    }

    pub(super) fn constant(&mut self, annotations: Annotations, start: Span) -> Res<ConstantDecl> {
        self.bump();
        let ty = self.type_ref()?;
        let name = self.name("the constant's name")?;
        if self.at(Tok::Semi) {
            let d =
                Diagnostic::error(self.span(), "a constant needs a value").label("expected `=`");
            return Err(self.fail(d));
        }
        self.expect(Tok::Assign)?;
        let value = self.expression()?;
        self.declare_value(&name);
        self.expect_semi("the constant")?;
        Ok(ConstantDecl { annotations, ty, name, value, span: start.to(self.prev_span()) })
    }

    fn action(&mut self, annotations: Annotations, start: Span) -> Res<ActionDecl> {
        self.bump();
        let name = self.name("the action's name")?;
        self.declare_value(&name);
        self.scoped(|p| {
            let params = p.parameters()?;
            let body = p.body()?;
            Ok(ActionDecl { annotations, name, params, span: start.to(body.span), body })
        })
    }

    /// `(params)`, declared in the current scope.
    pub(super) fn parameters(&mut self) -> Res<Vec<Parameter>> {
        self.expect(Tok::LParen)?;
        let params = self.comma_list(Tok::RParen, false, Self::parameter)?;
        self.expect(Tok::RParen)?;
        self.declare_params(&params);
        Ok(params)
    }

    fn parameter(&mut self) -> Res<Parameter> {
        let start = self.span();
        let annotations = self.annotations()?;
        let direction = match self.peek() {
            Tok::In => Direction::In,
            Tok::Out => Direction::Out,
            Tok::InOut => Direction::InOut,
            _ => Direction::None,
        };
        if direction != Direction::None {
            self.bump();
        }
        let ty = self.type_ref()?;
        let name = self.name("the parameter's name")?;
        let default = if self.eat(Tok::Assign) { Some(self.expression()?) } else { None };
        Ok(Parameter {
            annotations,
            direction,
            ty,
            name,
            default,
            span: start.to(self.prev_span()),
        })
    }

    pub(super) fn constructor_params(&mut self) -> Res<Option<Vec<Parameter>>> {
        if self.at(Tok::LParen) { self.parameters().map(Some) } else { Ok(None) }
    }

    /// The `{` of a parser or control, whose declaration as a type would have ended with `;`.
    pub(super) fn expect_body(&mut self) -> Res<Span> {
        if self.at(Tok::LBrace) { Ok(self.bump()) } else { Err(self.unexpected("`{` or `;`")) }
    }

    /// Type parameters and parameters of a parser or control, declared in the current scope.
    pub(super) fn apply_type(
        &mut self,
        annotations: Annotations,
        name: Ident,
        start: Span,
    ) -> Res<ApplyTypeDecl> {
        let type_params = self.opt_type_params()?;
        self.declare_types(&type_params);
        let params = self.parameters()?;
        Ok(ApplyTypeDecl {
            annotations,
            name,
            type_params,
            params,
            span: start.to(self.prev_span()),
        })
    }

    fn control_declaration(&mut self, annotations: Annotations, start: Span) -> Res<Declaration> {
        self.bump();
        let name = self.name("the control's name")?;
        self.declare_type(&name);
        self.scoped(|p| {
            let ty = p.apply_type(annotations, name, start)?;
            if p.at(Tok::Semi) {
                p.bump();
                return Ok(Declaration::ControlType(ty));
            }
            p.control_body(ty, start)
        })
    }

    fn control_body(&mut self, ty: ApplyTypeDecl, start: Span) -> Res<Declaration> {
        let constructor_params = self.constructor_params()?;
        let open = self.expect_body()?;
        let errors = self.errors;
        let (items, close) =
            self.list(open, Self::starts_top_level, Self::starts_local, Self::control_item);
        let mut locals = Vec::new();
        let mut body: Option<Block> = None;
        for item in items {
            match (item, &body) {
                (ControlItem::Local(d), None) => locals.push(d),
                (ControlItem::Apply(b), None) => body = Some(b),
                (ControlItem::Local(d), Some(_)) => {
                    let d = Diagnostic::error(
                        d.span(),
                        "declarations must stand before the control's `apply` block",
                    );
                    self.report_always(d);
                }
                (ControlItem::Apply(b), Some(first)) => {
                    let d = Diagnostic::error(
                        b.span.at_start(),
                        "a control has one `apply` block only",
                    )
                    .note_at(first.span.at_start(), "the first one");
                    self.report_always(d);
                }
            }
        }
        let Some(body) = body else {
            if self.errors == errors {
                let d = Diagnostic::error(
                    ty.name.span,
                    format!("control `{}` has no `apply` block", ty.name),
                );
                self.report_always(d);
            }
            return Err(super::Failed);
        };
        Ok(Declaration::Control(ControlDecl {
            ty,
            constructor_params,
            locals,
            body,
            span: start.to(close),
        }))
    }

    fn starts_local(&self) -> bool {
        matches!(self.peek(), Tok::Const | Tok::Action | Tok::Table) || self.at_apply_block()
    }

    fn control_item(&mut self) -> Res<ControlItem> {
        let start = self.span();
        if self.at_apply_block() {
            self.bump();
            return Ok(ControlItem::Apply(self.body()?));
        }
        let annotations = self.annotations()?;
        Ok(ControlItem::Local(match self.peek() {
            Tok::Const => Declaration::Constant(self.constant(annotations, start)?),
            Tok::Action => Declaration::Action(self.action(annotations, start)?),
            Tok::Table => Declaration::Table(self.table(annotations, start)?),
            _ => self.instance_or_variable(annotations, start, "a declaration or `apply`")?,
        }))
    }

    fn package(&mut self, annotations: Annotations, start: Span) -> Res<PackageDecl> {
        self.bump();
        let name = self.name("the package's name")?;
        self.declare_type(&name);
        self.scoped(|p| {
            let type_params = p.opt_type_params()?;
            p.declare_types(&type_params);
            let params = p.parameters()?;
            p.expect_semi("the package")?;
            Ok(PackageDecl {
                annotations,
                name,
                type_params,
                params,
                span: start.to(p.prev_span()),
            })
        })
    }

    fn extern_declaration(&mut self, annotations: Annotations, start: Span) -> Res<Declaration> {
        self.bump();
        if self.peek().is_name() {
            let body = match self.nth(1) {
                Tok::Lt => self.angles_end(1).map_or(Tok::Eof, |e| self.nth(e)),
                t => t,
            };
            if body == Tok::LBrace {
                return Ok(Declaration::ExternObject(self.extern_object(annotations, start)?));
            }
        }
        let return_type = self.type_ref()?;
        let name = self.name("the function's name")?;
        self.declare_value(&name);
        self.scoped(|p| {
            let mut prototype = p.prototype_rest(annotations, false, return_type, name, start)?;
            p.expect_semi("the extern function")?;
            prototype.span = start.to(p.prev_span());
            Ok(Declaration::ExternFunction(prototype))
        })
    }

    fn extern_object(&mut self, annotations: Annotations, start: Span) -> Res<ExternObjectDecl> {
        let name = self.name("the extern's name")?;
        self.declare_type(&name);
        self.scoped(|p| {
            let type_params = p.opt_type_params()?;
            p.declare_types(&type_params);
            let open = p.expect(Tok::LBrace)?;
            let starts = |p: &Self| {
                matches!(p.peek(), Tok::Abstract | Tok::At) || Self::is_type_keyword(p.peek())
            };
            let own = name.name.clone();
            let (items, close) =
                p.list(open, Self::starts_top_level, starts, |p| p.extern_item(&own));
            let (mut constructors, mut methods) = (Vec::new(), Vec::new());
            for item in items {
                match item {
                    ExternItem::Constructor(c) => constructors.push(c),
                    ExternItem::Method(m) => methods.push(m),
                }
            }
            let span = start.to(close);
            Ok(ExternObjectDecl { annotations, name, type_params, constructors, methods, span })
        })
    }

    fn extern_item(&mut self, own: &str) -> Res<ExternItem> {
        let start = self.span();
        let annotations = self.annotations()?;
        if self.nth(1) == Tok::LParen && self.token_text(self.span()) == own {
            let name = self.name("the constructor's name")?;
            let params = self.scoped(Self::parameters)?;
            self.expect_semi("the constructor")?;
            let span = start.to(self.prev_span());
            return Ok(ExternItem::Constructor(ConstructorDecl {
                annotations,
                name,
                params,
                span,
            }));
        }
        let is_abstract = self.eat(Tok::Abstract);
        let return_type = self.type_ref()?;
        if self.at(Tok::LParen) {
            let d = Diagnostic::error(
                return_type.span,
                format!("a method needs a return type; a constructor is called `{own}`"),
            );
            return Err(self.fail(d));
        }
        let name = self.name("the method's name")?;
        self.scoped(|p| {
            let mut prototype =
                p.prototype_rest(annotations, is_abstract, return_type, name, start)?;
            p.expect_semi("the method")?;
            prototype.span = start.to(p.prev_span());
            Ok(ExternItem::Method(prototype))
        })
    }

    /// `{ functions and instances }` of an instance with abstract methods.
    pub(super) fn object_initializer(&mut self) -> Res<Vec<Declaration>> {
        self.nested(|p| {
            let open = p.expect(Tok::LBrace)?;
            let starts = |p: &Self| p.at(Tok::At) || Self::is_type_keyword(p.peek());
            p.scoped(|p| {
                let (items, _) = p.list(open, Self::starts_top_level, starts, |p| {
                    let start = p.span();
                    let annotations = p.annotations()?;
                    p.typed_declaration(annotations, start)
                });
                Ok(items)
            })
        })
    }

    fn struct_decl(&mut self, annotations: Annotations, start: Span) -> Res<StructDecl> {
        let kind = match self.peek() {
            Tok::Header => StructKind::Header,
            Tok::HeaderUnion => StructKind::HeaderUnion,
            _ => StructKind::Struct,
        };
        self.bump();
        let name = self.name(&format!("the {}'s name", kind.as_str()))?;
        self.declare_type(&name);
        self.scoped(|p| {
            let type_params = p.opt_type_params()?;
            p.declare_types(&type_params);
            let open = p.expect(Tok::LBrace)?;
            let ends = |p: &Self| {
                p.starts_top_level() || matches!(p.peek(), Tok::Const | Tok::Action | Tok::Table)
            };
            let (fields, close) =
                p.list(open, ends, |p| Self::is_type_keyword(p.peek()), Self::struct_field);
            Ok(StructDecl { annotations, kind, name, type_params, fields, span: start.to(close) })
        })
    }

    fn struct_field(&mut self) -> Res<StructField> {
        let start = self.span();
        let annotations = self.annotations()?;
        let ty = self.type_ref()?;
        let name = self.name("the field's name")?;
        self.expect_semi("the field")?;
        Ok(StructField { annotations, ty, name, span: start.to(self.prev_span()) })
    }

    fn enum_decl(&mut self, annotations: Annotations, start: Span) -> Res<EnumDecl> {
        self.bump();
        let plain = self.peek().is_name() && self.nth(1) == Tok::LBrace;
        let underlying = if plain { None } else { Some(self.type_ref()?) };
        let name = self.name("the enum's name")?;
        self.declare_type(&name);
        self.expect(Tok::LBrace)?;
        let members = self.comma_list(Tok::RBrace, true, Self::enum_member)?;
        let close = self.expect(Tok::RBrace)?;
        for m in &members {
            let message = match (&underlying, &m.value) {
                (Some(_), None) => {
                    format!("member `{}` of an enum with an underlying type needs a value", m.name)
                }
                (None, Some(_)) => {
                    format!("member `{}` has a value, but the enum has no underlying type", m.name)
                }
                _ => continue,
            };
            let d = Diagnostic::error(m.span, message)
                .help("write `enum bit<8> E { A = 1, B = 2 }` or `enum E { A, B }`");
            self.report_always(d);
        }
        Ok(EnumDecl { annotations, underlying, name, members, span: start.to(close) })
    }

    fn enum_member(&mut self) -> Res<EnumMember> {
        let name = self.name("a member's name")?;
        let value = if self.eat(Tok::Assign) { Some(self.expression()?) } else { None };
        Ok(EnumMember { span: name.span.to(self.prev_span()), name, value })
    }

    /// `error { A, B }` or `match_kind { a, b }`
    fn member_list(&mut self, annotations: Annotations, start: Span) -> Res<MemberListDecl> {
        self.bump();
        self.expect(Tok::LBrace)?;
        let members = self.comma_list(Tok::RBrace, true, |p| p.name("a member's name"))?;
        let close = self.expect(Tok::RBrace)?;
        Ok(MemberListDecl { annotations, members, span: start.to(close) })
    }

    fn typedef(&mut self, annotations: Annotations, start: Span) -> Res<TypedefDecl> {
        let is_new_type = self.at(Tok::Type);
        self.bump();
        let at = self.span();
        let inner = self.annotations()?;
        let target = match self.peek() {
            Tok::Header | Tok::HeaderUnion | Tok::Struct if !is_new_type => {
                TypedefTarget::Struct(Box::new(self.struct_decl(inner, at)?))
            }
            Tok::Enum if !is_new_type => TypedefTarget::Enum(Box::new(self.enum_decl(inner, at)?)),
            _ => TypedefTarget::Type(self.type_ref()?),
        };
        let name = self.name("the new type's name")?;
        self.declare_type(&name);
        self.expect_semi("the type")?;
        Ok(TypedefDecl { annotations, is_new_type, target, name, span: start.to(self.prev_span()) })
    }
}
