//! Tensors: [B] is a response column and [B, T] a token column, where B is that of the groups and T that of the mask.

use super::{Cells, Given, Inference};
use crate::batch::GroupId;
use crate::batch::files::names::{Reading, Role};
use crate::batch::files::npy;
use crate::batch::files::raw::{Header, Values};
use crate::batch::files::tensor::{Info, Kind, Tensor, shape};
use crate::batch::layout::Tokens;
use crate::diagnostic::Diagnostic;

impl Inference<'_> {
    fn wrong_tensor(&self, tensor: &Tensor, expected: impl Into<String>) -> Diagnostic {
        let (name, found) = (&tensor.info.name, tensor.describe());
        self.raw.wrong(name, None, None, found, expected)
    }

    /// All tensors that have a name of ours.
    fn tensors(&self) -> impl Iterator<Item = (&Reading, &Tensor)> {
        let readings = self.readings.iter();
        readings.filter_map(|(reading, index)| match &self.raw.columns[*index].values {
            Values::Tensor(tensor) => Some((reading, tensor)),
            _ => None,
        })
    }

    /// The group of each response: whole numbers, strings, or indices in a list of names.
    pub(super) fn groups_of_tensor(
        &mut self,
        reading: &Reading,
        tensor: &Tensor,
    ) -> Result<Vec<GroupId>, Diagnostic> {
        const EXPECTED: &str = "whole numbers or strings [B], one for each response";
        let info = &tensor.info;
        if !matches!(info.shape.as_slice(), [_] | [_, 1]) {
            return Err(self.wrong_tensor(tensor, EXPECTED));
        }
        match &info.kind {
            Kind::String(_) => {
                let strings = tensor.strings(self.progress)?;
                return Ok(strings.into_iter().map(GroupId::from).collect());
            }
            Kind::Other(name)
                if npy::UNREAD_STRINGS
                    .iter()
                    .any(|unread| name.starts_with(unread)) =>
            {
                let error = self.wrong_tensor(tensor, EXPECTED);
                return Err(
                    error.with_help("numpy: `np.array(ids).astype(str)` makes strings of them")
                );
            }
            _ if !info.is_number() => return Err(self.wrong_tensor(tensor, EXPECTED)),
            _ => {}
        }
        let wrong = |response, found: String| {
            Err(self
                .raw
                .wrong(&reading.theirs, response, None, found, EXPECTED))
        };
        let ids = match tensor.ids(self.progress)? {
            Ok(ids) => ids,
            Err((response, value)) => return wrong(Some(response), value.to_string()),
        };
        let Header::Saved {
            group_names: Some(names),
            ..
        } = &self.raw.header
        else {
            return Ok(ids);
        };
        let named = ids.iter().map(|id| match id {
            GroupId::Number(number) => names.get(usize::try_from(*number).ok()?).cloned(),
            GroupId::Text(_) => None,
        });
        let named: Option<Vec<GroupId>> = named.collect();
        let beyond = format!("a number beyond the {} names in the header", names.len());
        named.map_or_else(|| wrong(None, beyond), Ok)
    }

    /// Finds T and which tokens count.
    pub(super) fn padded_tokens(&mut self) -> Result<(), Diagnostic> {
        self.find_width()?;
        let Some((width, _)) = self.width else {
            return Ok(());
        };
        let Some((reading, index)) = self.find("mask") else {
            let hint = self.mask_hint(width);
            self.notes
                .add(format!("there is no mask: all tokens count{hint}"));
            let mut tokens = Tokens::padded(width);
            (0..self.responses).for_each(|_| tokens.add_full(width));
            self.tokens = Some(tokens);
            return Ok(());
        };
        let Values::Tensor(tensor) = &self.raw.columns[index].values else {
            return Ok(());
        };
        match tensor.mask(self.progress)? {
            Ok(tokens) => self.tokens = Some(tokens),
            Err((response, token, value)) => {
                let expected = "1 for a token that counts or 0 for one that does not";
                let (response, token) = (Some(response), Some(token));
                let found = value.to_string();
                return Err(self
                    .raw
                    .wrong(&reading.theirs, response, token, found, expected));
            }
        }
        Ok(())
    }

    /// T is that of the mask, or of the token columns.
    fn find_width(&mut self) -> Result<(), Diagnostic> {
        let rows = self.responses;
        let mut width: Option<(usize, String)> = None;
        let of_role = |role: Role| {
            self.tensors()
                .filter(move |(reading, _)| reading.role == role)
        };
        for (reading, tensor) in of_role(Role::Mask).chain(of_role(Role::Token)) {
            match (tensor.info.shape.as_slice(), &width) {
                (&[found, columns], None) if found == rows => {
                    width = Some((columns, tensor.info.name.clone()));
                }
                (&[found, columns], Some((known, _))) if (found, columns) == (rows, *known) => {}
                (_, known) => {
                    let expected = match known {
                        Some((width, from)) => {
                            format!("{}, as `{from}` is", shape(&[rows, *width]))
                        }
                        None => format!("[{rows}, T], a value for each token"),
                    };
                    let error = self.wrong_tensor(tensor, expected);
                    return Err(match (reading.ours.as_str(), tensor.info.shape.len()) {
                        ("token_reward", 1) => {
                            error.with_help("a reward for the whole response is `reward`")
                        }
                        _ => error,
                    });
                }
            }
        }
        if width.is_none() {
            let mut widths = of_role(Role::Any).filter_map(|(reading, tensor)| {
                match tensor.info.shape.as_slice() {
                    // An older advantage, perhaps of another batch, says nothing about the tokens.
                    _ if reading.ours == "advantage" => None,
                    &[found, width] if found == rows && tensor.info.is_number() => {
                        Some((width, tensor))
                    }
                    _ => None,
                }
            });
            if let Some((first, tensor)) = widths.next()
                && widths.all(|(other, _)| other == first)
            {
                width = Some((first, tensor.info.name.clone()));
            }
        }
        self.width = width;
        Ok(())
    }

    /// The tensor that may be the mask of a file that has none by our names, and what to do.
    fn mask_hint(&self, width: usize) -> String {
        // The masks that trainers call by name come first; `attention_mask` may mark the prompt too.
        let likely = "completion_mask action_mask loss_mask loss_masks attention_mask";
        let masks = || {
            let tensors = self.tensors().map(|(_, tensor)| &tensor.info);
            tensors.filter(|info| {
                info.is_number() && info.shape.len() == 2 && info.shape[0] == self.responses
            })
        };
        let mut likely = likely.split(' ');
        let candidate = likely
            .find_map(|name| masks().find(|info| info.name == name))
            .or_else(|| masks().find(|info| info.name.contains("mask")));
        let Some(Info {
            name, shape: sizes, ..
        }) = candidate
        else {
            return String::new();
        };
        match sizes[1].checked_sub(width) {
            Some(0) => {
                format!("; if `{name}` says which tokens of a response do, say `--map mask={name}`")
            }
            Some(prompt) => format!(
                "; `{name}` is {}, {prompt} wider than the responses: if it is of prompt and response, as verl's is, its last {width} columns are the mask (`{name}[:, -{width}:]`, to be added to the file as `response_mask`)",
                shape(sizes)
            ),
            None => String::new(),
        }
    }

    /// A tensor as a column, as what its name and its shape make it.
    pub(super) fn tensor(
        &mut self,
        reading: &Reading,
        tensor: &Tensor,
    ) -> Result<Given, Diagnostic> {
        let info = &tensor.info;
        let rows = self.responses;
        let width = self.width.as_ref().map(|(width, _)| *width);
        let is_token = width.is_some_and(|width| info.shape == [rows, width]);
        // [B, 1] will do for a column that we know.
        let is_response = match info.shape.as_slice() {
            [found] => *found == rows,
            [found, 1] => reading.role == Role::Response && *found == rows,
            _ => false,
        };
        match reading.role {
            Role::Token | Role::Response if !info.is_number() => {
                return Err(self.wrong_tensor(tensor, "numbers"));
            }
            Role::Response if !is_response => {
                let error =
                    self.wrong_tensor(tensor, format!("[{rows}], one value for each response"));
                return Err(match (reading.ours.as_str(), info.shape.len()) {
                    ("reward", 2) => error.with_help(format!(
                        "a reward for each token is `token_reward`: `--map token_reward={}`",
                        info.name
                    )),
                    _ => error,
                });
            }
            Role::Any if reading.asked && !(info.is_number() && (is_token || is_response)) => {
                return Err(self.wrong_tensor(tensor, format!("numbers [{rows}] or [{rows}, T]")));
            }
            _ if !info.is_number() => {
                self.notes
                    .left_out(&info.name, &format!("it is {}", tensor.describe()));
                return Ok(Given::Nothing);
            }
            _ => {}
        }
        if is_token && reading.role != Role::Response {
            let values = tensor.tokens(self.options.dtype, self.progress)?;
            return Ok(Given::Tokens(Cells::Padded(values)));
        }
        if is_response {
            self.is_f64 |= info.is_f64() && self.options.dtype.is_none();
            return Ok(Given::Responses(tensor.numbers(self.progress)?));
        }
        let sizes = match width {
            Some(width) => format!("[{rows}] or {}", shape(&[rows, width])),
            None => format!("[{rows}]"),
        };
        let why = format!("it is {}, and columns are {sizes}", shape(&info.shape));
        self.notes.left_out(&info.name, &why);
        Ok(Given::Nothing)
    }
}
