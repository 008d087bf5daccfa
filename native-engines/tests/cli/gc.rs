//! `gc`: the window, the sweep and its explanations, on both engines.

use std::io::Write;
use std::time::Duration;

use alkstore::{Claim, EngineWindowState, Lifecycle, Reclaim};
use alkstore_native::sqlite::SqliteStore;
use futures_executor::block_on;
use serde_json::{json, Value};

use crate::place::{fields, Place};
use crate::support::{eventually, Running};

#[test]
fn a_dry_run_predicts_the_run_that_follows() {
    for place in Place::each() {
        let table = place.references();
        place.put(&["a", "b", "kept", "later"]);
        place.refer("kept");
        place.stage(&["a", "b", "kept", "none"]);
        let later = place.home.run(&["gc", "stage", "later", "--after", "1h"]);
        assert_eq!(later.code(), 0);
        let dry = place.sweep(&["--liveness", &table, "--dry-run"]);
        assert_eq!(place.keys(), ["a", "b", "kept", "later"]);
        assert_eq!(place.status()["due"], 4, "nothing was changed");
        let real = place.sweep(&["--liveness", &table]);
        assert_eq!(place.keys(), ["kept", "later"]);
        assert_eq!(
            (&dry["dry_run"], &real["dry_run"]),
            (&json!(true), &json!(false))
        );
        let comparable = |report: &Value| {
            let mut report = report.clone();
            // The one changes between the two, the other with the time.
            report["dry_run"].take();
            assert!(report["oldest_overdue_ms"].take().is_u64());
            report
        };
        assert_eq!(comparable(&dry), comparable(&real));
        let expected = [
            ("examined", json!(4)),
            ("deleted", json!(2)),
            ("bytes_freed", json!(10)),
            ("already_absent", json!(1)),
            ("protected_by_liveness", json!(1)),
            ("requeued", json!(0)),
            ("stop", json!("drained")),
            ("cause", Value::Null),
            ("error", Value::Null),
        ];
        for (field, value) in expected {
            assert_eq!(real[field], value, "{field}: {real}");
        }
        assert_eq!(
            fields(&real),
            [
                "already_absent",
                "bytes_freed",
                "cause",
                "deleted",
                "dry_run",
                "error",
                "examined",
                "failed",
                "lost_lease",
                "oldest_overdue_ms",
                "protected_by_liveness",
                "protected_by_pin",
                "protected_by_publication",
                "requeued",
                "stop"
            ]
        );
        let nothing = place.sweep(&["--liveness", &table]);
        assert_eq!(
            (&nothing["examined"], &nothing["oldest_overdue_ms"]),
            (&json!(0), &Value::Null)
        );
    }
}

#[test]
fn the_report_is_for_reading() {
    for place in Place::each() {
        let table = place.references();
        place.put(&["a", "kept"]);
        place.refer("kept");
        place.stage(&["a", "kept", "none"]);
        let dry = place.home.run(&["gc", "sweep", "-n", "--liveness", &table]);
        assert!(
            dry.text().contains("would delete  1 (5 bytes)"),
            "{}",
            dry.text()
        );
        let done = place.home.run(&["gc", "sweep", "--liveness", &table]);
        assert_eq!(
            (done.code(), done.err.as_str()),
            (0, ""),
            "no progress off a terminal"
        );
        for line in [
            "swept     nothing that was due is left\n",
            "examined  3\n",
            "deleted   1 (5 bytes)\n",
            "absent    1 ",
            "kept      1 ",
            "oldest    due for ",
        ] {
            assert!(done.text().contains(line), "{line:?}: {}", done.text());
        }
        assert!(!done.text().contains("pinned"), "{}", done.text());
    }
}

#[test]
fn a_sweep_stops_at_its_limit() {
    for place in Place::each() {
        place.put(&["a", "b", "c"]);
        place.stage(&["a", "b", "c"]);
        for (limit, examined, stop) in [("2", 2, "limit"), ("2", 1, "drained"), ("0", 0, "limit")] {
            let report = place.sweep(&["--window-decides", "--limit", limit, "--batch", "1"]);
            assert_eq!(report["examined"], examined, "{report}");
            assert_eq!(report["stop"], stop, "{report}");
        }
        assert!(place.keys().is_empty());
    }
}

#[test]
fn without_anybody_to_ask_nothing_is_deleted() {
    for place in Place::each() {
        place.put(&["a"]);
        place.stage(&["a"]);
        let done = place.home.run(&["gc", "sweep", "--json"]);
        assert_eq!((done.code(), done.text()), (64, ""));
        assert!(
            done.err.contains("--liveness TABLE:COLUMN") && done.err.contains("--window-decides"),
            "{}",
            done.err
        );
        for (wrong, told) in [("none:c", "no table"), ("a.b.c:d", "names")] {
            let done = place.home.run(&["gc", "sweep", "--liveness", wrong]);
            assert_eq!(done.code(), 64, "{wrong}: {done:?}");
            assert!(
                done.err.contains(told) || done.err.contains("parts"),
                "{wrong}: {}",
                done.err
            );
        }
        let table = place.references();
        let column = table.replace("the key", "no key");
        let done = place.home.run(&["gc", "sweep", "--liveness", &column]);
        assert_eq!(done.code(), 64, "{done:?}");
        assert!(done.err.contains("no column"), "{}", done.err);
        assert_eq!(place.keys(), ["a"]);
    }
}

#[test]
fn a_column_without_an_index_is_told() {
    let place = Place::sqlite();
    place.references();
    place.sql("CREATE TABLE slow (k TEXT); INSERT INTO slow VALUES ('kept')");
    place.put(&["kept"]);
    place.stage(&["kept"]);
    let done = place
        .home
        .run(&["gc", "sweep", "--liveness", "main.slow:K"]);
    assert_eq!(done.code(), 0);
    assert!(done.err.contains("index"), "{}", done.err);
    assert_eq!(place.keys(), ["kept"], "keys may be kept as text");
}

#[test]
fn explain_has_a_verdict_for_each_state() {
    for place in Place::each() {
        let table = place.references();
        let asked = ["--liveness", table.as_str()];
        let verdict = |key: &str| {
            let told = place.explain(key, &asked);
            let (verdict, sentence) = (told["verdict"].as_str(), told["sentence"].as_str());
            (verdict.unwrap().to_owned(), sentence.unwrap().to_owned())
        };
        let entry = ["--value", "v", "--ttl", "1h"];
        let put = [&["entries", "put", "k"][..], &entry].concat();
        assert_eq!(verdict("k").0, "absent");
        assert_eq!(place.home.run(&put).code(), 0);
        let told = place.explain("k", &[]);
        assert_eq!(told["verdict"], "unstaged");
        assert_eq!(told["entry"]["size"], 1);
        assert!(told["entry"]["expires_at"].is_string());
        assert_eq!(told["window"], Value::Null);
        assert_eq!(told["pins"].is_array(), place.is_postgres());
        assert_eq!(
            fields(&told),
            [
                "entry",
                "key",
                "key_hex",
                "pins",
                "references",
                "sentence",
                "verdict",
                "window"
            ]
        );
        assert_eq!(
            place
                .home
                .run(&["gc", "stage", "k", "--after", "1h"])
                .code(),
            0
        );
        let told = place.explain("k", &asked);
        let due_at = told["window"]["due_at"].as_str().unwrap();
        assert_eq!(told["window"]["due"], false);
        assert_eq!(told["sentence"], format!("waits until {due_at}"));
        assert_eq!(told["references"][0]["live"], false);
        place.refer("k");
        assert!(verdict("k").1.contains("waits until"), "{:?}", verdict("k"));
        assert!(verdict("k").1.contains(&table), "{:?}", verdict("k"));
        place.stage(&["k"]);
        let (name, sentence) = verdict("k");
        assert_eq!(name, "referenced");
        assert!(
            sentence.starts_with(&format!("protected by {table}")),
            "{sentence}"
        );
        let unasked = place.explain("k", &[]);
        assert_eq!(unasked["verdict"], "deleted");
        assert!(unasked["sentence"].as_str().unwrap().contains("--liveness"));
        place.sql(&format!(
            "DELETE FROM \"{}\"",
            table.split(':').next().unwrap()
        ));
        assert_eq!(verdict("k").1, "would be deleted by the next sweep");
        assert_eq!(place.home.run(&["entries", "rm", "k"]).code(), 0);
        assert_eq!(verdict("k").0, "leaves");
        // And in words, by the key's digits.
        let words = place.home.run(&["gc", "explain", "6b", "--hex"]);
        for line in [
            "key      k\n",
            "entry    none\n",
            "window   due since ",
            "verdict  there is no entry",
        ] {
            assert!(words.text().contains(line), "{line}: {}", words.text());
        }
    }
}

#[test]
fn explain_and_status_show_claims_and_marks() {
    let place = Place::sqlite();
    place.put(&["claimed", "marked"]);
    place.stage(&["claimed", "marked"]);
    let store = block_on(SqliteStore::open(place.home.path("store.db"))).unwrap();
    let now = block_on(store.now()).unwrap();
    let claims = block_on(store.window_claim(now, Duration::from_secs(3600), 2)).unwrap();
    let marked: Vec<Claim> = claims
        .into_iter()
        .filter(|claim| claim.key.as_bytes() == b"marked")
        .collect();
    assert_eq!(
        block_on(store.window_mark(&marked, None)).unwrap(),
        [Reclaim::Marked]
    );
    block_on(store.window_requeue(&marked, now)).unwrap();
    let told = place.explain("claimed", &[]);
    assert_eq!(told["verdict"], "claimed");
    assert!(told["window"]["claimed_until"].is_string());
    let told = place.explain("marked", &[]);
    assert_eq!(told["verdict"], "reclaiming");
    assert_eq!(
        (&told["window"]["reclaiming"], &told["window"]["requeues"]),
        (&json!(true), &json!(1))
    );
    let status = place.status();
    for (field, count) in [
        ("waiting", 2),
        ("due", 2),
        ("claimed", 1),
        ("reclaiming", 1),
        ("requeued", 1),
    ] {
        assert_eq!(status[field], count, "{field}: {status}");
    }
    // Whose payload is being deleted is left to those who can.
    let report = place.sweep(&["--window-decides"]);
    assert_eq!(
        (&report["failed"], &report["requeued"]),
        (&json!(1), &json!(1)),
        "{report}"
    );
    let none = place.home.run(&["gc", "unstage", "marked"]);
    assert_eq!((none.code(), none.text()), (1, "0 unstaged\n"));
    assert!(none.err.contains("being deleted"), "{}", none.err);
}

#[test]
fn status_before_and_after() {
    for place in Place::each() {
        let empty = place.status();
        assert_eq!(
            fields(&empty),
            [
                "claimed",
                "due",
                "oldest",
                "overdue_ms",
                "pins",
                "reclaiming",
                "requeued",
                "sweeper",
                "waiting"
            ]
        );
        assert_eq!(empty["oldest"], Value::Null);
        assert_eq!(place.home.run(&["gc", "stage", "later"]).code(), 0);
        let words = place.home.run(&["gc", "status"]);
        assert!(
            words.text().contains("oldest      due in 23h 59m"),
            "{}",
            words.text()
        );
        assert_eq!(place.status()["overdue_ms"], Value::Null);
        place.stage(&["a", "b"]);
        let before = place.status();
        assert_eq!((&before["waiting"], &before["due"]), (&json!(3), &json!(2)));
        assert!(before["overdue_ms"].is_u64() && before["oldest"].is_string());
        place.sweep(&["--window-decides"]);
        let after = place.status();
        assert_eq!((&after["waiting"], &after["due"]), (&json!(1), &json!(0)));
        let words = place.home.run(&["gc", "status"]);
        assert!(
            words.text().contains("sweeper     nobody\n"),
            "{}",
            words.text()
        );
    }
}

#[test]
fn keys_come_from_the_input() {
    for place in Place::each() {
        let home = &place.home;
        let many: Vec<_> = (0..2500).map(|n| format!("key {n}\n")).collect();
        let many = many.concat();
        let stage = ["gc", "stage", "-", "--after", "1h"];
        let done = home.run_with_input(&stage, many.as_bytes());
        assert_eq!(
            (done.code(), done.text(), done.err.as_str()),
            (0, "2500 staged\n", "")
        );
        assert_eq!(place.status()["waiting"], 2500);
        let due_at = |key| place.explain(key, &[])["window"]["due_at"].clone();
        let before = due_at("key 7");
        let keep = ["gc", "stage", "-", "--after", "0s", "--keep", "--json"];
        let done = home.run_with_input(&keep, b"key 7\nnew");
        assert_eq!(done.json(), json!({ "staged": 2 }));
        assert_eq!(due_at("key 7"), before);
        place.stage(&["key 7"]);
        assert_ne!(due_at("key 7"), before);
        let done = home.run_with_input(&["gc", "unstage", "-", "--hex"], b"6e6577\n");
        assert_eq!((done.code(), done.text()), (0, "1 unstaged\n"));
        let done = home.run_with_input(&["gc", "unstage", "-", "--json"], many.as_bytes());
        assert_eq!(done.json(), json!({ "unstaged": 2500 }));
        assert_eq!(place.status()["waiting"], 0);
        // What came before a line that is no key stays staged, batch by batch, which is told.
        let wrong = format!("{many}\nmore\n");
        let done = home.run_with_input(&stage, wrong.as_bytes());
        assert_eq!((done.code(), done.text()), (64, ""));
        assert!(done.err.contains("line 2501 is no key"), "{}", done.err);
        assert!(done.err.contains("2000 were staged before"), "{}", done.err);
        assert_eq!(place.status()["waiting"], 2000);
        let done = home.run_with_input(&["gc", "stage", "-", "--hex"], b"0g");
        assert_eq!(done.code(), 64);
        let none = home.run_with_input(&["gc", "stage", "-"], b"");
        assert_eq!((none.code(), none.text()), (0, "0 staged\n"));
    }
}

#[test]
fn a_slow_input_shortens_nobodys_grace() {
    for place in Place::each() {
        let batch: Vec<_> = (0..1000).map(|n| format!("key {n}\n")).collect();
        let (staging, mut input) = place
            .home
            .start_with_input(&["gc", "stage", "-", "--after", "1h"]);
        input.write_all(batch.concat().as_bytes()).unwrap();
        eventually("a batch is staged", || place.status()["waiting"] == 1000);
        // By the store's clock, which begins the grace of this one.
        place.stage(&["mark"]);
        input.write_all(b"late").unwrap();
        drop(input);
        let done = staging.done();
        assert_eq!((done.code(), done.text()), (0, "1001 staged\n"), "{done:?}");
        let due_at = |key| {
            let due_at = place.explain(key, &[])["window"]["due_at"].clone();
            humantime::parse_rfc3339(due_at.as_str().unwrap()).unwrap()
        };
        let grace = due_at("late").duration_since(due_at("mark")).unwrap();
        assert!(grace >= Duration::from_secs(3600), "{grace:?}");
    }
}

#[test]
fn a_closed_input_is_no_empty_list_of_keys() {
    let place = Place::sqlite();
    for verb in ["stage", "unstage"] {
        let mut command = place.home.program("sh");
        command.args(["-c", &format!("\"$ALKSTORE\" gc {verb} - <&-")]);
        let done = Running::start(command).done();
        assert_eq!((done.code(), done.text()), (64, ""), "{done:?}");
        assert!(done.err.contains("the input is closed"), "{}", done.err);
    }
}
