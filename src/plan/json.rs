//! A plan for programs: its formulas as JSON.

use serde_json::{Value, json};

use super::formula::{Arg, COLUMN, Formula, Node};
use super::text::names;
use super::{Plan, Role};
use crate::number_text::in_json;

impl Plan {
    /// The plan as one JSON object. The arguments of a node are earlier nodes, by their places in the list.
    pub fn json(&self) -> Value {
        let parameters = self.recipe.params().iter().zip(&self.roles);
        let parameters = parameters.map(|((parameter, setting), role)| {
            let changes = match role {
                Role::Number => "numbers",
                Role::Formula => "formula",
                Role::Unused => "nothing",
            };
            json!({ "name": parameter.name, "value": setting, "changes": changes })
        });
        let kin = self.kin().map(|(builtin, settings)| {
            let settings = settings.into_iter();
            let settings: Value = settings
                .map(|(name, setting)| (name, json!(setting)))
                .collect();
            json!({ "recipe": builtin, "params": settings })
        });
        json!({
            "recipe": self.recipe.name(),
            "version": self.recipe.version().as_str(),
            "summary": self.recipe.summary(),
            "params": parameters.collect::<Value>(),
            "same_as": kin,
            "of_this_batch": self.of_every_batch().err().map(|error| error[0].message.clone()),
            "hooks": self.formulas.iter().map(of_formula).collect::<Value>(),
        })
    }
}

fn of_formula(formula: &Formula) -> Value {
    let names = names(formula).into_iter();
    let nodes = formula
        .nodes
        .iter()
        .zip(names)
        .map(|(node, name)| of_node(node, name));
    json!({
        "hook": formula.hook.name(),
        "result": of_arg(&formula.result),
        "nodes": nodes.collect::<Value>(),
    })
}

fn of_node(node: &Node, name: String) -> Value {
    let origin = node.origin.as_ref().filter(|_| node.row != COLUMN);
    let place = origin.map(|origin| {
        json!({ "source": origin.source.as_deref(), "line": origin.line, "column": origin.column })
    });
    json!({
        "name": name,
        "operation": node.row,
        "args": node.args.iter().map(of_arg).collect::<Value>(),
        "level": node.level.name(),
        "place": place,
    })
}

/// A node with the level at which its values are repeated, a number with the expression of parameters that it follows from, or a word.
fn of_arg(arg: &Arg) -> Value {
    match arg {
        Arg::Node(node, level) => json!({ "node": node, "level": level.name() }),
        Arg::Number(number, made_of) => json!({
            "number": in_json(*number),
            "of": made_of.as_ref().map(|made_of| made_of.written(str::to_string)),
        }),
        Arg::Level(level) => json!(level.name()),
        Arg::Choice(choice) => json!(choice),
    }
}
