//! A training run with its folder: it learns, stops and goes on to the same numbers, survives what happens to it, and
//! repeats itself.

mod compare;
mod config;
mod fallback;
mod folder;
pub mod lab;
mod learns;
mod replay;
mod resume;
#[cfg(unix)]
mod signals;
#[cfg(feature = "torch")]
mod transformer;
mod view;
