//! The graph of what the hooks of a recipe compute: its nodes in the order of the script, equal ones once.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::script::Hook;
use crate::tensor::{Level, Origin, Tensor};

/// What the hooks compute.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    /// Arguments come before the nodes that use them.
    pub(super) nodes: Vec<Node>,
    /// What each hook gives, `reward` first.
    pub(super) results: Vec<(Hook, Arg)>,
}

/// An operation on earlier nodes, or a column.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The name of its row in the op table, or one of the names below.
    pub(super) row: &'static str,
    pub(super) args: Vec<Arg>,
    pub(super) level: Level,
    /// Its groups: 0 for those of the batch, and a number for each `regroup`.
    pub(super) groups: usize,
    pub(super) origin: Option<Origin>,
    /// The name of a column, of the script's variable, or of the script's function whose value it is.
    pub(super) name: Option<String>,
    /// Whether the name is that of a function.
    pub(super) is_of_function: bool,
    /// Its values, not computed yet.
    pub(super) tensor: Tensor,
}

/// Rows whose two arguments may change places.
const COMMUTATIVE: [&str; 8] = ["+", "*", "min", "max", "==", "!=", "&", "|"];

/// The rows of nodes that are no calls of the op table.
pub(super) const COLUMN: &str = "column";
/// The column that has the result of the hook `reward`.
pub(super) const SHAPED_REWARD: &str = "shaped_reward";
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

/// How a number of a graph follows from parameters: `1 - {0}` of `clip_low`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Use {
    pub(super) pattern: &'static str,
    pub(super) names: Vec<String>,
}

impl Use {
    /// The pattern with the parameters' names, as `named` writes them.
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
    /// An earlier node, its values repeated at a level.
    Node(usize, Level),
    /// A number, and the parameters that it was computed from.
    Number(f64, Option<Use>),
    Level(Level),
    Choice(&'static str),
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
            self.row, self.level, self.groups
        )
    }

    /// The level of an operation's values, and the one that it goes to.
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

    /// The values that an operation from a level to another is over, if it is not over all.
    pub(super) fn selection(&self) -> Option<&Arg> {
        let rest = self.args.get(2..)?;
        rest.iter().find(|arg| arg.node().is_some())
    }
}

/// What a hook gives, as a name.
pub(super) fn gives(hook: Hook) -> &'static str {
    match hook {
        Hook::Reward => SHAPED_REWARD,
        hook => hook.name(),
    }
}

impl Graph {
    /// The nodes that an argument depends on, in their order; of those in `stops`, nothing that they depend on.
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

    /// For each hook, what it gives, and the nodes that no hook before it has.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Hook, &Arg, Vec<usize>)> {
        let mut seen = HashSet::new();
        self.results.iter().map(move |(hook, result)| {
            let mut own = self.below(result, &[]);
            own.retain(|node| seen.insert(*node));
            (*hook, result, own)
        })
    }

    /// The names of nodes: of columns, of what the hooks give, of the script's variables and functions, or numbered.
    pub(super) fn names(&self) -> Vec<String> {
        let given: Vec<&str> = self.results.iter().map(|(hook, _)| gives(*hook)).collect();
        let mut names: Vec<String> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let own = node.name.as_deref();
            let variable = own.filter(|_| !node.is_of_function);
            let mut results = self.results.iter();
            let result = results.find(|(_, of)| of.node() == Some(index));
            names.push(match (variable, result) {
                (None, Some((hook, _))) => gives(*hook).to_string(),
                (Some(name), _) if node.row == COLUMN => name.to_string(),
                _ => {
                    let is_free =
                        |name: &String| !names.contains(name) && !given.contains(&&**name);
                    let first = own.filter(|own| !given.contains(own));
                    let start = 1 + usize::from(first.is_some());
                    let numbered = (start..).map(|at| format!("{}{at}", own.unwrap_or("x")));
                    let mut all = first.map(str::to_string).into_iter().chain(numbered);
                    all.find(is_free).unwrap_or_default()
                }
            });
        }
        names
    }

    /// The numbers, and how each of them follows from parameters.
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

/// The normal form of a graph, in which the order of equal summands does not count.
pub(super) struct Normal {
    /// A hash of all but the numbers.
    shape: u64,
    pub(super) numbers: Vec<(f64, Option<Use>)>,
}

impl Normal {
    pub(super) fn of(graph: &Graph) -> Normal {
        let mut of_nodes: Vec<u64> = Vec::new();
        let of_arg = |arg: &Arg, of_nodes: &[u64]| match arg {
            Arg::Node(node, level) => hash((of_nodes[*node], *level)),
            Arg::Number(..) => 0,
            other => hash(format!("{other:?}")),
        };
        let mut orders = Vec::new();
        for node in &graph.nodes {
            let args = node.args.iter().map(|arg| of_arg(arg, &of_nodes));
            let mut args: Vec<(u64, usize)> = args.zip(0..).collect();
            // A level as the second argument makes `min` and `max` reductions, which have no order to change.
            if COMMUTATIVE.contains(&node.row) && !matches!(node.args[1], Arg::Level(_)) {
                args.sort_unstable();
            }
            let (hashes, order): (Vec<u64>, Vec<usize>) = args.into_iter().unzip();
            let name = node.name.as_ref().filter(|_| node.row == COLUMN);
            of_nodes.push(hash((node.row, hashes, node.level, node.groups, name)));
            orders.push(order);
        }
        let results = graph.results.iter();
        let shape = results
            .clone()
            .map(|(hook, arg)| (hook.name(), of_arg(arg, &of_nodes)));
        let (mut numbers, mut seen) = (Vec::new(), HashSet::new());
        let mut stack: Vec<&Arg> = results.map(|(_, result)| result).collect();
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
        let shape = hash(shape.collect::<Vec<_>>());
        Normal { shape, numbers }
    }

    /// Whether all but the numbers is the same. Nodes that are equal at some numbers only are fewer there.
    pub(super) fn has_shape_of(&self, other: &Normal) -> bool {
        self.shape == other.shape && self.numbers.len() == other.numbers.len()
    }

    /// Whether both are the same, to the bits of the numbers.
    pub(super) fn is_same(&self, other: &Normal) -> bool {
        let mut numbers = self.numbers.iter().zip(&other.numbers);
        self.has_shape_of(other) && numbers.all(|((a, _), (b, _))| a.to_bits() == b.to_bits())
    }
}
