//! The grammar's corners: what the tree looks like.

use p4_syntax::ast::*;
use p4_syntax::{Options, parse_source, render_all};

#[track_caller]
fn parse(text: &str) -> Program {
    match parse_source("a.p4", text, &Options::default()) {
        Ok((program, _)) => program,
        Err((d, sources)) => panic!("{}", render_all(&d, &sources, false)),
    }
}

fn path(p: &Path) -> String {
    format!("{}{}", if p.absolute { "." } else { "" }, p.name)
}

fn types(ts: &[TypeRef]) -> String {
    ts.iter().map(ty).collect::<Vec<_>>().join(",")
}

fn ty(t: &TypeRef) -> String {
    match &t.kind {
        TypeKind::Bool => "bool".into(),
        TypeKind::Error => "error".into(),
        TypeKind::MatchKind => "match_kind".into(),
        TypeKind::String => "string".into(),
        TypeKind::Void => "void".into(),
        TypeKind::Integer => "int".into(),
        TypeKind::Bit(None) => "bit".into(),
        TypeKind::Bit(Some(w)) => format!("bit<{}>", sx(w)),
        TypeKind::Int(w) => format!("int<{}>", sx(w)),
        TypeKind::Varbit(w) => format!("varbit<{}>", sx(w)),
        TypeKind::Named(p) => path(p),
        TypeKind::Specialized { base, args } => format!("{}<{}>", path(base), types(args)),
        TypeKind::Stack { elem, size } => format!("{}[{}]", ty(elem), sx(size)),
        TypeKind::Tuple(args) => format!("tuple<{}>", types(args)),
        TypeKind::List(e) => format!("list<{}>", ty(e)),
        TypeKind::DontCare => "_".into(),
    }
}

fn list<'a>(es: impl IntoIterator<Item = &'a Expr>) -> String {
    es.into_iter().map(sx).collect::<Vec<_>>().join(" ")
}

/// An expression with all its structure visible.
fn sx(e: &Expr) -> String {
    match &e.kind {
        ExprKind::Int(i) => match i.width {
            Some(w) => format!("{w}{}{}", if i.signed { "s" } else { "w" }, i.value),
            None => i.value.to_string(),
        },
        ExprKind::Bool(b) => b.to_string(),
        ExprKind::Str(s) => format!("{s:?}"),
        ExprKind::Path(p) => path(p),
        ExprKind::Type(t) => format!("(type {})", ty(t)),
        ExprKind::ErrorMember(m) => format!("error.{m}"),
        ExprKind::This => "this".into(),
        ExprKind::Dots => "...".into(),
        ExprKind::Member { base, member } => format!("{}.{member}", sx(base)),
        ExprKind::Index { base, index } => format!("(at {} {})", sx(base), sx(index)),
        ExprKind::Slice { base, high, low } => {
            format!("(slice {} {} {})", sx(base), sx(high), sx(low))
        }
        ExprKind::PartSelect { base, low, width } => {
            format!("(part {} {} {})", sx(base), sx(low), sx(width))
        }
        ExprKind::Call { callee, type_args, args } => {
            let generic = if type_args.is_empty() {
                String::new()
            } else {
                format!("<{}>", types(type_args))
            };
            let args: Vec<String> = args
                .iter()
                .map(|a| {
                    let value = a.value.as_ref().map_or("_".into(), sx);
                    a.name.as_ref().map_or(value.clone(), |n| format!("{n}={value}"))
                })
                .collect();
            format!("{}{generic}({})", sx(callee), args.join(","))
        }
        ExprKind::Cast { ty: t, expr } => format!("(cast {} {})", ty(t), sx(expr)),
        ExprKind::Unary { op, expr, .. } => format!("({op} {})", sx(expr)),
        ExprKind::Binary { op, left, right, .. } => format!("({op} {} {})", sx(left), sx(right)),
        ExprKind::Conditional { condition, then_value, else_value } => {
            format!("(? {})", list([&**condition, then_value, else_value]))
        }
        ExprKind::List(items) => format!("{{{}}}", list(items)),
        ExprKind::Struct { fields, dots } => {
            let fields: Vec<String> =
                fields.iter().map(|f| format!("{}={}", f.name, sx(&f.value))).collect();
            format!("{{{}{}}}", fields.join(" "), if dots.is_some() { " ..." } else { "" })
        }
        ExprKind::Invalid => "{#}".into(),
    }
}

/// Declarations that the expressions below refer to; `T`, `G` and `E` are types, `a`, `b`, `c`
/// values.
const CONTEXT: &str =
    "struct T {} struct G<X> {} enum E { A } const int a = 1; const int b = 2; const int c = 3;\n";

#[track_caller]
fn expression(text: &str, expected: &str) {
    let program = parse(&format!("{CONTEXT}const int x = {text};"));
    let Some(Declaration::Constant(d)) = program.declarations.last() else { panic!("no constant") };
    assert_eq!(sx(&d.value), expected, "{text}");
}

#[test]
fn precedence_is_p4s_not_cs() {
    expression("a + b * c", "(+ a (* b c))");
    expression("a * b + c", "(+ (* a b) c)");
    expression("a - b - c", "(- (- a b) c)");
    expression("a & b == c", "(== (& a b) c)");
    expression("a | b ^ c & a << b ++ c", "(| a (^ b (& c (<< a (++ b c)))))");
    expression("a < b == c > a", "(== (< a b) (> c a))");
    expression("a && b || c", "(|| (&& a b) c)");
    expression("a || b && c", "(|| a (&& b c))");
    expression("!a == ~b", "(== (! a) (~ b))");
    expression("-a.f[1] + +b", "(+ (- (at a.f 1)) (+ b))");
    expression("a |+| b |-| c", "(|-| (|+| a b) c)");
    expression("a ? b : c ? 1 : 2", "(? a b (? c 1 2))");
    expression("a ? b ? 1 : 2 : 3", "(? a (? b 1 2) 3)");
    expression("a >> b >= c", "(>= (>> a b) c)");
}

#[test]
fn types_and_values_are_told_apart() {
    expression("(T) - 1", "(cast T (- 1))");
    expression("(a) - 1", "(- a 1)");
    expression("(T)(a)", "(cast T a)");
    expression("(a)(b)", "a(b)");
    expression("(bit<8>) a + b", "(+ (cast bit<8> a) b)");
    expression("(bit<8>) (bit<4>) a", "(cast bit<8> (cast bit<4> a))");
    expression("(undeclared) a", "(cast undeclared a)");
    expression("(.T) a", "(cast .T a)");
    expression("(G<bit<8>>) {1}", "(cast G<bit<8>> {1})");
    expression("(tuple<bit<8>, bool>) { 1, true }", "(cast tuple<bit<8>,bool> {1 true})");
    expression("(error) a", "(cast error a)");
    expression("(error.X)", "error.X");
    expression("(E.A)", "E.A");
    expression("a < b", "(< a b)");
    expression("a < b > (c)", "(> (< a b) c)");
    expression("a<T>(c)", "a<T>(c)");
    expression("a<bit<8>, G<T>>(c)", "a<bit<8>,G<T>>(c)");
    expression("a.m<_>()", "a.m<_>()");
    expression("a<.T>(c)", "a<.T>(c)");
    expression("a<T", "(< a T)");
    expression("a < E.A", "(< a E.A)");
    expression("{a < E.A, b > (c)}", "{(< a E.A) (> b c)}");
    expression("a < (bit<8>) b", "(< a (cast bit<8> b))");
    expression("G<bit<8>>.apply(a)", "(type G<bit<8>>).apply(a)");
    expression("T.apply(a, _)", "T.apply(a,_)");
    expression("a<list<bit<8>>>()", "a<list<bit<8>>>()");
}

#[test]
fn a_value_hides_a_type_of_the_same_name() {
    let text = format!(
        "{CONTEXT}bit<8> f(in bit<8> T) {{ return (T) - 1; }} T g(in T x) {{ return (T) - 1; }}"
    );
    let program = parse(&text);
    let returned: Vec<String> = program
        .declarations
        .iter()
        .filter_map(|d| match d {
            Declaration::Function(f) => match &f.body.statements[0].kind {
                StatementKind::Return(Some(e)) => Some(sx(e)),
                _ => None,
            },
            _ => None,
        })
        .collect();
    assert_eq!(returned, ["(- T 1)", "(cast T (- 1))"]);
}

#[test]
fn primaries_and_postfixes() {
    expression("8w0xFF", "8w255");
    expression("4s7", "4s7");
    expression("0b1010_0000", "160");
    expression("0o17", "15");
    expression("0d10", "10");
    expression("32w0d10", "32w10");
    expression("\"a\\\"b\\\\\" ++ \"c\"", "(++ \"a\\\"b\\\\\" \"c\")");
    expression("a[7:4]", "(slice a 7 4)");
    expression("a[b ? 1 : 2 : c]", "(slice a (? b 1 2) c)");
    expression("a[b+:4]", "(part a b 4)");
    expression("a[b + c +: 4]", "(part a (+ b c) 4)");
    expression("a.apply().hit", "a.apply().hit");
    expression("a.key.type.state", "a.key.type.state");
    expression("{}", "{}");
    expression("{a, b,}", "{a b}");
    expression("{...}", "{...}");
    expression("{a, ...}", "{a ...}");
    expression("{x = a, y = {b}}", "{x=a y={b}}");
    expression("{x = a, ...}", "{x=a ...}");
    expression("{#}", "{#}");
    expression("this.f(n = a, m = _)", "this.f(n=a,m=_)");
    expression(".a + .b", "(+ .a .b)");
    expression("error.NoError", "error.NoError");
    expression("list", "list");
    expression("a << 1 >> 2", "(>> (<< a 1) 2)");
}

fn control(body: &str) -> ControlDecl {
    let program = parse(&format!("{CONTEXT}control C(inout T t) {{ {body} }}"));
    match program.declarations.into_iter().last() {
        Some(Declaration::Control(c)) => c,
        other => panic!("{other:?}"),
    }
}

#[test]
fn statements() {
    let c = control(
        "apply { a = 1; a |+|= 2; a >>= 3; a <<= 4; t.f(); G<T>(1) g; T() u; T v; G<T> w = {1}; T[3] s; .T r; list<T> l; \
         state = 5; @x { } f<T>(1); error e = error.A; a[3:0] = 1; }",
    );
    let shapes: Vec<String> = c.body.statements.iter().map(|s| shape(&s.kind)).collect();
    assert_eq!(
        shapes,
        [
            "a = 1",
            "a |+|= 2",
            "a >>= 3",
            "a <<= 4",
            "t.f()",
            "instance G<T> g",
            "instance T u",
            "T v",
            "G<T> w = {1}",
            "T[3] s",
            ".T r",
            "list<T> l",
            "state = 5",
            "block @1",
            "f<T>(1)",
            "error e = error.A",
            "(slice a 3 0) = 1",
        ]
    );
}

fn shape(s: &StatementKind) -> String {
    match s {
        StatementKind::Assign { target, op, value, .. } => {
            format!("{} {}= {}", sx(target), op.map_or("", BinaryOp::as_str), sx(value))
        }
        StatementKind::Call(e) => sx(e),
        StatementKind::Block(b) => format!("block @{}", b.annotations.len()),
        StatementKind::Declaration(d) => match &**d {
            Declaration::Variable(v) => {
                let init = v.init.as_ref().map_or(String::new(), |e| format!(" = {}", sx(e)));
                format!("{} {}{init}", ty(&v.ty), v.name)
            }
            Declaration::Instantiation(i) => format!("instance {} {}", ty(&i.ty), i.name),
            other => format!("{other:?}"),
        },
        other => format!("{other:?}"),
    }
}

#[test]
fn loops_and_switches() {
    let c = control(
        "apply { for (bit<8> i = 0, j = 1; i < 3; i += 1, j = 2) { } for (;true;) ; for (T x in t.s) { } \
         @unroll for (@z bit<4> k in 1 .. b) break; switch (a) { 1: 2: { } default: { } } }",
    );
    let s: Vec<&StatementKind> = c.body.statements.iter().map(|s| &s.kind).collect();
    assert!(
        matches!(s[0], StatementKind::For { init, update, .. } if init.len() == 2 && update.len() == 2)
    );
    assert!(
        matches!(s[1], StatementKind::For { init, update, .. } if init.is_empty() && update.is_empty())
    );
    assert!(matches!(s[2], StatementKind::ForIn { collection: ForCollection::Expr(_), .. }));
    assert!(
        matches!(s[3], StatementKind::ForIn { collection: ForCollection::Range { .. }, annotations, variable, .. }
        if annotations.len() == 1 && variable.annotations.len() == 1)
    );
    let StatementKind::Switch { cases, .. } = s[4] else { panic!() };
    assert_eq!(cases.iter().map(|c| c.block.is_some()).collect::<Vec<_>>(), [false, true, true]);
    assert!(matches!(cases[2].label, SwitchLabel::Default(_)));
}

#[test]
fn an_else_belongs_to_the_nearest_if() {
    let c = control("apply { if (a == 1) if (b == 1) a = 1; else a = 2; }");
    let StatementKind::If { then_branch, else_branch, .. } = &c.body.statements[0].kind else {
        panic!()
    };
    assert!(else_branch.is_none());
    assert!(matches!(&then_branch.kind, StatementKind::If { else_branch: Some(_), .. }));
}

#[test]
fn tables() {
    let c = control(
        "action x(bit<8> p) { } table t { key = { t.f : exact @name(\"k\"); t.g & 3 : ternary; } \
         actions = { x; @defaultonly .NoAction; x(5); } \
         const entries = { (1, _) : x(1) @e; const priority = 10 : (2 &&& 3, 4 .. 5) : x(2); (7) : x; (a) + 1 : x; default : x; } \
         const default_action = x(9); size = 1 << 4; @i implementation = action_profile(128); } apply { }",
    );
    let Some(Declaration::Table(t)) = c.locals.get(1) else { panic!() };
    let names: Vec<(String, bool)> =
        t.properties.iter().map(|p| (p.name.to_string(), p.is_const)).collect();
    let expected = [
        ("key", false),
        ("actions", false),
        ("entries", true),
        ("default_action", true),
        ("size", false),
        ("implementation", false),
    ];
    assert_eq!(names, expected.map(|(n, c)| (n.to_string(), c)));
    let TablePropertyValue::Key(key) = &t.properties[0].value else { panic!() };
    assert_eq!(key[0].annotations.len(), 1);
    assert_eq!(key[1].match_kind.as_str(), "ternary");
    let TablePropertyValue::Actions(actions) = &t.properties[1].value else { panic!() };
    assert!(actions[1].path.absolute && actions[1].annotations.len() == 1);
    assert_eq!(actions[2].args.as_ref().map(Vec::len), Some(1));
    let TablePropertyValue::Entries(entries) = &t.properties[2].value else { panic!() };
    assert_eq!(
        entries.iter().map(|e| keyset(&e.keyset)).collect::<Vec<_>>(),
        ["(1,_)", "(2&&&3,4..5)", "7", "(+ a 1)", "default"]
    );
    assert!(entries[1].is_const && entries[1].priority.as_ref().is_some_and(|p| sx(p) == "10"));
    assert_eq!(entries[0].annotations.len(), 1);
}

fn keyset(k: &Keyset) -> String {
    match &k.kind {
        KeysetKind::Default => "default".into(),
        KeysetKind::DontCare => "_".into(),
        KeysetKind::Expr(e) => sx(e),
        KeysetKind::Mask { value, mask } => format!("{}&&&{}", sx(value), sx(mask)),
        KeysetKind::Range { low, high } => format!("{}..{}", sx(low), sx(high)),
        KeysetKind::Tuple(items) => {
            format!("({})", items.iter().map(keyset).collect::<Vec<_>>().join(","))
        }
    }
}

#[test]
fn parsers() {
    let program = parse(
        "parser P<H>(packet_in p, out H h); @a parser Q(packet_in p)(bit<8> n) { const int k = 1; bit<8> v; \
         value_set<tuple<bit<8>, bool>>(4) vs; P<bit<8>>() sub; \
         state start { bit<8> z = 1; sub.apply(p); transition select(z, v) { vs : two; (1 &&& 2, _) : two; (0) : accept; \
         (bit<8>) 3 : two; _ : reject; } } @n state two { if (v == 1) { v = 2; } transition accept; } state three { } }",
    );
    let Some(Declaration::Parser(q)) = program.declarations.get(1) else { panic!() };
    assert_eq!(q.locals.len(), 4);
    assert_eq!(q.constructor_params.as_ref().map(Vec::len), Some(1));
    assert_eq!(
        q.states.iter().map(|s| s.transition.is_some()).collect::<Vec<_>>(),
        [true, true, false]
    );
    let Some(Transition { kind: TransitionKind::Select { exprs, cases }, .. }) =
        &q.states[0].transition
    else {
        panic!()
    };
    assert_eq!(exprs.len(), 2);
    let cases: Vec<String> = cases.iter().map(|c| keyset(&c.keyset)).collect();
    assert_eq!(cases, ["vs", "(1&&&2,_)", "0", "(cast bit<8> 3)", "_"]);
}

#[test]
fn externs_packages_and_instances() {
    let program = parse(
        "extern X<T> { X(bit<32> n); X(); @pure T f<U>(in U u, @optional in T t, bit<8> d = 5); abstract void g(); } \
         extern void h<T>(out T t); extern T k<T>(); package Pk<H>(H h, bit<8> n = 1); \
         X<bit<8>>(3) x = { void g() { } X<bool>() inner; }; Pk(x, n = 2) main;",
    );
    let Declaration::ExternObject(x) = &program.declarations[0] else { panic!() };
    assert_eq!((x.constructors.len(), x.methods.len()), (2, 2));
    let f = &x.methods[0];
    assert!(f.params[1].is_optional() && !f.params[0].is_optional());
    assert_eq!(f.params[2].default.as_ref().map(sx).as_deref(), Some("5"));
    assert!(x.methods[1].is_abstract);
    let Declaration::Instantiation(i) = &program.declarations[4] else { panic!() };
    assert_eq!(i.initializer.as_ref().map(Vec::len), Some(2));
    assert!(matches!(&program.declarations[3], Declaration::Package(p) if p.params.len() == 2));
    let Declaration::Instantiation(main) = &program.declarations[5] else { panic!() };
    assert_eq!(main.args[1].name.as_ref().map(Ident::as_str), Some("n"));
}

#[test]
fn type_declarations() {
    let program = parse(
        "typedef bit<48> mac_t; type bit<9> port_t; typedef struct S<T> { T f; } s_t; enum E { A, B, } \
         enum bit<8> F { A = 1, B = 2 } error { X, Y } match_kind { k } header_union U { H h; } \
         header H { varbit<320> v; bit<(8 * 2)> w; int<8> i; H[4] st; tuple<> t; list<tuple<bit<8>, _>> l; } ; ;",
    );
    assert_eq!(program.declarations.len(), 9);
    let Declaration::Typedef(t) = &program.declarations[1] else { panic!() };
    assert!(t.is_new_type);
    assert!(
        matches!(&program.declarations[2], Declaration::Typedef(t) if matches!(t.target, TypedefTarget::Struct(_)))
    );
    let Declaration::Struct(h) = &program.declarations[8] else { panic!() };
    let fields: Vec<String> = h.fields.iter().map(|f| ty(&f.ty)).collect();
    assert_eq!(
        fields,
        ["varbit<320>", "bit<(* 8 2)>", "int<8>", "H[4]", "tuple<>", "list<tuple<bit<8>,_>>"]
    );
}

#[test]
fn annotations() {
    let program = parse(
        "@a @b() @c(x (y) \"q\\\"\" 0x1F ; ') @d[1, \"s\"] @e[k=1, l={2},] @table(1)\n@pragma p q(r) 1\nconst int x = 1;\n@pragma z\n\
         const int y = 2;",
    );
    let Declaration::Constant(c) = &program.declarations[0] else { panic!() };
    let names: Vec<&str> = c.annotations.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e", "table", "p"]);
    let AnnotationBody::Unstructured(tokens) = &c.annotations[2].body else { panic!() };
    let texts: Vec<&str> = tokens.iter().map(|t| &*t.text).collect();
    assert_eq!(texts, ["x", "(", "y", ")", "q\"", "0x1F", ";", "'"]);
    assert!(matches!(&c.annotations[3].body, AnnotationBody::Expressions(e) if e.len() == 2));
    assert!(matches!(&c.annotations[4].body, AnnotationBody::KeyValues(e) if e.len() == 2));
    assert!(matches!(&c.annotations[6].body, AnnotationBody::Unstructured(t) if t.len() == 5));
    assert_eq!(program.declarations[1].name().map(Ident::as_str), Some("y"));
}

#[test]
fn expression_ids_are_unique_and_dense() {
    let program =
        parse(&format!("{CONTEXT}const int x = a + b * f(c, {{a, b}}) ? (bit<8>) 1 : 2[3:4];"));
    let text = format!("{program:?}");
    let mut ids: Vec<u32> = text
        .split("id: ExprId(")
        .skip(1)
        .map(|s| s.split(')').next().unwrap().parse().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..program.expr_count).collect::<Vec<_>>());
}

#[test]
fn spans_cover_their_text() {
    let text = "const bit<8> x = (a + b.c) * f<bit<8>>(1);";
    let (program, sources) = parse_source("a.p4", text, &Options::default()).unwrap();
    let Declaration::Constant(d) = &program.declarations[0] else { panic!() };
    assert_eq!(sources.slice(d.span), text);
    assert_eq!(sources.slice(d.ty.span), "bit<8>");
    let ExprKind::Binary { left, right, op_span, .. } = &d.value.kind else { panic!() };
    assert_eq!(sources.slice(left.span), "a + b.c");
    assert_eq!(sources.slice(right.span), "f<bit<8>>(1)");
    assert_eq!(sources.slice(*op_span), "*");
}
