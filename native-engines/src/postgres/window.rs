//! The garbage-collection window: a row per candidate.

use std::time::Duration;

use alkstore::{
    validate, BoxFuture, Candidate, Claim, EngineWindowState, Error, Key, LockName, Reclaim,
    Restage, Result, Revision, Timestamp, WindowRow, WindowStats,
};
use tokio_postgres::types::Type;
use tokio_postgres::Row;

use super::connection::{column, Statement};
use super::error::{Failure, Stage};
use super::reclaim::Step;
use super::schema::{name_lock, stripes, Schema};
use super::{bounded, number, revision, sources, PgStore};

/// How many keys one statement takes.
pub(super) const BATCH: usize = 10_000;

pub(super) struct Statements {
    stage: Statement,
    stage_after: Statement,
    take: Statement,
    take_all: Statement,
    unstage: Statement,
    claim: Statement,
    settle: Statement,
    requeue: Statement,
    list: Statement,
    info: Statement,
    stats: Statement,
    sweep_begin: Statement,
    sweep_extend: Statement,
    sweep_end: Statement,
}

impl Statements {
    pub(super) fn new(schema: &Schema) -> Self {
        let (keys, numbers, int8) = (|| Type::BYTEA_ARRAY, || Type::INT8_ARRAY, || Type::INT8);
        Self {
            stage: Statement::writes(
                schema.fill("SELECT {schema}.stage_v2($1, $2, $3, $4)"),
                [keys(), numbers(), Type::BOOL, Type::INT4_ARRAY],
            ),
            stage_after: Statement::writes(
                schema.fill("SELECT {schema}.stage_after_v2($1, $2, $3, $4)"),
                [keys(), int8(), Type::BOOL, Type::INT4_ARRAY],
            ),
            take: Statement::writes(
                schema.fill(&format!(
                    "DELETE FROM {{schema}}.gc_window w WHERE {} RETURNING w.key, w.visible_after",
                    chosen(UNMARKED)
                )),
                [int8(), int8()],
            ),
            take_all: Statement::writes(
                schema.fill(&format!(
                    "DELETE FROM {{schema}}.gc_window w WHERE {AVAILABLE} {UNMARKED} RETURNING w.key, w.visible_after"
                )),
                [int8()],
            ),
            unstage: Statement::writes(schema.fill(UNSTAGE), [keys()]),
            claim: Statement::writes(
                schema.fill(&format!(
                    "UPDATE {{schema}}.gc_window w SET claim = pg_catalog.nextval({{revision}}), \
                     claim_until = (SELECT {{schema}}.after_v1({{schema}}.clock(), $3)) WHERE {} \
                     RETURNING w.key, w.visible_after, w.claim, w.claim_until, w.reclaiming, w.requeues",
                    chosen("")
                )),
                [int8(), int8(), int8()],
            ),
            settle: Statement::writes(
                schema.fill(&format!(
                    "{HELD} DELETE FROM {{schema}}.gc_window w USING held h \
                     WHERE w.key = h.key AND h.claim_until > {{schema}}.clock() {UNMARKED} RETURNING 1"
                )),
                [keys(), numbers()],
            ),
            requeue: Statement::writes(
                schema.fill(&format!(
                    "{HELD} UPDATE {{schema}}.gc_window w SET visible_after = $3, claim = NULL, claim_until = NULL, \
                     requeues = w.requeues + CASE WHEN w.requeues < 2147483647 THEN 1 ELSE 0 END \
                     FROM held h WHERE w.key = h.key AND h.claim_until > {{schema}}.clock() RETURNING 1"
                )),
                [keys(), numbers(), int8()],
            ),
            list: Statement::reads(
                schema.fill(&format!(
                    "{SHOWN} WHERE (w.visible_after, w.key) > ($1, $2) ORDER BY w.visible_after, w.key LIMIT $3"
                )),
                [int8(), Type::BYTEA, int8()],
            ),
            info: Statement::reads(
                schema.fill(&format!("{SHOWN} WHERE w.key = $1")),
                [Type::BYTEA],
            ),
            stats: Statement::reads(schema.fill(STATS), [int8()]),
            // An owner that nobody else is, so that the call never comes by somebody else's sweep.
            sweep_begin: Statement::writes(
                schema.fill(
                    "SELECT {schema}.try_lock_v1($1, pg_catalog.gen_random_uuid()::pg_catalog.text, $2, $3)",
                ),
                [Type::TEXT, int8(), Type::INT4],
            ),
            sweep_extend: Statement::writes(
                schema.fill(
                    "SELECT {schema}.renew_v1(l.name, l.owner, l.token, $3) FROM {schema}.locks l \
                     WHERE l.name = $1 AND l.token = $2",
                ),
                [Type::TEXT, int8(), int8()],
            ),
            sweep_end: Statement::writes(
                schema.fill("DELETE FROM {schema}.locks WHERE name = $1 AND token = $2 RETURNING 1"),
                [Type::TEXT, int8()],
            ),
        }
    }
}

/// Due at the caller's instant $1, and under no claim that is live by the store clock, which is read once.
const AVAILABLE: &str = "w.visible_after <= $1 \
     AND (w.claim_until IS NULL OR w.claim_until <= (SELECT {schema}.clock()))";

/// What a sweep has begun to delete is left to sweeps.
const UNMARKED: &str = "AND NOT w.reclaiming";

/// At most $2 available rows of which `also` is true, oldest first, passing over what others have in hand. The array is
/// made once, before any row is touched; a plain sub-query with a limit can be evaluated again and choose more. The rows
/// are locked by then, and the predicate is stated again for them.
fn chosen(also: &str) -> String {
    format!(
        "w.ctid = ANY (ARRAY( \
           SELECT w.ctid FROM {{schema}}.gc_window w WHERE {AVAILABLE} {also} \
           ORDER BY w.visible_after, w.key LIMIT $2 FOR UPDATE SKIP LOCKED)) \
         AND {AVAILABLE} {also}"
    )
}

/// The rows of the claims $1, $2, locked in the order of the keys; what is judged of them is judged after that.
const HELD: &str = "WITH held AS MATERIALIZED ( \
       SELECT w.key, w.claim_until FROM {schema}.gc_window w \
       JOIN unnest($1, $2) AS c(key, claim) ON w.key = c.key AND w.claim = c.claim \
       ORDER BY w.key FOR UPDATE OF w)";

const UNSTAGE: &str = "WITH held AS MATERIALIZED ( \
       SELECT w.key FROM {schema}.gc_window w WHERE w.key = ANY ($1) AND NOT w.reclaiming ORDER BY w.key FOR UPDATE) \
     DELETE FROM {schema}.gc_window w USING held h WHERE w.key = h.key RETURNING 1";

const SHOWN: &str = "SELECT w.key, w.visible_after, w.claim_until, w.reclaiming, w.requeues FROM {schema}.gc_window w";

/// One pass over the rows, as of one instant.
const STATS: &str = "WITH at AS MATERIALIZED (SELECT {schema}.clock() AS now) \
     SELECT count(*), count(*) FILTER (WHERE w.visible_after <= $1), \
     count(*) FILTER (WHERE w.claim_until > (SELECT now FROM at)), count(*) FILTER (WHERE w.reclaiming), \
     count(*) FILTER (WHERE w.requeues > 0), min(w.visible_after) FROM {schema}.gc_window w";

impl EngineWindowState for PgStore {
    /// The tables are made when the store is opened, so this only fails where the store is closed.
    fn ensure_gc_schema(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.0.gate.check() })
    }

    /// Candidates are staged in batches of 10,000, each a transaction. A failure leaves whole batches staged; staging
    /// them again is safe.
    fn window_stage<'a>(
        &'a self,
        candidates: &'a [Candidate],
        restage: Restage,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.0.gate.check()?;
            for batch in rounds(candidates.iter().collect(), |candidate| &candidate.key)
                .iter()
                .flat_map(|round| round.chunks(BATCH))
            {
                let keys: Vec<_> = batch.iter().map(|c| c.key.as_bytes()).collect();
                let after: Vec<_> = batch.iter().map(|c| c.visible_after.as_nanos()).collect();
                let stripes = stripes(&keys);
                self.0
                    .connections
                    .rows(
                        &self.0.window.stage,
                        &[&keys, &after, &(restage == Restage::Move), &stripes],
                    )
                    .await?;
            }
            Ok(())
        })
    }

    /// In batches as [`window_stage`](Self::window_stage); each has the instant at which it is staged.
    fn window_stage_after<'a>(
        &'a self,
        keys: &'a [Key<'a>],
        grace: Duration,
        restage: Restage,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let grace = validate::duration(&self.0.gate, grace)?;
            for batch in rounds(keys.iter().collect(), |key| key)
                .iter()
                .flat_map(|round| round.chunks(BATCH))
            {
                let keys: Vec<_> = batch.iter().map(|key| key.as_bytes()).collect();
                let stripes = stripes(&keys);
                let (grace, moves) = (grace.as_nanos(), restage == Restage::Move);
                self.0
                    .connections
                    .rows(
                        &self.0.window.stage_after,
                        &[&keys, &grace, &moves, &stripes],
                    )
                    .await?;
            }
            Ok(())
        })
    }

    /// With a limit, rows that others have in hand are passed over; without one, they are waited for.
    fn window_take(
        &self,
        now: Timestamp,
        limit: Option<usize>,
    ) -> BoxFuture<'_, Result<Vec<Candidate>>> {
        Box::pin(async move {
            self.0.gate.check()?;
            let now = now.as_nanos();
            let connections = &self.0.connections;
            let rows = match limit {
                Some(limit) => {
                    connections
                        .rows(&self.0.window.take, &[&now, &bounded(limit)])
                        .await?
                }
                None => connections.rows(&self.0.window.take_all, &[&now]).await?,
            };
            let mut taken = rows.iter().map(candidate).collect::<Result<Vec<_>>>()?;
            taken
                .sort_unstable_by(|a, b| (a.visible_after, &a.key).cmp(&(b.visible_after, &b.key)));
            Ok(taken)
        })
    }

    fn window_unstage<'a>(&'a self, keys: &'a [Key<'a>]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            self.0.gate.check()?;
            let keys: Vec<_> = keys.iter().map(Key::as_bytes).collect();
            let rows = self
                .0
                .connections
                .rows(&self.0.window.unstage, &[&keys])
                .await?;
            Ok(rows.len())
        })
    }

    fn window_claim(
        &self,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Claim>>> {
        Box::pin(async move {
            let lease = validate::duration(&self.0.gate, lease)?;
            let rows = self
                .0
                .connections
                .rows(
                    &self.0.window.claim,
                    &[&now.as_nanos(), &bounded(limit), &lease.as_nanos()],
                )
                .await?;
            let mut claims = rows.iter().map(claim).collect::<Result<Vec<_>>>()?;
            claims
                .sort_unstable_by(|a, b| (a.visible_after, &a.key).cmp(&(b.visible_after, &b.key)));
            Ok(claims)
        })
    }

    fn window_settle<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            self.0.gate.check()?;
            let (keys, ids) = parts(claims);
            let rows = self
                .0
                .connections
                .rows(&self.0.window.settle, &[&keys, &ids])
                .await?;
            Ok(rows.len())
        })
    }

    fn window_requeue<'a>(
        &'a self,
        claims: &'a [Claim],
        visible_after: Timestamp,
    ) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            self.0.gate.check()?;
            let (keys, ids) = parts(claims);
            let rows = self
                .0
                .connections
                .rows(
                    &self.0.window.requeue,
                    &[&keys, &ids, &visible_after.as_nanos()],
                )
                .await?;
            Ok(rows.len())
        })
    }

    /// More than 10,000 claims go in batches of 10,000, each a transaction. A failure leaves whole batches marked; marking
    /// them again is safe.
    fn window_mark<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        Box::pin(self.reclaim(Step::Mark, claims, fence))
    }

    /// In batches as [`window_mark`](Self::window_mark); what a failed call had deleted already is
    /// [`Voided`](Reclaim::Voided) to the next.
    fn window_finish<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        Box::pin(self.reclaim(Step::Finish, claims, fence))
    }

    /// In batches as [`window_finish`](Self::window_finish).
    fn window_delete<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        Box::pin(self.reclaim(Step::Delete, claims, fence))
    }

    fn window_judge<'a>(&'a self, keys: &'a [Key<'a>]) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        Box::pin(self.judge(keys))
    }

    fn window_list<'a>(
        &'a self,
        after: Option<&'a WindowRow>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<WindowRow>>> {
        Box::pin(async move {
            self.0.gate.check()?;
            // No key is empty, so this is before the first row.
            let (instant, key) = after.map_or((i64::MIN, &b""[..]), |row| {
                (row.visible_after.as_nanos(), row.key.as_bytes())
            });
            let rows = self
                .0
                .connections
                .rows(&self.0.window.list, &[&instant, &key, &bounded(limit)])
                .await?;
            rows.iter().map(shown).collect()
        })
    }

    fn window_info<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<WindowRow>>> {
        Box::pin(async move {
            validate::key(&self.0.gate, key)?;
            let rows = self
                .0
                .connections
                .rows(&self.0.window.info, &[&key])
                .await?;
            rows.first().map(shown).transpose()
        })
    }

    fn window_stats(&self, now: Timestamp) -> BoxFuture<'_, Result<WindowStats>> {
        Box::pin(async move {
            self.0.gate.check()?;
            let row = self
                .0
                .connections
                .row(&self.0.window.stats, &[&now.as_nanos()])
                .await?;
            let number = |at| number_of_rows(&row, at);
            Ok(WindowStats {
                rows: number(0)?,
                due: number(1)?,
                claimed: number(2)?,
                reclaiming: number(3)?,
                requeued: number(4)?,
                oldest: column::<Option<i64>>(&row, 5)?.map(Timestamp::from_nanos),
            })
        })
    }

    fn has_pins(&self) -> bool {
        true
    }

    fn has_liveness_sources(&self) -> bool {
        !sources::arrays(&self.0).0.is_empty()
    }

    /// The sweep of a fleet is that of its [sweep lock](alkstore::EngineFleetState::sweep_lock_acquire): `ttl` is checked and not
    /// used.
    fn sweep_begin(&self, ttl: Duration) -> BoxFuture<'_, Result<Option<Revision>>> {
        Box::pin(async move {
            let ttl = validate::duration(&self.0.gate, ttl)?;
            if self.0.fleet {
                return self.0.sweeper.acquire(&self.0.connections).await;
            }
            let name = LockName::SWEEP;
            let row = self
                .0
                .connections
                .row(
                    &self.0.window.sweep_begin,
                    &[&name.as_str(), &ttl.as_nanos(), &name_lock(name.as_str())],
                )
                .await?;
            let granted = column::<Option<Vec<i64>>>(&row, 0)?;
            granted
                .and_then(|pair| pair.first().copied())
                .map(revision)
                .transpose()
        })
    }

    fn sweep_extend(&self, epoch: Revision, ttl: Duration) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let ttl = validate::duration(&self.0.gate, ttl)?;
            if self.0.fleet {
                return self.0.sweeper.holds(&self.0.connections, epoch).await;
            }
            let rows = self
                .0
                .connections
                .rows(
                    &self.0.window.sweep_extend,
                    &[&LockName::SWEEP.as_str(), &number(epoch), &ttl.as_nanos()],
                )
                .await?;
            let renewed = rows.first().map(|row| column::<Option<i64>>(row, 0));
            Ok(renewed.transpose()?.flatten().is_some())
        })
    }

    fn sweep_end(&self, epoch: Revision) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            self.0.gate.check()?;
            if self.0.fleet {
                return self
                    .0
                    .sweeper
                    .release(&self.0.connections, Some(epoch))
                    .await;
            }
            let rows = self
                .0
                .connections
                .rows(
                    &self.0.window.sweep_end,
                    &[&LockName::SWEEP.as_str(), &number(epoch)],
                )
                .await?;
            Ok(!rows.is_empty())
        })
    }
}

/// `items` in bytewise order of their keys, the order in which rows are locked. What names a key for the n-th time goes
/// into the n-th round, since one statement can write a row only once.
pub(super) fn rounds<'a, T: Copy>(
    mut items: Vec<T>,
    key: impl Fn(T) -> &'a Key<'a>,
) -> Vec<Vec<T>> {
    items.sort_by(|a, b| key(*a).cmp(key(*b)));
    let mut rounds: Vec<Vec<T>> = Vec::new();
    let (mut repeats, mut before) = (0, None);
    for item in items {
        let this = key(item);
        repeats = if before == Some(this) { repeats + 1 } else { 0 };
        before = Some(this);
        match rounds.get_mut(repeats) {
            Some(round) => round.push(item),
            None => rounds.push(vec![item]),
        }
    }
    rounds
}

fn parts(claims: &[Claim]) -> (Vec<&[u8]>, Vec<i64>) {
    claims
        .iter()
        .map(|claim| (claim.key.as_bytes(), number(claim.id)))
        .unzip()
}

fn candidate(row: &Row) -> Result<Candidate> {
    Ok(Candidate {
        key: Key::new(column::<Vec<u8>>(row, 0)?)?,
        visible_after: Timestamp::from_nanos(column(row, 1)?),
    })
}

fn claim(row: &Row) -> Result<Claim> {
    let Candidate { key, visible_after } = candidate(row)?;
    Ok(Claim {
        key,
        visible_after,
        id: revision(column(row, 2)?)?,
        until: Timestamp::from_nanos(column(row, 3)?),
        reclaiming: column(row, 4)?,
        requeues: requeues(row, 5)?,
    })
}

fn shown(row: &Row) -> Result<WindowRow> {
    let Candidate { key, visible_after } = candidate(row)?;
    Ok(WindowRow {
        key,
        visible_after,
        claimed_until: column::<Option<i64>>(row, 2)?.map(Timestamp::from_nanos),
        reclaiming: column(row, 3)?,
        requeues: requeues(row, 4)?,
    })
}

fn requeues(row: &Row, at: usize) -> Result<u32> {
    u32::try_from(column::<i32>(row, at)?).map_err(|_| nonsense())
}

fn number_of_rows(row: &Row, at: usize) -> Result<u64> {
    u64::try_from(column::<i64>(row, at)?).map_err(|_| nonsense())
}

fn nonsense() -> Error {
    Failure::Answer.into_error(Stage::Reading)
}
