//! State per flow: a LOCAL `FlowState`.

use super::statement::Body;
use super::types::Ty;
use super::types::{Record, record_leaves, scalar};
use rand::Rng;
use rand::rngs::StdRng;

/// The types of a program's `FlowState`.
pub(super) struct Flow {
    pub key: Record,
    pub value: Record,
}

/// Draws keys of few values, so that packets meet, and values of any.
pub(super) fn draw(prefix: &str, random: &mut StdRng) -> Flow {
    let mut key = vec![("k0".to_owned(), Ty::bits(random.random_range(1..4)))];
    if random.random() {
        key.push((
            "k1".to_owned(),
            if random.random() { Ty::Bool } else { Ty::Bits { width: 2, signed: true } },
        ));
    }
    let value =
        (0..random.random_range(1..4)).map(|index| (format!("w{index}"), scalar(random))).collect();
    let record =
        |name: &str, fields| Record { name: format!("{prefix}{name}"), fields, inner: Vec::new() };
    Flow { key: record("key_t", key), value: record("value_t", value) }
}

impl Flow {
    pub fn declaration(&self) -> String {
        let (key, value) = (&self.key.name, &self.value.name);
        format!("    FlowState<{key}, {value}>(1024, Consistency.LOCAL, Allocator.ZERO) flows;")
    }

    /// A flow's state is looked up, and changed if it is there: at most one `set` on a packet's
    /// way.
    pub fn use_in(&self, body: &mut Body<'_>) {
        let expressions: Vec<String> =
            self.key.fields.iter().map(|(_, ty)| body.expression(*ty, 1)).collect();
        body.line(format!("{} fk = {{ {} }};", self.key.name, expressions.join(", ")));
        body.line(format!("{} fv;", self.value.name));
        let name = if body.random.random_bool(0.3) {
            // Nobody has made it: what is allocated below is found by the next packet.
            let condition = body.expression(Ty::Bool, 1);
            body.line("if (flows.get(fk, fv) != StateResult.HIT) {");
            body.line(format!("    if ({condition}) {{"));
            body.line("        flows.get_or_allocate(fk, fv);");
            body.line("    }");
            body.line("}");
            "get"
        } else {
            "get_or_allocate"
        };
        body.line(format!("if (flows.{name}(fk, fv) == StateResult.HIT) {{"));
        body.indent += 1;
        let (readable, writable) = (body.readable.len(), body.writable.len());
        let leaves = record_leaves(std::slice::from_ref(&self.value), "fv", 0);
        // Several times, so that they are used.
        body.readable.extend([leaves.clone(), leaves.clone(), leaves.clone()].concat());
        body.writable.extend(leaves);
        let count = body.random.random_range(1..4);
        body.statements(count, 1);
        if body.random.random_bool(0.8) {
            let (field, ty) = self.value.fields[0].clone();
            let value = body.expression(ty, 2);
            body.line(format!("fv.{field} = {value};"));
            body.line("flows.set(fk, fv);");
        }
        body.readable.truncate(readable);
        body.writable.truncate(writable);
        body.indent -= 1;
        body.line("}");
    }
}
