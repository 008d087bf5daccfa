//! A store of either engine, and the database around it.

use std::sync::OnceLock;

use alkstore_native::postgres::tokio_postgres::{Config, NoTls};
use alkstore_tests::postgres::{cluster, fresh_schema, Cluster};
use serde_json::Value;

use crate::support::Home;

/// A store, and a way to its database.
pub struct Place {
    pub home: Home,
    /// The connection string of a server.
    server: Option<String>,
    /// The name of the table of references, which nobody else uses.
    table: String,
}

/// The address, as the command line takes it, of a server that listens on a socket in a folder.
pub fn url(connection: &str) -> String {
    let folder = connection.split('\'').nth(1).unwrap();
    format!(
        "postgres://postgres@{}/postgres",
        folder.replace('/', "%2F")
    )
}

impl Place {
    pub fn sqlite() -> Self {
        let place = Self {
            home: Home::new(),
            server: None,
            table: "references of mine".to_owned(),
        };
        place.ready()
    }

    /// `None` where there is no server to be had.
    pub fn postgres() -> Option<Self> {
        // It ends with the process, by the pipe in it.
        static SERVER: OnceLock<Option<Cluster>> = OnceLock::new();
        let server = SERVER.get_or_init(|| cluster(&[])).as_ref()?.url();
        let schema = fresh_schema();
        let place = Self {
            home: Home::in_schema(&url(&server), &schema),
            server: Some(server),
            table: format!("references of {schema}"),
        };
        Some(place.ready())
    }

    pub fn each() -> impl Iterator<Item = Self> {
        [Some(Self::sqlite()), Self::postgres()]
            .into_iter()
            .flatten()
    }

    fn ready(self) -> Self {
        assert_eq!(self.home.run(&["init"]).code(), 0);
        self
    }

    pub fn is_postgres(&self) -> bool {
        self.server.is_some()
    }

    /// Runs SQL in the database of the store.
    pub fn sql(&self, text: &str) {
        let Some(server) = &self.server else {
            let connection = rusqlite::Connection::open(self.home.path("store.db")).unwrap();
            connection.execute_batch(text).unwrap();
            return;
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let config = server.parse::<Config>();
            let (client, connection) = config.unwrap().connect(NoTls).await.unwrap();
            let driver = tokio::spawn(connection);
            client.batch_execute(text).await.unwrap();
            drop(client);
            driver.await.unwrap().unwrap();
        });
    }

    /// Makes the table of references; answers what `--liveness` says of it.
    pub fn references(&self) -> String {
        let (table, bytes) = (
            &self.table,
            if self.is_postgres() { "bytea" } else { "BLOB" },
        );
        self.sql(&format!(
            "CREATE TABLE \"{table}\" (\"the key\" {bytes} PRIMARY KEY, other text)"
        ));
        format!("{table}:the key")
    }

    pub fn refer(&self, key: &str) {
        let hex = key
            .bytes()
            .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        let bytes = if self.is_postgres() {
            format!("'\\x{hex}'::bytea")
        } else {
            format!("x'{hex}'")
        };
        self.sql(&format!(
            "INSERT INTO \"{}\" VALUES ({bytes}, NULL)",
            self.table
        ));
    }

    pub fn drop_references(&self) {
        self.sql(&format!("DROP TABLE \"{}\"", self.table));
    }

    pub fn put(&self, keys: &[&str]) {
        for key in keys {
            let done = self.home.run(&["entries", "put", key, "--value", "value"]);
            assert_eq!(done.code(), 0, "{done:?}");
        }
    }

    /// Stages keys that are due at once.
    pub fn stage(&self, keys: &[&str]) {
        let mut args = vec!["gc", "stage", "--after", "0s"];
        args.extend(keys);
        let done = self.home.run(&args);
        assert_eq!(done.code(), 0, "{done:?}");
        assert_eq!(done.text(), format!("{} staged\n", keys.len()));
    }

    /// The keys of the entries that are there.
    pub fn keys(&self) -> Vec<String> {
        let listed = self.home.run(&["entries", "ls", "--json"]).json();
        let rows = listed.as_array().unwrap().iter();
        rows.map(|row| row["key"].as_str().unwrap().to_owned())
            .collect()
    }

    pub fn status(&self) -> Value {
        let done = self.home.run(&["gc", "status", "--json"]);
        assert_eq!(done.code(), 0, "{done:?}");
        done.json()
    }

    pub fn explain(&self, key: &str, more: &[&str]) -> Value {
        let mut args = vec!["gc", "explain", key, "--json"];
        args.extend(more);
        let done = self.home.run(&args);
        assert_eq!(done.code(), 0, "{done:?}");
        done.json()
    }

    pub fn sweep(&self, more: &[&str]) -> Value {
        let mut args = vec!["gc", "sweep", "--json"];
        args.extend(more);
        let done = self.home.run(&args);
        assert_eq!((done.code(), done.err.as_str()), (0, ""), "{done:?}");
        done.json()
    }
}

/// The names of an object's fields, in alphabetical order.
pub fn fields(object: &Value) -> Vec<&str> {
    let mut fields: Vec<_> = object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    fields.sort_unstable();
    fields
}
