//! Calls and parameters: whether what they name is there.

use rhai::{Expr, FnCallExpr, Position};

use super::Lint;
use super::kinds::{Kind, Variables, result};
use crate::diagnostic::Severity;
use crate::script::explain;
use crate::suggest;
use crate::tensor::Level;
use crate::tensor::op::{self, ParamKind};

/// What Rhai looks up by itself: calls through a function pointer, and questions about names.
const BY_THE_ENGINE: [&str; 9] = [
    "call",
    "curry",
    "Fn",
    "is_def_var",
    "is_def_fn",
    "type_of",
    "print",
    "debug",
    "is_shared",
];

/// Where a text first stands in the script.
fn position_of(text: &str, what: &str) -> Position {
    let mut lines = text.lines().zip(1u16..);
    lines
        .find_map(|(line, number)| {
            let before = line.get(..line.find(what)?)?;
            let column = u16::try_from(before.chars().count() + 1).ok()?;
            Some(Position::new(number, column))
        })
        .unwrap_or(Position::NONE)
}

impl Lint<'_> {
    pub(super) fn parameter(&mut self, name: &str, position: Position) {
        let declared = &self.known.script.parameters;
        // An imported script's `p` is what its caller gives to it.
        if self.known.is_import || declared.iter().any(|known| known == name) {
            return;
        }
        let help = match declared.len() {
            0 => format!(
                "declare it: `fn params() {{ #{{ {name}: #{{ value: 4, min: 1, doc: \"...\" }} }} }}`"
            ),
            _ => suggest::did_you_mean(name, declared.iter().map(String::as_str)),
        };
        let message = format!("the recipe has no parameter `{name}`");
        self.report(Severity::Error, position, message, help);
    }

    /// Parameters that nobody reads: what is set with `--set` would do nothing.
    pub(super) fn unread_parameters(&mut self) {
        if self.known.is_import || self.passes_parameters_on {
            return;
        }
        let script = &self.known.script;
        let text = script.sources.get(script.name).map_or("", |text| text);
        let unread = |name: &&String| !text.contains(&format!(".{name}"));
        let unread: Vec<String> = script.parameters.iter().filter(unread).cloned().collect();
        for name in unread {
            let position = position_of(text, &format!("{name}:"));
            let message = format!("the parameter `{name}` is declared and never read");
            let help = format!("a hook reads it as `p.{name}`");
            self.report(Severity::Warning, position, message, help);
        }
    }

    pub(super) fn call(
        &mut self,
        call: &FnCallExpr,
        position: Position,
        receiver: Option<Kind>,
        variables: &mut Variables,
    ) -> Kind {
        let mut kinds: Vec<Kind> = receiver.into_iter().collect();
        for argument in &call.args {
            let kind = self.kind(argument, variables);
            kinds.push(kind);
        }
        self.no_curry(call, position, receiver);
        let is_variable = receiver.is_none() && variables.contains_key(call.name.as_str());
        self.exists(call, position, kinds.len(), is_variable);
        self.names(call, usize::from(receiver.is_some()));
        match self.is_of_a_script(call) {
            true => Kind::Other,
            false => result(call, &kinds),
        }
    }

    /// Whether the function is one of this script or of one that it imports.
    fn is_of_a_script(&self, call: &FnCallExpr) -> bool {
        !call.namespace.is_empty() || self.own.contains_key(call.name.as_str())
    }

    fn exists(&mut self, call: &FnCallExpr, position: Position, count: usize, is_variable: bool) {
        let name = call.name.as_str();
        if name.starts_with("anon$") || call.op_token.is_some() || BY_THE_ENGINE.contains(&name) {
            return;
        }
        if !call.namespace.is_empty() {
            return self.exists_in_import(call, position, count);
        }
        let named = [self.natives.get(name), self.own.get(name)];
        let mut counts: Vec<usize> = named.into_iter().flatten().flatten().copied().collect();
        if counts.contains(&count) {
            return;
        }
        counts.sort_unstable();
        counts.dedup();
        let signature = format!("{name} ({})", vec!["?"; count].join(", "));
        let explained = self.known.script.unknown_function(&signature).help;
        let is_own = self.own.contains_key(name);
        let is_row = op::table().any(|op| op.name == name);
        let (message, help) = match counts.first() {
            None if is_variable => (
                format!("`{name}` is a variable, and not called like this"),
                format!(
                    "a closure is called as `{name}.call(...)`; a function is `fn {name}(...) {{ ... }}`"
                ),
            ),
            None => (
                format!("there is no function `{name}`"),
                explained.unwrap_or_default(),
            ),
            Some(_) => {
                // A method has its tensor before the dot: what stands in the brackets is one less.
                let message = format!("`{name}` does not take {}", explain::arguments(count));
                let takes: Vec<String> = counts.iter().map(usize::to_string).collect();
                let help = match explained {
                    Some(help) if is_row && !is_own => help,
                    _ => format!("it takes {}", takes.join(" or ")),
                };
                (message, help)
            }
        };
        self.report(Severity::Error, position, message, help);
    }

    /// The engine makes a `curry` of each closure that takes variables along; one that is written out copies its arguments,
    /// again at each call, and is never needed.
    fn no_curry(&mut self, call: &FnCallExpr, position: Position, receiver: Option<Kind>) {
        let is_closure = matches!(call.args.first(), Some(Expr::DynamicConstant(..)));
        if call.name == "curry" && (receiver.is_some() || !is_closure) {
            let message = "there is no function `curry`".to_string();
            let help = "a closure takes along what it uses: `|x| f.call(numbers, x)`".to_string();
            self.report(Severity::Error, position, message, help);
        }
    }

    fn exists_in_import(&mut self, call: &FnCallExpr, position: Position, count: usize) {
        let name = call.name.as_str();
        let path: Vec<&str> = call
            .namespace
            .path
            .iter()
            .map(|part| part.name.as_str())
            .collect();
        let path = path.join("::");
        let functions = self
            .aliases
            .get(&path)
            .and_then(|from| self.known.imports.get(from));
        let Some(functions) = functions else {
            return;
        };
        let named = |(known, _): &&(String, usize)| known == name;
        if functions
            .iter()
            .filter(named)
            .any(|(_, params)| *params == count)
        {
            return;
        }
        let (message, help) = match functions.iter().find(named) {
            Some((_, params)) => (
                format!(
                    "`{path}::{name}` does not take {}",
                    explain::arguments(count)
                ),
                format!("it takes {params}"),
            ),
            None => (
                format!("`{path}` has no function `{name}`"),
                suggest::did_you_mean(name, functions.iter().map(|(known, _)| known.as_str())),
            ),
        };
        self.report(Severity::Error, position, message, help);
    }

    /// Levels and kinds that are written out: a slip in a branch that is rarely taken is found before it is.
    fn names(&mut self, call: &FnCallExpr, receivers: usize) {
        if self.is_of_a_script(call) {
            return;
        }
        for (place, argument) in call.args.iter().enumerate() {
            let Expr::StringConstant(text, position) = argument else {
                continue;
            };
            let rows = op::table().filter(|op| op.name == call.name.as_str());
            let param = rows
                .filter_map(|op| op.params.get(place + receivers))
                .find(|param| matches!(param.kind, ParamKind::Level | ParamKind::Choice(_)));
            let wrong = match param.map(|param| param.kind) {
                Some(ParamKind::Level) => text.parse::<Level>().is_err().then(|| {
                    let levels = Level::ALL.map(Level::name);
                    (
                        format!("there is no level \"{text}\""),
                        suggest::did_you_mean(text, levels),
                    )
                }),
                Some(ParamKind::Choice(choices)) => {
                    (!choices.contains(&text.as_str())).then(|| {
                        let message = format!("`{}` has no kind \"{text}\"", call.name);
                        // Kinds are too short for a slip to be told from another kind.
                        (
                            message,
                            format!("there is {}", suggest::list(choices.iter().copied())),
                        )
                    })
                }
                _ => None,
            };
            if let Some((message, help)) = wrong {
                self.report(Severity::Error, *position, message, help);
            }
        }
    }
}
