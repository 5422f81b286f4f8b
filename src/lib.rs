//! advlab: the advantage lab.
