//! Evaluates a piece of script on a batch, for examples in the documentation.

use rhai::{Dynamic, Scope};

use super::batch_type::ScriptBatch;
use super::call::Call;
use super::explain::Script;
use super::host::Host;
use super::library::Sources;
use super::sandbox::on_deep_stack;
use crate::batch::{Batch, Computed};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::tensor::{Frame, Tensor};

/// What a piece of script gave.
#[derive(Clone, Debug)]
pub enum Evaluated {
    /// A tensor's values.
    Tensor(Computed),
    /// A number, or a truth as 1 or 0.
    Number(f64),
    /// Anything else, as text.
    Text(String),
}

impl Evaluated {
    /// The numbers that it holds.
    pub fn numbers(&self) -> Vec<f64> {
        match self {
            Evaluated::Tensor(computed) => computed.buffer().iter().collect(),
            Evaluated::Number(number) => vec![*number],
            Evaluated::Text(_) => Vec::new(),
        }
    }
}

impl Host {
    /// Evaluates a piece of script that sees the batch as `batch`.
    ///
    /// # Errors
    /// [`Diagnostics`] as for a recipe.
    pub fn evaluate(&self, text: &str, batch: &Batch) -> Result<Evaluated, Diagnostics> {
        on_deep_stack(|| self.evaluate_here(text, batch))
    }

    fn evaluate_here(&self, text: &str, batch: &Batch) -> Result<Evaluated, Diagnostics> {
        let call = Call::new(self.shared.guard(), batch.step(), self.shared.seed);
        let executor = self.shared.executor.clone();
        let frame = Frame::new(
            batch.layout().clone(),
            batch.is_f64(),
            call.guard.clone(),
            executor,
        );
        let engine = self.shared.functions.engine(&call);
        let mut scope = Scope::new();
        let script_batch = ScriptBatch::new(frame, call, batch.clone(), Default::default());
        scope.push("batch", script_batch);
        let name = "example".into();
        let mut sources = Sources::new();
        sources.insert("example".into(), text.into());
        let script = Script::new(&name, &sources);
        let value: Dynamic = engine
            .eval_with_scope(&mut scope, text)
            .map_err(|error| script.explain(&error))?;
        if let Some(tensor) = value.read_lock::<Tensor>() {
            let value = tensor
                .evaluate()
                .map_err(|error| Diagnostic::error(error.to_string()))?;
            // A regrouped batch has a layout of its own.
            let frame = tensor.frame();
            let layout = frame.map_or(batch.layout(), |frame| frame.layout());
            return Ok(Evaluated::Tensor(value.over(layout)));
        }
        Ok(match super::bind::number(&value) {
            Some(number) => Evaluated::Number(number),
            None => Evaluated::Text(value.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::op;

    #[test]
    fn every_example_of_the_op_table_gives_what_it_shows() {
        let (host, batch) = (Host::new(), Batch::example());
        for op in op::table() {
            let got = match host.evaluate(op.example, &batch) {
                Ok(evaluated) => evaluated.numbers(),
                Err(error) => panic!("{}: {}", op.name, error.render(false)),
            };
            assert_eq!(got.len(), op.shows.len(), "{}: {got:?}", op.name);
            for (got, shown) in got.iter().zip(op.shows) {
                assert!(
                    (got - shown).abs() <= 1e-15 * shown.abs().max(1.0),
                    "{}: {got:?} {shown:?}",
                    op.name
                );
            }
        }
    }
}
