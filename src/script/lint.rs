//! The lint: what can be known to be wrong from the script's text alone, before it runs.
//!
//! Rhai looks a function up when the call happens, so a slip in a branch that is rarely taken would end a run days
//! later; and some things that look right do something else without a word.

use std::collections::HashMap;
use std::sync::Arc;

use rhai::{AST, ASTNode, Expr, FnCallExpr, Position, Stmt};

use super::error::{Diagnostic, Severity};
use super::explain::Script;
use super::library::Functions;
use crate::suggest;
use crate::tensor::op::{self, Class};

/// What the lint knows beside the script.
pub(super) struct Known<'a> {
    pub(super) script: Script<'a>,
    /// The functions of the engine: name and number of parameters.
    pub(super) natives: &'a Functions,
    /// The functions of each imported script.
    pub(super) imports: &'a std::collections::BTreeMap<String, Functions>,
}

/// All that is wrong or odd, in the order of the text.
pub(super) fn lint(ast: &AST, known: &Known<'_>) -> Vec<Diagnostic> {
    let mut lint = Lint {
        known,
        own: ast
            .iter_functions()
            .map(|f| (f.name.to_string(), f.params.len()))
            .collect(),
        aliases: HashMap::new(),
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
    for function in ast.iter_functions() {
        let alone = ast.clone_functions_only_filtered(|_, _, _, name, params| {
            name == function.name && params == function.params.len()
        });
        let mut variables = parameters(&function.params);
        alone.walk(&mut |path| {
            // Statements of the body itself; what is inside them is looked at from there.
            if let [ASTNode::Stmt(statement)] = path {
                lint.statement(statement, &mut variables);
            }
            true
        });
    }
    let mut found = lint.found;
    found.sort_by_key(|diagnostic| {
        diagnostic
            .place
            .as_ref()
            .map(|place| (place.line, place.column))
    });
    found.dedup();
    found
}

/// What is known of an expression's value.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A tensor of a finer level than batch.
    Tensor,
    /// A batch tensor: one value.
    One,
    /// The batch.
    Batch,
    /// The parameters, in a hook.
    Parameters,
    /// Anything else, or not known.
    Other,
}

struct Lint<'a> {
    known: &'a Known<'a>,
    own: Functions,
    aliases: HashMap<String, String>,
    found: Vec<Diagnostic>,
}

type Variables = HashMap<String, Kind>;

/// What is known of a function's parameters: by convention, and in all hooks, `batch` and `p` are what they say.
fn parameters(names: &[&str]) -> Variables {
    let kind = |name: &str| match name {
        "batch" => Kind::Batch,
        "p" => Kind::Parameters,
        _ => Kind::Other,
    };
    names
        .iter()
        .map(|name| (name.to_string(), kind(name)))
        .collect()
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
                self.kind(&parts.expr, variables);
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
            Expr::Variable(variable, ..) => variables
                .get(variable.1.as_str())
                .copied()
                .unwrap_or(Kind::Other),
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
                let receiver = self.kind(&chain.lhs, variables);
                self.member(receiver, &chain.rhs, variables)
            }
            Expr::Index(chain, ..) => {
                self.kind(&chain.lhs, variables);
                self.kind(&chain.rhs, variables);
                Kind::Other
            }
            Expr::Stmt(block) => {
                self.block(block.statements(), variables);
                // The value of an `if` or a `switch` is not followed.
                match block.statements().last() {
                    Some(Stmt::Expr(last)) => self.kind(last, variables),
                    _ => Kind::Other,
                }
            }
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

    fn parameter(&mut self, name: &str, position: Position) {
        let declared = &self.known.script.parameters;
        if declared.iter().any(|known| known == name) {
            return;
        }
        let help = match declared.len() {
            0 => "declare it: `fn params() { #{ k: #{ value: 4, min: 1, doc: \"...\" } } }`"
                .to_string(),
            _ => suggest::did_you_mean(name, declared.iter().map(String::as_str)),
        };
        self.report(
            Severity::Error,
            position,
            format!("the recipe has no parameter `{name}`"),
            help,
        );
    }

    fn call(
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
        self.exists(call, position, kinds.len());
        self.small_literal(call, position, &kinds);
        result(call, &kinds)
    }

    fn exists(&mut self, call: &FnCallExpr, position: Position, count: usize) {
        let name = call.name.as_str();
        // Anonymous functions, and calls through a function pointer, are looked up by Rhai alone.
        if name.starts_with("anon$")
            || call.op_token.is_some()
            || [
                "call",
                "curry",
                "Fn",
                "is_def_var",
                "is_def_fn",
                "type_of",
                "print",
                "debug",
                "is_shared",
            ]
            .contains(&name)
        {
            return;
        }
        if !call.namespace.is_empty() {
            let path: Vec<String> = call
                .namespace
                .path
                .iter()
                .map(|part| part.name.to_string())
                .collect();
            let Some(functions) = self
                .aliases
                .get(&path.join("::"))
                .and_then(|from| self.known.imports.get(from))
            else {
                return;
            };
            if !functions
                .iter()
                .any(|(known, params)| known == name && *params == count)
            {
                let help = match functions.iter().find(|(known, _)| known == name) {
                    Some((_, params)) => format!("it takes {params} arguments"),
                    None => suggest::did_you_mean(
                        name,
                        functions.iter().map(|(known, _)| known.as_str()),
                    ),
                };
                self.report(
                    Severity::Error,
                    position,
                    format!(
                        "`{}` has no function `{name}` with {count} arguments",
                        path.join("::")
                    ),
                    help,
                );
            }
            return;
        }
        let natives = self.known.natives.iter().chain(&self.own);
        if natives
            .clone()
            .any(|(known, params)| known == name && *params == count)
        {
            return;
        }
        let signature = format!("{name} ({})", vec!["_"; count].join(", "));
        let explained = self.known.script.unknown_function(&signature);
        let help = match natives.clone().find(|(known, _)| known == name) {
            Some((_, params)) if op::table().all(|op| op.name != name) => {
                format!("it takes {params} arguments")
            }
            _ => explained.help.unwrap_or_default(),
        };
        let message = match natives.clone().any(|(known, _)| known == name) {
            true => format!("`{name}` does not take {count} arguments"),
            false => format!("there is no function `{name}`"),
        };
        self.report(Severity::Error, position, message, help);
    }

    /// Rhai compares its own floats with a tolerance of 2.2e-16: `1e-17 > 0.0` is false.
    fn small_literal(&mut self, call: &FnCallExpr, position: Position, kinds: &[Kind]) {
        let compares = ["<", "<=", ">", ">=", "==", "!="].contains(&call.name.as_str());
        if !compares
            || kinds
                .iter()
                .any(|kind| matches!(kind, Kind::Tensor | Kind::One))
        {
            return;
        }
        let small = call.args.iter().find_map(|argument| match argument {
            Expr::FloatConstant(value, _) if **value != 0.0 && value.abs() < 1e-12 => Some(**value),
            _ => None,
        });
        if let Some(small) = small {
            self.report(
                Severity::Warning,
                position,
                format!("numbers of scripts are compared with a tolerance of 2.2e-16, and {small:e} is near it"),
                "comparisons of tensors are exact: compare a batch tensor, as in `x.mean(\"batch\") > 1e-20`".to_string(),
            );
        }
    }
}

fn is_groups(expression: &Expr) -> bool {
    matches!(expression, Expr::Dot(chain, ..)
        if matches!(&chain.rhs, Expr::Property(property, _) if property.2.as_str() == "groups"))
}

fn meet(kinds: &[Kind]) -> Kind {
    if kinds.contains(&Kind::Tensor) {
        Kind::Tensor
    } else if kinds.contains(&Kind::One) {
        Kind::One
    } else {
        Kind::Other
    }
}

/// What a call gives.
fn result(call: &FnCallExpr, kinds: &[Kind]) -> Kind {
    let Some(row) = op::table().find(|op| op.name == call.name.as_str()) else {
        return match (call.name.as_str(), kinds.first()) {
            ("random" | "map_groups", Some(Kind::Batch)) => Kind::Tensor,
            ("regroup", Some(Kind::Batch)) => Kind::Batch,
            _ => Kind::Other,
        };
    };
    let to = call.args.iter().find_map(|argument| match argument {
        Expr::StringConstant(level, _) => Some(level.as_str()),
        _ => None,
    });
    match (row.class, to, meet(kinds)) {
        (Class::Reduction, Some("batch"), Kind::Tensor | Kind::One)
            if row.name != "others_mean" =>
        {
            Kind::One
        }
        // A comparison of single values is a plain true or false.
        (Class::Logic, _, Kind::One) => Kind::Other,
        (_, _, kind) => kind,
    }
}
