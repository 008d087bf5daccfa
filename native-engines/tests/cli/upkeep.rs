//! `init`, `doctor`, `inspect`, `release`, and where the store is.

use std::os::unix::fs::PermissionsExt;

use crate::support::{Home, Running, UNTIL_GO};

#[test]
fn the_default_store_is_a_private_file_of_the_user() {
    let home = Home::new();
    let run = |args: &[&str], state: Option<&str>| {
        let mut command = home.command(args);
        command.env_remove("ALKSTORE_URL");
        if let Some(state) = state {
            command.env("XDG_STATE_HOME", home.path(state));
        }
        Running::start(command).done()
    };
    assert_eq!(run(&["lock", "n", "--", "true"], None).code(), 0);
    assert!(home.path(".local/state/alkstore/alkstore.db").exists());
    assert_eq!(run(&["locks"], Some("state")).code(), 0);
    let folder = home.path("state/alkstore");
    assert_eq!(
        folder.metadata().unwrap().permissions().mode() & 0o777,
        0o700
    );

    let mut command = home.command(&["locks"]);
    command.env_remove("ALKSTORE_URL").env_remove("HOME");
    let done = Running::start(command).done();
    assert_eq!(done.code(), 71);
    assert!(done.err.contains("ALKSTORE_URL"), "{}", done.err);
}

#[test]
fn reading_makes_no_store() {
    let home = Home::new();
    for args in [
        &["locks"] as &[&str],
        &["inspect", "n"],
        &["entries", "get", "k"],
        &["entries", "ls"],
        &["doctor"],
        &["purge"],
        &["gc", "sweep", "--window-decides"],
        &["gc", "status"],
        &["gc", "explain", "k"],
        &["gc", "stage", "k"],
        &["gc", "unstage", "k"],
    ] {
        let done = home.run(args);
        assert_eq!(done.code(), 69, "{args:?}");
        assert!(done.err.contains("alkstore init"), "{args:?}: {}", done.err);
    }
    assert!(!home.path("store.db").exists());
    assert_eq!(home.run(&["init"]).code(), 0);
    assert_eq!(home.run(&["init"]).code(), 0, "twice is fine");
    assert_eq!(home.run(&["locks"]).code(), 0);
    assert_eq!(home.run(&["locks", "--json"]).text(), "[]\n");
}

#[test]
fn a_store_that_is_none_is_told_and_left_alone() {
    let home = Home::new();
    std::fs::write(
        home.path("store.db"),
        "this is no database, however long it may be",
    )
    .unwrap();
    let done = home.run(&["lock", "n", "--", "touch", "ran"]);
    assert_eq!(done.code(), 69);
    assert!(done.err.contains("not a SQLite database"), "{}", done.err);
    assert!(!home.path("ran").exists());
    let done = home.run(&["--store", "sqlite:.", "init"]);
    assert_eq!(done.code(), 69);
    assert!(done.err.contains("folder"), "{}", done.err);
    let done = home.run(&["--store", "sqlite:no/folder/store.db", "init"]);
    assert!(done.err.contains("does not exist"), "{}", done.err);
}

#[test]
fn doctor_says_what_it_looked_at() {
    let home = Home::new();
    assert_eq!(home.run(&["init"]).code(), 0);
    let (holder, _) = home.hold(&["n"], &format!("touch ready; {UNTIL_GO}"));
    let done = home.run(&["doctor"]);
    assert_eq!(done.code(), 0, "{done:?}");
    for what in ["store", "schema", "disk", "clock", "lock", "rows"] {
        assert!(
            done.text().contains(&format!("ok    {what}")),
            "{what}: {}",
            done.text()
        );
    }
    assert!(
        done.text().contains("1 locks held, 0 lapsed"),
        "{}",
        done.text()
    );
    std::fs::write(home.path("go"), "").unwrap();
    assert_eq!(holder.done().code(), 0);
}

#[test]
fn doctor_sees_a_clock_that_is_ahead() {
    let home = Home::new();
    assert_eq!(home.run(&["init"]).code(), 0);
    let connection = rusqlite::Connection::open(home.path("store.db")).unwrap();
    let ahead = "UPDATE alkstore_state SET clock = (unixepoch() + 3600) * 1000000000";
    connection.execute_batch(ahead).unwrap();
    drop(connection);
    let done = home.run(&["doctor"]);
    assert_eq!(done.code(), 1);
    assert!(done.text().contains("WRONG clock"), "{}", done.text());
    assert!(done.text().contains("ahead"), "{}", done.text());
}

#[test]
fn release_frees_that_grant_alone() {
    let home = Home::new();
    let (holder, _) = home.hold(&["n", "--ttl", "1h"], &format!("touch ready; {UNTIL_GO}"));
    let token = home.token("n");
    let other = (token.parse::<u64>().unwrap() + 1).to_string();
    let done = home.run(&["release", "n", "--token", &other]);
    assert_eq!(done.code(), 1);
    assert!(done.err.contains("alkstore inspect"), "{}", done.err);
    assert_eq!(home.token("n"), token);
    assert_eq!(home.run(&["release", "n", "--token", &token]).code(), 0);
    assert_eq!(home.run(&["release", "n", "--token", &token]).code(), 1);
    let gone = home.run(&["inspect", "n"]);
    assert_eq!(gone.code(), 1);
    assert!(gone.err.contains("nobody holds"), "{}", gone.err);
    std::fs::write(home.path("go"), "").unwrap();
    assert_eq!(holder.done().code(), 76);
}
