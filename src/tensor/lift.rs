//! What a function makes of one group, made of all groups at once.
//!
//! A function that looks at no value makes the same graph for every group. So one group's graph is enough: made again
//! over the whole batch, with the group level for what was one value a group, it gives each group's values to the bit,
//! since every reduction merges a group's values in the same order in both.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::error::{TensorError, TensorErrorKind};
use super::graph::{Prim, Tensor};
use super::op::{self, Kernel};
use super::{Frame, Level};

/// What a function gives for all groups: computed at once, and equal to a loop's results to the bit.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// What it gave for one group, where it was called for that alone.
    part: Option<OneGroup>,
    /// Whether the gradient of what is computed is that of the groups one by one, to the bit.
    is_exact: bool,
    /// The groups one by one.
    looped: OnceLock<Tensor>,
}

#[derive(Debug)]
struct OneGroup {
    tensor: Tensor,
    home: Arc<Frame>,
    since: u64,
}

/// Why the graph of one group cannot stand for all.
#[derive(Debug)]
pub(crate) enum NotLifted {
    /// It reads other values than the group's own and numbers.
    Mixes,
    /// An operation refused a value.
    Refused,
    /// The guard stopped it, or the machine.
    Stopped(TensorError),
}

impl From<TensorError> for NotLifted {
    fn from(error: TensorError) -> Self {
        match error.kind {
            TensorErrorKind::Stopped(_) | TensorErrorKind::Machine(_) => NotLifted::Stopped(error),
            TensorErrorKind::Value(_) => NotLifted::Refused,
            _ => NotLifted::Mixes,
        }
    }
}

impl Tensor {
    /// The results of a function for all groups, from `part`, its result for the group that `home` is the frame of.
    /// `since` is what the guard had counted before the function was called.
    pub(crate) fn lifted(
        part: &Tensor,
        home: &Arc<Frame>,
        since: u64,
    ) -> Result<Tensor, NotLifted> {
        let whole = match &home.of {
            Some(of) => &of.whole,
            None => return Err(NotLifted::Mixes),
        };
        let mut copy = Again::new(home, whole, None);
        let level = part.level().join(Level::Group);
        let all = copy.whole_of(part, level)?;
        Tensor::evaluate_together(&copy.checked)?;
        let mapped = Mapped {
            part: Some(OneGroup {
                tensor: part.clone(),
                home: home.clone(),
                since,
            }),
            is_exact: copy.is_exact && !(copy.has_batch && copy.has_group),
            looped: OnceLock::new(),
        };
        Ok(mapped.node(all, whole)?)
    }

    /// The arguments of a node; of a lifted one, its groups one by one, as a loop would have made them.
    pub(crate) fn args_by_group(&self) -> Result<&[Tensor], TensorError> {
        match &self.inner().prim {
            Prim::Mapped(mapped) => Ok(std::slice::from_ref(mapped.looped(self)?)),
            _ => Ok(&self.inner().args),
        }
    }

    /// Whether it is what `map_groups` gives where its function has given a number for every group.
    pub(crate) fn is_number_of_each_group(&self) -> bool {
        let is_number = |part: &Tensor| match (&part.inner().prim, &part.inner().args[..]) {
            (Prim::Expand, [of]) => of.as_number().is_some(),
            _ => false,
        };
        match &self.inner().prim {
            Prim::Assemble(_) => self.inner().args.iter().all(is_number),
            Prim::Mapped(_) => {
                let groups = self.args_by_group();
                groups.is_ok_and(|groups| groups.iter().all(Tensor::is_number_of_each_group))
            }
            _ => false,
        }
    }

    /// The arguments that a gradient goes back to.
    pub(crate) fn args_of_gradient(&self) -> Result<&[Tensor], TensorError> {
        match &self.inner().prim {
            Prim::Mapped(mapped) if !mapped.is_exact => self.args_by_group(),
            _ => Ok(&self.inner().args),
        }
    }
}

impl Mapped {
    /// `looped`, whose values are those of `all`.
    pub(super) fn computed_as(looped: &Tensor, all: Tensor) -> Result<Tensor, NotLifted> {
        let Some(whole) = looped.frame() else {
            return Err(NotLifted::Mixes);
        };
        let mapped = Mapped {
            part: None,
            is_exact: false,
            looped: OnceLock::from(looped.clone()),
        };
        Ok(mapped.node(all, whole)?)
    }

    fn node(self, all: Tensor, whole: &Arc<Frame>) -> Result<Tensor, TensorError> {
        let level = all.level();
        let prim = Prim::Mapped(Arc::new(self));
        Tensor::node(prim, vec![all], level, Some(whole.clone()))
    }

    /// The gradient of the argument, from that of the result.
    pub(crate) fn gradient(&self, of_result: Tensor) -> Result<Tensor, TensorError> {
        let is_batch = |part: &OneGroup| part.tensor.level() == Level::Batch;
        // A loop would have expanded the group's one value, and sums its gradient up.
        if self.is_exact && self.part.as_ref().is_some_and(is_batch) {
            op::sum_of_one(&of_result)
        } else {
            Ok(of_result)
        }
    }

    fn looped(&self, node: &Tensor) -> Result<&Tensor, TensorError> {
        if let Some(looped) = self.looped.get() {
            return Ok(looped);
        }
        let (Some(part), Some(whole)) = (&self.part, node.frame()) else {
            unreachable!("without the groups one by one, there is what the function gave for one");
        };
        let of_group = |group: usize| {
            let frame = whole.group(group);
            let other = Other {
                group,
                frame: frame.clone(),
                since: part.since,
            };
            let guard = &whole.context.guard;
            guard
                .check()
                .map_err(|stopped| TensorError::new("map_groups", stopped))?;
            let mut copy = Again::new(&part.home, whole, Some(other));
            let (own, _) = copy.of(&part.tensor).map_err(|why| match why {
                NotLifted::Stopped(error) => error,
                _ => TensorError::different_batches("map_groups", Level::Batch, node.level()),
            })?;
            Ok((group, own.expanded(node.level(), &frame)?))
        };
        let parts: Result<Vec<_>, TensorError> = (0..whole.layout.groups()).map(of_group).collect();
        let looped = Tensor::assemble(whole, node.level(), parts?)?;
        if let Some(origin) = node.origin() {
            looped.mark(origin);
        }
        Ok(self.looped.get_or_init(|| looped))
    }
}

/// Another group that a graph is made again for.
pub(super) struct Other {
    group: usize,
    frame: Arc<Frame>,
    /// Operations over the whole batch that the guard has counted from here on are the group's own.
    since: u64,
}

/// A graph over one group's frame made again: for all groups at once, or for another group.
pub(super) struct Again<'a> {
    home: &'a Arc<Frame>,
    whole: &'a Arc<Frame>,
    /// The other group; `None` for all.
    other: Option<Other>,
    /// What each node has become, and whether that depends on the group.
    made: HashMap<usize, (Tensor, bool)>,
    /// Whether one value a group was of the batch level, whether one was of the group level.
    has_batch: bool,
    has_group: bool,
    is_exact: bool,
    /// Operations that refuse some values.
    pub(super) checked: Vec<Tensor>,
    /// Group tensors that stand for numbers, by the numbers' nodes.
    pub(super) slots: HashMap<usize, Tensor>,
}

impl<'a> Again<'a> {
    pub(super) fn new(
        home: &'a Arc<Frame>,
        whole: &'a Arc<Frame>,
        other: Option<Other>,
    ) -> Again<'a> {
        Again {
            home,
            whole,
            other,
            made: HashMap::new(),
            has_batch: false,
            has_group: false,
            is_exact: true,
            checked: Vec::new(),
            slots: HashMap::new(),
        }
    }

    /// The copy of a result, over the whole batch at a level.
    pub(super) fn whole_of(&mut self, part: &Tensor, level: Level) -> Result<Tensor, NotLifted> {
        let (all, is_of_group) = self.of(part)?;
        if !is_of_group && all.level() != Level::Batch {
            return Err(NotLifted::Mixes);
        }
        self.is_exact &= is_of_group || all.frame().is_none();
        Ok(all.expanded(level, self.whole)?)
    }

    /// The copy of a graph, and whether it depends on the group at all.
    pub(super) fn of(&mut self, root: &Tensor) -> Result<(Tensor, bool), NotLifted> {
        // An explicit stack: graphs are as deep as a script's loops are long.
        let mut stack: Vec<(&Tensor, usize)> = vec![(root, 0)];
        while let Some((tensor, next)) = stack.pop() {
            if self.made.contains_key(&tensor.id()) {
                continue;
            }
            let args = match tensor.inner().prim {
                // Of the whole batch, which stays as it is.
                Prim::Select(_) => &[],
                _ => &tensor.inner().args[..],
            };
            if let Some(arg) = args.get(next) {
                stack.push((tensor, next + 1));
                stack.push((arg, 0));
                continue;
            }
            let made = self.node(tensor)?;
            self.made.insert(tensor.id(), made);
        }
        Ok(self.made[&root.id()].clone())
    }

    fn is_home(&self, frame: &Frame) -> bool {
        Arc::ptr_eq(&frame.layout, &self.home.layout)
    }

    /// A node whose arguments are made.
    fn node(&mut self, tensor: &Tensor) -> Result<(Tensor, bool), NotLifted> {
        let node = tensor.inner();
        let is_home = node.frame.as_ref().is_some_and(|frame| self.is_home(frame));
        if let Prim::Select(_) = node.prim {
            return Ok((self.entered(tensor, is_home)?, true));
        }
        if let Some(slot) = self.slots.get(&tensor.id()) {
            return Ok((slot.clone(), true));
        }
        let args: Vec<&(Tensor, bool)> =
            node.args.iter().map(|arg| &self.made[&arg.id()]).collect();
        let is_of_group = is_home || args.iter().any(|(_, is_of_group)| *is_of_group);
        // Each call makes its own, which a gradient by what they share can tell.
        let is_own = |other: &Other| tensor.is_made_since(other.since) && !args.is_empty();
        if !is_of_group && !self.other.as_ref().is_some_and(is_own) {
            return Ok((tensor.clone(), false));
        }
        // A batch tensor is one number, whatever frame it came to be in; others must be the group's own.
        if is_of_group && !is_home && node.level != Level::Batch {
            return Err(NotLifted::Mixes);
        }
        self.is_exact &= args
            .iter()
            .all(|(arg, is_of_group)| *is_of_group || arg.frame().is_none());
        self.has_batch |= node.level == Level::Batch;
        self.has_group |= node.level == Level::Group;
        let broadcasts = matches!(node.prim, Prim::Map(_) | Prim::Expand);
        let args = args.into_iter().map(|(arg, _)| match arg.level() {
            // Of one value for all groups, each group has one.
            Level::Batch if self.other.is_none() && !broadcasts => {
                arg.expanded(Level::Group, self.whole)
            }
            _ => Ok(arg.clone()),
        });
        let args = args.collect::<Result<_, _>>()?;
        let prim = match &node.prim {
            Prim::Count(of) => Prim::Count(self.level(*of)),
            Prim::Within(op, within) => Prim::Within(op, self.level(*within)),
            Prim::Map(_) | Prim::Expand | Prim::Reduce(_) | Prim::Scan(..) | Prim::AtLastToken => {
                node.prim.clone()
            }
            _ if !is_of_group => return Ok((tensor.clone(), false)),
            _ => return Err(NotLifted::Mixes),
        };
        let is_checked = matches!(prim, Prim::Map(op) if matches!(op.kernel, Kernel::Checked(_)));
        let frame = match &self.other {
            None => Some(self.whole.clone()),
            Some(other) if is_home => Some(other.frame.clone()),
            Some(_) => node.frame.clone(),
        };
        let made = Tensor::node(prim, args, self.level(node.level), frame)?;
        if let Some(origin) = tensor.origin() {
            made.note(origin);
        }
        if is_checked && self.other.is_none() {
            self.checked.push(made.clone());
        }
        Ok((made, is_of_group))
    }

    /// A group's part of a tensor over the whole batch.
    fn entered(&mut self, part: &Tensor, is_home: bool) -> Result<Tensor, NotLifted> {
        let [of] = &part.inner().args[..] else {
            unreachable!("a part is one of one tensor");
        };
        let is_whole = |frame: &Arc<Frame>| Arc::ptr_eq(&frame.layout, &self.whole.layout);
        if !is_home || !of.frame().is_some_and(is_whole) {
            return Err(NotLifted::Mixes);
        }
        self.has_group |= part.level() == Level::Group;
        let made = match &self.other {
            Some(other) => of.select(other.group, &other.frame)?,
            None => {
                let frame = Some(self.whole.clone());
                Tensor::node(Prim::OfGroups, vec![of.clone()], part.level(), frame)?
            }
        };
        if let Some(origin) = part.origin() {
            made.note(origin);
        }
        Ok(made)
    }

    /// The level of a group's tensor here.
    fn level(&self, level: Level) -> Level {
        match (&self.other, level) {
            (None, Level::Batch) => Level::Group,
            _ => level,
        }
    }
}
