//! Deletion of what waits in the window: claims that are marked, finished or both, and what deleting would meet.

use std::fmt::Write as _;

use alkstore::{rules, Claim, Error, Key, LockName, Reclaim, Result, Revision};
use tokio_postgres::types::Type;

use super::connection::{column, Statement};
use super::error::{Failure, Stage};
use super::schema::{stripes, Schema};
use super::window::{rounds, BATCH};
use super::{number, sources, PgStore};

pub(super) struct Statements {
    reclaim: Statement,
}

/// What is done with claims, as the schema's function numbers it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Mark = 0,
    Finish = 1,
    Delete = 2,
}

impl Statements {
    pub(super) fn new(schema: &Schema) -> Self {
        Self {
            reclaim: Statement::writes(
                schema.fill("SELECT {schema}.reclaim_v2($1, $2, $3, $4, $5, $6, $7, $8)"),
                [
                    Type::INT4,
                    Type::BYTEA_ARRAY,
                    Type::INT8_ARRAY,
                    Type::INT4_ARRAY,
                    Type::INT8,
                    Type::BOOL,
                    Type::TEXT_ARRAY,
                    Type::TEXT_ARRAY,
                ],
            ),
        }
    }
}

impl PgStore {
    /// Takes the step for each claim, in batches, and answers in the order of the claims.
    pub(super) async fn reclaim(
        &self,
        step: Step,
        claims: &[Claim],
        fence: Option<Revision>,
    ) -> Result<Vec<Reclaim>> {
        self.0.gate.check()?;
        let mut answers = vec![Reclaim::Voided; claims.len()];
        let rounds = rounds(claims.iter().enumerate().collect(), |(_, claim)| &claim.key);
        let mut batches: Vec<_> = rounds
            .iter()
            .flat_map(|round| round.chunks(BATCH))
            .collect();
        if batches.is_empty() && fence.is_some() {
            // There is still a fence to check.
            batches.push(&[]);
        }
        let (tables, columns) = sources::arrays(&self.0);
        for batch in batches {
            let keys: Vec<_> = batch
                .iter()
                .map(|(_, claim)| claim.key.as_bytes())
                .collect();
            let ids: Vec<_> = batch.iter().map(|(_, claim)| number(claim.id)).collect();
            let stripes = stripes(&keys);
            let row = self
                .0
                .connections
                .row(
                    &self.0.reclaim.reclaim,
                    &[
                        &(step as i32),
                        &keys,
                        &ids,
                        &stripes,
                        &fence.map(number),
                        &self.0.fleet,
                        &tables,
                        &columns,
                    ],
                )
                .await?;
            let codes = match (column::<Option<Vec<i64>>>(&row, 0)?, fence) {
                (Some(codes), _) if codes.len() == batch.len() => codes,
                (None, Some(epoch)) => {
                    return Err(rules::lock::lease_lost(&LockName::SWEEP, epoch))
                }
                _ => return Err(nonsense()),
            };
            for ((place, _), code) in batch.iter().zip(codes) {
                answers[*place] = answer(code)?;
            }
        }
        Ok(answers)
    }

    /// What deleting each key would meet: pins, tables of references and entries as of one snapshot for each batch.
    pub(super) async fn judge(&self, keys: &[Key<'_>]) -> Result<Vec<Reclaim>> {
        self.0.gate.check()?;
        let statement = Statement::reads(self.verdicts(), [Type::BYTEA_ARRAY]);
        let mut verdicts = Vec::with_capacity(keys.len());
        for batch in keys.chunks(BATCH) {
            let batch: Vec<_> = batch.iter().map(Key::as_bytes).collect();
            for row in self.0.connections.rows(&statement, &[&batch]).await? {
                verdicts.push(answer(column(&row, 0)?)?);
            }
        }
        Ok(verdicts)
    }

    fn verdicts(&self) -> String {
        let mut text = self.0.schema.fill(
            "WITH at AS MATERIALIZED (SELECT {schema}.clock() AS now) \
             SELECT CASE WHEN EXISTS (SELECT FROM {schema}.gc_pins p \
             WHERE p.key = k.key AND p.expires_at > (SELECT now FROM at)) THEN -6",
        );
        let (tables, columns) = sources::arrays(&self.0);
        for (table, column) in tables.iter().zip(&columns) {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                " WHEN EXISTS (SELECT FROM {table} t WHERE t.{column} = k.key) THEN -7"
            );
        }
        text + &self.0.schema.fill(
            " ELSE coalesce((SELECT octet_length(e.value) FROM {schema}.entries e WHERE e.key = k.key \
             AND (e.expires_at IS NULL OR e.expires_at > (SELECT now FROM at))), -1) END::pg_catalog.int8 \
             FROM unnest($1) WITH ORDINALITY AS k(key, place) ORDER BY k.place",
        )
    }
}

pub(super) fn answer(code: i64) -> Result<Reclaim> {
    Ok(match code {
        -1 => Reclaim::Absent,
        -2 => Reclaim::Marked,
        -3 => Reclaim::Unmarked,
        -4 => Reclaim::Voided,
        -5 => Reclaim::Lapsed,
        -6 => Reclaim::Pinned,
        -7 => Reclaim::Referenced,
        bytes => Reclaim::Deleted {
            bytes: u64::try_from(bytes).map_err(|_| nonsense())?,
        },
    })
}

fn nonsense() -> Error {
    Failure::Answer.into_error(Stage::Reading)
}
