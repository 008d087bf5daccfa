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
//!
//! # Beside the list
//!
//! `model` plays random histories on an engine and on a plain model of the contract (native only). `js/run.mjs` runs the
//! list through the npm package, in Node and in a browser. `mutants.mjs` breaks the rules of core one by one and checks
//! that the list notices each.
//!
//! # A new case
//!
//! Write it in the module of its noun, name it after the ids that it covers, and add the name to [`for_each_case`].
//! Judge only what the contract promises; where it leaves a choice, accept each. A case about a refusal reads the state
//! back. What an engine cannot do is said in the table of [`Capability`], never skipped.
#![deny(dead_code)]

// What a case is made of.
mod failure;
mod fixture;
mod interposed;
mod list;
mod steps;

// The cases, by noun.
mod bad_input;
mod cancellation;
mod changesets;
mod crashes;
mod deletion;
mod dry_runs;
mod entries;
mod epochs;
mod faults;
mod guards;
mod histories;
mod interleavings;
mod lifecycle;
mod locks;
mod names;
mod rows;
mod snapshots;
mod staging;
mod sweep;
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
