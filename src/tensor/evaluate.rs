//! Computing tensors: the tensors of one request form one plan, and computed values are kept.

use std::sync::Arc;
use std::time::Instant;

use super::exec::Sink;
use super::{Plan, Tensor, TensorError, Value};

impl Tensor {
    /// Computes the tensor's values, or returns its earlier values.
    ///
    /// # Errors
    /// [`TensorError`] if the values do not allow an operation, or the guard stopped it.
    pub fn evaluate(&self) -> Result<Arc<Value>, TensorError> {
        if let Some(frame) = self.frame().filter(|frame| frame.is_open_view()) {
            frame.look_at();
            // Users never see this message: the function is called again, once per group.
            let message = "a group's value is looked at while there is none yet";
            return Err(TensorError::level("map_groups", message));
        }
        if let Some(value) = self.known() {
            return Ok(value.clone());
        }
        Tensor::evaluate_together(std::slice::from_ref(self))?;
        Ok(match self.known() {
            Some(value) => value.clone(),
            None => Value::number(self.alone()),
        })
    }

    /// Computes several tensors, and their common parts once; [`Tensor::evaluate`] then returns their values.
    ///
    /// # Errors
    /// As [`Tensor::evaluate`], for the first that fails.
    pub(crate) fn evaluate_together(tensors: &[Tensor]) -> Result<(), TensorError> {
        Tensor::compute(tensors, None)
    }

    /// As [`Tensor::evaluate_together`]; writes the values of the first tensor into padded rows, 0 where the mask is 0.
    /// These values are not kept. Returns whether all are finite.
    pub(crate) fn evaluate_into(tensors: &[Tensor], rows: &mut [f32]) -> Result<bool, TensorError> {
        let mut sink = Sink {
            rows: &mut *rows,
            is_finite: None,
        };
        Tensor::compute(tensors, Some(&mut sink))?;
        if let Some(is_finite) = sink.is_finite {
            return Ok(is_finite);
        }
        let value = tensors[0].evaluate()?;
        if let Some(frame) = tensors[0].frame() {
            let started = Instant::now();
            value.over(&frame.layout).fill_rows(rows);
            if let Some(profile) = frame.context.profile() {
                profile.note(tensors[0].origin(), started.elapsed().as_secs_f64());
            }
        }
        Ok(value.first_not_finite().is_none())
    }

    fn compute(tensors: &[Tensor], sink: Option<&mut Sink<'_>>) -> Result<(), TensorError> {
        let unknown = |tensor: &&Tensor| tensor.known().is_none() && tensor.frame().is_some();
        let sink = sink.filter(|_| tensors.first().as_ref().is_some_and(unknown));
        let tensors: Vec<Tensor> = tensors.iter().filter(unknown).cloned().collect();
        let Some(frame) = tensors.first().and_then(Tensor::frame) else {
            return Ok(());
        };
        let plan = Plan::new(&tensors);
        let values = frame.context.run(&plan, sink)?;
        for (tensor, &output) in tensors.iter().zip(plan.outputs()) {
            if let Some(value) = &values[output] {
                tensor.remember(value.clone());
            }
        }
        for (step, value) in plan.steps().iter().zip(values) {
            if let Some(value) = value {
                step.tensor.remember(value);
            }
        }
        Ok(())
    }
}
