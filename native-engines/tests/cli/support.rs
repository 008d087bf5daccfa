//! The program under test, and what it takes to run and watch it.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use tempfile::TempDir;

/// How long anything may take, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with a store, in which commands run.
pub struct Home {
    folder: TempDir,
    url: String,
    schema: Option<String>,
}

/// What a program that has ended left behind.
#[derive(Debug)]
pub struct Done {
    pub status: ExitStatus,
    pub out: Vec<u8>,
    pub err: String,
}

/// A program that runs; it is killed when the test ends.
pub struct Running {
    child: Child,
    out: Option<JoinHandle<Vec<u8>>>,
    err: Option<JoinHandle<Vec<u8>>>,
}

impl Home {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        Self {
            folder,
            url,
            schema: None,
        }
    }

    pub fn on(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            ..Self::new()
        }
    }

    /// In a schema of its own, on a server that others use too.
    pub fn in_schema(url: &str, schema: &str) -> Self {
        Self {
            schema: Some(schema.to_owned()),
            ..Self::on(url)
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Any program, in the folder, with an environment of our own.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("ALKSTORE_URL", &self.url)
            .env("ALKSTORE", env!("CARGO_BIN_EXE_alkstore"))
            .env("LC_ALL", "C")
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        if let Some(schema) = &self.schema {
            command.env("ALKSTORE_SCHEMA", schema);
        }
        command
    }

    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_alkstore"));
        command.args(args);
        command
    }

    /// Runs the program to its end.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Done {
        Running::start(self.command(args)).done()
    }

    pub fn start<S: AsRef<OsStr>>(&self, args: &[S]) -> Running {
        Running::start(self.command(args))
    }

    /// The program, and the pipe that is its input.
    pub fn start_with_input<S: AsRef<OsStr>>(&self, args: &[S]) -> (Running, ChildStdin) {
        let mut command = self.command(args);
        command.stdin(Stdio::piped());
        let mut running = Running::start(command);
        let pipe = running.child.stdin.take().unwrap();
        (running, pipe)
    }

    pub fn run_with_input<S: AsRef<OsStr>>(&self, args: &[S], input: &[u8]) -> Done {
        let (running, mut pipe) = self.start_with_input(args);
        let input = input.to_vec();
        let writer = std::thread::spawn(move || drop(pipe.write_all(&input)));
        let done = running.done();
        writer.join().unwrap();
        done
    }

    /// Starts a command under the lock that says when it runs, and waits until it does: the keeper, and the ids that
    /// `script` has written, one a line, after its `ready`.
    pub fn hold(&self, options: &[&str], script: &str) -> (Running, Vec<Pid>) {
        let ready = self.path("ready");
        let _ = std::fs::remove_file(&ready);
        let mut args = vec!["lock"];
        args.extend(options);
        let script = format!("echo $$ >pids; {script}");
        args.extend(["--", "sh", "-c", &script]);
        let running = self.start(&args);
        eventually("the command runs", || ready.exists());
        let pids = std::fs::read_to_string(self.path("pids")).unwrap();
        let pids = pids.lines().map(|pid| Pid::from_raw(pid.parse().unwrap()));
        (running, pids.collect())
    }

    /// What `inspect --json` says of a lock.
    pub fn inspect(&self, name: &str) -> serde_json::Value {
        let done = self.run(&["inspect", name, "--json"]);
        assert_eq!(done.code(), 0, "{done:?}");
        serde_json::from_slice(&done.out).unwrap()
    }

    pub fn token(&self, name: &str) -> String {
        self.inspect(name)["token"].to_string()
    }
}

/// Holds on until the file `go` is there.
pub const UNTIL_GO: &str = "until [ -e go ]; do sleep 0.01; done";

impl Running {
    pub fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = read(child.stdout.take().unwrap());
        let err = read(child.stderr.take().unwrap());
        Self {
            child,
            out: Some(out),
            err: Some(err),
        }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end, and for that of its output.
    pub fn done(mut self) -> Done {
        let mut status = None;
        eventually("the program ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let (out, err) = (self.out.take().unwrap(), self.err.take().unwrap());
        Done {
            status: status.unwrap(),
            out: out.join().unwrap(),
            err: String::from_utf8_lossy(&err.join().unwrap()).into_owned(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A keeper that is killed has its command ended by its guard.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

impl Done {
    /// The exit code, as a shell shows it.
    pub fn code(&self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let signal = || self.status.signal().map(|signal| 128 + signal);
        self.status.code().or_else(signal).unwrap()
    }

    /// The output as JSON, of a run that came to its end.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }
}

pub fn eventually(what: &str, happens: impl FnMut() -> bool) {
    eventually_or(happens, || panic!("in vain: {what}"));
}

pub fn eventually_or(mut happens: impl FnMut() -> bool, in_vain: impl Fn()) {
    let since = Instant::now();
    while !happens() {
        if since.elapsed() > PATIENCE {
            in_vain();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs no more; one that nobody has buried runs no more either.
pub fn is_gone(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    if Path::new("/proc/self/stat").exists() {
        return stat.map_or(true, |stat| {
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('Z'))
        });
    }
    kill(pid, None).is_err()
}

/// The processes that `parent` has started and that run.
pub fn children(parent: Pid) -> Vec<(Pid, String)> {
    let ps = Command::new("ps")
        .args(["-A", "-o", "pid=,ppid=,args="])
        .output()
        .unwrap();
    let lines = String::from_utf8_lossy(&ps.stdout).into_owned();
    let of_parent = |line: &str| {
        let mut words = line.split_whitespace();
        let pid = words.next()?.parse().ok()?;
        let its_parent: i32 = words.next()?.parse().ok()?;
        let args = words.collect::<Vec<_>>().join(" ");
        (its_parent == parent.as_raw()).then(|| (Pid::from_raw(pid), args))
    };
    lines.lines().filter_map(of_parent).collect()
}

/// The guard of a keeper.
pub fn guard(keeper: Pid) -> Pid {
    let mut found = None;
    eventually("there is a guard", || {
        let children = children(keeper);
        found = children
            .iter()
            .find(|(_, args)| args.contains("__guard"))
            .map(|(pid, _)| *pid);
        found.is_some()
    });
    found.unwrap()
}
