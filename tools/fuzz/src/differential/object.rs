//! State objects of the registered systems in generated programs.

use super::statement::Body;
use super::types::{Named, Ty};
use fuzz_door::{Code, StateKind, StateObject};
use rand::Rng;
use rand::rngs::StdRng;

/// All kinds that there are.
fn kinds() -> Vec<&'static dyn StateKind> {
    systems::campaigns().iter().flat_map(|system| system.state()).copied().collect()
}

/// The methods that some programs call.
pub(super) fn methods() -> impl Iterator<Item = &'static str> {
    kinds().into_iter().flat_map(|kind| kind.methods()).copied()
}

/// Draws an object of any kind; none if no system has one.
pub(super) fn draw(prefix: &str, random: &mut StdRng) -> Option<Box<dyn StateObject>> {
    let kinds = kinds();
    let kind = match &kinds[..] {
        [] => return None,
        [only] => only,
        several => &several[random.random_range(0..several.len())],
    };
    Some(kind.draw(prefix, random))
}

/// A body, as state objects see it.
pub(super) struct Inside<'a, 'b> {
    body: &'a mut Body<'b>,
    /// How much could be read and written before each open block.
    blocks: Vec<(usize, usize)>,
}

impl<'a, 'b> Inside<'a, 'b> {
    pub fn new(body: &'a mut Body<'b>) -> Inside<'a, 'b> {
        Inside { body, blocks: Vec::new() }
    }
}

impl Code for Inside<'_, '_> {
    fn random(&mut self) -> &mut StdRng {
        self.body.random
    }

    fn line(&mut self, text: &str) {
        self.body.line(text);
    }

    fn open(&mut self, text: &str, variables: &[(String, Ty)]) {
        self.body.line(text);
        self.body.indent += 1;
        self.blocks.push((self.body.readable.len(), self.body.writable.len()));
        let named: Vec<Named> =
            variables.iter().map(|(path, ty)| Named { path: path.clone(), ty: *ty }).collect();
        // Several times, so that they are used.
        self.body.readable.extend([named.clone(), named.clone(), named.clone()].concat());
        self.body.writable.extend(named);
    }

    fn close(&mut self) {
        if let Some((readable, writable)) = self.blocks.pop() {
            self.body.readable.truncate(readable);
            self.body.writable.truncate(writable);
        }
        self.body.indent -= 1;
        self.body.line("}");
    }

    fn expression(&mut self, ty: Ty, depth: u32) -> String {
        self.body.expression(ty, depth)
    }

    fn statements(&mut self, count: usize, depth: u32) {
        self.body.statements(count, depth);
    }
}
