//! The expression graph, whose nodes are tensors. A tensor's level is checked when the tensor is built, and its values are
//! computed only on request, except for operations on single numbers.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::error::{Origin, TensorError, TensorErrorKind};
use super::frame::Frame;
use super::guard::Reservation;
use super::kernel::{Kernel, Within};
use super::value::Value;
use crate::batch::{Computed, FloatBuffer, Level, TokenValues};

/// The bytes that a node takes, including the two counts of its `Arc`, its variable in the script's scope and the allocator's
/// overhead. Because these bytes are counted, a script that builds a graph without ever computing it is limited, too.
const NODE_BYTES: usize = size_of::<Node>() + 64;

/// A node of an expression graph: a value for each cell of a level, computed lazily.
///
/// Cloning shares the node. Operations on single numbers are computed at once, all others by [`Tensor::evaluate`].
#[derive(Clone)]
pub struct Tensor(Arc<Node>);

pub(crate) struct Node {
    pub(crate) prim: Prim,
    pub(crate) args: Vec<Tensor>,
    pub(crate) level: Level,
    /// Whether the values are f64; only token tensors may be f32.
    pub(crate) is_f64: bool,
    /// The frame of the tensor's batch; `None` for a single number, which belongs to no batch and may be combined with any.
    pub(crate) frame: Option<Arc<Frame>>,
    origin: OnceLock<Origin>,
    value: OnceLock<Arc<Value>>,
    _reservation: Option<Reservation>,
}

/// The part of a row of the op table that the nodes of the operation need.
pub(crate) trait Row: fmt::Debug + Sync {
    /// Returns the name of the operation, as scripts write it.
    fn name(&self) -> &'static str;
    fn kernel(&self) -> Kernel;
    /// Returns whether the operation lets no gradient through: it is piecewise constant, or is `detach`.
    fn is_constant(&self) -> bool;
    /// Returns the gradient of each argument of a node, given the gradient of its result; arguments without an entry get none.
    fn gradients(&self, node: &Tensor, grad: &Tensor) -> Result<Vec<Tensor>, TensorError>;
}

/// The executor's operations, of which all rows of the op table are built.
#[derive(Clone, Debug)]
pub(crate) enum Prim {
    /// A number, as a batch tensor.
    Number(f64),
    /// Precomputed values.
    Values(Arc<Value>),
    Column(TokenValues),
    /// An elementwise row of the op table; its arguments are broadcast to the node's level.
    Map(&'static dyn Row),
    /// Repeats each value for all finer cells within its cell. If the level stays the same, moves the values to another grouping.
    Expand,
    /// A reduction row of the op table; if there is a second argument, values for which it is 0 are ignored.
    Reduce(&'static dyn Row),
    /// The number of cells of the given finer (or same) level in each cell.
    Count(Level),
    /// A row of the op table with a result for each value, computed from all values in the same cell of the given coarser (or
    /// same) level.
    Within(&'static dyn Row, Level),
    /// A scan row over the tokens of each response, with a number (the discount or fill). A second argument has a discount for
    /// each response, which replaces the number.
    Scan(&'static dyn Row, f64),
    /// A response's value at its last token, and 0 at its other tokens.
    AtLastToken,
    /// Uniform numbers in [0, 1), each determined by the key, the frame's stream and the value's index.
    Random(u64),
    /// The part of the argument that belongs to one group, in the group's own frame.
    Select(usize),
    /// Joins tensors from the groups' own frames, one tensor per listed group. The result is 0 for every group that is not
    /// listed.
    Assemble(Arc<[usize]>),
}

impl Prim {
    /// Returns the name of the operation in scripts or, if scripts cannot call the operation, in messages.
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

    /// Returns a key that identifies the operation among operations on the same arguments, at the same level and in the same
    /// frame. Returns `None` for precomputed values, columns, and operations that split or join groups.
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
    /// Returns a number as a batch tensor.
    pub fn number(value: f64) -> Tensor {
        Tensor::leaf(Prim::Number(value), Level::Batch, true, None)
    }

    /// Makes a tensor from values, one per cell of the level, in the layout's order. f32 values become f64, except at token
    /// level.
    ///
    /// # Errors
    /// [`TensorErrorKind::Value`] if the numbers of values and cells differ.
    pub(crate) fn from_buffer(
        frame: &Arc<Frame>,
        level: Level,
        buffer: FloatBuffer,
    ) -> Result<Tensor, TensorError> {
        let expected = frame.size(level);
        if buffer.len() != expected {
            let why = format!(
                "the number of values is {}, but the {level} level has {expected} cells",
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

    /// Makes a tensor from values, one per response.
    ///
    /// # Errors
    /// [`TensorErrorKind::Stopped`] if the values exceed the memory limit.
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

    /// Makes a tensor of uniform random numbers in [0, 1). The same key gives the same numbers for any number of threads.
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

    /// Makes a node from arguments whose levels have been checked.
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
        // Ranks and indices can exceed 2^24, beyond which f32 cannot represent every integer.
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

    /// Applies an elementwise row of the op table to arguments of any levels. The result is at the join of these levels; if all
    /// arguments are single numbers, it is a number.
    pub(crate) fn map(op: &'static dyn Row, args: Vec<Tensor>) -> Result<Tensor, TensorError> {
        let level = args
            .iter()
            .fold(Level::Batch, |join, arg| join.join(arg.level()));
        let frame = meet(op.name(), &args, level)?;
        if let (Kernel::Fallible(_), Some(frame)) = (op.kernel(), &frame) {
            // In `map_groups`, an operation that can fail needs a call for each group, because its error names a response.
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

    /// Returns the same values for another grouping of the same responses.
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

    /// Returns the tensor from which `rehomed` made this tensor, in one or several steps, or this tensor itself.
    pub(crate) fn ungrouped(&self) -> &Tensor {
        let mut own = self;
        while let (Prim::Expand, [of]) = (&own.0.prim, &own.0.args[..])
            && of.level() == own.level()
        {
            own = of;
        }
        own
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

    /// Joins the groups' parts. Each part is a tensor at `level` or a coarser level in its group's frame, or a batch tensor of
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

    /// Returns whether this is the result of a `map_groups` whose function returned a number for every group.
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

    /// Returns the level for a script that asks for it. In a view, a group tensor represents a batch tensor for each group, so
    /// asking for its level forces a call for each group.
    pub(crate) fn level_for_script(&self) -> Level {
        if let (Level::Group, Some(frame)) = (self.level(), self.frame()) {
            frame.note_inspected();
        }
        self.level()
    }

    /// Returns the level of the tensor's values.
    pub fn level(&self) -> Level {
        self.0.level
    }

    /// Returns whether the values are f64; only token tensors may be f32.
    pub fn is_f64(&self) -> bool {
        self.0.is_f64
    }

    /// Returns the tensor's frame; `None` for a number that belongs to no batch.
    pub(crate) fn frame(&self) -> Option<&Arc<Frame>> {
        self.0.frame.as_ref()
    }

    pub(crate) fn inner(&self) -> &Node {
        &self.0
    }

    /// Returns the tensor's number, if the tensor is a single number without a frame.
    pub(crate) fn as_number(&self) -> Option<f64> {
        match self.0.prim {
            Prim::Number(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the number of a tensor without a frame. Such a tensor is a number, because operations on numbers yield numbers.
    pub(crate) fn alone(&self) -> f64 {
        match self.as_number() {
            Some(number) => number,
            None => unreachable!("a tensor without a frame is a number, but this is {self:?}"),
        }
    }

    pub(crate) fn same(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the node's address, which identifies the node for as long as it exists.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// Returns the value, if it has been computed or was given.
    pub(crate) fn known(&self) -> Option<&Arc<Value>> {
        match &self.0.prim {
            Prim::Values(value) => Some(value),
            _ => self.0.value.get(),
        }
    }

    pub(crate) fn remember(&self, value: Arc<Value>) {
        // The error "already set" is ignored, because two threads may compute a node at the same time, and both get the same
        // bits.
        let _ = self.0.value.set(value);
    }

    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.0.origin.get()
    }

    /// Sets the line at which the tensor was made, for this node and for the nodes that the same operation added. A node without
    /// arguments gets no line if other operations may share it, which is true of all such nodes except counts.
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

/// Returns the frame of an operation's result: the frame of the first argument at the result's level, or else of the first
/// argument that is not at batch level, or else of the first argument that has a frame. Fails if arguments that are not at batch
/// level belong to different batches or, if the groups matter at the result's level, to different groupings.
pub(crate) fn meet(
    op: &'static str,
    args: &[Tensor],
    level: Level,
) -> Result<Option<Arc<Frame>>, TensorError> {
    // A batch tensor is a single number, which may come from any batch.
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

/// Returns the bytes of a node with its list of arguments. Numbers have no guard, so their bytes count for the node that uses
/// them.
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
    /// Drops the node's arguments in a loop, because dropping a long chain of nodes (from `x = x + 1` in a loop) recursively
    /// would overflow the stack.
    fn drop(&mut self) {
        let mut stack = std::mem::take(&mut self.args);
        while let Some(tensor) = stack.pop() {
            if let Some(mut node) = Arc::into_inner(tensor.0) {
                stack.append(&mut node.args);
            }
        }
    }
}
