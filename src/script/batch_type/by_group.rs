//! `map_groups`: a function of each group's batch, called once for all groups if that gives the same.
//!
//! It is called with a view of the batch in which every group is a batch of its own: the level "batch" is the group's. If
//! the function looks at a value, reports, draws, writes or fails there, what it has done is taken back, and it is called
//! for each group.

use std::fmt;
use std::sync::Arc;

use rhai::{AST, ASTNode, Dynamic, Expr, FnPtr, Module, NativeCallContext, Stmt};

use super::{ScriptBatch, Source};
use crate::script::bind::{describe, number};
use crate::script::call::{Reports, Turns};
use crate::script::error::{CallError, Raised, origin, raise};
use crate::tensor::{ByGroup, Frame, Level, Origin, Tensor, TensorError};

/// A call of `map_groups` in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapGroups {
    /// The place of the call.
    pub origin: Origin,
    /// Why its function was called for each group; `None` if one call was enough for all.
    pub by_group: Option<ByGroup>,
}

impl fmt::Display for MapGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.by_group {
            None => return f.write_str("by one call for all groups"),
            Some(ByGroup::Looks) => "its function looks at values, or at the group's shape",
            Some(ByGroup::Reports) => "its function reports a metric, prints or remembers",
            Some(ByGroup::Draws) => "its function draws random numbers",
            Some(ByGroup::Writes) => "its function changes a variable from outside",
            Some(ByGroup::Mixes) => "its function computes with what is not the group's own",
            Some(ByGroup::Fails) => "an operation of its function fails",
        };
        write!(f, "group by group: {why}")
    }
}

impl ScriptBatch {
    /// The results of `f` for each group's batch, put together over the whole batch.
    pub(super) fn map_groups(&self, context: &NativeCallContext, f: &FnPtr) -> Raised<Tensor> {
        if self.frame().is_open_view() {
            self.frame().look_at();
            return Err(raise(context, CallError::new("groups have no groups")));
        }
        let _turns = Turns::begin(self.call());
        let before = self.call().snapshot();
        let once = self.called_once(context, f);
        let once = match self.call().effect_since(&before) {
            Some(effect) => Err(effect),
            None => once,
        };
        if once.is_err() {
            self.call().restore(before);
        }
        let (tensor, by_group) = match once {
            Ok(tensor) => (tensor, None),
            Err(why) => (self.called_for_each(context, f)?, Some(why)),
        };
        let origin = origin(context);
        tensor.mark(&origin);
        let call = MapGroups { origin, by_group };
        self.call().report(|reports| reports.map_groups(call));
        Ok(tensor)
    }

    /// The results of all groups by one call of the function.
    fn called_once(&self, context: &NativeCallContext, f: &FnPtr) -> Result<Tensor, ByGroup> {
        if may_write(context, f) {
            return Err(ByGroup::Writes);
        }
        let frame = self.frame().view();
        let whole = self.clone();
        let call = self.call().clone();
        let batch = ScriptBatch::over(frame.clone(), call, Source::Regrouped { whole });
        let result = f.call_within_context::<Dynamic>(context, (batch,));
        let part = result.and_then(|result| part_of(context, &result));
        let is_checked = frame.close_view()?;
        let part = part.map_err(|_| ByGroup::Fails)?;
        let is_own = |own: &Arc<Frame>| own.is_of_view(&frame);
        if part.level() != Level::Batch && !part.frame().is_some_and(is_own) {
            return Err(ByGroup::Mixes);
        }
        let level = part.level().join(Level::Group);
        let tensor = part
            .expanded(level, self.frame())
            .map_err(|_| ByGroup::Fails)?;
        if is_checked {
            // The error names a group's own response, if it is found in a call for that group.
            tensor.evaluate().map_err(|_| ByGroup::Fails)?;
        }
        Ok(tensor)
    }

    /// The results of a call for each group.
    fn called_for_each(&self, context: &NativeCallContext, f: &FnPtr) -> Raised<Tensor> {
        let mut parts: Vec<(Tensor, Arc<Frame>)> = Vec::new();
        for batch in self.groups() {
            let frame = batch.frame().clone();
            self.call().report(Reports::next_group);
            let result: Dynamic = f.call_within_context(context, (batch,))?;
            parts.push((part_of(context, &result)?, frame));
        }
        let assembled = self.assembled(&parts);
        assembled.map_err(|error| raise(context, error))
    }

    fn assembled(&self, parts: &[(Tensor, Arc<Frame>)]) -> Result<Tensor, TensorError> {
        let levels = parts.iter().map(|(part, _)| part.level());
        let level = levels.fold(Level::Group, Level::join);
        let expanded = parts.iter().enumerate().map(|(group, (part, frame))| {
            let own = part.frame().filter(|_| part.level() != Level::Batch);
            if own.is_some_and(|own| own.responses != frame.responses) {
                let (op, of) = ("map_groups", part.level());
                return Err(TensorError::different_batches(op, of, level));
            }
            Ok((group, part.expanded(level, frame)?))
        });
        let expanded = expanded.collect::<Result<Vec<_>, _>>()?;
        Tensor::assemble(self.frame(), level, expanded)
    }
}

fn part_of(context: &NativeCallContext, result: &Dynamic) -> Raised<Tensor> {
    match (result.read_lock::<Tensor>(), number(result)) {
        (Some(tensor), _) => Ok(tensor.clone()),
        (None, Some(number)) => Ok(Tensor::number(number)),
        _ => {
            let found = describe(result);
            let message = format!(
                "the function of `map_groups` must give a tensor or a number, it gave {found}"
            );
            let help = "the last line of the function is its result, without a semicolon";
            Err(raise(context, CallError::new(message).help(help)))
        }
    }
}

/// Whether a function may change a variable that it has captured: assigns to it or to a part of it, captures it once more, or
/// calls a function on it that may change it in place.
fn may_write(context: &NativeCallContext, f: &FnPtr) -> bool {
    let captured: Vec<Dynamic> = f.iter_curry().map(Dynamic::flatten_clone).collect();
    if captured.is_empty() {
        return false;
    }
    let mut modules = context.iter_namespaces();
    let Some(function) =
        modules.find_map(|module| module.get_script_fn(f.fn_name(), captured.len() + 1))
    else {
        return true;
    };
    let value_of = |name: &str| {
        let mut captured = function.params.iter().zip(&captured);
        captured
            .find(|(own, _)| *own == name)
            .map(|(_, value)| value)
    };
    let is_captured = |name: Option<&str>| name.is_some_and(|name| value_of(name).is_some());
    let is_changeable = |name: Option<&str>| name.and_then(value_of).is_some_and(is_changeable);
    let may_write = |node: &ASTNode<'_>| match node {
        ASTNode::Stmt(Stmt::Assignment(parts)) => is_captured(root(&parts.1.lhs)),
        ASTNode::Stmt(Stmt::Share(names)) => names
            .iter()
            .any(|(variable, ..)| is_captured(Some(variable.as_str()))),
        ASTNode::Stmt(Stmt::FnCall(call, _)) | ASTNode::Expr(Expr::FnCall(call, _)) => {
            is_captured(Some(&call.name)) || is_changeable(call.args.first().and_then(root))
        }
        ASTNode::Expr(Expr::Dot(parts, ..) | Expr::Index(parts, ..)) => {
            is_changeable(root(&parts.lhs)) && calls_method(&parts.rhs)
        }
        _ => false,
    };
    // The engine walks through a body only as a part of all functions.
    let mut alone = Module::new();
    alone.set_script_fn(function.clone());
    let mut found = false;
    AST::new_from_module(alone).walk(&mut |path| {
        found |= path.last().is_some_and(may_write);
        !found
    });
    found
}

/// Whether functions may change a value in place: none does so to a number, a tensor or a batch.
fn is_changeable(value: &Dynamic) -> bool {
    let is_simple = value.is_unit() || value.is_bool() || value.is_int() || value.is_float();
    !is_simple && !value.is::<Tensor>() && !value.is::<ScriptBatch>()
}

/// The variable that an expression is, or is a part of.
fn root(of: &Expr) -> Option<&str> {
    match of {
        Expr::Variable(variable, ..) => Some(&variable.1),
        Expr::Dot(parts, ..) | Expr::Index(parts, ..) => root(&parts.lhs),
        _ => None,
    }
}

fn calls_method(chain: &Expr) -> bool {
    match chain {
        Expr::MethodCall(..) => true,
        Expr::Dot(parts, ..) | Expr::Index(parts, ..) => {
            calls_method(&parts.lhs) || calls_method(&parts.rhs)
        }
        _ => false,
    }
}
