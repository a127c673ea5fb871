//! Readable text of the IR, for `stateplane check --emit-ir` and for test failures.

use std::fmt::{self, Display, Formatter};

use crate::{
    ActionCall, Argument, BinaryOp, Block, Expr, ExprKind, Match, Program, Record, Statement,
    StatementKind, Table, Target, Transition, Type, UnaryOp,
};

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = Printer { program: self };
        p.types(f)?;
        for v in &self.variables {
            writeln!(f, "var {}: {} // {:?}", v.name, p.ty(&v.ty), v.scope)?;
        }
        p.externs(f)?;
        for a in &self.actions {
            let params: Vec<String> = a
                .parameters
                .iter()
                .map(|v| format!("{}: {}", p.variable(v.index()), p.variable_type(v.index())))
                .collect();
            writeln!(f, "action {} ({}) [{}] {{", a.name, params.join(", "), a.c_name)?;
            p.block(f, &a.body, 1)?;
            writeln!(f, "}}")?;
        }
        for t in &self.tables {
            p.table(f, t)?;
        }
        p.parser(f)?;
        for (what, c) in [
            ("verify_checksum", &self.verify_checksum),
            ("ingress", &self.ingress),
            ("egress", &self.egress),
            ("compute_checksum", &self.compute_checksum),
            ("deparser", &self.deparser),
        ] {
            writeln!(f, "{what} {} {{", c.name)?;
            p.block(f, &c.body, 1)?;
            writeln!(f, "}}")?;
        }
        Ok(())
    }
}

struct Printer<'a> {
    program: &'a Program,
}

fn indent(f: &mut Formatter<'_>, depth: usize) -> fmt::Result {
    write!(f, "{:1$}", "", depth * 4)
}

impl Printer<'_> {
    fn types(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = self.program;
        let lists: [(&str, &[Record]); 3] = [
            ("header", &p.header_types),
            ("struct", &p.struct_types),
            ("header_union", &p.union_types),
        ];
        for (word, list) in lists {
            for r in list {
                writeln!(f, "{word} {} {{", r.name)?;
                for field in &r.fields {
                    writeln!(f, "    {}: {}", field.name, self.ty(&field.ty))?;
                }
                writeln!(f, "}}")?;
            }
        }
        for e in &p.enum_types {
            writeln!(f, "enum {} {{ {} }}", e.name, e.members.join(", "))?;
        }
        Ok(())
    }

    fn externs(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for e in &self.program.externs {
            let types: Vec<String> = e.type_arguments.iter().map(|t| self.ty(t)).collect();
            let args: Vec<String> = e
                .arguments
                .iter()
                .map(|a| match a {
                    crate::ConstArgument::Value(v, ty) => self.constant(v, ty),
                    crate::ConstArgument::Str(s) => format!("{s:?}"),
                })
                .collect();
            let types =
                if types.is_empty() { String::new() } else { format!("<{}>", types.join(", ")) };
            writeln!(
                f,
                "extern {}{types}({}) {} [{}]{}",
                e.extern_type,
                args.join(", "),
                e.name,
                e.c_name,
                e.merge.as_ref().map_or_else(String::new, |it| format!(" merges by {}", it.name))
            )?;
        }
        Ok(())
    }

    fn record_name(&self, list: &[Record], index: usize) -> String {
        list.get(index).map_or_else(|| "?".into(), |r| r.name.clone())
    }

    fn ty(&self, ty: &Type) -> String {
        let p = self.program;
        match ty {
            Type::Bits { width, signed: false } => format!("bit<{width}>"),
            Type::Bits { width, signed: true } => format!("int<{width}>"),
            Type::Bool => "bool".into(),
            Type::Error => "error".into(),
            Type::Enum(id) => {
                p.enum_types.get(id.index()).map_or_else(|| "?".into(), |e| e.name.clone())
            }
            Type::Header(id) => self.record_name(&p.header_types, id.index()),
            Type::Struct(id) => self.record_name(&p.struct_types, id.index()),
            Type::Union(id) => self.record_name(&p.union_types, id.index()),
            Type::Stack { header, size } => {
                format!("{}[{size}]", self.record_name(&p.header_types, header.index()))
            }
            Type::Varbit { max_width } => format!("varbit<{max_width}>"),
            Type::String => "string".into(),
        }
    }

    fn constant(&self, value: &crate::BigInt, ty: &Type) -> String {
        let index = usize::try_from(value).unwrap_or(usize::MAX);
        let p = self.program;
        let named = match ty {
            Type::Enum(id) => p.enum_types.get(id.index()).and_then(|e| {
                let member = e.members.get(index)?;
                Some(format!("{}.{member}", e.name))
            }),
            Type::Error => p.errors.get(index).map(|e| format!("error.{e}")),
            Type::Bool => Some(if index == 0 { "false".into() } else { "true".into() }),
            Type::Bits { width, signed } => {
                Some(format!("{width}{}{value}", if *signed { 's' } else { 'w' }))
            }
            _ => None,
        };
        named.unwrap_or_else(|| value.to_string())
    }

    fn variable(&self, index: usize) -> &str {
        self.program.variables.get(index).map_or("?", |v| v.name.as_str())
    }

    fn variable_type(&self, index: usize) -> String {
        self.program.variables.get(index).map_or_else(|| "?".into(), |v| self.ty(&v.ty))
    }

    fn field(&self, base: &Expr, index: u32) -> String {
        let p = self.program;
        let record = match &base.ty {
            Type::Header(id) => p.header_types.get(id.index()),
            Type::Struct(id) => p.struct_types.get(id.index()),
            Type::Union(id) => p.union_types.get(id.index()),
            _ => None,
        };
        record
            .and_then(|r| r.fields.get(index as usize))
            .map_or_else(|| format!("#{index}"), |f| f.name.clone())
    }

    fn expr(&self, e: &Expr) -> String {
        match &e.kind {
            ExprKind::Const(v) => self.constant(v, &e.ty),
            ExprKind::Str(s) => format!("{s:?}"),
            ExprKind::Var(v) => self.variable(v.index()).to_string(),
            ExprKind::Field(b, i) => format!("{}.{}", self.expr(b), self.field(b, *i)),
            ExprKind::Index(b, i) => format!("{}[{}]", self.expr(b), self.expr(i)),
            ExprKind::StackNext(b) => format!("{}.next", self.expr(b)),
            ExprKind::StackLast(b) => format!("{}.last", self.expr(b)),
            ExprKind::StackLastIndex(b) => format!("{}.lastIndex", self.expr(b)),
            ExprKind::IsValid(b) => format!("{}.isValid()", self.expr(b)),
            ExprKind::Slice { base, high, low } => format!("{}[{high}:{low}]", self.expr(base)),
            ExprKind::Unary(op, a) => format!("{}{}", unary(*op), self.expr(a)),
            ExprKind::Binary(op, a, b) => {
                format!("({} {} {})", self.expr(a), binary(*op), self.expr(b))
            }
            ExprKind::Cast(a) => format!("({}){}", self.ty(&e.ty), self.expr(a)),
            ExprKind::Ternary(c, a, b) => {
                format!("({} ? {} : {})", self.expr(c), self.expr(a), self.expr(b))
            }
            ExprKind::StructValue(list) => format!("{{{}}}", self.list(list)),
            ExprKind::HeaderValue(list) => format!("header {{{}}}", self.list(list)),
            ExprKind::InvalidHeader => "{#}".into(),
            ExprKind::Lookahead => format!("lookahead<{}>()", self.ty(&e.ty)),
        }
    }

    fn list(&self, list: &[Expr]) -> String {
        list.iter().map(|e| self.expr(e)).collect::<Vec<_>>().join(", ")
    }

    fn block(&self, f: &mut Formatter<'_>, block: &Block, depth: usize) -> fmt::Result {
        block.iter().try_for_each(|s| self.statement(f, s, depth))
    }

    fn statement(&self, f: &mut Formatter<'_>, s: &Statement, depth: usize) -> fmt::Result {
        indent(f, depth)?;
        match &s.kind {
            StatementKind::Assign(a, b) => writeln!(f, "{} = {}", self.expr(a), self.expr(b)),
            StatementKind::If { condition, then, otherwise } => {
                writeln!(f, "if {} {{", self.expr(condition))?;
                self.block(f, then, depth + 1)?;
                if !otherwise.is_empty() {
                    indent(f, depth)?;
                    writeln!(f, "}} else {{")?;
                    self.block(f, otherwise, depth + 1)?;
                }
                indent(f, depth)?;
                writeln!(f, "}}")
            }
            StatementKind::Switch { on, cases, default } => {
                writeln!(f, "switch {} {{", self.expr(on))?;
                for (values, body) in cases {
                    let values: Vec<String> =
                        values.iter().map(|v| self.constant(v, &on.ty)).collect();
                    indent(f, depth)?;
                    writeln!(f, "case {}:", values.join(", "))?;
                    self.block(f, body, depth + 1)?;
                }
                indent(f, depth)?;
                writeln!(f, "default:")?;
                self.block(f, default, depth + 1)?;
                indent(f, depth)?;
                writeln!(f, "}}")
            }
            StatementKind::Block { label, body, comment, atomic } => {
                let label = label.map_or_else(String::new, |l| format!("'{} ", l.0));
                let comment = comment.as_ref().map_or_else(String::new, |c| format!(" // {c}"));
                let atomic = if *atomic { "@atomic " } else { "" };
                writeln!(f, "{label}{atomic}{{{comment}")?;
                self.block(f, body, depth + 1)?;
                indent(f, depth)?;
                writeln!(f, "}}")
            }
            other => writeln!(f, "{}", self.simple(other)),
        }
    }

    fn simple(&self, s: &StatementKind) -> String {
        match s {
            StatementKind::Leave(l) => format!("leave '{}", l.0),
            StatementKind::Exit => "exit".into(),
            StatementKind::Return => "return".into(),
            StatementKind::SetValid(h, true) => format!("{}.setValid()", self.expr(h)),
            StatementKind::SetValid(h, false) => format!("{}.setInvalid()", self.expr(h)),
            StatementKind::PushFront(h, n) => format!("{}.push_front({n})", self.expr(h)),
            StatementKind::PopFront(h, n) => format!("{}.pop_front({n})", self.expr(h)),
            StatementKind::Apply { table, hit, action_run } => {
                let name = self.program.tables.get(table.index()).map_or("?", |t| t.name.as_str());
                let part = |name: &str, v: &Option<crate::VariableId>| {
                    v.map_or_else(String::new, |v| format!(" {name}={}", self.variable(v.index())))
                };
                format!("apply {name}{}{}", part("hit", hit), part("action_run", action_run))
            }
            StatementKind::Extern { instance, name, type_arguments, arguments, result } => {
                let object = instance.and_then(|i| self.program.externs.get(i.index()));
                let object = object.map_or_else(String::new, |e| format!("{}.", e.name));
                let types: Vec<String> = type_arguments.iter().map(|t| self.ty(t)).collect();
                let types = if types.is_empty() {
                    String::new()
                } else {
                    format!("<{}>", types.join(", "))
                };
                let args: Vec<String> = arguments.iter().map(|a| self.argument(a)).collect();
                let result =
                    result.as_ref().map_or_else(String::new, |r| format!("{} = ", self.expr(r)));
                format!("{result}call {object}{name}{types}({})", args.join(", "))
            }
            StatementKind::Extract { header, varbit_bits } => match varbit_bits {
                Some(b) => format!("extract {}, {}", self.expr(header), self.expr(b)),
                None => format!("extract {}", self.expr(header)),
            },
            StatementKind::Skip(bits) => format!("skip {bits}"),
            StatementKind::Advance(bits) => format!("advance {}", self.expr(bits)),
            StatementKind::Verify(c, e) => format!("verify {}, {}", self.expr(c), self.expr(e)),
            StatementKind::Emit(h) => format!("emit {}", self.expr(h)),
            StatementKind::Assign(..)
            | StatementKind::If { .. }
            | StatementKind::Switch { .. }
            | StatementKind::Block { .. } => String::new(),
        }
    }

    fn argument(&self, a: &Argument) -> String {
        match a {
            Argument::In(e) => self.expr(e),
            Argument::Out(e) => format!("out {}", self.expr(e)),
            Argument::InOut(e) => format!("inout {}", self.expr(e)),
            Argument::DontCare => "_".into(),
        }
    }

    fn matching(&self, m: &Match, ty: &Type) -> String {
        match m {
            Match::Any => "_".into(),
            Match::Value(v) => self.constant(v, ty),
            Match::Mask { value, mask } => format!("0x{value:x} &&& 0x{mask:x}"),
            Match::Range { low, high } => format!("{low} .. {high}"),
            Match::ValueSet(id) => {
                self.program.externs.get(id.index()).map_or_else(|| "?".into(), |e| e.name.clone())
            }
        }
    }

    fn action_call(&self, t: &Table, c: &ActionCall) -> String {
        let action = t
            .actions
            .get(c.action as usize)
            .and_then(|a| self.program.actions.get(a.action.index()));
        let args: Vec<String> = c.arguments.iter().map(|a| a.to_string()).collect();
        format!("{}({})", action.map_or("?", |a| a.name.as_str()), args.join(", "))
    }

    fn table(&self, f: &mut Formatter<'_>, t: &Table) -> fmt::Result {
        writeln!(f, "table {} [{}] {{", t.name, t.c_name)?;
        for k in &t.keys {
            writeln!(f, "    key {}: {} = {}", k.name, k.match_kind, self.expr(&k.expr))?;
        }
        for a in &t.actions {
            let name = self.program.actions.get(a.action.index()).map_or("?", |a| a.name.as_str());
            let only = match (a.default_only, a.table_only) {
                (true, _) => " default only",
                (_, true) => " table only",
                _ => "",
            };
            writeln!(f, "    action {name}{only}")?;
        }
        let word = if t.const_default { "const default" } else { "default" };
        writeln!(f, "    {word} {}", self.action_call(t, &t.default_action))?;
        if let Some(size) = t.size {
            writeln!(f, "    size {size}")?;
        }
        for e in &t.entries {
            let matches: Vec<String> =
                e.matches.iter().zip(&t.keys).map(|(m, k)| self.matching(m, &k.expr.ty)).collect();
            let word = if e.is_const { "const entry" } else { "entry" };
            let priority =
                e.priority.as_ref().map_or_else(String::new, |p| format!(" priority {p}"));
            writeln!(
                f,
                "    {word}{priority} ({}) -> {}",
                matches.join(", "),
                self.action_call(t, &e.action)
            )?;
        }
        for (property, e) in &t.attached {
            let name = self.program.externs.get(e.index()).map_or("?", |e| e.name.as_str());
            writeln!(f, "    {property} = {name}")?;
        }
        writeln!(f, "}}")
    }

    fn target(&self, t: &Target) -> String {
        match t {
            Target::Accept => "accept".into(),
            Target::Reject => "reject".into(),
            Target::State(i) => self
                .program
                .parser
                .states
                .get(*i as usize)
                .map_or_else(|| "?".into(), |s| s.name.clone()),
        }
    }

    fn parser(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = &self.program.parser;
        writeln!(f, "parser {} {{", p.name)?;
        self.block(f, &p.prologue, 1)?;
        for s in &p.states {
            writeln!(f, "    state {} {{", s.name)?;
            self.block(f, &s.body, 2)?;
            match &s.transition {
                Transition::To(t) => writeln!(f, "        goto {}", self.target(t))?,
                Transition::Select { keys, cases } => {
                    writeln!(f, "        select ({}) {{", self.list(keys))?;
                    for (matches, t, _) in cases {
                        let matches: Vec<String> = matches
                            .iter()
                            .zip(keys)
                            .map(|(m, k)| self.matching(m, &k.ty))
                            .collect();
                        writeln!(f, "            ({}): {}", matches.join(", "), self.target(t))?;
                    }
                    writeln!(f, "        }}")?;
                }
            }
            writeln!(f, "    }}")?;
        }
        writeln!(f, "}}")
    }
}

fn unary(op: UnaryOp) -> &'static str {
    match op {
        UnaryOp::Negate => "-",
        UnaryOp::Complement => "~",
        UnaryOp::Not => "!",
    }
}

fn binary(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
        BinaryOp::Mod => "%",
        BinaryOp::SaturatingAdd => "|+|",
        BinaryOp::SaturatingSub => "|-|",
        BinaryOp::ShiftLeft => "<<",
        BinaryOp::ShiftRight => ">>",
        BinaryOp::BitAnd => "&",
        BinaryOp::BitOr => "|",
        BinaryOp::BitXor => "^",
        BinaryOp::Eq => "==",
        BinaryOp::Ne => "!=",
        BinaryOp::Lt => "<",
        BinaryOp::Le => "<=",
        BinaryOp::Gt => ">",
        BinaryOp::Ge => ">=",
        BinaryOp::And => "&&",
        BinaryOp::Or => "||",
        BinaryOp::Concat => "++",
    }
}
