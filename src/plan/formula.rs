//! The formula of a hook: the nodes of its graph in the order of their computation, equal ones once.

use std::collections::HashMap;
use std::sync::Arc;

use super::params::Use;
use crate::script::Hook;
use crate::tensor::kernel::{Kernel, Unary};
use crate::tensor::op::{Argument, Param, ParamKind};
use crate::tensor::{Frame, Level, Origin, Prim, Tensor, Trace};

/// The formula that a hook computes.
#[derive(Clone, Debug)]
pub(super) struct Formula {
    pub(super) hook: Hook,
    /// Arguments come before the nodes that use them.
    pub(super) nodes: Vec<Node>,
    pub(super) result: Arg,
}

/// An operation on earlier nodes, or a column.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The name of its row in the op table, or one of the names below.
    pub(super) row: &'static str,
    pub(super) args: Vec<Arg>,
    pub(super) level: Level,
    /// Whether its groups are those of the batch, not those of `regroup`.
    pub(super) has_own_groups: bool,
    pub(super) origin: Option<Origin>,
    /// The name of a column, or of the script's variable.
    pub(super) name: Option<String>,
}

/// The rows of nodes that are no calls of the op table.
pub(super) const COLUMN: &str = "column";
/// Values that neither the batch nor an operation has given.
pub(super) const VALUES: &str = "values";
pub(super) const RANDOM: &str = "random";
/// How many values of a level each cell of another has.
pub(super) const SIZE: &str = "size";
pub(super) const AT_LAST_TOKEN: &str = "at_last_token";
/// The values of the argument in other groups.
pub(super) const REGROUP: &str = "regroup";
/// One group's part of the argument, and parts put together.
pub(super) const BY_GROUP: [&str; 2] = ["groups", "map_groups"];

/// An argument of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Arg {
    /// An earlier node, its values repeated at a level.
    Node(usize, Level),
    /// A number, and the parameters that it was computed from.
    Number(f64, Option<Use>),
    Level(Level),
    Choice(&'static str),
}

impl Arg {
    fn number(number: f64) -> Arg {
        Arg::Number(number, None)
    }

    pub(super) fn node(&self) -> Option<usize> {
        match self {
            Arg::Node(node, _) => Some(*node),
            _ => None,
        }
    }
}

impl Node {
    pub(super) fn nodes(&self) -> impl Iterator<Item = usize> {
        self.args.iter().filter_map(Arg::node)
    }

    /// Its operation on its arguments: two nodes of one key have the same values, whatever their numbers were computed from.
    pub(super) fn key(&self) -> String {
        let args = self.args.iter().map(|arg| match arg {
            Arg::Number(number, _) => format!("{:x}", number.to_bits()),
            other => format!("{other:?}"),
        });
        let name = self.name.as_deref().filter(|_| self.row == COLUMN);
        let args: Vec<String> = args.collect();
        format!(
            "{} {args:?} {} {name:?} {}",
            self.row, self.level, self.has_own_groups
        )
    }
}

impl Formula {
    /// How many nodes use each node, the result included.
    pub(super) fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.nodes.len()];
        let all = self.nodes.iter().flat_map(Node::nodes);
        all.chain(self.result.node())
            .for_each(|node| uses[node] += 1);
        uses
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = f64> {
        let args = self.nodes.iter().flat_map(|node| &node.args);
        args.chain([&self.result]).filter_map(|arg| match arg {
            Arg::Number(number, _) => Some(*number),
            _ => None,
        })
    }

    pub(super) fn numbers_mut(&mut self) -> impl Iterator<Item = (f64, &mut Option<Use>)> {
        let args = self.nodes.iter_mut().flat_map(|node| &mut node.args);
        args.chain([&mut self.result]).filter_map(|arg| match arg {
            Arg::Number(number, made_of) => Some((*number, made_of)),
            _ => None,
        })
    }

    /// The formula without its numbers.
    pub(super) fn shape(&self) -> String {
        let key = |node: &Node| {
            let mut node = node.clone();
            for arg in &mut node.args {
                if let Arg::Number(number, _) = arg {
                    *number = 0.0;
                }
            }
            node.key()
        };
        let lines: Vec<String> = self.nodes.iter().map(key).collect();
        let result = match &self.result {
            Arg::Number(..) => String::new(),
            other => format!("{other:?}"),
        };
        format!("{} {} {result}", self.hook.name(), lines.join("\n"))
    }
}

/// Reads formulas off the tensors of one traced call.
pub(super) struct Reader<'a> {
    pub(super) trace: &'a Trace,
    pub(super) frame: &'a Arc<Frame>,
    /// The names of the batch's columns, by their tensors.
    pub(super) columns: HashMap<usize, String>,
    /// The names of columns that are derived from others, by their tensors.
    pub(super) derived: HashMap<usize, String>,
    /// Whether the call of a composed row is one node.
    pub(super) keeps: &'a dyn Fn(&str, &[Argument]) -> bool,
}

/// A tensor taken apart: its row, and the arguments that are tensors or constants.
struct Parts {
    row: &'static str,
    args: Vec<Part>,
}

enum Part {
    Tensor(Tensor),
    Constant(Arg),
}

impl Reader<'_> {
    pub(super) fn formula(&self, hook: Hook, result: &Tensor) -> Formula {
        let (mut nodes, mut equal) = (Vec::new(), HashMap::new());
        let mut known: HashMap<usize, Arg> = HashMap::new();
        // An explicit stack: graphs are as deep as a script's loops are long.
        let mut stack = vec![result.clone()];
        while let Some(tensor) = stack.last().cloned() {
            let base = self.base(&tensor);
            if known.contains_key(&base.id()) {
                stack.pop();
                continue;
            }
            let parts = self.parts(&base);
            let is_missing = |part: &Part| match part {
                Part::Tensor(tensor) => {
                    let base = self.base(tensor);
                    (!known.contains_key(&base.id())).then_some(base)
                }
                Part::Constant(_) => None,
            };
            if let Some(missing) = parts.args.iter().find_map(is_missing) {
                stack.push(missing);
                continue;
            }
            let arg = |part: Part| match part {
                Part::Tensor(tensor) => match &known[&self.base(&tensor).id()] {
                    Arg::Node(node, _) => Arg::Node(*node, tensor.level()),
                    other => other.clone(),
                },
                Part::Constant(arg) => arg,
            };
            let node = Node {
                row: parts.row,
                args: parts.args.into_iter().map(arg).collect(),
                level: base.level(),
                has_own_groups: self.has_own_groups(&base),
                origin: base.origin().cloned(),
                name: self
                    .columns
                    .get(&base.id())
                    .or(self.derived.get(&base.id()))
                    .cloned(),
            };
            let found = match (node.row, &node.args[..]) {
                ("number", [number]) => number.clone(),
                // A zero is added where a sum of -0 becomes 0.
                ("+", [x @ Arg::Node(..), Arg::Number(0.0, _)]) | ("narrow", [x]) => x.clone(),
                _ => {
                    let is_unique = matches!(node.row, VALUES | RANDOM);
                    let key = match is_unique {
                        true => format!("{}", base.id()),
                        false => node.key(),
                    };
                    let index = *equal.entry(key).or_insert_with(|| {
                        nodes.push(node);
                        nodes.len() - 1
                    });
                    Arg::Node(index, base.level())
                }
            };
            known.insert(base.id(), found);
            stack.pop();
        }
        let result = match &known[&self.base(result).id()] {
            Arg::Node(node, _) => Arg::Node(*node, result.level()),
            other => other.clone(),
        };
        Formula {
            hook,
            nodes,
            result,
        }
    }

    /// The tensor whose values this one repeats at a finer level.
    fn base(&self, tensor: &Tensor) -> Tensor {
        let mut base = tensor.clone();
        while let (Prim::Expand, [of]) = (&base.inner().prim, &base.inner().args[..])
            && !self.columns.contains_key(&base.id())
        {
            let is_rehomed =
                base.level() == of.level() && self.has_own_groups(&base) != self.has_own_groups(of);
            if is_rehomed {
                break;
            }
            base = of.clone();
        }
        base
    }

    fn has_own_groups(&self, tensor: &Tensor) -> bool {
        let frame = tensor.frame().filter(|_| tensor.level() != Level::Batch);
        frame.is_none_or(|frame| Arc::ptr_eq(&frame.layout, &self.frame.layout))
    }

    fn parts(&self, tensor: &Tensor) -> Parts {
        if self.columns.contains_key(&tensor.id()) {
            return Parts {
                row: COLUMN,
                args: Vec::new(),
            };
        }
        if let Some(call) = self.trace.call(tensor)
            && (self.keeps)(call.name, &call.args)
        {
            let part = |(arg, param): (&Argument, &Param)| match (arg, param.kind) {
                (Argument::Tensor(tensor), _) => Part::Tensor(tensor.clone()),
                (Argument::Level(level), _) => Part::Constant(Arg::Level(*level)),
                (Argument::Number(number), _) => Part::Constant(Arg::number(*number)),
                (Argument::Choice(choice), ParamKind::Choice(names)) => {
                    Part::Constant(Arg::Choice(names[*choice]))
                }
                (Argument::Choice(_), _) => {
                    unreachable!("a choice is one of a parameter's choices")
                }
            };
            let args = call.args.iter().zip(call.params).map(part).collect();
            return Parts {
                row: call.name,
                args,
            };
        }
        let node = tensor.inner();
        let level = |level: Level| Part::Constant(Arg::Level(level));
        let mut args: Vec<Part> = node.args.iter().cloned().map(Part::Tensor).collect();
        let row = match &node.prim {
            Prim::Number(number) => {
                args.push(Part::Constant(Arg::number(*number)));
                "number"
            }
            Prim::Values(_) | Prim::Column(_) => VALUES,
            Prim::Map(op) if matches!(op.kernel(), Kernel::One(Unary::Narrow)) => "narrow",
            Prim::Map(op) if op.name() == "-" && args.len() == 1 => "neg",
            Prim::Map(op) => op.name(),
            Prim::Reduce(op) => {
                args.insert(1, level(node.level));
                op.name()
            }
            Prim::Count(of) => {
                args.extend([level(*of), level(node.level)]);
                SIZE
            }
            Prim::Within(op, to) => {
                args.push(level(*to));
                op.name()
            }
            Prim::Scan(op, number) => {
                if args.len() == 1 {
                    args.push(Part::Constant(Arg::number(*number)));
                }
                op.name()
            }
            Prim::AtLastToken => AT_LAST_TOKEN,
            Prim::Random(_) => RANDOM,
            Prim::Expand => REGROUP,
            Prim::Select(_) => BY_GROUP[0],
            Prim::Assemble(_) => BY_GROUP[1],
        };
        Parts { row, args }
    }
}
