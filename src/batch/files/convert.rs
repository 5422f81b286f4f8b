//! The same rollouts in another kind of file.

use std::io;
use std::path::Path;

use super::lines::{self, Sink};
use super::replace::{Replacement, cannot_be_written};
use super::saved::MOST_TEXT;
use super::{Format, Progress, ReadOptions, cannot_be_read, npz, read};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// Writes the rollouts of `input` to `output`, in the form that its name says, and gives what is otherwise there.
///
/// Lines of JSON, compressed or not, and the rows of parquet hold the same: any fields, of which nobody asks what they mean.
/// Tensors hold a batch: to and from them go groups, texts, the columns of responses and of tokens that count, and the step.
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
        return Err(Diagnostic::error(what)
            .in_file(output)
            .with_help(help)
            .into());
    };
    let failed = |error: io::Error| cannot_be_written(output, &error);
    let mut file = Replacement::new(output)?;
    let mut notes = Vec::new();
    let sink = |file: &mut _, write: &dyn Fn(&mut Sink) -> Result<(), Diagnostic>| {
        let mut sink = Sink::new(output, file).map_err(failed)?;
        write(&mut sink)?;
        let told = sink.finish().map_err(failed)?;
        Ok::<_, Diagnostic>(told.into_iter().map(Diagnostic::note))
    };
    if (from, to) == (Format::Lines, Format::Lines) {
        let progress = Progress {
            told: options.progress,
            ..Progress::default()
        };
        let copied = sink(&mut file, &|sink| {
            let no_read = |error: io::Error| cannot_be_read(input, &error);
            let mut lines = lines::open(input, &progress).map_err(no_read)?;
            // An error of the output is rarer, and says what it is too.
            io::copy(&mut lines, sink).map(drop).map_err(no_read)
        });
        notes.extend(copied?);
        progress.finish();
    } else {
        let rollouts = read(input, options)?;
        let batch = rollouts.batch;
        notes.extend(rollouts.notes);
        match to {
            Format::Lines => notes.extend(sink(&mut file, &|sink| {
                batch.write_lines(sink).map_err(failed)
            })?),
            Format::Npz => npz::save(&batch, &mut file)?,
            Format::Safetensors => {
                batch.save(&mut file).map_err(failed)?;
                let texts = batch.texts().flat_map(|(_, texts)| texts);
                if texts.map(|text| text.len()).sum::<usize>() > MOST_TEXT {
                    let what =
                        "the texts are left out: the header of safetensors has no room for so many";
                    notes.push(Diagnostic::note(what));
                }
            }
        }
    }
    file.finish()?;
    Ok(notes)
}
