//! Changesets: applied in a transaction of their own, or inside the caller's.

use std::collections::BTreeMap;

use alkstore::{
    rules, BoxFuture, Changeset, Commit, EntryWrite, Expect, Key, LockName, Restage, Result,
    Revision, Transactions, Ttl,
};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Transaction};

use super::connection::{column, Statement};
use super::error::{Failure, Stage};
use super::schema::{stripe, Schema};
use super::{number, revision, PgStore};

/// The SQLSTATE with which the schema's function refuses a transaction that is not READ COMMITTED.
pub(super) const NOT_READ_COMMITTED: &str = "ALK01";

/// How often a changeset that lost a deadlock inside the caller's transaction is tried.
const ATTEMPTS: usize = 5;

pub(super) struct Statements {
    commit: Statement,
}

impl Statements {
    pub(super) fn new(schema: &Schema) -> Self {
        let (keys, numbers) = (|| Type::BYTEA_ARRAY, || Type::INT8_ARRAY);
        Self {
            commit: Statement::writes(
                schema.fill(
                    "SELECT o_status, o_guard, o_versions FROM {schema}.commit_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, \
                     $10, $11, $12, $13, $14, $15)",
                ),
                [
                    Type::INT4_ARRAY,
                    Type::BOOL_ARRAY,
                    Type::TEXT_ARRAY,
                    numbers(),
                    keys(),
                    numbers(),
                    keys(),
                    keys(),
                    numbers(),
                    keys(),
                    keys(),
                    keys(),
                    numbers(),
                    keys(),
                    numbers(),
                ],
            ),
        }
    }
}

impl Transactions for PgStore {
    fn commit_changeset(&self, changeset: Changeset) -> BoxFuture<'_, Result<Commit>> {
        Box::pin(async move {
            self.0.gate.check()?;
            let arrays = Arrays::new(&changeset);
            let row = self
                .0
                .connections
                .row(&self.0.changesets.commit, &arrays.params())
                .await?;
            arrays.answer(&row)
        })
    }
}

impl PgStore {
    /// Applies `changeset` inside the caller's transaction, so that it commits together with whatever else the
    /// transaction writes, or not at all. The transaction must be on the store's database, at isolation level READ
    /// COMMITTED; another level is [`InvalidArgument`](alkstore::ErrorKind::InvalidArgument).
    ///
    /// It happens within a savepoint: when it fails, with [`Conflict`](alkstore::ErrorKind::Conflict),
    /// [`LeaseLost`](alkstore::ErrorKind::LeaseLost) or any other refusal by the server, nothing of it is left and the
    /// transaction can go on. Dropping the future rolls back to the savepoint.
    ///
    /// From then until the end of the transaction, other writers of these keys wait, and so do grants of the guards'
    /// names; so apply it late and commit soon. But apply it before the transaction updates or deletes rows of a
    /// [registered table](alkstore::EngineFleetState::register_liveness_source): a deletion locks keys first and such rows
    /// after, and the other way round is a deadlock with it. The versions in the answer count once the transaction has committed.
    /// The call has no deadline of its own: the transaction's connection is the caller's.
    ///
    /// ```no_run
    /// # use alkstore::{Changeset, Key, PutMode, Result};
    /// # use alkstore_native::postgres::PgStore;
    /// # async fn example(store: &PgStore, client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = client.transaction().await?;
    /// tx.execute("INSERT INTO orders (id) VALUES ($1)", &[&7_i64]).await?;
    /// let mut changeset = Changeset::new();
    /// changeset.put(Key::new(&b"order/7"[..])?, (&b"receipt"[..]).into(), PutMode::Create, None)?;
    /// store.apply_in(&mut tx, &changeset).await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    pub async fn apply_in(
        &self,
        transaction: &mut Transaction<'_>,
        changeset: &Changeset,
    ) -> Result<Commit> {
        self.0.gate.check()?;
        // Until the caller commits, nothing that goes wrong can have taken effect.
        let failed = |failure: Failure| failure.into_error(Stage::Reading);
        let arrays = Arrays::new(changeset);
        let statement = &self.0.changesets.commit;
        for attempt in 1.. {
            let savepoint = transaction
                .transaction()
                .await
                .map_err(|error| failed(error.into()))?;
            let params = arrays.params();
            let rows = savepoint
                .query_typed(statement.text(), &statement.typed(&params))
                .await
                .map_err(Failure::from);
            let done = match rows {
                Ok(rows) => rows
                    .first()
                    .ok_or_else(|| failed(Failure::Answer))
                    .and_then(|row| arrays.answer(row)),
                Err(failure) if failure.lost_a_race() && attempt < ATTEMPTS => {
                    savepoint
                        .rollback()
                        .await
                        .map_err(|error| failed(error.into()))?;
                    continue;
                }
                Err(failure) => Err(failed(failure)),
            };
            let ended = if done.is_ok() {
                savepoint.commit().await
            } else {
                savepoint.rollback().await
            };
            return match (done, ended) {
                // Where the connection broke, the rollback fails as well; the first failure is the one to tell.
                (Err(error), _) => Err(error),
                (Ok(_), Err(error)) => Err(failed(error.into())),
                (Ok(commit), Ok(())) => Ok(commit),
            };
        }
        Err(failed(Failure::Answer))
    }
}

/// A changeset as the parameters of one statement, which borrow from it.
#[derive(Default)]
struct Arrays<'c> {
    stripes: Vec<i32>,
    exclusive: Vec<bool>,
    guards: Vec<&'c str>,
    guard_names: Vec<(&'c LockName<'static>, Revision)>,
    tokens: Vec<i64>,
    checks: Vec<&'c [u8]>,
    expected: Vec<Option<i64>>,
    puts: Vec<&'c [u8]>,
    values: Vec<&'c [u8]>,
    ttls: Vec<Option<i64>>,
    deletes: Vec<&'c [u8]>,
    unstages: Vec<&'c [u8]>,
    moves: Vec<&'c [u8]>,
    moves_after: Vec<i64>,
    keeps: Vec<&'c [u8]>,
    keeps_after: Vec<i64>,
}

impl<'c> Arrays<'c> {
    fn new(changeset: &'c Changeset) -> Self {
        let mut arrays = Self::default();
        for (name, token) in changeset.guards() {
            arrays.guards.push(name.as_str());
            arrays.guard_names.push((name, token));
            arrays.tokens.push(number(token));
        }
        // Two keys may share a stripe; it is locked once, exclusively where either is written.
        let mut stripes = BTreeMap::new();
        for (key, ops) in changeset.keys() {
            let key = key.as_bytes();
            let writes = ops.write.is_some() || ops.unstage || ops.stage.is_some();
            *stripes.entry(stripe(key)).or_insert(false) |= writes;
            if let Some(expect) = ops.check {
                arrays.checks.push(key);
                arrays.expected.push(match expect {
                    Expect::Absent => None,
                    Expect::Version(version) => Some(number(version)),
                });
            }
            match &ops.write {
                Some(EntryWrite::Put { value, ttl }) => {
                    arrays.puts.push(key);
                    arrays.values.push(value);
                    arrays.ttls.push(ttl.map(Ttl::as_nanos));
                }
                Some(EntryWrite::Delete) => arrays.deletes.push(key),
                None => {}
            }
            if ops.unstage {
                arrays.unstages.push(key);
            }
            let staged = match &ops.stage {
                Some((after, Restage::Move)) => {
                    Some((&mut arrays.moves, &mut arrays.moves_after, after))
                }
                Some((after, Restage::Keep)) => {
                    Some((&mut arrays.keeps, &mut arrays.keeps_after, after))
                }
                None => None,
            };
            if let Some((keys, instants, after)) = staged {
                keys.push(key);
                instants.push(after.as_nanos());
            }
        }
        (arrays.stripes, arrays.exclusive) = stripes.into_iter().unzip();
        arrays
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 15] {
        [
            &self.stripes,
            &self.exclusive,
            &self.guards,
            &self.tokens,
            &self.checks,
            &self.expected,
            &self.puts,
            &self.values,
            &self.ttls,
            &self.deletes,
            &self.unstages,
            &self.moves,
            &self.moves_after,
            &self.keeps,
            &self.keeps_after,
        ]
    }

    fn answer(&self, row: &Row) -> Result<Commit> {
        let nonsense = || Failure::Answer.into_error(Stage::Reading);
        match column::<i32>(row, 0)? {
            0 => {
                let versions = column::<Option<Vec<i64>>>(row, 2)?.unwrap_or_default();
                if versions.len() != self.puts.len() {
                    return Err(nonsense());
                }
                let versions =
                    self.puts.iter().zip(versions).map(|(key, version)| {
                        Ok((Key::new(*key)?.into_owned(), revision(version)?))
                    });
                Ok(Commit {
                    versions: versions.collect::<Result<_>>()?,
                })
            }
            1 => Err(rules::changeset::conflict()),
            2 => {
                let place = column::<Option<i64>>(row, 1)?.unwrap_or_default();
                let guard = usize::try_from(place - 1)
                    .ok()
                    .and_then(|at| self.guard_names.get(at));
                let (name, token) = guard.ok_or_else(nonsense)?;
                Err(rules::lock::lease_lost(name, *token))
            }
            3 => Err(rules::window::reclaiming()),
            _ => Err(nonsense()),
        }
    }
}
