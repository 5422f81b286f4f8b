//! The published formulas: every golden case, through the scripts in `stdlib/`, in f64 at 1e-9.
//!
//! `tests/golden/` holds a few cases of each method that always run; the whole set runs where `../shared` is there.

mod cases;
mod draws;
mod objectives;
mod table;
mod translated;
