//! The store and the fetcher from outside, against a server that misbehaves on request.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod archive;
mod debs;
mod fetching;
mod interrupted;
mod item_packs;
mod server;
mod shared_store;
mod sharing;
mod store;
mod wheels;
