//! A sweep that is not alone, that is told to end, or whose surroundings fail.

use nix::sys::signal::Signal;
use serde_json::{json, Value};

use crate::place::Place;
use crate::support::{eventually, Running};

const MANY: u64 = 60;

/// A sweep that takes its time, and has begun.
fn slow_sweep(place: &Place, more: &[&str]) -> Running {
    let keys: Vec<_> = (0..MANY).map(|n| format!("{n}\n")).collect();
    let keys = keys.concat();
    let staged = place
        .home
        .run_with_input(&["gc", "stage", "-", "--after", "0s"], keys.as_bytes());
    assert_eq!(staged.code(), 0, "{staged:?}");
    let mut args = vec!["gc", "sweep", "--json", "--rate", "1", "--batch", "1"];
    args.extend(more);
    let sweep = place.home.start(&args);
    eventually("the sweep has begun", || place.status()["due"] != MANY);
    sweep
}

/// What was in hand is back, and nobody sweeps.
fn is_at_rest(place: &Place, report: &Value) {
    let status = place.status();
    assert_eq!(status["claimed"], 0);
    assert_eq!(status["sweeper"], Value::Null);
    let examined = report["examined"].as_u64().unwrap();
    assert!((1..MANY).contains(&examined), "{report}");
    assert_eq!(status["due"], MANY - examined);
}

#[test]
fn an_interrupted_sweep_puts_back_and_reports() {
    for place in Place::each() {
        for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
            let sweep = slow_sweep(&place, &["--window-decides"]);
            let status = place.status();
            let sweeper = &status["sweeper"];
            assert_eq!(sweeper["name"], "__alkstore_sweep");
            assert!(sweeper["remaining_ms"].as_u64().unwrap() > 0);
            sweep.signal(signal);
            let done = sweep.done();
            assert_eq!(done.code(), code, "{done:?}");
            let report = done.json();
            assert_eq!(
                (&report["stop"], &report["cause"]),
                (&json!("cancelled"), &Value::Null)
            );
            assert!(done.err.contains("once more"), "{}", done.err);
            is_at_rest(&place, &report);
        }
    }
}

#[test]
fn a_sweep_stops_at_its_time_limit() {
    for place in Place::each() {
        let sweep = slow_sweep(&place, &["--window-decides", "--time-limit", "1s"]);
        let done = sweep.done();
        assert_eq!((done.code(), done.err.as_str()), (0, ""), "{done:?}");
        let report = done.json();
        assert_eq!(report["stop"], "time_limit", "{report}");
        is_at_rest(&place, &report);
    }
}

#[test]
fn one_sweep_at_a_time() {
    for place in Place::each() {
        // A fleet's sweep is the lock of a connection, which no row shows.
        let fleets: &[&[&str]] = if place.is_postgres() {
            &[&[], &["--fleet"]]
        } else {
            &[&[]]
        };
        for fleet in fleets {
            let decides = [&["--window-decides"][..], fleet].concat();
            let first = slow_sweep(&place, &decides);
            let second = [&["gc", "sweep", "--json"][..], &decides].concat();
            let done = place.home.run(&second);
            assert_eq!(done.code(), 75, "{done:?}");
            assert!(done.err.contains("another sweep"), "{}", done.err);
            let report = done.json();
            assert_eq!(
                (&report["stop"], &report["cause"]),
                (&json!("aborted"), &json!("sweeper_lock"))
            );
            let words = place.home.run(&[&["gc", "sweep"][..], &decides].concat());
            assert_eq!((words.code(), words.text()), (75, ""));
            let dry = place.sweep(&[&["--dry-run"][..], &decides].concat());
            assert_eq!(dry["stop"], "drained", "a dry run is no sweep");
            let status = [&["gc", "status"][..], fleet].concat();
            let status = place.home.run(&status);
            let shown = if fleet.is_empty() {
                "unless renewed"
            } else {
                "not to be seen"
            };
            assert!(status.text().contains(shown), "{}", status.text());
            first.signal(Signal::SIGINT);
            let report = first.done().json();
            is_at_rest(&place, &report);
            let rest = place.sweep(&decides);
            assert_eq!(rest["stop"], "drained");
        }
    }
}

#[test]
fn a_killed_sweep_of_a_fleet_leaves_no_lock() {
    let Some(place) = Place::postgres() else {
        return;
    };
    let decides = ["--window-decides", "--fleet"];
    let sweep = slow_sweep(&place, &decides);
    sweep.signal(Signal::SIGKILL);
    assert_eq!(sweep.done().code(), 137);
    eventually("another sweep may begin", || {
        let args = ["gc", "sweep", "--limit", "0", decides[0], decides[1]];
        place.home.run(&args).code() == 0
    });
}

#[test]
fn a_table_that_cannot_be_read_protects_everything() {
    for place in Place::each() {
        let table = place.references();
        let sweep = slow_sweep(&place, &["--liveness", &table]);
        place.drop_references();
        let done = sweep.done();
        assert_eq!(done.code(), 69, "{done:?}");
        let report = done.json();
        assert_eq!(report["stop"], "aborted", "{report}");
        let cause = if place.is_postgres() {
            "engine_failed"
        } else {
            "liveness_failed"
        };
        assert_eq!(report["cause"], cause, "{report}");
        assert!(report["error"].is_string(), "{report}");
        is_at_rest(&place, &report);
    }
}
