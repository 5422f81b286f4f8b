//! A plan as a readable Python file that depends only on torch.

mod body;
mod function;
mod python;
mod single;

use std::fmt::Write as _;

use self::body::Function;
use self::python::{arguments, free};
use super::Plan;
use super::graph::{Arg, COLUMN, gives};
use super::params::Role;
use super::source::source_of;
use crate::diagnostic::Diagnostics;
use crate::script::Hook;
use crate::tensor::Level;

impl Plan {
    /// Returns a Python file with a function for each hook that returns a tensor. The file depends only on torch, its functions
    /// work on padded tensors on any device, and a loss is differentiable. Script functions that several hooks call are functions
    /// of the file, too, if their result is per response or per token and depends on a column.
    ///
    /// # Errors
    /// [`Diagnostics`] if the formula could depend on values or the size of the batch, on the step or on the state, or if an
    /// operation has no PyTorch form. They have the script's line if it is known.
    pub fn torch(&self) -> Result<String, Diagnostics> {
        let plan = self.of_every_batch()?;
        let mut functions: Vec<Function> = Vec::new();
        for (name, result) in plan.functions() {
            let hook = plan
                .graph
                .results
                .iter()
                .find(|(hook, _)| gives(*hook) == name);
            let level = match &result {
                Arg::Node(_, level) => *level,
                _ => Level::Response,
            };
            let about = match (hook, level) {
                (Some((Hook::Loss, _)), _) => "The loss, one number.",
                (_, Level::Token) => {
                    "One value for each token, [B, T]; 0 at tokens that do not count."
                }
                (Some((Hook::Advantage, _)), _) => {
                    "One value for each response, [B]. For its tokens: advantage[:, None] * mask."
                }
                _ => "One value for each response, [B].",
            };
            let function = Function::of(&plan, (&name, &result, about), &functions, false)?;
            functions.push(function);
        }
        let texts: Vec<&str> = functions.iter().map(|of| of.text.trim_end()).collect();
        Ok(plan.file(&texts, ""))
    }

    /// Returns a Python file with one response's part of the loss, as a function that `torch.fx` can trace.
    ///
    /// # Errors
    /// The errors of [`Plan::torch`], and [`Diagnostics`] if there is no loss, or if the loss is not a sum over responses,
    /// combines responses, or has an operation that a function of one response cannot have.
    pub fn torch_per_response(&self) -> Result<String, Diagnostics> {
        let plan = self.of_every_batch()?;
        let about = "One response's part of the loss, without metrics.";
        let function = Function::of(&plan, ("loss", plan.single()?, about), &[], true)?;
        Ok(plan.file(&[function.text.trim_end()], " --per-response"))
    }

    /// Returns the functions of the file: the hooks, and the script's functions that several hooks call, if their result is per
    /// response or per token and depends on a column. A function comes after the functions that it may call.
    fn functions(&self) -> Vec<(String, Arg)> {
        let (graph, results) = (&self.graph, &self.graph.results);
        let is_whole = |node: usize, at: Level| {
            at == graph.nodes[node].level && matches!(at, Level::Response | Level::Token)
        };
        let called = results.iter().filter_map(|(_, result)| match result {
            Arg::Node(node, at) => is_whole(*node, *at).then_some(*node),
            _ => None,
        });
        let called: Vec<usize> = called.collect();
        let below = results
            .iter()
            .map(|(_, result)| graph.below(result, &called));
        let below: Vec<Vec<usize>> = below.collect();
        let hooks = results
            .iter()
            .map(|(hook, result)| (gives(*hook).to_string(), result.clone()));
        let mut all: Vec<(String, Arg)> = hooks.collect();
        for (index, node) in graph.nodes.iter().enumerate() {
            let users = below.iter().filter(|below| below.contains(&index)).count();
            // The function must depend on a column, because it takes the type of its values from the column.
            let is_given = |at: &usize| {
                let of = &graph.nodes[*at];
                of.row == COLUMN && of.name.as_deref().is_some_and(|name| self.batch.has(name))
            };
            let arg = Arg::Node(index, node.level);
            let is_shared = node.is_of_function
                && users > 1
                && !called.contains(&index)
                && graph.below(&arg, &[]).iter().any(is_given);
            if let Some(name) = node
                .name
                .as_deref()
                .filter(|_| is_shared && is_whole(index, node.level))
            {
                let is_taken = |name: &str| {
                    all.iter().any(|(taken, _)| taken == name)
                        || arguments(self).any(|of| of == name)
                };
                all.push((free(name, is_taken), arg));
            }
        }
        all.sort_by_key(|(_, result)| result.node());
        all
    }

    fn file(&self, functions: &[&str], option: &str) -> String {
        let text = functions.join("\n\n\n");
        let mut parts = python::helpers(&text);
        parts.extend(functions);
        let text = parts.join("\n\n\n");
        let mut file = format!(
            "{}\nimport torch\nfrom torch import Tensor\n",
            self.docstring(option)
        );
        for name in ["binary_cross_entropy_with_logits", "pad"] {
            if text.contains(&format!("{name}(")) {
                let _ = writeln!(file, "from torch.nn.functional import {name}");
            }
        }
        file + "\n\n" + text.trim_end() + "\n"
    }

    /// Returns the file's docstring: the recipe's description, the differences between the file and the recipe, the command that
    /// writes the file, and the scripts.
    fn docstring(&self, option: &str) -> String {
        let name = self.recipe.name();
        let mut text = format!("{}\n", self.recipe.doc());
        if text == "\n" {
            text = format!("The recipe `{name}`.\n");
        }
        let fixed = self.settings(Role::Formula);
        if !fixed.is_empty() {
            let _ = writeln!(text, "\nFixed in this formula: {fixed}.");
        }
        let absent: Vec<&str> = self.absent_columns().collect();
        if !absent.is_empty() {
            let absent = absent.join(", ");
            let _ = writeln!(text, "\nThe formula is for batches that lack {absent}.");
        }
        if self.recipe.about().use_of("metric").is_some() {
            text += "\nThe metrics that the script reports are not computed.\n";
        }
        let changed = self.recipe.params().iter();
        let changed = changed.filter(|(parameter, setting)| parameter.default != **setting);
        let changed = changed.map(|(of, setting)| format!(" --set {}={setting}", of.name));
        let (changed, version) = (changed.collect::<String>(), self.recipe.version().short());
        let _ = write!(
            text,
            "\nWritten by advlab from version {version} of the script that follows:\n\n    \
             advlab plan {name} --torch{option}{changed}\n"
        );
        let origins = self
            .graph
            .nodes
            .iter()
            .filter_map(|node| node.origin.as_ref());
        let used: Vec<&str> = origins
            .map(|origin| source_of(&self.recipe, origin))
            .collect();
        let (own, modules): (Vec<_>, Vec<_>) = self
            .recipe
            .sources()
            .partition(|(source, _)| *source == name);
        let modules = modules
            .into_iter()
            .filter(|(source, _)| used.contains(source));
        for (source, code) in own.into_iter().chain(modules) {
            let kind = if source == name { "script" } else { "module" };
            let _ = writeln!(text, "\nThe {kind} `{source}`:\n");
            let is_header = |line: &&str| line.starts_with("//!") || line.is_empty();
            for line in code.lines().skip_while(is_header) {
                let _ = writeln!(text, "{}", format!("    {line}").trim_end());
            }
        }
        let raw = if text.contains('\\') { "r" } else { "" };
        format!("{raw}\"\"\"{}\"\"\"\n", text.replace("\"\"\"", "'''"))
    }

    /// Returns the columns that the script looks for with `has`, but the plan's batch does not have.
    fn absent_columns(&self) -> impl Iterator<Item = &str> {
        let names = self.recipe.reads().iter().map(String::as_str);
        names.filter(|name| {
            let asked = format!("has(\"{name}\")");
            let mut sources = self.recipe.sources();
            !self.batch.has(name) && sources.any(|(_, code)| code.contains(&asked))
        })
    }
}
