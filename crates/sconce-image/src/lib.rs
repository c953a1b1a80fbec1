//! Lock and store to an assembled environment.
