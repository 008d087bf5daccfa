//! Folders, processes and futures for the tests.

use std::future::Future;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use alkstore::{ManualClock, Timestamp};
use alkstore_native::sqlite::rusqlite::Connection;
use alkstore_native::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use futures_util::FutureExt as _;
use tempfile::TempDir;

pub(crate) const TTL: Duration = Duration::from_secs(30);
pub(crate) const START: Timestamp = Timestamp::from_nanos(1_000_000_000_000_000);

const FILE: &str = "ALKSTORE_TEST_FILE";
const ARGUMENT: &str = "ALKSTORE_TEST_ARGUMENT";

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    futures_executor::block_on(future)
}

/// Lets a call get as far as it can while another connection has the write lock.
pub(crate) fn assert_waits<T>(call: &mut (impl Future<Output = T> + Unpin)) {
    // It yields to other tasks before it asks for the lock.
    for _ in 0..3 {
        assert!(call.now_or_never().is_none(), "it waits");
    }
}

/// A file that does not exist yet, in a folder that goes with the first part.
pub(crate) fn fresh() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    (folder, path)
}

/// What the tests show here does not depend on when a commit reaches the disk.
pub(crate) fn quick() -> SqliteOptions {
    SqliteOptions::new().synchronous(Synchronous::Normal)
}

pub(crate) fn open(path: &Path) -> SqliteStore {
    block_on(quick().open(path)).unwrap()
}

/// A store on a clock that stands until it is moved.
pub(crate) fn open_at(path: &Path, clock: &ManualClock) -> SqliteStore {
    block_on(quick().clock(clock.clone()).open(path)).unwrap()
}

/// A connection of somebody else.
pub(crate) fn connect(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(5)).unwrap();
    connection
}

pub(crate) fn assert_intact(path: &Path) {
    let connection = connect(path);
    let check: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
}

/// The role of a process that [`spawn`] started: the file, and the argument. `None` in the test itself.
pub(crate) fn role() -> Option<(PathBuf, String)> {
    Some((
        std::env::var_os(FILE)?.into(),
        std::env::var(ARGUMENT).ok()?,
    ))
}

/// This test again as another process, in its [`role`].
pub(crate) fn command(test: &str, path: &Path, argument: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(FILE, path)
        .env(ARGUMENT, argument)
        .stdout(Stdio::piped());
    command
}

/// A process whose lines can be read as it prints them. It is killed where it is not waited for.
pub(crate) struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// Before what a process has to say: the test runner prints lines of its own.
const MARK: &str = "=> ";

/// Says something to the process that started this one.
pub(crate) fn say(line: impl std::fmt::Display) {
    println!("{MARK}{line}");
}

pub(crate) fn spawn(test: &str, path: &Path, argument: &str) -> Process {
    let mut child = command(test, path, argument).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    Process { child, lines }
}

impl Process {
    /// The next thing that it says; `None` at its end.
    pub(crate) fn line(&mut self) -> Option<String> {
        loop {
            let line = self.lines.next()?.unwrap();
            // The runner begins a line with the test's name, and the first of ours stands behind it.
            if let Some((_, said)) = line.split_once(MARK) {
                return Some(said.to_owned());
            }
        }
    }

    /// Everything that it still says; it must end well.
    pub(crate) fn finish(mut self) -> Vec<String> {
        let said = std::iter::from_fn(|| self.line()).collect();
        assert!(self.child.wait().unwrap().success());
        said
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
