//! Tensors: [B] is a response column and [B, T] a token column, where B is that of the groups and T that of the mask.

use super::Dtype;
use super::meaning::{MASK, Meaning};
use super::names::{Reading, Role};
use super::npz;
use super::table::Data;
use super::tensors::{Info, Kind, Tensor};
use crate::batch::layout::Tokens;
use crate::batch::{Given, GroupId, Level};
use crate::diagnostic::Diagnostic;

impl Meaning<'_> {
    fn wrong_tensor(&self, info: &Info, expected: impl Into<String>) -> Diagnostic {
        let found = info.describe();
        self.table.wrong(&info.name, None, None, found, expected)
    }

    fn tensor(&self, index: usize) -> Option<&Tensor> {
        match &self.table.columns[index].data {
            Data::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// All tensors that have a name of ours.
    fn tensors(&self) -> impl Iterator<Item = (&Reading, &Info)> {
        let readings = self.readings.iter();
        readings.filter_map(|(reading, index)| Some((reading, &**self.tensor(*index)?)))
    }

    /// Whether a column is one of numbers or of groups: strings are texts, or nothing.
    pub(super) fn is_usable_tensor(&mut self, reading: &Reading, index: usize) -> bool {
        let is_text = |info: &Tensor| info.are_strings() && info.shape.len() == 1;
        let is_text = self.tensor(index).is_some_and(is_text);
        match reading.role {
            Role::Any | Role::Completion if is_text => false,
            Role::Completion => {
                self.left_out(&reading.theirs, "it holds no strings [B]");
                false
            }
            _ => true,
        }
    }

    /// The group of each response: whole numbers, strings, or indices in a list of names.
    pub(super) fn groups_of_tensor(
        &self,
        reading: &Reading,
        tensor: &Tensor,
    ) -> Result<Vec<GroupId>, Diagnostic> {
        const EXPECTED: &str = "whole numbers or strings [B], one for each response";
        let is_column = matches!(tensor.shape.as_slice(), [_] | [_, 1]);
        let is_unread_string = |name: &String| {
            let mut unread = npz::UNREAD_STRINGS.iter();
            unread.any(|unread| name.starts_with(unread))
        };
        match &tensor.kind {
            Kind::String(_) if is_column => {
                let strings = tensor.strings(self.progress)?;
                return Ok(strings.into_iter().map(GroupId::from).collect());
            }
            Kind::Number(_) if is_column && tensor.is_number() => {}
            Kind::Other(name) if is_column && is_unread_string(name) => {
                let help = "numpy: `np.array(ids).astype(str)` makes strings of them";
                return Err(self.wrong_tensor(tensor, EXPECTED).with_help(help));
            }
            _ => return Err(self.wrong_tensor(tensor, EXPECTED)),
        }
        let wrong = |response, found: String| {
            let name = &reading.theirs;
            self.table.wrong(name, response, None, found, EXPECTED)
        };
        let ids = tensor
            .ids(self.progress)?
            .map_err(|(response, value)| wrong(Some(response), value.to_string()))?;
        let saved = self.table.saved.as_ref();
        let Some(names) = saved.and_then(|saved| saved.group_names.as_ref()) else {
            return Ok(ids);
        };
        let named = ids.iter().map(|id| match id {
            GroupId::Number(number) => names.get(usize::try_from(*number).ok()?).cloned(),
            GroupId::String(_) => None,
        });
        let beyond = || format!("a number beyond the {} names in the header", names.len());
        let named: Option<Vec<GroupId>> = named.collect();
        named.ok_or_else(|| wrong(None, beyond()))
    }

    /// Finds T and which tokens count.
    pub(super) fn padded_tokens(&mut self) -> Result<(), Diagnostic> {
        self.width = self.find_width()?;
        let Some((width, _)) = self.width else {
            return Ok(());
        };
        let mask = self.find("mask");
        let mask = mask.and_then(|(reading, index)| Some((reading, self.tensor(index)?)));
        let tokens = match mask {
            Some((reading, tensor)) => {
                let tokens = tensor.mask(self.progress)?;
                tokens.map_err(|(response, token, value)| {
                    let (name, found) = (&reading.theirs, value.to_string());
                    self.table
                        .wrong(name, Some(response), Some(token), found, MASK)
                })?
            }
            None => {
                let hint = self.mask_hint(width);
                self.notes
                    .push(format!("there is no mask: all tokens count{hint}"));
                let mut tokens = Tokens::new(Some(width));
                (0..self.responses).for_each(|_| tokens.add_full(width));
                tokens
            }
        };
        self.tokens = Some(tokens);
        Ok(())
    }

    /// T, and the tensor that says so: the mask, or the token columns.
    fn find_width(&self) -> Result<Option<(usize, String)>, Diagnostic> {
        let rows = self.responses;
        let mut width: Option<(usize, String)> = None;
        let of_role = |role: Role| {
            let tensors = self.tensors();
            tensors.filter(move |(reading, _)| reading.role == role)
        };
        for (reading, info) in of_role(Role::Mask).chain(of_role(Role::Token)) {
            let expected = match (info.shape.as_slice(), &width) {
                (&[found, columns], None) if found == rows => {
                    width = Some((columns, info.name.clone()));
                    continue;
                }
                (found, Some((known, _))) if *found == [rows, *known] => continue,
                (_, Some((known, from))) => format!("[{rows}, {known}], as `{from}` is"),
                (_, None) => format!("[{rows}, T], a value for each token"),
            };
            let error = self.wrong_tensor(info, expected);
            return Err(match (reading.ours.as_str(), info.shape.len()) {
                ("token_reward", 1) => {
                    error.with_help("a reward for the whole response is `reward`")
                }
                _ => error,
            });
        }
        // An older advantage, perhaps of another batch, says nothing about the tokens.
        let others = of_role(Role::Any)
            .filter(|(reading, info)| reading.ours != "advantage" && info.is_number());
        let mut others = others.filter_map(|(_, info)| match info.shape.as_slice() {
            &[found, width] if found == rows => Some((width, info.name.clone())),
            _ => None,
        });
        if width.is_none() {
            width = others.next();
            width = width.filter(|(first, _)| others.all(|(other, _)| other == *first));
        }
        Ok(width)
    }

    /// The tensor that may be the mask of a file that has none by our names, and what to do.
    fn mask_hint(&self, width: usize) -> String {
        // The masks that trainers call by name come first; `attention_mask` may mark the prompt too.
        let likely = "completion_mask action_mask loss_mask loss_masks attention_mask";
        let masks = || {
            let tensors = self.tensors().map(|(_, info)| info);
            tensors.filter(|info| {
                info.is_number() && info.shape.len() == 2 && info.shape[0] == self.responses
            })
        };
        let mut likely = likely.split(' ');
        let candidate = likely
            .find_map(|name| masks().find(|info| info.name == name))
            .or_else(|| masks().find(|info| info.name.contains("mask")));
        let Some(Info { name, shape, .. }) = candidate else {
            return String::new();
        };
        match shape[1].checked_sub(width) {
            Some(0) => {
                format!("; if `{name}` says which tokens of a response do, say `--map mask={name}`")
            }
            Some(prompt) => format!(
                "; `{name}` is {shape:?}, {prompt} wider than the responses: if it is of prompt and response, as verl's is, its last {width} columns are the mask (`{name}[:, -{width}:]`, to be added to the file as `response_mask`)"
            ),
            None => String::new(),
        }
    }

    /// The level of a tensor as a column, by its name and its shape.
    fn level(&self, reading: &Reading, info: &Info) -> Option<Level> {
        let width = self.width.as_ref().map(|(width, _)| *width);
        match *info.shape.as_slice() {
            _ if !info.is_number() => None,
            [rows] if rows == self.responses => Some(Level::Response),
            // [B, 1] will do for a column that we know.
            [rows, 1] if rows == self.responses && reading.role == Role::Response => {
                Some(Level::Response)
            }
            [rows, columns] if rows == self.responses && reading.role != Role::Response => {
                (Some(columns) == width).then_some(Level::Token)
            }
            _ => None,
        }
    }

    /// The columns that are to be read; what is no column is left out, or that is an error.
    pub(super) fn fitting(
        &mut self,
        readings: Vec<(Reading, usize)>,
    ) -> Result<Vec<(Reading, usize)>, Diagnostic> {
        let rows = self.responses;
        let mut fitting = Vec::new();
        for (reading, index) in readings {
            let Some(info) = self.tensor(index).map(|tensor| Info::clone(tensor)) else {
                continue;
            };
            if let Some(level) = self.level(&reading, &info) {
                if level == Level::Response {
                    self.is_f64 |= info.is_f64() && self.options.dtype.is_none();
                } else if !self.table.names.wants(&reading) {
                    let dtype = self.options.dtype;
                    let is_f64 = dtype.map_or(info.is_f64(), |dtype| dtype == Dtype::F64);
                    self.unread = Some(is_f64 || self.unread == Some(true));
                    continue;
                }
                fitting.push((reading, index));
                continue;
            }
            let expected = match reading.role {
                Role::Token | Role::Response if !info.is_number() => "numbers".to_string(),
                Role::Response => format!("[{rows}], one value for each response"),
                Role::Any if reading.asked => format!("numbers [{rows}] or [{rows}, T]"),
                _ => {
                    let sizes = match &self.width {
                        Some((width, _)) => format!("[{rows}] or [{rows}, {width}]"),
                        None => format!("[{rows}]"),
                    };
                    let why = match info.is_number() {
                        true => format!("it is {:?}, and columns are {sizes}", info.shape),
                        false => format!("it is {}", info.describe()),
                    };
                    self.left_out(&info.name, &why);
                    continue;
                }
            };
            let error = self.wrong_tensor(&info, expected);
            return Err(match (reading.ours.as_str(), info.shape.len()) {
                ("reward", 2) if info.is_number() => error.with_help(format!(
                    "a reward for each token is `token_reward`: `--map token_reward={}`",
                    info.name
                )),
                _ => error,
            });
        }
        Ok(fitting)
    }

    /// The values of a tensor that fits.
    pub(super) fn values_of_tensor(
        &self,
        reading: &Reading,
        index: usize,
    ) -> Result<Option<Given>, Diagnostic> {
        let Some(tensor) = self.tensor(index) else {
            return Ok(None);
        };
        Ok(Some(match self.level(reading, tensor) {
            Some(Level::Token) => Given::Tokens(tensor.tokens(self.options.dtype, self.progress)?),
            _ => Given::Responses(tensor.numbers(self.progress)?.into()),
        }))
    }
}
