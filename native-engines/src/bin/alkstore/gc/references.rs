//! Tables of references, `--liveness`: Postgres reads them itself, those of a SQLite file are read here.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use alkstore::{EngineFleetState, HookError, HookFuture, Key, LivenessSource, Reclaim};
use rusqlite::{params, Connection, OpenFlags};

use crate::exit::{Failure, Result, STORE, USAGE};
use crate::locks::PATIENCE;
use crate::output;
use crate::place::{Missing, Open, PlaceArgs};

#[derive(clap::Args)]
pub struct ReferenceArgs {
    /// A table of references: a key that stands in its column is live; may be given several times
    ///
    /// TABLE is a name, or SCHEMA.NAME, in the same database as the store. On Postgres the column is of type bytea; in a
    /// SQLite file it holds the keys as blobs or as text. It needs an index: each key is looked for there.
    #[arg(long = "liveness", value_name = "TABLE:COLUMN", value_parser = reference)]
    pub tables: Vec<Reference>,
}

/// A column that holds the keys that are referred to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub table: String,
    pub column: String,
}

/// The last colon separates the two.
fn reference(text: &str) -> std::result::Result<Reference, String> {
    match text.rsplit_once(':') {
        Some((table, column)) if !table.is_empty() && !column.is_empty() => Ok(Reference {
            table: table.to_owned(),
            column: column.to_owned(),
        }),
        _ => Err("write TABLE:COLUMN or SCHEMA.TABLE:COLUMN, such as app.files:blob".to_owned()),
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = output::printable;
        write!(f, "{}:{}", shown(&self.table), shown(&self.column))
    }
}

impl ReferenceArgs {
    /// Has the store ask the tables where it can; answers the others, which the sweep has to ask.
    pub fn register(&self, place: &PlaceArgs, open: &Open) -> Result<Vec<FileTable>> {
        if let Some(store) = open.postgres() {
            for table in &self.tables {
                open.wait(store.register_liveness_source(&table.table, &table.column))?;
            }
            return Ok(Vec::new());
        }
        let tables = self.in_file(place)?;
        for (name, table) in self.tables.iter().zip(&tables) {
            if table.is_scanned().map_err(unreadable)? {
                output::note(&format!(
                    "{name} has no index on the column: the whole table is read for each key"
                ));
            }
        }
        Ok(tables)
    }

    fn in_file(&self, place: &PlaceArgs) -> Result<Vec<FileTable>> {
        let Some(path) = place.file()? else {
            return Ok(Vec::new());
        };
        let tables = self.tables.iter();
        tables.map(|table| FileTable::open(&path, table)).collect()
    }

    /// Which tables refer to `key`. On Postgres a pin hides what they say: then it is `None`.
    pub fn look(&self, place: &PlaceArgs, key: &Key<'_>) -> Result<Vec<(Reference, Option<bool>)>> {
        let mut found = Vec::with_capacity(self.tables.len());
        if place.file()?.is_some() {
            for (table, source) in self.tables.iter().zip(self.in_file(place)?) {
                let live = source.ask(std::slice::from_ref(key)).map_err(unreadable)?;
                found.push((table.clone(), Some(live.contains(&true))));
            }
            return Ok(found);
        }
        for table in &self.tables {
            // A handle has all tables that were ever registered with it, so each gets one of its own.
            let open = place.open(Missing::Refuse, PATIENCE)?;
            let one = Self {
                tables: vec![table.clone()],
            };
            one.register(place, &open)?;
            let judged = open.wait(open.store.window_judge(std::slice::from_ref(key)))?;
            open.close();
            let live = match judged.first() {
                Some(Reclaim::Referenced) => Some(true),
                Some(Reclaim::Pinned) | None => None,
                Some(_) => Some(false),
            };
            found.push((table.clone(), live));
        }
        Ok(found)
    }
}

/// A table in the file of a SQLite store.
pub struct FileTable {
    connection: Mutex<Connection>,
    question: String,
}

impl FileTable {
    fn open(path: &Path, reference: &Reference) -> Result<Self> {
        // Neither a URI nor anything to make or write.
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(unreadable)?;
        connection.busy_timeout(PATIENCE).map_err(unreadable)?;
        let name = match reference.table.split_once('.') {
            None => reference.table.as_str(),
            Some(("main", name)) => name,
            Some(_) => {
                return Err(Failure::new(
                    USAGE,
                    format!("{reference} names a schema, and a SQLite file has none but main"),
                )
                .advise("Write TABLE:COLUMN."))
            }
        };
        let there: bool = connection
            .query_row(
                "SELECT EXISTS (SELECT 1 FROM pragma_table_xinfo(?1, 'main'))",
                [name],
                |row| row.get(0),
            )
            .map_err(unreadable)?;
        if !there {
            return Err(Failure::new(
                USAGE,
                format!(
                    "there is no table {:?} in the file of the store",
                    output::printable(name)
                ),
            )
            .advise("Tables of references lie in the same database as the store."));
        }
        // A column that is not there would be an error or, worse, taken for text: it is looked for first.
        let has: bool = connection
            .query_row(
                "SELECT EXISTS (SELECT 1 FROM pragma_table_xinfo(?1, 'main') WHERE lower(name) = lower(?2))",
                params![name, reference.column],
                |row| row.get(0),
            )
            .map_err(unreadable)?;
        if !has {
            return Err(Failure::new(
                USAGE,
                format!(
                    "the table {:?} has no column {:?}",
                    output::printable(name),
                    output::printable(&reference.column)
                ),
            )
            .advise("Name the column that holds the keys."));
        }
        let question = format!(
            "SELECT EXISTS (SELECT 1 FROM main.{} AS t WHERE t.{} IN (?1, ?2))",
            quoted(name),
            quoted(&reference.column)
        );
        Ok(Self {
            connection: Mutex::new(connection),
            question,
        })
    }

    fn is_scanned(&self) -> rusqlite::Result<bool> {
        let connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", self.question))?;
        let mut rows = plan.query(params![&b"k"[..], "k"])?;
        while let Some(row) = rows.next()? {
            let step: String = row.get(3)?;
            // A scan of the constant row around it has no table.
            if step.starts_with("SCAN t") {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// All as of one snapshot. A key may stand there as a blob or, where it is text, as text.
    fn ask(&self, keys: &[Key<'_>]) -> rusqlite::Result<Vec<bool>> {
        let connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let snapshot = connection.unchecked_transaction()?;
        let mut question = snapshot.prepare_cached(&self.question)?;
        keys.iter()
            .map(|key| {
                let bytes = key.as_bytes();
                let text = std::str::from_utf8(bytes).ok();
                question.query_row(params![bytes, text], |row| row.get(0))
            })
            .collect()
    }
}

impl LivenessSource for FileTable {
    fn live<'a>(
        &'a self,
        keys: &'a [Key<'a>],
    ) -> HookFuture<'a, std::result::Result<Vec<bool>, HookError>> {
        Box::pin(async move { self.ask(keys).map_err(HookError::from) })
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[allow(clippy::needless_pass_by_value)] // as `map_err` wants it
fn unreadable(error: rusqlite::Error) -> Failure {
    let mut text = format!("the references cannot be read: {error}");
    if let Some(cause) = error.source() {
        text = format!("{text}: {cause}");
    }
    Failure::new(STORE, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_colon_separates_table_and_column() {
        let parts = |text| {
            let reference = reference(text).ok()?;
            Some((reference.table, reference.column))
        };
        let pair = |table: &str, column: &str| Some((table.to_owned(), column.to_owned()));
        assert_eq!(parts("files:blob"), pair("files", "blob"));
        assert_eq!(parts("app.files:blob"), pair("app.files", "blob"));
        assert_eq!(parts("a:b:c"), pair("a:b", "c"));
        for wrong in ["", ":", "files", "files.blob", "files:", ":blob"] {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn keys_are_found_as_blobs_and_as_text_whatever_the_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch(
                r#"CREATE TABLE "we""ird t" ("c "" x", n TEXT);
                   INSERT INTO "we""ird t" VALUES (x'00ff', NULL), ('text', NULL), (CAST('blob' AS BLOB), 'as text'), (NULL, x'6b');"#,
            )
            .unwrap();
        let keys: Vec<Key<'_>> = [
            &b"\x00\xff"[..],
            b"text",
            b"blob",
            b"as text",
            b"k",
            b"none",
        ]
        .into_iter()
        .map(|key| Key::new(key).unwrap())
        .collect();
        let ask = |table: &str, column: &str| {
            let reference = Reference {
                table: table.to_owned(),
                column: column.to_owned(),
            };
            FileTable::open(&path, &reference).map(|table| table.ask(&keys).unwrap())
        };
        let live = ask("we\"ird t", "c \" x").unwrap();
        assert_eq!(live, [true, true, true, false, false, false]);
        let live = ask("main.we\"ird t", "N").unwrap();
        assert_eq!(live, [false, false, false, true, true, false]);
        for (table, column) in [
            ("none", "c"),
            ("we\"ird t", "none"),
            ("temp.t", "c"),
            ("we\"ird t", "text"),
        ] {
            let refused = ask(table, column).unwrap_err();
            assert_eq!(refused.code, USAGE, "{table}:{column}");
        }
    }
}
