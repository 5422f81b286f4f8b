//! The layout: which token belongs to which response, and which response to which group.

mod tokens;
mod trajectories;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::ops::{IndexMut, Range};
use std::sync::Arc;

pub(crate) use self::tokens::Tokens;
pub use self::tokens::{Numeric, Run};
use self::trajectories::Trajectories;
pub(crate) use self::trajectories::TurnOrder;
use super::Level;

/// The name of a group: the number or the string that the rollouts carry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupId {
    /// A number, such as verl's `index`.
    Number(i64),
    /// A string, such as a prompt's id.
    String(Arc<str>),
}

impl GroupId {
    /// The number's digits, or the string.
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            GroupId::Number(number) => number.to_string().into(),
            GroupId::String(name) => Cow::Borrowed(name),
        }
    }
}

impl fmt::Display for GroupId {
    /// For messages: a long string, such as a whole prompt, is cut.
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

/// Integers and references to them; one beyond [`i64`], as a hash may be, is named by its digits.
macro_rules! from_integers {
    ($($integer:ty)+) => {$(
        impl From<$integer> for GroupId {
            fn from(number: $integer) -> Self {
                match i64::try_from(number) {
                    Ok(number) => GroupId::Number(number),
                    Err(_) => number.to_string().into(),
                }
            }
        }

        impl From<&$integer> for GroupId {
            fn from(number: &$integer) -> Self {
                GroupId::from(*number)
            }
        }
    )+};
}
from_integers!(i8 i16 i32 i64 isize u8 u16 u32 u64 usize);

macro_rules! from_strings {
    ($($string:ty)+) => {$(
        impl From<$string> for GroupId {
            fn from(name: $string) -> Self {
                GroupId::String(AsRef::<str>::as_ref(&name).into())
            }
        }
    )+};
}
from_strings!(String &String &str &&str &Arc<str>);

impl From<Arc<str>> for GroupId {
    fn from(name: Arc<str>) -> Self {
        GroupId::String(name)
    }
}

/// Which token belongs to which response, and which response to which group.
///
/// Responses stand in batch order, groups in the order of their first response, and tokens, of which only those that
/// count are there at all, response by response in their order. Masks with holes cost one [`Run`] a stretch.
#[derive(Clone, Debug)]
pub struct Layout {
    groups: Vec<GroupId>,
    group_of: Vec<u32>,
    members: Vec<u32>,
    member_start: Vec<usize>,
    rows: Tokens,
    token_start: Vec<usize>,
    position_start: Vec<usize>,
    /// Where the responses are turns of trajectories.
    trajectories: Option<Trajectories>,
}

impl Layout {
    /// The group and the tokens of each response.
    pub(crate) fn new(
        ids: impl IntoIterator<Item = GroupId>,
        tokens: Tokens,
        turns: Option<TurnOrder>,
    ) -> Layout {
        Layout::grouped(ids, GroupId::clone, tokens, turns)
    }

    /// Responses with the same key are one group, which is named by it.
    fn grouped<K: Eq + Hash>(
        keys: impl IntoIterator<Item = K>,
        name: impl Fn(&K) -> GroupId,
        rows: Tokens,
        turns: Option<TurnOrder>,
    ) -> Layout {
        let mut seen: HashMap<K, u32> = HashMap::new();
        let mut groups = Vec::new();
        let group = |key: K| {
            *seen.entry(key).or_insert_with_key(|key| {
                groups.push(name(key));
                groups.len() as u32 - 1
            })
        };
        let group_of: Vec<u32> = keys.into_iter().map(group).collect();
        assert_eq!(
            group_of.len(),
            rows.responses(),
            "layout: one group id and one row of tokens a response"
        );
        let counts = |response: usize| rows.runs(response).iter().map(|run| run.len as usize).sum();
        let counts: Vec<usize> = (0..group_of.len()).map(counts).collect();
        let mut longest = vec![0; groups.len()];
        let mut sizes = vec![0; groups.len()];
        for (&group, &tokens) in group_of.iter().zip(&counts) {
            longest[group as usize] = tokens.max(longest[group as usize]);
            sizes[group as usize] += 1;
        }
        let mut members: Vec<u32> = (0..group_of.len() as u32).collect();
        // A stable sort: the members of a group stay in batch order.
        members.sort_by_key(|&response| group_of[response as usize]);
        let trajectories = turns.map(|turns| Trajectories::new(turns, &group_of, groups.len()));
        Layout {
            trajectories,
            groups,
            group_of,
            members,
            member_start: running_total(&sizes),
            rows,
            token_start: running_total(&counts),
            position_start: running_total(&longest),
        }
    }

    /// Number of responses.
    pub fn responses(&self) -> usize {
        self.group_of.len()
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Number of tokens that count.
    pub fn tokens(&self) -> usize {
        self.token_start[self.responses()]
    }

    /// Number of values that a tensor of this level has.
    pub fn size(&self, level: Level) -> usize {
        match level {
            Level::Batch => 1,
            Level::Group => self.groups(),
            Level::Position => self.position_start[self.groups()],
            Level::Trajectory => match &self.trajectories {
                Some(trajectories) => trajectories.len(),
                None => self.responses(),
            },
            Level::Response => self.responses(),
            Level::Token => self.tokens(),
        }
    }

    /// The id of a group.
    pub fn group_id(&self, group: usize) -> &GroupId {
        &self.groups[group]
    }

    /// The group of a response.
    pub fn group_of(&self, response: usize) -> usize {
        self.group_of[response] as usize
    }

    /// The responses of a group, in batch order.
    pub fn members(&self, group: usize) -> &[u32] {
        &self.members[self.member_start[group]..self.member_start[group + 1]]
    }

    /// The indices of a response's tokens in a token tensor.
    pub fn tokens_of(&self, response: usize) -> Range<usize> {
        self.token_start[response]..self.token_start[response + 1]
    }

    /// The response that a token (by its index in a token tensor) belongs to.
    pub fn response_of_token(&self, token: usize) -> usize {
        self.token_start.partition_point(|&start| start <= token) - 1
    }

    /// The indices of a group's positions in a position tensor.
    pub fn positions_of(&self, group: usize) -> Range<usize> {
        self.position_start[group]..self.position_start[group + 1]
    }

    /// The group of a position (by its index in a position tensor), and the index of the token that it stands for.
    pub fn group_of_position(&self, index: usize) -> (usize, usize) {
        let group = self.position_start.partition_point(|&start| start <= index) - 1;
        (group, index - self.position_start[group])
    }

    /// The stretches of a response's tokens that count, by their columns in the row they came in.
    pub fn runs(&self, response: usize) -> &[Run] {
        self.rows.runs(response)
    }

    /// The tokens of a response, stretch by stretch: their indices in a token tensor, and their columns in their row.
    pub(crate) fn stretches(
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

    /// Writes 0 into the columns of a response's row that hold no token that counts.
    pub(crate) fn clear_padding(&self, response: usize, row: &mut [f32]) {
        for columns in self.rows.gaps(response) {
            row[columns].fill(0.0);
        }
        // Where rows of their own lengths are written into padded ones.
        row[self.row_length(response)..].fill(0.0);
    }

    /// Writes a value for each token of a response (by its index in a token tensor) into its column of a row; the other
    /// columns stay as they are.
    pub fn scatter<R>(&self, response: usize, row: &mut R, value: impl Fn(usize) -> R::Output)
    where
        R: IndexMut<usize, Output: Sized> + ?Sized,
    {
        let columns = self.runs(response).iter().flat_map(|run| run.columns());
        let mut token = self.token_start[response];
        columns.for_each(|column| {
            row[column] = value(token);
            token += 1;
        });
    }

    /// The length of the row that a response's tokens came in: T for padded input, its own length for ragged.
    pub fn row_length(&self, response: usize) -> usize {
        self.rows.row_length(response)
    }

    /// The length of the longest row.
    pub fn width(&self) -> usize {
        let rows = 0..self.responses();
        let longest = || rows.map(|response| self.row_length(response)).max();
        self.rows.width.or_else(longest).unwrap_or(0)
    }

    /// The layout of some of the responses, in the order given.
    pub(crate) fn select(&self, responses: &[usize]) -> Layout {
        let groups = responses.iter().map(|&response| self.group_of[response]);
        let name = |&group: &u32| self.groups[group as usize].clone();
        let turns = self.turns().map(|turns| turns.select(responses));
        Layout::grouped(groups, name, self.rows.select(responses), turns)
    }

    /// The layout of one group's responses alone. Their indices here are those of [`Layout::members`].
    pub(crate) fn group(&self, group: usize) -> Layout {
        let members = self.members(group).iter();
        self.select(
            &members
                .map(|&response| response as usize)
                .collect::<Vec<_>>(),
        )
    }

    /// The same responses in other groups: responses are together where their keys are the same bits, and, unless it is
    /// across the groups, where they were in one before.
    pub(crate) fn regroup(
        &self,
        key: &[f64],
        across: bool,
        name: impl Fn(f64) -> Arc<str>,
    ) -> Layout {
        // -0.0 and 0.0 are one key: they are equal to whoever wrote the script.
        let bits = key.iter().map(|key| (key + 0.0).to_bits());
        let name = |&(group, bits): &(u32, u64)| {
            let name = name(f64::from_bits(bits));
            match across {
                true => name.into(),
                false => format!("{}/{name}", self.groups[group as usize].name()).into(),
            }
        };
        let of = |&group: &u32| if across { 0 } else { group };
        let keys = self.group_of.iter().map(of).zip(bits);
        Layout::grouped(keys, name, self.rows.clone(), self.turns().cloned())
    }

    /// A cell of a level in words, such as `group "gsm8k-0007" (4 responses)`: for messages.
    pub fn describe(&self, level: Level, index: usize) -> String {
        match level {
            Level::Batch => "the batch".to_string(),
            Level::Group => {
                let size = self.members(index).len();
                let plural = if size == 1 { "" } else { "s" };
                format!("group {} ({size} response{plural})", self.groups[index])
            }
            Level::Trajectory => {
                let group = &self.groups[self.group_of_trajectory(index)];
                let first = self.rows_of(index)[0];
                format!("the trajectory of response {first} of group {group}")
            }
            Level::Response => format!(
                "response {index} of group {}",
                self.groups[self.group_of(index)]
            ),
            Level::Position => {
                let (group, index) = self.group_of_position(index);
                format!("position {index} of group {}", self.groups[group])
            }
            Level::Token => {
                let response = self.response_of_token(index);
                format!(
                    "token {} of response {response} of group {}",
                    index - self.token_start[response],
                    self.groups[self.group_of(response)]
                )
            }
        }
    }
}

/// `[a, b, c]` to `[0, a, a + b, a + b + c]`.
fn running_total(sizes: &[usize]) -> Vec<usize> {
    let mut total = 0;
    let mut starts = Vec::with_capacity(sizes.len() + 1);
    starts.push(0);
    for size in sizes {
        total += size;
        starts.push(total);
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let mut tokens = Tokens::new(Some(5));
        for row in [[1, 1, 0, 1, 0], [0; 5], [0, 1, 1, 1, 1]] {
            tokens.add(&row).unwrap();
        }
        Layout::new(["b".into(), "a".into(), "b".into()], tokens, None)
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
        assert_eq!(layout.runs(0)[1], Run { start: 3, len: 1 });
        let mut row = [9; 5];
        layout.scatter(0, &mut row, |token| token);
        assert_eq!(row, [0, 1, 9, 2, 9]);
        let mut row = [9; 5];
        layout.scatter(2, &mut row, |token| token);
        assert_eq!(row, [9, 3, 4, 5, 6]);
        assert_eq!(layout.size(Level::Position), 4, "4 of group b, none of a");
        assert_eq!(layout.response_of_token(2), 0);
        assert_eq!(layout.response_of_token(3), 2);
        assert_eq!(
            layout.describe(Level::Token, 4),
            "token 1 of response 2 of group \"b\""
        );
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
}
