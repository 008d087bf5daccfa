//! `alkstore entries`: byte for byte, by the rules of the contract.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use alkstore::Transactions;

use crate::support::{eventually, Home, Running};

#[test]
fn any_bytes_come_back_as_they_went_in() {
    let home = Home::new();
    let all: Vec<u8> = (0..=255).cycle().take(1_000_000).collect();
    for value in [&all[..], b"", b"\n", b"\0", b"text\n"] {
        let put = home.run_with_input(&["entries", "put", "k", "--replace"], value);
        assert_eq!((put.code(), put.err.as_str()), (0, ""));
        let version: u64 = put.text().trim().parse().unwrap();
        let got = home.run(&["entries", "get", "k"]);
        assert_eq!(got.code(), 0);
        assert!(got.out == value);
        assert!(version > 0);
    }
    std::fs::write(home.path("file"), &all).unwrap();
    assert_eq!(
        home.run(&["entries", "put", "f", "--file", "file"]).code(),
        0
    );
    assert!(home.run(&["entries", "get", "f"]).out == all);
    let missing = home.run(&["entries", "put", "g", "--file", "no-such-file"]);
    assert_eq!(missing.code(), 74);
    assert!(missing.err.contains("no-such-file"));
}

#[test]
fn the_first_writer_wins_unless_told_otherwise() {
    let home = Home::new();
    let put = |args: &[&str]| {
        let mut all = vec!["entries", "put", "k"];
        all.extend(args);
        home.run(&all)
    };
    let first = put(&["--value", "1"]);
    let version = first.text().trim().to_owned();
    let lost = put(&["--value", "2"]);
    assert_eq!((lost.code(), lost.text()), (1, ""));
    assert!(
        lost.err.contains(&version) && lost.err.contains("--replace"),
        "{}",
        lost.err
    );
    assert_eq!(put(&["--value", "2", "--create"]).code(), 1);
    assert_eq!(home.run(&["entries", "get", "k"]).text(), "1");

    let second = put(&["--value", "2", "--if-version", &version]);
    assert_eq!(second.code(), 0);
    assert_eq!(put(&["--value", "3", "--if-version", &version]).code(), 1);
    assert_eq!(
        home.run(&["entries", "rm", "k", "--if-version", &version])
            .code(),
        1
    );
    assert_eq!(put(&["--value", "3", "--replace"]).code(), 0);
    assert_eq!(home.run(&["entries", "get", "k"]).text(), "3");
    assert_eq!(home.run(&["entries", "rm", "k"]).code(), 0);

    for args in [&["entries", "rm", "k"] as &[&str], &["entries", "get", "k"]] {
        let done = home.run(args);
        assert_eq!((done.code(), done.text()), (1, ""), "{args:?}");
        assert!(done.err.contains("no entry \"k\""));
    }
    assert_eq!(put(&["--value", "4", "--if-version", &version]).code(), 1);
}

#[test]
fn listings_are_for_programs_off_a_terminal() {
    let home = Home::new();
    let odd = OsStr::from_bytes(b"b\xff\n");
    for key in [OsStr::new("a"), odd, OsStr::new("ab")] {
        let args = [
            OsStr::new("entries"),
            OsStr::new("put"),
            key,
            OsStr::new("--value"),
            OsStr::new("xyz"),
        ];
        assert_eq!(home.run(&args).code(), 0);
    }
    assert_eq!(
        home.run(&["entries", "put", "ttl", "--ttl", "1h", "--value", ""])
            .code(),
        0
    );
    let text = home.run(&["entries", "ls"]);
    let keys: Vec<_> = text
        .text()
        .lines()
        .map(|line| line.split('\t').next().unwrap())
        .collect();
    assert_eq!(keys, ["a", "ab", "b\\xff\\n", "ttl"]);
    assert_eq!(home.run(&["entries", "ls", "a"]).text().lines().count(), 2);

    let json: serde_json::Value =
        serde_json::from_slice(&home.run(&["entries", "ls", "--json"]).out).unwrap();
    assert_eq!(json[0]["key"], "a");
    assert_eq!(json[0]["size"], 3);
    assert_eq!(json[0]["expires_at"], serde_json::Value::Null);
    assert_eq!(json[2]["key"], serde_json::Value::Null);
    assert_eq!(json[2]["key_hex"], "62ff0a");
    assert!(json[3]["expires_at"].is_string());
    let got = home.run(&["entries", "get", "62ff0a", "--hex"]);
    assert_eq!((got.code(), got.text()), (0, "xyz"));
}

#[test]
fn more_than_a_page_is_listed() {
    let home = Home::new();
    let open = alkstore_native::sqlite::SqliteStore::open(home.path("store.db"));
    let store = futures_executor::block_on(open).unwrap();
    let mut changeset = alkstore::Changeset::new();
    for n in 0..2_001 {
        let key = alkstore::Key::new(format!("{n:05}").into_bytes()).unwrap();
        changeset
            .put(key, (&b""[..]).into(), alkstore::PutMode::Create, None)
            .unwrap();
    }
    futures_executor::block_on(store.commit_changeset(changeset)).unwrap();
    let listed = home.run(&["entries", "ls"]);
    assert_eq!(listed.text().lines().count(), 2_001);
}

#[test]
fn an_entry_with_a_ttl_lapses_and_is_purged() {
    let home = Home::new();
    assert_eq!(
        home.run(&["entries", "put", "k", "--ttl", "200ms", "--value", "v"])
            .code(),
        0
    );
    eventually("it lapses", || {
        home.run(&["entries", "get", "k"]).code() == 1
    });
    assert_eq!(home.run(&["purge", "--limit", "0"]).text(), "0 purged\n");
    assert_eq!(home.run(&["purge"]).text(), "1 purged\n");
}

#[test]
fn a_fenced_write_needs_the_live_grant() {
    let home = Home::new();
    let script = "\"$ALKSTORE\" entries put state --replace --value good --guard \"$ALKSTORE_LOCK_NAME:$ALKSTORE_LOCK_TOKEN\"; \
                  echo $ALKSTORE_LOCK_TOKEN >token";
    assert_eq!(
        home.run(&["lock", "a:b", "--", "sh", "-c", script]).code(),
        0
    );
    assert_eq!(home.run(&["entries", "get", "state"]).text(), "good");
    let token = std::fs::read_to_string(home.path("token")).unwrap();
    let guard = format!("a:b:{}", token.trim());
    let late = home.run(&[
        "entries",
        "put",
        "state",
        "--replace",
        "--value",
        "late",
        "--guard",
        &guard,
    ]);
    assert_eq!(late.code(), 76, "{late:?}");
    assert_eq!(home.run(&["entries", "get", "state"]).text(), "good");
}

#[test]
fn a_closed_input_is_no_empty_value() {
    let home = Home::new();
    let mut command = home.program("sh");
    command.args(["-c", "\"$ALKSTORE\" entries put k <&-"]);
    let done = Running::start(command).done();
    assert_eq!(done.code(), 64);
    assert!(done.err.contains("--value"), "{}", done.err);
    // The null device is an empty value, as it is for every program.
    assert_eq!(home.run(&["entries", "put", "k"]).code(), 0);
    assert_eq!(home.run(&["entries", "get", "k"]).out, b"");
}

#[test]
fn limits_are_told() {
    let home = Home::new();
    let long = "k".repeat(1025);
    assert_eq!(home.run(&["entries", "get", &long]).code(), 64);
    assert_eq!(
        home.run(&["entries", "put", &long[1..], "--value", "v"])
            .code(),
        0
    );
    let big = std::fs::File::create(home.path("big")).unwrap();
    big.set_len((64 << 20) + 1).unwrap();
    let done = home.run(&["entries", "put", "k", "--file", "big"]);
    assert_eq!(done.code(), 64);
    assert!(done.err.contains("67108864"), "{}", done.err);
}
