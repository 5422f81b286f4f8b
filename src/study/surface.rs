//! A loss over ratio and advantage: the picture of clipping that papers have.

use crate::Batch;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figure::{Figure, Mark, Panel, Series};
use crate::script::{Hook, Loss, Recipe, Rollouts};

/// Half the cells across and all cells up: ratios up to 2, advantages from -2 to 2, the middles in between.
const RATIOS: usize = 20;
const ADVANTAGES: i32 = 10;
/// Advantages at which it is drawn as lines.
const LINES: [i32; 2] = [5, -5];

/// What is drawn of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// -dloss/dlogp: how far the update raises the token's log-prob.
    Push,
    /// The loss itself.
    Loss,
}

/// A heat map of a loss over ratio and advantage, and lines at the advantages 1 and -1. Each place is a batch of one
/// response of one token, whose `logp` is `old_logp` plus the ratio's logarithm.
///
/// # Errors
/// [`Diagnostics`] where the recipe has no loss, or fails on such a batch.
pub fn surface(recipe: &Recipe, drawn: Drawn) -> Result<Figure, Diagnostics> {
    if !recipe.has(Hook::Loss) {
        let message = format!("{} has no loss to draw", recipe.name());
        let help =
            "a loss is a recipe such as ppo_clip, gspo or cispo, or your own `loss(batch, p)`";
        return Err(Diagnostic::error(message).with_help(help).into());
    }
    let usual = Rollouts::mixed().whole();
    let columns: Vec<&str> = usual.token_columns().map(|(name, _)| name).collect();
    let (mut points, mut values) = (Vec::new(), Vec::new());
    for step in -ADVANTAGES..=ADVANTAGES {
        let advantage = 2.0 * f64::from(step) / f64::from(ADVANTAGES);
        for index in 1..=2 * RATIOS {
            let ratio = index as f64 / RATIOS as f64;
            points.push((ratio, advantage));
            let loss = at(recipe, &columns, (ratio, advantage))?;
            values.push(match drawn {
                Drawn::Push => -loss.gradient.at(0, 0),
                Drawn::Loss => loss.value,
            });
        }
    }
    let name = match drawn {
        Drawn::Push => "-dloss/dlogp",
        Drawn::Loss => "loss",
    };
    let lines = LINES.map(|step| {
        let advantage = 2.0 * f64::from(step) / f64::from(ADVANTAGES);
        let cells = points
            .iter()
            .zip(&values)
            .filter(|(point, _)| point.1 == advantage);
        let line = cells.map(|(point, value)| (point.0, *value));
        Series::new(format!("A = {advantage}"), Mark::Line, line)
    });
    let map = Series::new(name, Mark::Heat(values), points);
    let ratio = "ratio, exp(logp - old_logp)";
    Ok(Figure {
        title: super::label(recipe),
        columns: 2,
        panels: vec![
            Panel::new(ratio, "advantage A", vec![map]),
            Panel::new(ratio, name, lines.into()),
        ],
    })
}

/// The loss of a response of one token.
fn at(
    recipe: &Recipe,
    columns: &[&str],
    (ratio, advantage): (f64, f64),
) -> Result<Loss, Diagnostics> {
    const OLD: f64 = -0.5;
    let right = f64::from(u8::from(advantage > 0.0));
    let mut batch = Batch::builder()
        .groups([0])
        .response("reward", vec![right])
        .response("correct", vec![right])
        .response("advantage", vec![advantage]);
    for &name in columns {
        let value = match name {
            "logp" => OLD + ratio.ln(),
            name if name.ends_with("logp") => OLD,
            _ => 0.5,
        };
        batch = batch.ragged(name, [[value]]);
    }
    recipe.loss(&batch.build()?, None, &mut recipe.init()?)
}
