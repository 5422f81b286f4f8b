//! What a person sees of a training run.

use std::path::{Path, PathBuf};

use advlab::train::{Config, Event, Observer, TrainError};

/// A run on the terminal, or as plain lines.
pub struct View {
    folder: PathBuf,
}

impl View {
    pub fn new(folder: &Path, _config: &Config) -> View {
        View {
            folder: folder.to_path_buf(),
        }
    }

    pub fn note(&self, text: &str) {
        eprintln!("note: {text}");
    }

    pub fn clear(&self) {}

    pub fn finished(&self) {
        println!("{}", self.folder.display());
    }

    pub fn stopped(&self, step: u64) {
        println!(
            "stopped at step {step}: advlab train --resume {}",
            self.folder.display()
        );
    }
}

impl Observer for View {
    fn tell(&mut self, event: &Event<'_>) -> Result<(), TrainError> {
        if let Event::Step { row, .. } = event
            && let Some(evaluation) = &row.evaluation
        {
            println!("step {} {:?} {:?}", row.step + 1, evaluation, row.ms);
        }
        Ok(())
    }
}
