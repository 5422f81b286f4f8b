//! Makes a batch of the tensors of a padded file: [B] is a response column, [B, T] a token column.

use ndarray::{Array2, ShapeBuilder};

use super::names::{self, Names, REWARDS, Reading, Role};
use super::save::Saved;
use super::tensors::{Reader, Tensor, shape};
use super::{Dtype, Note, Parts, ReadError, ReadOptions};
use crate::batch::layout::Tokens;
use crate::batch::{Batch, BatchBuilder, GroupId, TokenValues};

/// Reads the columns that `tensors` hold. `saved` is there where the file is one of ours.
pub(super) fn read(
    reader: Reader,
    tensors: &[Tensor],
    saved: Option<Saved>,
    options: &ReadOptions,
) -> Result<Parts, ReadError> {
    let fields = tensors.iter().map(|tensor| tensor.name.as_str());
    let names = Names::mapped(reader.path(), options.map, fields)?;
    let mut readings = Vec::new();
    for tensor in tensors {
        let own = match &saved {
            // Our own names stand for themselves: a column may well be called `values`.
            Some(_) => &tensor.name,
            None => names::alias(&tensor.name),
        };
        for reading in names.of(&tensor.name, own) {
            readings.push((reading, tensor));
        }
    }
    let padded = Padded {
        reader,
        dtype: options.dtype,
        saved,
        rows: 0,
        width: None,
        notes: Vec::new(),
    };
    padded.read(&readings)
}

struct Padded<'a> {
    reader: Reader<'a>,
    dtype: Option<Dtype>,
    saved: Option<Saved>,
    /// B.
    rows: usize,
    /// T, and the tensor that says so.
    width: Option<(usize, String)>,
    notes: Vec<Note>,
}

impl Padded<'_> {
    fn read(mut self, readings: &[(Reading, &Tensor)]) -> Result<Parts, ReadError> {
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
            batch = batch.tokens(tokens);
        } else if self.width.is_some() {
            self.notes.push(Note::NoMask);
        }
        let batch = batch.build().map_err(|source| ReadError::Batch {
            path: self.reader.path().to_path_buf(),
            line: None,
            source,
        })?;
        Ok(Parts {
            batch,
            notes: self.notes,
            lines: Vec::new(),
            width: self.width.map(|(width, _)| width),
        })
    }

    fn wrong(&self, tensor: &Tensor, found: String, expected: impl Into<String>) -> ReadError {
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

    fn groups(&mut self, tensor: &Tensor) -> Result<Vec<GroupId>, ReadError> {
        const EXPECTED: &str = "whole numbers or texts [B], one for each response";
        if !matches!(tensor.shape.as_slice(), [_] | [_, 1]) {
            return Err(self.wrong(tensor, tensor.describe(), EXPECTED));
        }
        if matches!(tensor.element, super::element::Element::Text(_)) {
            let texts = self.reader.texts(tensor)?;
            return Ok(texts.into_iter().map(GroupId::from).collect());
        }
        if !tensor.element.is_number() {
            let hint = match tensor.element.name().starts_with("Python objects") {
                true => " (numpy: `np.array(ids).astype(str)` makes texts of objects)",
                false => "",
            };
            return Err(self.wrong(tensor, tensor.describe(), format!("{EXPECTED}{hint}")));
        }
        let mut numbers = Vec::new();
        let mut fraction = None;
        self.reader.pieces(tensor, |bytes| {
            if let Err(value) = tensor.element.push_whole(bytes, &mut numbers) {
                fraction.get_or_insert(value);
            }
            Ok(())
        })?;
        if let Some(value) = fraction {
            return Err(self.wrong(
                tensor,
                format!("{value} at response {}", numbers.len()),
                EXPECTED,
            ));
        }
        let names = self
            .saved
            .as_ref()
            .and_then(|saved| saved.group_names.as_ref());
        let ids = numbers.iter().map(|&number| match names {
            Some(names) => usize::try_from(number)
                .ok()
                .and_then(|at| names.get(at))
                .cloned(),
            None => Some(match i64::try_from(number) {
                Ok(number) => GroupId::Number(number),
                Err(_) => number.to_string().into(),
            }),
        });
        let ids: Option<Vec<GroupId>> = ids.collect();
        ids.ok_or_else(|| {
            let names = names.map_or(0, Vec::len);
            self.wrong(
                tensor,
                "a number beyond its names".to_string(),
                format!("one of the {names} names in the header"),
            )
        })
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
            of_role(Role::Any).filter_map(|(_, tensor)| match tensor.shape.as_slice() {
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

    fn mask(&mut self, tensor: &Tensor) -> Result<Tokens, ReadError> {
        if !tensor.element.is_number() {
            return Err(self.wrong(tensor, tensor.describe(), "numbers or booleans"));
        }
        let (rows, width) = (
            self.rows,
            self.width.as_ref().map_or(0, |(width, _)| *width),
        );
        let mut mask: Vec<bool> = Vec::new();
        let mut wrong = None;
        let mut numbers = Vec::new();
        self.reader.pieces(tensor, |bytes| {
            numbers.clear();
            tensor.element.push_f64(bytes, &mut numbers);
            for &value in &numbers {
                if value != 0.0 && value != 1.0 {
                    wrong.get_or_insert((mask.len(), value));
                }
                mask.push(value == 1.0);
            }
            Ok(())
        })?;
        let place = |row: usize, column: usize| match tensor.fortran {
            true => column * rows + row,
            false => row * width + column,
        };
        if let Some((at, value)) = wrong {
            let (row, column) = match tensor.fortran {
                true => (at % rows, at / rows),
                false => (at / width, at % width),
            };
            return Err(self.wrong(
                tensor,
                format!("{value} at response {row}, token {column}"),
                "1 for a token that counts or 0 for one that does not",
            ));
        }
        let mut tokens = Tokens::padded(width);
        for row in 0..rows {
            tokens.add((0..width).map(|column| mask[place(row, column)]));
        }
        Ok(tokens)
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
        batch: BatchBuilder<'static>,
        reading: &Reading,
        tensor: &Tensor,
        tokens: Option<&Tokens>,
    ) -> Result<BatchBuilder<'static>, ReadError> {
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
                self.leave_out(tensor, "an advantage is what a recipe makes (`--map NAME=...` reads it under another name)");
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
            return Ok(batch.token(&reading.ours, values));
        }
        if self.is_response(tensor, reading.role == Role::Response) {
            let values = self.reader.f64(tensor)?;
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

    fn step(
        &mut self,
        batch: BatchBuilder<'static>,
        tensor: &Tensor,
    ) -> Result<BatchBuilder<'static>, ReadError> {
        if self.saved.is_some() || !tensor.element.is_number() || tensor.shape.len() > 1 {
            self.leave_out(
                tensor,
                format!("the step is one number, and this is {}", tensor.describe()),
            );
            return Ok(batch);
        }
        let steps = self.reader.f64(tensor)?;
        match steps.first() {
            Some(&step) if step >= 0.0 && steps.iter().all(|&other| other == step) => {
                Ok(batch.step(step as u64))
            }
            _ => {
                self.notes.push(Note::Steps { split: false });
                Ok(batch)
            }
        }
    }

    /// A [B, T] tensor in row order.
    fn tokens(&mut self, tensor: &Tensor) -> Result<TokenValues<'static>, ReadError> {
        let dtype = self.dtype.unwrap_or(match tensor.element {
            super::element::Element::F64 => Dtype::F64,
            _ => Dtype::F32,
        });
        match dtype {
            Dtype::F32 => Ok(self.arrange(tensor, Self::f32)?.into()),
            Dtype::F64 => Ok(self.arrange(tensor, Self::f64)?.into()),
        }
    }

    fn f32(&mut self, tensor: &Tensor) -> Result<Vec<f32>, ReadError> {
        self.reader.f32(tensor)
    }

    fn f64(&mut self, tensor: &Tensor) -> Result<Vec<f64>, ReadError> {
        self.reader.f64(tensor)
    }

    fn arrange<T: Clone>(
        &mut self,
        tensor: &Tensor,
        read: impl FnOnce(&mut Self, &Tensor) -> Result<Vec<T>, ReadError>,
    ) -> Result<Array2<T>, ReadError> {
        let values = read(self, tensor)?;
        // `find_width` has seen that there are two sizes.
        let dim = (tensor.shape[0], tensor.shape[1]);
        let array = match tensor.fortran {
            true => Array2::from_shape_vec(dim.f(), values)
                .map(|array| array.as_standard_layout().into_owned()),
            false => Array2::from_shape_vec(dim, values),
        };
        array.map_err(|error| self.wrong(tensor, tensor.describe(), format!("an array ({error})")))
    }

    /// NaN that counts makes every result of its group NaN: better said of the file than of the result.
    fn check_finite(
        &mut self,
        reading: &Reading,
        tensor: &Tensor,
        values: &TokenValues,
        tokens: Option<&Tokens>,
    ) -> Result<(), ReadError> {
        let strays = match values {
            TokenValues::Shared32(array) => strays(array, f32::is_finite, tokens),
            TokenValues::Shared64(array) => strays(array, f64::is_finite, tokens),
            _ => None,
        };
        let Some((count, row, column)) = strays else {
            return Ok(());
        };
        let first = format!("response {row}, token {column}");
        if reading.role == Role::Token && self.saved.is_none() {
            let value = match values {
                TokenValues::Shared32(array) => f64::from(array[[row, column]]),
                TokenValues::Shared64(array) => array[[row, column]],
                _ => f64::NAN,
            };
            return Err(self.wrong(
                tensor,
                format!("{value} at {first}"),
                "a finite number where the mask is 1",
            ));
        }
        self.notes.push(Note::NotFinite {
            column: reading.ours.clone(),
            first,
            count,
        });
        Ok(())
    }
}

/// How many values that count are not finite, and the row and column of the first.
fn strays<T: Copy>(
    array: &ndarray::ArcArray2<T>,
    finite: impl Fn(T) -> bool,
    tokens: Option<&Tokens>,
) -> Option<(usize, usize, usize)> {
    let mut first = None;
    let mut count = 0;
    let mut look = |row: usize, start: usize, values: &[T]| {
        for (column, &value) in values.iter().enumerate() {
            if !finite(value) {
                first.get_or_insert((row, start + column));
                count += 1;
            }
        }
    };
    for (row, values) in array.rows().into_iter().enumerate() {
        let Some(values) = values.to_slice() else {
            continue;
        };
        match tokens {
            None => look(row, 0, values),
            Some(tokens) => {
                for run in tokens.runs(row) {
                    look(row, run.start as usize, &values[run.columns()]);
                }
            }
        }
    }
    first.map(|(row, column)| (count, row, column))
}
