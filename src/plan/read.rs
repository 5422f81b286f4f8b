//! Makes the graph of a recipe's hooks from one traced call of the hooks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::graph::{
    AT_LAST_TOKEN, Arg, BY_GROUP, COLUMN, Graph, Node, RANDOM, SHAPED_REWARD, SIZE, VALUES,
};
use super::rows;
use crate::batch::{Batch, Column, FloatBuffer, Layout};
use crate::check::{usual, without};
use crate::diagnostic::Diagnostics;
use crate::script::{Hook, Recipe, ScriptBatch, State};
use crate::tensor::kernel::{Kernel, Unary};
use crate::tensor::op::{Argument, Param, ParamKind};
use crate::tensor::{GroupKey, Level, Prim, Tensor, Trace, Tracing};

/// The purpose for which a graph is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A graph for people: a composed row is one node, and the result of the hook `reward` is a column for the other hooks.
    Short,
    /// The same as `Short`, but composed rows are replaced by the rows in them.
    Expanded,
    /// A graph for a file of functions: a composed row is one node if PyTorch has a form for it.
    Torch,
}

/// The graph of one call of the hooks, the tensors whose values the script read, and the state after the call.
pub(super) struct Traced {
    pub(super) graph: Graph,
    pub(super) looked_at: Vec<Tensor>,
    pub(super) state: State,
}

impl Traced {
    /// Calls the hooks on a batch, and makes the graph from the tensors that they return.
    pub(super) fn of(
        recipe: &Recipe,
        batch: &Batch,
        state: &State,
        form: Form,
    ) -> Result<Traced, Diagnostics> {
        let trace = Tracing::default();
        let host = recipe.host().clone().with_trace(&trace);
        let input = ScriptBatch::new(host.call(batch.step()), batch);
        let (hooks, state) = recipe.on(&host).traced(&input, state)?;
        // A derived column appears in the graph as the formula by which it is derived.
        let columns = input.known_columns().into_iter();
        let (given, derived): (Vec<_>, Vec<_>) =
            columns.partition(|(name, tensor)| tensor.inner().args.is_empty() || batch.has(name));
        let by_id = |columns: Vec<(String, Tensor)>| {
            let names = columns.into_iter();
            names.map(|(name, tensor)| (tensor.id(), name)).collect()
        };
        let mut reader = Reader {
            trace: &trace,
            columns: by_id(given),
            derived: by_id(derived),
            form,
            graph: Graph::default(),
            known: HashMap::new(),
            equal: HashMap::new(),
        };
        // The hook `reward` comes first, because `returns`, `weight` and `advantage` use its result.
        for (hook, tensor) in &hooks {
            reader.read(*hook, tensor);
        }
        Ok(Traced {
            graph: reader.graph,
            looked_at: trace.read(),
            state,
        })
    }
}

/// Returns the graph of a recipe in its initial state; `None` if a hook fails.
pub(super) fn graph_of(recipe: &Recipe, batch: &Batch, form: Form) -> Option<Graph> {
    let traced = Traced::of(recipe, batch, &recipe.init().ok()?, form);
    Some(traced.ok()?.graph)
}

/// Makes a graph from the tensors of one traced call.
struct Reader<'a> {
    trace: &'a Trace,
    /// The names of the batch's columns, by the ids of their tensors.
    columns: HashMap<usize, String>,
    /// The names of columns that are derived from other columns, by the ids of their tensors.
    derived: HashMap<usize, String>,
    form: Form,
    graph: Graph,
    /// The arguments that stand for the tensors already added, by the ids of the tensors.
    known: HashMap<usize, Arg>,
    /// The indices of the nodes, by the keys of the nodes.
    equal: HashMap<String, usize>,
}

/// An argument of a tensor: another tensor, or a constant.
enum Part {
    Tensor(Tensor),
    Constant(Arg),
}

impl Reader<'_> {
    /// Adds the nodes of a hook's result, in the order in which the script made the tensors.
    fn read(&mut self, hook: Hook, result: &Tensor) {
        let (mut made, mut seen, mut open) = (Vec::new(), HashSet::new(), vec![self.base(result)]);
        while let Some(tensor) = open.pop() {
            if seen.insert(tensor.id()) {
                open.extend(self.tensors(&tensor));
                made.push(tensor);
            }
        }
        // A tensor that no statement made is added just before the first tensor that needs it.
        let order = |tensor: &Tensor| tensor.origin().and_then(|origin| self.trace.order(origin));
        made.sort_by_cached_key(|tensor| order(tensor).unwrap_or(usize::MAX));
        for tensor in &made {
            self.add(tensor);
        }
        let result_arg = self.arg(result);
        self.graph.results.push((hook, result_arg));
        if hook == Hook::Reward && self.form != Form::Torch {
            let id = result.id();
            self.columns.entry(id).or_insert_with(|| {
                self.known.remove(&id);
                SHAPED_REWARD.to_string()
            });
        }
    }

    /// Returns the tensors from which a tensor is computed.
    fn tensors(&self, of: &Tensor) -> Vec<Tensor> {
        let args = self.parts(of).1.into_iter();
        let tensors = args.filter_map(|part| match part {
            Part::Tensor(tensor) => Some(self.base(&tensor)),
            Part::Constant(_) => None,
        });
        tensors.collect()
    }

    /// Adds the node of a tensor, after the nodes that it needs.
    fn add(&mut self, tensor: &Tensor) {
        // The stack is explicit, because a loop of a script can make a graph too deep for recursion.
        let mut stack = vec![(tensor.clone(), false)];
        while let Some((tensor, is_ready)) = stack.pop() {
            if self.known.contains_key(&tensor.id()) {
                continue;
            }
            if is_ready {
                let arg = self.node(&tensor);
                self.known.insert(tensor.id(), arg);
            } else {
                let needed = self.tensors(&tensor).into_iter().rev();
                stack.push((tensor, true));
                stack.extend(needed.map(|tensor| (tensor, false)));
            }
        }
    }

    /// Returns the argument that stands for a tensor. The tensor's base must have been added.
    fn arg(&self, tensor: &Tensor) -> Arg {
        match &self.known[&self.base(tensor).id()] {
            Arg::Node(node, _) => Arg::Node(*node, tensor.level()),
            other => other.clone(),
        }
    }

    fn node(&mut self, tensor: &Tensor) -> Arg {
        let (row, parts) = self.parts(tensor);
        let args = parts.into_iter().map(|part| match part {
            Part::Tensor(tensor) => self.arg(&tensor),
            Part::Constant(arg) => arg,
        });
        let id = tensor.id();
        let node = Node {
            row,
            args: args.collect(),
            level: tensor.level(),
            origin: tensor.origin().cloned(),
            name: self.columns.get(&id).or(self.derived.get(&id)).cloned(),
            is_of_function: false,
            tensor: tensor.clone(),
        };
        match (row, &node.args[..]) {
            ("number", [number]) => number.clone(),
            // An added 0, which only turns -0 into 0, is omitted, and so is a rounding to f32.
            ("+", [x @ Arg::Node(..), Arg::Number(0.0, _)]) | ("narrow", [x]) => x.clone(),
            _ => {
                let is_unique = matches!(row, VALUES | RANDOM);
                let key = if is_unique {
                    id.to_string()
                } else {
                    format!("{} {:?}", node.key(), groups(tensor))
                };
                let nodes = &mut self.graph.nodes;
                let index = *self.equal.entry(key).or_insert_with(|| {
                    nodes.push(node);
                    nodes.len() - 1
                });
                Arg::Node(index, tensor.level())
            }
        }
    }

    /// Returns whether the call of a composed row becomes one node.
    fn keeps(&self, name: &str, args: &[Argument]) -> bool {
        match self.form {
            Form::Short => true,
            Form::Expanded => false,
            Form::Torch => rows::has_composed(name, args),
        }
    }

    /// Returns the tensor whose values `tensor` repeats at a finer level, or `tensor` itself.
    fn base(&self, tensor: &Tensor) -> Tensor {
        let mut base = tensor.clone();
        while let (Prim::Expand, [of]) = (&base.inner().prim, &base.inner().args[..])
            && !self.columns.contains_key(&base.id())
        {
            if base.level() == of.level() && groups(&base) != groups(of) {
                break;
            }
            base = of.clone();
        }
        base
    }

    /// Returns the function by which a script made a tensor's groups, and the keys; `None` if no script made the groups.
    fn made_by(&self, tensor: &Tensor) -> Option<(&'static str, Vec<Part>)> {
        let groups = self.trace.groups(tensor.frame()?)?;
        let keys = groups.keys.into_iter().map(|key| match key {
            GroupKey::Column(name) => Part::Constant(Arg::Word(name)),
            GroupKey::Tensor(tensor) => Part::Tensor(tensor.ungrouped().clone()),
        });
        Some((groups.name, keys.collect()))
    }

    /// Returns the name of the row of a tensor, and the tensor's arguments.
    fn parts(&self, tensor: &Tensor) -> (&'static str, Vec<Part>) {
        if self.columns.contains_key(&tensor.id()) {
            return (COLUMN, Vec::new());
        }
        if let Some(call) = self.trace.call(tensor)
            && self.keeps(call.name, &call.args)
        {
            let part = |(arg, param): (&Argument, &Param)| {
                Part::Constant(match (arg, param.kind) {
                    (Argument::Tensor(tensor), _) => return Part::Tensor(tensor.clone()),
                    (Argument::Level(level), _) => Arg::Level(*level),
                    (Argument::Number(number), _) => Arg::Number(*number, None),
                    (Argument::Choice(choice), ParamKind::Choice(names)) => {
                        Arg::Word(names[*choice].into())
                    }
                    _ => unreachable!("only a parameter with choices takes a choice"),
                })
            };
            let args = call.args.iter().zip(call.params).map(part).collect();
            return (call.name, args);
        }
        let node = tensor.inner();
        let level = |level: Level| Part::Constant(Arg::Level(level));
        let word = |word: &str| Part::Constant(Arg::Word(word.into()));
        let mut args: Vec<Part> = node.args.iter().cloned().map(Part::Tensor).collect();
        if let Some(name) = self.trace.compared(tensor) {
            args[1] = word(&name);
        }
        let row = match &node.prim {
            Prim::Number(number) => {
                args.push(Part::Constant(Arg::Number(*number, None)));
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
                // The number of a response's tokens does not depend on the groups.
                if node.level != Level::Response
                    && let Some((name, keys)) = self.made_by(tensor)
                {
                    args.push(word(name));
                    args.extend(keys);
                }
                SIZE
            }
            Prim::Within(op, to) => {
                args.push(level(*to));
                op.name()
            }
            Prim::Scan(op, number) => {
                if args.len() == 1 {
                    args.push(Part::Constant(Arg::Number(*number, None)));
                }
                op.name()
            }
            Prim::AtLastToken => AT_LAST_TOKEN,
            Prim::Random(_) => RANDOM,
            Prim::Expand => {
                args[0] = Part::Tensor(node.args[0].ungrouped().clone());
                let made = self.made_by(tensor);
                let (name, keys) = made.unwrap_or_else(|| ("group_by", vec![word("group")]));
                args.extend(keys);
                name
            }
            Prim::Select(_) => BY_GROUP[0],
            Prim::Assemble(_) => BY_GROUP[1],
        };
        (row, args)
    }
}

/// Returns the address of a tensor's layout, which identifies the tensor's groups; `None` for a batch tensor.
fn groups(tensor: &Tensor) -> Option<*const Layout> {
    let frame = tensor.frame().filter(|_| tensor.level() != Level::Batch);
    frame.map(|frame| Arc::as_ptr(&frame.layout))
}

/// Returns a batch with the usual columns that the recipe may read, all usual texts, the columns `reward`, `old_logp` and
/// `logp`, the advantage of each token and, if the recipe has the hooks `weight` and `loss`, the weights.
pub(super) fn columns_for(recipe: &Recipe) -> Batch {
    let usual = usual();
    let always = ["reward", "old_logp", "logp", "advantage"];
    let is_read = |name: &str| recipe.reads().contains(name) || always.contains(&name);
    let all: Vec<String> = usual.columns().map(str::to_string).collect();
    let unread = all
        .iter()
        .filter(|name| !is_read(name) && usual.text(name).is_none());
    let batch = unread.fold(usual.clone(), |batch, name| without(&batch, name));
    let (tokens, responses) = (usual.layout().tokens(), usual.layout().responses());
    let advantage = FloatBuffer::from(vec![0.5; tokens]);
    let batch = batch.replacing("advantage", Column::Token(advantage.into()));
    if recipe.has(Hook::Weight) && recipe.has(Hook::Loss) {
        return batch.replacing("weight", Column::Response(vec![1.0; responses].into()));
    }
    batch
}
