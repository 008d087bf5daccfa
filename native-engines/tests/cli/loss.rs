//! A lock that is lost: whatever happened to the keeper, the command's whole group has ended before the deadline.

use std::fs;
use std::time::{Duration, SystemTime};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use crate::support::{eventually, guard, is_gone, Home, Running, UNTIL_GO};

/// A command that pays no heed to TERM, with a child that does not either.
const STUBBORN: &str = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >>pids; touch ready; while :; do sleep 1; done' & \
                        while :; do sleep 1; done";

/// One that ends when it is asked to.
const WILLING: &str = "sh -c 'echo $$ >>pids; touch ready; while :; do sleep 0.01; done' & \
                       trap 'echo ended; exit 0' TERM; while :; do sleep 0.01; done";

fn deadline(home: &Home) -> SystemTime {
    let info = home.inspect("n");
    humantime::parse_rfc3339(info["deadline"].as_str().unwrap()).unwrap()
}

fn until_gone(pids: &[Pid]) -> SystemTime {
    assert_eq!(pids.len(), 2);
    eventually("the whole group has ended", || {
        pids.iter().all(|pid| is_gone(*pid))
    });
    SystemTime::now()
}

#[test]
fn a_stolen_lock_ends_the_group_before_its_deadline() {
    for script in [WILLING, STUBBORN] {
        let home = Home::new();
        let (holder, pids) = home.hold(&["n", "--ttl", "4s"], script);
        // So that it is the keeper's own doing.
        kill(guard(holder.pid()), Signal::SIGKILL).unwrap();
        assert_eq!(
            home.run(&["release", "n", "--token", &home.token("n")])
                .code(),
            0
        );
        let at_most = SystemTime::now() + Duration::from_secs(4);
        assert!(until_gone(&pids) < at_most);
        let done = holder.done();
        assert_eq!(done.code(), 76);
        assert!(done.err.contains("lost the lock \"n\""), "{}", done.err);
        assert_eq!(
            done.text() == "ended\n",
            script == WILLING,
            "TERM comes first"
        );
    }
}

#[test]
fn the_thief_is_named() {
    let home = Home::new();
    let (holder, _) = home.hold(&["n", "--ttl", "3s"], STUBBORN);
    let token = home.token("n");
    let thief = home.start(&[
        "lock",
        "n",
        "--owner",
        "the thief",
        "--",
        "sh",
        "-c",
        UNTIL_GO,
    ]);
    assert_eq!(home.run(&["release", "n", "--token", &token]).code(), 0);
    let done = holder.done();
    assert_eq!(done.code(), 76);
    assert!(done.err.contains("the thief"), "{}", done.err);
    fs::write(home.path("go"), "").unwrap();
    assert_eq!(thief.done().code(), 0);
}

#[test]
fn the_guard_ends_the_group_of_a_stopped_keeper_before_the_deadline() {
    for script in [WILLING, STUBBORN] {
        let home = Home::new();
        let (holder, pids) = home.hold(&["n", "--ttl", "4s"], script);
        holder.signal(Signal::SIGSTOP);
        let deadline = deadline(&home);
        assert!(until_gone(&pids) < deadline);
        holder.signal(Signal::SIGCONT);
        let done = holder.done();
        assert_eq!(done.code(), 76, "{}", done.err);
    }
}

#[test]
fn a_keeper_that_goes_on_after_the_deadline_ends_the_group_at_once() {
    let home = Home::new();
    let (holder, pids) = home.hold(&["n", "--ttl", "1s"], STUBBORN);
    holder.signal(Signal::SIGSTOP);
    // Without its guard, so that it is the keeper's own doing.
    kill(guard(holder.pid()), Signal::SIGKILL).unwrap();
    eventually("the lock lapses", || home.inspect("n")["lapsed"] == true);
    assert!(pids.iter().all(|pid| !is_gone(*pid)));
    let since = SystemTime::now();
    holder.signal(Signal::SIGCONT);
    let took = until_gone(&pids).duration_since(since).unwrap();
    assert!(
        took < Duration::from_millis(800),
        "at once, without any grace: {took:?}"
    );
    assert_eq!(holder.done().code(), 76);
}

#[test]
fn the_guard_ends_the_group_of_a_killed_keeper() {
    for script in [WILLING, STUBBORN] {
        let home = Home::new();
        let (holder, pids) = home.hold(&["n", "--ttl", "3s"], script);
        holder.signal(Signal::SIGKILL);
        let deadline = deadline(&home);
        assert!(until_gone(&pids) < deadline);
        let done = holder.done();
        assert!(done.err.contains("was killed"), "{}", done.err);
        assert!(
            home.inspect("n")["owner"].is_string(),
            "its lock is there until it lapses"
        );
    }
}

#[test]
fn a_killed_guard_is_followed_by_another() {
    let home = Home::new();
    let (holder, pids) = home.hold(&["n", "--ttl", "3s"], STUBBORN);
    let first = guard(holder.pid());
    kill(first, Signal::SIGKILL).unwrap();
    eventually("another guard", || {
        let children = crate::support::children(holder.pid());
        children
            .iter()
            .any(|(pid, args)| *pid != first && args.contains("__guard"))
    });
    holder.signal(Signal::SIGSTOP);
    let deadline = deadline(&home);
    assert!(until_gone(&pids) < deadline);
}

#[test]
fn a_store_that_cannot_be_written_ends_the_group_before_the_deadline() {
    let home = Home::new();
    let (holder, pids) = home.hold(&["n", "--ttl", "4s"], STUBBORN);
    let connection = rusqlite::Connection::open(home.path("store.db")).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let deadline = deadline(&home);
    assert!(until_gone(&pids) < deadline);
    connection.execute_batch("ROLLBACK").unwrap();
    let done = holder.done();
    assert_eq!(done.code(), 76);
    assert!(
        done.err.contains("trying again") && done.err.contains("lost the lock"),
        "{}",
        done.err
    );
}

#[test]
fn a_store_that_comes_back_in_time_costs_nothing() {
    let home = Home::new();
    let (holder, _) = home.hold(&["n", "--ttl", "3s"], &format!("touch ready; {UNTIL_GO}"));
    let connection = rusqlite::Connection::open(home.path("store.db")).unwrap();
    let before = deadline(&home);
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Until the first renewal is overdue.
    let overdue = before - Duration::from_millis(1_700);
    eventually("a renewal is overdue", || SystemTime::now() > overdue);
    connection.execute_batch("ROLLBACK").unwrap();
    eventually("it is renewed", || deadline(&home) > before);
    fs::write(home.path("go"), "").unwrap();
    assert_eq!(holder.done().code(), 0);
}

#[test]
fn a_command_that_ends_before_the_loss_is_noticed_has_lost_all_the_same() {
    let home = Home::new();
    let (holder, _) = home.hold(&["n", "--ttl", "1h"], &format!("touch ready; {UNTIL_GO}"));
    assert_eq!(
        home.run(&["release", "n", "--token", &home.token("n")])
            .code(),
        0
    );
    fs::write(home.path("go"), "").unwrap();
    let done = holder.done();
    assert_eq!(done.code(), 76);
    assert!(
        done.err.contains("before the command came to its end"),
        "{}",
        done.err
    );
}

#[test]
fn a_lock_inside_a_lock_is_lost_with_it() {
    let home = Home::new();
    let inner = format!(
        "exec \"$ALKSTORE\" lock inner -- sh -c 'echo $$ >>pids; {}'",
        "touch ready; while :; do sleep 0.01; done"
    );
    let (holder, pids) = home.hold(&["n", "--ttl", "2s"], &inner);
    assert_eq!(
        home.run(&["release", "n", "--token", &home.token("n")])
            .code(),
        0
    );
    until_gone(&pids);
    assert_eq!(holder.done().code(), 76);
    eventually("the inner lock is free", || {
        let done = home.run(&["locks"]);
        done.text().is_empty()
    });
}

#[test]
fn a_grace_that_leaves_no_time_for_renewals_is_refused() {
    let home = Home::new();
    let done = home.run(&[
        "lock", "n", "--ttl", "4s", "--grace", "3s", "--", "touch", "ran",
    ]);
    assert_eq!(done.code(), 64);
    assert!(done.err.contains("--grace"), "{}", done.err);
    let started =
        Running::start(home.command(&["lock", "n", "--ttl", "4s", "--grace", "2s", "--", "true"]));
    assert_eq!(started.done().code(), 0);
}
