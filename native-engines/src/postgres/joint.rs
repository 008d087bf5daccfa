//! Joint transactions: entries and their pins, published together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use alkstore::{
    rules, validate, Error, ErrorKind, Key, Pin, Put, PutOptions, Result, Ttl, MAX_CHANGESET_ITEMS,
};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::Row;

use super::connection::{column, Borrowed, Statement};
use super::error::{Failure, PgCause, Stage};
use super::schema::{stripe, Schema};
use super::{revision, PgStore, Shared};

/// The SQLSTATEs with which the schema's function refuses a pin.
const NO_LIVE_ENTRY: &str = "ALK11";
const RECLAIMING: &str = "ALK12";

/// The mode of `put_v2`.
const CREATE: i32 = 0;

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE";

pub(super) struct Statements {
    pin: Statement,
}

impl Statements {
    pub(super) fn new(schema: &Schema) -> Self {
        Self {
            pin: Statement::writes(
                schema.fill("SELECT {schema}.pin_v2($1, $2, $3, $4)"),
                [
                    Type::INT4_ARRAY,
                    Type::BYTEA_ARRAY,
                    Type::TEXT_ARRAY,
                    Type::INT8_ARRAY,
                ],
            ),
        }
    }
}

/// An open joint transaction of a [`PgStore`]: it holds one of the pool's connections and, until its end, the lock of
/// each key that was put in it.
///
/// Dropping it, or the future of a call on it, closes the connection, and with that the server rolls back; a connection
/// with an open transaction never goes back to the pool. [`rollback`](Self::rollback) rolls back and keeps the
/// connection. After an error it has been rolled back already.
#[must_use = "what was put is not there before pin_commit"]
pub struct PgJointTx {
    shared: Arc<Shared>,
    /// With the transaction open on it. A call takes it out, and puts it back if all went well.
    borrowed: Option<Borrowed>,
    /// The stripes that the transaction holds.
    stripes: BTreeSet<i32>,
}

impl PgStore {
    /// Locks keys that are about to be put in the transaction, all in one step, in the order in which everything here
    /// locks keys. Puts of these keys then wait for nobody and may come in any order.
    ///
    /// Publish several keys so. Put one by one, even in bytewise order, they meet deadlocks with sweeps, mark passes and
    /// changesets, each of which costs the server's `deadlock_timeout`, a second by default. Lock them in one call, the
    /// first on the transaction.
    pub async fn joint_lock(&self, tx: &mut PgJointTx, keys: &[Key<'_>]) -> Result<()> {
        tx.lock(&self.0, keys).await
    }
}

impl PgJointTx {
    pub(super) async fn begin(shared: &Arc<Shared>) -> Result<Self> {
        shared.gate.check()?;
        let connections = &shared.connections;
        let mut stage = Stage::Connecting;
        let work = async {
            let mut borrowed = connections.borrow().await?;
            stage = Stage::Reading;
            borrowed.client()?.batch_execute(BEGIN).await?;
            Ok(borrowed)
        };
        match tokio::time::timeout(connections.timeout(), work).await {
            Ok(Ok(borrowed)) => Ok(Self {
                shared: Arc::clone(shared),
                borrowed: Some(borrowed),
                stripes: BTreeSet::new(),
            }),
            Ok(Err(failure)) => Err(Failure::into_error(failure, stage)),
            Err(_) => Err(Failure::Elapsed(connections.timeout()).into_error(stage)),
        }
    }

    async fn lock(&mut self, shared: &Arc<Shared>, keys: &[Key<'_>]) -> Result<()> {
        let borrowed = self.take(shared)?;
        if let Err(error) = shared.gate.check() {
            return self.refuse(borrowed, error).await;
        }
        let stripes: BTreeSet<i32> = keys.iter().map(|key| stripe(key.as_bytes())).collect();
        let missing: Vec<i32> = stripes.difference(&self.stripes).copied().collect();
        // Without pins it locks and no more.
        let none = Arrays::default();
        let params: [&(dyn ToSql + Sync); 4] = [&missing, &none.keys, &none.owners, &none.ttls];
        let (borrowed, _) = self.run(borrowed, &shared.joint.pin, &params).await?;
        self.stripes.extend(missing);
        self.borrowed = Some(borrowed);
        Ok(())
    }

    pub(super) async fn put(
        &mut self,
        shared: &Arc<Shared>,
        key: &[u8],
        value: &[u8],
    ) -> Result<Put> {
        let borrowed = self.take(shared)?;
        let options = PutOptions::create();
        if let Err(error) = validate::put(&shared.gate, key, value.len(), &options) {
            return self.refuse(borrowed, error).await;
        }
        let stripe = stripe(key);
        let (none, text) = (None::<i64>, None::<&str>);
        let params: [&(dyn ToSql + Sync); 8] =
            [&key, &value, &CREATE, &none, &none, &stripe, &text, &none];
        let (borrowed, rows) = self.run(borrowed, &shared.entries.put, &params).await?;
        match answer(&rows) {
            Ok(put) => {
                self.stripes.insert(stripe);
                self.borrowed = Some(borrowed);
                Ok(put)
            }
            Err(error) => self.refuse(borrowed, error).await,
        }
    }

    pub(super) async fn commit(mut self, shared: &Arc<Shared>, pins: &[Pin<'_>]) -> Result<()> {
        let mut borrowed = self.take(shared)?;
        let arrays = match shared.gate.check().and_then(|()| Arrays::new(pins)) {
            Ok(arrays) => arrays,
            Err(error) => return self.refuse(borrowed, error).await,
        };
        let stripes: BTreeSet<i32> = arrays.keys.iter().map(|key| stripe(key)).collect();
        let missing: Vec<i32> = stripes.difference(&self.stripes).copied().collect();
        let connections = &shared.connections;
        let client = match borrowed.client() {
            Ok(client) => client,
            Err(failure) => return Err(failure.into_error(Stage::Reading)),
        };
        let params: [&(dyn ToSql + Sync); 4] =
            [&missing, &arrays.keys, &arrays.owners, &arrays.ttls];
        let work = connections.run_and_commit(client, &shared.joint.pin, &params);
        match tokio::time::timeout(connections.timeout(), work).await {
            Ok(Ok(())) => {
                borrowed.give_back();
                Ok(())
            }
            Ok(Err((failure, stage))) => {
                let spares = failure.spares_connection();
                let error = explain(failure.into_error(stage));
                if spares {
                    return self.refuse(borrowed, error).await;
                }
                Err(error)
            }
            Err(_) => Err(Failure::Elapsed(connections.timeout()).into_error(Stage::Writing)),
        }
    }

    /// Rolls back and gives the connection back to the pool.
    pub async fn rollback(mut self) -> Result<()> {
        match self.borrowed.take() {
            Some(borrowed) => self.end(borrowed).await,
            None => Ok(()),
        }
    }

    /// The connection; from here on the transaction is over unless it is put back.
    fn take(&mut self, shared: &Arc<Shared>) -> Result<Borrowed> {
        if !Arc::ptr_eq(&self.shared, shared) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the joint transaction belongs to another store: pass it to the one that began it",
            ));
        }
        self.borrowed.take().ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidArgument,
                "the joint transaction failed before and was rolled back: begin a new one",
            )
        })
    }

    async fn run(
        &self,
        mut borrowed: Borrowed,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<(Borrowed, Vec<Row>)> {
        // Until the commit nothing that goes wrong can have taken effect.
        let failed = |failure: Failure| failure.into_error(Stage::Reading);
        let connections = &self.shared.connections;
        let client = borrowed.client().map_err(failed)?;
        let work = connections.run(client, statement, params);
        match tokio::time::timeout(connections.timeout(), work).await {
            Ok(Ok(rows)) => Ok((borrowed, rows)),
            Ok(Err(failure)) if failure.spares_connection() => {
                self.refuse(borrowed, failed(failure)).await
            }
            Ok(Err(failure)) => Err(failed(failure)),
            Err(_) => Err(failed(Failure::Elapsed(connections.timeout()))),
        }
    }

    /// Rolls back, so that who is told the error can count on it, and tells it.
    async fn refuse<T>(&self, borrowed: Borrowed, error: Error) -> Result<T> {
        // Where this fails the connection closes, which rolls back too.
        let _ = self.end(borrowed).await;
        Err(error)
    }

    async fn end(&self, mut borrowed: Borrowed) -> Result<()> {
        let failed = |failure: Failure| failure.into_error(Stage::Reading);
        let timeout = self.shared.connections.timeout();
        let work = borrowed.client().map_err(failed)?.batch_execute("ROLLBACK");
        match tokio::time::timeout(timeout, work).await {
            Ok(Ok(())) => {
                borrowed.give_back();
                Ok(())
            }
            Ok(Err(error)) => Err(failed(error.into())),
            Err(_) => Err(failed(Failure::Elapsed(timeout))),
        }
    }
}

fn answer(rows: &[Row]) -> Result<Put> {
    let nonsense = || Failure::Answer.into_error(Stage::Reading);
    let row = rows.first().ok_or_else(nonsense)?;
    match column::<Vec<Option<i64>>>(row, 0)?.as_slice() {
        [Some(0), Some(version)] => Ok(Put::Stored {
            version: revision(*version)?,
        }),
        [Some(1), current] => Ok(Put::NotStored {
            current: current.map(revision).transpose()?,
        }),
        [Some(3), None] => Err(rules::window::reclaiming()),
        _ => Err(nonsense()),
    }
}

/// Pins as the parameters of one statement: each key and owner once, the last one counts.
#[derive(Default)]
struct Arrays<'p> {
    keys: Vec<&'p [u8]>,
    owners: Vec<&'p str>,
    ttls: Vec<i64>,
}

impl<'p> Arrays<'p> {
    fn new(pins: &'p [Pin<'p>]) -> Result<Self> {
        if pins.len() > MAX_CHANGESET_ITEMS {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("a joint transaction takes at most {MAX_CHANGESET_ITEMS} pins: split it"),
            ));
        }
        let mut each = BTreeMap::new();
        for pin in pins {
            let ttl = Ttl::new(pin.ttl)?.as_nanos();
            each.insert((pin.key.as_bytes(), pin.owner.as_str()), ttl);
        }
        let mut arrays = Self::default();
        for ((key, owner), ttl) in each {
            arrays.keys.push(key);
            arrays.owners.push(owner);
            arrays.ttls.push(ttl);
        }
        Ok(arrays)
    }
}

fn explain(error: Error) -> Error {
    let Some(cause) = PgCause::of(&error).cloned() else {
        return error;
    };
    match cause.sqlstate() {
        Some(NO_LIVE_ENTRY) => Error::new(
            ErrorKind::Conflict,
            "a key to pin has no live entry: nothing was applied; publish it again",
        )
        .with_source(cause),
        Some(RECLAIMING) => rules::window::reclaiming().with_source(cause),
        _ => error,
    }
}

impl fmt::Debug for PgJointTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgJointTx")
            .field("open", &self.borrowed.is_some())
            .finish_non_exhaustive()
    }
}
