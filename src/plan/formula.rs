//! The formula of a hook: the nodes of its graph in the order of their computation, equal ones once.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::script::Hook;
use crate::tensor::{Level, Origin, Tensor};

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
    /// Its groups: 0 for those of the batch, and a number for each `regroup`.
    pub(super) groups: usize,
    pub(super) origin: Option<Origin>,
    /// The name of a column, or of the script's variable.
    pub(super) name: Option<String>,
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

/// How a number of a formula follows from parameters: `1 - {0}` of `clip_low`.
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

    /// The argument at a place, which is a node and the position; after the last node, the result.
    fn arg(&self, (node, position): (usize, usize)) -> &Arg {
        let node = self.nodes.get(node);
        node.map_or(&self.result, |node| &node.args[position])
    }

    /// A hash of all but the numbers, and the places of these. The order of the arguments of a sum does not count.
    fn normal(&self) -> (u64, Vec<(usize, usize)>) {
        let mut of_nodes: Vec<u64> = Vec::new();
        let of_arg = |arg: &Arg, of_nodes: &[u64]| match arg {
            Arg::Node(node, level) => hash((of_nodes[*node], *level)),
            Arg::Number(..) => 0,
            other => hash(format!("{other:?}")),
        };
        let mut orders = Vec::new();
        for node in &self.nodes {
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
        let (mut places, mut seen) = (Vec::new(), HashSet::new());
        let mut stack = vec![(self.nodes.len(), 0)];
        while let Some(place) = stack.pop() {
            match self.arg(place) {
                Arg::Node(node, _) if seen.insert(*node) => {
                    stack.extend(orders[*node].iter().map(|arg| (*node, *arg)));
                }
                Arg::Number(..) => places.push(place),
                _ => {}
            }
        }
        (
            hash((self.hook.name(), of_arg(&self.result, &of_nodes))),
            places,
        )
    }
}

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The normal form of formulas, in which the order of equal summands does not count.
pub(super) struct Normal {
    /// All but the numbers.
    shape: Vec<u64>,
    numbers: Vec<u64>,
    /// The places of the numbers, for each formula.
    places: Vec<Vec<(usize, usize)>>,
}

impl Normal {
    pub(super) fn of(formulas: &[Formula]) -> Normal {
        let (shape, places): (Vec<u64>, Vec<_>) = formulas.iter().map(Formula::normal).unzip();
        let of_formulas = formulas.iter().zip(&places);
        let args = of_formulas.flat_map(|(of, places)| places.iter().map(|place| of.arg(*place)));
        let number = |arg: &Arg| match arg {
            Arg::Number(number, _) => Some(number.to_bits()),
            _ => None,
        };
        let numbers = args.filter_map(number).collect();
        Normal {
            shape,
            numbers,
            places,
        }
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = f64> {
        self.numbers.iter().map(|bits| f64::from_bits(*bits))
    }

    pub(super) fn has_shape_of(&self, other: &Normal) -> bool {
        self.shape == other.shape
    }

    /// Whether both are the same, to the bits of the numbers.
    pub(super) fn is_same(&self, other: &Normal) -> bool {
        self.has_shape_of(other) && self.numbers == other.numbers
    }

    /// Notes in the formulas how each number follows from parameters.
    pub(super) fn note(&self, formulas: &mut [Formula], uses: Vec<Option<Use>>) {
        let places = self.places.iter().enumerate();
        let places = places.flat_map(|(of, places)| places.iter().map(move |place| (of, *place)));
        for ((of, (node, position)), used) in places.zip(uses) {
            let formula = &mut formulas[of];
            let arg = match formula.nodes.get_mut(node) {
                Some(node) => &mut node.args[position],
                None => &mut formula.result,
            };
            if let Arg::Number(_, made_of) = arg {
                *made_of = used;
            }
        }
    }
}
