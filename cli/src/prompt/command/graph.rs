//! `:grad` and `:profile`: the gradient of an expression, and its time.

use super::super::session::Session;
use super::super::show;
use super::Answered;
use crate::report::profile::Measured;
use crate::report::study::with_advantage;
use advlab::script::Builtin;
use advlab::session::Answer;

/// How often `:profile` runs a recipe.
const RUNS: usize = 5;

pub(super) fn grad(session: &mut Session, text: &str) -> Answered {
    let text = match text {
        // `loss` means the recipe's loss, unless there is a variable of that name.
        "" | "loss" if !session.script.has_variable("loss") => "loss()",
        "" => "loss",
        text => text,
    };
    if let Some(recipe) = session.script.recipe().filter(|_| text == "loss()") {
        let (batch, note) = with_advantage(recipe, &session.data.batch)?;
        if let Some(note) = note {
            session.script.guard().rearm();
            let gradient = recipe.loss(&batch, None, &mut recipe.init()?)?.gradient;
            let title = session.paint.dim("d loss() / d logp");
            let shown = show::tensor(&gradient, session.paint);
            return Ok(format!("{title}\n{}\n{shown}", session.note(&note)));
        }
    }
    // Without a recipe, a typed formula has the loss of `:run`.
    let is_formula = session.script.recipe().is_none() && session.script.inputs().has_advantage();
    if text == "loss()" && is_formula {
        let recipe = session.recipe()?;
        session.script.use_recipe(Some(recipe));
    }
    let gradient = session.script.gradient(text);
    if is_formula {
        session.script.use_recipe(None);
    }
    let title = session.paint.dim(&format!("d {text} / d logp"));
    Ok(match gradient? {
        Answer::Tensor(gradient) => format!("{title}\n{}", show::tensor(&gradient, session.paint)),
        _ => title,
    })
}

/// Where the time of an expression goes, or that of the recipe that is named or in use.
pub(super) fn profile(session: &mut Session, text: &str) -> Answered {
    let first = text.split_whitespace().next().unwrap_or_default();
    let is_recipe = Builtin::find(first).is_some() || first.ends_with(".rhai");
    let batch = session.data.batch.clone();
    let measured = if text.is_empty() || (is_recipe && !session.script.has_variable(first)) {
        let recipe = session.recipe_of(text)?;
        session.script.guard().rearm();
        Measured::new(session.script.host(), &recipe, None, &batch, RUNS)?
    } else {
        Measured::input(&mut session.script, &batch, text)?
    };
    Ok(measured.table(session.paint))
}
