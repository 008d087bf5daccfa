//! The WebAssembly inside the npm package `alkstore`: the memory engine's [`State`](alkstore_mem::State), one an
//! instance, driven by plain functions of numbers.
//!
//! The JavaScript beside this crate (`js/`) is its only caller. It checks types, reads the clock, and passes `now` with
//! every call; what is valid and what happens is decided here, by core and the memory engine.
//!
//! # How values cross
//!
//! * Texts and keys are written by the caller into `input`, a fixed region, and passed as lengths.
//! * Numbers that do not fit the return value are left in `output`.
//! * Values of entries never cross: they stay in the JavaScript heap, and this side keeps references (`value`).
//! * A failure is a negative number (or `false` where a JavaScript value is returned), and the error waits in
//!   `error`. Nothing is ever thrown: what JavaScript sees thrown is a trap, after which it never calls again.
//!
//! No JavaScript of the user runs while the state is borrowed, because none is ever called from here.

// wasm-bindgen exports only what is `pub`; who is to use it is JavaScript, not another crate.
#![allow(unreachable_pub)]

// How calls come in and go out.
mod boundary;
mod error;
mod value;

// What they do, by noun.
mod changes;
mod entries;
mod lifecycle;
mod locks;
mod sweep;
mod tx;
mod window;

#[cfg(all(target_family = "wasm", not(target_feature = "atomics")))]
#[global_allocator]
static ALLOCATOR: talc::wasm::WasmDynamicTalc = talc::wasm::new_wasm_dynamic_allocator();
