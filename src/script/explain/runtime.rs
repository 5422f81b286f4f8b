//! What to say of an error that came up while the script ran.

use rhai::{Dynamic, EvalAltResult};

use super::script::{keys, names, parameters};
use super::{NOTHING, Script, elsewhere, functions, lower_first, problem, unknown_function};
use crate::diagnostic::{Diagnostic, Span};
use crate::script::syntax::{TokenKind, ValueKind};
use crate::suggest;
use crate::tensor::{Level, TensorError, TensorErrorKind};

/// The most characters of a value that a message shows.
const SHOWN: usize = 200;

/// The help for an unknown name that is near no known one.
pub(in super::super) const SEES: &str = "a function sees only its parameters and its own variables: pass what it needs as an argument, or make it a parameter of the recipe, `p.name`";

pub(super) fn failed(
    script: &Script<'_>,
    error: &EvalAltResult,
    place: Option<&Span>,
) -> Diagnostic {
    match error {
        EvalAltResult::ErrorRuntime(value, _) => thrown(value),
        EvalAltResult::ErrorFunctionNotFound(signature, _) => unknown_function(script, signature),
        EvalAltResult::ErrorVariableNotFound(name, _) => no_variable(script, name, place),
        EvalAltResult::ErrorPropertyNotFound(name, _) => no_key(script, name, place),
        EvalAltResult::ErrorMismatchDataType(wanted, found, _)
        | EvalAltResult::ErrorMismatchOutputType(wanted, found, _) => mismatch(wanted, found),
        EvalAltResult::ErrorForbiddenVariable(name, _) => {
            Diagnostic::error(format!("`{name}` cannot be used as a variable's name"))
                .with_help("choose another name")
        }
        EvalAltResult::ErrorModuleNotFound(name, _) => no_import(name),
        EvalAltResult::ErrorAssignmentToConstant(name, _) => constant(name),
        EvalAltResult::ErrorFor(_) => Diagnostic::error("`for` needs an array, a range or `batch.groups`")
            .with_help("operations on tensors need no loop over responses or tokens; `for g in batch.groups { ... }` goes group by group"),
        EvalAltResult::ErrorUnboundThis(_) => {
            Diagnostic::error("`this`, the recipe's state, exists in hooks only")
                .with_help("pass what the function needs as an argument")
        }
        EvalAltResult::ErrorIndexingType(what, _) => indexing(what),
        EvalAltResult::ErrorIndexNotFound(index, _) => {
            Diagnostic::error(format!("there is no entry `{index}`"))
                .with_help("`key in map` tells whether there is one")
        }
        EvalAltResult::ErrorArrayBounds(length, index, _) => beyond("the array", *length, *index),
        EvalAltResult::ErrorStringBounds(length, index, _) => beyond("the string", *length, *index),
        EvalAltResult::ErrorDotExpr(what, _) => property(what),
        EvalAltResult::ErrorArithmetic(what, _) => arithmetic(what),
        EvalAltResult::ErrorDataRace(..) => {
            Diagnostic::error("a closure uses a variable that the call around it is changing")
                .with_help("copy what the closure needs before the call: `let n = a.len();`")
        }
        EvalAltResult::ErrorNonPureMethodCallOnConstant(name, _) => {
            Diagnostic::error(format!("`{name}` changes its receiver, which is a constant"))
                .with_help("declare it with `let` instead of `const`")
        }
        other => {
            let text = other.to_string();
            // The engine's messages end in the position, which stands at the caret.
            let text = text.split(" (line ").next().unwrap_or(&text);
            Diagnostic::error(lower_first(text))
        }
    }
}

pub(super) fn no_variable(script: &Script<'_>, name: &str, place: Option<&Span>) -> Diagnostic {
    let diagnostic = Diagnostic::error(format!("there is no variable `{name}`"));
    let Some(place) = place else {
        return diagnostic.with_help(SEES);
    };
    let site = script.site(place);
    let (code, line) = (site.code, site.line());
    let next = site.text(1);
    if next == "=>" {
        return Diagnostic::error("an anonymous function is not written with `=>`")
            .with_help(format!("write `|{name}| ...`"));
    }
    if next.starts_with('"') {
        return Diagnostic::error("a string with values in it is not written like this")
            .with_help("use backquotes, with the values in `${...}`");
    }
    if next == ":" {
        return Diagnostic::error("plain braces are a block, which cannot contain a `:`")
            .with_help(format!("a map starts with `#{{`: `#{{ {name}: ... }}`"));
    }
    let texts: Vec<&str> = line.iter().map(|token| token.text).collect();
    if texts.contains(&"[") && texts.windows(3).any(|three| three == ["for", name, "in"]) {
        return Diagnostic::error("there are no list comprehensions")
            .with_help("fill an array in a loop: `let sizes = []; for g in batch.groups { sizes.push(g.reward.len()); }`");
    }
    if let Some(here) = elsewhere::KEYWORDS.find(name) {
        return Diagnostic::error(format!("`{name}` is not part of this language")).with_help(here);
    }
    let is_new = next == "=" && texts.first() == Some(&name);
    let declared = parameters(code);
    let is_parameter =
        declared.contains(&name) || script.parameters.iter().any(|known| known == name);
    let constant = ["const", name];
    // Any letter is near any other.
    let near = names(code)
        .into_iter()
        .filter(|known| *known != name && name.len() > 1);
    diagnostic.with_help(if let Some(here) = elsewhere::NAMES.find(name) {
        here.to_string()
    } else if name != "batch" && name.parse::<Level>().is_ok() {
        format!("a level is written in quotes: `x.mean(\"{name}\")`")
    } else if is_new {
        format!("a new variable is declared with `let`: `let {name} = ...;`")
    } else if is_parameter {
        format!("the parameter is `p.{name}`")
    } else if ["batch", "p"].contains(&name) && line.first().is_some_and(|first| first.column == 1) {
        "a formula belongs in a hook: `fn advantage(batch, p) { ... }`".to_string()
    } else if ["batch", "p"].contains(&name) {
        format!("hooks get it as an argument; pass it on to other functions, as in `baseline({name})`")
    } else if code.windows(2).any(|two| [two[0].text, two[1].text] == constant) {
        format!(
            "a function does not see constants outside of it: declare the constant inside, or make it a parameter of the recipe, `p.{}`",
            name.to_lowercase()
        )
    } else if elsewhere::is_column(name) {
        format!("the column is `batch.{name}`")
    } else if let Some(near) = suggest::nearest(name, near) {
        format!("did you mean `{near}`?")
    } else {
        SEES.to_string()
    })
}

/// A map without the key that is asked of it: the parameters, the state, or another.
fn no_key(script: &Script<'_>, name: &str, place: Option<&Span>) -> Diagnostic {
    let site = place.map(|place| script.site(place));
    let code = site.as_ref().map_or(&[][..], |site| site.code);
    // The name before the dot: `p` of `p.k`.
    let receiver = site.as_ref().and_then(|site| match site.before() {
        [.., receiver, dot] if dot.text == "." && receiver.kind != TokenKind::Symbol => {
            Some(receiver.text)
        }
        _ => None,
    });
    let imported = place.filter(|place| place.source != *script.name);
    let what = match receiver {
        Some("this") => "the state".to_string(),
        Some(receiver) => format!("`{receiver}`"),
        None => "this map".to_string(),
    };
    let known = script.parameters.iter().map(String::as_str);
    let keys = known.chain(keys(code)).filter(|key| *key != name);
    let help = match (suggest::nearest(name, keys), receiver, imported) {
        (Some(near), _, None) => format!("did you mean `{near}`?"),
        (_, Some("this"), _) => {
            format!("`init(p)` makes it: `fn init(p) {{ #{{ {name}: 0.0 }} }}`")
        }
        (_, Some("p"), Some(place)) => {
            let recipe = place.source.rsplit(['/', '\\']).next().unwrap_or("");
            let recipe = recipe.strip_suffix(".rhai").unwrap_or(recipe);
            let all = parameters(code);
            let map: Vec<String> = all.iter().map(|name| format!("{name}: ...")).collect();
            format!(
                "`{recipe}` has the parameters {}: pass them, as in `#{{ {} }}`, or declare them too with `fn params() {{ {recipe}::params() }}`",
                suggest::list(all),
                map.join(", ")
            )
        }
        _ => "`\"key\" in map` tells whether a map has a key".to_string(),
    };
    Diagnostic::error(format!("{what} has no `{name}`")).with_help(help)
}

/// The error of a native function of ours, or of the script's own `throw`.
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

/// The help for an error of an operation; `None` where its message says enough.
fn by_tensor(error: &TensorError) -> Option<String> {
    match &error.kind {
        TensorErrorKind::Argument(why) if why.contains("this is nothing") => Some(NOTHING.to_string()),
        TensorErrorKind::Argument { .. } if !error.op.starts_with(char::is_alphabetic) => {
            Some(format!("`{}` works on tensors and numbers; `parse_float(string)` makes a number of a string", error.op))
        }
        TensorErrorKind::Argument { .. } => functions::signature(error.op),
        TensorErrorKind::Value { .. } if error.op.contains("binomial") => Some(
            "k can be as large as the smallest group: `batch.reward.count(\"group\").min(\"batch\")`".to_string(),
        ),
        _ => None,
    }
}

fn mismatch(wanted: &str, found: &str) -> Diagnostic {
    let (wanted, found) = (ValueKind::of_type(wanted), ValueKind::of_type(found));
    if wanted == ValueKind::Boolean && found.is_tensor() {
        return tensor_condition();
    }
    let diagnostic = Diagnostic::error(format!(
        "expected {}, found {}",
        wanted.described(),
        found.described()
    ));
    match wanted {
        ValueKind::Boolean => diagnostic.with_help("compare it, as in `x > 0` or `x != ()`"),
        ValueKind::Integer => diagnostic.with_help("`x.to_int()` makes an integer"),
        ValueKind::Number => diagnostic.with_help("`x.to_float()` makes a float"),
        _ => diagnostic.with_help(format!("give it {}", wanted.described())),
    }
}

pub(super) fn no_import(name: &str) -> Diagnostic {
    let diagnostic = Diagnostic::error(format!("nothing is imported as `{name}`"));
    match elsewhere::NAMES.find(name) {
        Some(here) => diagnostic.with_help(here),
        None => diagnostic.with_help(format!(
            "to import a recipe of that name, write `import \"{name}\" as {name};` at the top of the script"
        )),
    }
}

pub(super) fn constant(name: &str) -> Diagnostic {
    Diagnostic::error(format!("`{name}` is a constant and cannot be changed"))
        .with_help("a variable is declared with `let` instead of `const`")
}

fn beyond(what: &str, length: usize, index: i64) -> Diagnostic {
    let has = match length {
        0 => "is empty".to_string(),
        1 => "has 1 element".to_string(),
        length => format!("has {length} elements"),
    };
    Diagnostic::error(format!("index {index} is out of range: {what} {has}"))
        .with_help("indices count from 0, and from the end with -1")
}

/// Of the engine's `tensor [i64] = f64`.
fn indexing(what: &str) -> Diagnostic {
    let (object, index) = what.split_once(" [").unwrap_or((what, ""));
    let is_set = index.contains('=');
    let index = ValueKind::of_type(index.split(']').next().unwrap_or("")).described();
    let object = ValueKind::of_type(object);
    match (object, is_set) {
        (ValueKind::Tensor | ValueKind::Batch, true) => unchangeable(),
        (ValueKind::Tensor, false) => Diagnostic::error(format!("a tensor cannot be indexed by {index}"))
            .with_help("`x[0]` is its first value; a part of it is chosen with `where(c, x, 0)` or a selection, `x.mean(\"group\", chosen)`"),
        (ValueKind::Batch, false) => Diagnostic::error(format!("a batch cannot be indexed by {index}"))
            .with_help("`batch.groups[0]` is its first group, `batch[\"reward\"]` a column"),
        _ => Diagnostic::error(format!("{} cannot be indexed by {index}", object.described()))
            .with_help("arrays, maps, strings and tensors can be indexed: `a[0]`, `m[\"key\"]`"),
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
    let object = ValueKind::of_type(of);
    if what.contains("writable") || what.contains("setter") {
        return match object {
            ValueKind::Batch | ValueKind::Tensor => unchangeable(),
            _ => Diagnostic::error(format!("`{name}` of {} cannot be set", object.described()))
                .with_help("only the entries of maps can be set: `let m = #{ x: 1 }; m.x = 2;`"),
        };
    }
    if object.is_tensor() {
        return tensor_property(name);
    }
    Diagnostic::error(format!("{} has no `{name}`", object.described()))
        .with_help("maps and batches have properties, such as `p.k` and `batch.reward`")
}

pub(in crate::script) fn tensor_condition() -> Diagnostic {
    Diagnostic::error("a tensor cannot be used as a condition").with_help(
        "elementwise it is `where(c, a, b)`, `&`, `|` and `!`; to branch, compare a single value, as in `if x.mean(\"batch\") > 0.5`",
    )
}

pub(in crate::script) fn tensor_property(name: &str) -> Diagnostic {
    let only = "its only property is `level`; the rest are methods, such as `x.mean(\"group\")`";
    let help = elsewhere::PROPERTIES.find(name).map(str::to_string);
    let help = help.or_else(|| functions::signature(name));
    Diagnostic::error(format!("a tensor has no property `{name}`"))
        .with_help(help.unwrap_or_else(|| only.to_string()))
}

/// Of the engine's `Division by zero: 1 / 0`.
fn arithmetic(what: &str) -> Diagnostic {
    let (kind, sum) = what.split_once(": ").unwrap_or((what, ""));
    match kind.to_lowercase() {
        kind if kind.contains("zero") => {
            Diagnostic::error(format!("an integer is divided by 0 in `{sum}`"))
                .with_help("`safe_div(a, b)` is 0 where b is 0")
        }
        kind if kind.contains("overflow") || kind.contains("underflow") => {
            Diagnostic::error(format!("the result of `{sum}` is too large for an integer"))
                .with_help("floats go further: `x.to_float()`, or `2.0` instead of `2`")
        }
        kind if kind.contains("parsing") => {
            let text = what.split('\'').nth(1).unwrap_or("this");
            Diagnostic::error(format!("the string \"{text}\" is not a number"))
                .with_help("numbers look like `8`, `0.5` and `1e-6`")
        }
        _ => Diagnostic::error(lower_first(what)).with_help("check the operands"),
    }
}
