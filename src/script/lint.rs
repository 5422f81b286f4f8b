//! The lint: finds mistakes in a script that the compiler does not report, and that a run would report late or never.
//!
//! Rhai looks up a function only when it is called, so a misspelt name in a branch that is rarely taken could end a run after
//! days. Other mistakes never raise an error: the code looks correct, but does something else.

use std::collections::{BTreeSet, HashMap, HashSet};

use rhai::{AST, ASTNode, Expr, Stmt};

use super::explain::habits::habit;
use super::explain::names::unknown_function;
use super::explain::{CLOSURE, Script};
use super::hook::Hook;
use super::imports::{Arities, Modules, functions_of, imports_of};
use super::misread::misread_operators;
use super::reference::ops;
use super::syntax::{Token, TokenKind, sites};
use crate::batch::Level;
use crate::diagnostic::Diagnostic;
use crate::number_text::counted;
use crate::suggest;

/// The number of errors from which the lint looks for no more wrong calls, and the maximum number of unread parameters that it
/// lists.
const LISTED: usize = 20;

/// Functions that Rhai handles itself, such as `call`, which calls a function pointer, and `is_def_var`, which looks up a
/// name.
const BY_THE_ENGINE: &str = "call curry Fn is_def_var is_def_fn type_of print debug is_shared";

/// Finds the mistakes that are errors: calls of functions that do not exist or do not take the given number of arguments, and
/// operators that mean something else in Python.
pub(super) fn errors(
    ast: &AST,
    script: &Script<'_>,
    natives: &Arities,
    imports: &Modules,
) -> Vec<Diagnostic> {
    let own = functions_of(ast);
    // Only imports at the top level are considered: calls into a module that is imported inside a function are not checked.
    let modules: HashMap<&str, Arities> = imports_of(ast)
        .filter_map(|(path, alias)| {
            let alias = if alias.is_empty() { path } else { alias };
            Some((alias, functions_of(&imports.get(path)?.0)))
        })
        .collect();
    let mut found = misread_operators(script.name, &script.text(), &|_| false);
    ast.walk(&mut |path| {
        let (call, position, receivers) = match path.last() {
            Some(ASTNode::Expr(Expr::FnCall(call, at)) | ASTNode::Stmt(Stmt::FnCall(call, at))) => {
                (call, *at, 0)
            }
            // The receiver of a method counts as an argument.
            Some(ASTNode::Expr(Expr::MethodCall(call, at))) => (call, *at, 1),
            _ => return true,
        };
        let (name, path) = (call.name.as_str(), call.namespace.to_string());
        let count = receivers + call.args.len();
        let by_the_engine =
            name.starts_with(CLOSURE) || BY_THE_ENGINE.split(' ').any(|known| known == name);
        let module = modules.get(path.as_str());
        let is_unknown_module = module.is_none() && !path.is_empty();
        if by_the_engine || call.op_token.is_some() || is_unknown_module || found.len() >= LISTED {
            return true;
        }
        let known = match module {
            Some(functions) => [functions.get(name), None],
            None => [natives.get(name), own.get(name)],
        };
        let counts: BTreeSet<usize> = known.into_iter().flatten().flatten().copied().collect();
        if !counts.contains(&count) {
            let diagnostic = wrong_call(script, (&path, name), count, &counts, module);
            found.push(diagnostic.at(script.place(script.name, position)));
        }
        true
    });
    found.sort_by_key(|found| found.span.as_ref().map(|span| (span.line, span.column)));
    found.dedup();
    found
}

/// Returns the error for a call with `count` arguments of a function that does not exist, or that takes other numbers of
/// arguments, which are in `counts`.
fn wrong_call(
    script: &Script<'_>,
    (path, name): (&str, &str),
    count: usize,
    counts: &BTreeSet<usize>,
    module: Option<&Arities>,
) -> Diagnostic {
    match module {
        Some(functions) if counts.is_empty() => {
            let known = functions.keys().map(String::as_str);
            Diagnostic::error(format!("`{path}` has no function `{name}`"))
                .with_help(suggest::did_you_mean(name, known.clone()))
                .with_nearest(name, known)
        }
        None if counts.is_empty() || ops(name).next().is_some() => {
            unknown_function(script, &format!("{name} ({})", vec!["?"; count].join(", ")))
        }
        _ => {
            let takes: Vec<String> = counts.iter().map(usize::to_string).collect();
            let given = counted(count, "argument");
            let separator = if path.is_empty() { "" } else { "::" };
            Diagnostic::error(format!("`{path}{separator}{name}` does not take {given}")).with_help(
                match habit("functions", name) {
                    Some(help) if path.is_empty() => help.to_string(),
                    _ => format!("it takes {}", takes.join(" or ")),
                },
            )
        }
    }
}

/// Finds probable mistakes: parameters that are never read or that a hook sets, and misspelt hooks.
pub(super) fn warnings(ast: &AST, script: &Script<'_>) -> Vec<Diagnostic> {
    let code = script.code(script.name);
    let warn = |message, help: String, at| Diagnostic::warning(message).with_help(help).at(at);
    // `batch.NAME` reads a column, even if a parameter has the same name. If `p` itself is passed on, any parameter may be read.
    let read: HashSet<&str> = sites(code)
        .filter(|site| site.text(-1) == "." && site.text(-2) != "batch")
        .map(|site| site.text(0))
        .collect();
    let passed_on = sites(code).any(|site| {
        let is_argument =
            ["(", ",", "="].contains(&site.text(-1)) && [")", ",", ";"].contains(&site.text(1));
        let declares = || {
            let before = &code[..site.index];
            let open = before.iter().rposition(|token| token.text == "(");
            open.is_some_and(|open| open >= 2 && code[open - 2].text == "fn")
        };
        site.text(0) == "p" && is_argument && !declares()
    });
    let parameters = script.parameters.iter().filter(|_| !passed_on);
    let unread = parameters
        .filter(|name| !read.contains(name.as_str()))
        .take(LISTED)
        .map(|name| {
            let message = format!("the parameter `{name}` is declared but never read");
            let help = format!("a hook reads it as `p.{name}`");
            warn(message, help, script.key(name))
        });
    let set = sites(code)
        .filter(|site| [site.text(-2), site.text(-1), site.text(1)] == ["p", ".", "="])
        .map(|site| {
            let name = site.text(0);
            let message = format!(
                "`p.{name} = ...` changes this hook's copy of the parameter, whatever `--set {name}=...` says"
            );
            let help = format!("for a value of the script's own, declare a variable: `let {name} = ...`");
            let place = site.token().span(script.name, &script.text());
            warn(message, help, Some(place))
        });
    let hooks = misspelt_hooks(script, &functions_of(ast));
    unread.chain(set).chain(hooks).collect()
}

/// Warns of functions that are never called, and that resemble, by name and number of parameters, a hook that the script lacks.
fn misspelt_hooks(script: &Script<'_>, functions: &Arities) -> Vec<Diagnostic> {
    let code = script.code(script.name);
    let warnings = functions.iter().filter_map(|(name, counts)| {
        let hooks = Hook::ALL.into_iter().filter(|hook| {
            !functions.contains_key(hook.name()) && counts.contains(&hook.parameters().len())
        });
        let hook = suggest::nearest(name, hooks.map(Hook::name))?;
        let quoted = format!("\"{name}\"");
        let is_named = |token: &&Token<'_>| token.is_name(name) || token.text == quoted;
        let named = code.iter().filter(is_named);
        let warning = Diagnostic::warning(format!("nothing calls the function `{name}`"))
            .with_help(format!("did you mean the hook `{hook}`?"))
            .with_fix(name, hook);
        (named.count() == counts.len()).then(|| warning.at(script.definition(name)))
    });
    warnings.collect()
}

/// Adds to `reads` the columns that code may read: `name` in `x["name"]`, and in `x.name` unless `x` is `p` or `this` or `name`
/// is `groups` or `step`; the literal arguments of `column`, `has` and `key`; and `trajectory`, if the code names that level.
/// Returns false if the code may compute the name of a column, or calls `columns`.
pub(super) fn reads(code: &[Token<'_>], reads: &mut BTreeSet<String>) -> bool {
    const BY_NAME: [&str; 4] = ["column", "columns", "has", "key"];
    let mut are_all = true;
    for site in sites(code) {
        let (before, token, next) = (site.text(-1), site.token(), site.text(1));
        let is_member = token.kind == TokenKind::Name && [".", "?."].contains(&before);
        match token.text {
            name if BY_NAME.contains(&name) && next == "(" => {
                let rest = &code[site.index + 2..];
                let arguments = rest.iter().take_while(|token| token.text != ")");
                let mut others = arguments.clone().filter(|one| literal(one).is_none());
                are_all &= others.all(|one| [",", "[", "]"].contains(&one.text));
                are_all &= name != "columns";
                reads.extend(arguments.filter_map(literal));
            }
            "groups" | "step" => {}
            name if is_member && !["(", "()"].contains(&next) => {
                let is_other = ["p", "this"].contains(&site.text(-2));
                reads.extend((!is_other).then(|| name.to_string()));
            }
            "[" | "?[" if site.index > 0 && code[site.index - 1].ends_operand() => {
                let is_fixed = code.get(site.index + 1).is_some_and(|index| {
                    matches!(index.kind, TokenKind::String | TokenKind::Number)
                });
                are_all &= is_fixed && site.text(2) == "]";
            }
            _ if before == "[" && next == "]" => reads.extend(literal(token)),
            _ => {}
        }
        // The level `trajectory` is made from the column of the same name.
        let is_level = |text: &String| text == Level::Trajectory.name();
        reads.extend(literal(token).filter(is_level));
        // A string with the name of one of these functions may become a pointer to that function.
        are_all &= literal(token).is_none_or(|text| !BY_NAME.contains(&&*text));
    }
    are_all
}

fn literal(token: &Token<'_>) -> Option<String> {
    let is_text = token.kind == TokenKind::String;
    is_text.then(|| token.text.trim_matches(['"', '`']).to_string())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::Batch;
    use crate::script::Host;
    use crate::script::misread::floor_divisions;
    use crate::script::unfinished;
    use crate::session::Session;

    /// Correct code that is similar to something wrong.
    #[test]
    fn nothing_is_said_of_what_is_meant_so() {
        for text in [
            "fn advantage(batch, p) { let x = batch.reward; (-x) ** 2 - (-(x ** 2)) - x ** 2 + (1 - x) ** -2 }",
            "fn lost(batch, p) { batch.reward } fn advantage(batch, p) { -lost(batch, p) }",
            "fn los(batch, p) { batch.reward } fn advantage(batch, p) { Fn(\"los\").call(batch, p) }",
            "fn params() { #{ k: #{ value: 1 } } } fn advantage(batch, p) { let q = p; q.k * batch.reward }",
        ] {
            let recipe = Host::new()
                .compile("right", text)
                .unwrap_or_else(|error| panic!("{}", error.render(false)));
            assert_eq!(recipe.warnings(), [], "{text}");
        }
    }

    /// `//` is Python's floor division if only an operand follows, and a comment otherwise.
    #[test]
    fn floor_divisions_are_told_from_comments() {
        let found = |line: &str| {
            let text = format!("fn f(x, n, r, p) {{\n{line}\n}}");
            floor_divisions(&"f".into(), &text.into(), &|_| false).len()
        };
        let divisions = "x // 2 | x // 2; | x // n, r) | if x // 2 > 3 { | r - r.mean(\"group\") // 2 | \
            f(x)[0].y // (n - 1) | (r + 1) // p.k | x // max(n, 2) + 1 | x // r.mean(\"group\") | x // 2); let y = n;";
        for line in divisions.split(" | ") {
            assert_eq!(found(line), 1, "{line}");
        }
        let comments = "x // the mean | x // 2 per group | x // 2, 3 and 4 | x // 2 * 3 = 6 | \
            x // (n - 1) in the paper | x // n of them | x // mean (n) | x // A(s, a) | x // p | r / x // f | \
            x // e.g. n | x // [1] | x // (2) | x // 0 | x // 50 % | x // - x.mean(\"group\") | x // + n | \
            x // = n | x // | let a = 1; // 2 per group | let a = 1; // 2 | f(x, // 2 | } // 2 | x\n// 2 | \
            \"x // 2\" | `x // 2` | x /* // 2 */ | /// 2 | x /// 2";
        for line in comments.split(" | ") {
            assert_eq!(found(line), 0, "{line}");
        }
        // At the prompt, the variables of earlier inputs are known too.
        let mut session = Session::new(&Host::new(), &Batch::example());
        session.evaluate("let n = 3;").unwrap();
        for (input, is_told) in [
            ("batch.length // n", true),
            ("let h = 8 // 2;", true),
            ("n // of the group", false),
        ] {
            assert!(!unfinished(input).goes_on(), "{input}");
            let error = session.evaluate(input).err();
            let is_floor = error.is_some_and(|error| error[0].message.contains("floor division"));
            assert_eq!(is_floor, is_told, "{input}");
        }
    }

    /// A long list of mistakes is cut short, because nobody reads it to its end.
    #[test]
    fn many_findings_are_cut_short() {
        let params: String = (0..10_000)
            .map(|i| format!("k{i}: #{{ value: {i} }}, "))
            .collect();
        let hooks = "fn advantage(batch, p) { batch.reward }";
        let unread = format!("fn params() {{ #{{ {params} }} }} {hooks}");
        let recipe = Host::new().compile("many", &unread).unwrap();
        assert_eq!(recipe.warnings().len(), 20);
        let calls: String = (0..30).map(|i| format!("x{i}(batch); ")).collect();
        let wrong = format!("fn advantage(batch, p) {{ {calls} batch.reward }}");
        assert_eq!(Host::new().compile("many", &wrong).unwrap_err().len(), 20);
    }

    #[test]
    #[ignore = "measures a time"]
    fn thousands_of_functions_are_linted_in_time() {
        let mut text = "fn advantage(batch, p) { f0(batch.reward) }\n".to_string();
        for number in 0..1600 {
            text.push_str(&format!("fn f{number}(x) {{ x + {number} }}\n"));
        }
        let started = Instant::now();
        let recipe = Host::new().compile("long", &text);
        assert!(recipe.is_ok(), "{}", recipe.unwrap_err().render(false));
        let taken = started.elapsed();
        // This is far more than the lint needs, and far less than a quadratic algorithm would take.
        assert!(taken < Duration::from_secs(8), "{taken:?}");
    }
}
