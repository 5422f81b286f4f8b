//! The lint: what can be known to be wrong from the script's text alone, before it runs.
//!
//! Rhai looks a function up when the call happens, so a slip in a branch that is rarely taken would end a run days
//! later; and some things that look right do something else without a word.

mod calls;
mod kinds;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rhai::{AST, ASTNode, Expr, Module, Position, Stmt};

use self::kinds::{Kind, Variables, is_groups, known, meet, parameters};
use super::explain::{Script, property_elsewhere};
use super::library::Functions;
use crate::diagnostic::{Diagnostic, Severity};
use crate::tensor::op;

/// What the lint knows beside the script.
pub(super) struct Known<'a> {
    pub(super) script: Script<'a>,
    /// The functions of the engine: name and number of parameters.
    pub(super) natives: &'a Functions,
    /// The functions of each imported script.
    pub(super) imports: &'a BTreeMap<String, Functions>,
    /// Whether another script imports this one.
    pub(super) is_import: bool,
}

/// All that is wrong or odd, in the order of the text.
pub(super) fn lint(ast: &AST, known: &Known<'_>) -> Vec<Diagnostic> {
    let mut own = Counts::new();
    for function in ast.iter_functions() {
        let counts = own.entry(function.name.to_string()).or_default();
        counts.push(function.params.len());
    }
    let mut natives = Counts::new();
    for (name, params) in known.natives {
        natives.entry(name.clone()).or_default().push(*params);
    }
    let mut lint = Lint {
        known,
        own,
        natives,
        aliases: HashMap::new(),
        passes_parameters_on: false,
        found: Vec::new(),
    };
    ast.walk(&mut |path| {
        if let Some(ASTNode::Stmt(Stmt::Import(import, _))) = path.last()
            && let Expr::StringConstant(from, _) = &import.0
        {
            let alias = import.1.name.to_string();
            let alias = if alias.is_empty() {
                from.to_string()
            } else {
                alias
            };
            lint.aliases.insert(alias, from.to_string());
        }
        true
    });
    for function in ast.iter_fn_def() {
        // The engine hands the statements of a body to a walk alone, and a walk goes through all functions.
        let mut module = Module::new();
        module.set_script_fn(function.clone());
        let alone = AST::new_from_module(module);
        let names: Vec<&str> = function.params.iter().map(|name| name.as_str()).collect();
        let mut variables = parameters(&names);
        alone.walk(&mut |path| {
            // Statements of the body itself; what is inside them is looked at from there.
            if let [ASTNode::Stmt(statement)] = path {
                lint.statement(statement, &mut variables);
            }
            true
        });
    }
    lint.unread_parameters();
    let mut found = lint.found;
    found.sort_by_key(|diagnostic| diagnostic.span().map(|span| (span.line, span.column)));
    found.dedup();
    found
}

/// The numbers of parameters that functions take, by their names: asked at each call, of which a script has thousands.
type Counts = HashMap<String, Vec<usize>>;

struct Lint<'a> {
    known: &'a Known<'a>,
    /// The functions of the script itself.
    own: Counts,
    natives: Counts,
    aliases: HashMap<String, String>,
    /// Whether `p` as a whole goes to another function, which may read any parameter.
    passes_parameters_on: bool,
    found: Vec<Diagnostic>,
}

impl Lint<'_> {
    fn report(&mut self, severity: Severity, position: Position, message: String, help: String) {
        let source: Arc<str> = self.known.script.name.clone();
        let place = self.known.script.place(&source, position);
        let diagnostic = Diagnostic {
            severity,
            ..Diagnostic::error(message).with_help(help).at(place)
        };
        self.found.push(diagnostic);
    }

    fn block(&mut self, statements: &[Stmt], variables: &mut Variables) {
        for statement in statements {
            self.statement(statement, variables);
        }
    }

    fn statement(&mut self, statement: &Stmt, variables: &mut Variables) {
        match statement {
            Stmt::Var(var, ..) => {
                let kind = self.kind(&var.1, variables);
                variables.insert(var.0.name.to_string(), kind);
            }
            Stmt::Assignment(assignment) => {
                let value = self.kind(&assignment.1.rhs, variables);
                let before = self.kind(&assignment.1.lhs, variables);
                if let Expr::Variable(variable, ..) = &assignment.1.lhs {
                    let kind = if assignment.0.is_op_assignment() {
                        meet(&[before, value])
                    } else {
                        value
                    };
                    variables.insert(variable.1.to_string(), kind);
                }
            }
            Stmt::For(parts, _) => {
                self.kind(&parts.2.expr, variables);
                let item = if is_groups(&parts.2.expr) {
                    Kind::Batch
                } else {
                    Kind::Other
                };
                variables.insert(parts.0.name.to_string(), item);
                self.block(parts.2.body.statements(), variables);
            }
            Stmt::If(parts, _)
            | Stmt::While(parts, _)
            | Stmt::Do(parts, ..)
            | Stmt::TryCatch(parts, _) => {
                let condition = self.kind(&parts.expr, variables);
                if condition == Kind::Tensor && !matches!(statement, Stmt::TryCatch(..)) {
                    self.report(
                        Severity::Error,
                        parts.expr.start_position(),
                        "a tensor is neither true nor false".to_string(),
                        "value by value it is `where(c, a, b)`; to branch, compare one value, as in `if x.mean(\"batch\") > 0.5`".to_string(),
                    );
                }
                self.block(parts.body.statements(), variables);
                self.block(parts.branch.statements(), variables);
            }
            Stmt::Block(block) => self.block(block.statements(), variables),
            Stmt::Expr(expression) => {
                self.kind(expression, variables);
            }
            Stmt::FnCall(call, position) => {
                self.call(call, *position, None, variables);
            }
            Stmt::Return(Some(expression), ..) | Stmt::BreakLoop(Some(expression), ..) => {
                self.kind(expression, variables);
            }
            Stmt::Switch(parts, _) => {
                self.kind(&parts.0, variables);
                for case in &parts.1.expressions {
                    self.kind(&case.lhs, variables);
                    self.kind(&case.rhs, variables);
                }
            }
            _ => {}
        }
    }

    /// What an expression gives, with everything in it looked at on the way.
    fn kind(&mut self, expression: &Expr, variables: &mut Variables) -> Kind {
        match expression {
            Expr::Variable(..) => {
                let kind = known(expression, variables);
                self.passes_parameters_on |= kind == Kind::Parameters;
                kind
            }
            Expr::FnCall(call, position) => self.call(call, *position, None, variables),
            Expr::And(parts, position) | Expr::Or(parts, position) => {
                let sign = if matches!(expression, Expr::And(..)) {
                    "&"
                } else {
                    "|"
                };
                for part in parts.iter() {
                    if matches!(self.kind(part, variables), Kind::Tensor | Kind::One) {
                        self.report(
                            Severity::Error,
                            *position,
                            format!("`{sign}{sign}` is for single truths, and one side is a tensor"),
                            format!("value by value it is `{sign}`, with brackets around comparisons: `(a > b) {sign} (c > d)`"),
                        );
                    }
                }
                Kind::Other
            }
            Expr::Dot(chain, ..) => {
                let receiver = match &chain.lhs {
                    Expr::Variable(..) => known(&chain.lhs, variables),
                    lhs => self.kind(lhs, variables),
                };
                self.member(receiver, &chain.rhs, variables)
            }
            Expr::Index(chain, ..) => {
                self.kind(&chain.lhs, variables);
                self.kind(&chain.rhs, variables);
                Kind::Other
            }
            Expr::Stmt(block) => match block.statements() {
                // The value of an `if` or a `switch` is not followed. Each statement is looked at once: blocks in blocks
                // would take twice the time for each.
                [before @ .., Stmt::Expr(last)] => {
                    self.block(before, variables);
                    self.kind(last, variables)
                }
                statements => {
                    self.block(statements, variables);
                    Kind::Other
                }
            },
            Expr::Array(parts, _) | Expr::InterpolatedString(parts, _) => {
                parts.iter().for_each(|part| {
                    self.kind(part, variables);
                });
                Kind::Other
            }
            Expr::Map(parts, _) => {
                parts.0.iter().for_each(|(_, part)| {
                    self.kind(part, variables);
                });
                Kind::Other
            }
            Expr::Coalesce(parts, _) => {
                parts.iter().for_each(|part| {
                    self.kind(part, variables);
                });
                Kind::Other
            }
            _ => Kind::Other,
        }
    }

    /// What comes after a dot: a property, a method, or a longer chain of them.
    fn member(&mut self, receiver: Kind, member: &Expr, variables: &mut Variables) -> Kind {
        match member {
            Expr::Property(property, position) => match receiver {
                Kind::Batch => match property.2.as_str() {
                    "groups" | "step" => Kind::Other,
                    _ => Kind::Tensor,
                },
                Kind::Parameters => {
                    self.parameter(property.2.as_str(), *position);
                    Kind::Other
                }
                Kind::Tensor | Kind::One if property.2.as_str() != "level" => {
                    self.property_of_tensor(property.2.as_str(), *position);
                    Kind::Other
                }
                _ => Kind::Other,
            },
            Expr::MethodCall(call, position) => {
                self.call(call, *position, Some(receiver), variables)
            }
            Expr::Dot(chain, ..) => {
                let next = self.member(receiver, &chain.lhs, variables);
                self.member(next, &chain.rhs, variables)
            }
            Expr::Index(chain, ..) => {
                self.member(receiver, &chain.lhs, variables);
                self.kind(&chain.rhs, variables);
                Kind::Other
            }
            _ => Kind::Other,
        }
    }

    fn property_of_tensor(&mut self, name: &str, position: Position) {
        let method = op::table()
            .find(|op| op.name == name)
            .map(op::Op::signature);
        let help = match (property_elsewhere(name), method) {
            (Some(here), _) => here.to_string(),
            (None, Some(signature)) => format!("it is `{signature}`"),
            (None, None) => {
                "a tensor has one, its `level`; the rest are functions, as `x.mean(\"group\")`"
                    .to_string()
            }
        };
        self.report(
            Severity::Error,
            position,
            format!("a tensor has no property `{name}`"),
            help,
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::script::Host;

    /// Far more than is needed, and far less than anything quadratic takes.
    const ENOUGH: Duration = Duration::from_secs(8);

    fn compiled(text: &str) -> Duration {
        let started = Instant::now();
        let recipe = Host::new().compile("long", text);
        assert!(recipe.is_ok(), "{}", recipe.unwrap_err().render(false));
        started.elapsed()
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
