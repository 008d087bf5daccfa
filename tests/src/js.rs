//! The list for JavaScript.
