//! A plan as a file of Python that needs torch alone, written to be read.

mod expression;
mod function;
mod python;
mod single;

use std::fmt::Write as _;

use self::function::Writer;
use self::python::literal;
use super::text::source_of;
use super::{Plan, Role, params};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// black's width.
const WIDTH: usize = 88;
/// A part of an expression that is longer becomes a statement of its own.
const LONG: usize = 58;

/// The functions that a file may need, each followed by two empty lines.
const HELPERS: &str = include_str!("../helpers.py");

type Written<T> = Result<T, Diagnostic>;

impl Plan {
    /// A file of Python with a function for each hook: it needs torch, works on padded tensors on any device, and a loss is
    /// differentiable.
    ///
    /// # Errors
    /// [`Diagnostics`] with the script's line if something depends on the values of the batch, or has no form in the file.
    pub fn torch(&self) -> Result<String, Diagnostics> {
        let plan = self.of_every_batch()?;
        let formulas = plan.formulas.iter();
        let functions = formulas.map(|formula| Writer::new(&plan, formula, false).function());
        let functions: Vec<String> = functions.collect::<Written<_>>()?;
        Ok(plan.file(&functions.join("\n\n"), ""))
    }

    /// A file of Python with the part of the loss that one response has, as a function that `torch.fx` traces.
    ///
    /// # Errors
    /// [`Diagnostics`] as [`Plan::torch`]; also if the loss is no sum over responses, or compares them.
    pub fn torch_per_response(&self) -> Result<String, Diagnostics> {
        let plan = self.of_every_batch()?;
        let formula = plan.single()?;
        let function = Writer::new(&plan, formula, true).function()?;
        Ok(plan.file(&function, " --per-response"))
    }

    fn file(&self, functions: &str, option: &str) -> String {
        let mut text = functions.to_string();
        let mut needed: Vec<&str> = Vec::new();
        // A function may need others.
        while let Some(helper) = HELPERS.split("\n\n\n").find(|helper| {
            let name = helper.split(['(', ' ']).nth(1).unwrap_or("");
            let is_called = |before: &str| text.contains(&format!("{before}{name}("));
            !needed.contains(helper) && ["(", " ", "-"].into_iter().any(is_called)
        }) {
            needed.push(helper);
            text += &helper[helper.find(':').unwrap_or(0)..];
        }
        let all = HELPERS.split("\n\n\n");
        let helpers = all.filter(|helper| needed.contains(helper));
        let parts: Vec<&str> = helpers.chain([functions]).map(str::trim_end).collect();
        let mut file = format!(
            "{}\nimport torch\nfrom torch import Tensor\n",
            self.docstring(option)
        );
        for name in ["binary_cross_entropy_with_logits", "pad"] {
            if text.contains(&format!("{name}(")) {
                let _ = writeln!(file, "from torch.nn.functional import {name}");
            }
        }
        let constants = self.recipe.params().iter().zip(&self.roles);
        let constants = constants.filter(|(_, role)| **role == Role::Number);
        for (index, ((parameter, setting), _)) in constants.enumerate() {
            let number = params::number(setting).unwrap_or(f64::NAN);
            let (doc, name) = (&parameter.doc, parameter.name.to_uppercase());
            let start = if index == 0 { "\n" } else { "" };
            let _ = writeln!(file, "{start}# {doc}\n{name} = {}", literal(number));
        }
        let _ = write!(file, "\n\n{}\n", parts.join("\n\n\n"));
        file
    }

    /// The recipe's text and source, how the file differs from the recipe, the command that writes it, and the scripts.
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
            let _ = writeln!(text, "\nThe formula is for batches without: {absent}.");
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
        let origins = self.formulas.iter().flat_map(|formula| &formula.nodes);
        let origins =
            origins.filter_map(|node| Some(source_of(&self.recipe, node.origin.as_ref()?)));
        let used: Vec<&str> = origins.collect();
        let (modules, own): (Vec<_>, Vec<_>) = self
            .recipe
            .sources()
            .partition(|(source, _)| *source != name);
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

    /// The columns for which the script asks by `has`, and which the batch of the plan does not have.
    fn absent_columns(&self) -> impl Iterator<Item = &str> {
        let names = self.recipe.reads().iter().map(String::as_str);
        names.filter(|name| {
            let asked = format!("has(\"{name}\")");
            let mut sources = self.recipe.sources();
            !self.batch.has(name) && sources.any(|(_, code)| code.contains(&asked))
        })
    }
}
