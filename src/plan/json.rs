//! A plan for programs: its formulas as JSON.

use serde_json::{Value, json};

use super::Plan;
use super::graph::{Arg, COLUMN};
use super::params::Role;
use crate::number_text::in_json;

impl Plan {
    /// Returns the plan as a JSON object. An argument that is a node is given by its index in the hook's nodes.
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
            let settings = settings
                .into_iter()
                .map(|(name, setting)| (name, json!(setting)));
            json!({ "recipe": builtin, "params": settings.collect::<Value>() })
        });
        let names = self.graph.names(|_| true);
        let hooks = self.graph.results.iter().map(|(hook, result)| {
            let below = self.graph.below(result, &[]);
            let nodes = below.iter().map(|index| {
                let node = &self.graph.nodes[*index];
                let origin = node.origin.as_ref().filter(|_| node.row != COLUMN);
                json!({
                    "name": names[*index],
                    "operation": node.row,
                    "args": node.args.iter().map(|arg| of_arg(arg, &below)).collect::<Value>(),
                    "level": node.level.name(),
                    "place": origin.map(|of| {
                        json!({ "source": of.source.as_deref(), "line": of.line, "column": of.column })
                    }),
                })
            });
            json!({
                "hook": hook.name(),
                "result": of_arg(result, &below),
                "nodes": nodes.collect::<Value>(),
            })
        });
        json!({
            "recipe": self.recipe.name(),
            "version": self.recipe.version().as_str(),
            "summary": self.recipe.summary(),
            "params": parameters.collect::<Value>(),
            "same_as": kin,
            "of_this_batch": self.of_every_batch().err().map(|error| error[0].message.clone()),
            "hooks": hooks.collect::<Value>(),
        })
    }
}

/// Returns an argument as JSON: a node, as its index in `list` with the level at which its values are repeated; a number, with
/// the expression in parameters that yields it; or a word.
fn of_arg(arg: &Arg, list: &[usize]) -> Value {
    match arg {
        Arg::Node(node, level) => {
            json!({ "node": list.iter().position(|of| of == node), "level": level.name() })
        }
        Arg::Number(number, made_of) => json!({
            "number": in_json(*number),
            "of": made_of.as_ref().map(|made_of| made_of.written(str::to_string)),
        }),
        Arg::Level(level) => json!(level.name()),
        Arg::Word(word) => json!(**word),
    }
}
