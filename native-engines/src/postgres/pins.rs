//! Pins, one by one: renewal, release, and what operators see.

use alkstore::{Key, Owner, PinState, Result, Timestamp};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Transaction};

use super::connection::{column, Statement};
use super::error::{Failure, Stage};
use super::schema::Schema;
use super::{bounded, PgStore, Shared};

pub(super) struct Statements {
    renew: Statement,
    hold: Statement,
    release: Statement,
    check: Statement,
    list: Statement,
    owners: Statement,
}

impl Statements {
    pub(super) fn new(schema: &Schema) -> Self {
        let (bytes, text, int8) = (|| Type::BYTEA, || Type::TEXT, || Type::INT8);
        Self {
            renew: Statement::writes(
                schema.fill("SELECT {schema}.pin_renew_v2($1, $2, $3)"),
                [bytes(), text(), int8()],
            ),
            hold: Statement::reads(
                schema.fill("SELECT {schema}.pin_hold_v2($1, $2)"),
                [bytes(), text()],
            ),
            release: Statement::writes(
                schema.fill(
                    "DELETE FROM {schema}.gc_pins WHERE key = $1 AND owner = $2 RETURNING 1",
                ),
                [bytes(), text()],
            ),
            check: Statement::reads(
                schema.fill(
                    "SELECT EXISTS (SELECT FROM {schema}.gc_pins p \
                     WHERE p.key = $1 AND p.expires_at > {schema}.clock())",
                ),
                [bytes()],
            ),
            list: Statement::reads(
                schema.fill(
                    "WITH at AS MATERIALIZED (SELECT {schema}.clock() AS now) \
                     SELECT p.key, p.owner, p.expires_at, p.expires_at <= (SELECT now FROM at) \
                     FROM {schema}.gc_pins p \
                     WHERE ($1 IS NULL OR p.key = $1) AND (p.key, p.owner) > ($2, $3) \
                     ORDER BY p.key, p.owner LIMIT $4",
                ),
                [bytes(), bytes(), text(), int8()],
            ),
            owners: Statement::reads(
                schema.fill(
                    "WITH at AS MATERIALIZED (SELECT {schema}.clock() AS now) \
                     SELECT p.owner, pg_catalog.count(*) FILTER (WHERE p.expires_at > (SELECT now FROM at)), \
                     pg_catalog.count(*) FILTER (WHERE p.expires_at <= (SELECT now FROM at)), \
                     pg_catalog.min(p.expires_at) FILTER (WHERE p.expires_at > (SELECT now FROM at)) \
                     FROM {schema}.gc_pins p GROUP BY p.owner ORDER BY p.owner",
                ),
                [],
            ),
        }
    }
}

/// A pin, as [`PgStore::pins`] shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgPin {
    /// What is protected.
    pub key: Key<'static>,
    /// For whom.
    pub owner: Owner<'static>,
    /// Until when.
    pub expires_at: Timestamp,
    /// Whether that has passed: then it protects nothing any more.
    pub lapsed: bool,
}

/// The pins of an owner in numbers, as [`PgStore::pin_owners`] shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgPinOwner {
    /// Whose they are: a store's [`instance_id`](PgStore::instance_id), or whatever the embedder named.
    pub owner: Owner<'static>,
    /// How many protect something.
    pub live: u64,
    /// How many lapsed and wait to be removed.
    pub lapsed: u64,
    /// When the first of the live ones lapses.
    pub soonest: Option<Timestamp>,
}

impl PgStore {
    /// The pins after `after` by key and owner, those of `key` alone where one is named, lapsed ones too; `limit` at
    /// most.
    pub async fn pins(
        &self,
        key: Option<&[u8]>,
        after: Option<&PgPin>,
        limit: usize,
    ) -> Result<Vec<PgPin>> {
        let key = key.map(Key::new).transpose()?;
        self.0.gate.check()?;
        let key = key.as_ref().map(Key::as_bytes);
        // Before every pin: no key is empty.
        let after = after.map_or((&b""[..], ""), |pin| {
            (pin.key.as_bytes(), pin.owner.as_str())
        });
        let params: [&(dyn ToSql + Sync); 4] = [&key, &after.0, &after.1, &bounded(limit)];
        let rows = self.0.connections.rows(&self.0.pins.list, &params).await?;
        rows.iter().map(pin).collect()
    }

    /// All owners of pins.
    pub async fn pin_owners(&self) -> Result<Vec<PgPinOwner>> {
        self.0.gate.check()?;
        let rows = self.0.connections.rows(&self.0.pins.owners, &[]).await?;
        rows.iter().map(owner).collect()
    }

    /// Holds a live pin until the end of the caller's transaction, which commits a reference to its key: whatever it lasts,
    /// no sweep deletes the key before that, and every sweep after it sees the reference. The transaction is on the store's
    /// database.
    ///
    /// False where the pin has lapsed or is absent: then roll back, and publish and pin anew. Renewals go on meanwhile, a
    /// release waits. So does the sweep that meets the key, up to the end of its call; commit soon. Call it before anything
    /// that may wait, as changing other references does: a sweep locks pins first and references after. The call has no
    /// deadline of its own; after an error the transaction can only be rolled back.
    ///
    /// ```no_run
    /// # use alkstore_native::postgres::PgStore;
    /// # async fn example(store: &PgStore, client: &mut tokio_postgres::Client, owner: &str)
    /// #     -> Result<(), Box<dyn std::error::Error>> {
    /// let tx = client.transaction().await?;
    /// if !store.pin_hold_in(&tx, b"blob/1", owner).await? {
    ///     return Ok(()); // it lapsed: publish anew
    /// }
    /// tx.execute("INSERT INTO files (name, blob) VALUES ('a', $1)", &[&&b"blob/1"[..]]).await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    pub async fn pin_hold_in(
        &self,
        transaction: &Transaction<'_>,
        key: &[u8],
        owner: &str,
    ) -> Result<bool> {
        let (key, owner) = parse(&self.0, key, owner)?;
        let statement = &self.0.pins.hold;
        let (key, owner) = (key.as_bytes(), owner.as_str());
        let params: [&(dyn ToSql + Sync); 2] = [&key, &owner];
        let rows = transaction
            .query_typed(statement.text(), &statement.typed(&params))
            .await
            .map_err(|error| Failure::from(error).into_error(Stage::Reading))?;
        match rows.first() {
            Some(row) => column(row, 0),
            None => Err(Failure::Answer.into_error(Stage::Reading)),
        }
    }

    /// Ends the protection of `key` for `owner`; whether there was a pin, live or lapsed.
    ///
    /// Not before the reference is committed: from then on the table of references protects the key.
    pub async fn pin_release(&self, key: &[u8], owner: &str) -> Result<bool> {
        release(&self.0, key, owner).await
    }
}

pub(super) async fn renew(shared: &Shared, key: &[u8], owner: &str) -> Result<bool> {
    let (key, owner) = parse(shared, key, owner)?;
    let row = shared
        .connections
        .row(
            &shared.pins.renew,
            &[&key.as_bytes(), &owner.as_str(), &shared.pin_ttl.as_nanos()],
        )
        .await?;
    Ok(column::<Option<i64>>(&row, 0)?.is_some())
}

pub(super) async fn release(shared: &Shared, key: &[u8], owner: &str) -> Result<bool> {
    let (key, owner) = parse(shared, key, owner)?;
    let rows = shared
        .connections
        .rows(&shared.pins.release, &[&key.as_bytes(), &owner.as_str()])
        .await?;
    Ok(!rows.is_empty())
}

pub(super) async fn check(shared: &Shared, key: &[u8]) -> Result<PinState> {
    alkstore::validate::key(&shared.gate, key)?;
    let row = shared.connections.row(&shared.pins.check, &[&key]).await?;
    Ok(if column(&row, 0)? {
        PinState::Protected
    } else {
        PinState::Unprotected
    })
}

pub(super) fn parse<'a>(
    shared: &Shared,
    key: &'a [u8],
    owner: &'a str,
) -> Result<(Key<'a>, Owner<'a>)> {
    let parsed = (Key::new(key)?, Owner::new(owner)?);
    shared.gate.check()?;
    Ok(parsed)
}

fn pin(row: &Row) -> Result<PgPin> {
    Ok(PgPin {
        key: Key::new(column::<Vec<u8>>(row, 0)?)?,
        owner: Owner::new(column::<String>(row, 1)?)?,
        expires_at: Timestamp::from_nanos(column(row, 2)?),
        lapsed: column(row, 3)?,
    })
}

fn owner(row: &Row) -> Result<PgPinOwner> {
    let number = |at| super::count(column(row, at)?).map(|count| count as u64);
    Ok(PgPinOwner {
        owner: Owner::new(column::<String>(row, 0)?)?,
        live: number(1)?,
        lapsed: number(2)?,
        soonest: column::<Option<i64>>(row, 3)?.map(Timestamp::from_nanos),
    })
}
