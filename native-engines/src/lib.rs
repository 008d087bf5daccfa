//! The native engines of alkstore: a SQLite file, shared by the processes of one machine, and Postgres, shared by a
//! fleet. Each is behind a feature of its own: `sqlite` and `postgres`.

#[cfg(target_family = "wasm")]
compile_error!("alkstore-native needs an operating system: on wasm use the crate alkstore-mem");

#[cfg(all(feature = "sqlite", not(target_family = "wasm")))]
pub mod sqlite;

#[cfg(all(feature = "postgres", not(target_family = "wasm")))]
pub mod postgres;
