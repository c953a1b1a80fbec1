//! Records to reports for people and programs.
