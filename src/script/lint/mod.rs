//! The lint: finds what is wrong in a script before it runs.
//!
//! Rhai looks a function up when the call happens, so a slip in a branch that is rarely taken would end a run days
//! later; and some code that looks right does something else silently.

mod calls;
mod columns;
mod kind;

use std::collections::{BTreeMap, HashMap, HashSet};

use rhai::{AST, ASTNode, Expr, Module, Position, Stmt};

use self::kind::ValueKind;
use super::explain::Script;
use super::library::{Functions, functions_of, imports_of};
use super::mistake::Mistake;
use super::recipe::{Hook, Reads};
use super::syntax::misread_operators;
use crate::diagnostic::Diagnostic;
use crate::suggest;

pub(super) struct LintInput<'a> {
    pub(super) script: Script<'a>,
    pub(super) natives: &'a Functions,
    /// The functions of each imported script, by the path that the import wrote.
    pub(super) imports: &'a BTreeMap<String, Functions>,
    pub(super) is_import: bool,
}

/// All findings, in the order of the text; the columns that the script reads are added to `reads`.
pub(super) fn lint(ast: &AST, known: &LintInput<'_>, reads: &mut Reads) -> Vec<Diagnostic> {
    // An import that is not at the top is refused elsewhere.
    let aliases = imports_of(ast).map(|(path, alias)| match alias {
        "" => (path.to_string(), path.to_string()),
        alias => (alias.to_string(), path.to_string()),
    });
    let mut lint = Lint {
        known,
        own: functions_of(ast),
        aliases: aliases.collect(),
        variables: HashMap::new(),
        this: ValueKind::Unknown,
        passes_parameters_on: false,
        reads,
        found: Vec::new(),
    };
    for function in ast.iter_fn_def() {
        // The engine gives the statements of a body only to a walk, and a walk goes through all functions.
        let mut module = Module::new();
        module.set_script_fn(function.clone());
        let alone = AST::new_from_module(module);
        let names = function.params.iter().map(|name| name.as_str());
        lint.variables = names
            .map(|name| (name.to_string(), ValueKind::of_parameter(name)))
            .collect();
        let is_hook = Hook::ALL.iter().any(|hook| hook.name() == function.name);
        lint.this = match is_hook {
            true => ValueKind::Data,
            false => ValueKind::Unknown,
        };
        alone.walk(&mut |path| {
            // Statements of the body itself; those inside them are looked at from there.
            if let [ASTNode::Stmt(statement)] = path {
                lint.statement(statement);
            }
            true
        });
    }
    let (script, mut found) = (&known.script, lint.found);
    if !known.is_import && !lint.passes_parameters_on {
        found.extend(unread_parameters(script));
    }
    if !known.is_import {
        found.extend(misspelt_hooks(script, &lint.own));
    }
    found.extend(misread_operators(script.name, &script.text(), &|_| false));
    found.sort_by_key(|diagnostic| {
        diagnostic
            .span
            .as_ref()
            .map(|span| (span.line, span.column))
    });
    found.dedup();
    found
}

struct Lint<'k, 'a> {
    known: &'k LintInput<'a>,
    /// The functions of the script itself.
    own: Functions,
    aliases: HashMap<String, String>,
    /// The kinds of the variables of the function that is looked at.
    variables: HashMap<String, ValueKind>,
    /// The kind of `this`: the state in a hook.
    this: ValueKind,
    /// Whether `p` as a whole goes to another function, which may read any parameter.
    passes_parameters_on: bool,
    reads: &'k mut Reads,
    found: Vec<Diagnostic>,
}

impl Lint<'_, '_> {
    fn found_at(&mut self, position: Position, diagnostic: impl Into<Diagnostic>) {
        let place = self.known.script.place(self.known.script.name, position);
        self.found.push(diagnostic.into().at(place));
    }

    fn block(&mut self, statements: &[Stmt]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Var(var, ..) => {
                let kind = self.kind(&var.1);
                self.variables.insert(var.0.name.to_string(), kind);
            }
            Stmt::Assignment(assignment) => {
                let value = self.kind(&assignment.1.rhs);
                self.kind(&assignment.1.lhs);
                self.no_parameter_is_set(&assignment.1.lhs);
                if let Expr::Variable(variable, ..) = &assignment.1.lhs {
                    let kind = match assignment.0.is_op_assignment() {
                        true => ValueKind::Other,
                        false => value,
                    };
                    self.variables.insert(variable.1.to_string(), kind);
                }
            }
            Stmt::For(parts, _) => {
                let item = self.kind(&parts.2.expr).element();
                self.variables.insert(parts.0.name.to_string(), item);
                if let Some(counter) = &parts.1 {
                    let name = counter.name.to_string();
                    self.variables.insert(name, ValueKind::Integer);
                }
                self.block(parts.2.body.statements());
            }
            Stmt::If(parts, _)
            | Stmt::While(parts, _)
            | Stmt::Do(parts, ..)
            | Stmt::TryCatch(parts, _) => {
                self.kind(&parts.expr);
                self.block(parts.body.statements());
                self.block(parts.branch.statements());
            }
            Stmt::Block(block) => self.block(block.statements()),
            Stmt::Expr(expression) => {
                self.kind(expression);
            }
            Stmt::FnCall(call, position) => {
                self.call(call, *position, None);
            }
            Stmt::Return(Some(expression), ..) | Stmt::BreakLoop(Some(expression), ..) => {
                self.kind(expression);
            }
            Stmt::Switch(parts, _) => {
                self.kind(&parts.0);
                for case in &parts.1.expressions {
                    self.kind(&case.lhs);
                    self.kind(&case.rhs);
                }
            }
            _ => {}
        }
    }

    fn variable(&self, name: &str) -> ValueKind {
        let known = self.variables.get(name);
        known.copied().unwrap_or(ValueKind::Unknown)
    }

    /// The kind of an expression's value, with everything in it looked at on the way.
    fn kind(&mut self, expression: &Expr) -> ValueKind {
        match expression {
            Expr::Variable(variable, ..) => {
                let kind = self.variable(&variable.1);
                self.passes_parameters_on |= kind == ValueKind::Parameters;
                return kind;
            }
            Expr::FnCall(call, position) => return self.call(call, *position, None),
            Expr::And(parts, _) | Expr::Or(parts, _) | Expr::Coalesce(parts, _) => {
                self.all(parts.iter());
            }
            Expr::Dot(chain, ..) => {
                let receiver = match &chain.lhs {
                    Expr::Variable(variable, ..) => self.variable(&variable.1),
                    lhs => self.kind(lhs),
                };
                return self.member(receiver, &chain.rhs);
            }
            Expr::Index(chain, flags, _) => {
                let receiver = self.kind(&chain.lhs);
                return self.index(receiver, &chain.rhs, *flags);
            }
            Expr::ThisPtr(_) => return self.this,
            Expr::IntegerConstant(..) => return ValueKind::Integer,
            Expr::DynamicConstant(value, _) => {
                self.points_to(value);
                return ValueKind::of_type(value.type_name());
            }
            Expr::Stmt(block) => match block.statements() {
                // The value of an `if` or a `switch` is not followed. Each statement is looked at once: blocks in blocks
                // would take twice the time for each.
                [before @ .., Stmt::Expr(last)] => {
                    self.block(before);
                    return self.kind(last);
                }
                statements => self.block(statements),
            },
            Expr::InterpolatedString(parts, _) => self.all(parts.iter()),
            Expr::Array(parts, _) => {
                self.all(parts.iter());
                return ValueKind::Other;
            }
            Expr::Map(parts, _) => {
                self.all(parts.0.iter().map(|(_, part)| part));
                return ValueKind::Other;
            }
            _ => {}
        }
        ValueKind::Unknown
    }

    fn all<'e>(&mut self, parts: impl Iterator<Item = &'e Expr>) {
        for part in parts {
            self.kind(part);
        }
    }

    /// A property, a method, or a longer chain of them, after a dot.
    fn member(&mut self, receiver: ValueKind, member: &Expr) -> ValueKind {
        match member {
            Expr::Property(property, position) => {
                let name = property.2.as_str();
                if receiver == ValueKind::Parameters {
                    self.parameter(name, *position);
                }
                self.reads_property(receiver, name);
                receiver.property(name)
            }
            Expr::MethodCall(call, position) => self.call(call, *position, Some(receiver)),
            Expr::Dot(chain, ..) => {
                let next = self.member(receiver, &chain.lhs);
                self.member(next, &chain.rhs)
            }
            Expr::Index(chain, flags, _) => {
                let receiver = self.member(receiver, &chain.lhs);
                self.index(receiver, &chain.rhs, *flags)
            }
            _ => ValueKind::Unknown,
        }
    }
}

/// Parameters that nobody reads: to set one with `--set` would do nothing.
fn unread_parameters(script: &Script<'_>) -> Vec<Diagnostic> {
    let code = script.code(script.name);
    // A column of the batch may have the parameter's name.
    let read = code.windows(3).filter_map(|three| {
        let is_read = three[0].text != "batch" && three[1].text == ".";
        is_read.then_some(three[2].text)
    });
    let read: HashSet<&str> = read.collect();
    let keys = script.keys();
    let unread = script.parameters.iter().map(String::as_str);
    let unread = unread.filter(|name| !read.contains(name));
    unread
        .map(|name| {
            let warning = Mistake::UnreadParameter { name }.warning();
            warning.at(keys
                .get(name)
                .map(|key| key.span(script.name, &script.text())))
        })
        .collect()
}

/// Functions that nobody calls, and whose names are near that of a hook that the script lacks.
pub(crate) fn misspelt_hooks(script: &Script<'_>, functions: &Functions) -> Vec<Diagnostic> {
    let code = script.code(script.name);
    let warnings = functions.iter().filter_map(|(name, counts)| {
        let hooks = Hook::ALL.into_iter().filter(|hook| {
            !functions.contains_key(hook.name()) && counts.contains(&hook.parameters().len())
        });
        let hook = suggest::nearest(name, hooks.map(Hook::name))?;
        let quoted = format!("\"{name}\"");
        let named = code
            .iter()
            .filter(|token| token.is_name(name) || token.text == quoted);
        let warning = Mistake::UncalledFunction { name, hook }.warning();
        (named.count() == counts.len()).then(|| warning.at(script.definition(name)))
    });
    warnings.collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::Batch;
    use crate::paint::Paint;
    use crate::script::Host;
    use crate::session::Session;

    /// Far more than is needed, and far less than anything quadratic takes.
    const ENOUGH: Duration = Duration::from_secs(8);

    fn compiled(text: &str) -> Duration {
        let started = Instant::now();
        let recipe = Host::new().compile("long", text);
        assert!(recipe.is_ok(), "{}", recipe.unwrap_err().render(false));
        started.elapsed()
    }

    /// What is near to something wrong, and right.
    #[test]
    fn nothing_is_said_of_what_is_meant_so() {
        for text in [
            "fn advantage(batch, p) { let x = batch.reward; (-x) ** 2 - (-(x ** 2)) - x ** 2 + (1 - x) ** -2 }",
            "fn lost(batch, p) { batch.reward } fn advantage(batch, p) { -lost(batch, p) }",
            "fn los(batch, p) { batch.reward } fn advantage(batch, p) { Fn(\"los\").call(batch, p) }",
            "fn params() { #{ k: #{ value: 1 } } } fn advantage(batch, p) { let q = p; q.k * batch.reward }",
        ] {
            let recipe = Host::new().compile("right", text);
            let recipe = recipe.unwrap_or_else(|error| panic!("{}", error.render(false)));
            assert_eq!(recipe.warnings(), [], "{text}");
        }
    }

    /// `//` is Python's floor division where only an operand is behind it, and a comment elsewhere.
    #[test]
    fn floor_divisions_are_told_from_comments() {
        let found = |line: &str| {
            let text = format!("fn f(x, n, r, p) {{\n{line}\n}}");
            crate::script::syntax::floor_divisions(&"f".into(), &text.into(), &|_| false).len()
        };
        for line in [
            "x // 2",
            "x // 2;",
            "x // n, r)",
            "if x // 2 > 3 {",
            "r - r.mean(\"group\") // 2",
            "f(x)[0].y // (n - 1)",
            "(r + 1) // p.k",
            "x // max(n, 2) + 1",
            "x // r.mean(\"group\")",
            "x // 2); let y = n;",
        ] {
            assert_eq!(found(line), 1, "{line}");
        }
        for line in [
            "x // the mean",
            "x // 2 per group",
            "x // 2, 3 and 4",
            "x // 2 * 3 = 6",
            "x // (n - 1) in the paper",
            "x // n of them",
            "x // mean (n)",
            "x // A(s, a)",
            "x // p",
            "r / x // f",
            "x // e.g. n",
            "x // [1]",
            "x // (2)",
            "x // 0",
            "x // 50 %",
            "x // - x.mean(\"group\")",
            "x // + n",
            "x // = n",
            "x //",
            "let a = 1; // 2 per group",
            "let a = 1; // 2",
            "f(x, // 2",
            "} // 2",
            "x\n// 2",
            "\"x // 2\"",
            "`x // 2`",
            "x /* // 2 */",
            "/// 2",
            "x /// 2",
        ] {
            assert_eq!(found(line), 0, "{line}");
        }
        // At the prompt, where variables are those of earlier inputs too.
        let mut session = Session::new(&Host::new(), &Batch::example());
        session.evaluate("let n = 3;").unwrap();
        for (input, is_told) in [
            ("batch.length // n", true),
            ("let h = 8 // 2;", true),
            ("n // of the group", false),
        ] {
            assert!(!session.is_incomplete(input), "{input}");
            let error = session.evaluate(input).err();
            let is_floor = error.is_some_and(|error| error[0].message.contains("floor division"));
            assert_eq!(is_floor, is_told, "{input}");
        }
    }

    /// What nobody reads to its end is not told to its end.
    #[test]
    fn many_findings_are_counted() {
        let each = (0..10_000)
            .map(|i| format!("k{i}: #{{ value: {i} }}, "))
            .collect::<String>();
        let hooks = "fn advantage(batch, p) { batch.reward }";
        let unread = format!("fn params() {{ #{{ {each} }} }} {hooks}");
        let recipe = Host::new().compile("many", &unread).unwrap();
        assert_eq!(recipe.warnings().len(), 21);
        assert_eq!(recipe.warnings()[20].message, "and 9980 more like these");
        let shown = recipe
            .warnings()
            .iter()
            .map(|warning| warning.render_within(Paint::PLAIN));
        assert!(shown.map(|text| text.len()).sum::<usize>() < 21 * 1000);
        let calls = (0..30)
            .map(|i| format!("x{i}(batch); "))
            .collect::<String>();
        let wrong = format!("fn advantage(batch, p) {{ {calls} batch.reward }}");
        let errors = Host::new().compile("many", &wrong).unwrap_err();
        assert_eq!(
            (errors.len(), &*errors[20].message),
            (21, "and 10 more like these")
        );
    }

    #[test]
    fn thousands_of_functions_are_linted_in_time() {
        let mut text = "fn advantage(batch, p) { f0(batch.reward) }\n".to_string();
        for number in 0..1600 {
            text.push_str(&format!("fn f{number}(x) {{ x + {number} }}\n"));
        }
        let taken = compiled(&text);
        assert!(taken < ENOUGH, "{taken:?}");
    }
}
