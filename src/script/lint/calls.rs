//! Calls and parameters: whether there is what they name.

use std::collections::BTreeSet;

use rhai::{Expr, FnCallExpr, Position};

use super::{Lint, ValueKind};
use crate::diagnostic::Diagnostic;
use crate::figures::counted;
use crate::script::explain;
use crate::script::members::ops;
use crate::script::mistake::Mistake;
use crate::suggest;
use crate::tensor::Level;
use crate::tensor::op::ParamKind;

/// Functions that Rhai looks up by itself: calls through a function pointer, and questions about names.
const BY_THE_ENGINE: &str = "call curry Fn is_def_var is_def_fn type_of print debug is_shared";

impl Lint<'_, '_> {
    pub(super) fn parameter(&mut self, name: &str, position: Position) {
        let declared = &self.known.script.parameters;
        // An imported script's `p` is what its caller gives to it.
        if self.known.is_import || declared.iter().any(|known| known == name) {
            return;
        }
        if declared.is_empty() {
            return self.found_at(position, Mistake::NoParameters { name });
        }
        let help = &suggest::did_you_mean(name, declared.iter().map(String::as_str));
        self.found_at(position, Mistake::NoParameter { name, help });
    }

    /// Warns of `p.k = 4`, which overrides what a command or a config sets.
    pub(super) fn no_parameter_is_set(&mut self, to: &Expr) {
        let Expr::Dot(chain, ..) = to else {
            return;
        };
        let (Expr::Variable(variable, ..), Expr::Property(property, position)) =
            (&chain.lhs, &chain.rhs)
        else {
            return;
        };
        if self.variable(&variable.1) == ValueKind::Parameters && &*variable.1 == "p" {
            let name = property.2.as_str();
            self.found_at(*position, Mistake::SetParameter { name }.warning());
        }
    }

    pub(super) fn call(
        &mut self,
        call: &FnCallExpr,
        position: Position,
        receiver: Option<ValueKind>,
    ) -> ValueKind {
        let mut kinds: Vec<ValueKind> = receiver.into_iter().collect();
        for argument in &call.args {
            let kind = self.kind(argument);
            kinds.push(kind);
        }
        self.no_curry(call, position, receiver);
        let is_variable = receiver.is_none() && self.variables.contains_key(call.name.as_str());
        self.exists(call, position, kinds.len(), is_variable);
        // One of this script, or of one that it imports.
        if !call.namespace.is_empty() || self.own.contains_key(call.name.as_str()) {
            return ValueKind::Unknown;
        }
        self.reads_by_call(call, receiver);
        self.names(call, usize::from(receiver.is_some()));
        ValueKind::of_call(&call.name, &kinds)
    }

    /// Reports a function that does not exist, or does not take `count` arguments; a method's receiver counts as one.
    fn exists(&mut self, call: &FnCallExpr, position: Position, count: usize, is_variable: bool) {
        let name = call.name.as_str();
        if name.starts_with(explain::CLOSURE)
            || call.op_token.is_some()
            || BY_THE_ENGINE.split(' ').any(|known| known == name)
        {
            return;
        }
        let path = call.namespace.to_string();
        let imported = self.aliases.get(&path);
        let imported = imported.and_then(|from| self.known.imports.get(from));
        let named = match imported {
            // An import that is not at the top is refused elsewhere.
            None if !path.is_empty() => return,
            Some(functions) => [functions.get(name), None],
            None => [self.known.natives.get(name), self.own.get(name)],
        };
        let counts: BTreeSet<usize> = named.into_iter().flatten().flatten().copied().collect();
        if counts.contains(&count) {
            return;
        }
        let diagnostic: Diagnostic = match imported {
            Some(functions) if counts.is_empty() => {
                let (module, known) = (&path, functions.keys().map(String::as_str));
                let help = &suggest::did_you_mean(name, known);
                Mistake::NotImported { module, name, help }.into()
            }
            None if counts.is_empty() && is_variable => Mistake::CalledVariable { name }.into(),
            None if !self.own.contains_key(name)
                && (counts.is_empty() || ops(name).next().is_some()) =>
            {
                let signature = format!("{name} ({})", vec!["?"; count].join(", "));
                explain::unknown_function(&self.known.script, &signature)
            }
            _ => {
                let name = format!("{path}::{name}");
                let takes: Vec<String> = counts.iter().map(usize::to_string).collect();
                let given = &counted(count, "argument");
                let takes = &takes.join(" or ");
                let name = name.trim_start_matches(':');
                Mistake::OwnArgumentCount { name, given, takes }.into()
            }
        };
        self.found_at(position, diagnostic);
    }

    /// The engine makes a `curry` of each closure that takes variables along; one that is written out copies its arguments,
    /// again at each call, and is never needed.
    fn no_curry(&mut self, call: &FnCallExpr, position: Position, receiver: Option<ValueKind>) {
        let is_closure = matches!(call.args.first(), Some(Expr::DynamicConstant(..)));
        if call.name == "curry" && (receiver.is_some() || !is_closure) {
            self.found_at(position, Mistake::Curry);
        }
    }

    /// Levels and kinds that are written out: a slip in a branch that is rarely taken is found before it is.
    fn names(&mut self, call: &FnCallExpr, receivers: usize) {
        for (index, argument) in call.args.iter().enumerate() {
            let Expr::StringConstant(text, position) = argument else {
                continue;
            };
            let function = call.name.as_str();
            let mut kinds = ops(function).filter_map(|op| {
                let param = op.params.get(index + receivers)?;
                matches!(param.kind, ParamKind::Level | ParamKind::Choice(_)).then_some(param.kind)
            });
            match kinds.next() {
                Some(ParamKind::Level) if text.parse::<Level>().is_err() => {
                    let help = &suggest::did_you_mean(text, Level::ALL.map(Level::name));
                    self.found_at(*position, Mistake::NoLevel { level: text, help });
                }
                // Kinds are too short for a slip to be told from another kind.
                Some(ParamKind::Choice(choices)) if !choices.contains(&text.as_str()) => {
                    let choices = &suggest::list(choices.iter().copied());
                    let wrong = Mistake::NoChoice {
                        function,
                        choice: text,
                        choices,
                    };
                    self.found_at(*position, wrong);
                }
                _ => {}
            }
        }
    }
}
