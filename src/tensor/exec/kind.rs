//! What of a plan goes along the tokens, and what is left to the naive executor: the same for all others.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::tensor::graph::Prim;
use crate::tensor::op::{Kernel, Op, Reduction, Scan};
use crate::tensor::plan::Step;
use crate::tensor::{Frame, Level, Plan};

/// How a step's values come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// By the naive executor, in full; or they are there already.
    Whole,
    /// Along the tokens.
    Token,
    /// As a reduction of tokens.
    Reduced(Reduction),
}

/// The frame with the most token values to compute. Token values of others are left to the naive executor.
pub(super) fn home(plan: &Plan) -> Option<&Arc<Frame>> {
    let mut frames: BTreeMap<usize, (usize, &Arc<Frame>)> = BTreeMap::new();
    let mut most: Option<(usize, &Arc<Frame>)> = None;
    for step in plan.steps() {
        let Some(frame) = step.tensor.frame() else {
            continue;
        };
        if step.tensor.level() != Level::Token || step.tensor.known().is_some() {
            continue;
        }
        let entry = frames
            .entry(frame.responses.address())
            .or_insert((0, frame));
        entry.0 += frame.size(Level::Token);
        if most.is_none_or(|(tokens, _)| entry.0 > tokens) {
            most = Some(*entry);
        }
    }
    // Without any, a reduction of tokens that are there may still go along these.
    let known = || {
        let tokens = plan
            .steps()
            .iter()
            .filter(|step| step.tensor.level() == Level::Token);
        tokens.filter_map(|step| step.tensor.frame()).next_back()
    };
    most.map(|(_, frame)| frame).or_else(known)
}

pub(super) fn kind_of(plan: &Plan, home: Option<&Arc<Frame>>, step: &Step) -> Kind {
    let node = step.tensor.inner();
    let (Some(home), Some(frame)) = (home, &node.frame) else {
        return Kind::Whole;
    };
    let level = |arg: usize| plan.steps()[arg].tensor.level();
    let same_tokens = |arg: &usize| {
        let frame = plan.steps()[*arg].tensor.frame();
        frame.is_none_or(|frame| frame.responses == home.responses)
    };
    let is_along_tokens = step.tensor.known().is_none()
        && frame.responses == home.responses
        && step.args.iter().all(|arg| {
            !matches!(level(*arg), Level::Position | Level::Trajectory)
                && (level(*arg) == Level::Batch || same_tokens(arg))
        });
    if !is_along_tokens {
        return Kind::Whole;
    }
    match (&node.prim, node.level) {
        // Of discounts by response, in full.
        (Prim::Scan(..), Level::Token) if step.args.len() > 1 => Kind::Whole,
        (Prim::Column(_) | Prim::AtLastToken | Prim::Scan(..) | Prim::Expand, Level::Token) => {
            Kind::Token
        }
        (Prim::Map(op), Level::Token) if !matches!(op.kernel, Kernel::Checked(_)) => Kind::Token,
        (Prim::Reduce(op), Level::Response | Level::Group | Level::Batch)
            if level(step.args[0]) == Level::Token =>
        {
            Kind::Reduced(reduction_of(op))
        }
        _ => Kind::Whole,
    }
}

pub(super) fn scan_of(op: &'static Op) -> Scan {
    match op.kernel {
        Kernel::Scan(scan) => scan,
        _ => unreachable!("{op:?} is a scan"),
    }
}

pub(super) fn reduction_of(op: &'static Op) -> Reduction {
    match op.kernel {
        Kernel::Reduce(reduction) => reduction,
        _ => unreachable!("{op:?} is a reduction"),
    }
}
