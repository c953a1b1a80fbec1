//! Records, judged and shown.

mod advice;
mod export;
mod golden;
mod healthy;
mod live;
mod load;
mod made;
mod network;
mod ranks;
mod reports;
mod verdicts;
