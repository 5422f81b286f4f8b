//! Collects the values of a script's names and operations in a dry run, for an editor that shows them beside the code.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rhai::{Dynamic, FuncRegistration, INT, Module};

use super::answer::Answer;
use crate::batch::Batch;
use crate::check::dry_run;
use crate::parallel::lock;
use crate::script::syntax::{CodeSite, Token, TokenKind, code, sites};
use crate::script::{Recipe, ScriptBatch, guarded};
use crate::tensor::{Origin, Tracing};

/// The name of the function that records a value. A script is not expected to define a function with this name.
const NOTE: &str = "__advlab_note";
/// At most this many values are passed on, because a user sees only a screenful of them.
const MOST: usize = 1000;

impl Recipe {
    /// Runs the recipe on a batch, as [`dry_run`] does. Passes to `seen` the first value of each variable, parameter
    /// and operation of the script (at most 1000 values, and no batches), with the byte offset at which its name begins. If the
    /// run fails, only earlier values are passed.
    pub fn observe(&self, batch: &Batch, seen: &mut (dyn FnMut(usize, Answer) + Send)) {
        let (noted, trace) = (Noted::default(), Tracing::default());
        let probed = Probed::of(self.text());
        let mut host = self.host().clone().with_trace(&trace);
        host.functions = host.functions.with(notes_into(&noted));
        let sources = self
            .sources()
            .map(|(name, text)| match name == self.name() {
                true => (name, &*probed.text),
                false => (name, text),
            });
        // The error is ignored, because the script itself compiles, so only the inserted calls can be at fault.
        let Ok(mut recipe) = host.restore(self.name(), sources) else {
            return;
        };
        recipe.params = self.params.clone();
        let state = recipe.init();
        let _ = state.and_then(|state| dry_run(&recipe, batch, &state, true));
        // The error is ignored, because values that cannot be shown are simply skipped.
        let _ = guarded("to show what the script holds", || {
            let mut values = std::mem::take(&mut *lock(&noted));
            let is_own = |origin: &Origin| {
                let source = origin.source.as_deref();
                source.is_none_or(|source| source == self.name())
            };
            for (origin, tensor) in trace.made() {
                let at = probed.original(&origin).filter(|_| is_own(&origin));
                if let Some(at) = at.and_then(|at| name_at(self.text(), at)) {
                    values.entry(at).or_insert(Dynamic::from(tensor));
                }
            }
            for (at, value) in values.into_iter().take(MOST) {
                let value = value.flatten();
                // A batch is skipped because showing it would compute all its columns.
                if value.is::<ScriptBatch>() {
                    continue;
                }
                if let Ok(answer) = Answer::of(&value) {
                    seen(at, answer);
                }
            }
        });
    }
}

/// The first value of each name, by the byte offset at which the name begins in the script.
type Noted = Arc<Mutex<BTreeMap<usize, Dynamic>>>;

fn notes_into(noted: &Noted) -> Module {
    let (mut module, noted) = (Module::new(), noted.clone());
    let note = move |at: INT, value: Dynamic| {
        let at = usize::try_from(at).unwrap_or_default();
        lock(&noted).entry(at).or_insert(value);
    };
    FuncRegistration::new(NOTE).set_into_module(&mut module, note);
    module
}

/// A script with inserted calls of [`NOTE`]: after the semicolon of each statement that sets a variable, and, for parameters and
/// loop variables, at the start of each body in braces. The calls do not change any line number.
struct Probed {
    text: String,
    /// For each inserted call, the byte offset in `text` at which it begins, and its length in bytes.
    calls: Vec<(usize, usize)>,
}

impl Probed {
    fn of(text: &str) -> Probed {
        let code = code(text);
        let mut notes: Vec<(usize, &Token<'_>)> = Vec::new();
        for site in sites(&code) {
            let after = &code[site.index + 1..];
            let until = |end: &str| {
                after
                    .iter()
                    .position(|token| token.text == end)
                    .unwrap_or(0)
            };
            let (names, body) = match site.text(0) {
                "fn" => (1..until("{"), until("{")),
                "for" => (0..until("in"), until("{")),
                // This is a closure, whose body may be a block.
                "|" if ["(", ",", "="].contains(&site.text(-1)) => (0..until("|"), until("|") + 1),
                _ if sets_variable(&site) => {
                    let end = statement_end(&code[site.index..]);
                    notes.extend(end.map(|end| (end, site.token())));
                    continue;
                }
                _ => continue,
            };
            if let Some(body) = after.get(body).filter(|token| token.text == "{") {
                let names = after.get(names).unwrap_or_default().iter();
                notes.extend(names.map(|name| (body.end(), name)));
            }
        }
        notes.retain(|(_, name)| name.kind == TokenKind::Name && name.text != "_");
        notes.sort_by_key(|(place, name)| (*place, name.start));
        let mut probed = Probed {
            text: String::new(),
            calls: Vec::new(),
        };
        let mut from = 0;
        for (place, name) in notes {
            probed.text.push_str(&text[from..place]);
            let call = format!(" {NOTE}({}, {});", name.start, name.text);
            probed.calls.push((probed.text.len(), call.len()));
            probed.text.push_str(&call);
            from = place;
        }
        probed.text.push_str(&text[from..]);
        probed
    }

    /// Converts an origin, a line and a column in the text with the calls, to a byte offset in the original script.
    fn original(&self, origin: &Origin) -> Option<usize> {
        let lines = self.text.split_inclusive('\n');
        let before: usize = lines.take(origin.line.checked_sub(1)?).map(str::len).sum();
        let mut letters = self.text[before..].char_indices();
        let at = before + letters.nth(origin.column.checked_sub(1)?)?.0;
        let calls = self.calls.iter().take_while(|(start, _)| *start <= at);
        Some(at - calls.map(|(_, length)| length).sum::<usize>())
    }
}

/// Returns whether the token is the name in `let x`, or the name at the start of `x = ...` or `x += ...`.
fn sets_variable(site: &CodeSite<'_, '_>) -> bool {
    let begins = ["{", "}", ";"].contains(&site.text(-1));
    let is_set = ["=", "+=", "-=", "*=", "/="].contains(&site.text(1));
    site.text(-1) == "let" || begins && is_set
}

/// Returns the byte offset after the semicolon that ends the statement at the start of `code`; `None` if there is no semicolon.
fn statement_end(code: &[Token<'_>]) -> Option<usize> {
    let mut depth = 0;
    for token in code {
        depth += token.nesting();
        match token.text {
            ";" if depth == 0 => return Some(token.end()),
            _ if depth < 0 => return None,
            _ => {}
        }
    }
    None
}

/// Returns the byte offset at which a name begins: `at` itself or, if `at` is a dot, the offset of the name after the dot.
fn name_at(text: &str, at: usize) -> Option<usize> {
    let rest = text.get(at..)?;
    let dot = rest.strip_prefix("?.").or_else(|| rest.strip_prefix('.'));
    Some(text.len() - dot.map_or(rest.len(), |name| name.trim_start().len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::usual;
    use crate::script::{BUILTINS, Host};

    /// The calls are where a statement may stand, and change no result: tried on all built-ins.
    #[test]
    fn a_script_with_notes_gives_the_same_bits() {
        let mut count = 0;
        for builtin in BUILTINS {
            let recipe = Host::new().load(builtin.name).unwrap();
            let (probed, mut host) = (Probed::of(builtin.text), Host::new());
            host.functions = host.functions.with(notes_into(&Noted::default()));
            let noting = host.compile(builtin.name, &probed.text).unwrap();
            let bits = |recipe: &Recipe| {
                let done = dry_run(recipe, &usual(), &recipe.init().unwrap(), true);
                let advantage = done.map(|outcome| outcome.advantage);
                advantage.map(|all| all.iter().map(f64::to_bits).collect::<Vec<u64>>())
            };
            assert_eq!(bits(&noting).ok(), bits(&recipe).ok(), "{}", builtin.name);
            count += probed.calls.len();
            let mut text = probed.text.clone();
            for (start, length) in probed.calls.iter().rev() {
                text.replace_range(*start..start + length, "");
            }
            assert_eq!(text, builtin.text);
        }
        assert!(count > 300, "{count} notes");
    }

    #[test]
    fn each_name_has_what_it_held_first() {
        let text = "fn half(x) { x / 2 } fn advantage(batch, p) { /* 数 */ let r = batch.reward; let n = 1; \
            for k in [4, 5] { n += k; } let f = |a, b| { a + b };\n let m = r.mean(\"group\"); half(f.call(r, m)) * n + missing }";
        let recipe = Host::new().compile("mine", text);
        assert!(recipe.is_err());
        let recipe = Host::new().compile("mine", &text.replace("missing", "batch.nothing"));
        let mut seen = BTreeMap::new();
        recipe
            .unwrap()
            .observe(&Batch::example(), &mut |at, answer| {
                let level = match answer {
                    Answer::Tensor(computed) => computed.level().to_string(),
                    other => format!("{:?}", other.numbers()),
                };
                seen.insert(at, level);
            });
        let held = |text_before: &str, name: &str| {
            let at = text.find(text_before).unwrap() + text_before.len() - name.len();
            seen.get(&at).map(String::as_str)
        };
        for (before, name, expected) in [
            ("half(x", "x", Some("response")),
            ("let r", "r", Some("response")),
            ("let n", "n", Some("[1.0]")),
            ("for k", "k", Some("[4.0]")),
            ("n +=", "+=", None),
            ("{ n", "n", Some("[5.0]")),
            ("let m", "m", Some("group")),
            ("r.mean", "mean", Some("group")),
            ("x /", "/", Some("response")),
            ("|a", "a", Some("response")),
        ] {
            assert_eq!(held(before, name), expected, "{before}");
        }
    }
}
