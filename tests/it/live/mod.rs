//! Hot reload, as a run sees it: a script in a folder, saved in all the ways that editors and accidents do it.

mod checks;
mod files;
mod lab;
#[cfg(unix)]
mod places;
mod said;
mod state;
mod step;
