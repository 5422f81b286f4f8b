//! `:plan`, `:grad`, `:time`: an expression's graph, its gradient, and what it costs.

use super::super::session::Session;
use super::super::show;
use super::recipe::current;
use super::{Answered, missing};
use crate::figures;
use crate::script::{Answer, GraphNode};

pub(super) fn grad(session: &mut Session, text: &str) -> Answered {
    let text = match text {
        // The word for the recipe's loss, unless it is a variable of that name.
        "" | "loss" if !session.script.has_variable("loss") => "loss()",
        "" => "loss",
        text => text,
    };
    // Where no recipe is loaded, a formula that was typed has a loss too, that of `:run`.
    let is_formula = session.script.recipe().is_none() && session.script.inputs().has_advantage();
    if text == "loss()" && is_formula {
        let recipe = current(session)?;
        session.script.use_recipe(Some(recipe));
    }
    let gradient = session.script.gradient(text);
    if is_formula {
        session.script.use_recipe(None);
    }
    let gradient = gradient?;
    let mut lines = vec![session.paint.dim(&format!("d {text} / d logp"))];
    if let Answer::Tensor(computed) = &gradient {
        lines.push(show::tensor(computed, session.paint));
    }
    Ok(lines.join("\n"))
}

pub(super) fn plan(session: &mut Session, text: &str) -> Answered {
    if text.is_empty() {
        return Err(missing("plan"));
    }
    let nodes = session.script.graph(text)?;
    let name = |node: &GraphNode| {
        let args: Vec<String> = node.args.iter().map(|arg| format!("#{arg}")).collect();
        format!("{} {}", node.name, args.join(" "))
            .trim_end()
            .to_string()
    };
    let width = nodes
        .iter()
        .map(|node| name(node).chars().count())
        .max()
        .unwrap_or(0)
        .min(40);
    let mut lines: Vec<String> = Vec::new();
    for (place, node) in nodes.iter().enumerate() {
        let dtype = if node.is_f64 { "f64" } else { "f32" };
        let known = if node.is_known { "   computed" } else { "" };
        let size = figures::count(node.size);
        let about = format!("{:<8}  {size:>9}  {dtype}{known}", node.level.name());
        lines.push(format!(
            "  #{place:<3} {:<width$}  {}",
            name(node),
            session.paint.dim(&about)
        ));
    }
    let computed = nodes.iter().filter(|node| !node.args.is_empty()).count();
    lines.push(format!(
        "{computed} operations on {} values given",
        nodes.len() - computed
    ));
    Ok(lines.join("\n"))
}

pub(super) fn time(session: &mut Session, text: &str) -> Answered {
    if text.is_empty() {
        return Err(missing("time"));
    }
    let timing = session.script.time(text)?;
    let time = figures::time;
    Ok(format!(
        "{}   in the middle of {} runs, from {} to {}",
        time(timing.median),
        figures::count(timing.runs),
        time(timing.least),
        time(timing.most)
    ))
}
