//! The examples, on the test server.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::unwrap_used)] // what a test cannot go on without

mod postgres_support;

#[allow(dead_code)] // their main functions ask the environment
#[path = "../examples/postgres.rs"]
mod postgres;
#[allow(dead_code)]
#[path = "../examples/postgres_fleet.rs"]
mod postgres_fleet;
#[allow(dead_code)]
#[path = "../examples/postgres_transaction.rs"]
mod postgres_transaction;

use postgres_support::{block_on, Place, START};

#[test]
fn the_example_of_two_workers_runs() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        postgres::run(place.options().manual_clock(START))
            .await
            .unwrap();
    });
}

#[test]
fn the_example_of_business_rows_runs() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        postgres_transaction::run(&place.url, place.options())
            .await
            .unwrap();
    });
}

#[test]
fn the_example_of_a_fleet_runs() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let table = place.schema.replace(['-', ' '], "_");
        postgres_fleet::run(&place.url, place.options().manual_clock(START), &table)
            .await
            .unwrap();
    });
}
