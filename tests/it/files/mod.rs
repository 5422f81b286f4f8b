//! Files of rollouts: what reads, what is refused, what is noted, and that what is written reads back the same.

mod odd;
mod padded;
mod properties;
mod rollouts;
mod wrong;
