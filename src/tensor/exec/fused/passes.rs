//! Cuts a plan into passes over the tokens: what each step is computed by, when, and what is stored in between.

use std::collections::{BTreeMap, HashMap};

use super::{Kind, Pass, SWEEP, Schedule};
use crate::tensor::exec::kind::{home, kind_of, scan_of};
use crate::tensor::exec::scan::Running;
use crate::tensor::graph::Prim;
use crate::tensor::op::{Binary, Kernel, Scan, Unary};
use crate::tensor::plan::Step;
use crate::tensor::{Guard, Level, Plan, Stopped};

/// The operations that it is cheaper to do again in a later pass than to store their results.
const CHEAP: usize = 6;

impl<'a> Schedule<'a> {
    pub(super) fn new(plan: &'a Plan) -> Schedule<'a> {
        let steps = plan.steps();
        let mut run = Schedule {
            plan,
            home: home(plan),
            kind: Vec::new(),
            pass: Vec::with_capacity(steps.len()),
            uniform: Vec::with_capacity(steps.len()),
            direction: BTreeMap::new(),
            stored: vec![false; steps.len()],
            private: vec![true; steps.len()],
            last_use: vec![(0, 0); steps.len()],
            values: vec![None; steps.len()],
            temporary: HashMap::new(),
            padded: None,
            waiting: None,
        };
        let kinds = steps.iter().map(|step| kind_of(plan, run.home, step));
        run.kind = kinds.collect();
        run.leave_to_naive();
        for (index, step) in steps.iter().enumerate() {
            run.place(index, step);
        }
        run
    }

    /// Where many operations that go by no tiles give token values, or read token values that nothing else does, these
    /// are computed in full too, one after the other: a pass would have to store all of them at once.
    fn leave_to_naive(&mut self) {
        const MANY: usize = 8;
        let steps = self.plan.steps();
        let in_full = (steps.iter().zip(&self.kind)).filter(|(step, kind)| {
            let is_there = step.tensor.known().is_some();
            **kind == Kind::Whole && step.tensor.level() == Level::Token && !is_there
        });
        if in_full.count() > MANY {
            return self.kind.fill(Kind::Whole);
        }
        let is_token = |run: &Schedule<'_>, step: usize| run.kind[step] == Kind::Token;
        let mut only_whole = vec![true; steps.len()];
        self.plan
            .outputs()
            .iter()
            .for_each(|&output| only_whole[output] = false);
        let whole = (0..steps.len()).filter(|&index| self.kind[index] == Kind::Whole);
        let read = whole.flat_map(|index| &steps[index].args);
        let stored = read.filter(|&&arg| is_token(self, arg)).count();
        if stored <= MANY {
            return;
        }
        for (index, step) in steps.iter().enumerate().rev() {
            if is_token(self, index) && only_whole[index] {
                self.kind[index] = Kind::Whole;
            }
            if self.kind[index] != Kind::Whole {
                step.args.iter().for_each(|&arg| only_whole[arg] = false);
            }
        }
    }

    /// Decides when a step is computed. All before it are decided.
    fn place(&mut self, index: usize, step: &Step) {
        let kind = self.kind[index];
        let level = |arg: usize| self.plan.steps()[arg].tensor.level();
        let ready = |arg: &usize| match self.kind[*arg] {
            // In full only after the pass that stores it.
            Kind::Token if kind == Kind::Whole => self.pass[*arg] + 1,
            _ => self.pass[*arg],
        };
        let mut pass = step.args.iter().map(ready).max().unwrap_or(0);
        let prim = &step.tensor.inner().prim;
        let mut uniform = false;
        match (kind, prim) {
            (Kind::Reduced(_), _) => pass += 1,
            (Kind::Token, Prim::Scan(op, number)) => {
                let scan = scan_of(op);
                // The sum from the end of a value on the last token is that value, everywhere.
                let of = &self.plan.steps()[step.args[0]].tensor.inner().prim;
                uniform = scan == Scan::SuffixSum
                    && *number == 1.0
                    && matches!(of, Prim::AtLastToken)
                    && self.kind[step.args[0]] == Kind::Token;
                if !uniform {
                    let from_the_end = Running::from_the_end(scan);
                    while *self.direction.entry(pass).or_insert(from_the_end) != from_the_end {
                        pass += 1;
                    }
                }
            }
            (Kind::Token, Prim::Map(_) | Prim::Expand) => {
                uniform =
                    (step.args.iter()).all(|&arg| level(arg) != Level::Token || self.uniform[arg]);
            }
            _ => {}
        }
        self.pass.push(pass);
        self.uniform.push(uniform);
    }

    /// The number of operations that computing a token step takes, as far as anybody wants to know.
    fn cost(&self, step: usize) -> usize {
        let mut cost = 0;
        let mut stack = vec![step];
        while let (Some(step), true) = (stack.pop(), cost <= CHEAP) {
            if self.kind[step] != Kind::Token || self.stored[step] || self.uniform[step] {
                continue;
            }
            cost += match &self.plan.steps()[step].tensor.inner().prim {
                Prim::Scan(..) => CHEAP + 1,
                Prim::Map(op) => match op.kernel {
                    Kernel::One(
                        Unary::Neg | Unary::Abs | Unary::Square | Unary::Detach | Unary::Not,
                    ) => 1,
                    Kernel::One(_) | Kernel::Two(Binary::Pow | Binary::Rem) => CHEAP + 1,
                    _ => 1,
                },
                _ => 0,
            };
            stack.extend(&self.plan.steps()[step].args);
        }
        cost
    }

    /// Whether a pass reads a token step from memory. One number a response is as fast computed.
    pub(super) fn is_loaded(&self, step: usize, pass: usize) -> bool {
        self.stored[step] && self.pass[step] < pass && !self.uniform[step]
    }

    /// The passes, in order. Decides on the way what is stored.
    pub(super) fn passes(&mut self, guard: &Guard) -> Result<Vec<Pass>, Stopped> {
        let steps = self.plan.steps();
        let last = self.pass.iter().max().map_or(0, |&last| last);
        let mut passes: Vec<Pass> = (0..=last).map(|_| Pass::default()).collect();
        let mut tokens: Vec<Vec<usize>> = vec![Vec::new(); last + 1];
        for &output in self.plan.outputs() {
            self.stored[output] |= self.kind[output] == Kind::Token;
            self.private[output] = false;
            self.last_use[output] = (usize::MAX, 0);
        }
        for (index, step) in steps.iter().enumerate() {
            let pass = self.pass[index];
            match self.kind[index] {
                Kind::Token => tokens[pass].push(index),
                Kind::Reduced(reduction) => passes[pass - 1].reduced.push((index, reduction)),
                Kind::Whole => {
                    passes[pass].whole.push(index);
                    for &arg in &step.args {
                        self.stored[arg] |= self.kind[arg] == Kind::Token;
                        self.private[arg] = false;
                        self.last_use[arg] = self.last_use[arg].max((pass, index));
                    }
                }
            }
        }
        let mut seen = vec![usize::MAX; steps.len()];
        for pass in (0..=last).rev() {
            guard.check()?;
            let stored = tokens[pass].iter().filter(|&&step| self.stored[step]);
            let mut stack: Vec<usize> = stored.copied().collect();
            let reduced = passes[pass].reduced.iter();
            stack.extend(reduced.flat_map(|(step, _)| &steps[*step].args));
            while let Some(step) = stack.pop() {
                if std::mem::replace(&mut seen[step], pass) == pass {
                    continue;
                }
                let is_token = self.kind[step] == Kind::Token;
                if is_token && self.pass[step] < pass && self.cost(step) > CHEAP {
                    self.stored[step] = true;
                }
                let is_loaded = self.is_loaded(step, pass);
                if !is_token || is_loaded {
                    self.last_use[step] = self.last_use[step].max((pass, SWEEP));
                    passes[pass].read.push(step);
                }
                if !is_token {
                    continue;
                }
                passes[pass].computed.push(step);
                let is_scan = matches!(steps[step].tensor.inner().prim, Prim::Scan(..));
                let ends = is_loaded || self.uniform[step] && is_scan;
                if !ends {
                    stack.extend(&steps[step].args);
                }
            }
            passes[pass].computed.sort_unstable();
        }
        Ok(passes)
    }

    /// Has the plan's first output written into the caller's padded array, where nothing else reads its values; and what
    /// only that output's pass reads waits in the array until then.
    pub(super) fn find_padded(&mut self, passes: &[Pass]) {
        let (steps, outputs) = (self.plan.steps(), self.plan.outputs());
        let is_narrow =
            |step: usize| self.kind[step] == Kind::Token && !steps[step].tensor.is_f64();
        let padded = outputs[0];
        let at = self.pass[padded];
        let is_read = passes[at + 1..]
            .iter()
            .any(|pass| pass.computed.contains(&padded))
            || (passes.iter().flat_map(|pass| &pass.whole))
                .any(|&whole| steps[whole].args.contains(&padded));
        if !is_narrow(padded) || is_read || outputs[1..].contains(&padded) {
            return;
        }
        self.padded = Some(padded);
        self.waiting = (0..steps.len()).find(|step| {
            let mut others = passes.iter().enumerate().filter(|(pass, _)| *pass != at);
            is_narrow(*step)
                && self.stored[*step]
                && self.private[*step]
                && self.pass[*step] < at
                && self.last_use[*step] == (at, SWEEP)
                && !others.any(|(_, pass)| pass.read.contains(step))
        });
    }
}
