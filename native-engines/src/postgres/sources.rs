//! Tables of references: what the embedder registers, and what arbitration reads.

use std::sync::PoisonError;

use alkstore::{Error, ErrorKind, Result};
use tokio_postgres::types::Type;
use tokio_postgres::Row;

use super::connection::{column, Statement};
use super::Shared;

/// The longest name of a table or a column, in bytes.
const MAX_BYTES: usize = 63;

/// A registered column of keys. Both parts are quoted, and the table is qualified, so they can stand in a statement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Source {
    pub(super) table: String,
    pub(super) column: String,
}

/// Finds the table and says what is to be known about it. A bare name is looked up where Postgres itself does by
/// default: in the schema with the name of the role, then in `public`. The session's own search path is pinned elsewhere.
pub(super) fn lookup() -> Statement {
    Statement::reads(
        "SELECT n.nspname::pg_catalog.text, c.relkind::pg_catalog.text, c.relpersistence::pg_catalog.text, \
         a.atttypid = 'pg_catalog.bytea'::pg_catalog.regtype, \
         pg_catalog.has_schema_privilege(n.oid, 'USAGE') \
         AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT') \
         AND pg_catalog.has_any_column_privilege(c.oid, 'UPDATE'), \
         pg_catalog.row_security_active(c.oid) \
         FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         LEFT JOIN pg_catalog.pg_attribute a \
         ON a.attrelid = c.oid AND a.attname = $3 AND a.attnum > 0 AND NOT a.attisdropped \
         WHERE c.relname = $2 AND (n.nspname = $1 OR ($1 IS NULL AND n.nspname IN (current_user, 'public'))) \
         ORDER BY n.nspname = 'public' LIMIT 1"
            .to_owned(),
        [Type::TEXT, Type::TEXT, Type::TEXT],
    )
}

/// Looks the table up, and adds it to what this handle arbitrates by.
pub(super) async fn register(shared: &Shared, table: &str, column: &str) -> Result<()> {
    let (schema, name) = parts(table)?;
    part("column", column)?;
    shared.gate.check()?;
    let rows = shared
        .connections
        .rows(&shared.lookup, &[&schema, &name, &column])
        .await?;
    let source = source(rows.first(), name, column)?;
    let mut sources = shared
        .sources
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Err(place) = sources.binary_search(&source) {
        sources.insert(place, source);
    }
    Ok(())
}

/// The registered sources as the arrays that arbitration takes, in one order on every handle.
pub(super) fn arrays(shared: &Shared) -> (Vec<String>, Vec<String>) {
    let sources = shared
        .sources
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    sources
        .iter()
        .map(|source| (source.table.clone(), source.column.clone()))
        .unzip()
}

/// The schema, if there is one, and the name.
fn parts(table: &str) -> Result<(Option<&str>, &str)> {
    let (schema, name) = match table.split_once('.') {
        Some((schema, name)) => (Some(schema), name),
        None => (None, table),
    };
    if name.contains('.') {
        return refuse(
            "the table of references has more than two parts: write table, or schema.table",
        );
    }
    if let Some(schema) = schema {
        part("schema", schema)?;
    }
    part("table", name)?;
    Ok((schema, name))
}

fn part(what: &str, text: &str) -> Result<()> {
    let wrong = match text.len() {
        0 => "is empty",
        1..=MAX_BYTES if text.contains('\0') => "contains U+0000",
        1..=MAX_BYTES => return Ok(()),
        _ => "is longer than 63 bytes",
    };
    refuse(format!(
        "the name of the {what} of references {wrong}: write table, or schema.table, and the column of keys"
    ))
}

fn source(found: Option<&Row>, name: &str, key: &str) -> Result<Source> {
    let Some(row) = found else {
        return refuse(format!(
            "there is no table {name:?}: create it first, in this database, and name its schema where that is not public"
        ));
    };
    let schema: String = column(row, 0)?;
    let kind: &str = column(row, 1)?;
    if !matches!(kind, "r" | "p") {
        return refuse(format!(
            "{name:?} is no table: rows of a view or a foreign table cannot be held still; register the tables behind it"
        ));
    }
    if column::<&str>(row, 2)? == "t" {
        return refuse(format!(
            "the table {name:?} is temporary, so no other session can read it: register a lasting one"
        ));
    }
    match column::<Option<bool>>(row, 3)? {
        Some(true) => {}
        Some(false) => {
            return refuse(format!(
                "the column {key:?} of {name:?} is not of type bytea: references hold the keys as they are; convert it"
            ))
        }
        None => {
            return refuse(format!(
                "the table {name:?} has no column {key:?}: name the one that holds the keys"
            ))
        }
    }
    if column::<Option<bool>>(row, 4)? != Some(true) {
        return refuse(format!(
            "this role may not lock rows of {name:?}: grant it USAGE on the schema, and SELECT and UPDATE on the table"
        ));
    }
    if column(row, 5)? {
        return refuse(format!(
            "row security hides rows of {name:?} from this role, and with them references: use a role that sees them all"
        ));
    }
    Ok(Source {
        table: format!("{}.{}", quoted(&schema), quoted(name)),
        column: quoted(key),
    })
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn refuse<T>(text: impl Into<std::borrow::Cow<'static, str>>) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_named_in_one_or_two_parts() {
        assert_eq!(parts("t").unwrap(), (None, "t"));
        assert_eq!(parts("s.t \"").unwrap(), (Some("s"), "t \""));
        let long = "x".repeat(64);
        for wrong in [
            "",
            ".",
            "a.",
            ".b",
            "a..b",
            "a.b.c",
            "a.b.c.d.e",
            "a\0",
            &long,
        ] {
            let error = parts(wrong).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{wrong:?}");
        }
        assert!(part("column", "a.b").is_ok());
    }
}
