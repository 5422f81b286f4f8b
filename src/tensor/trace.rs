//! The trace of a computation. `src/plan` needs the calls of composed rows, because the graph holds only the operations of which
//! these rows are composed; it also needs the tensors whose values were read, and the keys by which a script made groups. An
//! editor needs the tensor that each operation of a script made.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use super::error::Origin;
use super::frame::Frame;
use super::graph::Tensor;
use super::op::param::{Argument, Param};
use crate::parallel::lock;

/// A call of a composed row of the op table.
#[derive(Clone, Debug)]
pub(crate) struct ComposedCall {
    pub(crate) name: &'static str,
    pub(crate) params: &'static [Param],
    pub(crate) args: Vec<Argument>,
    /// The call's result, whose address identifies the call. The result is kept, so that no other node can get the same address.
    _result: Tensor,
}

/// The values by which a script makes groups.
#[derive(Clone, Debug)]
pub(crate) enum GroupKey {
    /// The name of a column of the batch, which may be a column of texts.
    Column(Arc<str>),
    Tensor(Tensor),
}

/// Groups that a script made, with their frame.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    /// The name of the function that makes them from the groups of the batch.
    pub(crate) name: &'static str,
    pub(crate) keys: Vec<GroupKey>,
    frame: Arc<Frame>,
}

/// A trace that is emptied when this value is dropped. Otherwise, nothing would be freed, because the tensors of a trace hold
/// their frames, and the frames hold the trace.
#[derive(Debug, Default)]
pub(crate) struct Tracing(Arc<Trace>);

impl Deref for Tracing {
    type Target = Arc<Trace>;

    fn deref(&self) -> &Arc<Trace> {
        &self.0
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        lock(&self.calls).clear();
        lock(&self.read).clear();
        lock(&self.groups).clear();
        lock(&self.made).clear();
        lock(&self.compared).clear();
    }
}

#[derive(Debug, Default)]
pub(crate) struct Trace {
    calls: Mutex<HashMap<usize, ComposedCall>>,
    read: Mutex<Vec<Tensor>>,
    groups: Mutex<Vec<Groups>>,
    /// The first tensor that each operation of the script made, and the number of operations that had made a tensor before.
    made: Mutex<BTreeMap<Origin, (usize, Tensor)>>,
    /// The results of comparing keys with names, each with the name as it is written in a script.
    compared: Mutex<Vec<(Tensor, String)>>,
}

impl Trace {
    /// Returns the trace of a frame's computation, if there is one.
    pub(crate) fn of(frame: Option<&Arc<Frame>>) -> Option<&Trace> {
        frame?.context.trace.as_ref()?.downcast_ref()
    }

    /// Records the call that made a tensor. If nested calls have the same result, the innermost call is recorded. A call that
    /// returns one of its arguments is not recorded.
    pub(super) fn note_call(
        &self,
        name: &'static str,
        params: &'static [Param],
        args: &[Argument],
        result: &Tensor,
    ) {
        let is_result = |arg: &Argument| matches!(arg, Argument::Tensor(arg) if arg.same(result));
        if !args.iter().any(is_result) {
            let call = || ComposedCall {
                name,
                params,
                args: args.to_vec(),
                _result: result.clone(),
            };
            lock(&self.calls).entry(result.id()).or_insert_with(call);
        }
    }

    pub(super) fn note_read(&self, tensor: &Tensor) {
        lock(&self.read).push(tensor.clone());
    }

    /// Records how the groups of the frame `to` were made: `regroup` splits the groups of the frame `from` by the keys `by`;
    /// `group_by` (if `across` is true) ignores these groups and groups the responses by the keys alone.
    pub(crate) fn note_groups(&self, from: &Frame, across: bool, by: &[GroupKey], to: &Arc<Frame>) {
        let first = if across { "group_by" } else { "regroup" };
        let old = self.groups(from).filter(|_| !across);
        let (name, mut keys) = old.map_or((first, Vec::new()), |old| (old.name, old.keys));
        keys.extend_from_slice(by);
        let frame = to.clone();
        lock(&self.groups).push(Groups { name, keys, frame });
    }

    /// Records the first tensor that the operation at `origin` made; later tensors are ignored.
    pub(crate) fn note_made(&self, origin: Origin, tensor: &Tensor) {
        let mut made = lock(&self.made);
        let order = made.len();
        made.entry(origin)
            .or_insert_with(|| (order, tensor.clone()));
    }

    /// Records that a key was compared with a name; the graph has only the name's code.
    pub(crate) fn note_compared(&self, result: &Tensor, name: String) {
        lock(&self.compared).push((result.clone(), name));
    }

    /// Returns the name with which a key was compared, if `result` is the result.
    pub(crate) fn compared(&self, result: &Tensor) -> Option<String> {
        let compared = lock(&self.compared);
        let found = compared.iter().find(|(own, _)| own.same(result))?;
        Some(found.1.clone())
    }

    /// Returns the origin of each operation, and the first tensor that the operation made.
    pub(crate) fn made(&self) -> Vec<(Origin, Tensor)> {
        let made = lock(&self.made);
        let tensors = made.iter();
        let tensors = tensors.map(|(origin, (_, tensor))| (origin.clone(), tensor.clone()));
        tensors.collect()
    }

    /// Returns the number of operations in the script that made a tensor before the operation at `origin` did.
    pub(crate) fn order(&self, origin: &Origin) -> Option<usize> {
        lock(&self.made).get(origin).map(|(order, _)| *order)
    }

    /// Returns the call of a composed row that made a node, if there is one.
    pub(crate) fn call(&self, node: &Tensor) -> Option<ComposedCall> {
        lock(&self.calls).get(&node.id()).cloned()
    }

    /// Returns the groups of a frame; `None` if no script made them.
    pub(crate) fn groups(&self, of: &Frame) -> Option<Groups> {
        let groups = lock(&self.groups);
        let mut groups = groups.iter();
        let found = groups.find(|own| Arc::ptr_eq(&own.frame.layout, &of.layout));
        found.cloned()
    }

    /// Returns the tensors whose values were read, in the order in which they were read.
    pub(crate) fn read(&self) -> Vec<Tensor> {
        lock(&self.read).clone()
    }
}
