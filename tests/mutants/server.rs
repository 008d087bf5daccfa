//! A Postgres server for all mutants of one run: it says where it is, and stays until its input ends.
#![cfg(unix)]
#![allow(clippy::print_stdout)]

use std::io::Read as _;

#[test]
fn serve() {
    // A mutant may leave sessions behind that wait for each other.
    let settings = ["max_connections=400"];
    let Some(cluster) = alkstore_tests::postgres::cluster(&settings) else {
        return;
    };
    println!("\nurl: {}", cluster.url());
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).unwrap();
}
