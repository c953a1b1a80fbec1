//! The allocator's simulation against a slow model, and its rules at their borders.

mod allocator;
mod golden;
mod model;
mod rules;
