//! G5: random histories of writers, mark passes and sweeps, interleaved at every call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

use alkstore::{
    stage_unreferenced, sweep, BoxFuture, Entries, ErrorKind, GcAbortCause, HookError, HookFuture,
    Key, LiveKeys, Put, PutOptions, Reclaimed, Reclaimer, StageOptions, Store, SweepOptions,
    SweepStop, Timestamp,
};
use futures_util::future::poll_fn;
use futures_util::FutureExt as _;

use crate::dry_runs::Dice;
use crate::fixture::{Capability, Engine, Fixture};
use crate::interposed::{held, Interposed, Moment, Source};
use crate::steps::{open, secs, NANO};
use crate::sweep::adds_up;
use crate::{ensure, CaseResult, Failure};

const WRITERS: usize = 3;
const KEYS: u64 = 5;
const GRACE: Duration = secs(60);
const LEASE: Duration = secs(30);

/// What is outside the store: the embedder's references and payloads, and whose turn it is.
struct World {
    turn: AtomicBool,
    /// The committed references, by writer.
    references: Mutex<BTreeMap<usize, Vec<u8>>>,
    /// Payloads have names that are never used again; entries hold them.
    payloads: Mutex<BTreeSet<Vec<u8>>>,
    names: AtomicU64,
    /// Since when a writer relies on what it has published and not yet referred to.
    relying: Mutex<[Option<Timestamp>; WRITERS]>,
}

impl World {
    /// Where others may come in between.
    fn pass(&self) -> BoxFuture<'_, alkstore::Result<()>> {
        let mut passed = false;
        poll_fn(move |_| {
            if passed {
                return Poll::Ready(Ok(()));
            }
            passed = true;
            self.turn.store(true, Ordering::SeqCst);
            Poll::Pending
        })
        .boxed()
    }

    /// One step of an actor: until it lets others come in between, or is done.
    async fn step(&self, actor: &mut HookFuture<'_, CaseResult>) -> Option<CaseResult> {
        poll_fn(|context| match actor.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if self.turn.swap(false, Ordering::SeqCst) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    fn live(&self) -> BTreeSet<Vec<u8>> {
        held(&self.references).values().cloned().collect()
    }

    /// G5.
    async fn check(&self, store: &dyn Store) -> CaseResult {
        for key in self.live() {
            let Some(entry) = store.get(&key).await? else {
                return Err(Failure::new(format_args!(
                    "{key:?} is referred to and gone"
                )));
            };
            let there = held(&self.payloads).contains(&*entry.value);
            ensure!(there, "{key:?} is referred to and its payload is gone");
        }
        Ok(())
    }
}

/// What a writer is going to do.
#[derive(Clone, Copy)]
struct Plan {
    key: u64,
    forgets: bool,
    pauses: u64,
    refers: bool,
}

async fn write(
    world: &World,
    store: &impl Entries,
    at: (usize, Timestamp),
    plan: Plan,
) -> CaseResult {
    let (writer, now) = at;
    if plan.forgets {
        held(&world.references).remove(&writer);
        world.pass().await?;
    }
    let key = format!("k{}", plan.key).into_bytes();
    let payload = world
        .names
        .fetch_add(1, Ordering::SeqCst)
        .to_string()
        .into_bytes();
    held(&world.payloads).insert(payload.clone());
    // No later than the publication itself.
    held(&world.relying)[writer] = Some(now);
    let put = store.put(&key, &payload, PutOptions::create()).await;
    if !matches!(put, Ok(Put::Stored { .. })) {
        held(&world.payloads).remove(&payload);
    }
    match put {
        Err(error) if error.kind() == ErrorKind::Conflict => return Ok(()),
        other => other?,
    };
    for _ in 0..plan.pauses {
        world.pass().await?;
    }
    if plan.refers {
        held(&world.references).insert(writer, key);
    }
    Ok(())
}

/// The live keys as they are when somebody first asks.
struct Now<'w>(&'w World, bool);

impl LiveKeys for Now<'_> {
    fn next_keys(&mut self) -> HookFuture<'_, Result<Option<Vec<Key<'static>>>, HookError>> {
        let first = !std::mem::replace(&mut self.1, true);
        Box::pin(async move {
            self.0.pass().await?;
            let live: Result<Vec<_>, _> = self.0.live().into_iter().map(Key::new).collect();
            self.0.pass().await?;
            Ok(first.then_some(live?))
        })
    }
}

/// Deletes the payload that the entry of a key names.
struct Named<'w>(&'w World, &'w dyn Store);

impl Named<'_> {
    async fn one(&self, key: &Key<'_>) -> Result<Reclaimed, HookError> {
        self.0.pass().await?;
        let entry = self.1.get(key.as_bytes()).await?;
        self.0.pass().await?;
        let gone = entry.is_some_and(|entry| held(&self.0.payloads).remove(&*entry.value));
        self.0.pass().await?;
        Ok(if gone {
            Reclaimed::Freed { bytes: 1 }
        } else {
            Reclaimed::NotFound
        })
    }
}

impl Reclaimer for Named<'_> {
    fn reclaim<'a>(
        &'a self,
        keys: &'a [Key<'a>],
    ) -> HookFuture<'a, Vec<Result<Reclaimed, HookError>>> {
        Box::pin(async move {
            let mut answers = Vec::new();
            for key in keys {
                answers.push(self.one(key).await);
            }
            answers
        })
    }

    fn measure<'a>(
        &'a self,
        keys: &'a [Key<'a>],
    ) -> HookFuture<'a, Vec<Result<Reclaimed, HookError>>> {
        Box::pin(std::future::ready(
            keys.iter().map(|_| Ok(Reclaimed::NotFound)).collect(),
        ))
    }
}

async fn collect<'w, F>(
    world: &'w World,
    store: (&'w dyn Store, &'w Interposed<'w, F>),
    with_payload: bool,
) -> CaseResult<u64>
where
    F: Fn(Moment) -> BoxFuture<'w, alkstore::Result<()>> + Send + Sync,
{
    let source = Source::new(|keys| {
        Box::pin(async move {
            world.pass().await?;
            let live = world.live();
            let live = keys
                .iter()
                .map(|key| live.contains(key.as_bytes()))
                .collect();
            world.pass().await?;
            Ok(live)
        })
    });
    let named = Named(world, store.0);
    let options = SweepOptions::new()
        .source(&source)
        .claim_lease(LEASE)
        .batch(2);
    let options = if with_payload {
        options.reclaimer(&named)
    } else {
        options
    };
    let report = sweep(store.1, options).await?;
    adds_up(&report)?;
    ensure!(
        matches!(
            report.stop,
            SweepStop::Drained
                | SweepStop::Aborted(GcAbortCause::LostLease | GcAbortCause::SweeperLock)
        ),
        "{report:?}"
    );
    Ok(report.deleted)
}

/// One history. Writers commit their references within the grace period, or take a while longer.
async fn history(f: &dyn Fixture, seed: u64, turns: u32, obey: bool) -> CaseResult<u64> {
    let store = open(f).await?;
    let world = World {
        turn: AtomicBool::new(false),
        references: Mutex::default(),
        payloads: Mutex::default(),
        names: AtomicU64::new(0),
        relying: Mutex::default(),
    };
    let deleted = AtomicU64::new(0);
    let shared = Interposed::new(&*store, |_| world.pass());
    let mut dice = Dice(seed);
    let mut actors: [Option<HookFuture<'_, CaseResult>>; WRITERS + 2] = Default::default();
    for _ in 0..turns {
        let who = usize::try_from(dice.roll(WRITERS as u64 + 3)).unwrap_or(0);
        if who >= actors.len() {
            // Time goes by: for those who obey, never so much that somebody still relies on what may be due.
            let by = secs(1 + dice.roll(40));
            let then = store.now().await?.plus(by);
            let relying = *held(&world.relying);
            let late = |since: &Timestamp| then.since(*since) >= GRACE;
            if !obey || !relying.iter().flatten().any(late) {
                f.advance(by).await?;
            }
            continue;
        }
        let fresh = actors[who].is_none();
        if fresh && who < WRITERS && dice.roll(6) > 0 {
            continue;
        }
        let actor = actors[who].get_or_insert(match who {
            who if !fresh => Box::pin(async move { Err(Failure::new(who)) }),
            writer if writer < WRITERS => {
                let plan = Plan {
                    key: dice.roll(KEYS),
                    forgets: dice.roll(2) == 0,
                    pauses: dice.roll(8),
                    refers: dice.roll(4) > 0,
                };
                let at = (writer, store.now().await?);
                Box::pin(write(&world, &shared, at, plan))
            }
            WRITERS => Box::pin(async {
                let options = StageOptions::new(GRACE);
                stage_unreferenced(&shared, &mut Now(&world, false), options).await?;
                Ok(())
            }),
            _ => {
                let with_payload = dice.roll(3) > 0;
                let (world, shared, deleted, store) = (&world, &shared, &deleted, &*store);
                Box::pin(async move {
                    let gone = collect(world, (store, shared), with_payload).await?;
                    deleted.fetch_add(gone, Ordering::SeqCst);
                    Ok(())
                })
            }
        });
        // Now and then an actor gets far before anybody else does anything.
        let most = [1, 4, 40][usize::try_from(dice.roll(3)).unwrap_or(0)];
        let mut done = None;
        for _ in 0..=dice.roll(most) {
            if done.is_none() {
                done = world.step(actor).await;
                world.check(&*store).await?;
            }
        }
        // A sweep that holds a connection does not vanish with its future.
        let may_crash = who != WRITERS + 1 || f.engine().has(Capability::SweepLease);
        if done.is_some() || (may_crash && dice.roll(20) == 0) {
            actors[who] = None;
            if let Some(relying) = held(&world.relying).get_mut(who) {
                *relying = None;
            }
        }
        done.transpose()?;
    }
    Ok(deleted.load(Ordering::SeqCst))
}

pub(crate) async fn g5_r3_r8_no_live_reference_points_at_nothing(f: &dyn Fixture) -> CaseResult {
    let (seeds, turns) = match f.engine() {
        Engine::Mem => (60, 1_000),
        _ => (1, 500),
    };
    let mut deleted = 0;
    for seed in 1..=seeds {
        let history = history(f, seed * 0x9E37_79B9, turns, true).await;
        deleted += history.map_err(|broken| Failure::new(format_args!("seed {seed}: {broken}")))?;
    }
    ensure!(
        deleted > 2 * seeds,
        "{deleted} deleted in {seeds} histories"
    );
    Ok(())
}

/// The embedder's part is needed: who refers to a key later than that finds it gone.
pub(crate) async fn g5_a_reference_after_the_grace_is_not_safe(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    store.put(b"k", b"", PutOptions::create()).await?;
    let none = &mut std::iter::empty();
    stage_unreferenced(&*store, none, StageOptions::new(GRACE)).await?;
    let referred = AtomicBool::new(false);
    let source = Source::by(|_| referred.load(Ordering::SeqCst));
    f.advance(GRACE.saturating_sub(NANO)).await?;
    let sweeps = || sweep(&*store, SweepOptions::new().source(&source));
    ensure!(sweeps().await?.examined == 0, "within the grace period");
    referred.store(true, Ordering::SeqCst);
    f.advance(NANO).await?;
    ensure!(sweeps().await?.protected_by_liveness == 1);
    ensure!(store.get(b"k").await?.is_some());
    // And the history would notice.
    if f.engine() == Engine::Mem {
        let mut noticed = false;
        for seed in 1..=60 {
            noticed = noticed || history(f, seed * 0x9E37_79B9, 1_000, false).await.is_err();
        }
        ensure!(noticed, "histories of writers who do not obey show nothing");
    }
    Ok(())
}
