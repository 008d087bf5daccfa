//! The garbage-collection window: a row per candidate.

use std::collections::BTreeSet;
use std::time::Duration;

use alkstore::{
    validate, BoxFuture, Candidate, Claim, EngineWindowState, Key, Restage, Result, Timestamp,
};
use tokio_postgres::types::Type;
use tokio_postgres::Row;

use super::connection::{column, Statement};
use super::schema::{stripe, Schema};
use super::{bounded, number, revision, PgStore};

/// How many candidates are staged in one statement.
const BATCH: usize = 10_000;

pub(super) struct Statements {
    stage: Statement,
    take: Statement,
    take_all: Statement,
    unstage: Statement,
    claim: Statement,
    settle: Statement,
    requeue: Statement,
}

impl Statements {
    pub(super) fn new(schema: &Schema) -> Self {
        let (keys, numbers, int8) = (|| Type::BYTEA_ARRAY, || Type::INT8_ARRAY, || Type::INT8);
        Self {
            stage: Statement::writes(
                schema.fill("SELECT {schema}.stage_v1($1, $2, $3, $4)"),
                [keys(), numbers(), Type::BOOL, Type::INT4_ARRAY],
            ),
            take: Statement::writes(
                schema.fill(&format!(
                    "DELETE FROM {{schema}}.gc_window w WHERE {CHOSEN} RETURNING w.key, w.visible_after"
                )),
                [int8(), int8()],
            ),
            take_all: Statement::writes(
                schema.fill(&format!(
                    "DELETE FROM {{schema}}.gc_window w WHERE {AVAILABLE} RETURNING w.key, w.visible_after"
                )),
                [int8()],
            ),
            unstage: Statement::writes(schema.fill(UNSTAGE), [keys()]),
            claim: Statement::writes(
                schema.fill(&format!(
                    "UPDATE {{schema}}.gc_window w SET claim = pg_catalog.nextval({{revision}}), \
                     claim_until = {{schema}}.after_v1((SELECT {{schema}}.clock()), $3) WHERE {CHOSEN} \
                     RETURNING w.key, w.visible_after, w.claim, w.claim_until"
                )),
                [int8(), int8(), int8()],
            ),
            settle: Statement::writes(
                schema.fill(&format!(
                    "{HELD} DELETE FROM {{schema}}.gc_window w USING held h \
                     WHERE w.key = h.key AND h.claim_until > {{schema}}.clock() RETURNING 1"
                )),
                [keys(), numbers()],
            ),
            requeue: Statement::writes(
                schema.fill(&format!(
                    "{HELD} UPDATE {{schema}}.gc_window w SET visible_after = $3, claim = NULL, claim_until = NULL \
                     FROM held h WHERE w.key = h.key AND h.claim_until > {{schema}}.clock() RETURNING 1"
                )),
                [keys(), numbers(), int8()],
            ),
        }
    }
}

/// Due at the caller's instant $1, and under no claim that is live by the store clock, which is read once.
const AVAILABLE: &str = "w.visible_after <= $1 \
     AND (w.claim_until IS NULL OR w.claim_until <= (SELECT {schema}.clock()))";

/// At most $2 available rows, oldest first, passing over what others have in hand. The array is made once, before any
/// row is touched; a plain sub-query with a limit can be evaluated again and choose more. The rows are locked by
/// then, and the predicate is stated again for them.
const CHOSEN: &str = "w.ctid = ANY (ARRAY( \
       SELECT c.ctid FROM {schema}.gc_window c WHERE c.visible_after <= $1 \
       AND (c.claim_until IS NULL OR c.claim_until <= (SELECT {schema}.clock())) \
       ORDER BY c.visible_after, c.key LIMIT $2 FOR UPDATE SKIP LOCKED)) \
     AND w.visible_after <= $1 AND (w.claim_until IS NULL OR w.claim_until <= (SELECT {schema}.clock()))";

/// The rows of the claims $1, $2, locked in the order of the keys; what is judged of them is judged after that.
const HELD: &str = "WITH held AS MATERIALIZED ( \
       SELECT w.key, w.claim_until FROM {schema}.gc_window w \
       JOIN unnest($1, $2) AS c(key, claim) ON w.key = c.key AND w.claim = c.claim \
       ORDER BY w.key FOR UPDATE OF w)";

const UNSTAGE: &str = "WITH held AS MATERIALIZED ( \
       SELECT w.key FROM {schema}.gc_window w WHERE w.key = ANY ($1) ORDER BY w.key FOR UPDATE) \
     DELETE FROM {schema}.gc_window w USING held h WHERE w.key = h.key RETURNING 1";

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
            for batch in rounds(candidates)
                .iter()
                .flat_map(|round| round.chunks(BATCH))
            {
                let keys: Vec<_> = batch.iter().map(|c| c.key.as_bytes()).collect();
                let after: Vec<_> = batch.iter().map(|c| c.visible_after.as_nanos()).collect();
                let stripes: BTreeSet<_> = keys.iter().map(|key| stripe(key)).collect();
                let stripes: Vec<_> = stripes.into_iter().collect();
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
}

/// The candidates in bytewise order of their keys, the order in which rows are locked. What names a key for the n-th
/// time goes into the n-th round, since one statement can write a row only once.
fn rounds(candidates: &[Candidate]) -> Vec<Vec<&Candidate>> {
    let mut sorted: Vec<_> = candidates.iter().collect();
    sorted.sort_by(|a, b| a.key.cmp(&b.key));
    let mut rounds: Vec<Vec<&Candidate>> = Vec::new();
    let mut repeats = 0;
    for (at, candidate) in sorted.iter().enumerate() {
        let again = at > 0
            && sorted
                .get(at - 1)
                .is_some_and(|before| before.key == candidate.key);
        repeats = if again { repeats + 1 } else { 0 };
        match rounds.get_mut(repeats) {
            Some(round) => round.push(candidate),
            None => rounds.push(vec![candidate]),
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
    })
}
