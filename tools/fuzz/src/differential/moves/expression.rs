//! Expressions of every kind.

use super::{Callable, ELEMENTS, Inside, Kind, Scope, Use};

/// Deeper calls would grow without end.
const MOST_DEPTH: u32 = 3;

impl Scope<'_> {
    /// A value of a kind; stacks and unions are places.
    pub fn value(&mut self, kind: Kind, depth: u32) -> String {
        match kind {
            Kind::Byte => self.byte(depth),
            Kind::Head => self.head(depth),
            Kind::Pair => self.pair(depth),
            Kind::Nest => self.nest(depth),
            Kind::Stack | Kind::Union => {
                self.place(kind, Use::Read).unwrap_or_else(|| "{#}".into())
            }
        }
    }

    /// A place of a kind: a variable, or a part of one.
    pub fn place(&mut self, kind: Kind, what_for: Use) -> Option<String> {
        let mut found = Vec::new();
        let writable = what_for != Use::Read;
        for place in self.places.iter().filter(|place| place.writable || !writable) {
            let path = &place.path;
            let parts: &[&str] = match (place.kind, kind) {
                (own, wanted) if own == wanted => &[""],
                (Kind::Nest, Kind::Pair) => &[".p"],
                (Kind::Nest, Kind::Head) => &[".h"],
                (Kind::Nest, Kind::Byte) => &[".p.a", ".p.b", ".p.c"],
                (Kind::Pair, Kind::Byte) => &[".a", ".b", ".c"],
                (Kind::Union, Kind::Head) => &[".a"],
                (Kind::Stack, Kind::Head) => &["[?]", "[?]"],
                // What the fields of an invalid header are is left open: `mread` asks before.
                (Kind::Head, Kind::Byte) if what_for == Use::Write => &[".v", ".w"],
                (Kind::Stack, Kind::Byte) if what_for == Use::Write => &["[?].v"],
                _ => &[],
            };
            found.extend(parts.iter().map(|part| format!("{path}{part}")));
        }
        if found.is_empty() {
            return None;
        }
        let at = self.pick(found.len() as u32) as usize;
        let path = found.swap_remove(at);
        if !path.contains("[?]") {
            return Some(path);
        }
        if self.inside == Inside::Parser && self.pick(6) == 0 {
            // (`last` is read only: an empty stack is an error of the parser.)
            let part = if writable && self.pick(2) == 0 { ".next" } else { ".last" };
            return Some(path.replace("[?]", part));
        }
        let index = self.index();
        Some(path.replace("?", &index))
    }

    /// An index of a stack, in bounds or one beyond.
    fn index(&mut self) -> String {
        match self.pick(3) {
            0 => self.pick(ELEMENTS).to_string(),
            _ => {
                let mask = [1, 1, 1, 3][self.pick(4) as usize];
                match self.place(Kind::Byte, Use::Read) {
                    Some(path) if self.pick(2) == 0 => format!("{path} & {mask}"),
                    _ => format!(
                        "{} & {mask}",
                        self.called(Kind::Byte, 1).unwrap_or_else(|| "1".into())
                    ),
                }
            }
        }
    }

    /// A call of a function that gives this kind.
    pub fn called(&mut self, kind: Kind, depth: u32) -> Option<String> {
        let list: Vec<Callable> = self
            .functions
            .iter()
            .filter(|function| {
                function.result == Some(kind) && self.cost + function.cost <= super::MOST_COST
            })
            .cloned()
            .collect();
        if list.is_empty() || depth > MOST_DEPTH {
            return None;
        }
        let function = list[self.pick(list.len() as u32) as usize].clone();
        let arguments = self.arguments(&function, depth.saturating_sub(1), "")?;
        self.cost += function.cost;
        Some(format!("{}({arguments})", function.name))
    }

    /// Arguments, in the order of the declaration or by name; `first` stands before them. None:
    /// there is no place for one that is written.
    pub fn arguments(&mut self, callable: &Callable, depth: u32, first: &str) -> Option<String> {
        let mut given = Vec::new();
        for parameter in &callable.parameters {
            let value = match parameter.direction {
                "in" | "" => self.value(parameter.kind, depth),
                "out" => self.place(parameter.kind, Use::Write)?,
                _ => self.place(parameter.kind, Use::Change)?,
            };
            if value == "{#}" && matches!(parameter.kind, Kind::Stack | Kind::Union) {
                return None;
            }
            given.push((parameter.name.clone(), value));
        }
        let named = first.is_empty() && given.len() > 1 && self.pick(3) == 0;
        if named {
            let turn = self.pick(given.len() as u32) as usize;
            given.rotate_left(turn);
        }
        let text = |(name, value): &(String, String)| match named {
            true => format!("{name} = {value}"),
            false => value.clone(),
        };
        let list = given.iter().map(text);
        let first = Some(first.to_owned()).filter(|first| !first.is_empty());
        Some(first.into_iter().chain(list).collect::<Vec<_>>().join(", "))
    }

    fn or_leaf(&mut self, found: Option<String>) -> String {
        match found {
            Some(text) => text,
            None => format!("8w{}", self.pick(256)),
        }
    }

    /// A `bit<8>`, in parentheses where it needs them.
    pub fn byte(&mut self, depth: u32) -> String {
        let kind = if depth == 0 { self.pick(3) } else { self.pick(24) };
        let below = depth.saturating_sub(1);
        let prefix = self.prefix.to_owned();
        match kind {
            0 => format!("8w{}", self.pick(256)),
            1 | 2 => {
                let found = self.place(Kind::Byte, Use::Read);
                self.or_leaf(found)
            }
            3..=6 => {
                let found = self.called(Kind::Byte, depth);
                self.or_leaf(found)
            }
            7 | 8 => {
                let operators = ["+", "-", "^", "&", "|", "*", "|+|", "|-|", "/", "%"];
                let operator = operators[self.pick(operators.len() as u32) as usize];
                let left = self.byte(below);
                // By a constant only (P4-16 §8.6).
                let by_constant = matches!(operator, "/" | "%");
                let right =
                    if by_constant { (1 + self.pick(9)).to_string() } else { self.byte(below) };
                format!("({left} {operator} {right})")
            }
            9 => {
                let low = self.pick(5);
                format!(
                    "(({})[{}:{low}] ++ ({})[3:0])",
                    self.byte(below),
                    low + 3,
                    self.byte(below)
                )
            }
            10 => format!("((bit<8>)((bit<16>){} * 3)[11:4])", self.byte(below)),
            11 | 12 => {
                format!("({} ? {} : {})", self.condition(below), self.byte(below), self.byte(below))
            }
            13 | 14 => {
                let field = ["a", "b", "c"][self.pick(3) as usize];
                let value = self.pair(below);
                let value = if value.starts_with('(') { format!("({value})") } else { value };
                format!("{value}.{field}")
            }
            15 | 16 => format!("{prefix}mread({})", self.head(below)),
            17 => format!("{prefix}mid({})", self.byte(below)),
            18 => {
                let operator = if self.pick(2) == 0 { "|+|" } else { ">>" };
                let right = if operator == ">>" {
                    "1".to_owned()
                } else {
                    format!("(int<8>){}", self.byte(below))
                };
                format!("((bit<8>)((int<8>){} {operator} {right}))", self.byte(below))
            }
            19 => format!("({} << ({})[2:0])", self.byte(below), self.byte(below)),
            20 => format!("((bit<8>)(bit<1>){})", self.condition(below)),
            21 => match self.pick(3) {
                0 => format!("((bit<8>)({prefix}my_t){})", self.byte(below)),
                1 => format!("((bit<8>)({prefix}ms_t){})", self.byte(below)),
                _ => format!("((bit<8>){prefix}ms_t.Y)"),
            },
            22 if self.inside == Inside::Parser => "pkt.lookahead<bit<8>>()".into(),
            _ => format!("(~{})", self.byte(below)),
        }
    }

    pub fn head(&mut self, depth: u32) -> String {
        let literal = |scope: &mut Self| {
            let below = depth.saturating_sub(1);
            let (v, w) = (scope.byte(below), scope.byte(below));
            let prefix = scope.prefix;
            match scope.pick(2) {
                0 => format!("({prefix}mh_t){{ v = {v}, w = {w} }}"),
                _ => format!("({prefix}mh_t){{ w = {w}, v = {v} }}"),
            }
        };
        let found = match self.pick(4) {
            0 if depth > 0 => Some(literal(self)),
            1 if depth > 0 => self.called(Kind::Head, depth),
            _ => self.place(Kind::Head, Use::Read),
        };
        found.unwrap_or_else(|| literal(self))
    }

    pub fn pair(&mut self, depth: u32) -> String {
        let literal = |scope: &mut Self| {
            let below = depth.saturating_sub(1);
            let (a, b, c) = (scope.byte(below), scope.byte(below), scope.byte(0));
            let prefix = scope.prefix;
            match scope.pick(3) {
                0 => format!("({prefix}mp_t){{ a = {a}, b = {b}, c = {c} }}"),
                1 => format!("({prefix}mp_t){{ c = {c}, a = {a}, b = {b} }}"),
                _ => format!("({prefix}mp_t){{ {a}, {b}, {c} }}"),
            }
        };
        let found = match self.pick(5) {
            0 if depth > 0 => Some(literal(self)),
            1 if depth > 0 => self.called(Kind::Pair, depth),
            2 if depth > 0 => {
                let inner = self.pair(depth - 1);
                Some(format!("{}mid({inner})", self.prefix))
            }
            _ => self.place(Kind::Pair, Use::Read),
        };
        found.unwrap_or_else(|| literal(self))
    }

    fn nest(&mut self, depth: u32) -> String {
        let found = match self.pick(3) {
            0 => self.called(Kind::Nest, depth),
            _ => self.place(Kind::Nest, Use::Read),
        };
        found.unwrap_or_else(|| {
            let below = depth.saturating_sub(1);
            let (n, p, h) = (self.byte(below), self.pair(below), self.head(below));
            format!("({}mn_t){{ n = ({n})[3:0], h = {h}, p = {p} }}", self.prefix)
        })
    }

    pub fn condition(&mut self, depth: u32) -> String {
        let below = depth.saturating_sub(1);
        match if depth == 0 { self.pick(2) } else { self.pick(12) } {
            0 => format!("({} < {})", self.byte(below), self.byte(below)),
            1 => match self.place(Kind::Head, Use::Read) {
                Some(path) => format!("{path}.isValid()"),
                None => format!("({} == 3)", self.byte(below)),
            },
            2 | 3 => {
                let operator = if self.pick(2) == 0 { "&&" } else { "||" };
                format!("({} {operator} {})", self.condition(below), self.condition(below))
            }
            4 => format!("(!{})", self.condition(below)),
            5 => self.same(Kind::Head, below),
            6 => self.same(Kind::Pair, below),
            7 => {
                let kind = [Kind::Stack, Kind::Union, Kind::Nest][self.pick(3) as usize];
                let both = (self.place(kind, Use::Read), self.place(kind, Use::Read));
                match both {
                    (Some(a), Some(b)) => format!("({a} == {b})"),
                    _ => format!("({} != 7)", self.byte(below)),
                }
            }
            8 => {
                let list = [self.byte(below), self.byte(below), self.byte(below), self.byte(0)];
                let ty = "(tuple<bit<8>, bit<8>>)";
                format!(
                    "({ty}{{ {}, {} }} == {ty}{{ {}, {} }})",
                    list[0], list[1], list[2], list[3]
                )
            }
            9 => format!("((bool)({})[2:2])", self.byte(below)),
            10 if !self.tables.is_empty() => {
                let at = self.pick(self.tables.len() as u32) as usize;
                let (name, _) = self.tables[at].clone();
                let part = if self.pick(2) == 0 { "hit" } else { "miss" };
                self.cost += 4;
                format!("{name}.apply().{part}")
            }
            _ => format!("((int<8>){} >= (int<8>){})", self.byte(below), self.byte(below)),
        }
    }

    fn same(&mut self, kind: Kind, depth: u32) -> String {
        let operator = if self.pick(2) == 0 { "==" } else { "!=" };
        format!("({} {operator} {})", self.value(kind, depth), self.value(kind, depth))
    }
}
