//! Safe deletion across a fleet: the trait over its parts, and arbitration.
//!
//! [joint] has the transactions that publish and pin, [pins] the pins, [sources] the tables of references, [sweeper] the
//! lock of the one sweeper.
//!
//! [joint]: super::joint
//! [pins]: super::pins
//! [sources]: super::sources
//! [sweeper]: super::sweeper

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::SystemTime;

use alkstore::{
    rules, validate, BoxFuture, EngineFleetState, LockName, Pin, PinState, Put, Reclaim, Result,
    Revision,
};
use tokio_postgres::types::Type;

use super::connection::{column, Statement};
use super::joint::PgJointTx;
use super::schema::{stripe, Schema};
use super::{number, pins, reclaim, sources, PgStore};

pub(super) struct Statements {
    protected: Statement,
    delete: Statement,
}

impl Statements {
    pub(super) fn new(schema: &Schema) -> Self {
        let (texts, int4) = (|| Type::TEXT_ARRAY, || Type::INT4);
        Self {
            // Lapsed pins are removed on the way.
            protected: Statement::writes(
                schema.fill("SELECT {schema}.protected_v2($1, $2, $3, $4)"),
                [Type::BYTEA, int4(), texts(), texts()],
            ),
            delete: Statement::writes(
                schema.fill("SELECT {schema}.sweep_delete_v2($1, $2, $3, $4, $5)"),
                [Type::BYTEA, int4(), Type::INT8, texts(), texts()],
            ),
        }
    }
}

impl EngineFleetState for PgStore {
    type JointTx = PgJointTx;

    /// It takes a connection of the pool until its end: a publisher that opens several at once needs as many.
    fn begin_joint_tx(&self) -> BoxFuture<'_, Result<PgJointTx>> {
        Box::pin(PgJointTx::begin(&self.0))
    }

    fn joint_put<'a>(
        &'a self,
        tx: &'a mut PgJointTx,
        key: &'a [u8],
        value: &'a [u8],
    ) -> BoxFuture<'a, Result<Put>> {
        Box::pin(tx.put(&self.0, key, value))
    }

    /// At most [`MAX_CHANGESET_ITEMS`](alkstore::MAX_CHANGESET_ITEMS) pins. Of two of one key and owner the last one
    /// counts.
    ///
    /// Where the connection breaks, or the server falls silent, after the commit was sent, the
    /// [outcome is unknown](alkstore::Error::is_outcome_unknown): publishing and pinning once more settles it.
    fn pin_commit<'a>(&'a self, tx: PgJointTx, pins: &'a [Pin<'a>]) -> BoxFuture<'a, Result<()>> {
        Box::pin(tx.commit(&self.0, pins))
    }

    fn pin_renew<'a>(&'a self, key: &'a [u8], owner: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(pins::renew(&self.0, key, owner))
    }

    fn pin_check<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<PinState>> {
        Box::pin(pins::check(&self.0, key))
    }

    /// The table is looked up now: it has to be there, in the store's database, with a column of type `bytea` that this
    /// role may read and lock (`SELECT` and `UPDATE`). Partitioned tables are fine; views, foreign and temporary tables are
    /// not, nor is row security that applies to this role. A name without a schema is looked for in the schema that is
    /// called like the role, then in `public`.
    ///
    /// The column needs an index: each deletion looks for its key there, while others wait for that key.
    ///
    /// What happens to the table later is met by the arbitration that reads it, as an error, and then nothing is deleted.
    fn register_liveness_source<'a>(
        &'a self,
        table: &'a str,
        column: &'a str,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(sources::register(&self.0, table, column))
    }

    fn arbitrate<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            validate::key(&self.0.gate, key)?;
            let (tables, columns) = sources::arrays(&self.0);
            let statement = &self.0.sweep.protected;
            let row = self
                .0
                .connections
                .row(statement, &[&key, &stripe(key), &tables, &columns])
                .await?;
            column(&row, 0)
        })
    }

    fn sweep_delete<'a>(
        &'a self,
        key: &'a [u8],
        epoch: Revision,
    ) -> BoxFuture<'a, Result<Reclaim>> {
        Box::pin(async move {
            validate::key(&self.0.gate, key)?;
            let (tables, columns) = sources::arrays(&self.0);
            let row = self
                .0
                .connections
                .row(
                    &self.0.sweep.delete,
                    &[&key, &stripe(key), &number(epoch), &tables, &columns],
                )
                .await?;
            match column::<Option<i64>>(&row, 0)? {
                None => Err(rules::lock::lease_lost(&LockName::SWEEP, epoch)),
                Some(code) => reclaim::answer(code),
            }
        })
    }

    /// The lock is `pg_try_advisory_lock(hashtextextended('alkstore sweep ' || schema, 0))`, in the store's database:
    /// two schemas are two locks. Its connection comes on top of those of the pool. Behind a
    /// [transaction pooler](super::PgOptions::transaction_pooler) there is no session to hold it, which is
    /// [`InvalidArgument`](alkstore::ErrorKind::InvalidArgument).
    fn sweep_lock_acquire(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async {
            self.0.gate.check()?;
            let begun = self.0.sweeper.acquire(&self.0.connections).await?;
            Ok(begun.is_some())
        })
    }

    fn sweep_lock_release(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.0.gate.check()?;
            self.0.sweeper.release(&self.0.connections, None).await?;
            Ok(())
        })
    }

    fn sweep_epoch(&self) -> Option<Revision> {
        self.0.sweeper.epoch()
    }
}

impl PgStore {
    /// The id of this handle, random and minted when it was opened: the owner of the pins that it makes for itself.
    pub fn instance_id(&self) -> &str {
        &self.0.instance
    }
}

/// 128 random bits. The keys of the standard library's hashers come from the system; the time and the process tell
/// apart what a fork made of one.
pub(super) fn mint() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let salt = (std::process::id(), since.unwrap_or_default());
    let half = || RandomState::new().hash_one(salt);
    format!("{:016x}{:016x}", half(), half())
}
