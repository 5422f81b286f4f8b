//! Graphs of different groups that are alike but for their numbers: one computation serves them all.
//!
//! A script that goes group by group and looks at values asks for the same of each group, now and then with a number that
//! it has read off the group before. To plan and to compute some operations for a group alone takes ten times as long as the
//! script itself: so what is asked of a second group is computed for all of them, and the results of a loop are computed
//! form by form instead of group by group.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::graph::{Node, Prim, Tensor};
use super::lift::{Again, Mapped, NotLifted};
use super::op;
use super::{Frame, Level, TensorError, Value};

/// The most nodes of a graph whose form is looked at.
pub(super) const NODES: usize = 64;
/// The most forms that results of one loop may have: each is computed for all groups.
const FORMS: usize = 4;

/// All of a graph over a group's frame but its numbers: equal for graphs that do the same to different groups.
type Form = Vec<u64>;

/// A number that is a node of a graph, with the node's identity.
type Number = (usize, f64);

/// What a graph over a group's frame is made of.
#[derive(Default)]
struct Formed<'a> {
    form: Form,
    numbers: Vec<Number>,
    /// The tensors of the whole batch that the form names.
    named: Vec<&'a Tensor>,
}

/// `None` for a graph that is too large, or reads what is not the group's own.
fn form<'a>(root: &'a Tensor, home: &Frame) -> Option<Formed<'a>> {
    let mut formed = Formed::default();
    let is_home = |tensor: &Tensor| {
        let frame = tensor.frame();
        frame.is_some_and(|frame| Arc::ptr_eq(&frame.layout, &home.layout))
    };
    // Few: a search is faster than a map.
    let mut nodes: Vec<usize> = Vec::new();
    let mut stack: Vec<(&Tensor, usize)> = vec![(root, 0)];
    while let Some((tensor, next)) = stack.pop() {
        if nodes.contains(&tensor.id()) {
            continue;
        }
        let (node, is_home) = (tensor.inner(), is_home(tensor));
        let args = match &node.prim {
            // One number that groups share, unless it is made of theirs.
            Prim::Map(_) => &node.args[..],
            Prim::Select(_) => &[],
            _ if !is_home => &[],
            _ => &node.args[..],
        };
        if let Some(arg) = args.get(next) {
            stack.push((tensor, next + 1));
            stack.push((arg, 0));
            continue;
        }
        if nodes.len() == NODES {
            return None;
        }
        let signature = formed.signature(tensor, is_home)?;
        let about = [node.level as u64, u64::from(is_home), args.len() as u64];
        formed.form.extend(signature.into_iter().chain(about));
        for arg in args {
            let at = nodes.iter().position(|node| *node == arg.id())?;
            formed.form.push(at as u64);
        }
        nodes.push(tensor.id());
    }
    Some(formed)
}

impl<'a> Formed<'a> {
    /// What tells a node from others on the same arguments; notes down the number or the tensor that it is.
    fn signature(&mut self, tensor: &'a Tensor, is_home: bool) -> Option<[u64; 3]> {
        const NUMBER: u64 = u64::MAX;
        const OF_BATCH: u64 = u64::MAX - 1;
        const SELECTED: u64 = u64::MAX - 2;
        let (prim, is_single) = (&tensor.inner().prim, tensor.level() == Level::Batch);
        match prim {
            Prim::Number(number) => {
                self.numbers.push((tensor.id(), *number));
                Some([NUMBER, 0, 0])
            }
            Prim::Map(_) if is_home || is_single => prim.signature(),
            Prim::Select(_) if is_home => {
                let of = &tensor.inner().args[0];
                self.named.push(of);
                Some([SELECTED, of.id() as u64, 0])
            }
            _ if !is_home && is_single => {
                self.named.push(tensor);
                Some([OF_BATCH, tensor.id() as u64, 0])
            }
            Prim::Random(_) => None,
            prim => prim.signature().filter(|_| is_home),
        }
    }
}

/// How many different things that scripts look at are kept for other groups to share: each may be as large as a column.
const LOOKS: usize = 256;

/// What scripts have looked at in the groups of one batch, by form and numbers.
#[derive(Debug, Default)]
pub(crate) struct Looks(Mutex<HashMap<Form, Look>>);

#[derive(Debug)]
struct Look {
    values: LookedAt,
    /// No other tensor comes to lie where those lie that the form names. Weak: what is named may name this in turn.
    _named: Vec<Weak<Node>>,
}

#[derive(Clone, Debug)]
enum LookedAt {
    /// Asked for of one group so far.
    Once,
    Shared(Arc<Value>),
    /// Each group has to be asked by itself.
    Single,
}

impl Tensor {
    /// The tensor's values, from those of all groups at once; `None` where it has to be computed by itself.
    pub(crate) fn looked_at(&self) -> Option<Arc<Value>> {
        let home = self.frame()?;
        let of = home.of.as_ref()?;
        if !matches!(self.level(), Level::Batch | Level::Group | Level::Response) {
            return None;
        }
        let Formed {
            mut form,
            numbers,
            named,
        } = form(self, home)?;
        form.extend(numbers.iter().map(|(_, number)| number.to_bits()));
        home.look_at();
        let looks = || of.looks.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = looks().get(&form).map(|look| look.values.clone());
        let values = match known {
            // Without the lock: while it computes, rayon may run another look on this thread.
            Some(LookedAt::Once) => {
                let all = self.of_all_groups(home, &of.whole);
                let values = all.map_or(LookedAt::Single, LookedAt::Shared);
                if let Some(look) = looks().get_mut(&form) {
                    look.values = values.clone();
                }
                values
            }
            Some(known) => known,
            None => {
                let mut looks = looks();
                if looks.len() < LOOKS {
                    looks.entry(form).or_insert_with(|| Look {
                        values: LookedAt::Once,
                        _named: named.into_iter().map(Tensor::downgrade).collect(),
                    });
                }
                return None;
            }
        };
        match values {
            LookedAt::Shared(all) => self.own_of(&all, home, of.group),
            _ => None,
        }
    }

    fn of_all_groups(
        &self,
        home: &Arc<Frame>,
        whole: &Arc<Frame>,
    ) -> Result<Arc<Value>, NotLifted> {
        let (all, _) = Again::new(home, whole, None).of(self)?;
        Ok(all.evaluate()?)
    }

    /// One group's values of those of all.
    fn own_of(&self, all: &Value, home: &Frame, group: usize) -> Option<Arc<Value>> {
        let whole = &home.of.as_ref()?.whole.layout;
        let own: Vec<f64> = match self.level() {
            Level::Response => {
                let members = whole.members(group).iter();
                members.map(|&member| all.get(member as usize)).collect()
            }
            _ => vec![all.get(group)],
        };
        let reservation = home.context.guard.reserve(size_of_val(&own[..])).ok()?;
        Some(Value::new(self.level(), own.into(), Some(reservation)))
    }
}

/// Groups whose results have the same form.
struct Alike {
    form: Form,
    groups: Vec<usize>,
    /// Of each group.
    numbers: Vec<Vec<Number>>,
}

impl Alike {
    /// The forms of the groups' results; `None` where there are too many.
    fn of(parts: &[(Tensor, Arc<Frame>)]) -> Option<Vec<Alike>> {
        let mut all: Vec<Alike> = Vec::new();
        for (group, (part, home)) in parts.iter().enumerate() {
            let Formed { form, numbers, .. } = form(part, home)?;
            let at = match all.iter().position(|alike| alike.form == form) {
                Some(at) => at,
                None if all.len() == FORMS => return None,
                None => {
                    all.push(Alike {
                        form,
                        groups: Vec::new(),
                        numbers: Vec::new(),
                    });
                    all.len() - 1
                }
            };
            all[at].groups.push(group);
            all[at].numbers.push(numbers);
        }
        Some(all)
    }

    /// The numbers that differ from group to group, as group tensors, by the nodes of the first group. What they are in
    /// groups of another form does not matter.
    fn slots(&self, whole: &Arc<Frame>) -> Result<HashMap<usize, Tensor>, NotLifted> {
        let mut slots = HashMap::new();
        for (index, &(node, first)) in self.numbers[0].iter().enumerate() {
            let mut numbers = self.numbers.iter().map(|numbers| numbers[index].1);
            if numbers.all(|number| number.to_bits() == first.to_bits()) {
                continue;
            }
            let mut values = vec![first; whole.layout.groups()];
            for (&group, numbers) in self.groups.iter().zip(&self.numbers) {
                values[group] = numbers[index].1;
            }
            let reserved = whole.context.guard.reserve(size_of_val(&values[..]));
            let reserved = reserved.map_err(|stopped| TensorError::new("map_groups", stopped))?;
            let values = Value::new(Level::Group, values.into(), Some(reserved));
            slots.insert(node, Tensor::from_value(whole, values));
        }
        Ok(slots)
    }
}

/// `looped`, which puts the groups' results together, computed form by form; `None` where that is not possible.
pub(crate) fn by_form(looped: &Tensor, parts: &[(Tensor, Arc<Frame>)]) -> Option<Tensor> {
    let whole = looped.frame()?;
    let all = Alike::of(parts)?;
    let mut result: Option<Tensor> = None;
    for alike in &all {
        let (part, home) = &parts[*alike.groups.first()?];
        let mut copy = Again::new(home, whole, None);
        copy.slots = alike.slots(whole).ok()?;
        let own = copy.whole_of(part, looped.level()).ok()?;
        // What is computed for groups of another form must not fail.
        if !copy.checked.is_empty() && all.len() > 1 {
            return None;
        }
        Tensor::evaluate_together(&copy.checked).ok()?;
        result = Some(match result {
            None => own,
            Some(others) => {
                let mut is_own = vec![0.0; whole.layout.groups()];
                alike.groups.iter().for_each(|&group| is_own[group] = 1.0);
                let is_own = Tensor::from_buffer(whole, Level::Group, is_own.into()).ok()?;
                op::either(&is_own, &own, &others).ok()?
            }
        });
    }
    Mapped::computed_as(looped, result?).ok()
}
