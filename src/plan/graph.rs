//! The graph of the computations of a recipe's hooks. Its nodes are in the order of the script; equal nodes occur only once.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::script::Hook;
use crate::tensor::{Level, Origin, Tensor};

/// The computations of a recipe's hooks.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    /// The nodes; arguments come before the nodes that use them.
    pub(super) nodes: Vec<Node>,
    /// The result of each hook, with `reward` first.
    pub(super) results: Vec<(Hook, Arg)>,
}

/// An operation on earlier nodes, or a column.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The name of the operation's row in the op table, or one of the constants below.
    pub(super) row: &'static str,
    pub(super) args: Vec<Arg>,
    pub(super) level: Level,
    pub(super) origin: Option<Origin>,
    /// The name of the column, or of the script's variable or function whose value the node is.
    pub(super) name: Option<String>,
    /// Whether the name is the name of a function.
    pub(super) is_of_function: bool,
    /// The tensor of the node, whose values are computed on request.
    pub(super) tensor: Tensor,
}

/// The rows whose two arguments can be swapped without changing the result.
const COMMUTATIVE: [&str; 8] = ["+", "*", "min", "max", "==", "!=", "&", "|"];

/// The row of a column. This and the following names are used for nodes that no kernel of the op table computes.
pub(super) const COLUMN: &str = "column";
/// The name of the column that holds the result of the hook `reward`.
pub(super) const SHAPED_REWARD: &str = "shaped_reward";
/// The row of values that come neither from the batch nor from an operation.
pub(super) const VALUES: &str = "values";
pub(super) const RANDOM: &str = "random";
/// The row of the number of values of one level in each cell of another level.
pub(super) const SIZE: &str = "size";
pub(super) const AT_LAST_TOKEN: &str = "at_last_token";
/// The row that selects one group's part of an argument, and the row that joins the parts of groups.
pub(super) const BY_GROUP: [&str; 2] = ["groups", "map_groups"];

/// The expression in parameters that yields a number of a graph, such as `1 - {0}` with the parameter `clip_low`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Use {
    pub(super) pattern: &'static str,
    pub(super) names: Vec<String>,
}

impl Use {
    /// Returns the pattern with the parameters' names inserted, as `named` writes them.
    pub(super) fn written(&self, named: impl Fn(&str) -> String) -> String {
        let places = self.names.iter().enumerate();
        places.fold(self.pattern.to_string(), |text, (index, name)| {
            text.replace(&format!("{{{index}}}"), &named(name))
        })
    }
}

/// An argument of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Arg {
    /// An earlier node, whose values are repeated at the given level.
    Node(usize, Level),
    /// A number, and the expression in parameters from which it was computed, if any.
    Number(f64, Option<Use>),
    Level(Level),
    /// A choice, or the name of a column or function.
    Word(Arc<str>),
}

impl Arg {
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

    /// Returns the operation with its arguments as a key. Two nodes in the same groups with the same key have the same values,
    /// whatever parameters their numbers were computed from, unless they are random or come from outside of tensors.
    pub(super) fn key(&self) -> String {
        let args = self.args.iter().map(|arg| match arg {
            Arg::Number(number, _) => format!("{:x}", number.to_bits()),
            other => format!("{other:?}"),
        });
        let name = self.name.as_deref().filter(|_| self.row == COLUMN);
        let args: Vec<String> = args.collect();
        format!("{} {args:?} {} {name:?}", self.row, self.level)
    }

    /// Returns the level of the operation's first argument, and the level that a later argument names; `None` if there are no
    /// such levels.
    pub(super) fn way(&self) -> Option<(Level, Level)> {
        let from = match self.args.first()? {
            Arg::Node(_, from) | Arg::Level(from) => *from,
            _ => return None,
        };
        let to = self.args[1..].iter().find_map(|arg| match arg {
            Arg::Level(to) => Some(*to),
            _ => None,
        });
        Some((from, to?))
    }

    /// Returns the argument of a reduction that selects the values to reduce, if it does not reduce all values.
    pub(super) fn selection(&self) -> Option<&Arg> {
        let rest = self.args.get(2..)?;
        rest.iter().find(|arg| arg.node().is_some())
    }
}

/// Returns the name of a hook's result.
pub(super) fn gives(hook: Hook) -> &'static str {
    match hook {
        Hook::Reward => SHAPED_REWARD,
        hook => hook.name(),
    }
}

impl Graph {
    /// Returns an argument's node and the nodes on which it depends, in order. The search does not go beyond nodes in `stops`,
    /// except for the argument's node.
    pub(super) fn below(&self, arg: &Arg, stops: &[usize]) -> Vec<usize> {
        let mut open: Vec<usize> = arg.node().into_iter().collect();
        let mut below = BTreeSet::new();
        while let Some(node) = open.pop() {
            let is_open = below.is_empty() || !stops.contains(&node);
            if below.insert(node) && is_open {
                open.extend(self.nodes[node].nodes());
            }
        }
        below.into_iter().collect()
    }

    /// Returns, for each hook, its result and the nodes that no earlier hook uses.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Hook, &Arg, Vec<usize>)> {
        let mut seen = HashSet::new();
        self.results.iter().map(move |(hook, result)| {
            let mut own = self.below(result, &[]);
            own.retain(|node| seen.insert(*node));
            (*hook, result, own)
        })
    }

    /// Returns a name for each node: the name of its column, hook's result, variable or function, with a number if the name is
    /// taken. A node without such a name is called `x`, with a number if there are several, or has an empty name if `is_shown`
    /// returns false.
    pub(super) fn names(&self, is_shown: impl Fn(usize) -> bool) -> Vec<String> {
        let given: Vec<&str> = self.results.iter().map(|(hook, _)| gives(*hook)).collect();
        let result = |index| self.results.iter().find(|(_, of)| of.node() == Some(index));
        let named = self.nodes.iter().map(|node| node.name.as_deref());
        let unnamed = named.clone().enumerate();
        let unnamed =
            unnamed.filter(|(at, name)| name.is_none() && result(*at).is_none() && is_shown(*at));
        let is_x_free = unnamed.count() == 1 && !named.clone().any(|name| name == Some("x"));
        let mut names: Vec<String> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let own = node.name.as_deref();
            let variable = own.filter(|_| !node.is_of_function);
            names.push(match (variable, result(index)) {
                (None, Some((hook, _))) => gives(*hook).to_string(),
                (Some(name), _) if node.row == COLUMN => name.to_string(),
                _ if own.is_none() && !is_shown(index) => String::new(),
                _ => {
                    let is_free =
                        |name: &String| !names.contains(name) && !given.contains(&&**name);
                    let first = own
                        .or(is_x_free.then_some("x"))
                        .filter(|own| !given.contains(own));
                    let start = 1 + usize::from(first.is_some());
                    let numbered = (start..).map(|at| format!("{}{at}", own.unwrap_or("x")));
                    let mut all = first.map(str::to_string).into_iter().chain(numbered);
                    all.find(is_free).unwrap_or_default()
                }
            });
        }
        names
    }

    /// Returns all numbers, each with the expression in parameters that yields it, if any.
    pub(super) fn numbers(&mut self) -> impl Iterator<Item = (f64, &mut Option<Use>)> {
        let args = self.nodes.iter_mut().flat_map(|node| &mut node.args);
        let all = args.chain(self.results.iter_mut().map(|(_, result)| result));
        all.filter_map(|arg| match arg {
            Arg::Number(number, used) => Some((*number, used)),
            _ => None,
        })
    }
}

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The normal form of a graph, which does not depend on the order of the arguments of commutative operations.
pub(super) struct Normal {
    /// A hash of the whole graph.
    whole: u64,
    /// A hash of the whole graph except its numbers.
    shape: u64,
    /// The numbers, in an order that depends on the order of arguments that differ only in numbers.
    pub(super) numbers: Vec<(f64, Option<Use>)>,
}

impl Normal {
    pub(super) fn of(graph: &Graph) -> Normal {
        let (whole, _) = normal(graph, f64::to_bits);
        let (shape, orders) = normal(graph, |_| 0);
        let (mut numbers, mut seen) = (Vec::new(), HashSet::new());
        let mut stack: Vec<&Arg> = graph.results.iter().map(|(_, result)| result).collect();
        while let Some(arg) = stack.pop() {
            match arg {
                Arg::Node(node, _) if seen.insert(*node) => {
                    let args = &graph.nodes[*node].args;
                    stack.extend(orders[*node].iter().map(|position| &args[*position]));
                }
                Arg::Number(number, used) => numbers.push((*number, used.clone())),
                _ => {}
            }
        }
        Normal {
            whole,
            shape,
            numbers,
        }
    }

    /// Returns whether both graphs are the same except for their numbers. The counts of numbers are compared, too, because
    /// certain numbers make nodes equal, which are then merged.
    pub(super) fn has_shape_of(&self, other: &Normal) -> bool {
        self.shape == other.shape && self.numbers.len() == other.numbers.len()
    }

    /// Returns whether both graphs are the same, including the bits of their numbers.
    pub(super) fn is_same(&self, other: &Normal) -> bool {
        self.whole == other.whole
    }
}

/// Returns a hash of a graph in its normal form, and the order of each node's arguments in that form. A number is represented by
/// `of_number`.
fn normal(graph: &Graph, of_number: fn(f64) -> u64) -> (u64, Vec<Vec<usize>>) {
    let mut of_nodes: Vec<u64> = Vec::new();
    let of_arg = |arg: &Arg, of_nodes: &[u64]| match arg {
        Arg::Node(node, level) => hash((of_nodes[*node], *level)),
        Arg::Number(number, _) => of_number(*number),
        other => hash(format!("{other:?}")),
    };
    let mut orders = Vec::new();
    for node in &graph.nodes {
        let args = node.args.iter().map(|arg| of_arg(arg, &of_nodes));
        let mut args: Vec<(u64, usize)> = args.zip(0..).collect();
        // If their second argument is a level, `min` and `max` are reductions, whose arguments cannot be swapped.
        if COMMUTATIVE.contains(&node.row) && !matches!(node.args[1], Arg::Level(_)) {
            args.sort_unstable();
        }
        let (hashes, order): (Vec<u64>, Vec<usize>) = args.into_iter().unzip();
        let name = node.name.as_ref().filter(|_| node.row == COLUMN);
        of_nodes.push(hash((node.row, hashes, node.level, name)));
        orders.push(order);
    }
    let results = graph.results.iter();
    let results = results.map(|(hook, arg)| (hook.name(), of_arg(arg, &of_nodes)));
    (hash(results.collect::<Vec<_>>()), orders)
}
