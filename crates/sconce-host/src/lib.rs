//! The machine: facts, cards, CDI edits, samples.
