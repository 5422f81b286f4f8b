//! The tokens that count: how many each response has, and which columns agree with that number.

use std::sync::Arc;

use super::columns::{Bound, Columns};
use crate::batch::layout::Tokens;
use crate::diagnostic::Diagnostic;
use crate::files::padded;
use crate::files::place::Result;
use crate::files::schema::{Reading, Role};
use crate::files::table::{ColumnData, FileColumn};
use crate::files::words::Tokenize;

const MASK: &str = "1 for a token that counts, 0 for a token that does not";

/// The tokens of each response; the field that gave their number; and, if they were counted in a text, the unit (words or
/// tokens).
type Lengths = (Tokens, String, Option<&'static str>);

/// The tokens that count, found from the mask or a known token column, from `length` or the words of the completion, or from
/// unknown columns, if these agree. A column with other lengths is an error if it is known, and is skipped otherwise.
pub(super) fn tokens(
    columns: &mut Columns,
    tokenizer: Option<&Arc<dyn Tokenize>>,
    all: &[Arc<FileColumn>],
) -> Result<Option<Tokens>> {
    let arrays = std::mem::take(&mut columns.arrays);
    let mask = arrays.iter().find(|bound| bound.reading.role == Role::Mask);
    let known = arrays.iter().find(|bound| bound.is_known());
    let lengths = match (mask, known) {
        (Some(mask), _) => Some((mask_of(columns, mask)?, mask.column.name.clone(), None)),
        (None, Some(known)) => Some(lengths_of(columns, known)),
        _ if columns.place.has_lines() => {
            let counted = counted_lengths(columns, tokenizer);
            counted.or_else(|| lengths_of_unknown(columns, &arrays))
        }
        // In padded files, unknown tensors come first, because their width is T.
        _ => {
            let unknown = lengths_of_unknown(columns, &arrays);
            unknown.or_else(|| counted_lengths(columns, tokenizer))
        }
    };
    let is_tensor = |bound: &Bound| matches!(bound.column.data, ColumnData::Tensor(_));
    let (has_mask, has_tensors) = (mask.is_some(), arrays.iter().any(is_tensor));
    for bound in arrays {
        match misfit(columns, lengths.as_ref(), &bound)? {
            Some(why) => columns.left_out(&bound.reading.theirs, &why),
            None => columns.arrays.push(bound),
        }
    }
    let Some((tokens, ..)) = lengths else {
        return Ok(None);
    };
    columns.is_padded = has_tensors && tokens.responses() > 0;
    if columns.is_padded && !has_mask {
        let hint = mask_hint(all, tokens.row_length(0));
        columns
            .notes
            .push(format!("there is no mask: all tokens count{hint}"));
    }
    Ok(Some(tokens))
}

/// The reason why a column does not have a value for each token; an error if the column is known.
fn misfit(columns: &Columns, lengths: Option<&Lengths>, bound: &Bound) -> Result<Option<String>> {
    let Some((tokens, from, counted)) = lengths else {
        let why = "nothing says how many tokens a response has (`mask`, `length`)";
        return Ok(Some(why.to_string()));
    };
    let Some(at) = bound.differs(tokens) else {
        return Ok(None);
    };
    let (field, name) = (&bound.reading.theirs, columns.place.name_of(at));
    let (found, length) = (bound.length(at), tokens.row_length(at));
    if bound.is_known() {
        let place = match columns.place.has_lines() {
            true => String::new(),
            false => format!("{name}: "),
        };
        let what = format!(
            "{place}`{field}` has {found} tokens, `{from}` has {length}; all token arrays of a response must have the same length"
        );
        return Err(columns.place.error(Some(at), Diagnostic::error(what)));
    }
    Ok(Some(match counted {
        Some(what) if found > 0 => format!(
            "it has {found} numbers in {name}, where `{from}` has {length} {what} (`--map {field}={field}` makes it the array that says how many tokens a response has)"
        ),
        _ => format!("it has {found} numbers in {name}, where `{from}` says {length} tokens"),
    }))
}

/// The lengths that a column has: each of its values belongs to a token that counts.
fn lengths_of(columns: &Columns, bound: &Bound) -> Lengths {
    let lengths = (0..columns.responses).map(|response| bound.length(response));
    (Tokens::full(lengths), bound.column.name.clone(), None)
}

/// The lengths from `length` or from the words of completions.
fn counted_lengths(
    columns: &mut Columns,
    tokenizer: Option<&Arc<dyn Tokenize>>,
) -> Option<Lengths> {
    if let Some(bound) = columns.find("length") {
        // Other data are skipped here, because the builder of the batch reads tensors and refuses all other data.
        let ColumnData::Numbers(lengths) = &bound.column.data else {
            return None;
        };
        let is_length =
            |length: &f64| length.fract() == 0.0 && (0.0..=u32::MAX.into()).contains(length);
        let from = bound.reading.theirs.clone();
        let whole = lengths.iter().map(|&length| length as usize);
        let is_right = lengths.iter().all(is_length);
        return is_right.then(|| (Tokens::full(whole), from, None));
    }
    let Bound { reading, column } = columns.counted.take()?;
    let ColumnData::Texts(_, counts) = &column.data else {
        return None;
    };
    let (from, counts) = (reading.theirs, counts.iter().map(|&count| count as usize));
    let tokens = Tokens::full(counts);
    let (what, by) = match tokenizer {
        Some(tokenizer) => ("tokens", format!(", by {}", tokenizer.name())),
        None => ("words", String::new()),
    };
    if what == "words" {
        columns.unit = "word";
    }
    columns.notes.push(format!("the length of a response is the number of {what} in `{from}`{by}: there is no `length` and no token array"));
    // From here on, these counts are the column `length`.
    let reading = Reading::new("length", &from, false);
    columns.numbers.push(Bound { reading, column });
    Some((tokens, from, Some(what)))
}

/// The lengths of unknown arrays, if they agree. An array that is empty for a response (errors, for example) does not prove that
/// the response has no tokens; neither does an older advantage, which may belong to another batch.
fn lengths_of_unknown(columns: &mut Columns, arrays: &[Bound]) -> Option<Lengths> {
    let (responses, are_lines) = (columns.responses, columns.place.has_lines());
    let full = arrays.iter().filter(|bound| {
        let is_old = !are_lines && bound.reading.ours == "advantage";
        !is_old && (0..responses).all(|at| bound.length(at) > 0)
    });
    let first = full.clone().next().map(|bound| lengths_of(columns, bound));
    let lengths = first.filter(|(tokens, ..)| {
        let mut all = full.clone();
        all.all(|bound| bound.differs(tokens).is_none())
    });
    match (&lengths, columns.no_length.take()) {
        (Some((_, from, _)), _) if are_lines => columns.notes.push(format!(
            "the length of a response is the length of its array `{from}`: there is no `mask`, no `length`, no known token array and no `completion`"
        )),
        (None, Some((field, why))) => columns.notes.push(format!(
            "no response has a length: `{field}` does not give the lengths ({why}), and there is no `length` and no token array"
        )),
        _ => {}
    }
    lengths
}

fn mask_of(columns: &Columns, bound: &Bound) -> Result<Tokens> {
    let wrong = |(response, token, value): (usize, usize, f64)| {
        let (at, found) = ((Some(response), Some(token)), value.to_string());
        columns.place.wrong(&bound.reading.theirs, at, found, MASK)
    };
    let lists = match &bound.column.data {
        ColumnData::Tensor(tensor) => return padded::mask(tensor)?.map_err(wrong),
        ColumnData::Lists(lists) => lists,
        _ => unreachable!("a column of tokens has arrays"),
    };
    let mut tokens = Tokens::new(columns.responses);
    for response in 0..columns.responses {
        let added = tokens.add(lists.row(response));
        added.map_err(|(token, value)| wrong((response, token, value)))?;
    }
    Ok(tokens)
}

/// Help that names the tensor which may be the mask, in a file where no tensor has a known name for a mask.
fn mask_hint(all: &[Arc<FileColumn>], width: usize) -> String {
    let mask = all.iter().find_map(|column| match &column.data {
        ColumnData::Tensor(tensor) if column.name.contains("mask") => Some(tensor),
        _ => None,
    });
    match mask.map(|tensor| (tensor.shape.get(1), &tensor.name)) {
        Some((Some(&found), name)) if found == width => {
            format!("; if `{name}` says which tokens count, say `--map mask={name}`")
        }
        // The tensor may cover prompt and response, as verl's attention mask does.
        Some((Some(&found), name)) if found > width => format!(
            "; if the end of `{name}` says which tokens count, add `{name}[:, -{width}:]` to the file as `response_mask`"
        ),
        _ => String::new(),
    }
}
