//! Trajectories: which responses are the turns of one, and in which order.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use super::Layout;

/// For each response which trajectory it belongs to, by a number, and its place in it.
#[derive(Clone, Debug)]
pub(crate) struct TurnOrder(Arc<[(u32, f64)]>);

impl TurnOrder {
    /// Responses with one key are turns of one trajectory, in the order of `turn`, or of the batch.
    pub(crate) fn new<K: Eq + Hash>(
        keys: impl IntoIterator<Item = K>,
        turn: Option<&[f64]>,
    ) -> TurnOrder {
        let mut seen: HashMap<K, u32> = HashMap::new();
        let of = |(response, key): (usize, K)| {
            let next = seen.len() as u32;
            let turn = turn.map_or(response as f64, |turn| turn[response]);
            (*seen.entry(key).or_insert(next), turn)
        };
        TurnOrder(keys.into_iter().enumerate().map(of).collect())
    }

    pub(super) fn select(&self, responses: &[usize]) -> TurnOrder {
        TurnOrder(responses.iter().map(|&response| self.0[response]).collect())
    }
}

/// The trajectories of a layout, group by group, in a group in the order of their first responses.
#[derive(Clone, Debug)]
pub(super) struct Trajectories {
    turns: TurnOrder,
    /// The trajectory of each response.
    of: Vec<u32>,
    /// The responses, trajectory by trajectory, each in its order.
    rows: Vec<u32>,
    row_start: Vec<usize>,
    group_start: Vec<usize>,
}

impl Trajectories {
    /// A trajectory ends with its group: responses with one key in two groups are two.
    pub(super) fn new(turns: TurnOrder, group_of: &[u32], groups: usize) -> Trajectories {
        let mut firsts: HashMap<(u32, u32), u32> = HashMap::new();
        let mut first = |response: usize| {
            let key = (group_of[response], turns.0[response].0);
            *firsts.entry(key).or_insert(response as u32)
        };
        let firsts: Vec<u32> = (0..group_of.len()).map(&mut first).collect();
        let mut rows: Vec<u32> = (0..group_of.len() as u32).collect();
        // Stable: turns with the same number stay in batch order.
        rows.sort_by(|&a, &b| {
            let place = |row: u32| (group_of[row as usize], firsts[row as usize]);
            let turn = |row: u32| turns.0[row as usize].1;
            let by_turn = || turn(a).total_cmp(&turn(b));
            place(a).cmp(&place(b)).then_with(by_turn)
        });
        let mut of = vec![0; group_of.len()];
        let (mut row_start, mut group_start) = (Vec::new(), vec![0; groups + 1]);
        for (at, &row) in rows.iter().enumerate() {
            let row = row as usize;
            if at == 0 || firsts[row] != firsts[rows[at - 1] as usize] {
                row_start.push(at);
                group_start[group_of[row] as usize + 1] += 1;
            }
            of[row] = row_start.len() as u32 - 1;
        }
        row_start.push(rows.len());
        for group in 0..groups {
            group_start[group + 1] += group_start[group];
        }
        Trajectories {
            turns,
            of,
            rows,
            row_start,
            group_start,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.row_start.len() - 1
    }
}

/// Without trajectories each response is one.
impl Layout {
    pub(super) fn turns(&self) -> Option<&TurnOrder> {
        self.trajectories.as_ref().map(|all| &all.turns)
    }

    /// Whether the responses are turns of trajectories.
    pub(crate) fn has_trajectories(&self) -> bool {
        self.trajectories.is_some()
    }

    /// The trajectory that a response belongs to.
    pub fn trajectory_of(&self, response: usize) -> usize {
        let all = self.trajectories.as_ref();
        all.map_or(response, |all| all.of[response] as usize)
    }

    /// The responses of a trajectory, in the order of its turns.
    pub fn rows_of(&self, trajectory: usize) -> Cow<'_, [u32]> {
        match &self.trajectories {
            Some(all) => {
                let rows = all.row_start[trajectory]..all.row_start[trajectory + 1];
                Cow::Borrowed(&all.rows[rows])
            }
            None => Cow::Owned(vec![trajectory as u32]),
        }
    }

    /// The group of a trajectory.
    pub fn group_of_trajectory(&self, trajectory: usize) -> usize {
        match &self.trajectories {
            Some(all) => {
                all.group_start
                    .partition_point(|&start| start <= trajectory)
                    - 1
            }
            None => self.group_of(trajectory),
        }
    }

    /// The indices of a group's trajectories in a trajectory tensor.
    pub fn trajectories_of(&self, group: usize) -> Vec<Range<usize>> {
        match &self.trajectories {
            Some(all) => {
                let of = all.group_start[group]..all.group_start[group + 1];
                std::iter::once(of).collect()
            }
            None => {
                let members = self.members(group).iter().map(|&member| member as usize);
                members.map(|member| member..member + 1).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::batch::{Batch, Level};

    #[test]
    fn trajectories_lie_in_their_groups_and_have_their_turns_in_order() {
        let batch = Batch::builder()
            .groups(["a", "b", "a", "a", "b", "a"])
            .text("trajectory", ["x", "x", "y", "x", "x", "y"])
            .response("turn", vec![1.0, 7.0, 0.0, 0.0, 2.0, 1.0])
            .build()
            .unwrap();
        let layout = batch.layout();
        assert_eq!(layout.size(Level::Trajectory), 3);
        let rows: Vec<_> = (0..3).map(|at| layout.rows_of(at).into_owned()).collect();
        assert_eq!(rows, [vec![3, 0], vec![2, 5], vec![4, 1]]);
        let of: Vec<usize> = (0..6).map(|row| layout.trajectory_of(row)).collect();
        assert_eq!(of, [0, 2, 1, 0, 2, 1]);
        assert_eq!(
            (layout.group_of_trajectory(1), layout.group_of_trajectory(2)),
            (0, 1)
        );
        let first: Vec<usize> = layout.trajectories_of(0).into_iter().flatten().collect();
        assert_eq!(first, [0, 1]);
        let selected = layout.select(&[5, 1, 2]);
        assert_eq!(selected.rows_of(0)[..], [2, 0]);
        let described = layout.describe(Level::Trajectory, 2);
        assert_eq!(described, "the trajectory of response 4 of group \"b\"");
    }
}
