//! Real runs of a small root file system, as root and as a plain user. What this machine cannot
//! show is said and left out.

mod bench;
mod death;
mod exits;
mod limits;
mod mounts;
mod network;
mod terminal;
mod walls;
