//! Messages for functions, variables, modules and keys of maps that do not exist. The message for a column that does not exist is
//! in `bindings/batch/columns.rs`.

use super::habits::{NO_ELSE, habit, row, say};
use super::script::{CLOSURE, Script};
use crate::batch::column_names;
use crate::diagnostic::{Diagnostic, ProblemKind, Span};
use crate::number_text::counted;
use crate::script::library::Builtin;
use crate::script::params::KEYS;
use crate::script::reference::signature;
use crate::script::syntax::{CodeSite, Token, TokenKind, declared_names, sites};
use crate::script::value::type_named;
use crate::suggest;
use crate::tensor::Level;

/// Returns the help for the name of a built-in recipe; `None` for any other name.
fn recipe(name: &str) -> Option<String> {
    let is_loss = !Builtin::find(name)?.text.contains("fn advantage(");
    let hook = if is_loss { "loss" } else { "advantage" };
    Some(format!(
        "`{name}` is a recipe: at the prompt, `:recipe {name}` loads it; a script imports it by `import \"{name}\" as {name};` and calls `{name}::{hook}(batch, p)`"
    ))
}

/// Returns whether a name is a column or another property of `batch`, in which case the user may have forgotten `batch.`.
fn is_column(script: &Script<'_>, name: &str) -> bool {
    column_names::column(name).is_some()
        || ["advantage", "groups", "step"].contains(&name)
        || script.columns.iter().any(|column| column == name)
}

/// Returns the diagnostic of a call without a matching function; `call` is the engine's text, such as `mean (tensor, ?)`.
pub(in crate::script) fn unknown_function(script: &Script<'_>, call: &str) -> Diagnostic {
    let (name, arguments) = call.split_once(" (").unwrap_or((call, ")"));
    let arguments: Vec<&str> = arguments
        .trim()
        .trim_end_matches(')')
        .split(", ")
        .filter(|argument| !argument.trim().is_empty())
        .map(|argument| type_named(argument).1)
        .collect();
    let short = name.rsplit("::").next().unwrap_or(name);
    let given = counted(arguments.len(), "argument");
    if short.starts_with(CLOSURE) {
        let message = format!("the closure does not take {given}");
        return say(
            message,
            "the parameters of a closure are listed between the bars: `|a, b| ...`",
        );
    }
    let with = match arguments.split_last() {
        None => "nothing".to_string(),
        Some((last, [])) => last.to_string(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    };
    if !short.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        let help = habit("reserved", name).unwrap_or_else(|| operator_help(&arguments));
        return say(format!("`{name}` does not work with {with}"), help);
    }
    // The lint knows the number of arguments, but not their types, so each argument is `something`.
    let with = if arguments.iter().all(|argument| *argument == "something") {
        format!("with {given}")
    } else {
        format!("for {with}")
    };
    if let Some(help) = signature(short) {
        return say(
            format!("the function `{short}` exists, but not {with}"),
            help,
        );
    }
    let code = script.code(script.name);
    let is_known = script.functions.iter().any(|known| known == short);
    let functions = script.functions.iter().map(String::as_str);
    // A name of one letter is not compared with other names, because it is similar to every operator.
    let functions = functions.filter(|known| short.len() > 1 && !known.starts_with(CLOSURE));
    let message = if is_known {
        format!("there is no function `{name}` {with}")
    } else {
        format!("there is no function `{name}`")
    };
    let help = if let Some(foreign) = habit("functions", short) {
        foreign.to_string()
    } else if is_column(script, short) {
        format!("the column is `batch.{short}`, without parentheses")
    } else if is_known {
        "the function takes other arguments".to_string()
    } else if !name.contains("::") && is_variable(script, code, short) {
        format!(
            "`{short}` is a variable: a product is `{short} * x`, and a closure is called as `{short}.call(x)`"
        )
    } else if let Some(recipe) = recipe(short) {
        recipe
    } else if let Some(near) = suggest::nearest(short, functions) {
        return Diagnostic::error(message).did_you_mean(short, near);
    } else {
        "`advlab doc` lists the functions that a script can call".to_string()
    };
    say(message, help)
}

/// Returns whether the code declares a variable with this name, or the prompt has such a variable.
fn is_variable(script: &Script<'_>, code: &[Token<'_>], name: &str) -> bool {
    declared_names(code).contains(&name) || script.variables.iter().any(|known| known == name)
}

fn operator_help(arguments: &[&str]) -> &'static str {
    if arguments.contains(&type_named("()").1) {
        NO_ELSE
    } else if arguments.contains(&"a string") {
        "strings are joined as in `\"k = \" + k`; `parse_float(string)` makes a number from a string"
    } else {
        "operators work on tensors and numbers"
    }
}

pub(super) fn no_module(name: &str) -> Diagnostic {
    let import = format!("`import \"{name}\" as {name};` imports a recipe of that name");
    let help = habit("names", name).map_or(import, str::to_string);
    say(format!("nothing is imported as `{name}`"), help)
}

pub(super) fn no_variable(script: &Script<'_>, name: &str, place: Option<&Span>) -> Diagnostic {
    let message = format!("there is no variable `{name}`");
    let unknown = "`let x = ...` makes a variable; a function sees only its parameters and its own variables: pass the value as \
                   an argument, or make the value a parameter of the recipe, `p.name`";
    let Some(place) = place else {
        return say(message, unknown);
    };
    let line: Vec<&str> = script.line(place).iter().map(|token| token.text).collect();
    let is_loop = line.windows(3).any(|three| three == ["for", name, "in"]);
    let next = match script.site(place).text(1) {
        _ if is_loop && line.contains(&"[") => "for",
        string if string.starts_with('"') => "\"",
        next => next,
    };
    if let Some(habit) = row("after", next) {
        return habit;
    } else if let Some(help) = habit("keywords", name) {
        return say(format!("`{name}` is not part of this language"), help);
    }
    likely(script, name, place, &message).unwrap_or_else(|| say(message, unknown))
}

/// Returns the diagnostic of a name that is not a variable, with help for its likely meaning; `None` if no meaning is likely.
fn likely(script: &Script<'_>, name: &str, place: &Span, message: &str) -> Option<Diagnostic> {
    let (site, line) = (script.site(place), script.line(place));
    let code = site.code;
    let begins_line = line.first().is_some_and(|first| first.text == name);
    let begins_statement = begins_line || ["{", "}", ";"].contains(&site.text(-1));
    let is_argument = ["batch", "p"].contains(&name);
    // If the script does not compile, its parameters are known only from the text.
    let is_key = |site: CodeSite<'_, '_>| {
        let in_params = || {
            let function = code[..site.index]
                .windows(2)
                .rfind(|two| two[0].text == "fn");
            function.is_some_and(|two| two[1].text == "params") && !KEYS.contains(&name)
        };
        let is_it = [site.text(0), site.text(1)] == [name, ":"];
        is_it && (site.text(2) == "#{" || in_params())
    };
    let is_parameter =
        script.parameters.iter().any(|known| known == name) || sites(code).any(is_key);
    let belongs = |to: &str, what: &str| {
        let right = format!("{to}.{name}");
        let error = say(message, format!("the {what} is `{right}`"));
        Some(error.with_fix(name, right))
    };
    let help = if let Some(foreign) = habit("names", name) {
        foreign.to_string()
    } else if !is_argument && name.parse::<Level>().is_ok() {
        format!("a level is written in quotes: `x.mean(\"{name}\")`")
    } else if site.text(1) == "=" && begins_statement {
        format!("a new variable is declared with `let`: `let {name} = ...;`")
    } else if is_parameter {
        return belongs("p", "parameter");
    } else if is_argument && begins_line && site.token().column == 1 {
        "a formula belongs in a hook: `fn advantage(batch, p) { ... }`".to_string()
    } else if is_argument {
        format!(
            "hooks get it as an argument; pass it on to other functions, as in `baseline({name})`"
        )
    } else if sites(code).any(|site| [site.text(-1), site.text(0)] == ["const", name]) {
        format!(
            "a function sees a constant only if its value is a literal, as in `const {name} = 4;`"
        )
    } else if script.variables.iter().any(|known| known == name) {
        format!(
            "`{name}` is a variable of the prompt, which no function sees: pass it as an argument, or define it inside the function with `let`"
        )
    } else if is_column(script, name) {
        return belongs("batch", "column");
    } else if let Some(known) = recipe(name).or_else(|| signature(name)) {
        known
    } else {
        let variables = script.variables.iter().map(String::as_str);
        let known = declared_names(code).into_iter().chain(variables);
        // A single letter is similar to any other letter, so only the same letter in the other case is suggested.
        let is_likely = |known: &&str| name.len() > 1 || known.eq_ignore_ascii_case(name);
        let known = known.filter(|known| *known != name && is_likely(known));
        let near = suggest::nearest(name, known)?;
        return Some(Diagnostic::error(message).did_you_mean(name, near));
    };
    Some(say(message, help))
}

/// Returns the diagnostic of a key that is missing in a map, which may be the parameters or the state.
pub(super) fn no_key(script: &Script<'_>, key: &str, place: Option<&Span>) -> Diagnostic {
    let site = place.map(|place| script.site(place));
    let code = site.map_or(&[][..], |site| site.code);
    // The name before the dot, such as `p` in `p.k`.
    let receiver = site.and_then(|site| match &code[..site.index] {
        [.., receiver, dot] if dot.text == "." && receiver.kind != TokenKind::Symbol => {
            Some(receiver.text)
        }
        _ => None,
    });
    let map = match receiver {
        Some("this") => "the state".to_string(),
        Some(receiver) => format!("`{receiver}`"),
        None => "this map".to_string(),
    };
    let keys = sites(code)
        .filter(|site| site.text(1) == ":")
        .map(|site| site.text(0))
        .filter(|known| *known != key);
    let declared: Vec<&str> = sites(code)
        .filter(|site| site.text(1) == ":" && site.text(2) == "#{")
        .map(|site| site.text(0))
        .collect();
    let imported = place.filter(|place| place.source != *script.name);
    let mut error = Diagnostic::error(format!("{map} has no `{key}`"));
    if receiver == Some("p") {
        error = error.of_kind(ProblemKind::MissingParameter(key.to_string()));
    }
    let help = match (suggest::nearest(key, keys), receiver, imported) {
        (Some(near), _, None) => return error.did_you_mean(key, near),
        (_, Some("this"), _) => {
            format!("`init(p)` makes the entry: `fn init(p) {{ #{{ {key}: 0.0 }} }}`")
        }
        (_, Some("p"), Some(place)) => {
            let recipe = place.source.rsplit(['/', '\\']).next().unwrap_or("");
            let recipe = recipe.strip_suffix(".rhai").unwrap_or(recipe);
            let import = sites(script.code(script.name)).find(|site| {
                let name = site.text(1).trim_matches('"');
                site.text(0) == "import" && name.trim_end_matches(".rhai") == recipe
            });
            let alias = import.map_or(recipe, |site| site.text(3));
            format!(
                "`{recipe}` has the parameters {}: pass them, as in `#{{ {}: ... }}`, or declare them too with \
                 `fn params() {{ {alias}::params() }}`",
                suggest::list(declared.iter().copied()),
                declared.join(": ..., ")
            )
        }
        (_, Some("p"), None) if declared.is_empty() => {
            format!(
                "declare the parameter: `fn params() {{ #{{ {key}: #{{ value: 4, min: 1, doc: \"...\" }} }} }}`"
            )
        }
        (_, Some("p"), None) => format!("there is {}", suggest::list(declared)),
        _ => "`\"key\" in map` tells whether a map has a key".to_string(),
    };
    error.with_help(help)
}
