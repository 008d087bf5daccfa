//! The tables and functions of a store, and how they come to be there.

use std::collections::{BTreeSet, HashMap};

use alkstore::{Error, ErrorKind, Result, Timestamp};
use tokio_postgres::types::Type;
use tokio_postgres::GenericClient;

use super::connection::Connections;
use super::error::{Failure, PgCause, Stage};
use super::PgOptions;

/// What quotes the bodies of functions, and so cannot be part of a schema's name.
pub(super) const QUOTE: &str = "$alkstore$";

/// The version of the schema that this code makes and uses.
const VERSION: i32 = 2;

/// How many advisory locks all keys share: few enough for the largest changeset to fit into the server's lock table,
/// many enough that strangers rarely meet.
const STRIPES: u64 = 1024;

const PARTS: &str = include_str!("schema.sql");

/// What version 2 changes in a schema of version 1. The functions that know nothing of marks go, so that a program which
/// calls them fails instead of trusting what is being deleted. One without arguments stays under each name: to the
/// program of version 1 the name is there, so opening does not make the old function again.
const FROM_VERSION_1: &str = "\
ALTER TABLE {schema}.gc_window ADD COLUMN IF NOT EXISTS reclaiming boolean NOT NULL DEFAULT false, \
  ADD COLUMN IF NOT EXISTS requeues integer NOT NULL DEFAULT 0; \
DROP FUNCTION IF EXISTS {schema}.put_v1, {schema}.stage_v1, {schema}.commit_v1; \
CREATE FUNCTION {schema}.put_v1() RETURNS void LANGUAGE sql AS ''; \
CREATE FUNCTION {schema}.stage_v1() RETURNS void LANGUAGE sql AS ''; \
CREATE FUNCTION {schema}.commit_v1() RETURNS void LANGUAGE sql AS ''; \
UPDATE {schema}.alkstore SET version = 2";

/// The language and the body of the clock. In SQL, so that it is inlined.
const SYSTEM_CLOCK: (&str, &str) = (
    "sql",
    " SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::pg_catalog.int8 * 1000 ",
);

/// The same for a clock that is moved by hand. Not in SQL, so that it is not inlined, and volatile, so that each call
/// reads what the clock was last set to: a move during a wait is seen.
const MANUAL_CLOCK: (&str, &str) = (
    "plpgsql",
    " BEGIN RETURN (SELECT m.now FROM {schema}.manual_clock m); END ",
);

/// A schema's name, ready for use in statements.
#[derive(Clone, Debug)]
pub(super) struct Schema {
    name: String,
    quoted: String,
}

impl Schema {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            quoted: format!("\"{}\"", name.replace('"', "\"\"")),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// `text` with `{schema}` and its like filled in; in one pass, since a schema's name may look like one of them.
    pub(super) fn fill(&self, text: &str) -> String {
        let literal = format!("'{}.revision'", self.quoted.replace('\'', "''"));
        let parts = [
            ("{schema}", self.quoted.clone()),
            ("{revision}", literal),
            ("{keys}", self.class("keys").to_string()),
            ("{names}", self.class("names").to_string()),
        ];
        let mut filled = String::with_capacity(text.len() * 2);
        let mut rest = text;
        while let Some(brace) = rest.find('{') {
            let (before, from) = rest.split_at(brace);
            filled.push_str(before);
            let part = parts.iter().find(|(part, _)| from.starts_with(part));
            let (taken, put) = part.map_or(("{", "{"), |(part, put)| (*part, put.as_str()));
            filled.push_str(put);
            rest = &from[taken.len()..];
        }
        filled + rest
    }

    /// The class of the advisory locks on `what`: two stores in one database hardly ever share one, and lose only
    /// speed where they do.
    fn class(&self, what: &str) -> i32 {
        low_bits(hash(format!("alkstore {what} {}", self.name).as_bytes()))
    }

    /// Makes what is missing, and checks what is there.
    pub(super) async fn open(&self, connections: &Connections, options: &PgOptions) -> Result<()> {
        let work = async {
            let mut borrowed = connections
                .borrow()
                .await
                .map_err(|f| f.into_error(Stage::Connecting))?;
            let client = borrowed
                .client()
                .map_err(|f| f.into_error(Stage::Connecting))?;
            check_server(&***client).await?;
            let found = self.catalogue(&***client).await?;
            let version = self.version(&***client, &found).await?;
            let found = if version == Some(VERSION) && self.missing(&found, options).is_empty() {
                found
            } else {
                self.create(client, options)
                    .await
                    .map_err(|error| self.explain(error, version))?;
                self.catalogue(&***client).await?
            };
            self.check(&found, options)?;
            borrowed.give_back();
            Ok(())
        };
        match tokio::time::timeout(connections.timeout(), work).await {
            Ok(done) => done,
            Err(_) => Err(Failure::Elapsed(connections.timeout()).into_error(Stage::Connecting)),
        }
    }

    /// The names of everything in the schema, with the bodies of functions; the schema itself as the empty name. The
    /// catalogue can be read by a role that may do nothing else.
    async fn catalogue(
        &self,
        client: &impl GenericClient,
    ) -> Result<HashMap<String, Option<String>>> {
        let rows = client
            .query_typed(
                "SELECT c.relname::pg_catalog.text, NULL::pg_catalog.text FROM pg_catalog.pg_class c \
                 JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1::pg_catalog.text \
                 UNION ALL SELECT p.proname::pg_catalog.text, p.prosrc FROM pg_catalog.pg_proc p \
                 JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1::pg_catalog.text \
                 UNION ALL SELECT '', NULL FROM pg_catalog.pg_namespace n WHERE n.nspname = $1::pg_catalog.text",
                &[(&self.name, Type::TEXT)],
            )
            .await
            .map_err(reading)?;
        rows.iter()
            .map(|row| {
                Ok((
                    super::connection::column(row, 0)?,
                    super::connection::column(row, 1)?,
                ))
            })
            .collect()
    }

    /// The parts that are not there yet.
    fn missing(&self, found: &HashMap<String, Option<String>>, options: &PgOptions) -> Vec<String> {
        let mut missing = Vec::new();
        if !found.contains_key("") {
            missing.push(self.fill("CREATE SCHEMA {schema}"));
        }
        if let Some(start) = options.manual_clock {
            if !found.contains_key("clock") {
                missing.push(self.fill(&format!(
                    "CREATE TABLE {{schema}}.manual_clock (now bigint NOT NULL);\
                     INSERT INTO {{schema}}.manual_clock VALUES ({})",
                    start.as_nanos()
                )));
            }
        }
        let (language, body) = if options.manual_clock.is_some() {
            MANUAL_CLOCK
        } else {
            SYSTEM_CLOCK
        };
        for part in PARTS.split("\n--: ").skip(1) {
            let (name, sql) = part.split_once('\n').unwrap_or_default();
            if !found.contains_key(name) {
                let sql = sql.replace("{clock}", body).replace("{language}", language);
                missing.push(self.fill(&sql));
            }
        }
        missing
    }

    /// Makes what is missing in one transaction; two first users come one after the other.
    async fn create(
        &self,
        client: &mut deadpool_postgres::Object,
        options: &PgOptions,
    ) -> Result<()> {
        let tx = client.transaction().await.map_err(writing)?;
        tx.query_typed(
            "SELECT pg_catalog.pg_advisory_xact_lock($1, 0)",
            &[(&self.class("schema"), Type::INT4)],
        )
        .await
        .map_err(writing)?;
        let found = self.catalogue(&*tx).await?;
        let upgrade = self.version(&*tx, &found).await? == Some(1);
        if upgrade {
            tx.batch_execute(&self.fill(FROM_VERSION_1))
                .await
                .map_err(writing)?;
        }
        // In one round trip, however many parts there are.
        let missing = self.missing(&found, options).join(";\n");
        tx.batch_execute(&missing).await.map_err(writing)?;
        tx.commit().await.map_err(writing)
    }

    /// The version of the schema, where a store is there at all; what this program cannot use is refused before it makes
    /// anything.
    async fn version(
        &self,
        client: &impl GenericClient,
        found: &HashMap<String, Option<String>>,
    ) -> Result<Option<i32>> {
        if !found.contains_key("alkstore") {
            return Ok(None);
        }
        let rows = client
            .query_typed(
                &self.fill("SELECT max(version) FROM {schema}.alkstore"),
                &[],
            )
            .await
            .map_err(reading)?;
        let version = rows
            .first()
            .and_then(|row| row.try_get::<_, Option<i32>>(0).ok().flatten());
        let wrong = match version {
            Some(1..=VERSION) => return Ok(version),
            Some(newer) if newer > VERSION => format!(
                "the schema {:?} has version {newer}, this program knows {VERSION}: use a newer program",
                self.name
            ),
            _ => format!("the schema {:?} does not hold a store", self.name),
        };
        Err(Error::new(ErrorKind::InvalidArgument, wrong))
    }

    /// Refuses a schema whose clock is not the kind that was asked for.
    fn check(&self, found: &HashMap<String, Option<String>>, options: &PgOptions) -> Result<()> {
        let refuse = |text: String| Err(Error::new(ErrorKind::InvalidArgument, text));
        let clock = found.get("clock").and_then(Option::as_deref);
        let is_system = clock == Some(SYSTEM_CLOCK.1);
        let is_manual = clock == Some(self.fill(MANUAL_CLOCK.1).as_str());
        match (options.manual_clock.is_some(), is_system, is_manual) {
            (false, true, _) | (true, _, true) => {}
            (false, _, true) => {
                return refuse(format!(
                "the schema {:?} has a manual clock, which is for tests: open it with manual_clock",
                self.name
            ))
            }
            (true, true, _) => {
                return refuse(format!(
                "the schema {:?} has the server's clock: a manual clock needs a schema of its own",
                self.name
            ))
            }
            _ => {
                return refuse(format!(
                    "the clock of the schema {:?} was replaced",
                    self.name
                ))
            }
        }
        Ok(())
    }

    /// A role without the right to create gets told what to do.
    fn explain(&self, error: Error, version: Option<i32>) -> Error {
        let Some(cause) = PgCause::of(&error).filter(|cause| cause.sqlstate() == Some("42501"))
        else {
            return error;
        };
        let cause = cause.clone();
        let text = match version {
            Some(old) if old < VERSION => format!(
                "the schema {:?} has version {old}, this program needs {VERSION} and this role may not upgrade it: open \
                 the store once, with this program, as the role that owns the schema",
                self.name
            ),
            _ => format!(
                "the schema {:?} is missing or incomplete and this role may not create it: open the store once as a \
                 role that may",
                self.name
            ),
        };
        Error::new(ErrorKind::Database, text).with_source(cause)
    }
}

/// The stripe of a key. Part of what nodes agree on: it never changes.
pub(super) fn stripe(key: &[u8]) -> i32 {
    i32::try_from(hash(key) % STRIPES).unwrap_or(0)
}

/// The stripes of some keys, each once, in the order in which everybody locks them.
pub(super) fn stripes(keys: &[&[u8]]) -> Vec<i32> {
    let stripes: BTreeSet<_> = keys.iter().map(|key| stripe(key)).collect();
    stripes.into_iter().collect()
}

/// The advisory lock of a lock's name, likewise. An acquisition takes but one, so these need no stripes.
pub(super) fn name_lock(name: &str) -> i32 {
    low_bits(hash(name.as_bytes()))
}

fn low_bits(hash: u64) -> i32 {
    let [.., a, b, c, d] = hash.to_be_bytes();
    i32::from_be_bytes([a, b, c, d])
}

/// FNV-1a, folded so that its low bits depend on all others.
fn hash(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^ (hash >> 32)
}

async fn check_server(client: &impl GenericClient) -> Result<()> {
    let rows = client
        .query_typed(
            "SELECT pg_catalog.current_setting('server_encoding'), \
             pg_catalog.current_setting('server_version_num')::pg_catalog.int4",
            &[],
        )
        .await
        .map_err(reading)?;
    let row = rows
        .first()
        .ok_or_else(|| Failure::Answer.into_error(Stage::Reading))?;
    let encoding: String = super::connection::column(row, 0)?;
    let version: i32 = super::connection::column(row, 1)?;
    if encoding != "UTF8" {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("the database's encoding is {encoding:?}: a store needs one in UTF8"),
        ));
    }
    if version < 140_000 {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "the server is older than PostgreSQL 14, the first that this engine works with",
        ));
    }
    Ok(())
}

fn reading(error: tokio_postgres::Error) -> Error {
    Failure::from(error).into_error(Stage::Reading)
}

fn writing(error: tokio_postgres::Error) -> Error {
    Failure::from(error).into_error(Stage::Writing)
}

/// The statements that read and set a manual clock.
pub(super) fn set_manual_clock(schema: &Schema, to: Timestamp) -> String {
    schema.fill(&format!(
        "UPDATE {{schema}}.manual_clock SET now = {}",
        to.as_nanos()
    ))
}
