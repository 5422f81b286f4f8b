//! The page of a run: a server on this machine that reads the folders of runs, which go on beside it or are over, and
//! shows them in a browser; or the same as one file.
//!
//! It only reads: everything that it shows comes from files, so that it runs in the run's own process or in another one.

mod batch;
mod run;
mod server;
mod site;

pub use server::Server;
pub use site::Site;
