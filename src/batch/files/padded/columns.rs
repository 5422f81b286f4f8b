//! Makes a batch of the tensors of a padded file: [B] is a response column, [B, T] a token column.

use std::collections::HashMap;
use std::path::Path;

use super::element::Element;
use super::mask;
use super::save::Saved;
use super::tensors::{Reader, Tensor, shape};
use crate::batch::files::names::{self, ADVANTAGE, Names, REWARDS, Reading, Role};
use crate::batch::files::{Dtype, Note, Origin, Parts, ReadError, ReadOptions};
use crate::batch::layout::Tokens;
use crate::batch::{Batch, BatchBuilder};

/// Reads the columns that `tensors` hold. `saved` is there where the file is one of ours.
pub(super) fn read(
    reader: Reader,
    tensors: Vec<Tensor>,
    saved: Option<Saved>,
    options: &ReadOptions,
) -> Result<Parts, ReadError> {
    let fields = tensors.iter().map(|tensor| tensor.name.as_str());
    let names = Names::mapped(reader.path(), options.map, fields)?;
    let mut padded = Padded {
        reader,
        dtype: options.dtype,
        saved,
        rows: 0,
        width: None,
        wide: false,
        notes: Vec::new(),
    };
    let mut readings = Vec::new();
    for tensor in &tensors {
        let own = match &padded.saved {
            // Our own names stand for themselves: a column may well be called `values`.
            Some(_) => &tensor.name,
            None => names::alias(&tensor.name),
        };
        padded.notes.extend(names.shadowed(&tensor.name, own));
        let of = names.of(&tensor.name, own).into_iter();
        readings.extend(of.map(|reading| (reading, tensor)));
    }
    one_each(padded.reader.path(), &readings)?;
    let batch = padded.read(&readings)?;
    padded.reader.finish();
    Ok(Parts {
        batch,
        notes: padded.notes,
        origin: Origin::Tensors {
            wide: match options.dtype {
                Some(dtype) => dtype == Dtype::F64,
                None => padded.wide,
            },
            width: padded.width.map(|(width, _)| width),
            tensors,
        },
    })
}

/// A file while its tensors become columns.
pub(super) struct Padded<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) dtype: Option<Dtype>,
    pub(super) saved: Option<Saved>,
    /// B.
    pub(super) rows: usize,
    /// T, and the tensor that says so.
    pub(super) width: Option<(usize, String)>,
    /// Whether a response column is f64.
    pub(super) wide: bool,
    pub(super) notes: Vec<Note>,
}

/// Makes sure that no two tensors are one column.
fn one_each(path: &Path, readings: &[(Reading, &Tensor)]) -> Result<(), ReadError> {
    let mut seen: HashMap<&str, &Tensor> = HashMap::new();
    for (reading, tensor) in readings {
        // An advantage becomes no column.
        if reading.ours == "advantage" {
            continue;
        }
        if let Some(first) = seen.insert(&reading.ours, tensor) {
            return Err(ReadError::TwoTensors {
                path: path.to_path_buf(),
                ours: reading.ours.clone(),
                first: first.name.clone(),
                second: tensor.name.clone(),
            });
        }
    }
    Ok(())
}

impl Padded<'_> {
    fn read(&mut self, readings: &[(Reading, &Tensor)]) -> Result<Batch, ReadError> {
        let find = |ours: &str| readings.iter().find(|(reading, _)| reading.ours == ours);
        let all = readings.iter().map(|(_, tensor)| tensor.name.as_str());
        let Some((_, group)) = find("group") else {
            return Err(ReadError::NoGroup {
                path: self.reader.path().to_path_buf(),
                wanted: "tensor `index` (or `group`) [B]",
                hint: names::group_hint(all),
            });
        };
        if REWARDS.iter().all(|ours| find(ours).is_none()) {
            return Err(ReadError::NoReward {
                path: self.reader.path().to_path_buf(),
                wanted: "tensor `token_level_rewards` (or `token_reward`) [B, T], `rewards` (or `reward`) [B], or `correct` [B]",
                hint: names::reward_hint(all),
            });
        }
        let groups = self.groups(group)?;
        self.rows = groups.len();
        self.find_width(readings)?;
        let tokens = match find("mask") {
            Some((_, mask)) => Some(self.mask(mask)?),
            None => None,
        };
        let mut batch = Batch::builder().groups(groups);
        batch = batch.step(self.saved.as_ref().map_or(0, |saved| saved.step));
        for (reading, tensor) in readings {
            batch = self.column(batch, reading, tensor, tokens.as_ref())?;
        }
        if let Some(tokens) = tokens {
            self.notes.extend(mask::no_tokens(&tokens));
            batch = batch.tokens(tokens);
        } else if self.width.is_some() {
            let hint = mask::hint(
                readings,
                self.rows,
                self.width.as_ref().map(|(width, _)| *width),
            );
            self.notes.push(Note::NoMask { hint });
        }
        batch.build().map_err(|source| ReadError::Batch {
            path: self.reader.path().to_path_buf(),
            line: None,
            source,
        })
    }

    pub(super) fn wrong(
        &self,
        tensor: &Tensor,
        found: String,
        expected: impl Into<String>,
    ) -> ReadError {
        ReadError::Tensor {
            path: self.reader.path().to_path_buf(),
            tensor: tensor.name.clone(),
            found,
            expected: expected.into(),
        }
    }

    /// Whether a tensor has one value a response; `[B, 1]` will do for a column that we know.
    fn is_response(&self, tensor: &Tensor, known: bool) -> bool {
        match tensor.shape.as_slice() {
            [rows] => *rows == self.rows,
            [rows, 1] => known && *rows == self.rows,
            _ => false,
        }
    }

    /// T is that of the mask, or of the token columns.
    fn find_width(&mut self, readings: &[(Reading, &Tensor)]) -> Result<(), ReadError> {
        let of_role = |role: Role| {
            readings
                .iter()
                .filter(move |(reading, _)| reading.role == role)
        };
        for (reading, tensor) in of_role(Role::Mask).chain(of_role(Role::Token)) {
            match (tensor.shape.as_slice(), &self.width) {
                (&[rows, width], None) if rows == self.rows => {
                    self.width = Some((width, tensor.name.clone()));
                }
                (&[rows, width], Some((known, _))) if (rows, width) == (self.rows, *known) => {}
                (_, known) => {
                    let expected = match known {
                        Some((width, from)) => {
                            format!("{}, as `{from}` is", shape(&[self.rows, *width]))
                        }
                        None => format!("[{}, T], a value for each token", self.rows),
                    };
                    let hint = match (reading.ours.as_str(), tensor.shape.len()) {
                        ("token_reward", 1) => "; a reward for the whole response is `reward`",
                        _ => "",
                    };
                    return Err(self.wrong(tensor, tensor.describe(), expected + hint));
                }
            }
        }
        if self.width.is_some() {
            return Ok(());
        }
        let mut widths =
            of_role(Role::Any).filter_map(|(reading, tensor)| match tensor.shape.as_slice() {
                // An advantage becomes no column, and so says nothing about the tokens.
                _ if reading.ours == "advantage" => None,
                &[rows, width] if rows == self.rows && tensor.element.is_number() => {
                    Some((width, tensor))
                }
                _ => None,
            });
        if let Some((width, first)) = widths.next()
            && widths.all(|(other, _)| other == width)
        {
            self.width = Some((width, first.name.clone()));
        }
        Ok(())
    }

    fn leave_out(&mut self, tensor: &Tensor, why: impl Into<String>) {
        self.notes.push(Note::LeftOut {
            field: tensor.name.clone(),
            why: why.into(),
        });
    }

    /// Adds a tensor to the batch, as what its name and its shape make it.
    fn column(
        &mut self,
        batch: BatchBuilder,
        reading: &Reading,
        tensor: &Tensor,
        tokens: Option<&Tokens>,
    ) -> Result<BatchBuilder, ReadError> {
        let number = tensor.element.is_number();
        let width = self.width.as_ref().map(|(width, _)| *width);
        let is_token = width.is_some_and(|width| tensor.shape == [self.rows, width]);
        match reading.role {
            Role::Group | Role::Mask => return Ok(batch),
            Role::Token | Role::Response if !number => {
                return Err(self.wrong(tensor, tensor.describe(), "numbers"));
            }
            Role::Response if !self.is_response(tensor, true) => {
                let hint = match (reading.ours.as_str(), tensor.shape.len()) {
                    ("reward", 2) => format!(
                        "; a reward for each token is `token_reward` (`--map token_reward={}`)",
                        tensor.name
                    ),
                    _ => String::new(),
                };
                let expected = format!("[{}], one value for each response{hint}", self.rows);
                return Err(self.wrong(tensor, tensor.describe(), expected));
            }
            Role::Any if reading.ours == "advantage" => {
                self.leave_out(tensor, ADVANTAGE);
                return Ok(batch);
            }
            Role::Any
                if reading.asked && !(number && (is_token || self.is_response(tensor, false))) =>
            {
                let expected = format!("numbers [{}] or [{}, T]", self.rows, self.rows);
                return Err(self.wrong(tensor, tensor.describe(), expected));
            }
            Role::Step => return self.step(batch, tensor),
            Role::Completion => {
                self.leave_out(tensor, "texts are read from JSONL alone");
                return Ok(batch);
            }
            _ if !number => {
                self.leave_out(tensor, format!("it is {}", tensor.describe()));
                return Ok(batch);
            }
            _ => {}
        }
        if is_token && reading.role != Role::Response {
            let values = self.tokens(tensor)?;
            self.check_finite(reading, tensor, &values, tokens)?;
            if reading.ours == "token_reward"
                && let Some(tokens) = tokens
            {
                self.notes
                    .extend(mask::masked_reward(tensor, &values, tokens));
            }
            return Ok(batch.token(&reading.ours, values));
        }
        if self.is_response(tensor, reading.role == Role::Response) {
            let values = self.reader.f64(tensor)?;
            self.wide |= tensor.element == Element::F64;
            return Ok(batch.response(&reading.ours, values));
        }
        let sizes = match width {
            Some(width) => format!("[{}] or {}", self.rows, shape(&[self.rows, width])),
            None => format!("[{}]", self.rows),
        };
        self.leave_out(
            tensor,
            format!("it is {}, and columns are {sizes}", shape(&tensor.shape)),
        );
        Ok(batch)
    }

    fn step(&mut self, batch: BatchBuilder, tensor: &Tensor) -> Result<BatchBuilder, ReadError> {
        if self.saved.is_some() || !tensor.element.is_number() || tensor.shape.len() > 1 {
            self.leave_out(
                tensor,
                format!("the step is one number, and this is {}", tensor.describe()),
            );
            return Ok(batch);
        }
        let steps = self.reader.f64(tensor)?;
        if let Some(at) = steps.iter().position(|&step| names::step(step).is_none()) {
            let found = match tensor.shape.is_empty() {
                true => steps[at].to_string(),
                false => format!("{} at response {at}", steps[at]),
            };
            return Err(self.wrong(tensor, found, names::STEP));
        }
        match steps.first().copied().and_then(names::step) {
            Some(step) if steps.iter().all(|&other| other == steps[0]) => Ok(batch.step(step)),
            _ => {
                self.notes.push(Note::Steps { split: false });
                Ok(batch)
            }
        }
    }
}
