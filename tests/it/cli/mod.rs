//! The command line as its user meets it: what each command prints, and its exit status.

mod lab;
mod output;
mod profile;
mod sequence;
mod texts;
mod wrong;
