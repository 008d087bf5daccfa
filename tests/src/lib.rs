//! The conformance list: every rule of the contract as a case that runs on every engine.
//!
//! A case is an async function over a [`Fixture`]; its name begins with the ids of the rules that it holds an engine
//! to. [`for_each_case`] names them all: a runner makes one test of each, and nothing can be left out, because a case
//! that is not in the list is dead code, which does not compile here.
//!
//! ```ignore
//! macro_rules! tests {
//!     ($($case:ident)*) => { $(
//!         #[test]
//!         fn $case() {
//!             let fixture = MyFixture::new();
//!             block_on(alkstore_tests::run(stringify!($case), &fixture)).unwrap_or_else(|broken| panic!("{broken}"));
//!         }
//!     )* };
//! }
//! alkstore_tests::for_each_case!(tests);
//! ```
//!
//! Cases need no runtime: whatever polls the futures of the engine will do.
#![deny(dead_code)]

// What a case is made of.
mod failure;
mod fixture;
mod list;
mod steps;

// The cases, by noun.
mod bad_input;
mod cancellation;
mod changesets;
mod entries;
mod guards;
mod interleavings;
mod lifecycle;
mod locks;
mod names;
mod snapshots;
mod transactions;
mod window;

// The list for JavaScript, and random histories beside it.
#[cfg(target_arch = "wasm32")]
pub mod js;
#[cfg(not(target_arch = "wasm32"))]
pub mod model;

// Servers for those who run the list.
#[cfg(unix)]
pub mod postgres;

pub use failure::{CaseResult, Failure};
pub use fixture::{Capability, Engine, Fixture, Limits, Opened, Snapshots, START};
pub use list::{run, Case, CASES, ELSEWHERE, REQUIRED};
