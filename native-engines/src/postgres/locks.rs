//! Named locks: a row per grant.

use std::sync::Arc;
use std::time::Duration;

use alkstore::{
    validate, BoxFuture, Lock, LockInfo, LockName, Locks, Owner, Result, Revision, Timestamp,
};
use tokio_postgres::types::Type;
use tokio_postgres::Row;

use super::connection::{column, Statement};
use super::schema::{name_lock, Schema};
use super::{bounded, number, revision, PgStore, Shared};

pub(super) struct Statements {
    try_lock: Statement,
    renew: Statement,
    release: Statement,
    force_release: Statement,
    info: Statement,
    list: Statement,
}

impl Statements {
    pub(super) fn new(schema: &Schema, relaxed_release: bool) -> Self {
        let (text, int8, int4) = (|| Type::TEXT, || Type::INT8, || Type::INT4);
        let release = if relaxed_release {
            "SELECT 1 WHERE {schema}.release_relaxed_v1($1, $2, $3)"
        } else {
            "DELETE FROM {schema}.locks WHERE name = $1 AND owner = $2 AND token = $3 RETURNING 1"
        };
        Self {
            try_lock: Statement::writes(
                schema.fill("SELECT {schema}.try_lock_v1($1, $2, $3, $4)"),
                [text(), text(), int8(), int4()],
            ),
            renew: Statement::writes(
                schema.fill("SELECT {schema}.renew_v1($1, $2, $3, $4)"),
                [text(), text(), int8(), int8()],
            ),
            release: Statement::writes(schema.fill(release), [text(), text(), int8()]),
            force_release: Statement::writes(
                schema.fill("DELETE FROM {schema}.locks WHERE name = $1 AND token = $2 RETURNING 1"),
                [text(), int8()],
            ),
            info: Statement::reads(
                schema.fill(
                    "SELECT name, owner, token, deadline, deadline <= {schema}.clock() FROM {schema}.locks \
                     WHERE name = $1",
                ),
                [text()],
            ),
            list: Statement::reads(
                schema.fill(
                    "WITH at AS MATERIALIZED (SELECT {schema}.clock() AS now) \
                     SELECT name, owner, token, deadline, deadline <= (SELECT now FROM at) FROM {schema}.locks \
                     WHERE name >= $1 AND name < $2 AND name <> $3 ORDER BY name LIMIT $4",
                ),
                [text(), text(), text(), int8()],
            ),
        }
    }
}

impl Locks for PgStore {
    fn try_lock<'a>(
        &'a self,
        name: &'a str,
        owner: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lock>>>> {
        Box::pin(async move {
            let shared = &self.0;
            let request = validate::acquire(&shared.gate, name, owner, ttl)?;
            let row = shared
                .connections
                .row(
                    &shared.locks.try_lock,
                    &[&name, &owner, &request.ttl.as_nanos(), &name_lock(name)],
                )
                .await?;
            let Some([token, deadline]) = pair(&row)? else {
                return Ok(None);
            };
            Ok(Some(Box::new(PgLock {
                shared: Arc::clone(shared),
                name: request.name.into_owned(),
                owner: request.owner.into_owned(),
                token: revision(token)?,
                deadline: Some(Timestamp::from_nanos(deadline)),
            }) as Box<dyn Lock>))
        })
    }

    fn lock_handle(&self, name: &str, owner: &str, token: Revision) -> Result<Box<dyn Lock>> {
        let (name, owner) = validate::handle(&self.0.gate, name, owner)?;
        Ok(Box::new(PgLock {
            shared: Arc::clone(&self.0),
            name,
            owner,
            token,
            deadline: None,
        }))
    }

    fn lock_info<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<LockInfo>>> {
        Box::pin(async move {
            validate::lock(&self.0.gate, name)?;
            let rows = self
                .0
                .connections
                .rows(&self.0.locks.info, &[&name])
                .await?;
            rows.first().map(info).transpose()
        })
    }

    fn list_locks<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<LockInfo>>> {
        Box::pin(async move {
            validate::list_locks(&self.0.gate, prefix, after)?;
            let Some(page) = Page::new(prefix, after) else {
                return Ok(Vec::new());
            };
            let rows = self
                .0
                .connections
                .rows(
                    &self.0.locks.list,
                    &[&page.from, &page.to, &page.without, &bounded(limit)],
                )
                .await?;
            rows.iter().map(info).collect()
        })
    }

    fn force_release<'a>(&'a self, name: &'a str, token: Revision) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            validate::lock(&self.0.gate, name)?;
            let rows = self
                .0
                .connections
                .rows(&self.0.locks.force_release, &[&name, &number(token)])
                .await?;
            Ok(!rows.is_empty())
        })
    }
}

/// A grant; a handle of possibly many.
struct PgLock {
    shared: Arc<Shared>,
    name: LockName<'static>,
    owner: Owner<'static>,
    token: Revision,
    deadline: Option<Timestamp>,
}

impl Lock for PgLock {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn owner(&self) -> &str {
        self.owner.as_str()
    }

    fn token(&self) -> Revision {
        self.token
    }

    fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    fn renew(&mut self, ttl: Duration) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let ttl = validate::duration(&self.shared.gate, ttl)?;
            let row = self
                .shared
                .connections
                .row(
                    &self.shared.locks.renew,
                    &[
                        &self.name.as_str(),
                        &self.owner.as_str(),
                        &number(self.token),
                        &ttl.as_nanos(),
                    ],
                )
                .await?;
            let Some(deadline) = column::<Option<i64>>(&row, 0)? else {
                return Ok(false);
            };
            self.deadline = Some(Timestamp::from_nanos(deadline));
            Ok(true)
        })
    }

    fn release(self: Box<Self>) -> BoxFuture<'static, Result<bool>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            let rows = self
                .shared
                .connections
                .rows(
                    &self.shared.locks.release,
                    &[
                        &self.name.as_str(),
                        &self.owner.as_str(),
                        &number(self.token),
                    ],
                )
                .await?;
            Ok(!rows.is_empty())
        })
    }
}

/// A page of names as a range, which an index can find the ends of.
struct Page {
    from: String,
    to: String,
    without: String,
}

impl Page {
    /// `None` where no name can be in it. The server takes no U+0000, and no name has one.
    fn new(prefix: &str, after: Option<&str>) -> Option<Self> {
        if prefix.contains('\0') {
            return None;
        }
        // Cut at a U+0000: every name that is greater than the whole is greater than the rest, and the other way round.
        let after = after
            .unwrap_or_default()
            .split('\0')
            .next()
            .unwrap_or_default();
        Some(Self {
            from: prefix.max(after).to_owned(),
            to: successor(prefix),
            without: after.to_owned(),
        })
    }
}

/// The least text that is greater than everything that begins with `prefix`, as far as names can be.
fn successor(prefix: &str) -> String {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        let next = match last {
            '\u{d7ff}' => Some('\u{e000}'),
            _ => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            text.push(next);
            return text;
        }
    }
    // Longer than any name, of the greatest character.
    "\u{10ffff}".repeat(alkstore::MAX_NAME_BYTES / 4 + 1)
}

fn info(row: &Row) -> Result<LockInfo> {
    Ok(LockInfo {
        name: column(row, 0)?,
        owner: column(row, 1)?,
        token: revision(column(row, 2)?)?,
        deadline: Timestamp::from_nanos(column(row, 3)?),
        lapsed: column(row, 4)?,
    })
}

fn pair(row: &Row) -> Result<Option<[i64; 2]>> {
    let Some(values) = column::<Option<Vec<i64>>>(row, 0)? else {
        return Ok(None);
    };
    let values = values
        .try_into()
        .map_err(|_| super::error::Failure::Answer.into_error(super::error::Stage::Reading))?;
    Ok(Some(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_holds_the_names_with_its_prefix_and_no_others() {
        assert_eq!(successor("job/"), "job0");
        assert_eq!(successor("a\u{d7ff}"), "a\u{e000}");
        assert_eq!(successor("a\u{10ffff}"), "b");
        let last = "\u{10ffff}".repeat(128);
        assert!(successor("").as_str() > last.as_str());
        assert!(successor(&last) > last);

        let page = Page::new("b", Some("a\0z")).unwrap();
        assert_eq!((page.from.as_str(), page.without.as_str()), ("b", "a"));
        assert!(Page::new("b\0", None).is_none());
    }
}
