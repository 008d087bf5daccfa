//! The native engines of alkstore: a SQLite file, shared by the processes of one machine, and Postgres, shared by a
//! fleet. Each is behind a feature of its own: `sqlite` and `postgres`.
