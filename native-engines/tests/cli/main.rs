//! The command line, as a person or a script has it: the built program, with real processes, signals and terminals.
//!
//! Time is real here: a lease that is kept by renewing it lasts a second at least. Nothing sleeps for a guessed while;
//! what is to happen is looked for until it has, or a deadline has passed.
#![cfg(unix)]
// A test has no public interface: here `pub` is for the neighbours.
#![allow(unreachable_pub)]
// A test that cannot go on fails.
#![allow(clippy::unwrap_used)]

mod place;
mod support;

mod entries;
mod gc;
mod gc_interrupt;
mod gc_pins;
mod lock;
mod loss;
mod postgres;
mod secrets;
mod terminal;
mod upkeep;
mod usage;
