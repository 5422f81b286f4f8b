//! The same rollouts in another kind of file.

use std::io;
use std::path::Path;

use super::format::{Format, has_ending, is_parquet};
use super::open::{self, Sink};
use super::parquet;
use super::replace::{Replacement, cannot_be_written};
use super::saved::MOST_TEXT;
use super::{Progress, ReadOptions, Rollouts, cannot_be_read, read};
use crate::batch::Batch;
use crate::diagnostic::{Diagnostic, Diagnostics};

/// Writes the rollouts of `input` to `output`, in the form that its name says, and gives notes on what is otherwise there.
///
/// Lines of JSON, compressed or not, and the rows of parquet hold the same: any fields, whatever they mean. Tensors hold a batch:
/// to and from them go groups, texts, the columns of responses and of tokens that count, and the step.
///
/// # Errors
/// Why the input cannot be read, or the output written; a file that was at `output` is as it was then.
pub fn convert(
    input: impl AsRef<Path>,
    output: impl AsRef<Path>,
    options: &ReadOptions,
) -> Result<Vec<Diagnostic>, Diagnostics> {
    let (input, output) = (input.as_ref(), output.as_ref());
    let (from, to) = (Format::of(input)?, Format::named(output));
    let Some(to) = to else {
        let what = "its name has no ending that says what to write";
        let help = format!("{} are known", Format::endings(|_| true));
        let error = Diagnostic::error(what).in_file(output);
        return Err(error.with_help(help).into());
    };
    let mut file = Replacement::new(output)?;
    let notes = match (from, to) {
        (Format::Lines, Format::Lines) if !options.map.is_empty() => {
            let what = "fields of lines keep their names where they become lines";
            let help =
                "`--map` names what becomes tensors; `apply` and `repl` take it for lines too";
            let error = Diagnostic::error(what).in_file(input);
            return Err(error.with_help(help).into());
        }
        (Format::Lines, Format::Lines) if is_parquet(input) && has_ending(output, "parquet") => {
            parquet::write_copy(input, &[], |_| Vec::new(), &mut file)?;
            Vec::new()
        }
        (Format::Lines, Format::Lines) => {
            let progress = Progress::new(options.progress);
            let notes = write_lines(output, &mut file, |sink| {
                // An error of the output is rarer, and says what it is too.
                let no_read = |error: io::Error| cannot_be_read(input, &error);
                let mut lines = open::lines(input, &progress).map_err(no_read)?;
                io::copy(&mut lines, sink).map(drop).map_err(no_read)
            })?;
            progress.finish();
            notes
        }
        _ => {
            let Rollouts {
                batch, mut notes, ..
            } = read(input, options)?;
            notes.extend(write_batch(&batch, to, output, &mut file)?);
            notes
        }
    };
    file.finish()?;
    Ok(notes)
}

/// Writes lines in the form that the name of the output says, and gives notes on what is otherwise in it.
fn write_lines(
    output: &Path,
    file: &mut Replacement,
    write: impl FnOnce(&mut Sink) -> Result<(), Diagnostic>,
) -> Result<Vec<Diagnostic>, Diagnostic> {
    let failed = |error: io::Error| cannot_be_written(output, &error);
    let mut sink = Sink::new(output, file).map_err(failed)?;
    write(&mut sink)?;
    let notes = sink.finish().map_err(failed)?;
    Ok(notes.into_iter().map(Diagnostic::note).collect())
}

/// Writes all of a batch that the format holds, and gives notes on what is left out.
fn write_batch(
    batch: &Batch,
    format: Format,
    output: &Path,
    file: &mut Replacement,
) -> Result<Vec<Diagnostic>, Diagnostic> {
    let failed = |error: io::Error| cannot_be_written(output, &error);
    match format {
        Format::Lines => {
            return write_lines(output, file, |sink| batch.write_lines(sink).map_err(failed));
        }
        Format::Npz => batch.save_npz(file)?,
        Format::Safetensors => {
            batch.save(file).map_err(failed)?;
            let texts = batch.texts().flat_map(|(_, texts)| texts);
            if texts.map(|text| text.len()).sum::<usize>() > MOST_TEXT {
                let what =
                    "the texts are left out: the header of safetensors has no room for so many";
                return Ok(vec![Diagnostic::note(what)]);
            }
        }
    }
    Ok(Vec::new())
}
