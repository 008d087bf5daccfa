//! Byte strings in their order. One type for everyone who needs it, so that wasm carries its code once.
//!
//! Natively a tree; on wasm, where the size of the code counts for more, runs of sorted names. Both are the same to their
//! users.

// Its own tests run natively, where nobody else uses it.
#[cfg(any(target_family = "wasm", test))]
#[cfg_attr(not(target_family = "wasm"), allow(unreachable_pub, dead_code))]
mod runs;
#[cfg(any(not(target_family = "wasm"), test))]
mod tree;

#[cfg(target_family = "wasm")]
pub use runs::Order;
#[cfg(not(target_family = "wasm"))]
pub use tree::Order;
