//! Which columns of a batch a script reads, as far as its code says so.

use rhai::{ASTFlags, Array, Dynamic, Expr, FnCallExpr, FnPtr, ImmutableString};

use super::{Lint, ValueKind};

/// The methods of a batch that take names of columns.
const BY_NAME: [&str; 4] = ["column", "columns", "has", "key"];

impl Lint<'_, '_> {
    pub(super) fn reads_property(&mut self, receiver: ValueKind, name: &str) {
        // The members of a batch that no column hides.
        if receiver.may_be_batch() && !["groups", "step"].contains(&name) {
            self.reads.names.insert(name.to_string());
        }
    }

    /// `receiver[index]`, and what follows it: unless the chain ends there, `a[i].b` has `i.b` in its brackets.
    pub(super) fn index(&mut self, receiver: ValueKind, rest: &Expr, flags: ASTFlags) -> ValueKind {
        match rest {
            Expr::Dot(chain, ..) if !flags.intersects(ASTFlags::BREAK) => {
                let element = self.element(receiver, &chain.lhs);
                self.member(element, &chain.rhs)
            }
            Expr::Index(chain, flags_of_next, _) if !flags.intersects(ASTFlags::BREAK) => {
                let element = self.element(receiver, &chain.lhs);
                self.index(element, &chain.rhs, *flags_of_next)
            }
            index => self.element(receiver, index),
        }
    }

    fn element(&mut self, receiver: ValueKind, index: &Expr) -> ValueKind {
        let kind = self.kind(index);
        if receiver.may_be_batch() && kind != ValueKind::Integer {
            self.reads_named(index);
        }
        receiver.element()
    }

    /// A call that is none of a script's own function.
    pub(super) fn reads_by_call(&mut self, call: &FnCallExpr, receiver: Option<ValueKind>) {
        let (receiver, names) = match (receiver, &call.args[..]) {
            (None, [_, names @ ..]) => (ValueKind::Unknown, names),
            (receiver, names) => (receiver.unwrap_or(ValueKind::Unknown), names),
        };
        match call.name.as_str() {
            // The names that begin so, to be asked for later.
            "columns" => self.reads.is_computed |= receiver.may_be_batch(),
            "Fn" => self.reads.is_computed = true,
            name if BY_NAME.contains(&name) && receiver.may_be_batch() => {
                names.iter().for_each(|name| self.reads_named(name));
            }
            _ => {}
        }
    }

    /// A pointer to a method that takes names: nobody knows which.
    pub(super) fn points_to(&mut self, value: &Dynamic) {
        let pointer = value.read_lock::<FnPtr>();
        self.reads.is_computed |= pointer.is_some_and(|f| BY_NAME.contains(&f.fn_name()));
    }

    /// An expression whose value is the name of a column, or an array of names.
    fn reads_named(&mut self, expression: &Expr) {
        match expression {
            Expr::StringConstant(name, _) => {
                self.reads.names.insert(name.to_string());
            }
            Expr::Array(names, _) => names.iter().for_each(|name| self.reads_named(name)),
            Expr::DynamicConstant(value, _) if value.is_array() => {
                let names = value.read_lock::<Array>();
                let names = names.iter().flat_map(|names| names.iter());
                let names = names.filter_map(|name| name.read_lock::<ImmutableString>());
                self.reads.names.extend(names.map(|name| name.to_string()));
            }
            _ => self.reads.is_computed = true,
        }
    }
}
