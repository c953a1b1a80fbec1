//! An image and a run request to a contained process tree and its events.
