//! State in generated programs: a `SlotState`, of a size that some programs fill.

use fuzz_door::{Code, StateKind, StateObject, Struct, Ty, scalar};
use rand::Rng;
use rand::rngs::StdRng;

/// The kind.
pub(crate) struct Slots;

/// A program's `SlotState`.
struct Slot {
    key: Struct,
    value: Struct,
    size: u32,
}

impl StateKind for Slots {
    /// Keys of few values, so that packets meet, and values of any.
    fn draw(&self, prefix: &str, random: &mut StdRng) -> Box<dyn StateObject> {
        let key = vec![("k0".to_owned(), Ty::bits(random.random_range(1..4)))];
        let value = (0..random.random_range(1..4))
            .map(|index| (format!("w{index}"), scalar(random)))
            .collect();
        let size = if random.random_bool(0.3) { 2 } else { 64 };
        let named = |name: &str, fields| Struct { name: format!("{prefix}{name}"), fields };
        Box::new(Slot { key: named("slot_key_t", key), value: named("slot_value_t", value), size })
    }

    fn methods(&self) -> &'static [&'static str] {
        &["read", "write"]
    }
}

impl StateObject for Slot {
    fn structs(&self) -> Vec<Struct> {
        vec![self.key.clone(), self.value.clone()]
    }

    fn declaration(&self) -> String {
        format!("SlotState<{}, {}>({}) slots;", self.key.name, self.value.name, self.size)
    }

    /// The key's value is read, changed, and mostly written: at most one write of a packet, after
    /// it has read the same key.
    fn use_in(&self, code: &mut dyn Code) {
        let expressions: Vec<String> =
            self.key.fields.iter().map(|(_, ty)| code.expression(*ty, 1)).collect();
        code.line(&format!("{} lk = {{ {} }};", self.key.name, expressions.join(", ")));
        code.line(&format!("{} lv;", self.value.name));
        let leaves: Vec<(String, Ty)> =
            self.value.fields.iter().map(|(name, ty)| (format!("lv.{name}"), *ty)).collect();
        let found = ["FOUND", "ABSENT"][code.random().random_range(0..2)];
        code.open(&format!("if (slots.read(lk, lv) == SlotResult.{found}) {{"), &leaves);
        let count = code.random().random_range(1..4);
        code.statements(count, 1);
        code.close();
        // Bits that say what became of the write.
        let condition = code.expression(Ty::Bool, 1);
        code.open(&format!("if ({condition}) {{"), &leaves);
        let (field, ty) = &leaves[0];
        let value = code.expression(*ty, 2);
        code.line(&format!("{field} = {value};"));
        code.open("if (slots.write(lk, lv, 0) == SlotResult.FULL) {", &leaves);
        code.statements(1, 1);
        code.close();
        code.close();
    }
}
