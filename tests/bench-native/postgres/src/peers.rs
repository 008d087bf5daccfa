//! The others.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, CopyInSink, NoTls, Row, Statement};

/// Connections without anything around them.
pub struct Raw {
    clients: Vec<Prepared>,
}

struct Prepared {
    client: Client,
    one: Statement,
    upsert: Statement,
    lock: Statement,
    unlock: Statement,
}

impl Raw {
    pub async fn connect(url: &str, clients: usize) -> Self {
        let mut connected = Vec::new();
        for at in 0..clients {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
            tokio::spawn(connection);
            if at == 0 {
                let table = "CREATE TABLE IF NOT EXISTS bench_bare \
                             (name text COLLATE \"C\" PRIMARY KEY, owner text NOT NULL, n bigint NOT NULL) \
                             WITH (fillfactor = 70)";
                client.batch_execute(table).await.unwrap();
            }
            let upsert = "INSERT INTO bench_bare VALUES ($1, 'worker', 1) \
                          ON CONFLICT (name) DO UPDATE SET n = bench_bare.n + 1";
            connected.push(Prepared {
                one: client.prepare("SELECT 1").await.unwrap(),
                upsert: client.prepare(upsert).await.unwrap(),
                lock: client
                    .prepare("SELECT pg_try_advisory_lock($1)")
                    .await
                    .unwrap(),
                unlock: client
                    .prepare("SELECT pg_advisory_unlock($1)")
                    .await
                    .unwrap(),
                client,
            });
        }
        Self { clients: connected }
    }

    pub async fn one(&self, client: usize) {
        let at = &self.clients[client];
        at.client.query(&at.one, &[]).await.unwrap();
    }

    /// One row, one commit.
    pub async fn commit(&self, client: usize) {
        let at = &self.clients[client];
        at.client
            .execute(&at.upsert, &[&format!("shard/{client}")])
            .await
            .unwrap();
    }

    pub async fn advisory_pair(&self, client: usize) {
        let at = &self.clients[client];
        let key = 1_000_000 + client as i64;
        for statement in [&at.lock, &at.unlock] {
            let row = at.client.query_one(statement, &[&key]).await.unwrap();
            assert!(row.get::<_, bool>(0));
        }
    }

    pub async fn run(&self, sql: &str) {
        self.clients[0].client.batch_execute(sql).await.unwrap();
    }

    pub async fn prepare(&self, client: usize, sql: &str) -> Statement {
        self.clients[client].client.prepare(sql).await.unwrap()
    }

    /// One statement, one commit; answers how many rows it changed.
    pub async fn execute(
        &self,
        client: usize,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> u64 {
        let client = &self.clients[client].client;
        client.execute(statement, params).await.unwrap()
    }

    pub async fn rows(&self, sql: &str) -> Vec<Row> {
        self.clients[0].client.query(sql, &[]).await.unwrap()
    }

    pub async fn copy_in(&self, sql: &str) -> CopyInSink<bytes::Bytes> {
        self.clients[0].client.copy_in(sql).await.unwrap()
    }
}

/// alkstore-postgres 0.1.0.
pub struct Earlier(Box<dyn peer_alkstore::Store>);

impl Earlier {
    pub async fn open(url: &str, clients: usize) -> Self {
        let options = peer_postgres::PgOpts {
            schema: alkstore_tests::postgres::fresh_schema(),
            max_size: clients,
            ..Default::default()
        };
        Self(peer_postgres::open(url, options).await.unwrap())
    }

    pub async fn pair(&self, client: usize) {
        let name = format!("shard/{client}");
        let lock = self.0.try_lock(&name, "worker", 30).await.unwrap().unwrap();
        assert!(lock.release().await.unwrap());
    }

    pub async fn hold(&self) {
        assert!(self
            .0
            .try_lock("held", "other", 30_000)
            .await
            .unwrap()
            .is_some());
    }

    pub async fn lose(&self) {
        assert!(self
            .0
            .try_lock("held", "worker", 30)
            .await
            .unwrap()
            .is_none());
    }
}

/// SET NX PX, and a script that compares and deletes, on a server of our own that syncs each write.
pub struct Redis {
    server: Child,
    clients: Vec<Mutex<UnixStream>>,
    script: String,
    // Removed when the server is gone.
    _folder: tempfile::TempDir,
}

const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

impl Redis {
    /// `None` where there is no redis-server.
    pub async fn start(clients: usize) -> Option<Self> {
        let folder = tempfile::tempdir().ok()?;
        let socket = folder.path().join("redis.sock");
        let server = Command::new("redis-server")
            .args([
                "--port",
                "0",
                "--save",
                "",
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
            ])
            .arg("--dir")
            .arg(folder.path())
            .arg("--unixsocket")
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut redis = Self {
            server,
            clients: Vec::new(),
            script: String::new(),
            _folder: folder,
        };
        while redis.clients.len() < clients {
            match UnixStream::connect(&socket).await {
                Ok(client) => redis.clients.push(Mutex::new(client)),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        let loaded = redis.call(0, &["SCRIPT", "LOAD", RELEASE]).await;
        redis.script = loaded.lines().nth(1)?.to_owned();
        Some(redis)
    }

    pub async fn pair(&self, client: usize) {
        let name = format!("shard/{client}");
        let set = self
            .call(client, &["SET", &name, "worker", "NX", "PX", "30000"])
            .await;
        assert_eq!(set, "+OK\r\n");
        let freed = self
            .call(client, &["EVALSHA", &self.script, "1", &name, "worker"])
            .await;
        assert_eq!(freed, ":1\r\n");
    }

    async fn call(&self, client: usize, words: &[&str]) -> String {
        let mut request = Vec::new();
        write!(request, "*{}\r\n", words.len()).unwrap();
        for word in words {
            write!(request, "${}\r\n{word}\r\n", word.len()).unwrap();
        }
        let mut stream = self.clients[client].lock().await;
        stream.write_all(&request).await.unwrap();
        // Every answer here is short, and comes in one piece.
        let mut answer = [0; 256];
        let length = stream.read(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer[..length]).into_owned()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
