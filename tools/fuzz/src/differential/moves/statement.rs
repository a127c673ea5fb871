//! Statements.

use super::{Callable, Inside, Kind, MOST_COST, Scope, Use};

impl Scope<'_> {
    /// So many statements, nested so deep; what they declare is gone behind them.
    pub fn statements(&mut self, count: u32, depth: u32) {
        let places = self.places.len();
        for _ in 0..count {
            self.statement(depth);
        }
        self.places.truncate(places);
    }

    fn statement(&mut self, depth: u32) {
        self.cost += 1;
        let control = self.inside == Inside::Control;
        let tables = !self.tables.is_empty();
        match self.pick(40) {
            0..=6 => self.assign(),
            7 => self.slice(),
            8..=10 => self.call(),
            11..=13 if depth > 0 => self.branch(depth),
            14 if depth > 0 && self.inside != Inside::Parser => self.switch(depth),
            15 if depth > 0 => {
                let atomic = if self.registers && self.pick(3) == 0 { "@atomic " } else { "" };
                // Under a lock there are no calls: only the packet's own values, or one register.
                let registers = self.registers;
                self.registers = registers && atomic.is_empty();
                let tables = std::mem::take(&mut self.tables);
                // An instance may apply a table.
                let instances = (!atomic.is_empty()).then(|| {
                    (std::mem::take(&mut self.instances), std::mem::take(&mut self.direct))
                });
                let places = self.places.len();
                self.open(format!("{atomic}{{"));
                self.shadow();
                self.statements(2, depth - 1);
                self.close();
                self.places.truncate(places);
                (self.registers, self.tables) = (registers, tables);
                if let Some(instances) = instances {
                    (self.instances, self.direct) = instances;
                }
            }
            16 | 17 => self.validity(),
            18 => self.push_or_pop(),
            19 => {
                let kind = Kind::ALL[self.pick(6) as usize];
                self.declare(kind);
            }
            20 | 21 if self.inside != Inside::Parser => self.leave(),
            22 | 23 if self.inside == Inside::Action || control => self.action(),
            24..=26 if control => self.instance(),
            27..=29 if self.registers => self.register(),
            30 if self.registers => self.hash(),
            31 | 32 if control && tables && depth > 0 => self.table(depth),
            33 => self.swap(),
            _ => self.assign(),
        }
    }

    fn assign(&mut self) {
        let kind = [
            Kind::Byte,
            Kind::Byte,
            Kind::Byte,
            Kind::Head,
            Kind::Pair,
            Kind::Nest,
            Kind::Stack,
            Kind::Union,
        ][self.pick(8) as usize];
        let Some(target) = self.place(kind, Use::Write) else { return };
        let value = if kind == Kind::Head && self.pick(8) == 0 {
            "{#}".into()
        } else {
            self.value(kind, 2)
        };
        self.line(format!("{target} = {value};"));
    }

    fn slice(&mut self) {
        let Some(target) = self.place(Kind::Byte, Use::Change) else { return };
        let (low, value) = (self.pick(6), self.byte(2));
        // Slices of slices, too.
        let target = if self.pick(3) == 0 { format!("{target}[7:1]") } else { target };
        self.line(format!("{target}[{}:{low}] = ({value})[1:0];", low + 1));
    }

    fn call(&mut self) {
        self.invoke(|it| &it.functions);
    }

    /// Calls one of these that the program has time for; without any it assigns something.
    fn invoke(&mut self, of: fn(&Self) -> &[Callable]) {
        let affordable = |it: &&Callable| self.cost + it.cost <= MOST_COST;
        let list: Vec<Callable> = of(self).iter().filter(affordable).cloned().collect();
        if list.is_empty() {
            return self.assign();
        }
        let called = list[self.pick(list.len() as u32) as usize].clone();
        let Some(arguments) = self.arguments(&called, 2, "") else { return };
        self.cost += called.cost;
        self.line(format!("{}({arguments});", called.name));
    }

    fn branch(&mut self, depth: u32) {
        let condition = self.condition(2);
        self.open(format!("if ({condition}) {{"));
        self.statements(2, depth - 1);
        self.close();
        if self.pick(2) == 0 {
            let condition = self.condition(1);
            // One line: `else` behind a line of its own is shortened badly.
            self.open(format!("if ({condition}) {{ }} else {{"));
            self.statements(1, depth - 1);
            self.close();
        }
    }

    fn switch(&mut self, depth: u32) {
        let subject = self.byte(2);
        self.open(format!("switch (({subject})[1:0]) {{"));
        for label in ["0", "1: 2"].into_iter().take(1 + self.pick(2) as usize) {
            self.open(format!("{label}: {{"));
            self.statements(1, depth - 1);
            self.close();
        }
        self.open("default: {");
        self.statements(1, depth - 1);
        self.close();
        self.close();
    }

    /// A local with the name of one outside.
    fn shadow(&mut self) {
        let known: Vec<String> = self
            .places
            .iter()
            .filter(|place| place.path.starts_with('x'))
            .map(|place| place.path.clone())
            .collect();
        if known.is_empty() {
            self.declare(Kind::Byte);
            return;
        }
        let name = known[self.pick(known.len() as u32) as usize].clone();
        // What the outer one was is out of sight.
        let hidden: Vec<super::Place> =
            self.places.iter().filter(|place| place.path != name).cloned().collect();
        let outer = std::mem::replace(&mut self.places, hidden);
        let value = self.byte(1);
        self.line(format!("bit<8> {name} = {value};"));
        self.places.push(super::Place { path: name, kind: Kind::Byte, writable: true });
        self.statements(2, 0);
        self.places = outer;
        // The rest of the block would see the wrong kind.
        self.close();
        self.open("{");
    }

    fn validity(&mut self) {
        let Some(target) = self.place(Kind::Head, Use::Change) else { return };
        let word = if self.pick(3) == 0 { "setInvalid" } else { "setValid" };
        self.line(format!("{target}.{word}();"));
        let unions: Vec<String> = self
            .places
            .iter()
            .filter(|place| place.kind == Kind::Union && place.writable)
            .map(|place| place.path.clone())
            .collect();
        if !unions.is_empty() && self.pick(2) == 0 {
            let union = unions[self.pick(unions.len() as u32) as usize].clone();
            self.line(format!("{union}.b.{word}();"));
            let (high, low) = (self.byte(1), self.byte(1));
            self.line(format!("{union}.b.v = {high} ++ {low};"));
        }
    }

    fn push_or_pop(&mut self) {
        let Some(target) = self.place(Kind::Stack, Use::Change) else { return self.assign() };
        let word = if self.pick(2) == 0 { "push_front" } else { "pop_front" };
        let count = 1 + self.pick(2);
        self.line(format!("{target}.{word}({count});"));
    }

    fn leave(&mut self) {
        let condition = self.condition(2);
        self.open(format!("if ({condition}) {{"));
        match (self.inside, self.result) {
            (Inside::Function, Some(kind)) => {
                let value = self.value(kind, 1);
                let value = if value == "{#}" { self.head(1) } else { value };
                self.line(format!("return {value};"));
            }
            (Inside::Action | Inside::Control, _) if self.pick(2) == 0 => self.line("exit;"),
            _ => self.line("return;"),
        }
        self.close();
    }

    fn action(&mut self) {
        self.invoke(|it| &it.actions);
    }

    fn instance(&mut self) {
        let direct = self.direct.iter();
        let list: Vec<Callable> = self
            .instances
            .iter()
            .chain(direct)
            .filter(|control| self.cost + control.cost <= MOST_COST)
            .cloned()
            .collect();
        if list.is_empty() {
            return self.assign();
        }
        let control = list[self.pick(list.len() as u32) as usize].clone();
        self.cost += control.cost;
        // Two applications by the type would be two instances of one name.
        self.direct.retain(|other| other.name != control.name);
        self.apply(&control, "");
    }

    /// Applies an instance; `first` are arguments that stand before the others.
    pub fn apply(&mut self, instance: &Callable, first: &str) {
        for parameter in &instance.parameters {
            // Something of every kind is there to be given.
            let is_place =
                matches!(parameter.kind, Kind::Stack | Kind::Union) || parameter.direction != "in";
            if is_place && self.place(parameter.kind, use_of(parameter.direction)).is_none() {
                self.declare(parameter.kind);
            }
        }
        let depth = if self.inside == Inside::Parser { 1 } else { 2 };
        let Some(mut arguments) = self.arguments(instance, depth, first) else { return };
        // What a parser that rejects leaves in arguments that share storage is left open.
        for _ in 0..if self.inside == Inside::Parser { 8 } else { 0 } {
            if !self.shares(&arguments) {
                break;
            }
            let Some(other) = self.arguments(instance, 0, first) else { return };
            arguments = other;
        }
        self.line(format!("{}.apply({arguments});", instance.name));
    }

    /// Whether one variable stands in arguments twice.
    fn shares(&self, arguments: &str) -> bool {
        self.places.iter().any(|place| arguments.matches(&place.path).count() > 1)
    }

    fn register(&mut self) {
        let index = format!("(bit<32>)(({}) & 7)", self.byte(2));
        let value = self.byte(2);
        match self.pick(6) {
            0 | 1 => self.line(format!("left.write({index}, {value});")),
            2 => {
                let Some(target) = self.place(Kind::Byte, Use::Write) else { return };
                self.line(format!("left.read({target}, {index});"));
            }
            3 => {
                let Some(target) = self.place(Kind::Byte, Use::Change) else { return };
                let low = self.pick(5);
                self.line(format!("nibbles.read({target}[{}:{low}], {index});", low + 3));
            }
            4 => self.line(format!("seen.count({index});")),
            _ => {
                // A plain update: in a narrow element the bits above it mean nothing.
                let Some(target) = self.place(Kind::Byte, Use::Change) else { return };
                let element = self.pick(8);
                self.locals += 1;
                let name = format!("x{}", self.locals);
                self.line(format!("bit<4> {name};"));
                self.line(format!("nibbles.read({name}, {element});"));
                self.line(format!("nibbles.write({element}, {name} + 5);"));
                self.line(format!("{target} = 4w0 ++ {name};"));
            }
        }
    }

    fn hash(&mut self) {
        let Some(target) = self.place(Kind::Byte, Use::Write) else { return };
        let algorithm = ["crc16", "crc32", "csum16", "xor16"][self.pick(4) as usize];
        let (a, b) = (self.byte(1), self.byte(1));
        // A header's own fields: those of an invalid one are left out.
        let list = match self.place(Kind::Head, Use::Read) {
            Some(path) if !path.contains('[') => format!("{{ {a}, {path}.v, {path}.w, {b} }}"),
            _ => format!("{{ {a}, {b} }}"),
        };
        let (base, most) = (self.byte(1), 1 + self.pick(255));
        self.line(format!("hash({target}, HashAlgorithm.{algorithm}, {base}, {list}, 8w{most});"));
    }

    fn table(&mut self, depth: u32) {
        let at = self.pick(self.tables.len() as u32) as usize;
        let (name, actions) = self.tables[at].clone();
        self.cost += 6;
        match self.pick(3) {
            0 => self.line(format!("{name}.apply();")),
            1 => {
                self.open(format!("if ({name}.apply().hit) {{"));
                self.statements(1, depth - 1);
                self.close();
            }
            _ => {
                self.open(format!("switch ({name}.apply().action_run) {{"));
                self.open(format!("{}: {{", actions[0]));
                self.statements(1, depth - 1);
                self.close();
                self.open("default: {");
                self.statements(1, depth - 1);
                self.close();
                self.close();
            }
        }
    }

    fn swap(&mut self) {
        let kind = Kind::ALL[self.pick(6) as usize];
        if let (Some(a), Some(b)) = (self.place(kind, Use::Change), self.place(kind, Use::Change)) {
            self.line(format!("{}mswap({a}, {b});", self.prefix));
        }
    }

    /// A header of variable length is extracted, its length computed with effects.
    pub fn varbit_extract(&mut self) {
        let length = match self.pick(2) {
            0 => "(bit<32>)(pkt.lookahead<bit<3>>() ++ 3w0)".to_owned(),
            _ => format!("(bit<32>)(({})[2:0] ++ 3w0)", self.byte(2)),
        };
        let condition = self.condition(1);
        self.line(format!("if ({condition}) {{ pkt.extract(hdr.mx.vb, {length}); }}"));
    }

    /// Copies of that header, and hashes over it.
    pub fn varbit_moves(&mut self) {
        let ty = format!("{}mv_t", self.prefix);
        let (condition, value) = (self.condition(1), self.byte(1));
        self.line(format!("{ty} copy = hdr.mx.vb;"));
        match self.pick(4) {
            0 => self
                .line(format!("if ({condition}) {{ hdr.mx.vb.setInvalid(); hdr.mx.vb = copy; }}")),
            1 => {
                self.line(format!(
                    "if (copy.isValid()) {{ copy.k = ({value})[4:0]; hdr.mx.vb = copy; }}"
                ));
            }
            2 => {
                self.line(format!("if ({condition} && copy.isValid()) {{ hdr.mx.vb.d = copy.d; }}"))
            }
            _ => {}
        }
        let algorithm = ["crc16", "crc32", "csum16", "xor16"][self.pick(4) as usize];
        self.line("bit<16> sum;");
        let list = "{ hdr.mx.vb.n, hdr.mx.vb.k, hdr.mx.vb.d, meta.mx.b }";
        self.line(format!("hash(sum, HashAlgorithm.{algorithm}, 16w0, {list}, 16w65535);"));
        self.line("ends.write(8, sum[7:0]);");
        self.line("ends.write(9, sum[15:8]);");
    }
}

fn use_of(direction: &str) -> Use {
    match direction {
        "out" => Use::Write,
        "inout" => Use::Change,
        _ => Use::Read,
    }
}
