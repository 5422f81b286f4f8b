//! Recipes at three shapes, operations, and formulas group by group.

use std::fmt;

use advlab::batch::large::SpareMemory;
use advlab::script::Hook;
use advlab::{Batch, Host, Recipe};
use divan::Bencher;
use divan::counter::ItemsCount;

use crate::{IS_SHORT, Shape, batch, shapes};

/// A recipe, or a formula, at a shape.
#[derive(Clone)]
struct Case(&'static str, Shape);

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.1, self.0)
    }
}

fn at(shapes: &[Shape], names: &[&'static str]) -> Vec<Case> {
    let of_shape = |&shape| names.iter().map(move |name| Case(name, shape));
    shapes.iter().flat_map(of_shape).collect()
}

/// Times the recipe's hook and the writing of its result as a padded array, whose memory is reused.
fn run(bencher: Bencher<'_, '_>, recipe: &Recipe, batch: &Batch) {
    let spare = SpareMemory::default();
    let mut state = recipe.init().expect("a state");
    let bencher = bencher.counter(ItemsCount::new(batch.layout().tokens()));
    bencher.bench_local(|| {
        let computed = if recipe.has(Hook::Advantage) {
            let outcome = recipe.advantage(batch, &mut state);
            outcome.expect("an advantage").advantage
        } else {
            let loss = recipe.loss(batch, None, &mut state);
            loss.expect("a loss").gradient
        };
        drop(computed.into_rows(&spare).expect("memory"));
    });
}

#[divan::bench(args = at(&shapes(), &[
    "grpo", "dr_grpo", "rloo", "passk", "reinforce_pp", "reinforce_pp_baseline", "gae", "grpo_lambda", "pacs", "ppo_clip",
]))]
fn recipes(bencher: Bencher<'_, '_>, case: &Case) {
    let recipe = Host::new().load(case.0).expect("a built-in");
    run(bencher, &recipe, &batch(case.1));
}

fn formula(bencher: Bencher<'_, '_>, text: &str, shape: Shape) {
    let text = format!("fn advantage(batch, p) {{ {text} }}");
    let recipe = Host::new().compile("formula", &text);
    run(bencher, &recipe.expect("a recipe"), &batch(shape));
}

#[divan::bench(args = at(&shapes()[2..], &[
    "batch.old_logp - batch.ref_logp",
    "exp(batch.old_logp)",
    "where(batch.old_logp < batch.ref_logp, batch.value, 0)",
    "kl(batch.old_logp, batch.ref_logp, \"k3\")",
    "batch.value.suffix_sum(0.95)",
    "batch.value.next(0)",
    "batch.value.sum(\"response\")",
    "batch.value - batch.value.std(\"group\")",
    "batch.value.whiten(\"batch\")",
    "batch.value - batch.value.mean(\"position\")",
    "batch.value.median(\"response\")",
    "batch.value.rank(\"group\")",
]))]
fn operations(bencher: Bencher<'_, '_>, case: &Case) {
    formula(bencher, case.0, case.1);
}

fn groups_shape() -> [Shape; 1] {
    [Shape(if *IS_SHORT { 512 } else { 8192 }, 16, 8)]
}

/// The first formula is called once for all groups. The second reads a value, so it is called group by group.
#[divan::bench(args = at(&groups_shape(), &[
    "batch.map_groups(|g| (g.reward - g.reward.mean(\"batch\")) / (g.reward.std(\"batch\") + 1e-6))",
    "batch.map_groups(|g| if g.reward.std(\"batch\").value() > 0.0 { g.reward - g.reward.mean(\"batch\") } else { g.reward * 0 })",
]))]
fn groups(bencher: Bencher<'_, '_>, case: &Case) {
    formula(bencher, case.0, case.1);
}
