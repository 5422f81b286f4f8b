//! The same rollouts in another kind of file.

use std::io;
use std::path::Path;

use super::format::{Format, is_parquet};
use super::open;
use super::parquet;
use super::replace::{Replacement, cannot_be_written};
use super::{Progress, ReadOptions, cannot_be_read, read};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// Writes the rollouts of `input` to `output`, in the format that its name gives, and returns notes on what changed.
///
/// Lines of JSON, compressed or not, and rows of parquet can hold any fields. Tensors hold a batch: converting to and from
/// them keeps groups, texts, the columns of responses and of tokens that count, and the step.
///
/// # Errors
/// The input cannot be read, or the output cannot be written; an existing file at `output` then stays unchanged.
pub fn convert(
    input: impl AsRef<Path>,
    output: impl AsRef<Path>,
    options: &ReadOptions,
) -> Result<Vec<Diagnostic>, Diagnostics> {
    let (input, output) = (input.as_ref(), output.as_ref());
    let from = Format::of(input)?;
    let Some(to) = Format::named(output) else {
        let error = Diagnostic::error("its name has no ending that says what to write");
        let help = format!("{} are known", Format::endings(|_| true));
        return Err(error.in_file(output).with_help(help).into());
    };
    let are_lines = from == Format::Lines && to == Format::Lines;
    if are_lines && !options.map.is_empty() {
        let error = Diagnostic::error("fields of lines keep their names where they become lines");
        let help = "`--map` names what becomes tensors; `apply` and `repl` take it for lines too";
        return Err(error.in_file(input).with_help(help).into());
    }
    let mut file = Replacement::new(output)?;
    let failed = |error: io::Error| cannot_be_written(output, &error);
    let mut notes = Vec::new();
    if are_lines && is_parquet(input) && is_parquet(output) {
        parquet::write_copy(input, &[], |_| Vec::new(), &mut file)?;
    } else if are_lines {
        let progress = Progress::new(options.progress);
        let changes = open::write_lines(output, &mut file, |mut out| {
            let lines = open::lines(input, &progress);
            let copied = lines.and_then(|mut lines| io::copy(&mut lines, &mut out));
            // Errors of the output are rarer, and name the output themselves.
            copied.map_err(|error| cannot_be_read(input, &error))?;
            Ok(())
        })?;
        notes.extend(changes.into_iter().map(Diagnostic::note));
        progress.finish();
    } else {
        let rollouts = read(input, options)?;
        notes.extend(rollouts.notes);
        let batch = &rollouts.batch;
        let left_out = match to {
            Format::Npz => batch.save_npz(&mut file)?,
            Format::Safetensors => batch.save(&mut file).map_err(failed)?,
            Format::Lines => {
                let mut left_out = Vec::new();
                let changes = open::write_lines(output, &mut file, |out| {
                    left_out = batch.write_lines(out).map_err(failed)?;
                    Ok(())
                })?;
                [left_out, changes].concat()
            }
        };
        notes.extend(left_out.into_iter().map(Diagnostic::note));
    }
    file.finish()?;
    Ok(notes)
}
