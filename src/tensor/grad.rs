//! Gradients: each row's derivative is again a graph, so that a gradient has a gradient.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::error::{TensorError, TensorErrorKind};
use super::graph::{Prim, Tensor};
use super::op::{self, Derivative, Op, Term, Vjp};
use super::{Frame, Level};

/// The derivative of a batch tensor by each value of `x`, at `x`'s level; 0 where the loss does not depend on `x`.
///
/// # Errors
/// Where `loss` is not a batch tensor, or depends on `x` through an operation that has no derivative.
pub fn grad(loss: &Tensor, x: &Tensor) -> Result<Tensor, TensorError> {
    if loss.level() != Level::Batch {
        let message = format!(
            "the loss must be one value, a batch tensor; this is a {} tensor: say how to average it, as in `loss.mean(\"batch\")`",
            loss.level()
        );
        return Err(TensorError::level("grad", message));
    }
    let order = dependents(loss, x)?;
    let through: HashSet<usize> = order.iter().map(Tensor::id).collect();
    let mut grads: HashMap<usize, Gradient> = HashMap::new();
    grads.entry(loss.id()).or_default().whole = Some(Tensor::number(1.0));
    for node in order.iter().rev() {
        let Some(grad) = grads.remove(&node.id()) else {
            continue;
        };
        let grad = grad.total(node)?;
        if node.same(x) {
            grads.entry(node.id()).or_default().whole = Some(grad);
            continue;
        }
        for (arg, over, part) in contributions(node, &grad, &through)? {
            // An error in a derivative is about the line that it is the derivative of.
            if let Some(origin) = node.origin() {
                part.mark(origin);
            }
            let target = grads.entry(arg.id()).or_default();
            match over {
                Over::Whole => target.add(part)?,
                Over::Group(group) => target.parts.push((Some(group), part)),
                Over::Groups => target.parts.push((None, part)),
            }
        }
    }
    let total = match grads.remove(&x.id()) {
        Some(grad) => grad.total(x)?,
        None => Tensor::number(0.0),
    };
    match x.frame() {
        Some(frame) => total.expanded(x.level(), frame),
        None => Ok(total),
    }
}

/// Whether any value of `loss` can change with `x`.
pub(crate) fn depends_on(loss: &Tensor, x: &Tensor) -> bool {
    // What cannot be told now is told with the gradient.
    dependents(loss, x).map_or(true, |order| !order.is_empty())
}

/// The nodes on the ways from `x` to `loss`, arguments before results.
fn dependents(loss: &Tensor, x: &Tensor) -> Result<Vec<Tensor>, TensorError> {
    let mut on_the_way: HashMap<usize, bool> = HashMap::from([(x.id(), true)]);
    let mut order = vec![x.clone()];
    let mut stack = vec![(loss.clone(), 0)];
    while let Some((tensor, next)) = stack.pop() {
        if on_the_way.contains_key(&tensor.id()) {
            continue;
        }
        let args = tensor.args_of_gradient()?;
        if let Some(arg) = args.get(next) {
            let arg = arg.clone();
            stack.push((tensor, next + 1));
            stack.push((arg, 0));
            continue;
        }
        let on = !stops(&tensor) && args.iter().any(|arg| on_the_way[&arg.id()]);
        on_the_way.insert(tensor.id(), on);
        if on {
            order.push(tensor);
        }
    }
    Ok(if on_the_way.get(&loss.id()) == Some(&true) {
        order
    } else {
        Vec::new()
    })
}

/// Whether no gradient goes through the node.
fn stops(tensor: &Tensor) -> bool {
    match tensor.inner().prim {
        Prim::Map(op) | Prim::Reduce(op) | Prim::Scan(op, _) | Prim::Within(op, _) => {
            matches!(op.derivative, Derivative::Zero)
        }
        Prim::Count(_) => true,
        _ => false,
    }
}

/// The parts that have reached a node so far: tensors over all of it, and tensors of single groups' frames, or of all
/// groups at once.
#[derive(Default)]
struct Gradient {
    whole: Option<Tensor>,
    parts: Vec<(Option<usize>, Tensor)>,
}

impl Gradient {
    fn add(&mut self, part: Tensor) -> Result<(), TensorError> {
        self.whole = Some(match self.whole.take() {
            Some(whole) => op::add(&whole, &part)?,
            None => part,
        });
        Ok(())
    }

    /// The sum of all, at the node's level: what groups have first added up among themselves.
    fn total(mut self, node: &Tensor) -> Result<Tensor, TensorError> {
        if let (Some(frame), false) = (node.frame(), self.parts.is_empty()) {
            let mut of_groups = Gradient::default();
            let mut single = Single::default();
            for (group, part) in std::mem::take(&mut self.parts) {
                match group {
                    Some(group) => single.add(group, part)?,
                    None => {
                        single.empty_into(&mut of_groups, frame, node.level())?;
                        of_groups.add(part)?;
                    }
                }
            }
            single.empty_into(&mut of_groups, frame, node.level())?;
            if let Some(part) = of_groups.whole {
                self.add(part)?;
            }
        }
        Ok(self.whole.unwrap_or_else(|| Tensor::number(0.0)))
    }
}

/// The parts of single groups, added up for each.
#[derive(Default)]
struct Single {
    parts: Vec<(usize, Tensor)>,
    index: HashMap<usize, usize>,
}

impl Single {
    fn add(&mut self, group: usize, part: Tensor) -> Result<(), TensorError> {
        match self.index.get(&group) {
            Some(&at) => self.parts[at].1 = op::add(&self.parts[at].1, &part)?,
            None => {
                self.index.insert(group, self.parts.len());
                self.parts.push((group, part));
            }
        }
        Ok(())
    }

    fn empty_into(
        &mut self,
        gradient: &mut Gradient,
        frame: &Arc<Frame>,
        level: Level,
    ) -> Result<(), TensorError> {
        let Single { parts, .. } = std::mem::take(self);
        if parts.is_empty() {
            return Ok(());
        }
        gradient.add(Tensor::assemble(frame, level, parts)?)
    }
}

/// What a share of a gradient lies over: all of its node, one group's frame, or those of all groups at once.
enum Over {
    Whole,
    Group(usize),
    Groups,
}

/// The share of each argument that `through` names in the node's gradient, at the argument's level.
fn contributions(
    node: &Tensor,
    grad: &Tensor,
    through: &HashSet<usize>,
) -> Result<Vec<(Tensor, Over, Tensor)>, TensorError> {
    let prim = &node.inner().prim;
    // Where the op table has it, the shares of the first arguments, those of a selection left out.
    let derived = match prim {
        Prim::Map(op) | Prim::Scan(op, _) | Prim::Reduce(op) | Prim::Within(op, _) => {
            derivatives(op, node, grad)?
        }
        _ => Vec::new(),
    };
    let args = node.args_of_gradient()?.iter().enumerate();
    let args = args.filter(|(_, arg)| through.contains(&arg.id()));
    let mut shares = Vec::new();
    for (index, arg) in args {
        let (over, share) = match prim {
            Prim::Map(_) | Prim::Reduce(_) | Prim::Scan(..) | Prim::Within(..) => {
                match derived.get(index) {
                    Some(part) => (Over::Whole, fit(part, node, arg)?),
                    None => continue,
                }
            }
            Prim::Expand => (Over::Whole, fit(grad, node, arg)?),
            Prim::AtLastToken => {
                let part = op::at_last_token_grad(node, grad)?;
                (Over::Whole, fit(&part, node, arg)?)
            }
            Prim::Select(group) => (Over::Group(*group), at_level_of(node, grad)?),
            Prim::OfGroups => (Over::Groups, at_level_of(node, grad)?),
            Prim::Mapped(mapped) => (Over::Whole, mapped.gradient(fit(grad, node, arg)?)?),
            Prim::Assemble(groups) => {
                let part = match arg.frame() {
                    Some(frame) => grad.select(groups[index], frame)?,
                    None => grad.clone(),
                };
                (Over::Whole, fit(&part, arg, arg)?)
            }
            Prim::Number(_)
            | Prim::Values(_)
            | Prim::Column(_)
            | Prim::Random(_)
            | Prim::Count(_) => continue,
        };
        shares.push((arg.clone(), over, share));
    }
    Ok(shares)
}

/// The shares of a row's arguments by its derivative.
fn derivatives(op: &'static Op, node: &Tensor, grad: &Tensor) -> Result<Vec<Tensor>, TensorError> {
    let local = Vjp {
        args: &node.inner().args,
        result: node,
        grad,
    };
    match op.derivative {
        Derivative::Of(derivative) => derivative(&local).into_iter().map(Term::built).collect(),
        Derivative::None(why) => {
            let error = TensorError::new(op.name, TensorErrorKind::NoDerivative(why));
            Err(error.or_at(node.origin()))
        }
        Derivative::Zero | Derivative::Composed => Ok(Vec::new()),
    }
}

fn at_level_of(node: &Tensor, grad: &Tensor) -> Result<Tensor, TensorError> {
    match node.frame() {
        Some(frame) => grad.expanded(node.level(), frame),
        None => Ok(grad.clone()),
    }
}

/// A contribution brought to the argument's level: summed over the cells that broadcasting gave its value to.
fn fit(part: &Tensor, node: &Tensor, arg: &Tensor) -> Result<Tensor, TensorError> {
    let Some(of_node) = node.frame() else {
        return Ok(part.clone());
    };
    // The argument's groups may be others than the node's (after `regroup`). A batch tensor may be of another batch
    // altogether, as where all groups share one value, and has one cell in any.
    let cells = match arg.frame() {
        Some(of_arg) if arg.level() != Level::Batch => of_arg,
        _ => of_node,
    };
    // A contribution may be coarser than the node (a constant slope): each of the node's cells has it all the same.
    let level = part.level().join(node.level()).join(arg.level());
    op::sum_to(&part.expanded(level, of_node)?, arg.level(), cells)
}
