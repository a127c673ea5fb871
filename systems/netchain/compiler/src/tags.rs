//! A MessageTag in C.

use crate::MESSAGE_TAG;
use crate::single::{Kind, Single};
use p4_ir::{Argument, Expr};
use xdp_backend::system::{Generator, Leaving, ObjectCall, Writer};

/// The manifest says that the program checks tags. The map has clients' keys.
pub(crate) const KIND: Kind = Kind {
    name: MESSAGE_TAG,
    map: "sp_client_keys",
    capacity: 0,
    help: "use one object for all messages: clients' keys belong to the switch",
};
/// With whose key the packet leaves, and how long its message is: variables of the pipeline.
const SIGNER: &str = "sp_tags_signer";
const BYTES: &str = "sp_tags_bytes";

/// A program's MessageTag, if it has one.
#[derive(Default)]
pub(crate) struct Tags {
    pub object: Single,
    /// The program signs.
    signs: bool,
}

impl Tags {
    pub(crate) fn call(&mut self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        let ObjectCall { method, arguments, result, location, .. } = *call;
        let inputs: Vec<&Expr> = arguments
            .iter()
            .filter_map(|argument| match argument {
                Argument::In(expr) => Some(expr),
                _ => None,
            })
            .collect();
        let inputs: Vec<String> = inputs.into_iter().map(|expr| generator.expr(expr)).collect();
        let place = |bytes: &str| format!("SP_TAGS_WHERE({bytes}, sp_padding)");
        // A packet that runs again was checked, and is as it was.
        let once = |check: String| format!("sp_again ? SP_TAG_GENUINE : {check}");
        let answer = match (method, &inputs[..]) {
            ("verify", [id, bytes]) => once(format!("sp_tags_verify(xdp, {}, {id})", place(bytes))),
            ("verify_member", [bytes]) => {
                once(format!("sp_tags_verify_member(xdp, {})", place(bytes)))
            }
            ("permits", [id, key, writes]) => {
                let right = format!("({writes}) ? SP_TAGS_WRITE : SP_TAGS_READ");
                format!("sp_tags_permits({id}, {right}, sp_high64({key}), (__u64)({key}))")
            }
            ("sign", [id, bytes]) => return self.sign(generator, id, bytes),
            ("sign_member", [bytes]) => return self.sign(generator, "SP_TAGS_MEMBER", bytes),
            _ => generator.internal(location, "an unknown method of a MessageTag"),
        };
        match result {
            Some(target) => generator.store(target, &answer),
            None => generator.out.line(format!("{answer};")),
        }
    }

    /// Notes with what the packet leaves.
    fn sign(&mut self, generator: &mut Generator<'_>, signer: &str, bytes: &str) {
        if !std::mem::replace(&mut self.signs, true) {
            generator.declare_local("__u32", SIGNER, "SP_TAGS_UNSIGNED");
            generator.declare_local("__u32", BYTES, "0");
        }
        for (variable, value) in [(SIGNER, signer), (BYTES, bytes)] {
            generator.out.line(format!("{variable} = {value};"));
        }
    }

    pub(crate) fn includes(&self, text: &mut Writer) {
        if !self.object.is_empty() {
            text.line("#include \"stateplane_tags.h\"");
        }
    }

    pub(crate) fn before_verdict(&self, leaving: Leaving<'_>) -> Option<String> {
        let signed = self.signs && matches!(leaving, Leaving::Forward(_));
        signed.then(|| {
            format!(
                "if ({SIGNER} != SP_TAGS_UNSIGNED && sp_tags_sign(xdp, \
                 SP_TAGS_WHERE({BYTES}, sp_padding), {SIGNER})) return sp_drop(ingress_port);"
            )
        })
    }
}
