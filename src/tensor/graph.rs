//! The expression graph: tensors are its nodes. Their levels are checked when they are built, and their values are computed only
//! on request.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::error::{Origin, TensorError, TensorErrorKind};
use super::frame::Frame;
use super::guard::Reservation;
use super::kernel::{Kernel, Within};
use super::value::Value;
use crate::batch::{Computed, FloatBuffer, Level, TokenValues};

/// The bytes of a node, with the two counts of its `Arc`, its variable in the script's scope and the allocator's overhead.
/// Counting these bytes also bounds a script that builds a graph and never computes it.
const NODE_BYTES: usize = size_of::<Node>() + 64;

/// A lazy value at a level: a node of an expression graph.
///
/// Cloning shares the node. Nothing is computed until [`Tensor::evaluate`].
#[derive(Clone)]
pub struct Tensor(Arc<Node>);

pub(crate) struct Node {
    pub(crate) prim: Prim,
    pub(crate) args: Vec<Tensor>,
    pub(crate) level: Level,
    /// Whether the values are f64; only token tensors may be f32.
    pub(crate) is_f64: bool,
    /// `None` for a single number, which belongs to every batch.
    pub(crate) frame: Option<Arc<Frame>>,
    origin: OnceLock<Origin>,
    value: OnceLock<Arc<Value>>,
    _reservation: Option<Reservation>,
}

/// A row of the op table, as far as the nodes that it made need it.
pub(crate) trait Row: fmt::Debug + Sync {
    /// The name of the operation, as scripts write it.
    fn name(&self) -> &'static str;
    fn kernel(&self) -> Kernel;
    /// Whether the operation is piecewise constant, so that no gradient goes through it.
    fn is_constant(&self) -> bool;
    /// The gradients of the first arguments of a node, from the gradient of its result.
    fn gradients(&self, node: &Tensor, grad: &Tensor) -> Result<Vec<Tensor>, TensorError>;
}

/// The executor's operations, to which all rows of the op table reduce.
#[derive(Clone, Debug)]
pub(crate) enum Prim {
    /// A number, as a batch tensor.
    Number(f64),
    /// Precomputed values.
    Values(Arc<Value>),
    Column(TokenValues),
    /// An elementwise row of the op table; its arguments are broadcast to the node's level.
    Map(&'static dyn Row),
    /// Repeats each value for all finer cells within its cell; at the argument's own level, moves the values to another grouping.
    Expand,
    /// A reduction row of the op table; if there is a second argument, values for which it is 0 do not count.
    Reduce(&'static dyn Row),
    /// The number of cells of a finer level in each cell.
    Count(Level),
    /// A row of the op table that gives each value a result, computed from the values of its cell of a coarser level.
    Within(&'static dyn Row, Level),
    /// A scan row over the tokens of each response, with its number (a discount or a fill). If there is a second argument, it has
    /// a discount for each response, which replaces the number.
    Scan(&'static dyn Row, f64),
    /// A response's value on its last token, 0 on its other tokens.
    AtLastToken,
    /// Uniform numbers in [0, 1), determined by a key and the index of the value.
    Random(u64),
    /// The part of the argument that belongs to one group, in that group's own frame.
    Select(usize),
    /// Joins tensors from the groups' own frames, one tensor per listed group. The result is 0 for every group that is not
    /// listed.
    Assemble(Arc<[usize]>),
}

impl Prim {
    /// The name of the operation, as scripts write it or as messages call it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Prim::Number(_) => "number",
            Prim::Values(_) => "values",
            Prim::Column(_) => "column",
            Prim::Map(op) | Prim::Reduce(op) | Prim::Scan(op, _) | Prim::Within(op, _) => op.name(),
            Prim::Expand => "expand",
            Prim::Count(_) => "count",
            Prim::AtLastToken => "at_last_token",
            Prim::Random(_) => "random",
            Prim::Select(_) => "groups",
            Prim::Assemble(_) => "map_groups",
        }
    }

    /// Identifies the operation among operations on the same arguments, at the same level and in the same frame; `None` for given
    /// values, and for operations that split or join groups.
    pub(crate) fn signature(&self) -> Option<[u64; 3]> {
        let row = |op: &'static dyn Row| std::ptr::from_ref(op).addr() as u64;
        Some(match self {
            Prim::Number(value) => [0, 0, value.to_bits()],
            Prim::Map(op) => [1, row(*op), 0],
            Prim::Expand => [2, 0, 0],
            Prim::Reduce(op) => [3, row(*op), 0],
            Prim::Count(level) => [4, *level as u64, 0],
            Prim::Within(op, level) => [5, row(*op), *level as u64],
            Prim::Scan(op, number) => [7, row(*op), number.to_bits()],
            Prim::AtLastToken => [8, 0, 0],
            Prim::Random(key) => [9, 0, *key],
            Prim::Values(_) | Prim::Column(_) | Prim::Select(_) | Prim::Assemble(_) => return None,
        })
    }
}

impl Tensor {
    /// A number as a batch tensor.
    pub fn number(value: f64) -> Tensor {
        Tensor::leaf(Prim::Number(value), Level::Batch, true, None)
    }

    /// A tensor of the given values, one per cell of the level, in the layout's order. f32 values at any level but token become
    /// f64.
    ///
    /// # Errors
    /// [`TensorErrorKind::Value`] if there is not one value per cell.
    pub(crate) fn from_buffer(
        frame: &Arc<Frame>,
        level: Level,
        buffer: FloatBuffer,
    ) -> Result<Tensor, TensorError> {
        let expected = frame.size(level);
        if buffer.len() != expected {
            let why = format!(
                "{} values for {expected} cells of level {level}",
                buffer.len()
            );
            return Err(TensorError::new("values", TensorErrorKind::Value(why)));
        }
        let buffer = match buffer {
            FloatBuffer::F32(values) if level != Level::Token => {
                FloatBuffer::F64(values.iter().map(|&value| f64::from(value)).collect())
            }
            buffer => buffer,
        };
        let value = Value::new(Computed::new(frame.layout.clone(), level, buffer), None);
        Ok(Tensor::from_value(frame, Arc::new(value)))
    }

    /// A tensor of new values, one per response.
    ///
    /// # Errors
    /// [`TensorErrorKind::Stopped`] if there is no memory for them.
    pub(crate) fn of_responses(
        frame: &Arc<Frame>,
        values: Vec<f64>,
    ) -> Result<Tensor, TensorError> {
        let reserved = frame.context.guard.reserve(size_of_val(&*values));
        let reserved = reserved.map_err(|stopped| TensorError::new("values", stopped))?;
        let values = Computed::new(frame.layout.clone(), Level::Response, values);
        let value = Value::new(values, Some(reserved));
        Ok(Tensor::from_value(frame, Arc::new(value)))
    }

    pub(crate) fn from_value(frame: &Arc<Frame>, value: Arc<Value>) -> Tensor {
        let (is_f64, level) = (value.is_f64(), value.level());
        Tensor::leaf(Prim::Values(value), level, is_f64, Some(frame.clone()))
    }

    pub(crate) fn column(frame: &Arc<Frame>, values: TokenValues) -> Tensor {
        let is_f64 = values.is_f64();
        Tensor::leaf(
            Prim::Column(values),
            Level::Token,
            is_f64,
            Some(frame.clone()),
        )
    }

    /// Uniform random numbers in [0, 1): the same key gives the same numbers for any number of threads.
    pub(crate) fn random(frame: &Arc<Frame>, level: Level, key: u64) -> Tensor {
        let is_f64 = level != Level::Token || frame.is_f64;
        Tensor::leaf(Prim::Random(key), level, is_f64, Some(frame.clone()))
    }

    fn leaf(prim: Prim, level: Level, is_f64: bool, frame: Option<Arc<Frame>>) -> Tensor {
        let guard = frame.as_ref().map(|frame| &frame.context.guard);
        let reservation = guard.and_then(|guard| guard.hold(NODE_BYTES));
        Tensor(Arc::new(Node {
            prim,
            args: Vec::new(),
            level,
            is_f64,
            frame,
            origin: OnceLock::new(),
            value: OnceLock::new(),
            _reservation: reservation,
        }))
    }

    /// A node over arguments whose levels have been checked.
    pub(crate) fn node(
        prim: Prim,
        args: Vec<Tensor>,
        level: Level,
        frame: Option<Arc<Frame>>,
    ) -> Result<Tensor, TensorError> {
        let guard = frame.as_ref().map(|frame| &frame.context.guard);
        let reserved = guard.map(|guard| {
            let reserved = guard.reserve_node(bytes(&args));
            let reserved = reserved.map_err(|stopped| TensorError::new(prim.name(), stopped));
            reserved.inspect_err(|error| guard.fail(error))
        });
        let reservation = reserved.transpose()?;
        // Ranks and indices can be larger than 2^24, beyond which f32 has no odd numbers.
        let counts = matches!(&prim, Prim::Within(op, _) if matches!(op.kernel(), Kernel::Within(Within::Rank | Within::Index)));
        let is_f64 = level != Level::Token || counts || {
            let mut tokens = args.iter().filter(|arg| arg.level() == Level::Token);
            match tokens.next() {
                Some(first) => first.0.is_f64 || tokens.any(|arg| arg.0.is_f64),
                None => frame.as_ref().is_some_and(|frame| frame.is_f64),
            }
        };
        Ok(Tensor(Arc::new(Node {
            prim,
            args,
            level,
            is_f64,
            frame,
            origin: OnceLock::new(),
            value: OnceLock::new(),
            _reservation: reservation,
        })))
    }

    /// An elementwise row of the op table on arguments of any levels, at the join of their levels. If all arguments are single
    /// numbers, the result is a number.
    pub(crate) fn map(op: &'static dyn Row, args: Vec<Tensor>) -> Result<Tensor, TensorError> {
        let level = args
            .iter()
            .fold(Level::Batch, |join, arg| join.join(arg.level()));
        let frame = meet(op.name(), &args, level)?;
        if let (Kernel::Fallible(_), Some(frame)) = (op.kernel(), &frame) {
            // An operation that can fail needs a call for each group, because its error names the group's own response.
            frame.note_inspected();
        }
        if let Some(number) = numbers(&args).and_then(|values| op.kernel().on_numbers(&values)) {
            return number.map(Tensor::number).map_err(|why| {
                let why = format!("{why}, for these arguments");
                TensorError::new(op.name(), TensorErrorKind::Value(why))
            });
        }
        Tensor::node(Prim::Map(op), args, level, frame)
    }

    /// Repeats the values at a finer level; returns the tensor itself if it has that level already.
    pub(crate) fn expanded(&self, level: Level, frame: &Arc<Frame>) -> Result<Tensor, TensorError> {
        if self.level() == level {
            return Ok(self.clone());
        }
        Tensor::node(Prim::Expand, vec![self.clone()], level, Some(frame.clone()))
    }

    /// The same values over another grouping of the same responses.
    pub(crate) fn rehomed(&self, frame: &Arc<Frame>) -> Result<Tensor, TensorError> {
        if matches!(self.level(), Level::Batch) {
            return Ok(self.clone());
        }
        Tensor::node(
            Prim::Expand,
            vec![self.clone()],
            self.level(),
            Some(frame.clone()),
        )
    }

    pub(crate) fn select(&self, group: usize, frame: &Arc<Frame>) -> Result<Tensor, TensorError> {
        if self.level() == Level::Batch {
            return Ok(self.clone());
        }
        Tensor::node(
            Prim::Select(group),
            vec![self.clone()],
            self.level(),
            Some(frame.clone()),
        )
    }

    /// Assembles parts made by `select`: tensors at `level` or at a coarser level, each in its group's frame, or batch tensors of
    /// any frame.
    pub(crate) fn assemble(
        frame: &Arc<Frame>,
        level: Level,
        parts: Vec<(usize, Tensor)>,
    ) -> Result<Tensor, TensorError> {
        let mut groups = Vec::with_capacity(parts.len());
        let mut args = Vec::with_capacity(parts.len());
        for (group, part) in parts {
            let expanded = match part.frame() {
                Some(own) if part.level() != Level::Batch => part.expanded(level, own),
                _ => part.expanded(level, &frame.group(group)),
            };
            groups.push(group);
            args.push(expanded?);
        }
        let prim = Prim::Assemble(groups.into());
        Tensor::node(prim, args, level, Some(frame.clone()))
    }

    /// Whether this is a result of `map_groups` whose function gives a number for every group.
    pub(crate) fn is_number_of_each_group(&self) -> bool {
        let is_number = |part: &Tensor| match (&part.0.prim, &part.0.args[..]) {
            (Prim::Expand, [of]) => of.as_number().is_some(),
            _ => false,
        };
        match self.0.prim {
            Prim::Assemble(_) => self.0.args.iter().all(is_number),
            _ => self.level() == Level::Group && is_number(self),
        }
    }

    /// The level, for a script that asks for it. In a view, a group tensor is a batch tensor for the script, so that this
    /// question forces a call for each group.
    pub(crate) fn level_for_script(&self) -> Level {
        if let (Level::Group, Some(frame)) = (self.level(), self.frame()) {
            frame.note_inspected();
        }
        self.level()
    }

    /// The level that the tensor's values are at.
    pub fn level(&self) -> Level {
        self.0.level
    }

    /// Whether the values are f64; only token tensors may be f32.
    pub fn is_f64(&self) -> bool {
        self.0.is_f64
    }

    /// The tensor's frame; `None` for a single number.
    pub(crate) fn frame(&self) -> Option<&Arc<Frame>> {
        self.0.frame.as_ref()
    }

    pub(crate) fn inner(&self) -> &Node {
        &self.0
    }

    /// The tensor's number, if it is a single number without a frame.
    pub(crate) fn as_number(&self) -> Option<f64> {
        match self.0.prim {
            Prim::Number(value) => Some(value),
            _ => None,
        }
    }

    /// The number of a tensor without a frame. Such a tensor is always a number, because operations on numbers give numbers.
    pub(crate) fn alone(&self) -> f64 {
        match self.as_number() {
            Some(number) => number,
            None => unreachable!("{self:?} has no frame and is no number"),
        }
    }

    pub(crate) fn same(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The node's address: its identity for as long as it lives.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// The value, if it has been computed (or given).
    pub(crate) fn known(&self) -> Option<&Arc<Value>> {
        match &self.0.prim {
            Prim::Values(value) => Some(value),
            _ => self.0.value.get(),
        }
    }

    pub(crate) fn remember(&self, value: Arc<Value>) {
        // An error is ignored, because two threads may compute a node at the same time, and both get the same bits.
        let _ = self.0.value.set(value);
    }

    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.0.origin.get()
    }

    /// Notes the place where the tensor was made, for this node and for the nodes that the same operation added.
    pub(crate) fn mark(&self, origin: &Origin) {
        let mut stack = vec![self.clone()];
        while let Some(tensor) = stack.pop() {
            let is_shared = tensor.0.args.is_empty() && !matches!(tensor.0.prim, Prim::Count(_));
            if is_shared || tensor.0.origin.set(origin.clone()).is_err() {
                continue;
            }
            stack.extend(tensor.0.args.iter().cloned());
        }
    }
}

/// The frame in which tensors of several levels meet: the frame of the first tensor at the result's level, or else of the first
/// tensor that is not at batch level, if any. An error if the tensors belong to different batches or groupings.
pub(crate) fn meet(
    op: &'static str,
    args: &[Tensor],
    level: Level,
) -> Result<Option<Arc<Frame>>, TensorError> {
    // A batch tensor is one number, from any batch.
    let mut placed = args
        .iter()
        .filter(|arg| arg.level() != Level::Batch)
        .filter_map(|arg| Some((arg, arg.frame()?)));
    let Some((first, home)) = placed.next() else {
        return Ok(args.iter().find_map(|arg| arg.frame().cloned()));
    };
    let mut frame = (first.level() == level).then_some(home);
    for (arg, other) in placed {
        let (left, right) = (first.level(), arg.level());
        if !home.meets(other) {
            return Err(TensorError::different_batches(op, left, right));
        }
        let by_group = matches!(level, Level::Group | Level::Trajectory | Level::Position);
        if by_group && !Arc::ptr_eq(&home.layout, &other.layout) {
            let message = format!(
                "a {left} tensor and a {right} tensor over different groups (after `regroup`) cannot be combined: bring one of them to response level first, as in `x.expand(\"response\")`"
            );
            return Err(TensorError::level(op, message));
        }
        if frame.is_none() && arg.level() == level {
            frame = Some(other);
        }
    }
    Ok(Some(frame.unwrap_or(home).clone()))
}

/// The bytes of a node over arguments. Numbers have no frame and no guard: their bytes count for the node that uses them.
fn bytes(args: &[Tensor]) -> usize {
    let numbers = args.iter().filter(|arg| arg.frame().is_none()).count();
    (1 + numbers) * NODE_BYTES + size_of_val(args)
}

fn numbers(args: &[Tensor]) -> Option<Vec<f64>> {
    args.iter().map(Tensor::as_number).collect()
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} at {})", self.0.prim.name(), self.0.level)
    }
}

impl Drop for Node {
    /// Takes the graph below apart in a loop, because dropping a long chain (`x = x + 1` in a loop) by recursion would overflow
    /// the stack.
    fn drop(&mut self) {
        let mut stack = std::mem::take(&mut self.args);
        while let Some(tensor) = stack.pop() {
            if let Some(mut node) = Arc::into_inner(tensor.0) {
                stack.append(&mut node.args);
            }
        }
    }
}
