//! The frame: the batch that a tensor's values belong to, as a layout with a precision and bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::TensorError;
use super::exec::Executor;
use super::guard::Reservation;
use super::profile::Profile;
use super::{Guard, Level, Tensor};
use crate::batch::Layout;

/// The identity of a sequence of responses: tensors with one id have the same responses in the same order.
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
    /// The frame's own stream of random numbers, so that groups do not draw the same.
    pub(crate) stream: u64,
    /// Whether token tensors made only from coarser ones are f64.
    pub(crate) is_f64: bool,
    pub(crate) context: Context,
    /// The view, if this is the frame of a function of `map_groups` that is called once for all groups.
    view: Option<Arc<GroupView>>,
    /// The share of the guard's memory of a layout that is not the batch's own.
    _reservation: Option<Arc<Reservation>>,
}

/// While the view is open, its tensors represent each group separately: the level "batch" is the group's, and no
/// value may be read.
#[derive(Debug)]
pub(crate) struct GroupView {
    is_open: AtomicBool,
    /// Whether the function has to be called for each group: it looks at values or at the group's shape, reports something, or
    /// computes with what is not the group's own.
    is_by_group: AtomicBool,
    /// Whether an operation may refuse values.
    is_checked: AtomicBool,
}

/// The executor of a batch's tensors, and its bounds.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) executor: Executor,
    /// Whether the f32 token values of a hook's result are written as the rows of an array [B, T], if the batch is one.
    pub(crate) by_rows: bool,
    pub(crate) guard: Arc<Guard>,
    /// The profile, if times are wanted.
    pub(crate) profile: Option<Arc<Profile>>,
}

impl Frame {
    pub(crate) fn new(layout: Arc<Layout>, is_f64: bool, context: Context) -> Arc<Self> {
        Arc::new(Frame {
            layout,
            responses: ResponsesId(Arc::new(())),
            stream: 0,
            is_f64,
            context,
            view: None,
            _reservation: None,
        })
    }

    /// The frame of another layout of these responses, or of some of them.
    fn over(&self, layout: Layout) -> Frame {
        let reservation = self.context.guard.hold(layout.bytes());
        Frame {
            layout: Arc::new(layout),
            view: None,
            _reservation: reservation.map(Arc::new),
            ..self.clone()
        }
    }

    pub(crate) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    pub(crate) fn group(&self, group: usize) -> Arc<Frame> {
        Arc::new(Frame {
            responses: ResponsesId(Arc::new(())),
            // An odd multiplier keeps streams of nested groups apart: 0 for the batch, 1, 2, ... for its groups.
            stream: self
                .stream
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .wrapping_add(group as u64 + 1),
            ..self.over(self.layout.group(group))
        })
    }

    /// The frame of a new view, which is open.
    pub(crate) fn view(&self) -> Arc<Frame> {
        let view = Arc::new(GroupView {
            is_open: AtomicBool::new(true),
            is_by_group: AtomicBool::new(false),
            is_checked: AtomicBool::new(false),
        });
        Arc::new(Frame {
            view: Some(view),
            ..self.clone()
        })
    }

    fn open_view(&self) -> Option<&GroupView> {
        let is_open = |view: &&GroupView| view.is_open.load(Ordering::Relaxed);
        self.view.as_deref().filter(is_open)
    }

    pub(crate) fn is_open_view(&self) -> bool {
        self.open_view().is_some()
    }

    /// Notes, in an open view, that the function has to be called for each group.
    pub(crate) fn look_at(&self) {
        if let Some(view) = self.open_view() {
            view.is_by_group.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn note_checked(&self) {
        if let Some(view) = self.open_view() {
            view.is_checked.store(true, Ordering::Relaxed);
        }
    }

    /// Closes the view: its tensors belong to the batch from here on. Returns whether an operation may refuse values; `None` if
    /// the function has to be called for each group.
    pub(crate) fn close_view(&self) -> Option<bool> {
        let view = self.view.as_ref()?;
        view.is_open.store(false, Ordering::Relaxed);
        let is_by_group = view.is_by_group.load(Ordering::Relaxed);
        (!is_by_group).then(|| view.is_checked.load(Ordering::Relaxed))
    }

    /// Whether a tensor of this frame comes from the view of another frame.
    pub(crate) fn is_of_view(&self, other: &Frame) -> bool {
        let view = |frame: &Frame| frame.view.as_ref().map(Arc::as_ptr);
        view(self) == view(other) && self.responses == other.responses
    }

    /// Whether tensors of both frames can meet: they have the same responses, and do not belong to different views.
    pub(crate) fn meets(&self, other: &Frame) -> bool {
        let view = |frame: &Frame| frame.open_view().map(std::ptr::from_ref);
        let is_same_view = view(self) == view(other);
        if !is_same_view {
            self.look_at();
            other.look_at();
        }
        is_same_view && self.responses == other.responses
    }

    /// The same responses in the groups of another layout, made by [`Layout::regroup`].
    pub(crate) fn with_layout(&self, layout: Layout) -> Arc<Frame> {
        Arc::new(self.over(layout))
    }

    pub(crate) fn size(&self, level: Level) -> usize {
        self.layout.size(level)
    }
}

/// The frame in which tensors of several levels meet: the frame of the first tensor at the result's level.
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
