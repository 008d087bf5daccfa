//! Arguments that make no sense, and those that only ask.

use crate::support::Home;

#[test]
fn what_makes_no_sense_is_told_with_what_to_write() {
    let long = "x".repeat(513);
    let cases: &[(&[&str], &str)] = &[
        (&[], "Usage"),
        (&["frobnicate"], "frobnicate"),
        (&["lock"], "<NAME>"),
        (&["lock", "n"], "after `--`"),
        (&["lock", "n", "--"], "after `--`"),
        (&["lock", "n", "true"], "after `--`"),
        (&["lock", "n", "--ttl", "30", "--", "true"], "30s"),
        (&["lock", "n", "--ttl", "0s", "--", "true"], "above zero"),
        (
            &["lock", "n", "--ttl", "200ms", "--", "true"],
            "at least 1s",
        ),
        (
            &["lock", "n", "--ttl", "101years", "--", "true"],
            "100 years",
        ),
        (&["lock", "n", "--ttl", "soon", "--", "true"], "30s"),
        (&["lock", "n", "--wait", "5", "--", "true"], "5s"),
        (&["lock", "--wait", "n", "--", "true"], "30s"),
        (&["lock", "n", "--wait", "--try", "--", "true"], "--try"),
        (&["lock", "n", "-E", "256", "--", "true"], "256"),
        (&["lock", "", "--", "true"], "empty"),
        (&["lock", " ", "--", "true"], "white space"),
        (&["lock", &long, "--", "true"], "512"),
        (&["lock", "__alkstore_x", "--", "true"], "reserved"),
        (&["lock", "n", "--owner", "", "--", "true"], "empty"),
        (&["inspect", ""], "empty"),
        (&["release", "n"], "--token"),
        (&["release", "n", "--token", "0"], "from 1"),
        (
            &["release", "n", "--token", "9007199254740992"],
            "9007199254740991",
        ),
        (&["entries"], "get"),
        (&["entries", "get", ""], "1 to 1024"),
        (
            &["entries", "put", "k", "--create", "--replace"],
            "--replace",
        ),
        (
            &["entries", "put", "k", "--replace", "--if-version", "1"],
            "--if-version",
        ),
        (&["entries", "put", "k", "--ttl", "7", "--value", "v"], "7s"),
        (
            &["entries", "put", "k", "--guard", "n", "--value", "v"],
            "NAME:TOKEN",
        ),
        (
            &["entries", "put", "k", "--guard", "n:x", "--value", "v"],
            "from 1",
        ),
        (&["entries", "get", "abc", "--hex"], "hexadecimal"),
        (&["--store", "mysql://h/d", "locks"], "sqlite:PATH"),
        (&["--store", "store.db", "locks"], "sqlite:PATH"),
        (&["--store", "sqlite:", "locks"], "names no file"),
        (&["--store", "sqlite::memory:", "locks"], "names no file"),
        (
            &["--store", "postgres://h:port/d", "locks"],
            "does not parse",
        ),
        (&["completions", "cmd"], "bash"),
    ];
    are_refused(cases);
}

#[test]
fn what_makes_no_sense_of_the_window_is_told_too() {
    are_refused(&[
        (&["gc"], "sweep"),
        (&["gc", "sweep"], "--window-decides"),
        (&["gc", "sweep", "--dry-run"], "--liveness"),
        (&["gc", "sweep", "--liveness", "files"], "TABLE:COLUMN"),
        (&["gc", "sweep", "--liveness", ":blob"], "TABLE:COLUMN"),
        (&["gc", "sweep", "--window-decides", "--rate", "0"], "rate"),
        (
            &["gc", "sweep", "--window-decides", "--batch", "0"],
            "batch",
        ),
        (
            &["gc", "sweep", "--window-decides", "--time-limit", "5"],
            "5m",
        ),
        (
            &["gc", "sweep", "--window-decides", "--time-limit", "0s"],
            "above zero",
        ),
        (&["gc", "explain", ""], "1 to 1024"),
        (&["gc", "explain", "abc", "--hex"], "hexadecimal"),
        (&["gc", "stage"], "KEY"),
        (&["gc", "stage", "k", ""], "1 to 1024"),
        (&["gc", "stage", "k", "-"], "2d"),
        (&["gc", "stage", "k", "--after", "24"], "24h"),
        (&["gc", "unstage", "zz", "--hex"], "hexadecimal"),
        (&["gc", "pin", "k"], "Postgres"),
        (&["gc", "unpin", "k"], "Postgres"),
        (&["gc", "pin", "k", "--ttl", "0s"], "above zero"),
        (&["gc", "pin", "k", "--owner", ""], "empty"),
    ]);
}

fn are_refused(cases: &[(&[&str], &str)]) {
    let home = Home::new();
    for (args, told) in cases {
        let done = home.run(args);
        assert_eq!(done.code(), 64, "{args:?}: {done:?}");
        assert!(done.err.contains(told), "{args:?}: {}", done.err);
        assert_eq!(done.text(), "", "{args:?}");
    }
    assert!(!home.path("store.db").exists(), "nothing was opened");
}

#[test]
fn names_are_opaque_and_shown_without_harm() {
    let home = Home::new();
    for name in [
        "../x",
        "'; drop--",
        "%_",
        "-n",
        "a\nb",
        "\u{202e}x",
        "\u{1b}[31m",
        "e\u{301}",
        "\u{e9}",
        "N",
        "n",
        "n ",
    ] {
        let script = "\"$ALKSTORE\" locks; printf %s \"$ALKSTORE_LOCK_NAME\" >name";
        let done = home.run(&["lock", "--try", "--", name, "x"]);
        assert_eq!(
            done.code(),
            64,
            "a name after `--` is taken for the command"
        );
        let name_arg = if name.starts_with('-') {
            format!("x{name}")
        } else {
            name.to_owned()
        };
        let done = home.run(&["lock", "--try", &name_arg, "--", "sh", "-c", script]);
        assert_eq!(done.code(), 0, "{done:?}");
        assert_eq!(
            std::fs::read_to_string(home.path("name")).unwrap(),
            name_arg
        );
        assert_eq!(done.text().lines().count(), 1, "{name:?}");
        assert!(!done.text().contains(['\u{1b}', '\u{202e}']), "{name:?}");
    }
}

#[test]
fn help_is_for_reading_and_has_examples() {
    let home = Home::new();
    for args in [
        &["--help"] as &[&str],
        &["-h"],
        &["help", "lock"],
        &["lock", "--help"],
        &["lock", "-h"],
        &["entries", "--help"],
        &["entries", "put", "--help"],
        &["gc", "--help"],
        &["gc", "-h"],
        &["help", "gc", "sweep"],
        &["gc", "sweep", "-h"],
        &["gc", "stage", "--help"],
        &["gc", "explain", "--help"],
        &["gc", "pin", "--help"],
    ] {
        let done = home.run(args);
        assert_eq!(done.code(), 0, "{args:?}");
        assert!(
            done.text().contains("alkstore ") && done.err.is_empty(),
            "{args:?}"
        );
        assert!(
            !done.text().contains("__guard") && !done.text().contains("__exec"),
            "{args:?}"
        );
    }
    assert!(
        home.run(&["lock", "--help"]).text().contains("76"),
        "the exit codes are told"
    );
    let version = home.run(&["--version"]);
    assert_eq!(
        version.text(),
        format!("alkstore {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn completions_and_man_pages_are_generated() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = home.run(&["completions", shell]);
        assert_eq!(done.code(), 0);
        assert!(
            ["alkstore", "conflict-exit-code", "window-decides"]
                .iter()
                .all(|word| done.text().contains(word)),
            "{shell}"
        );
    }
    assert!(home.run(&["man"]).text().contains(".TH alkstore 1"));
    std::fs::create_dir(home.path("man1")).unwrap();
    assert_eq!(home.run(&["man", "--out", "man1"]).code(), 0);
    let page = std::fs::read_to_string(home.path("man1/alkstore-lock.1")).unwrap();
    assert!(page.contains("Exit codes") && page.contains(".TH"));
    assert!(!home.path("man1/alkstore-__guard.1").exists());
    let page = std::fs::read_to_string(home.path("man1/alkstore-gc-sweep.1")).unwrap();
    assert!(page.contains("Exit codes") && page.contains("window\\-decides"));
    let done = home.run(&["man", "--out", "no/such/folder"]);
    assert_eq!(done.code(), 71);
    assert!(done.err.contains("no/such/folder"));
}
