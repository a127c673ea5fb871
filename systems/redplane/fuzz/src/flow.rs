//! State per flow in generated programs: a LOCAL `FlowState`.

use fuzz_door::{Code, StateKind, StateObject, Struct, Ty, scalar};
use rand::Rng;
use rand::rngs::StdRng;

/// The kind.
pub(crate) struct Flows;

/// The types of a program's `FlowState`.
struct Flow {
    key: Struct,
    value: Struct,
}

impl StateKind for Flows {
    /// Keys of few values, so that packets meet, and values of any.
    fn draw(&self, prefix: &str, random: &mut StdRng) -> Box<dyn StateObject> {
        let mut key = vec![("k0".to_owned(), Ty::bits(random.random_range(1..4)))];
        if random.random() {
            key.push((
                "k1".to_owned(),
                if random.random() { Ty::Bool } else { Ty::Bits { width: 2, signed: true } },
            ));
        }
        let value = (0..random.random_range(1..4))
            .map(|index| (format!("w{index}"), scalar(random)))
            .collect();
        let named = |name: &str, fields| Struct { name: format!("{prefix}{name}"), fields };
        Box::new(Flow { key: named("key_t", key), value: named("value_t", value) })
    }

    fn methods(&self) -> &'static [&'static str] {
        &["get", "get_or_allocate", "set"]
    }
}

impl StateObject for Flow {
    fn structs(&self) -> Vec<Struct> {
        vec![self.key.clone(), self.value.clone()]
    }

    fn declaration(&self) -> String {
        let (key, value) = (&self.key.name, &self.value.name);
        format!("FlowState<{key}, {value}>(1024, Consistency.LOCAL, Allocator.ZERO) flows;")
    }

    /// A flow's state is looked up, and changed if it is there, some of the time more than once.
    fn use_in(&self, code: &mut dyn Code) {
        let expressions: Vec<String> =
            self.key.fields.iter().map(|(_, ty)| code.expression(*ty, 1)).collect();
        code.line(&format!("{} fk = {{ {} }};", self.key.name, expressions.join(", ")));
        code.line(&format!("{} fv;", self.value.name));
        let name = if code.random().random_bool(0.3) {
            // Nobody has made it: what is allocated below is found by the next packet.
            let condition = code.expression(Ty::Bool, 1);
            code.line("if (flows.get(fk, fv) != StateResult.HIT) {");
            code.line(&format!("    if ({condition}) {{"));
            code.line("        flows.get_or_allocate(fk, fv);");
            code.line("    }");
            code.line("}");
            "get"
        } else {
            "get_or_allocate"
        };
        let leaves: Vec<(String, Ty)> =
            self.value.fields.iter().map(|(name, ty)| (format!("fv.{name}"), *ty)).collect();
        code.open(&format!("if (flows.{name}(fk, fv) == StateResult.HIT) {{"), &leaves);
        let count = code.random().random_range(1..4);
        code.statements(count, 1);
        if code.random().random_bool(0.8) {
            let (field, ty) = &leaves[0];
            let value = code.expression(*ty, 2);
            code.line(&format!("{field} = {value};"));
            code.line("flows.set(fk, fv);");
        }
        if code.random().random_bool(0.4) {
            // The packet reads back what it has set, and sets it anew.
            let condition = code.expression(Ty::Bool, 1);
            code.line(&format!("if ({condition}) {{"));
            code.line("    flows.get(fk, fv);");
            let (field, ty) = &leaves[leaves.len() - 1];
            let value = code.expression(*ty, 2);
            code.line(&format!("    {field} = {value};"));
            code.line("    flows.set(fk, fv);");
            code.line("}");
        }
        code.close();
    }
}
