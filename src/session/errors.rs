//! Errors of inputs, with what helps at the prompt.

use std::sync::Arc;

use rhai::{AST, Dynamic, EvalAltResult, ParseErrorType};

use super::{Name, Session, inputs};
use crate::diagnostic::{Diagnostic, Diagnostics, ProblemKind};
use crate::script::compile::natives;
use crate::script::error::CallError;
use crate::script::explain::Script;
use crate::script::library::functions_of;
use crate::script::lint::misspelt_hooks;
use crate::script::mistake::Mistake;
use crate::suggest;
use crate::tensor::TensorError;

impl Session {
    /// An error of a value of an input that is not recorded.
    pub(super) fn failed_in(&self, text: &str, error: TensorError) -> Diagnostics {
        let problem = Dynamic::from(CallError::from(error));
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
        if let EvalAltResult::ErrorParsing(kind, _) = error {
            self.explain_at_prompt(kind, &mut diagnostic);
        } else if let EvalAltResult::ErrorAssignmentToConstant(name, _) = error
            && name == "p"
        {
            say(&mut diagnostic, Mistake::FixedParameters);
        }
        self.explain_scope(&mut diagnostic);
        self.inputs.in_its_input(text, diagnostic).into()
    }

    /// Replaces what is said to the author of a script by what helps at the prompt.
    fn explain_at_prompt(&self, error: &ParseErrorType, diagnostic: &mut Diagnostic) {
        match error {
            ParseErrorType::VariableUndefined(name) => {
                let is_unseen = matches!(diagnostic.kind, ProblemKind::UnseenVariable(_));
                let help = match self.no_variable(name) {
                    Some(help) => help,
                    None if is_unseen => "`let x = ...` makes one; `:vars` lists yours".to_string(),
                    None => return,
                };
                let help = &help;
                say(diagnostic, Mistake::NoVariable { name, help });
            }
            ParseErrorType::ModuleUndefined(name) => {
                say(diagnostic, Mistake::NoTypedImport { name });
            }
            ParseErrorType::AssignmentToConstant(name) if name == "p" => {
                say(diagnostic, Mistake::FixedParameters);
            }
            _ => {}
        }
    }

    /// Adds to an error of a function that uses a variable of the prompt why it does not see it.
    pub(super) fn explain_scope(&self, error: &mut Diagnostic) {
        if let ProblemKind::UnseenVariable(name) = &error.kind
            && self.scope.contains(name)
        {
            error.help = Some(format!(
                "`{name}` is a variable of the prompt, which no function sees: pass it as an \
                 argument, or make it inside with `let`"
            ));
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

/// Gives a diagnostic the message and the help of a mistake.
fn say(diagnostic: &mut Diagnostic, mistake: Mistake<'_>) {
    let mut said = Diagnostic::from(mistake);
    std::mem::swap(&mut diagnostic.message, &mut said.message);
    diagnostic.help = said.help.take();
}
