//! Turns the script engine's errors into diagnostics: what happened in the field's words, where, and what to do.

use std::sync::Arc;

use rhai::{Dynamic, EvalAltResult, ParseErrorType, Position};

use super::error::{Diagnostic, Place, Problem, line_column};
use super::library::Sources;
use crate::suggest;
use crate::tensor::{Stopped, TensorErrorKind, op};

/// What a diagnostic needs to know of the recipe.
pub(super) struct Script<'a> {
    pub(super) name: &'a Arc<str>,
    pub(super) sources: &'a Sources,
    /// The names of the recipe's parameters.
    pub(super) parameters: Vec<String>,
    /// The names of all functions that the script can call.
    pub(super) functions: Vec<String>,
}

impl Script<'_> {
    /// The diagnostic of an error that came out of the engine.
    pub(super) fn explain(&self, error: &EvalAltResult) -> Diagnostic {
        let mut source: Arc<str> = self.name.clone();
        let mut trace = Vec::new();
        let mut innermost = error;
        // Each layer says in which function, or which module, the next one happened.
        loop {
            match innermost {
                EvalAltResult::ErrorInFunctionCall(function, of, inner, position) => {
                    if let Some((line, _)) = line_column(*position) {
                        trace.insert(0, format!("in `{function}`, called at {source}:{line}"));
                    }
                    if !of.is_empty() {
                        source = of.as_str().into();
                    }
                    innermost = inner;
                }
                EvalAltResult::ErrorInModule(module, inner, _) => {
                    source = module.as_str().into();
                    innermost = inner;
                }
                _ => break,
            }
        }
        let mut position = innermost.position();
        let mut diagnostic = self.message(innermost);
        if let EvalAltResult::ErrorRuntime(value, _) = innermost
            && let Some(problem) = value.read_lock::<Problem>()
            && let Some(origin) = problem
                .tensor
                .as_ref()
                .and_then(|error| error.origin.as_ref())
        {
            // The tensor at fault was made elsewhere than where its value was asked for: that is the line to look at.
            source = origin.source.clone().unwrap_or_else(|| self.name.clone());
            // Lines and columns are the engine's own 16-bit ones.
            position = Position::new(
                origin.line.min(65_535) as u16,
                origin.column.min(65_535) as u16,
            );
        }
        diagnostic.trace = trace;
        diagnostic.at(self.place(&source, position))
    }

    /// The place of a position, if there is one and the script is known.
    pub(super) fn place(&self, source: &Arc<str>, position: Position) -> Option<Place> {
        let (line, column) = line_column(position)?;
        let text = self.sources.get(source)?;
        let source_line = text.lines().nth(line - 1).unwrap_or("");
        // A property is reported at its dot; the name after it is what to look at.
        let dot = source_line.chars().nth(column.saturating_sub(1)) == Some('.');
        let column = if dot { column + 1 } else { column };
        let length = token_length(source_line, column);
        Some(Place {
            source: source.clone(),
            text: text.clone(),
            line,
            column,
            length,
        })
    }

    fn message(&self, error: &EvalAltResult) -> Diagnostic {
        match error {
            EvalAltResult::ErrorRuntime(value, _) => runtime(value),
            EvalAltResult::ErrorParsing(kind, _) => parsing(kind),
            EvalAltResult::ErrorFunctionNotFound(signature, _) => self.unknown_function(signature),
            EvalAltResult::ErrorVariableNotFound(name, _) => self.no_variable(name),
            EvalAltResult::ErrorPropertyNotFound(name, _) => {
                let known = self.parameters.iter().map(String::as_str);
                Diagnostic::error(format!("there is no `{name}` in this map")).with_help(
                    match suggest::nearest(name, known) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => format!(
                            "parameters are declared in `params()`, this recipe has {}; state is made in `init(p)`",
                            suggest::list(self.parameters.iter().map(String::as_str))
                        ),
                    },
                )
            }
            EvalAltResult::ErrorMismatchDataType(wanted, found, _) if wanted == "bool" && found == "tensor" => {
                Diagnostic::error("a tensor is neither true nor false").with_help(
                    "value by value it is `where(c, a, b)`, `&`, `|` and `!`; to branch, compare one value, as in `if x.mean(\"batch\") > 0.5`",
                )
            }
            EvalAltResult::ErrorMismatchDataType(wanted, found, _) => {
                Diagnostic::error(format!("this must be {wanted}, and is {found}"))
            }
            EvalAltResult::ErrorTooManyOperations(_) => {
                Diagnostic::error("stopped: more operations than any formula needs").with_help("is there a loop without an end?")
            }
            EvalAltResult::ErrorStackOverflow(_) => {
                Diagnostic::error("stopped: calls within calls within calls, too deep").with_help("does a function call itself without an end?")
            }
            EvalAltResult::ErrorDataTooLarge(what, _) => {
                Diagnostic::error(format!("stopped: {} is beyond what a recipe may hold", what.to_lowercase()))
                    .with_help("texts, arrays and maps hold up to 1048576 elements; values by response or token belong into tensors")
            }
            EvalAltResult::ErrorTerminated(reason, _) => match reason.read_lock::<Stopped>() {
                Some(stopped) => stopped_message(*stopped),
                None => Diagnostic::error("stopped"),
            },
            EvalAltResult::ErrorForbiddenVariable(name, _) => {
                Diagnostic::error(format!("`{name}` cannot be a variable's name"))
            }
            EvalAltResult::ErrorModuleNotFound(name, _) => {
                Diagnostic::error(format!("nothing is imported as `{name}`"))
                    .with_help(format!("add `import \"{name}\" as {name};` at the top of the script"))
            }
            EvalAltResult::ErrorAssignmentToConstant(name, _) => {
                Diagnostic::error(format!("`{name}` is a constant and cannot be changed"))
            }
            EvalAltResult::ErrorFor(_) => Diagnostic::error("`for` needs an array, a range or `batch.groups`")
                .with_help("there is no loop over responses or tokens: tensors do that, or `batch.groups` group by group"),
            EvalAltResult::ErrorUnboundThis(_) => Diagnostic::error("`this`, the recipe's state, is there in hooks alone")
                .with_help("pass what is needed to the function"),
            EvalAltResult::ErrorIndexingType(what, _) => {
                Diagnostic::error(format!("this cannot be indexed or asked for that property ({what})"))
            }
            other => {
                let text = other.to_string();
                // The engine's texts end in the position, which stands at the caret.
                let text = text.split(" (line ").next().unwrap_or(&text).to_string();
                Diagnostic::error(text)
            }
        }
    }

    pub(super) fn unknown_function(&self, signature: &str) -> Diagnostic {
        let (name, arguments) = signature.split_once(" (").unwrap_or((signature, ")"));
        let arguments = arguments.trim_end_matches(')');
        let short = name.rsplit("::").next().unwrap_or(name);
        if name == "-" || !short.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            return Diagnostic::error(format!("`{name}` cannot be done with ({arguments})"));
        }
        if short.starts_with("set$") || name.contains("index$set") || name.contains("[]=") {
            return Diagnostic::error("a batch or a tensor cannot be changed in place").with_help(
                "a new reward is what the hook `reward(batch, p)` returns; else use a variable",
            );
        }
        let message = format!("there is no function `{name}({arguments})`");
        let rows: Vec<String> = op::table()
            .filter(|op| op.name == short)
            .map(op::Op::signature)
            .collect();
        if !rows.is_empty() {
            return Diagnostic::error(message)
                .with_help(format!("it is `{}`", rows.join("` or `")));
        }
        if let Some((_, ours)) = ELSEWHERE.iter().find(|(theirs, _)| *theirs == short) {
            return Diagnostic::error(message).with_help(*ours);
        }
        let known = self.functions.iter().map(String::as_str);
        match suggest::nearest(short, known) {
            Some(near) if near == short => Diagnostic::error(message).with_help(format!(
                "`{near}` is there, with other arguments: see `advlab doc {near}`"
            )),
            Some(near) => Diagnostic::error(message).with_help(format!("did you mean `{near}`?")),
            None => Diagnostic::error(message)
                .with_help("`advlab doc` lists the functions that scripts have"),
        }
    }

    fn no_variable(&self, name: &str) -> Diagnostic {
        let message = format!("there is no variable `{name}`");
        let help = match name {
            "batch" | "p" => "hooks get it as an argument, other functions must be given it".to_string(),
            "this" => "`this` is the state that `init(p)` makes".to_string(),
            _ if self.parameters.iter().any(|known| known == name) => {
                format!("the parameter is `p.{name}`")
            }
            _ => "a function sees its arguments and its own variables alone; what it needs from outside is a parameter".to_string(),
        };
        Diagnostic::error(message).with_help(help)
    }
}

/// What users of other libraries type first, and what it is here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("item", "one value as a number is `x.value()`"),
    (
        "unsqueeze",
        "levels broadcast by themselves: no axis has to be lined up",
    ),
    (
        "expand_as",
        "levels broadcast by themselves: no axis has to be lined up",
    ),
    (
        "view",
        "tensors have levels instead of shapes: `x.mean(\"group\")`",
    ),
    (
        "reshape",
        "tensors have levels instead of shapes: `x.mean(\"group\")`",
    ),
    (
        "masked_mean",
        "tokens that do not count are not there: `x.mean(\"batch\")`; a selection is `x.mean(\"group\", where_1)`",
    ),
    ("masked_fill", "that is `where(c, a, b)`"),
    ("masked_whiten", "that is `x.whiten(\"batch\")`"),
    ("log", "the natural logarithm is `ln(x)`"),
    ("pow", "a power is `x ** 2`"),
    ("var", "the variance is `square(x.std(\"group\"))`"),
    ("relu", "that is `max(x, 0)`"),
    ("clip", "that is `x.clamp(low, high)`"),
    ("logsigmoid", "that is `log_sigmoid(x)`"),
    ("flip", "sums from the end are `x.suffix_sum(gamma)`"),
    (
        "argsort",
        "ranks are `x.rank(\"group\")`, 0 for the smallest",
    ),
    (
        "torch",
        "scripts are Rhai, with the functions that `advlab doc` lists",
    ),
];

fn runtime(value: &Dynamic) -> Diagnostic {
    if let Some(problem) = value.read_lock::<Problem>() {
        let diagnostic = match &problem.tensor {
            Some(error) => match error.kind {
                TensorErrorKind::Stopped(stopped) => stopped_message(stopped),
                _ => Diagnostic::error(error.to_string()),
            },
            None => Diagnostic::error(problem.message.clone()),
        };
        return match &problem.help {
            Some(help) => diagnostic.with_help(help.clone()),
            None => diagnostic,
        };
    }
    // `throw "..."` in the script itself.
    Diagnostic::error(format!("{value}"))
}

fn stopped_message(stopped: Stopped) -> Diagnostic {
    let diagnostic = Diagnostic::error(stopped.to_string());
    match stopped {
        Stopped::Deadline(_) => diagnostic.with_help("is there a loop without an end, or one over many groups that tensors could do at once?"),
        Stopped::Memory { .. } => diagnostic.with_help("does a loop keep on making tensors?"),
        Stopped::Cancelled => diagnostic,
    }
}

fn parsing(kind: &ParseErrorType) -> Diagnostic {
    let diagnostic = Diagnostic::error(match kind {
        ParseErrorType::UnexpectedEOF => "the script ends in the middle of something".to_string(),
        ParseErrorType::MissingToken(token, what) => format!("a `{token}` is missing {what}"),
        ParseErrorType::Reserved(name) => format!("`{name}` is reserved by the script language"),
        other => {
            let text = other.to_string();
            let mut letters = text.chars();
            letters.next().map_or(text.clone(), |first| {
                first.to_lowercase().collect::<String>() + letters.as_str()
            })
        }
    });
    match kind {
        ParseErrorType::Reserved(name) if name == "eval" => {
            diagnostic.with_help("a recipe is all in its file: there is no `eval`")
        }
        ParseErrorType::Reserved(_) => diagnostic.with_help("choose another name"),
        ParseErrorType::UnexpectedEOF => diagnostic.with_help("is a `}` or a `)` missing?"),
        ParseErrorType::FnMissingParams(_) => {
            diagnostic.with_help("as in `fn advantage(batch, p) { ... }`")
        }
        _ => diagnostic,
    }
}

/// The number of characters of the word, number, text or sign that starts at a column (from 1).
pub(super) fn token_length(line: &str, column: usize) -> usize {
    let rest: Vec<char> = line.chars().skip(column.saturating_sub(1)).collect();
    let Some(&first) = rest.first() else {
        return 1;
    };
    let while_is = |test: fn(char) -> bool| rest.iter().take_while(|&&c| test(c)).count().max(1);
    if first == '"' {
        return rest
            .iter()
            .skip(1)
            .position(|&c| c == '"')
            .map_or(1, |end| end + 2);
    }
    if first.is_alphanumeric() || first == '_' {
        return while_is(|c| c.is_alphanumeric() || c == '_' || c == '.').min(
            // A number may have a point in it; a name ends there.
            if first.is_ascii_digit() {
                usize::MAX
            } else {
                while_is(|c| c.is_alphanumeric() || c == '_')
            },
        );
    }
    while_is(|c| "+-*/%=<>!&|".contains(c))
}
