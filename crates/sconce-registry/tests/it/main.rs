//! The registry client from outside: against a registry that misbehaves on request, and against a
//! real one.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod attaching;
mod logins;
mod made;
mod model;
mod pulling;
mod pushing;
mod real;
mod server;
