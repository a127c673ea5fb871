//! Which names are types: all that the grammar needs to know of declarations (spec §6.4.2).

use std::collections::HashMap;
use std::sync::Arc;

use super::{Parser, Res};
use crate::ast::{Ident, Parameter};

/// Scopes from the outermost to the innermost; each name says whether it is a type.
pub(super) struct Scopes(Vec<HashMap<Arc<str>, bool>>);

impl Scopes {
    pub(super) fn new() -> Self {
        Self(vec![HashMap::new()])
    }

    fn declare(&mut self, name: &Ident, is_type: bool) {
        if let Some(scope) = self.0.last_mut() {
            scope.insert(name.name.clone(), is_type);
        }
    }

    /// `None`: not declared (yet).
    pub(super) fn is_type(&self, name: &str, absolute: bool) -> Option<bool> {
        if absolute {
            return self.0.first()?.get(name).copied();
        }
        self.0.iter().rev().find_map(|s| s.get(name).copied())
    }
}

impl Parser<'_> {
    pub(super) fn declare_type(&mut self, name: &Ident) {
        self.scopes.declare(name, true);
    }

    pub(super) fn declare_value(&mut self, name: &Ident) {
        self.scopes.declare(name, false);
    }

    pub(super) fn declare_types(&mut self, names: &[Ident]) {
        names.iter().for_each(|n| self.declare_type(n));
    }

    pub(super) fn declare_params(&mut self, params: &[Parameter]) {
        params.iter().for_each(|p| self.declare_value(&p.name));
    }

    /// Runs `inner` in a scope of its own, which ends with it whether or not it fails.
    pub(super) fn scoped<T>(&mut self, inner: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        let outer = self.scopes.0.len();
        self.scopes.0.push(HashMap::new());
        let result = inner(self);
        self.scopes.0.truncate(outer);
        result
    }
}
