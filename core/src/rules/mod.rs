//! The semantics, once: pure functions from a row, the present instant and a request to what becomes of the row and
//! what the caller is told.
//!
//! An engine finds the row, calls the rule while nobody else can touch that row, and carries out what the rule says.
//! It draws a [`Revision`](crate::Revision) for every grant, write and claim after it has the row to itself. Engines
//! that hold their rows in process memory or in a local file call these functions; an engine whose server decides
//! restates them in its statements, and is tested against them.

pub mod changeset;
pub mod entry;
pub mod lock;
pub mod sweep;
pub mod window;
