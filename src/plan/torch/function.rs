//! A Python function: the signature, the docstring, the statements that prepare the arguments, and the body.

use super::body::{Body, Function, Written};
use super::python::{head, number, parameter, wrapped};
use crate::plan::Plan;
use crate::plan::graph::Arg;
use crate::plan::params::Role;
use crate::script::ParamValue;
use crate::tensor::Level;

const GROUP: &str = "[B], integers, the same for the responses to one prompt";
const TRAJECTORY: &str = "[B], integers, the same for the turns of one trajectory";
const MASK: &str = "true or 1 at each token that counts";

/// The statements that a function may need. A trajectory lies within one group.
const NEEDS: &str = "\
mask = mask.bool()
index = group_index(group)
first = is_first(index)
trajectory = group_index(index * len(index) + group_index(trajectory))
first_turn = is_first(trajectory)";

const OF_T: &str = "\n    torch.compile compiles it again for each T, so pad to a few lengths.\n";
const OF_K: &str = "\n    A group with fewer than k responses gets nan or 0, without an error.\n";

/// Returns whether a text contains a word.
fn has(text: &str, word: &str) -> bool {
    let mut words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.any(|own| own == word)
}

impl Function {
    /// Writes a function that returns `result`, described by `about`. If `is_single` is set, the function takes a single
    /// response, and torch.fx can trace it.
    pub(super) fn of(
        plan: &Plan,
        (name, result, about): (&str, &Arg, &str),
        functions: &[Function],
        is_single: bool,
    ) -> Written<Function> {
        let mut body = Body::of(plan, name, result, functions)?;
        let shapes = if is_single {
            ["a number", "[T]", "[T]"]
        } else {
            ["[B]", "[B, T]", "[B, T], or [B]"]
        };
        let mask = format!("{}, {MASK}", shapes[1]);
        let mut inputs = vec![
            ("group", GROUP),
            ("trajectory", TRAJECTORY),
            ("mask", &mask),
        ];
        let of_one = if is_single { "mask[None]." } else { "mask." };
        let mut needs: Vec<String> = NEEDS
            .lines()
            .map(|of| of.replace("mask.", of_one))
            .collect();
        for (name, level) in &body.columns {
            let is_token = *level == Level::Token;
            let is_advantage = is_token && name == "advantage";
            let is_given = is_single && name == "logp";
            let given = if is_given { "logprobs" } else { name };
            inputs.push((
                given,
                shapes[usize::from(is_token) + usize::from(is_advantage)],
            ));
            if is_advantage && !is_single {
                let by_response = format!("{name} if {name}.dim() == 2 else {name}[:, None]");
                needs.push(format!("{name} = {by_response}"));
            }
            // Values at tokens that do not count may be anything, even NaN.
            needs.push(match (is_token, is_single) {
                (true, true) => format!("{name} = torch.where(mask, {given}, 0.0)"),
                (true, false) => format!("{name} = torch.where(mask, to_float({name}), 0.0)"),
                (false, true) => format!("{name} = {name}[None]"),
                (false, false) => format!("{name} = to_float({name})"),
            });
        }
        let has_mask = body.lines.iter().any(|line| has(line, "mask"));
        let column = body.columns.first().map(|(name, _)| &**name);
        let of = column.unwrap_or(if has_mask { "mask" } else { "group" });
        let every = format!("torch.ones(len({of}), dtype=torch.bool, device={of}.device)");
        needs.push(format!("every = {every}"));
        let dtype = column.map(|name| format!("{name}.dtype"));
        let dtype = dtype.unwrap_or("torch.get_default_dtype()".to_string());
        needs.push(format!("dtype = {dtype}"));
        let code = body.lines.iter().filter(|line| !line.starts_with('#'));
        let mut code = code.map(|line| format!("{line}\n")).collect::<String>();
        let mut start: Vec<String> = Vec::new();
        for line in needs.into_iter().rev() {
            let word = line.split(' ').next().unwrap_or("");
            // An argument that is only passed on to another function is prepared in that function.
            let passed = format!("{word}={word}");
            let own = code.replace(if word == "dtype" { "\0" } else { &passed }, "");
            if has(&own, word) {
                code += &line;
                code.push('\n');
                start.insert(0, line);
            }
        }
        inputs.retain(|(name, _)| has(&code, name));
        // The argument `logprobs` comes first.
        inputs.sort_by_key(|(name, _)| *name != "logprobs");
        let (mut arguments, mut passed, mut docs) = (Vec::new(), Vec::new(), String::new());
        for (name, what) in inputs {
            arguments.push(format!("{name}: Tensor"));
            passed.push(name.to_string());
            docs += &format!("    {name}: {what}\n");
        }
        for ((of, setting), role) in plan.recipe.params().iter().zip(&plan.roles) {
            let name = parameter(plan, &of.name);
            if *role != Role::Number || !has(&code, &name) {
                continue;
            }
            let (kind, value) = match setting {
                ParamValue::Integer(whole) => ("int", whole.to_string()),
                ParamValue::Number(value) if value.is_finite() => ("float", format!("{value:?}")),
                ParamValue::Number(value) => ("float", number(*value)),
                _ => continue,
            };
            if is_single {
                start.push(format!("{name} = {value}"));
            } else {
                let doc = if of.doc.is_empty() {
                    "a number"
                } else {
                    &of.doc
                };
                docs += &format!("    {name}: {doc}\n");
                arguments.push(format!("{name}: {kind} = {value}"));
                passed.push(name);
            }
        }
        if has(&code, "generator") {
            arguments.push("generator: torch.Generator | None = None".to_string());
            passed.push("generator".to_string());
        }
        let gives = if is_single {
            body.lines
                .last_mut()
                .into_iter()
                .for_each(|line| *line += ", {}");
            "tuple[Tensor, dict[str, Tensor]]"
        } else {
            arguments.insert(0, "*".to_string());
            "Tensor"
        };
        let head = head(name, &arguments.join(", "), gives);
        let is_scan = has(&code, "suffix_sum") || has(&code, "cumsum");
        let notes = [(is_scan, OF_T), (has(&code, "binomial_ratio"), OF_K)];
        let notes = notes.into_iter().filter(|(is_so, _)| *is_so);
        let notes: String = notes.map(|(_, note)| note).collect();
        let lines: String = start
            .iter()
            .chain(&body.lines)
            .map(|line| wrapped(line))
            .collect();
        let text = format!("{head}\n    \"\"\"{about}\n{notes}\n{docs}    \"\"\"\n{lines}");
        Ok(Function {
            name: name.to_string(),
            result: result.clone(),
            text,
            columns: body.columns,
            arguments: passed,
        })
    }
}
