//! Errors of inputs, with what helps at the prompt.

use std::sync::Arc;

use rhai::{AST, Dynamic, EvalAltResult, LexError, ParseErrorType};

use super::super::compile::natives;
use super::super::error::Problem;
use super::super::explain::{SEES, Script, said, text};
use super::super::library::functions_of;
use super::super::lint::misspelt_hooks;
use super::super::syntax::code;
use super::{Name, Session, inputs};
use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::suggest;
use crate::tensor::TensorError;

impl Session {
    /// An error of a value of an input that is not recorded.
    pub(super) fn failed_in(&self, text: &str, error: TensorError) -> Diagnostics {
        let problem = Dynamic::from(Problem::from(error));
        let raised = EvalAltResult::ErrorRuntime(problem, rhai::Position::NONE);
        self.explain(text, &raised)
    }

    pub(super) fn explain(&self, text: &str, error: &EvalAltResult) -> Diagnostics {
        let mut sources = self.library.found().sources.clone();
        let name: Arc<str> = inputs::SOURCE.into();
        sources.insert(name.clone(), self.inputs.whole(text).into());
        if let Some(recipe) = &self.recipe {
            let of_recipe = recipe.sources();
            sources.extend(of_recipe.map(|(name, text)| (name.into(), text.into())));
        }
        let mut script = Script::new(&name, &sources);
        script.functions = self.functions();
        if let Some(recipe) = &self.recipe {
            script.parameters = recipe.about().parameters;
        }
        let mut diagnostic = script.explain(error);
        let is_unknown = diagnostic.help.as_deref() == Some(SEES);
        let here = match error {
            EvalAltResult::ErrorParsing(
                ParseErrorType::BadInput(LexError::MalformedIdentifier(name))
                | ParseErrorType::VariableUndefined(name),
                _,
            ) if name.trim_start_matches('_').parse::<u32>().is_ok() => {
                Some(said("prompt", "value", &[name]))
            }
            EvalAltResult::ErrorParsing(ParseErrorType::VariableUndefined(name), _) => {
                let unknown = || is_unknown.then(|| said("prompt", "variable", &[name]));
                let help = self.no_variable(name);
                help.map_or_else(unknown, |help| {
                    Some(said("variable", "other", &[name, &help]))
                })
            }
            EvalAltResult::ErrorParsing(ParseErrorType::ModuleUndefined(name), _) => {
                Some(said("prompt", "import", &[name]))
            }
            EvalAltResult::ErrorParsing(ParseErrorType::AssignmentToConstant(name), _)
            | EvalAltResult::ErrorAssignmentToConstant(name, _)
                if name == "p" =>
            {
                Some(said("prompt", "p", &[]))
            }
            _ => None,
        };
        if let Some(mut here) = here {
            std::mem::swap(&mut diagnostic.message, &mut here.message);
            diagnostic.help = here.help.take();
        }
        self.explain_scope(&mut diagnostic);
        self.inputs.in_its_input(text, diagnostic).into()
    }

    /// Adds to an error of a function that lacks a variable of the prompt why it does not see that.
    pub(super) fn explain_scope(&self, error: &mut Diagnostic) {
        let name = error.span.as_ref().map(Span::words);
        if error.help.as_deref() == Some(SEES)
            && let Some(name) = name.filter(|name| self.scope.contains(name))
        {
            error.help = text("prompt", "scope", &[&name]);
        }
    }

    /// The help for a name that is no variable: most likely a column, a function without its brackets, or a slip.
    fn no_variable(&self, name: &str) -> Option<String> {
        let (own, derived) = self.batch.column_names();
        if own.iter().chain(&derived).any(|column| column == name) {
            return Some(format!("the column is `batch.{name}`"));
        }
        let is_it = |known: &Name| known.text.trim_end_matches(['(', ')']) == name;
        let mut names = self.names().into_iter();
        if let Some(function) = names.find(|known| is_it(known) && !known.call.is_empty()) {
            return Some(format!("the function is called as `{}`", function.call));
        }
        let variables = self.own_variables().map(|(known, _)| known);
        let near = suggest::nearest(name, variables.chain(["batch", "p"]));
        // Any letter is near any other.
        let near = near.filter(|_| name.len() > 2)?;
        Some(format!("did you mean `{near}`?"))
    }

    /// Notes of an input's functions that look like hooks which nobody has typed.
    pub(super) fn misspelt_hooks(&self, text: &str, ast: &AST) -> Vec<String> {
        let name: Arc<str> = inputs::SOURCE.into();
        let sources = [(name.clone(), text.into())].into();
        let mut found = misspelt_hooks(&Script::new(&name, &sources), &functions_of(ast));
        let notes = found.iter_mut().map(|warning| {
            warning.span = None;
            warning.to_string()
        });
        notes.collect()
    }

    /// The names of all functions that an input can call.
    fn functions(&self) -> Vec<String> {
        let mut functions = natives(&self.engine(""));
        functions.append(&mut functions_of(&self.functions));
        functions.into_keys().collect()
    }
}

/// Where a name is first defined or used in an input.
pub(super) fn place_of_name(text: &str, name: &str) -> Option<Span> {
    let all = code(text);
    let is_member = |index: usize| index > 0 && all[index - 1].text == ".";
    let index = (0..all.len()).find(|&index| all[index].is_name(name) && !is_member(index))?;
    Some(all[index].span(&inputs::SOURCE.into(), &text.into()))
}
