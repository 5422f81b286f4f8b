//! Reads the formulas of a recipe's hooks off the graph of one call.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use super::formula::{
    AT_LAST_TOKEN, Arg, BY_GROUP, COLUMN, Formula, Node, RANDOM, REGROUP, SHAPED_REWARD, SIZE,
    VALUES,
};
use super::rows;
use crate::batch::{Batch, Column, FloatBuffer, Layout};
use crate::check::{usual, without};
use crate::diagnostic::Diagnostics;
use crate::script::{Hook, Recipe, ScriptBatch, State};
use crate::tensor::kernel::{Kernel, Unary};
use crate::tensor::op::{Argument, Param, ParamKind};
use crate::tensor::{Level, Prim, Tensor, Trace};

/// What the formulas are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// To be read: composed rows are one node, and the reward that the hook `reward` gives is a column of the other hooks.
    Short,
    /// The same without composed rows.
    Expanded,
    /// To be written as functions, each of them whole: composed rows are one node if the file has a form for them.
    Torch,
}

/// The formulas of one call of the hooks, the tensors that the script looked at, and the state after the call.
pub(super) struct Traced {
    pub(super) formulas: Vec<Formula>,
    pub(super) looked_at: Vec<Tensor>,
    pub(super) state: State,
}

impl Traced {
    /// Calls the hooks on a batch, and reads the formulas off the tensors that they give.
    pub(super) fn of(
        recipe: &Recipe,
        batch: &Batch,
        state: &State,
        form: Form,
    ) -> Result<Traced, Diagnostics> {
        let trace = Arc::new(Trace::default());
        let host = recipe.host().clone().with_trace(&trace);
        let input = ScriptBatch::new(host.call(batch.step()), batch);
        let (hooks, state) = recipe.on(&host).traced(&input, state)?;
        let columns = input.known_columns().into_iter();
        // A derived column is the formula that it is derived by.
        let is_given =
            |name: &str, tensor: &Tensor| tensor.inner().args.is_empty() || batch.has(name);
        let (given, derived): (Vec<_>, Vec<_>) =
            columns.partition(|(name, tensor)| is_given(name, tensor));
        let by_id = |columns: Vec<(String, Tensor)>| -> HashMap<usize, String> {
            let columns = columns.into_iter();
            columns.map(|(name, tensor)| (tensor.id(), name)).collect()
        };
        let mut reader = Reader {
            trace: &trace,
            columns: by_id(given),
            derived: by_id(derived),
            form,
            layouts: RefCell::new(vec![input.frame().layout.clone()]),
        };
        // `reward` comes first.
        let formulas = hooks.iter().map(|(hook, tensor)| {
            let formula = reader.formula(*hook, tensor);
            if *hook == Hook::Reward && form != Form::Torch {
                let shaped = reader.columns.entry(tensor.id());
                shaped.or_insert_with(|| SHAPED_REWARD.to_string());
            }
            formula
        });
        Ok(Traced {
            formulas: formulas.collect(),
            looked_at: trace.read(),
            state,
        })
    }
}

/// Reads formulas off the tensors of one traced call.
struct Reader<'a> {
    trace: &'a Trace,
    /// The names of the batch's columns, by their tensors.
    columns: HashMap<usize, String>,
    /// The names of columns that are derived from others, by their tensors.
    derived: HashMap<usize, String>,
    form: Form,
    /// The layouts met so far, the batch's first.
    layouts: RefCell<Vec<Arc<Layout>>>,
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
    fn formula(&self, hook: Hook, result: &Tensor) -> Formula {
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
                groups: self.groups(&base),
                origin: base.origin().cloned(),
                name: self
                    .columns
                    .get(&base.id())
                    .or(self.derived.get(&base.id()))
                    .cloned(),
                tensor: base.clone(),
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

    /// Whether the call of a composed row is one node.
    fn keeps(&self, name: &str, args: &[Argument]) -> bool {
        match self.form {
            Form::Short => true,
            Form::Expanded => false,
            Form::Torch => rows::has_composed(name, args),
        }
    }

    /// The tensor whose values this one repeats at a finer level.
    fn base(&self, tensor: &Tensor) -> Tensor {
        let mut base = tensor.clone();
        while let (Prim::Expand, [of]) = (&base.inner().prim, &base.inner().args[..])
            && !self.columns.contains_key(&base.id())
        {
            let is_rehomed = base.level() == of.level() && self.groups(&base) != self.groups(of);
            if is_rehomed {
                break;
            }
            base = of.clone();
        }
        base
    }

    fn groups(&self, tensor: &Tensor) -> usize {
        let Some(frame) = tensor.frame().filter(|_| tensor.level() != Level::Batch) else {
            return 0;
        };
        let mut layouts = self.layouts.borrow_mut();
        let known = layouts
            .iter()
            .position(|layout| Arc::ptr_eq(layout, &frame.layout));
        known.unwrap_or_else(|| {
            layouts.push(frame.layout.clone());
            layouts.len() - 1
        })
    }

    fn parts(&self, tensor: &Tensor) -> Parts {
        if self.columns.contains_key(&tensor.id()) {
            return Parts {
                row: COLUMN,
                args: Vec::new(),
            };
        }
        if let Some(call) = self.trace.call(tensor)
            && self.keeps(call.name, &call.args)
        {
            let part = |(arg, param): (&Argument, &Param)| match (arg, param.kind) {
                (Argument::Tensor(tensor), _) => Part::Tensor(tensor.clone()),
                (Argument::Level(level), _) => Part::Constant(Arg::Level(*level)),
                (Argument::Number(number), _) => Part::Constant(Arg::Number(*number, None)),
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
            Prim::Expand => REGROUP,
            Prim::Select(_) => BY_GROUP[0],
            Prim::Assemble(_) => BY_GROUP[1],
        };
        Parts { row, args }
    }
}

/// The usual columns that a recipe may read, and those that losses are given: the advantage of each token, and the weights.
pub(super) fn columns_for(recipe: &Recipe) -> Batch {
    let usual = usual();
    let reads = |name: &str| {
        recipe.reads().contains(name)
            || matches!(name, "reward" | "old_logp" | "logp" | "advantage")
    };
    let layout = usual.layout().clone();
    let unread: Vec<String> = usual
        .columns()
        .filter(|name| !reads(name) && usual.text(name).is_none())
        .map(str::to_string)
        .collect();
    let batch = unread
        .iter()
        .fold(usual, |batch, name| without(&batch, name));
    let of_tokens =
        |value: f64| Column::Token(FloatBuffer::from(vec![value; layout.tokens()]).into());
    let batch = batch.replacing("advantage", of_tokens(0.5));
    if recipe.has(Hook::Weight) && recipe.has(Hook::Loss) {
        let ones = vec![1.0; layout.responses()];
        return batch.replacing("weight", Column::Response(ones.into()));
    }
    batch
}
