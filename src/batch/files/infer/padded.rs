//! Tensors: [B] is a response column and [B, T] a token column, where B is that of the groups and T that of the mask.

use super::{Inference, MASK};
use crate::batch::column::Given;
use crate::batch::files::Dtype;
use crate::batch::files::names::{Reading, Role};
use crate::batch::files::npy;
use crate::batch::files::raw::{Header, Values};
use crate::batch::files::tensor::{Info, Kind, Tensor, shape};
use crate::batch::layout::Tokens;
use crate::batch::{GroupId, Level};
use crate::diagnostic::Diagnostic;

impl Inference<'_> {
    fn wrong_tensor(&self, info: &Info, expected: impl Into<String>) -> Diagnostic {
        let found = info.describe();
        self.raw.wrong(&info.name, None, None, found, expected)
    }

    /// All tensors that have a name of ours.
    fn tensors(&self) -> impl Iterator<Item = (&Reading, &Info)> {
        let readings = self.readings.iter();
        readings.filter_map(|(reading, index)| match &self.raw.columns[*index].values {
            Values::Tensor(tensor) => Some((reading, &tensor.info)),
            _ => None,
        })
    }

    /// The group of each response: whole numbers, strings, or indices in a list of names.
    pub(super) fn groups_of_tensor(
        &self,
        reading: &Reading,
        tensor: &Tensor,
    ) -> Result<Vec<GroupId>, Diagnostic> {
        const EXPECTED: &str = "whole numbers or strings [B], one for each response";
        let info = &tensor.info;
        let is_unread_string = |name: &String| {
            let mut unread = npy::UNREAD_STRINGS.iter();
            unread.any(|unread| name.starts_with(unread))
        };
        match (info.shape.as_slice(), &info.kind) {
            ([_] | [_, 1], Kind::String(_)) => {
                let strings = tensor.strings(self.progress)?;
                return Ok(strings.into_iter().map(GroupId::from).collect());
            }
            ([_] | [_, 1], _) if info.is_number() => {}
            ([_] | [_, 1], Kind::Other(name)) if is_unread_string(name) => {
                let help = "numpy: `np.array(ids).astype(str)` makes strings of them";
                return Err(self.wrong_tensor(info, EXPECTED).with_help(help));
            }
            _ => return Err(self.wrong_tensor(info, EXPECTED)),
        }
        let wrong = |response, found: String| {
            let name = &reading.theirs;
            self.raw.wrong(name, response, None, found, EXPECTED)
        };
        let ids = tensor
            .ids(self.progress)?
            .map_err(|(response, value)| wrong(Some(response), value.to_string()))?;
        let Header::Saved {
            group_names: Some(names),
            ..
        } = &self.raw.header
        else {
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
        let Some((reading, index)) = self.find("mask") else {
            let hint = self.mask_hint(width);
            self.notes
                .add(format!("there is no mask: all tokens count{hint}"));
            let mut tokens = Tokens::new(Some(width));
            (0..self.responses).for_each(|_| tokens.add_full(width));
            self.tokens = Some(tokens);
            return Ok(());
        };
        if let Values::Tensor(tensor) = &self.raw.columns[index].values {
            let tokens = tensor.mask(self.progress)?;
            self.tokens = Some(tokens.map_err(|(response, token, value)| {
                let (name, found) = (&reading.theirs, value.to_string());
                self.raw
                    .wrong(name, Some(response), Some(token), found, MASK)
            })?);
        }
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
                (_, Some((known, from))) => format!("{}, as `{from}` is", shape(&[rows, *known])),
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
        let mut others = of_role(Role::Any)
            .filter(|(reading, info)| reading.ours != "advantage" && info.is_number())
            .filter_map(|(_, info)| match info.shape.as_slice() {
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
        let Some(Info {
            name, shape: of, ..
        }) = candidate
        else {
            return String::new();
        };
        match of[1].checked_sub(width) {
            Some(0) => {
                format!("; if `{name}` says which tokens of a response do, say `--map mask={name}`")
            }
            Some(prompt) => format!(
                "; `{name}` is {}, {prompt} wider than the responses: if it is of prompt and response, as verl's is, its last {width} columns are the mask (`{name}[:, -{width}:]`, to be added to the file as `response_mask`)",
                shape(of)
            ),
            None => String::new(),
        }
    }

    /// The level of a tensor as a column, by its name and its shape.
    fn level(&self, reading: &Reading, info: &Info) -> Option<Level> {
        let width = self.width.as_ref().map(|(width, _)| *width);
        match *info.shape.as_slice() {
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
            let Values::Tensor(Tensor { info, .. }) = &self.raw.columns[index].values else {
                continue;
            };
            let level = self.level(&reading, info).filter(|_| info.is_number());
            if let Some(level) = level {
                let is_f64 = match self.options.dtype {
                    Some(dtype) => dtype == Dtype::F64,
                    None => info.is_f64(),
                };
                if level == Level::Response {
                    self.is_f64 |= info.is_f64() && self.options.dtype.is_none();
                } else if !self.raw.names.wants(&reading) {
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
                        Some((width, _)) => format!("[{rows}] or {}", shape(&[rows, *width])),
                        None => format!("[{rows}]"),
                    };
                    let why = if info.is_number() {
                        format!("it is {}, and columns are {sizes}", shape(&info.shape))
                    } else {
                        format!("it is {}", info.describe())
                    };
                    self.notes.left_out(&info.name, &why);
                    continue;
                }
            };
            let error = self.wrong_tensor(info, expected);
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
    pub(super) fn tensor(
        &self,
        reading: &Reading,
        index: usize,
    ) -> Result<Option<Given>, Diagnostic> {
        let Values::Tensor(tensor) = &self.raw.columns[index].values else {
            return Ok(None);
        };
        Ok(Some(match self.level(reading, &tensor.info) {
            Some(Level::Token) => Given::Tokens(tensor.tokens(self.options.dtype, self.progress)?),
            _ => Given::Responses(tensor.numbers(self.progress)?.into()),
        }))
    }
}
