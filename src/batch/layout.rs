//! The layout, which assigns each token to a response, and each response to a group and a trajectory.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::ops::{IndexMut, Range};
use std::sync::Arc;

use super::Level;
use super::large::{Plain, fill};
use super::mask::TokenRun;
pub(crate) use super::mask::Tokens;

/// The name of a group: a number or a string from the rollouts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupId {
    /// A number, such as verl's `index`.
    Number(i64),
    /// A string, such as a prompt's id.
    String(Arc<str>),
}

impl GroupId {
    /// Returns the digits of the number, or the string.
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            GroupId::Number(number) => number.to_string().into(),
            GroupId::String(name) => Cow::Borrowed(name),
        }
    }
}

impl fmt::Display for GroupId {
    /// Writes the id for a message; a long string, such as a whole prompt, is truncated.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 48;
        match self {
            GroupId::Number(number) => write!(f, "{number}"),
            GroupId::String(name) => match name.char_indices().nth(SHOWN) {
                None => write!(f, "\"{name}\""),
                Some((end, _)) => write!(f, "\"{}...\"", &name[..end]),
            },
        }
    }
}

macro_rules! from {
    ($name:ident => $id:expr; $($given:ty),+) => {$(
        impl From<$given> for GroupId {
            fn from($name: $given) -> Self {
                $id
            }
        }
    )+};
}
from!(
    number => match i64::try_from(number.to_owned() as i128) {
        Ok(number) => GroupId::Number(number),
        // An integer that exceeds `i64`, such as a hash, becomes the string of its digits.
        Err(_) => number.to_string().into(),
    };
    i8, i16, i32, i64, isize, u8, u16, u32, u64, usize, &i8, &i16, &i32, &i64, &isize, &u8, &u16, &u32, &u64, &usize
);
from!(name => GroupId::String(AsRef::<str>::as_ref(&name).into()); String, &String, &str, &&str, &Arc<str>);
from!(name => GroupId::String(name); Arc<str>);

/// The assignment of each token to a response, and of each response to a group and a trajectory.
///
/// Responses are in batch order, and groups in the order of their first responses. Only tokens that count have an index. Indices
/// follow the order of the responses and, within a response, the order of its tokens. A response whose mask has holes has several
/// [`TokenRun`]s.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    ids: Vec<GroupId>,
    groups: Partition,
    rows: Tokens,
    token_start: Vec<usize>,
    position_start: Vec<usize>,
    /// The order of the turns, if the responses are turns of trajectories.
    turns: Option<TurnOrder>,
    /// The trajectories. With turns, they are ordered by group, then by their first response in the batch. Without turns, each
    /// response is a trajectory of its own, in batch order.
    trajectories: Partition,
}

/// A partition of the responses into disjoint sets, such as groups.
#[derive(Clone, Debug, PartialEq)]
struct Partition {
    /// The set of each response.
    of: Vec<u32>,
    /// The responses, set by set.
    members: Vec<u32>,
    /// The start of each set in `members`, and the end of the last set.
    starts: Vec<usize>,
}

impl Partition {
    /// Makes a partition. The members of each set keep their order in `members`.
    fn new(of: Vec<u32>, sets: usize, mut members: Vec<u32>) -> Partition {
        members.sort_by_key(|&response| of[response as usize]);
        let mut sizes = vec![0; sets];
        of.iter().for_each(|&set| sizes[set as usize] += 1);
        let starts = running_total(sizes);
        Partition {
            of,
            members,
            starts,
        }
    }

    fn members(&self, set: usize) -> &[u32] {
        &self.members[self.starts[set]..self.starts[set + 1]]
    }
}

/// For each response, the number of its trajectory's key, and the turn that determines its position in the trajectory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TurnOrder(Arc<[(u32, f64)]>);

impl TurnOrder {
    /// Makes an order in which responses with the same key are turns of one trajectory, if they are in one group. The turns are
    /// ordered by `turn`, or in batch order if `turn` is `None`.
    pub(crate) fn new<K: Eq + Hash + Clone>(
        keys: impl IntoIterator<Item = K>,
        turn: Option<&[f64]>,
    ) -> TurnOrder {
        let turn = |response: usize| turn.map_or(response as f64, |turn| turn[response]);
        let keys = numbered(keys).0.into_iter().enumerate();
        TurnOrder(keys.map(|(response, key)| (key, turn(response))).collect())
    }

    /// Returns the partition into trajectories. If responses in two groups have the same key, they form two trajectories, because
    /// a trajectory lies within one group.
    fn trajectories(&self, groups: &Partition) -> Partition {
        let key = |&response: &u32| (groups.of[response as usize], self.0[response as usize].0);
        let (numbers, keys) = numbered(groups.members.iter().map(key));
        let mut of = vec![0; numbers.len()];
        for (&response, number) in groups.members.iter().zip(numbers) {
            of[response as usize] = number;
        }
        let mut members: Vec<u32> = (0..of.len() as u32).collect();
        members.sort_by(|&a, &b| self.0[a as usize].1.total_cmp(&self.0[b as usize].1));
        Partition::new(of, keys.len(), members)
    }
}

impl Layout {
    /// Makes a layout in which responses with the same key form a group; `name` makes the group's name from the key.
    pub(crate) fn new<K: Eq + Hash + Clone>(
        keys: impl IntoIterator<Item = K>,
        name: impl Fn(K) -> GroupId,
        rows: Tokens,
        turns: Option<TurnOrder>,
    ) -> Layout {
        let (of, keys) = numbered(keys);
        assert_eq!(
            of.len(),
            rows.responses(),
            "a layout needs one group id and one row of tokens for each response"
        );
        let all: Vec<u32> = (0..of.len() as u32).collect();
        let groups = Partition::new(of, keys.len(), all.clone());
        let count = |response| rows.runs(response).iter().map(|run| run.len as usize).sum();
        let counts: Vec<usize> = (0..rows.responses()).map(count).collect();
        let mut longest = vec![0; keys.len()];
        for (&group, &tokens) in groups.of.iter().zip(&counts) {
            longest[group as usize] = tokens.max(longest[group as usize]);
        }
        Layout {
            ids: keys.into_iter().map(name).collect(),
            trajectories: match &turns {
                Some(turns) => turns.trajectories(&groups),
                None => Partition::new(all.clone(), all.len(), all),
            },
            turns,
            groups,
            rows,
            token_start: running_total(counts),
            position_start: running_total(longest),
        }
    }

    /// Returns the number of responses.
    pub fn responses(&self) -> usize {
        self.groups.of.len()
    }

    /// Returns the number of groups.
    pub fn groups(&self) -> usize {
        self.ids.len()
    }

    /// Returns the number of tokens that count.
    pub fn tokens(&self) -> usize {
        self.token_start[self.responses()]
    }

    /// Returns the number of values of a tensor at this level.
    pub fn size(&self, level: Level) -> usize {
        match level {
            Level::Batch => 1,
            Level::Group => self.groups(),
            Level::Position => self.position_start[self.groups()],
            Level::Trajectory => self.trajectories.starts.len() - 1,
            Level::Response => self.responses(),
            Level::Token => self.tokens(),
        }
    }

    /// Returns the name of a group.
    pub fn group_id(&self, group: usize) -> &GroupId {
        &self.ids[group]
    }

    /// Returns the group of a response.
    pub fn group_of(&self, response: usize) -> usize {
        self.groups.of[response] as usize
    }

    /// Returns the responses of a group, in batch order.
    pub fn members(&self, group: usize) -> &[u32] {
        self.groups.members(group)
    }

    /// Returns the indices of a response's tokens in a token tensor.
    pub fn tokens_of(&self, response: usize) -> Range<usize> {
        self.token_start[response]..self.token_start[response + 1]
    }

    /// Returns the response to which a token (by its index in a token tensor) belongs.
    pub fn response_of_token(&self, token: usize) -> usize {
        self.token_start.partition_point(|&start| start <= token) - 1
    }

    /// Returns the indices of a group's positions in a position tensor.
    pub fn positions_of(&self, group: usize) -> Range<usize> {
        self.position_start[group]..self.position_start[group + 1]
    }

    /// Returns the group of a position (by its index in a position tensor), and the index of the position's tokens within their
    /// responses.
    pub fn group_of_position(&self, index: usize) -> (usize, usize) {
        let group = self.position_start.partition_point(|&start| start <= index) - 1;
        (group, index - self.position_start[group])
    }

    /// Returns whether the responses are turns of trajectories; otherwise, each response is a trajectory.
    pub fn has_trajectories(&self) -> bool {
        self.turns.is_some()
    }

    /// Returns the trajectory of a response.
    pub fn trajectory_of(&self, response: usize) -> usize {
        self.trajectories.of[response] as usize
    }

    /// Returns the responses of a trajectory, in the order of its turns.
    pub fn rows_of(&self, trajectory: usize) -> &[u32] {
        self.trajectories.members(trajectory)
    }

    /// Returns the group of a trajectory.
    pub fn group_of_trajectory(&self, trajectory: usize) -> usize {
        self.group_of(self.rows_of(trajectory)[0] as usize)
    }

    /// Returns the indices of a group's trajectories in a trajectory tensor, as ranges.
    pub fn trajectories_of(&self, group: usize) -> Vec<Range<usize>> {
        let members = self.members(group).iter();
        let all = members.map(|&member| self.trajectory_of(member as usize));
        let ends = all.clone().min().zip(all.clone().max());
        match ends.filter(|_| self.has_trajectories()) {
            Some((first, last)) => std::iter::once(first..last + 1).collect(),
            None => all.map(|one| one..one + 1).collect(),
        }
    }

    /// Returns the runs of a response's tokens that count; a run is a range of columns in the response's row.
    pub fn runs(&self, response: usize) -> &[TokenRun] {
        self.rows.runs(response)
    }

    /// Returns, for each run of a response's tokens, the indices in a token tensor and the columns in the response's row.
    pub(crate) fn token_runs(
        &self,
        response: usize,
    ) -> impl Iterator<Item = (Range<usize>, Range<usize>)> + '_ {
        let mut next = self.token_start[response];
        self.runs(response).iter().map(move |run| {
            let tokens = next..next + run.len as usize;
            next = tokens.end;
            (tokens, run.columns())
        })
    }

    /// Returns the columns of a response's row in which no token counts: before, between and after the runs.
    pub(crate) fn gaps(&self, response: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let runs = self.runs(response).iter().map(|run| run.columns());
        let starts = std::iter::once(0).chain(runs.clone().map(|run| run.end));
        let ends = runs.map(|run| run.start).chain([self.row_length(response)]);
        starts.zip(ends).map(|(start, end)| start..end)
    }

    /// Writes 0 into the columns of a response's row in which no token counts.
    pub(crate) fn clear_padding<T: Plain>(&self, response: usize, row: &mut [T]) {
        let gaps = self.gaps(response);
        gaps.for_each(|columns| fill(&mut row[columns], T::default()));
        // The columns after the end of the response's own row are cleared, too, because the array may be wider than a ragged row.
        fill(&mut row[self.row_length(response)..], T::default());
    }

    /// Writes the value of each token of a response (by its index in a token tensor) into the token's column of a row; other
    /// columns are unchanged.
    pub fn scatter<R>(&self, response: usize, row: &mut R, value: impl Fn(usize) -> R::Output)
    where
        R: IndexMut<usize, Output: Sized> + ?Sized,
    {
        for (tokens, columns) in self.token_runs(response) {
            for (token, column) in tokens.zip(columns) {
                row[column] = value(token);
            }
        }
    }

    /// Returns the length of a response's row in the input: T for padded input, the row's own length for ragged input.
    pub fn row_length(&self, response: usize) -> usize {
        self.rows.row_length(response)
    }

    /// Returns whether all rows have the same length, as in an array [B, T].
    pub fn is_padded(&self) -> bool {
        let mut lengths = (0..self.responses()).map(|response| self.row_length(response));
        lengths.all(|length| length == self.width())
    }

    /// Returns the length of the longest row.
    pub fn width(&self) -> usize {
        self.rows.width
    }

    /// Returns the layout of some of the responses, in the given order.
    pub(crate) fn select(&self, responses: &[usize]) -> Layout {
        let groups = responses.iter().map(|&response| self.group_of(response));
        let turns = self.turns.as_ref().map(|turns| {
            let picked = responses.iter().map(|&response| turns.0[response]);
            TurnOrder(picked.collect())
        });
        let name = |group: usize| self.ids[group].clone();
        Layout::new(groups, name, self.rows.select(responses), turns)
    }

    /// Returns the layout of one group's responses. Their new indices follow the order of [`Layout::members`].
    pub(crate) fn group(&self, group: usize) -> Layout {
        let members = self.members(group).iter().map(|&member| member as usize);
        self.select(&members.collect::<Vec<_>>())
    }

    /// Returns the same responses in new groups: responses with the same key are in one group if they were in one group before,
    /// or if `across` is true.
    pub(crate) fn regroup(
        &self,
        key: &[f64],
        across: bool,
        name: impl Fn(f64) -> Arc<str>,
    ) -> Layout {
        // -0.0 and 0.0 are the same key, because they are equal in a script.
        let bits = key.iter().map(|key| (key + 0.0).to_bits());
        let name = |(group, bits): (u32, u64)| {
            let name = name(f64::from_bits(bits));
            if across {
                name.into()
            } else {
                format!("{}/{name}", self.ids[group as usize].name()).into()
            }
        };
        let old = self.groups.of.iter();
        let keys = old.map(|&group| if across { 0 } else { group }).zip(bits);
        Layout::new(keys, name, self.rows.clone(), self.turns.clone())
    }

    /// Returns the approximate size of the layout in bytes, including the groups' names and the data of each response.
    pub(crate) fn bytes(&self) -> usize {
        let group = |id: &GroupId| match id {
            GroupId::Number(_) => 64,
            GroupId::String(name) => 64 + name.len(),
        };
        let groups: usize = self.ids.iter().map(group).sum();
        let runs = (0..self.responses()).map(|response| size_of_val(self.runs(response)));
        512 + groups + self.responses() * 64 + runs.sum::<usize>()
    }

    /// Describes a cell of a level in messages, such as `group "gsm8k-0007" (4 responses)`.
    pub fn describe(&self, level: Level, index: usize) -> String {
        let of_group = |group: usize| format!("of group {}", self.ids[group]);
        match level {
            Level::Batch => "the batch".to_string(),
            Level::Group => {
                let size = self.members(index).len();
                let plural = if size == 1 { "" } else { "s" };
                format!("group {} ({size} response{plural})", self.ids[index])
            }
            Level::Trajectory => {
                let first = self.rows_of(index)[0] as usize;
                let response = self.describe(Level::Response, first);
                format!("the trajectory of {response}")
            }
            Level::Response => format!("response {index} {}", of_group(self.group_of(index))),
            Level::Position => {
                let (group, index) = self.group_of_position(index);
                format!("position {index} {}", of_group(group))
            }
            Level::Token => {
                let response = self.response_of_token(index);
                let token = index - self.token_start[response];
                format!(
                    "token {token} of {}",
                    self.describe(Level::Response, response)
                )
            }
        }
    }
}

/// Numbers keys in the order of first occurrence; equal keys get the same number. Also returns the key of each number.
fn numbered<K: Eq + Hash + Clone>(keys: impl IntoIterator<Item = K>) -> (Vec<u32>, Vec<K>) {
    let mut seen: HashMap<K, u32> = HashMap::new();
    let (mut distinct, mut last) = (Vec::new(), 0);
    let number = |key: K| {
        // The previous key is compared first, because in most batches the responses of a group follow each other.
        if distinct.get(last as usize) != Some(&key) {
            last = *seen.entry(key).or_insert_with_key(|key| {
                distinct.push(key.clone());
                distinct.len() as u32 - 1
            });
        }
        last
    };
    (keys.into_iter().map(number).collect(), distinct)
}

/// Turns `[a, b, c]` into `[0, a, a + b, a + b + c]`.
fn running_total(sizes: Vec<usize>) -> Vec<usize> {
    let mut total = 0;
    let sums = sizes.into_iter().map(|size| {
        total += size;
        total
    });
    std::iter::once(0).chain(sums).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;

    fn layout() -> Layout {
        let mut tokens = Tokens::new(3);
        for row in [[1, 1, 0, 1, 0], [0; 5], [0, 1, 1, 1, 1]] {
            tokens.add(&row).unwrap();
        }
        Layout::new(["b", "a", "b"], GroupId::from, tokens, None)
    }

    #[test]
    fn holes_interleaved_groups_and_empty_responses_have_their_indices() {
        let layout = layout();
        assert_eq!(layout.groups(), 2);
        assert_eq!(layout.members(0), [0, 2]);
        assert_eq!(layout.members(1), [1]);
        assert_eq!(layout.tokens(), 7);
        assert_eq!(layout.tokens_of(0), 0..3);
        assert_eq!(layout.tokens_of(1), 3..3);
        assert_eq!(layout.tokens_of(2), 3..7);
        assert_eq!(layout.runs(0).len(), 2);
        assert_eq!(layout.runs(0)[1], TokenRun { start: 3, len: 1 });
        for (response, expected) in [(0, [0, 1, 9, 2, 9]), (2, [9, 3, 4, 5, 6])] {
            let mut row = [9; 5];
            layout.scatter(response, &mut row, |token| token);
            assert_eq!(row, expected);
        }
        assert_eq!(layout.size(Level::Position), 4, "4 of group b, none of a");
        assert_eq!(layout.response_of_token(2), 0);
        assert_eq!(layout.response_of_token(3), 2);
        let described = layout.describe(Level::Token, 4);
        assert_eq!(described, "token 1 of response 2 of group \"b\"");
    }

    #[test]
    fn one_group_and_finer_groups_keep_the_tokens() {
        let layout = layout();
        let swapped = layout.select(&[2, 1]);
        assert_eq!(swapped.group_id(0), &"b".into());
        assert_eq!((swapped.runs(0), swapped.width()), (layout.runs(2), 5));
        let group = layout.group(0);
        assert_eq!((group.responses(), group.tokens()), (2, 7));
        assert_eq!(group.runs(1), layout.runs(2));
        let by = |key: &[f64], across| layout.regroup(key, across, |key| key.to_string().into());
        let finer = by(&[0.0, 1.0, 1.0], false);
        assert_eq!(finer.groups(), 3);
        assert_eq!(finer.tokens(), 7);
        assert_eq!(by(&[0.0, 1.0, -0.0], false).groups(), 2);
        let others = by(&[0.0, 1.0, 1.0], true);
        assert_eq!((others.groups(), others.members(1)), (2, &[1, 2][..]));
        assert_eq!(others.group_id(1), &"1".into());
    }

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
        let rows: Vec<_> = (0..3).map(|at| layout.rows_of(at)).collect();
        assert_eq!(rows, [[3, 0], [2, 5], [4, 1]]);
        let of: Vec<usize> = (0..6).map(|row| layout.trajectory_of(row)).collect();
        assert_eq!(of, [0, 2, 1, 0, 2, 1]);
        let groups = [1, 2].map(|trajectory| layout.group_of_trajectory(trajectory));
        assert_eq!(groups, [0, 1]);
        let first: Vec<usize> = layout.trajectories_of(0).into_iter().flatten().collect();
        assert_eq!(first, [0, 1]);
        let selected = layout.select(&[5, 1, 2]);
        assert_eq!(selected.rows_of(0), [2, 0]);
        let described = layout.describe(Level::Trajectory, 2);
        assert_eq!(described, "the trajectory of response 4 of group \"b\"");
    }
}
