//! The same on Postgres, with servers of the tests' own.

use std::fs;
use std::time::SystemTime;

use crate::place::url;
use crate::support::{eventually, is_gone, Home, UNTIL_GO};

#[test]
fn locks_and_entries_on_a_server() {
    let Some(cluster) = alkstore_tests::postgres::cluster(&[]) else {
        return;
    };
    let home = Home::on(&url(&cluster.url()));
    assert_eq!(home.run(&["init"]).code(), 0);
    fs::write(home.path("count"), "0").unwrap();
    let script = "mkdir inside || touch overlap; n=$(cat count); sleep 0.02; echo $((n+1)) >count; rmdir inside";
    let runs: Vec<_> = (0..6)
        .map(|_| home.start(&["lock", "count", "-q", "--", "sh", "-c", script]))
        .collect();
    for run in runs {
        let done = run.done();
        assert_eq!((done.code(), done.err.as_str()), (0, ""));
    }
    assert!(!home.path("overlap").exists());
    assert_eq!(fs::read_to_string(home.path("count")).unwrap().trim(), "6");

    let (holder, _) = home.hold(&["n", "--ttl", "2s"], &format!("touch ready; {UNTIL_GO}"));
    let busy = home.run(&["lock", "n", "--try", "--", "true"]);
    assert_eq!(busy.code(), 75);
    assert!(
        busy.err.contains(&format!("/{} since", holder.pid())),
        "{}",
        busy.err
    );
    assert_eq!(home.inspect("n")["lapsed"], false);
    fs::write(home.path("go"), "").unwrap();
    assert_eq!(holder.done().code(), 0);

    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(
        home.run_with_input(&["entries", "put", "k"], &bytes).code(),
        0
    );
    assert_eq!(
        home.run_with_input(&["entries", "put", "k"], &bytes).code(),
        1
    );
    assert!(home.run(&["entries", "get", "k"]).out == bytes);
    let script = "echo $ALKSTORE_URL; \"$ALKSTORE\" entries put k --replace --value v --guard \"$ALKSTORE_LOCK_NAME:$ALKSTORE_LOCK_TOKEN\"";
    let fenced = home.run(&["lock", "n", "--", "sh", "-c", script]);
    assert_eq!(fenced.code(), 0, "{fenced:?}");
    assert!(
        fenced.text().starts_with(home.url()),
        "an address without a password is passed on"
    );
    assert_eq!(
        home.run(&[
            "entries",
            "put",
            "k",
            "--replace",
            "--value",
            "w",
            "--guard",
            "n:1"
        ])
        .code(),
        76
    );
    assert_eq!(home.run(&["entries", "get", "k"]).text(), "v");
    assert_eq!(
        home.run(&["--schema", "other", "entries", "ls"]).text(),
        "",
        "a schema is a store of its own"
    );
    let doctor = home.run(&["doctor"]);
    assert_eq!(doctor.code(), 0, "{doctor:?}");
}

#[test]
fn a_server_that_falls_silent_ends_the_group_before_the_deadline() {
    let Some(mut cluster) = alkstore_tests::postgres::cluster(&[]) else {
        return;
    };
    let home = Home::on(&url(&cluster.url()));
    let script = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >>pids; touch ready; while :; do sleep 1; done' & \
                  while :; do sleep 1; done";
    let (holder, pids) = home.hold(&["n", "--ttl", "3s"], script);
    let info = home.inspect("n");
    cluster.stop().unwrap();
    // A renewal may still have got through between the two.
    let deadline = humantime::parse_rfc3339(info["deadline"].as_str().unwrap()).unwrap();
    let deadline = deadline + std::time::Duration::from_secs(1);
    assert_eq!(pids.len(), 2);
    eventually("the whole group has ended", || {
        pids.iter().all(|pid| is_gone(*pid))
    });
    assert!(SystemTime::now() < deadline);
    let done = holder.done();
    assert_eq!(done.code(), 76);
    assert!(done.err.contains("lost the lock"), "{}", done.err);
    cluster.resume().unwrap();
}

#[test]
fn a_server_that_restarts_in_time_costs_nothing() {
    let Some(mut cluster) = alkstore_tests::postgres::cluster(&[]) else {
        return;
    };
    let home = Home::on(&url(&cluster.url()));
    let (mut holder, _) = home.hold(&["n", "--ttl", "12s"], &format!("touch ready; {UNTIL_GO}"));
    let before = home.inspect("n");
    cluster.kill().unwrap();
    cluster.restart().unwrap();
    eventually("it is renewed", || {
        home.inspect("n")["deadline"] != before["deadline"]
    });
    assert!(!holder.has_ended());
    fs::write(home.path("go"), "").unwrap();
    assert_eq!(holder.done().code(), 0);
}
