//! What to say of an error that came up while the script ran.

use rhai::{Dynamic, EvalAltResult};

use super::{Script, elsewhere, functions, problem, receiver, text, words};
use crate::diagnostic::{Diagnostic, Span};
use crate::suggest;
use crate::tensor::{Level, TensorError, TensorErrorKind};

/// The most characters of a value that a message shows.
const SHOWN: usize = 200;

/// What to say of a name that is near nothing.
pub(in super::super) const SEES: &str = "a function sees its arguments and its own variables alone; what it needs from outside is an argument or a parameter, `p.name`";

impl Script<'_> {
    pub(super) fn runtime(&self, error: &EvalAltResult, place: Option<&Span>) -> Diagnostic {
        match error {
            EvalAltResult::ErrorRuntime(value, _) => thrown(value),
            EvalAltResult::ErrorFunctionNotFound(signature, _) => self.unknown_function(signature),
            EvalAltResult::ErrorVariableNotFound(name, _) => self.no_variable(name, place),
            EvalAltResult::ErrorPropertyNotFound(name, _) => self.no_key(name, place),
            EvalAltResult::ErrorMismatchDataType(wanted, found, _)
            | EvalAltResult::ErrorMismatchOutputType(wanted, found, _) => mismatch(wanted, found),
            EvalAltResult::ErrorForbiddenVariable(name, _) => {
                Diagnostic::error(format!("`{name}` cannot be a variable's name"))
                    .with_help("choose another name")
            }
            EvalAltResult::ErrorModuleNotFound(name, _) => no_import(name),
            EvalAltResult::ErrorAssignmentToConstant(name, _) => constant(name),
            EvalAltResult::ErrorFor(_) => Diagnostic::error("`for` needs an array, a range or `batch.groups`")
                .with_help("there is no loop over responses or tokens: tensors do that, or `batch.groups` group by group"),
            EvalAltResult::ErrorUnboundThis(_) => {
                Diagnostic::error("`this`, the recipe's state, is there in hooks alone")
                    .with_help("pass what is needed to the function")
            }
            EvalAltResult::ErrorIndexingType(what, _) => indexing(what),
            EvalAltResult::ErrorIndexNotFound(index, _) => {
                Diagnostic::error(format!("there is nothing under `{index}`"))
                    .with_help("`key in map` says whether it is there")
            }
            EvalAltResult::ErrorArrayBounds(length, index, _) => beyond("an array", *length, *index),
            EvalAltResult::ErrorStringBounds(length, index, _) => beyond("a text", *length, *index),
            EvalAltResult::ErrorDotExpr(what, _) => property(what),
            EvalAltResult::ErrorArithmetic(what, _) => arithmetic(what),
            EvalAltResult::ErrorDataRace(..) => {
                Diagnostic::error("a variable is used in a closure while the call that was given the closure changes it")
                    .with_help("take what the closure needs out before the call: `let n = a.len();`")
            }
            EvalAltResult::ErrorNonPureMethodCallOnConstant(name, _) => {
                Diagnostic::error(format!("`{name}` changes what it is called on, and that is a constant"))
                    .with_help("make it a variable, with `let` in place of `const`")
            }
            other => {
                let text = other.to_string();
                // The engine's texts end in the position, which stands at the caret.
                let text = text.split(" (line ").next().unwrap_or(&text);
                Diagnostic::error(words::lower_first(text))
            }
        }
    }

    /// A name that stands for nothing.
    pub(super) fn no_variable(&self, name: &str, place: Option<&Span>) -> Diagnostic {
        let diagnostic = Diagnostic::error(format!("there is no variable `{name}`"));
        let text = place.map_or("", |place| &place.text);
        let line = place.and_then(|place| text.lines().nth(place.line - 1));
        let after = place.zip(line).map_or(String::new(), |(place, line)| {
            let rest = line.chars().skip(place.column - 1 + place.length);
            rest.collect::<String>().trim_start().to_string()
        });
        if after.starts_with("=>") {
            return Diagnostic::error("a function without a name is not written with `=>`")
                .with_help(format!("it is `|{name}| ...`"));
        }
        if after.starts_with('"') {
            return Diagnostic::error("a text with values in it is not written like this")
                .with_help("it stands in backquotes, with the values in `${...}`");
        }
        if after.starts_with(':') && !after.starts_with("::") {
            return Diagnostic::error("braces alone are a block, and a `:` cannot stand in it")
                .with_help(format!("a map starts with `#{{`: `#{{ {name}: ... }}`"));
        }
        let comprehension = format!("for {name} in");
        if line.is_some_and(|line| line.contains('[') && line.contains(&comprehension)) {
            return Diagnostic::error("an array made by a loop in brackets is not of this language")
                .with_help("it is made by `for`: `let sizes = []; for g in batch.groups { sizes.push(g.reward.len()); }`");
        }
        let is_assigned = after.starts_with('=') && !after.starts_with("==");
        let starts = line.is_some_and(|line| line.trim_start().starts_with(name));
        if let Some(here) = elsewhere::keyword(name) {
            return Diagnostic::error(format!("`{name}` is not of this language")).with_help(here);
        }
        if let Some(here) = elsewhere::name(name) {
            return diagnostic.with_help(here);
        }
        if name != "batch" && name.parse::<Level>().is_ok() {
            return diagnostic.with_help(format!("a level stands in quotes: `x.mean(\"{name}\")`"));
        }
        if ["dim", "axis"].contains(&name) && is_assigned {
            return diagnostic
                .with_help("a level says where to: `x.mean(\"group\")`, `x.sum(\"response\")`");
        }
        if ["torch", "np", "numpy", "math", "F", "jnp"].contains(&name) && after.starts_with('.') {
            return diagnostic.with_help("functions have no prefix: `exp(x)`, `x.mean(\"group\")`");
        }
        if is_assigned && starts {
            return diagnostic.with_help(format!(
                "a new variable starts with `let`: `let {name} = ...;`"
            ));
        }
        let known = self.parameters.iter().map(String::as_str);
        let declared = text::parameters(text);
        if known.chain(declared).any(|known| known == name) {
            return diagnostic.with_help(format!("the parameter is `p.{name}`"));
        }
        let constant = format!("const {name} ");
        let help = match name {
            "batch" | "p" if line.is_some_and(|line| !line.starts_with(' ')) => {
                "a formula stands in a hook: `fn advantage(batch, p) { ... }`".to_string()
            }
            "batch" | "p" => format!(
                "hooks get it as an argument; give it to other functions too, as in `baseline({name})`"
            ),
            _ if text.contains(&constant) => {
                format!(
                    "a function does not see what stands outside of it: write the constant into it, or make it a parameter, `p.{}`",
                    name.to_lowercase()
                )
            }
            _ if elsewhere::COLUMNS.contains(&name) => format!("the column is `batch.{name}`"),
            // Any letter is near any other.
            _ => match suggest::nearest(
                name,
                text::names(text)
                    .into_iter()
                    .filter(|known| *known != name && name.len() > 1),
            ) {
                Some(near) => format!("did you mean `{near}`?"),
                None => SEES.to_string(),
            },
        };
        diagnostic.with_help(help)
    }

    /// A map without the key that is asked of it: the parameters, the state, or another.
    fn no_key(&self, name: &str, place: Option<&Span>) -> Diagnostic {
        let text = place.map_or("", |place| &place.text);
        let imported = place.filter(|place| place.source != *self.name);
        let receiver = place.and_then(receiver);
        let (what, help) = match (receiver.as_deref(), imported) {
            (Some("this"), _) => (
                "the state".to_string(),
                format!("`init(p)` makes it: `fn init(p) {{ #{{ {name}: 0.0 }} }}`"),
            ),
            (Some(receiver @ "p"), Some(place)) => {
                let recipe = place.source.rsplit(['/', '\\']).next().unwrap_or("");
                let recipe = recipe.strip_suffix(".rhai").unwrap_or(recipe);
                let all = text::parameters(text);
                let map = all
                    .iter()
                    .map(|name| format!("{name}: ..."))
                    .collect::<Vec<_>>();
                (
                    format!("`{receiver}`"),
                    format!(
                        "`{recipe}` has the parameters {}: give them to it, as in `#{{ {} }}`, or declare them too with `fn params() {{ {recipe}::params() }}`",
                        suggest::list(all),
                        map.join(", ")
                    ),
                )
            }
            (receiver, _) => {
                let what = receiver.map_or("this map".to_string(), |name| format!("`{name}`"));
                (
                    what,
                    "a key that may be missing is asked for with `\"key\" in map`".to_string(),
                )
            }
        };
        let known = self.parameters.iter().map(String::as_str);
        let keys = known.chain(text::keys(text)).filter(|key| *key != name);
        Diagnostic::error(format!("{what} has no `{name}`")).with_help(
            match suggest::nearest(name, keys) {
                Some(near) if imported.is_none() => format!("did you mean `{near}`?"),
                _ => help,
            },
        )
    }
}

/// What a native function of ours reported, or the script's own `throw`.
fn thrown(value: &Dynamic) -> Diagnostic {
    let Some(problem) = problem(value) else {
        let text = value.to_string();
        let mut shown: String = text.chars().take(SHOWN).collect();
        if shown.len() < text.len() {
            shown.push_str("...");
        }
        return Diagnostic::error(shown);
    };
    let diagnostic = Diagnostic::error(problem.message);
    let help = problem.help.or_else(|| by_tensor(&*problem.tensor?));
    match help {
        Some(help) => diagnostic.with_help(help),
        None => diagnostic,
    }
}

/// What to do about an error of an operation, where its message does not say it already.
fn by_tensor(error: &TensorError) -> Option<String> {
    match &error.kind {
        TensorErrorKind::Argument(why) if why.contains("this is nothing") => Some(words::NOTHING.to_string()),
        TensorErrorKind::Argument { .. } if !error.op.starts_with(char::is_alphabetic) => {
            Some(format!("`{}` is for tensors and numbers; a number from a text is `parse_float(text)`", error.op))
        }
        TensorErrorKind::Argument { .. } => functions::signature(error.op),
        TensorErrorKind::Value { .. } if error.op.contains("binomial") => Some(
            "k can be as large as the smallest group: `batch.reward.count(\"group\").min(\"batch\")`".to_string(),
        ),
        _ => None,
    }
}

fn mismatch(wanted: &str, found: &str) -> Diagnostic {
    let (wanted, found) = (words::of_type(wanted), words::of_type(found));
    if wanted == "true or false" && found == "a tensor" {
        return Diagnostic::error("a tensor is neither true nor false").with_help(
            "value by value it is `where(c, a, b)`, `&`, `|` and `!`; to branch, compare one value, as in `if x.mean(\"batch\") > 0.5`",
        );
    }
    let diagnostic = Diagnostic::error(format!("this must be {wanted}, and is {found}"));
    match wanted.as_str() {
        "true or false" => diagnostic.with_help("compare it, as in `x > 0` or `x != ()`"),
        "a whole number" => diagnostic.with_help("a whole number is `x.to_int()`"),
        "a number" => diagnostic.with_help("a number with a fraction is `x.to_float()`"),
        _ => diagnostic.with_help(format!("give it {wanted}")),
    }
}

pub(super) fn no_import(name: &str) -> Diagnostic {
    let diagnostic = Diagnostic::error(format!("nothing is imported as `{name}`"));
    match elsewhere::name(name) {
        Some(here) => diagnostic.with_help(here),
        None => diagnostic.with_help(format!(
            "for a recipe of that name, `import \"{name}\" as {name};` at the top of the script"
        )),
    }
}

pub(super) fn constant(name: &str) -> Diagnostic {
    Diagnostic::error(format!("`{name}` is a constant and cannot be changed"))
        .with_help("a variable starts with `let` in place of `const`")
}

fn beyond(what: &str, length: usize, index: i64) -> Diagnostic {
    let has = match length {
        0 => "is empty".to_string(),
        1 => "has 1 element".to_string(),
        length => format!("has {length} elements"),
    };
    Diagnostic::error(format!("there is no place {index}: {what} here {has}"))
        .with_help("places count from 0, and from the end with -1")
}

/// Of the engine's `tensor [i64] = f64`.
fn indexing(what: &str) -> Diagnostic {
    let (object, index) = what.split_once(" [").unwrap_or((what, ""));
    let is_set = index.contains('=');
    let index = words::of_type(index.split(']').next().unwrap_or(""));
    let object = words::of_type(object);
    match (object.as_str(), is_set) {
        ("a tensor" | "a batch", true) => unchangeable(),
        ("a tensor", false) => Diagnostic::error(format!("a tensor has no place that is {index}"))
            .with_help("`x[0]` is its first value; a part of it is chosen with `where(c, x, 0)` or a selection, `x.mean(\"group\", chosen)`"),
        ("a batch", false) => Diagnostic::error(format!("a batch has no place that is {index}"))
            .with_help("`batch.groups[0]` is its first group, `batch[\"reward\"]` a column"),
        _ => Diagnostic::error(format!("{object} has no place that is {index}"))
            .with_help("arrays, maps, texts and tensors have places: `a[0]`, `m[\"key\"]`"),
    }
}

fn unchangeable() -> Diagnostic {
    Diagnostic::error("a batch or a tensor cannot be changed in place").with_help(
        "make a new one: `let r = where(c, a, batch.reward);`; a reward for all hooks is what `reward(batch, p)` returns",
    )
}

/// Of the engine's `Unknown property 'size' - a getter is not registered for type 'i64'`.
fn property(what: &str) -> Diagnostic {
    let mut quoted = what.split('\'').skip(1).step_by(2);
    let (name, of) = (quoted.next().unwrap_or(""), quoted.next().unwrap_or(""));
    let object = words::of_type(of);
    if what.contains("writable") || what.contains("setter") {
        return match object.as_str() {
            "a batch" | "a tensor" => unchangeable(),
            _ => Diagnostic::error(format!("`{name}` of {object} cannot be set"))
                .with_help("only maps have what can be set: `let m = #{ x: 1 }; m.x = 2;`"),
        };
    }
    let diagnostic = Diagnostic::error(format!("{object} has no `{name}`"));
    if object == "a tensor" {
        if let Some(here) = elsewhere::property(name) {
            return diagnostic.with_help(here);
        }
        if let Some(signature) = functions::signature(name) {
            return diagnostic.with_help(signature);
        }
    }
    diagnostic.with_help("maps and batches have names in them, as `p.k` and `batch.reward`")
}

/// Of the engine's `Division by zero: 1 / 0`.
fn arithmetic(what: &str) -> Diagnostic {
    let (kind, sum) = what.split_once(": ").unwrap_or((what, ""));
    match kind.to_lowercase() {
        kind if kind.contains("zero") => {
            Diagnostic::error(format!("a whole number is divided by 0, in `{sum}`"))
                .with_help("`safe_div(a, b)` is 0 where b is 0")
        }
        kind if kind.contains("overflow") || kind.contains("underflow") => Diagnostic::error(
            format!("the result of `{sum}` is too large for a whole number"),
        )
        .with_help("numbers with a fraction go further: `x.to_float()`, or `2.0` in place of `2`"),
        kind if kind.contains("parsing") => {
            let text = what.split('\'').nth(1).unwrap_or("this");
            Diagnostic::error(format!("the text \"{text}\" is no number"))
                .with_help("numbers are as `8`, `0.5` and `1e-6`")
        }
        _ => Diagnostic::error(words::lower_first(what))
            .with_help("are these the numbers that are meant?"),
    }
}
