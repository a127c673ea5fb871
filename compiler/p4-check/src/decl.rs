//! Top-level declarations, parsers and controls.

use std::rc::Rc;

use p4_syntax::{Diagnostic, ast};

use crate::context::{Body, Checker, Entity};
use crate::hir::*;
use crate::stmt::{always_returns, atomic};
use crate::ty::Ty;

impl Checker<'_> {
    pub fn check_program(&mut self, program: &ast::Program) {
        for d in &program.declarations {
            self.body = Body::None;
            self.check_declaration(d);
        }
    }

    fn check_declaration(&mut self, d: &ast::Declaration) {
        match d {
            ast::Declaration::Constant(c) => self.declare_constant(c),
            ast::Declaration::ExternObject(e) => self.declare_extern(e),
            ast::Declaration::ExternFunction(f) => {
                let id = self.check_prototype(f);
                self.declare_function(&f.name, id);
            }
            ast::Declaration::Function(f) => {
                let id = self.check_function(f);
                self.declare_function(&f.prototype.name, id);
            }
            ast::Declaration::Action(a) => self.check_action(a, true),
            ast::Declaration::Parser(p) => self.check_parser(p),
            ast::Declaration::Control(c) => self.check_control(c),
            ast::Declaration::ParserType(t) => self.declare_block_type(t, BlockKind::Parser),
            ast::Declaration::ControlType(t) => self.declare_block_type(t, BlockKind::Control),
            ast::Declaration::Package(p) => self.declare_package(p),
            ast::Declaration::Instantiation(i) => {
                if let Some((id, e)) = self.declare_instance(i) {
                    if matches!(e.ty, Ty::Block(_)) {
                        self.error(
                            i.span,
                            "parsers and controls cannot be instantiated at the top level",
                        );
                    }
                    self.hir.instances.push((id, e));
                }
            }
            ast::Declaration::Struct(s) => {
                let e = self.declare_struct(s);
                self.declare(&s.name, e);
            }
            ast::Declaration::Enum(s) => {
                let e = self.declare_enum(s);
                self.declare(&s.name, e);
            }
            ast::Declaration::Typedef(t) => {
                let e = self.declare_typedef(t);
                self.declare(&t.name, e);
            }
            ast::Declaration::Error(m) => self.declare_members(m, true),
            ast::Declaration::MatchKind(m) => self.declare_members(m, false),
            ast::Declaration::Variable(v) => {
                self.error(v.span, "variables cannot be declared at the top level")
            }
            ast::Declaration::ValueSet(v) => {
                self.error(v.span, "value sets can be declared in parsers only")
            }
            ast::Declaration::Table(t) => {
                self.error(t.span, "tables can be declared in controls only")
            }
        }
    }

    fn declare_members(&mut self, m: &ast::MemberListDecl, errors: bool) {
        for name in &m.members {
            let list = if errors { &mut self.hir.errors } else { &mut self.hir.match_kinds };
            if list.iter().any(|o| &**o == name.as_str()) {
                let what = if errors { "error" } else { "match_kind" };
                self.error(name.span, format!("{what} `{name}` is declared twice"));
            } else {
                list.push(Rc::from(name.as_str()));
            }
        }
    }

    fn declare_function(&mut self, name: &ast::Ident, id: FunctionId) {
        let count = self.hir.functions[id.index()].params.len();
        if let Some(entry) = self.find_name(name.as_str(), true)
            && let Entity::Functions(list) = &entry.entity
        {
            let clash = list.iter().find(|f| {
                let old = &self.hir.functions[f.index()];
                old.params.len() == count
                    && old
                        .params
                        .iter()
                        .zip(self.hir.functions[id.index()].params.iter())
                        .all(|(a, b)| a.name == b.name)
            });
            if let Some(f) = clash {
                let at = self.hir.functions[f.index()].span;
                let text = format!("`{name}` is declared twice with the same parameter names");
                self.report(Diagnostic::error(name.span, text).note_at(at, "first declared here"));
                return;
            }
        }
        self.declare(name, Entity::Functions(vec![id]));
    }

    /// Parameters, declared in the innermost scope. `kind` says what a parameter is inside of the
    /// body.
    pub fn check_params(
        &mut self,
        params: &[ast::Parameter],
        kind: impl Fn(Direction) -> LocalKind,
    ) -> Rc<[ParamDef]> {
        let mut out: Vec<ParamDef> = Vec::new();
        for p in params {
            let ty = self.resolve_type(&p.ty);
            let ty = if ty == Ty::Void {
                self.error(p.ty.span, "a parameter cannot be void");
                Ty::Poison
            } else {
                ty
            };
            if ty.is_object() && p.direction != Direction::None {
                let shown = self.show(&ty);
                self.error(
                    p.span,
                    format!("parameter `{}` of type `{shown}` cannot have a direction", p.name),
                );
            }
            if ty == Ty::Int && matches!(p.direction, Direction::Out | Direction::InOut) {
                self.error(
                    p.span,
                    format!(
                        "parameter `{}` of type `int` cannot be {}",
                        p.name,
                        p.direction.as_str()
                    ),
                );
            }
            let default = p.default.as_ref().and_then(|d| {
                if matches!(p.direction, Direction::Out | Direction::InOut) {
                    self.error(d.span, "out and inout parameters cannot have default values");
                }
                let e = self.check_as(d, &ty);
                if !e.is_compile_time(&self.hir.locals) {
                    self.error(d.span, "a default value must be known at compile time");
                    return None;
                }
                (!e.is_poison()).then(|| Rc::new(e))
            });
            let local = self.new_local(&p.name, ty.clone(), kind(p.direction), &p.annotations);
            self.declare(&p.name, Entity::Local(local));
            out.push(ParamDef {
                name: Rc::from(p.name.as_str()),
                direction: p.direction,
                ty,
                local,
                default,
                optional: p.is_optional(),
                span: p.name.span,
            });
        }
        out.into()
    }

    /// A prototype in a scope of its own; the caller declares the name.
    fn check_prototype(&mut self, f: &ast::FunctionPrototype) -> FunctionId {
        self.push_scope();
        let id = self.open_prototype(f);
        self.pop_scope();
        id
    }

    fn open_prototype(&mut self, f: &ast::FunctionPrototype) -> FunctionId {
        let type_params = self.declare_type_params(&f.type_params);
        let ret = self.resolve_type(&f.return_type);
        let params = self.check_params(&f.params, LocalKind::Parameter);
        let id = FunctionId(self.hir.functions.len() as u32);
        let name = Rc::from(f.name.as_str());
        self.hir.functions.push(FunctionDef {
            name,
            type_params,
            params,
            ret,
            body: None,
            span: f.name.span,
        });
        id
    }

    fn check_function(&mut self, f: &ast::FunctionDecl) -> FunctionId {
        self.push_scope();
        let id = self.open_prototype(&f.prototype);
        self.body = Body::Function;
        self.returns = self.hir.functions[id.index()].ret.clone();
        let body = self.check_block(&f.body);
        self.body = Body::None;
        let returns = std::mem::replace(&mut self.returns, Ty::Void);
        if returns != Ty::Void && !returns.is_poison() && !always_returns(&body) {
            let shown = self.show(&returns);
            let text = format!(
                "function `{}` does not return a `{shown}` on every path",
                f.prototype.name
            );
            self.error(f.prototype.name.span, text);
        }
        self.hir.functions[id.index()].body = Some(Rc::new(body));
        self.pop_scope();
        id
    }

    fn declare_extern(&mut self, e: &ast::ExternObjectDecl) {
        self.push_scope();
        let type_params = self.declare_type_params(&e.type_params);
        let id = ExternDefId(self.hir.externs.len() as u32);
        self.hir.externs.push(ExternDef {
            name: Rc::from(e.name.as_str()),
            type_params,
            constructors: Vec::new(),
            methods: Vec::new(),
            span: e.name.span,
        });
        for c in &e.constructors {
            self.push_scope();
            let params = self.check_params(&c.params, |_| LocalKind::Constructor);
            self.pop_scope();
            self.hir.externs[id.index()].constructors.push(params);
        }
        for m in &e.methods {
            if m.is_abstract {
                self.error(m.span, "abstract methods are not supported yet");
            }
            let f = self.check_prototype(m);
            self.hir.externs[id.index()].methods.push(f);
        }
        self.pop_scope();
        self.declare(&e.name, Entity::Extern(id));
    }

    fn declare_block_type(&mut self, t: &ast::ApplyTypeDecl, kind: BlockKind) {
        self.push_scope();
        let type_params = self.declare_type_params(&t.type_params);
        let params = self.check_params(&t.params, LocalKind::Parameter);
        self.pop_scope();
        let id = BlockTypeId(self.hir.block_types.len() as u32);
        let name = Rc::from(t.name.as_str());
        self.hir.block_types.push(BlockTypeDef { kind, name, type_params, params });
        self.declare(&t.name, Entity::BlockType(id));
    }

    fn declare_package(&mut self, p: &ast::PackageDecl) {
        self.push_scope();
        let type_params = self.declare_type_params(&p.type_params);
        let params = self.check_params(&p.params, |_| LocalKind::Constructor);
        self.pop_scope();
        let id = PackageId(self.hir.packages.len() as u32);
        let name = Rc::from(p.name.as_str());
        self.hir.packages.push(PackageDef { name, type_params, params });
        self.declare(&p.name, Entity::Package(id));
    }

    pub fn check_action(&mut self, a: &ast::ActionDecl, global: bool) {
        self.push_scope();
        let params = self.check_params(&a.params, |d| match d {
            Direction::None => LocalKind::ActionData,
            d => LocalKind::Parameter(d),
        });
        let mut data = false;
        for p in params.iter() {
            if data && p.direction != Direction::None {
                let text =
                    format!("parameter `{}` must come before those without direction", p.name);
                self.error(p.span, text);
            }
            data |= p.direction == Direction::None;
            if p.ty == Ty::Int || p.ty == Ty::Str || p.ty.is_object() {
                let shown = self.show(&p.ty);
                self.error(p.span, format!("a parameter of an action cannot have type `{shown}`"));
            }
        }
        let outer = std::mem::replace(&mut self.body, Body::Action);
        let body = self.check_block(&a.body);
        let body = atomic(&a.annotations, a.body.span, body);
        self.body = outer;
        self.pop_scope();
        let id = ActionDefId(self.hir.actions.len() as u32);
        if global && a.name.as_str() == "NoAction" {
            self.hir.no_action = Some(id);
        }
        self.hir.actions.push(ActionDef {
            name: Rc::from(a.name.as_str()),
            params,
            body: Rc::new(body),
            annotations: a.annotations.clone(),
            global,
            span: a.name.span,
        });
        self.declare(&a.name, Entity::Action(id));
    }

    /// Signature and constructor parameters of a parser or control, in a new scope.
    fn open_block(
        &mut self,
        ty: &ast::ApplyTypeDecl,
        constructor: Option<&Vec<ast::Parameter>>,
    ) -> (Rc<[ParamDef]>, Rc<[ParamDef]>) {
        self.push_scope();
        if let Some(p) = ty.type_params.first() {
            self.error(p.span, "a parser or control with a body cannot have type parameters");
            self.declare_type_params(&ty.type_params);
        }
        let constructor = match constructor {
            Some(list) => self.check_params(list, |_| LocalKind::Constructor),
            None => Rc::from([]),
        };
        let params = self.check_params(&ty.params, LocalKind::Parameter);
        (params, constructor)
    }

    fn check_control(&mut self, c: &ast::ControlDecl) {
        let (params, constructor_params) = self.open_block(&c.ty, c.constructor_params.as_ref());
        self.push_scope();
        let mut locals = Vec::new();
        for d in &c.locals {
            self.body = Body::None;
            match d {
                ast::Declaration::Action(a) => self.check_action(a, false),
                ast::Declaration::Table(t) => self.check_table(t),
                other => {
                    // Initialisers run at the start of apply: they may call functions.
                    self.body = Body::Control;
                    if let Some(kind) = self.check_local_declaration(other) {
                        locals.push(Stmt { kind, span: other.span() });
                    }
                }
            }
        }
        self.body = Body::Control;
        let body = self.check_block(&c.body);
        let body = atomic(&c.ty.annotations, c.body.span, body);
        self.body = Body::None;
        self.pop_scope();
        self.pop_scope();
        self.add_block(
            &c.ty,
            BlockKind::Control,
            params,
            constructor_params,
            locals,
            body,
            Vec::new(),
        );
    }

    fn check_parser(&mut self, p: &ast::ParserDecl) {
        let (params, constructor_params) = self.open_block(&p.ty, p.constructor_params.as_ref());
        self.push_scope();
        let mut locals = Vec::new();
        self.body = Body::ParserState;
        for d in &p.locals {
            let kind = match d {
                ast::Declaration::ValueSet(v) => {
                    let ty = self.resolve_data_type(&v.elem);
                    let size = self.check_expr(&v.size, None);
                    let id = self.new_local(&v.name, ty, LocalKind::ValueSet, &v.annotations);
                    self.declare(&v.name, Entity::Local(id));
                    Some(StmtKind::ValueSet(id, size))
                }
                other => self.check_local_declaration(other),
            };
            if let Some(kind) = kind {
                locals.push(Stmt { kind, span: d.span() });
            }
        }
        let states = self.check_states(p);
        self.body = Body::None;
        self.pop_scope();
        self.pop_scope();
        self.add_block(
            &p.ty,
            BlockKind::Parser,
            params,
            constructor_params,
            locals,
            Vec::new(),
            states,
        );
    }

    #[allow(clippy::too_many_arguments)]
    fn add_block(
        &mut self,
        ty: &ast::ApplyTypeDecl,
        kind: BlockKind,
        params: Rc<[ParamDef]>,
        constructor_params: Rc<[ParamDef]>,
        locals: Block,
        body: Block,
        states: Vec<StateDef>,
    ) {
        let id = BlockId(self.hir.blocks.len() as u32);
        self.hir.blocks.push(BlockDef {
            kind,
            name: Rc::from(ty.name.as_str()),
            params,
            constructor_params,
            locals: Rc::new(locals),
            body: Rc::new(body),
            states,
            annotations: ty.annotations.clone(),
            span: ty.name.span,
        });
        self.declare(&ty.name, Entity::Block(id));
    }
}
