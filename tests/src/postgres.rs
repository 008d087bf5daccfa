//! A Postgres server for tests: a throwaway one from local binaries, or the one that `ALKSTORE_PG_URL` names.
//!
//! The throwaway server listens on a socket in a private folder and on no port. A shell is its parent, which the test
//! process talks to through a pipe: when the pipe closes, because the test process ended in whatever way, the shell
//! ends the server by its process id, waits for it and removes the folder.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{chown, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Set to the connection string of a server, it is used instead of a throwaway one. Tests make schemas in it.
pub const URL: &str = "ALKSTORE_PG_URL";

/// Set to a folder that holds `initdb` and `postgres`, it is the first to be looked into.
pub const BIN: &str = "ALKSTORE_PG_BIN";

/// The server of this test process, started by the first who asks.
///
/// Where there is none to be had, it says so on the error output, past the capture of the test runner, and answers
/// `None`: the test is to return. In CI it panics instead.
pub fn server() -> Option<&'static Server> {
    static SERVER: OnceLock<Result<Server, String>> = OnceLock::new();
    SERVER
        .get_or_init(Server::new)
        .as_ref()
        .map_err(|why| skip(why))
        .ok()
}

/// A throwaway server for one test alone, whatever `ALKSTORE_PG_URL` says; `None` as [`server`] has it.
pub fn cluster(settings: &[&str]) -> Option<Cluster> {
    cluster_with(settings, &[] as &[(&str, &str)])
}

/// The same with files of one's own in its folder of data: names and contents.
pub fn cluster_with(
    settings: &[impl AsRef<str>],
    files: &[(&str, impl AsRef<[u8]>)],
) -> Option<Cluster> {
    Cluster::start(settings, files)
        .map_err(|why| skip(&why))
        .ok()
}

fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "no Postgres in CI: {why}");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let _ = writeln!(io::stderr(), "SKIPPED {test}: no Postgres: {why}");
}

/// A name for a schema that nobody else uses.
pub fn fresh_schema() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let run = since.map_or(0, |since| since.as_millis()) ^ u128::from(std::process::id());
    format!("alkstore test {run}-{count}")
}

/// A server to connect to.
#[derive(Debug)]
pub struct Server {
    url: String,
    // Kept for the pipe in it, which ends the server.
    _cluster: Option<Cluster>,
}

impl Server {
    fn new() -> Result<Self, String> {
        if let Ok(url) = std::env::var(URL) {
            return Ok(Self {
                url,
                _cluster: None,
            });
        }
        let cluster = Cluster::start(&[] as &[&str], &[] as &[(&str, &str)])?;
        Ok(Self {
            url: cluster.url(),
            _cluster: Some(cluster),
        })
    }

    /// Its connection string.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// A throwaway server of a test's own, which it may kill.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    shell: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// `$1` is the folder, `$2` the server's program; the rest are its arguments.
const SHELL: &str = r#"
folder=$1; shift
pid=
while read -r order; do
  case $order in
    start) "$@" >>"$folder/log" 2>&1 </dev/null & pid=$!; echo "$pid" ;;
    kill) kill -KILL "$pid" $(ps -o pid= --ppid "$pid"); wait "$pid" 2>/dev/null; pid=; echo killed ;;
    stop) kill -STOP "$pid" $(ps -o pid= --ppid "$pid"); echo stopped ;;
    continue) kill -CONT "$pid" $(ps -o pid= --ppid "$pid"); echo continued ;;
  esac
done
if [ -n "$pid" ]; then
  kill -CONT "$pid" 2>/dev/null; kill -QUIT "$pid" 2>/dev/null; wait "$pid" 2>/dev/null
fi
rm -rf "$folder"
"#;

impl Cluster {
    /// Makes and starts a server; `settings` are further `name=value` lines of its configuration.
    fn start(
        settings: &[impl AsRef<str>],
        files: &[(&str, impl AsRef<[u8]>)],
    ) -> Result<Self, String> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let bin = binaries()?;
        let user = unprivileged_user()?;
        let folder = std::env::temp_dir().join(format!(
            "alkstore-pg-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let made = Self::make(&bin, &folder, user, settings, files);
        if made.is_err() {
            let _ = fs::remove_dir_all(&folder);
        }
        made
    }

    fn make(
        bin: &Path,
        folder: &Path,
        user: Option<(u32, u32)>,
        settings: &[impl AsRef<str>],
        files: &[(&str, impl AsRef<[u8]>)],
    ) -> Result<Self, String> {
        let told = |what: &str| {
            let what = what.to_owned();
            move |e: io::Error| format!("{what}: {e}")
        };
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(told("chmod"))?;
        if let Some((uid, gid)) = user {
            chown(folder, Some(uid), Some(gid)).map_err(told("chown"))?;
        }
        let data = folder.join("data");
        let initdb = as_user(&bin.join("initdb"), user)
            .args(["--username=postgres", "--auth=trust", "--no-sync"])
            .args(["--encoding=UTF8", "--no-locale", "--pgdata"])
            .arg(&data)
            .output()
            .map_err(told("initdb"))?;
        if !initdb.status.success() {
            return Err(format!(
                "initdb failed: {}",
                String::from_utf8_lossy(&initdb.stderr)
            ));
        }
        for (name, content) in files {
            let file = data.join(name);
            fs::write(&file, content).map_err(told(name))?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).map_err(told(name))?;
            if let Some((uid, gid)) = user {
                chown(&file, Some(uid), Some(gid)).map_err(told(name))?;
            }
        }
        let mut server = vec![
            "listen_addresses=".to_owned(),
            format!("unix_socket_directories={}", folder.display()),
            "max_connections=200".to_owned(),
        ];
        server.extend(settings.iter().map(|setting| setting.as_ref().to_owned()));
        let mut shell = as_user(Path::new("/bin/sh"), user);
        shell
            .args(["-c", SHELL, "sh"])
            .arg(folder)
            .arg(bin.join("postgres"))
            .arg("-D")
            .arg(&data)
            .args(server.iter().flat_map(|setting| ["-c", setting]))
            // Out of the terminal's group: an interrupt ends the tests first, and this after them.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut shell = shell.spawn().map_err(told("/bin/sh"))?;
        let (Some(orders), Some(answers)) = (shell.stdin.take(), shell.stdout.take()) else {
            return Err("the shell has no pipes".into());
        };
        let mut cluster = Self {
            folder: folder.to_owned(),
            shell,
            orders: Some(orders),
            answers: BufReader::new(answers),
        };
        cluster.restart()?;
        Ok(cluster)
    }

    /// Its connection string.
    pub fn url(&self) -> String {
        let socket = self.folder.display().to_string();
        format!("host='{socket}' user=postgres dbname=postgres")
    }

    /// The folder that holds its socket, `.s.PGSQL.5432`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Kills the server and its children with signal 9 and waits for its end.
    pub fn kill(&mut self) -> Result<(), String> {
        self.order("kill").map(drop)
    }

    /// Stops all of the server's processes with a signal, so that it falls silent with its sockets open.
    pub fn stop(&mut self) -> Result<(), String> {
        self.order("stop").map(drop)
    }

    /// Lets a stopped server go on.
    pub fn resume(&mut self) -> Result<(), String> {
        self.order("continue").map(drop)
    }

    /// Starts the server after [`kill`](Self::kill), and waits until it takes connections. Children of the old one may
    /// take a moment to notice; the server refuses to start until then.
    pub fn restart(&mut self) -> Result<(), String> {
        let until = Instant::now() + Duration::from_secs(60);
        let mut pid = self.order("start")?;
        loop {
            let state =
                fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap_or_default();
            let mut lines = state.lines();
            let owner = lines.next().unwrap_or_default();
            let ready = lines.nth(6).unwrap_or_default().trim_end();
            if owner == pid && ready == "ready" {
                return Ok(());
            }
            if Instant::now() > until {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(format!("the server does not start:\n{log}"));
            }
            if !is_running(&pid) {
                pid = self.order("start")?;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn order(&mut self, order: &str) -> Result<String, String> {
        let orders = self.orders.as_mut().ok_or("the shell is gone")?;
        writeln!(orders, "{order}").map_err(|e| format!("{order}: {e}"))?;
        let mut answer = String::new();
        self.answers
            .read_line(&mut answer)
            .map_err(|e| format!("{order}: {e}"))?;
        Ok(answer.trim_end().to_owned())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.shell.wait();
    }
}

fn is_running(pid: &str) -> bool {
    Command::new("ps")
        .args(["-o", "stat=", "-p", pid])
        .output()
        .is_ok_and(|ps| !ps.stdout.is_empty() && !ps.stdout.starts_with(b"Z"))
}

fn as_user(program: &Path, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    // A folder that any user can be in.
    command.current_dir("/").env("LC_ALL", "C");
    command
}

/// Where the programs are.
fn binaries() -> Result<PathBuf, String> {
    let mut folders: Vec<PathBuf> = std::env::var_os(BIN)
        .map(PathBuf::from)
        .into_iter()
        .collect();
    if let Some(path) = std::env::var_os("PATH") {
        folders.extend(std::env::split_paths(&path));
    }
    // Where packages put them: Debian and its like, Red Hat and its like, Homebrew, the sources.
    let mut packaged = Vec::new();
    for (parent, prefix, suffix) in [
        ("/usr/lib/postgresql", "", "bin"),
        ("/usr", "pgsql-", "bin"),
        ("/opt/homebrew/opt", "postgresql", "bin"),
        ("/usr/local/opt", "postgresql", "bin"),
        ("/usr/local", "pgsql", "bin"),
    ] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(version) = name.strip_prefix(prefix) {
                let version: u32 = version.trim_start_matches('@').parse().unwrap_or(0);
                packaged.push((version, entry.path().join(suffix)));
            }
        }
    }
    packaged.sort();
    folders.extend(packaged.into_iter().rev().map(|(_, folder)| folder));
    folders
        .into_iter()
        .find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
        .ok_or_else(|| {
            format!("found no initdb and postgres: install PostgreSQL, or set {URL} or {BIN}")
        })
}

/// The server refuses to run as root: who it runs as instead. `None` where we are not root.
fn unprivileged_user() -> Result<Option<(u32, u32)>, String> {
    let id = Command::new("id")
        .arg("-u")
        .output()
        .map_err(|e| format!("id: {e}"))?;
    if String::from_utf8_lossy(&id.stdout).trim() != "0" {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(|e| format!("/etc/passwd: {e}"))?;
    ["postgres", "nobody"]
        .iter()
        .find_map(|wanted| {
            users.lines().find_map(|line| {
                let fields: Vec<_> = line.split(':').collect();
                match fields.as_slice() {
                    [name, _, uid, gid, ..] if name == wanted => {
                        Some((uid.parse().ok()?, gid.parse().ok()?))
                    }
                    _ => None,
                }
            })
        })
        .map(Some)
        .ok_or_else(|| "running as root, and there is neither a user postgres nor nobody".into())
}
