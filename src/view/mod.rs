//! The page of a run: a server on this machine that reads the folders of runs, which go on beside it or are over, and
//! shows them in a browser; or the same as one file.
//!
//! It writes nothing but, where it is told to, the recipe's file. All that it shows it takes from files, so that it may run
//! in the run's own process or in another one.

mod batch;
mod curve;
mod edit;
mod follow;
mod http;
mod server;
mod site;
mod versions;

pub use server::Server;
pub use site::Site;
