//! Those who work in a world, and what is done to them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use alkstore_native::postgres::tokio_postgres::Client;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use crate::cluster::Cluster;
use crate::mem::MemPlace;
use crate::place::{Failure, LEASE};
use crate::postgres::connect;
use crate::random::Random;
use crate::role::{arguments, work, Folders, Role};
use crate::sweeper::Faults;

/// Who works in every world.
const ROLES: [(Role, &str); 7] = [
    (Role::Writer, "writer1"),
    (Role::Writer, "writer2"),
    (Role::Writer, "writer3"),
    (Role::Marker, "marker1"),
    (Role::Sweeper, "sweeper1"),
    (Role::Sweeper, "sweeper2"),
    (Role::Sweeper, "sweeper3"),
];

/// How often an immediate restart of the server comes.
const RESTART: Duration = Duration::from_secs(20);

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Harm {
    pub(crate) killed: u64,
    pub(crate) stopped: u64,
    pub(crate) terminated: u64,
    pub(crate) backends: u64,
    pub(crate) restarts: u64,
}

/// Those of the world in memory: threads, which nobody kills.
pub(crate) struct Threads {
    stop: Arc<AtomicBool>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    pub(crate) fn start(place: &MemPlace, run: &Path, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let folders = Folders::of(run);
        let spawn = |(role, slot): (Role, &'static str)| {
            let (place, stop, folders) = (place.clone(), Arc::clone(&stop), folders.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                let done = runtime.map_err(Failure::from).and_then(|runtime| {
                    let faults = (&folders, Faults::InProcess);
                    runtime.block_on(work(place, role, (slot, 1), seed, faults, &stop))
                });
                if let Err(failure) = done {
                    eprintln!("{slot}: {failure}");
                    std::process::abort();
                }
            })
        };
        let handles = ROLES.into_iter().map(spawn).collect();
        Self { stop, handles }
    }

    pub(crate) fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for handle in self.handles {
            let _ = handle.join();
        }
    }
}

struct Member {
    role: Role,
    slot: &'static str,
    generation: u64,
    child: Child,
    /// Until when it stands still.
    still: Option<Instant>,
}

impl Member {
    fn signal(&self, signal: Signal) {
        // It is a child that was not waited for yet, so the id is still its own.
        if let Ok(id) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(id), signal);
        }
    }
}

/// Processes on one file or one server.
pub(crate) struct Processes {
    engine: &'static str,
    place: String,
    run: PathBuf,
    seed: u64,
    random: Random,
    members: Vec<Member>,
    pub(crate) harm: Harm,
    next: Instant,
    server: Option<Server>,
}

/// A server that is harmed as well.
struct Server {
    cluster: Cluster,
    client: Option<Client>,
    next: Instant,
    restart: Instant,
}

impl Processes {
    pub(crate) fn start(
        engine: &'static str,
        place: &str,
        run: &Path,
        seed: u64,
        cluster: Option<Cluster>,
    ) -> Result<Self, Failure> {
        let now = Instant::now();
        let mut crew = Self {
            engine,
            place: place.to_owned(),
            run: run.to_owned(),
            seed,
            random: Random::new(seed, "chaos"),
            members: Vec::new(),
            harm: Harm::default(),
            next: now,
            server: cluster.map(|cluster| Server {
                cluster,
                client: None,
                next: now,
                restart: now + RESTART,
            }),
        };
        for (role, slot) in ROLES {
            let child = crew.spawn(role, slot, 1)?;
            crew.members.push(Member {
                role,
                slot,
                generation: 1,
                child,
                still: None,
            });
        }
        Ok(crew)
    }

    fn spawn(&self, role: Role, slot: &str, generation: u64) -> Result<Child, Failure> {
        let arguments = arguments(
            self.engine,
            role,
            (slot, generation),
            self.seed,
            &self.run,
            &self.place,
        );
        // Its input ends with this process, and then so does the child.
        let child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .spawn()?;
        Ok(child)
    }

    /// Does what is due, some of the time.
    pub(crate) async fn harm(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        for at in 0..self.members.len() {
            let member = &mut self.members[at];
            if member.still.is_some_and(|until| until <= now) {
                member.still = None;
                member.signal(Signal::SIGCONT);
            }
            if member.child.try_wait()?.is_some() {
                // A sweeper that killed itself.
                self.harm.killed += 1;
                self.replace(at)?;
            }
        }
        if self.next <= now {
            self.next = now + self.random.millis(150, 900);
            let at = usize::try_from(self.random.below(self.members.len() as u64)).unwrap_or(0);
            let stalls = match self.members[at].role {
                // The server throws the transaction of a writer away that stands still; a file stays locked.
                Role::Writer => self.engine == "postgres" && self.random.percent(20),
                Role::Sweeper | Role::Marker => self.random.percent(50),
            };
            let for_how_long = LEASE.mul_f64(0.3) + self.random.millis(0, 2500);
            let member = &mut self.members[at];
            if stalls && member.still.is_none() {
                member.signal(Signal::SIGSTOP);
                member.still = Some(now + for_how_long);
                self.harm.stopped += 1;
            } else {
                let _ = member.child.kill();
                member.child.wait()?;
                self.harm.killed += 1;
                self.replace(at)?;
            }
        }
        if let Some(server) = &mut self.server {
            server.harm(&mut self.random, &mut self.harm).await?;
        }
        Ok(())
    }

    fn replace(&mut self, at: usize) -> Result<(), Failure> {
        let (role, slot, generation) = {
            let member = &self.members[at];
            (member.role, member.slot, member.generation + 1)
        };
        let child = self.spawn(role, slot, generation)?;
        self.members[at] = Member {
            role,
            slot,
            generation,
            child,
            still: None,
        };
        Ok(())
    }

    /// Ends all of them; the server stays until the answer is dropped.
    pub(crate) fn end(mut self) -> (Harm, Option<Cluster>) {
        self.kill_all();
        (self.harm, self.server.take().map(|server| server.cluster))
    }

    fn kill_all(&mut self) {
        for member in &mut self.members {
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
        self.members.clear();
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill_all();
    }
}

impl Server {
    async fn harm(&mut self, random: &mut Random, harm: &mut Harm) -> Result<(), Failure> {
        let now = Instant::now();
        if self.restart <= now {
            self.client = None;
            self.cluster.kill()?;
            std::thread::sleep(random.millis(0, 500));
            self.cluster.restart()?;
            self.restart = Instant::now() + RESTART;
            harm.restarts += 1;
        }
        if self.next > now {
            return Ok(());
        }
        self.next = now + random.millis(300, 1200);
        if self.client.as_ref().is_none_or(Client::is_closed) {
            self.client = connect(&self.cluster.url()).await.ok();
        }
        let Some(client) = &self.client else {
            return Ok(());
        };
        let victims = if random.percent(40) {
            // Whoever holds a lock with a number of 64 bits: the sweep.
            "AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted)"
        } else {
            ""
        };
        let sql = format!(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() {victims} \
             ORDER BY random() LIMIT 1"
        );
        let Ok(Some(row)) = client.query_opt(&sql, &[]).await else {
            return Ok(());
        };
        let pid: i32 = row.try_get(0)?;
        if random.percent(7) {
            // The server ends all others, and recovers.
            if kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok() {
                harm.backends += 1;
            }
        } else if client
            .execute("SELECT pg_terminate_backend($1)", &[&pid])
            .await
            .is_ok()
        {
            harm.terminated += 1;
        }
        Ok(())
    }
}
