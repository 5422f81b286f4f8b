//! The script host, as scripts and embedding programs meet it: hooks, parameters, state, groups, columns, imports.

mod checks;
mod columns;
mod comparisons;
mod groups;
mod hooks;
mod imports;
mod keys;
mod lab;
mod limits;
mod numbers;
mod params;
mod reports;
mod state;
mod trajectories;
mod words;
