//! The sweep itself.

use alloc::vec::Vec;
use core::future::{poll_fn, Future};
use core::sync::atomic::Ordering;
use core::task::Poll;
use core::time::Duration;

use crate::rules::sweep::{backoff, next, Next};
use crate::{
    Claim, EngineWindowState, Error, ErrorKind, GcAbortCause, Key, Reclaim, Reclaimed, Result,
    Revision, SweepOptions, SweepReport, SweepStop, Timestamp, Ttl, WindowRow,
};

const LEASE: Duration = Duration::from_secs(60);
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15 * 60));
const BATCH: usize = 1_000;
/// Payloads go one by one, each perhaps through a network, and a claim must outlast its batch.
const PAYLOAD_BATCH: usize = 64;
/// How long a sweep waits at once, so that it notices soon when it is to end.
const NAP: Duration = Duration::from_secs(1);

/// Deletes what is due in the window and not live, and reports.
///
/// In batches: claims candidates, asks the sources, arbitrates and deletes in one step of the engine's, and settles. With
/// a reclaimer each key is first [marked](EngineWindowState::window_mark), then its payload is deleted, then its entry.
/// Whatever fails protects: nothing is deleted because somebody could not be asked.
///
/// Only one sweep of a store runs at a time; another ends with [`GcAbortCause::SweeperLock`]. What is due is judged by
/// the store clock as it was when the sweep began, so what was put back does not come again in the same sweep.
///
/// The answer is a report, also where the sweep was ended early: see [`SweepReport::stop`]. Only options that cannot be
/// meant are an error.
///
/// Dropping the future leaves each candidate deleted or not, with claims that lapse by themselves.
///
/// # The embedder's part
///
/// No committed reference ever points at a deleted entry, whatever crashes where, as long as:
///
/// - A writer publishes a key (a put in mode [`Create`](crate::PutMode::Create), stored or not) before it commits a
///   reference to it, each time, and commits the reference within the grace period of the mark passes, else publishes
///   again. The publication voids every claim from before it, so only a mark pass can bring the key back, and then it is
///   due no sooner than the grace period later. The sources are asked after that.
/// - A source sees every reference that was committed before it was asked. A replica that lags does not.
/// - Where the [window decides](SweepOptions::window_decides), nobody is asked, and only a mark pass takes back what was
///   referred to since it was staged. So the grace period covers a writer's time from publication to reference and also
///   the time from the beginning of one mark pass to the end of the next, and nothing is swept while mark passes fail.
///
/// On Postgres pins, and references in the transaction that publishes, take the place of the grace period: see
/// [`EngineFleetState`](crate::EngineFleetState).
///
/// ```
/// use alkstore::{sweep, EngineWindowState, Result, SweepOptions, SweepStop};
///
/// async fn collect(store: &dyn EngineWindowState) -> Result<u64> {
///     let report = sweep(store, SweepOptions::new().window_decides()).await?;
///     if let SweepStop::Aborted(cause) = report.stop {
///         eprintln!("nothing more was deleted: {cause:?}");
///     }
///     Ok(report.deleted)
/// }
/// ```
pub async fn sweep<S: EngineWindowState + ?Sized>(
    store: &S,
    options: SweepOptions<'_>,
) -> Result<SweepReport> {
    let mut run = Run::new(store, options)?;
    let halt = match run.all().await {
        Ok(stop) => Halt::Stop(stop),
        Err(halt) => halt,
    };
    let stop = match halt {
        Halt::Stop(stop) => stop,
        Halt::Failed(error) => {
            let cause = if error.kind() == ErrorKind::LeaseLost {
                GcAbortCause::LostLease
            } else {
                GcAbortCause::EngineFailed
            };
            run.report.error = Some(error);
            SweepStop::Aborted(cause)
        }
    };
    if let Some(epoch) = run.epoch {
        // Where this fails, the sweep's lease lapses.
        let _ = store.sweep_end(epoch).await;
    }
    run.report.stop = stop;
    run.tell();
    Ok(run.report)
}

/// Why no more is done.
enum Halt {
    Stop(SweepStop),
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<GcAbortCause> for Halt {
    fn from(cause: GcAbortCause) -> Self {
        Self::Stop(SweepStop::Aborted(cause))
    }
}

type Step<T> = Result<T, Halt>;

struct Run<'s, 'o, S: ?Sized> {
    store: &'s S,
    options: SweepOptions<'o>,
    report: SweepReport,
    lease: Duration,
    batch: usize,
    /// Of the sweep that this is; a dry run is none.
    epoch: Option<Revision>,
    started: Timestamp,
    /// Where a dry run has got to, which leaves the rows where they are.
    seen: Option<WindowRow>,
    /// Whether some claims fell while they were in hand.
    fell: bool,
}

impl<'s, 'o, S: EngineWindowState + ?Sized> Run<'s, 'o, S> {
    fn new(store: &'s S, options: SweepOptions<'o>) -> Result<Self> {
        let wrong = |what: &'static str| Err(Error::new(ErrorKind::InvalidArgument, what));
        let lease = options.claim_lease.unwrap_or(LEASE);
        Ttl::new(lease)?;
        let usual = if options.reclaimer.is_some() {
            PAYLOAD_BATCH
        } else {
            BATCH
        };
        let batch = options.batch.unwrap_or(usual);
        if batch == 0 {
            return wrong("a sweep's batch must have at least one candidate");
        }
        if options.timer.is_none() && (options.rate.is_some() || options.hook_timeout.is_some()) {
            return wrong("a rate and a timeout need a timer: give the sweep one");
        }
        if options
            .hook_timeout
            .is_some_and(|timeout| timeout.is_zero() || timeout >= lease)
        {
            return wrong(
                "the timeout of a sweep's hooks must be above zero and below its claim lease",
            );
        }
        let report = SweepReport {
            dry_run: options.dry_run,
            ..SweepReport::default()
        };
        Ok(Self {
            store,
            options,
            report,
            lease,
            batch,
            epoch: None,
            started: Timestamp::MIN,
            seen: None,
            fell: false,
        })
    }

    /// G1.
    async fn all(&mut self) -> Step<SweepStop> {
        let asked = !self.options.sources.is_empty() || self.store.has_liveness_sources();
        if !asked && !self.options.window_decides {
            return Err(GcAbortCause::NoLivenessSources.into());
        }
        self.started = self.store.now().await?;
        if !self.options.dry_run {
            let epoch = self.store.sweep_begin(self.lease).await?;
            self.epoch = Some(epoch.ok_or(GcAbortCause::SweeperLock)?);
        }
        loop {
            let left = self
                .options
                .limit
                .map_or(u64::MAX, |limit| limit.saturating_sub(self.report.examined));
            if left == 0 {
                return Ok(SweepStop::Limit);
            }
            if self.report.examined > 0 {
                self.pace().await?;
            }
            if self.is_cancelled() {
                return Ok(SweepStop::Cancelled);
            }
            if self.is_late().await? {
                return Ok(SweepStop::TimeLimit);
            }
            let most = usize::try_from(left).map_or(self.batch, |left| left.min(self.batch));
            let batch = self.claim(most).await?;
            let Some(oldest) = batch.first() else {
                return Ok(SweepStop::Drained);
            };
            if self.report.oldest_overdue.is_none() {
                self.report.oldest_overdue = Some(self.started.since(oldest.visible_after));
            }
            let until = batch.iter().map(|claim| claim.until).min();
            if let Err(halt) = self.work(batch.clone()).await {
                // Whatever was done with, or put back, has no claim any more and is not touched.
                self.give_back(&batch).await;
                return Err(halt);
            }
            self.tell();
            self.extend().await?;
            if self.fell {
                // Where the batch took longer than its claims, it would come again, for ever.
                let now = self.store.now().await?;
                if until.is_some_and(|until| until.lapsed(now)) {
                    return Err(GcAbortCause::LostLease.into());
                }
                self.fell = false;
            }
        }
    }

    /// Goes on being the one sweep.
    async fn extend(&self) -> Step<()> {
        match self.epoch {
            Some(epoch) if !self.store.sweep_extend(epoch, self.lease).await? => {
                Err(GcAbortCause::LostLease.into())
            }
            _ => Ok(()),
        }
    }

    /// The next candidates that were due when the sweep began.
    async fn claim(&mut self, most: usize) -> Step<Vec<Claim>> {
        if self.epoch.is_some() {
            let claimed = self
                .store
                .window_claim(self.started, self.lease, most)
                .await;
            return Ok(claimed?);
        }
        let mut batch = Vec::new();
        let now = self.store.now().await?;
        while batch.len() < most {
            let wanted = most - batch.len();
            let page = self.store.window_list(self.seen.as_ref(), wanted).await?;
            let ends = page.len() < wanted;
            for row in page {
                if row.visible_after > self.started {
                    return Ok(batch);
                }
                if row.claimed_until.is_none_or(|until| until.lapsed(now)) {
                    batch.extend(as_if_claimed(&row));
                }
                self.seen = Some(row);
            }
            if ends {
                break;
            }
        }
        Ok(batch)
    }

    /// Does what is to be done with a batch.
    async fn work(&mut self, batch: Vec<Claim>) -> Step<()> {
        let live = self.ask(&batch).await?;
        let (mut free, mut referenced) = (Vec::new(), Vec::new());
        for (claim, live) in batch.into_iter().zip(live) {
            let to = if live { &mut referenced } else { &mut free };
            to.push(claim);
        }
        self.report.examined += referenced.len() as u64;
        self.report.protected_by_liveness += referenced.len() as u64;
        self.settle(referenced).await?;
        if self.options.reclaimer.is_some() {
            self.reclaim(free).await
        } else {
            let outcomes = self.delete(&free).await;
            self.sort_out(free, outcomes).await.map(drop)
        }
    }

    /// Which candidates the sources call live. A marked one is past that: its payload may be gone.
    async fn ask(&mut self, batch: &[Claim]) -> Step<Vec<bool>> {
        let mut live: Vec<bool> = batch.iter().map(|_| false).collect();
        for at in 0..self.options.sources.len() {
            let open: Vec<usize> = (0..batch.len())
                .filter(|&i| !live[i] && !batch[i].reclaiming)
                .collect();
            if open.is_empty() {
                break;
            }
            let keys: Vec<Key<'_>> = open.iter().map(|&i| batch[i].key.borrowed()).collect();
            let answer = self.in_time(self.options.sources[at].live(&keys)).await;
            match answer {
                Ok(Ok(answer)) if answer.len() == keys.len() => {
                    for (i, is_live) in open.into_iter().zip(answer) {
                        live[i] = is_live;
                    }
                }
                other => {
                    self.report.error = Some(match other {
                        Ok(Ok(_)) => {
                            hook_failed("a liveness source answered for another number of keys")
                        }
                        Ok(Err(reason)) => {
                            hook_failed("a liveness source failed").with_source(reason)
                        }
                        Err(late) => late,
                    });
                    return Err(GcAbortCause::LivenessFailed.into());
                }
            }
        }
        Ok(live)
    }

    /// W8: marks, has the payloads deleted, and finishes.
    async fn reclaim(&mut self, claims: Vec<Claim>) -> Step<()> {
        if self.is_cancelled() {
            return Err(Halt::Stop(SweepStop::Cancelled));
        }
        let outcomes = self.mark(&claims).await;
        let marked = self.sort_out(claims, outcomes).await?;
        if marked.is_empty() {
            return Ok(());
        }
        let now = self.store.now().await?;
        let margin = self.options.hook_timeout.unwrap_or(self.lease / 2);
        if marked.iter().any(|claim| claim.until.since(now) < margin) {
            // A deletion that begins now might take effect when the claims are no longer ours. The marks stay: whoever
            // claims the keys next goes on from there.
            return Err(GcAbortCause::LostLease.into());
        }
        let Some(reclaimer) = self.options.reclaimer else {
            return Ok(());
        };
        let keys: Vec<Key<'_>> = marked.iter().map(|claim| claim.key.borrowed()).collect();
        let work = if self.options.dry_run {
            reclaimer.measure(&keys)
        } else {
            reclaimer.reclaim(&keys)
        };
        let answers = self.in_time(work).await;
        drop(keys);
        let mut answers = match answers {
            Ok(answers) if answers.len() == marked.len() => answers.into_iter(),
            other => {
                self.report.error = Some(other.err().unwrap_or_else(|| {
                    hook_failed("the reclaimer answered for another number of keys")
                }));
                Vec::new().into_iter()
            }
        };
        let (mut gone, mut freed, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for claim in marked {
            match answers.next() {
                Some(Ok(done)) => {
                    gone.push(claim);
                    freed.push(match done {
                        Reclaimed::Freed { bytes } => bytes,
                        Reclaimed::NotFound => 0,
                    });
                }
                Some(Err(reason)) => {
                    self.report.error =
                        Some(hook_failed("a payload could not be deleted").with_source(reason));
                    failed.push(claim);
                }
                None => failed.push(claim),
            }
        }
        self.report.examined += failed.len() as u64;
        self.report.failed += failed.len() as u64;
        self.put_back(failed).await?;
        let mut outcomes = self.finish(&gone).await;
        for (outcome, freed) in outcomes.iter_mut().flatten().zip(freed) {
            if let Reclaim::Deleted { bytes } = outcome {
                *bytes = freed;
            } else if *outcome == Reclaim::Absent {
                self.report.bytes_freed += freed;
            }
        }
        self.sort_out(gone, outcomes).await.map(drop)
    }

    /// Counts what became of claims and does what follows; answers those whose payload comes next.
    async fn sort_out(
        &mut self,
        claims: Vec<Claim>,
        outcomes: Step<Vec<Reclaim>>,
    ) -> Step<Vec<Claim>> {
        let outcomes = match outcomes {
            Ok(outcomes) if outcomes.len() == claims.len() => outcomes,
            other => {
                return Err(other.err().unwrap_or_else(|| {
                    let text = "the engine answered for another number of claims";
                    Halt::Failed(Error::new(ErrorKind::Database, text))
                }));
            }
        };
        let (mut marked, mut settled, mut later) = (Vec::new(), Vec::new(), Vec::new());
        for (claim, outcome) in claims.into_iter().zip(outcomes) {
            match next(outcome) {
                Next::Reclaim if self.options.reclaimer.is_some() => {
                    marked.push(claim);
                    continue;
                }
                Next::Reclaim | Next::PutBack => later.push(claim),
                Next::Settle => settled.push(claim),
                Next::Nothing => {}
            }
            self.count(outcome);
        }
        self.settle(settled).await?;
        self.put_back(later).await?;
        Ok(marked)
    }

    /// G3.
    fn count(&mut self, outcome: Reclaim) {
        let report = &mut self.report;
        report.examined += 1;
        *match outcome {
            Reclaim::Deleted { bytes } => {
                report.bytes_freed += bytes;
                &mut report.deleted
            }
            Reclaim::Absent => &mut report.already_absent,
            Reclaim::Pinned => &mut report.protected_by_pin,
            Reclaim::Referenced => &mut report.protected_by_liveness,
            Reclaim::Voided => &mut report.protected_by_publication,
            Reclaim::Lapsed => {
                self.fell = true;
                &mut report.lost_lease
            }
            Reclaim::Marked | Reclaim::Unmarked => &mut report.failed,
        } += 1;
    }

    // What a dry run leaves undone is left undone in the following functions, and nowhere else.

    async fn delete(&mut self, claims: &[Claim]) -> Step<Vec<Reclaim>> {
        if self.epoch.is_some() {
            return Ok(self.store.window_delete(claims, self.epoch).await?);
        }
        self.judge(claims, None).await
    }

    async fn mark(&mut self, claims: &[Claim]) -> Step<Vec<Reclaim>> {
        if self.epoch.is_some() {
            return Ok(self.store.window_mark(claims, self.epoch).await?);
        }
        self.judge(claims, Some(Reclaim::Marked)).await
    }

    async fn finish(&mut self, claims: &[Claim]) -> Step<Vec<Reclaim>> {
        if self.epoch.is_some() {
            return Ok(self.store.window_finish(claims, self.epoch).await?);
        }
        self.judge(claims, None).await
    }

    /// What a deletion would meet; `free` stands for what nothing protects, where that is not the end of it.
    async fn judge(&mut self, claims: &[Claim], free: Option<Reclaim>) -> Step<Vec<Reclaim>> {
        let keys: Vec<Key<'_>> = claims.iter().map(|claim| claim.key.borrowed()).collect();
        let mut outcomes = self.store.window_judge(&keys).await?;
        let reclaims = self.options.reclaimer.is_some();
        for (outcome, claim) in outcomes.iter_mut().zip(claims) {
            let is_free = matches!(outcome, Reclaim::Deleted { .. } | Reclaim::Absent);
            match free {
                // What is marked is not arbitrated again.
                Some(free) if is_free || claim.reclaiming => *outcome = free,
                None if claim.reclaiming && !reclaims => *outcome = Reclaim::Marked,
                _ => {}
            }
        }
        Ok(outcomes)
    }

    async fn settle(&mut self, claims: Vec<Claim>) -> Step<()> {
        if self.epoch.is_some() && !claims.is_empty() {
            self.fell |= self.store.window_settle(&claims).await? < claims.len();
        }
        Ok(())
    }

    /// G4: puts claims back, the longer the more often that happened.
    async fn put_back(&mut self, mut claims: Vec<Claim>) -> Step<()> {
        self.report.requeued += claims.len() as u64;
        if self.epoch.is_none() || claims.is_empty() {
            return Ok(());
        }
        let (first, most) = self.options.backoff.unwrap_or(BACKOFF);
        // Never due within this sweep again, however the clock stands or steps.
        let now = self.store.now().await?.max(self.started);
        while let Some(requeues) = claims.last().map(|claim| claim.requeues) {
            let (alike, others): (Vec<_>, Vec<_>) = claims
                .into_iter()
                .partition(|claim| claim.requeues == requeues);
            let again = now.plus(backoff(requeues, first, most).max(Duration::from_nanos(1)));
            self.fell |= self.store.window_requeue(&alike, again).await? < alike.len();
            claims = others;
        }
        Ok(())
    }

    /// Puts the claims of a batch that still stand back, due at once: as the latest of them was, so that none is due
    /// before its time. Where this fails, they lapse.
    async fn give_back(&mut self, batch: &[Claim]) {
        let due = batch.iter().map(|claim| claim.visible_after).max();
        if let (Some(_), Some(due)) = (self.epoch, due) {
            let _ = self.store.window_requeue(batch, due).await;
        }
    }

    // Time.

    async fn is_late(&mut self) -> Step<bool> {
        match self.options.time_limit {
            Some(limit) => Ok(self.store.now().await?.since(self.started) >= limit),
            None => Ok(false),
        }
    }

    /// Waits until the next batch may begin, or the sweep is to end. It goes on being the one sweep meanwhile.
    async fn pace(&mut self) -> Step<()> {
        let Some(timer) = self.options.timer else {
            return Ok(());
        };
        let mut wait = Duration::ZERO;
        if let Some(rate) = self.options.rate {
            let nanos = u128::from(self.report.examined) * 1_000_000_000 / u128::from(rate.get());
            let due = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            wait = due.saturating_sub(self.store.now().await?.since(self.started));
        }
        loop {
            let nap = wait.min(NAP).min(self.lease / 2 + Duration::from_nanos(1));
            timer.sleep(nap).await;
            wait = wait.saturating_sub(nap);
            if wait.is_zero() || self.is_cancelled() || self.is_late().await? {
                return Ok(());
            }
            self.extend().await?;
        }
    }

    /// Awaits a hook for as long as it may take.
    async fn in_time<T>(&self, mut work: impl Future<Output = T> + Unpin) -> Result<T> {
        let (Some(timeout), Some(timer)) = (self.options.hook_timeout, self.options.timer) else {
            return Ok(work.await);
        };
        let mut alarm = timer.sleep(timeout);
        poll_fn(|context| {
            if let Poll::Ready(done) = core::pin::Pin::new(&mut work).poll(context) {
                return Poll::Ready(Ok(done));
            }
            let late = || hook_failed("a hook of the sweep took longer than its timeout");
            alarm.as_mut().poll(context).map(|()| Err(late()))
        })
        .await
    }

    fn is_cancelled(&self) -> bool {
        let flag = self.options.cancel;
        flag.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    fn tell(&mut self) {
        if let Some(progress) = &mut self.options.progress {
            progress.report(&self.report);
        }
    }
}

#[cold]
fn hook_failed(what: &'static str) -> Error {
    Error::new(ErrorKind::Database, what)
}

/// The claim that a sweep would have got of this row.
fn as_if_claimed(row: &WindowRow) -> Option<Claim> {
    Some(Claim {
        key: row.key.clone(),
        visible_after: row.visible_after,
        id: Revision::new(1)?,
        until: Timestamp::MAX,
        reclaiming: row.reclaiming,
        requeues: row.requeues,
    })
}
