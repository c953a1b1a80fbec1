//! The allocator's simulation against a slow model, and its rules at their borders.

mod allocator;
mod model;
mod rules;
