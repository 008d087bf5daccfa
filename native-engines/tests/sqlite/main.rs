//! What the conformance list cannot show of the SQLite engine: several processes, crashes, waits, files that are none.
#![cfg(not(target_family = "wasm"))]
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test may stop where it stands

mod support;

mod busy;
mod clock;
mod crash;
mod deletion;
mod group;
mod open;
mod processes;
mod transaction;
mod upgrade;
