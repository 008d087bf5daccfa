//! Versioned entries: a row per key.

use std::time::Duration;

use alkstore::{
    rules, validate, BoxFuture, Entries, Entry, EntryMeta, Error, Key, Put, PutMode, PutOptions,
    Result, Revision, Timestamp, Ttl,
};
use tokio_postgres::types::Type;
use tokio_postgres::Row;

use super::connection::{column, Statement};
use super::error::{Failure, Stage};
use super::schema::{stripe, Schema};
use super::{bounded, number, revision, PgStore};

pub(super) struct Statements {
    get: Statement,
    pub(super) put: Statement,
    touch: Statement,
    delete: Statement,
    list: Statement,
}

impl Statements {
    pub(super) fn new(schema: &Schema) -> Self {
        let (bytes, int8, int4) = (|| Type::BYTEA, || Type::INT8, || Type::INT4);
        Self {
            get: Statement::reads(
                schema.fill(
                    "SELECT value, version, expires_at FROM {schema}.entries \
                     WHERE key = $1 AND (expires_at IS NULL OR expires_at > {schema}.clock())",
                ),
                [bytes()],
            ),
            put: Statement::writes(
                schema.fill("SELECT {schema}.put_v2($1, $2, $3, $4, $5, $6, $7, $8)"),
                [
                    bytes(),
                    bytes(),
                    int4(),
                    int8(),
                    int8(),
                    int4(),
                    Type::TEXT,
                    int8(),
                ],
            ),
            touch: Statement::writes(
                schema.fill("SELECT {schema}.touch_v1($1, $2, $3)"),
                [bytes(), int8(), int4()],
            ),
            delete: Statement::writes(
                schema.fill("SELECT {schema}.delete_v1($1, $2, $3)"),
                [bytes(), int8(), int4()],
            ),
            list: Statement::reads(
                schema.fill(
                    "WITH at AS MATERIALIZED (SELECT {schema}.clock() AS now) \
                     SELECT key, version, expires_at, octet_length(value)::pg_catalog.int8 FROM {schema}.entries \
                     WHERE key >= $1 AND key < $2 AND key <> $3 \
                     AND (expires_at IS NULL OR expires_at > (SELECT now FROM at)) ORDER BY key LIMIT $4",
                ),
                [bytes(), bytes(), bytes(), int8()],
            ),
        }
    }
}

impl Entries for PgStore {
    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<Entry>>> {
        Box::pin(async move {
            validate::key(&self.0.gate, key)?;
            let rows = self
                .0
                .connections
                .rows(&self.0.entries.get, &[&key])
                .await?;
            let Some(row) = rows.first() else {
                return Ok(None);
            };
            Ok(Some(Entry {
                value: column::<&[u8]>(row, 0)?.into(),
                version: revision(column(row, 1)?)?,
                expires_at: instant(row, 2)?,
            }))
        })
    }

    fn put<'a>(
        &'a self,
        key: &'a [u8],
        value: &'a [u8],
        options: PutOptions<'a>,
    ) -> BoxFuture<'a, Result<Put>> {
        Box::pin(async move {
            let request = validate::put(&self.0.gate, key, value.len(), &options)?;
            let (mode, over) = match request.mode {
                PutMode::Create => (0, None),
                PutMode::Replace => (1, None),
                PutMode::Update(version) => (2, Some(number(version))),
            };
            let guard = request.guard.as_ref().map(|(name, _)| name.as_str());
            let row = self
                .0
                .connections
                .row(
                    &self.0.entries.put,
                    &[
                        &key,
                        &value,
                        &mode,
                        &over,
                        &request.ttl.map(Ttl::as_nanos),
                        &stripe(key),
                        &guard,
                        &request.guard.as_ref().map(|(_, token)| number(*token)),
                    ],
                )
                .await?;
            let answer: Vec<Option<i64>> = column(&row, 0)?;
            match (answer.as_slice(), &request.guard) {
                ([Some(0), Some(version)], _) => Ok(Put::Stored {
                    version: revision(*version)?,
                }),
                ([Some(1), current], _) => Ok(Put::NotStored {
                    current: current.map(revision).transpose()?,
                }),
                ([Some(2), None], Some((name, token))) => {
                    Err(rules::lock::lease_lost(name, *token))
                }
                ([Some(3), None], _) => Err(rules::window::reclaiming()),
                _ => Err(nonsense()),
            }
        })
    }

    fn touch<'a>(&'a self, key: &'a [u8], ttl: Duration) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let (_, ttl) = validate::touch(&self.0.gate, key, ttl)?;
            let row = self
                .0
                .connections
                .row(
                    &self.0.entries.touch,
                    &[&key, &ttl.as_nanos(), &stripe(key)],
                )
                .await?;
            column(&row, 0)
        })
    }

    fn delete<'a>(
        &'a self,
        key: &'a [u8],
        if_version: Option<Revision>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            validate::key(&self.0.gate, key)?;
            let row = self
                .0
                .connections
                .row(
                    &self.0.entries.delete,
                    &[&key, &if_version.map(number), &stripe(key)],
                )
                .await?;
            column(&row, 0)
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a [u8],
        after: Option<&'a [u8]>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<EntryMeta>>> {
        Box::pin(async move {
            validate::list(&self.0.gate, prefix, after)?;
            let after = after.unwrap_or_default();
            let rows = self
                .0
                .connections
                .rows(
                    &self.0.entries.list,
                    &[
                        &prefix.max(after),
                        &successor(prefix),
                        &after,
                        &bounded(limit),
                    ],
                )
                .await?;
            rows.iter().map(meta).collect()
        })
    }
}

fn meta(row: &Row) -> Result<EntryMeta> {
    Ok(EntryMeta {
        key: Key::new(column::<Vec<u8>>(row, 0)?)?,
        version: revision(column(row, 1)?)?,
        expires_at: instant(row, 2)?,
        size: u64::try_from(column::<i64>(row, 3)?).map_err(|_| nonsense())?,
    })
}

fn instant(row: &Row, at: usize) -> Result<Option<Timestamp>> {
    Ok(column::<Option<i64>>(row, at)?.map(Timestamp::from_nanos))
}

fn nonsense() -> Error {
    Failure::Answer.into_error(Stage::Reading)
}

/// The least bytes that are greater than everything that begins with `prefix`, as far as keys can be.
fn successor(prefix: &[u8]) -> Vec<u8> {
    let mut bytes = prefix.to_owned();
    while let Some(last) = bytes.pop() {
        if last < u8::MAX {
            bytes.push(last + 1);
            return bytes;
        }
    }
    vec![u8::MAX; alkstore::MAX_KEY_BYTES + 1]
}

#[cfg(test)]
mod tests {
    use super::successor;

    #[test]
    fn a_page_holds_the_keys_with_its_prefix_and_no_others() {
        assert_eq!(successor(b"a/"), b"a0");
        assert_eq!(successor(b"a\xff\xff"), b"b");
        assert!(successor(b"\xff") > vec![u8::MAX; alkstore::MAX_KEY_BYTES]);
        assert!(successor(b"") > vec![u8::MAX; alkstore::MAX_KEY_BYTES]);
    }
}
