//! The frame: what a tensor's values lie over, that is a layout, its precision and its bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::TensorError;
use super::exec::Executor;
use super::profile::Profile;
use super::{Guard, Level, Looks, Tensor};
use crate::batch::Layout;

/// Names one sequence of responses: tensors with one id have the same responses in the same order.
#[derive(Clone, Debug)]
pub(crate) struct ResponsesId(Arc<()>);

impl ResponsesId {
    /// Its identity for as long as it lives.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
}

impl PartialEq for ResponsesId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Shared by the tensors of one batch.
#[derive(Clone, Debug)]
pub struct Frame {
    pub(crate) layout: Arc<Layout>,
    pub(crate) responses: ResponsesId,
    /// Which random numbers the frame draws: those of its own, so that groups do not draw the same.
    pub(crate) stream: u64,
    /// Whether token tensors that come from coarser ones alone are f64.
    pub(crate) is_f64: bool,
    pub(crate) context: Context,
    /// The group that it is the frame of, where it is one's.
    pub(crate) of: Option<Arc<GroupOf>>,
}

/// One group of a batch.
#[derive(Debug)]
pub(crate) struct GroupOf {
    pub(crate) whole: Arc<Frame>,
    pub(crate) group: usize,
    /// Shared with the other groups.
    pub(crate) looks: Arc<Looks>,
    is_looked_at: AtomicBool,
}

/// What computes a batch's tensors, within which bounds.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) executor: Executor,
    pub(crate) guard: Arc<Guard>,
    /// Where the time goes, where somebody wants to know.
    pub(crate) profile: Option<Arc<Profile>>,
}

impl Context {
    /// Where to note down what takes how long, if that is asked for.
    pub(crate) fn profile(&self) -> Option<&Profile> {
        self.profile.as_deref().filter(|profile| profile.is_on())
    }
}

impl Frame {
    pub(crate) fn new(layout: Arc<Layout>, is_f64: bool, context: Context) -> Arc<Self> {
        Arc::new(Frame {
            layout,
            responses: ResponsesId(Arc::new(())),
            stream: 0,
            is_f64,
            context,
            of: None,
        })
    }

    pub(crate) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The frames of all groups.
    pub(crate) fn groups(self: &Arc<Self>) -> impl Iterator<Item = Arc<Frame>> + use<> {
        let (whole, looks) = (self.clone(), Arc::default());
        (0..self.layout.groups()).map(move |group| whole.group_with(group, &looks))
    }

    pub(crate) fn group(self: &Arc<Self>, group: usize) -> Arc<Frame> {
        self.group_with(group, &Arc::default())
    }

    fn group_with(self: &Arc<Self>, group: usize, looks: &Arc<Looks>) -> Arc<Frame> {
        Arc::new(Frame {
            layout: Arc::new(self.layout.group(group)),
            responses: ResponsesId(Arc::new(())),
            // An odd multiplier keeps streams of nested groups apart: 0 for the batch, 1, 2, ... for its groups.
            stream: self
                .stream
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .wrapping_add(group as u64 + 1),
            of: Some(Arc::new(GroupOf {
                whole: self.clone(),
                group,
                looks: looks.clone(),
                is_looked_at: AtomicBool::new(false),
            })),
            ..Frame::clone(self)
        })
    }

    /// Notes that what a script does from here on may depend on the group's own values, or on its shape.
    pub(crate) fn look_at(&self) {
        if let Some(of) = &self.of {
            of.is_looked_at.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_looked_at(&self) -> bool {
        (self.of.iter()).any(|of| of.is_looked_at.load(Ordering::Relaxed))
    }

    /// The same responses in other groups: those of [`Layout::regroup`].
    pub(crate) fn with_layout(&self, layout: Layout) -> Arc<Frame> {
        Arc::new(Frame {
            layout: Arc::new(layout),
            of: None,
            ..self.clone()
        })
    }

    pub(crate) fn size(&self, level: Level) -> usize {
        self.layout.size(level)
    }
}

/// The frame in which tensors of several levels meet: that of the first at the level of the result.
pub(crate) fn meet(
    op: &'static str,
    args: &[Tensor],
    level: Level,
) -> Result<Option<Arc<Frame>>, TensorError> {
    // A batch tensor is one number, whatever batch it comes from.
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
        if home.responses != other.responses {
            return Err(TensorError::different_batches(op, left, right));
        }
        let by_group = matches!(level, Level::Group | Level::Trajectory | Level::Position);
        if by_group && !Arc::ptr_eq(&home.layout, &other.layout) {
            let message = format!(
                "a {left} tensor and a {right} tensor over different groups (after `regroup`) cannot be combined: bring one to response level first, as in `x.expand(\"response\")`"
            );
            return Err(TensorError::level(op, message));
        }
        if frame.is_none() && arg.level() == level {
            frame = Some(other);
        }
    }
    Ok(Some(frame.unwrap_or(home).clone()))
}
