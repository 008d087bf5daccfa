//! The world in Postgres: processes of a fleet, and a table of references in the same database.
//!
//! A writer refers in one of two ways. By T5 it publishes and refers in one transaction of its own. By a pin it publishes
//! and pins in a joint transaction, and refers in another: it inserts, renews the pin, and commits. A writer that stalls
//! between the last two would commit without a pin, so its session has an `idle_in_transaction_session_timeout` of less
//! than the pin lives from its renewal on: then the server throws the transaction away.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use alkstore::{
    EngineFleetState, EngineWindowState, Key, Lifecycle, LivenessSource, Owner, Pin, Put, Reclaim,
};
use alkstore_native::postgres::tokio_postgres::{Client, NoTls};
use alkstore_native::postgres::{tokio_postgres, PgOptions, PgStore, PinKeeper};

use crate::place::{
    changeset, text, Failure, Outcome, Place, Publication, Published, Seen, Told, PIN_TTL, PLACES,
};
use crate::random::Random;

const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS public.refs (id text PRIMARY KEY, key bytea NOT NULL); \
     CREATE INDEX IF NOT EXISTS refs_key ON public.refs (key)";

pub(crate) struct PgPlace {
    store: Arc<PgStore>,
    url: String,
    client: Option<Client>,
    owners: Arc<AtomicU64>,
}

/// What a step failed with, and whether it may have happened all the same.
type Refused = (bool, String);

impl PgPlace {
    /// Opens the store, and makes the table of references where it is missing.
    pub(crate) async fn open(url: &str) -> Result<Self, Failure> {
        let options = PgOptions::new(url)?
            .pool_size(4)
            .call_timeout(Duration::from_secs(3))
            .connect_timeout(Duration::from_secs(2))
            .fleet(true)
            .pin_ttl(PIN_TTL);
        let store = Arc::new(PgStore::open(options).await?);
        let mut place = Self {
            store,
            url: url.to_owned(),
            client: None,
            owners: Arc::default(),
        };
        // Two that create one table at once collide in the catalogue.
        let guarded = format!("BEGIN; SELECT pg_advisory_xact_lock(20260101); {TABLE}; COMMIT");
        place.client().await?.batch_execute(&guarded).await?;
        place
            .store
            .register_liveness_source("public.refs", "key")
            .await?;
        Ok(place)
    }

    /// Another worker's place on the same store.
    pub(crate) fn another(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            url: self.url.clone(),
            client: None,
            owners: Arc::clone(&self.owners),
        }
    }

    /// The session of this worker, anew where it was ended.
    async fn client(&mut self) -> Result<&mut Client, Failure> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            self.client = None;
            let client = connect(&self.url).await?;
            let limit = (PIN_TTL / 2).as_millis();
            client
                .batch_execute(&format!(
                    "SET idle_in_transaction_session_timeout = {limit}; SET statement_timeout = 3000"
                ))
                .await?;
            self.client = Some(client);
        }
        self.client.as_mut().ok_or_else(|| "no session".into())
    }

    async fn by_t5(&mut self, publications: &[Publication], random: &mut Random) -> Told {
        let store = Arc::clone(&self.store);
        let (changeset, published) = match changeset(&*store, publications).await {
            Ok(done) => done,
            Err(error) => return Told::failed(publications, false, text(&error)),
        };
        if random.percent(20) {
            tokio::time::sleep(random.millis(1, 60)).await;
        }
        let stall = random.percent(5).then(|| random.millis(1, 40));
        let done = async {
            let sure = |error: tokio_postgres::Error| (false, error.to_string());
            let client = self
                .client()
                .await
                .map_err(|error| (false, error.to_string()))?;
            let mut tx = client.transaction().await.map_err(sure)?;
            let applied = store.apply_in(&mut tx, &changeset).await;
            applied.map_err(|error| (false, text(&error)))?;
            insert(&tx, publications).await?;
            if let Some(stall) = stall {
                tokio::time::sleep(stall).await;
            }
            tx.commit().await.map_err(|error| (true, error.to_string()))
        };
        match done.await {
            Ok(()) => Told {
                published,
                referred: Outcome::Done,
                why: String::new(),
            },
            Err((unknown, why)) => Told::failed(publications, unknown, why),
        }
    }

    async fn by_pin(&mut self, publications: &[Publication], random: &mut Random) -> Told {
        let store = Arc::clone(&self.store);
        // An owner for each try: one that ends its pins ends nobody else's.
        let number = self.owners.fetch_add(1, Ordering::Relaxed);
        let owner = format!("{}-{number}", store.instance_id());
        let published = match publish_and_pin(&store, publications, &owner).await {
            Ok(published) => published,
            Err((unknown, why)) => {
                let mut told = Told::failed(publications, unknown, why);
                told.referred = Outcome::Not;
                return told;
            }
        };
        let mut keeper = None;
        if random.percent(30) {
            match store.keep_pin(publications[0].key.as_bytes(), &owner).await {
                Ok(Some(kept)) => keeper = Some(kept),
                Ok(None) => {
                    return Told::unreferred(published, "the pin lapsed before it was kept")
                }
                Err(error) => return Told::unreferred(published, text(&error)),
            }
        }
        match random.below(100) {
            // Past the pin, which then must not be renewed unless it was kept.
            0..=2 => tokio::time::sleep(PIN_TTL + random.millis(0, 200)).await,
            // Past the grace: a sweep finds the pin.
            3..=14 => tokio::time::sleep(random.millis(500, 2600)).await,
            15..=35 => tokio::time::sleep(random.millis(1, 200)).await,
            _ => {}
        }
        let referred = self
            .refer_pinned(publications, &owner, keeper.as_ref())
            .await;
        let told = match referred {
            Ok(()) => Told {
                published,
                referred: Outcome::Done,
                why: String::new(),
            },
            Err((true, why)) => Told {
                published,
                referred: Outcome::Unknown,
                why,
            },
            Err((false, why)) => Told::unreferred(published, why),
        };
        drop(keeper);
        // The others are left to lapse.
        if told.referred != Outcome::Unknown && random.percent(60) {
            for publication in publications {
                let _ = store.pin_release(publication.key.as_bytes(), &owner).await;
            }
        }
        told
    }

    /// Commits the references while the pins live.
    async fn refer_pinned(
        &mut self,
        publications: &[Publication],
        owner: &str,
        keeper: Option<&PinKeeper>,
    ) -> Result<(), Refused> {
        let store = Arc::clone(&self.store);
        let client = self
            .client()
            .await
            .map_err(|error| (false, error.to_string()))?;
        let tx = client
            .transaction()
            .await
            .map_err(|error| (false, error.to_string()))?;
        insert(&tx, publications).await?;
        if keeper.is_some_and(PinKeeper::is_lost) {
            return Err((false, "the keeper lost the pin".into()));
        }
        for publication in publications {
            let renewed = store.pin_renew(publication.key.as_bytes(), owner).await;
            if !renewed.map_err(|error| (false, text(&error)))? {
                return Err((false, "the pin lapsed".into()));
            }
        }
        tx.commit().await.map_err(|error| (true, error.to_string()))
    }

    /// F8: what has no payload is deleted without a claim.
    async fn delete_bare(&mut self) -> alkstore::Result<u64> {
        let store = Arc::clone(&self.store);
        let mut deleted = 0;
        let Some(epoch) = store.sweep_epoch() else {
            return Ok(0);
        };
        let now = store.now().await?;
        for row in store.window_list(None, 30).await? {
            if row.visible_after > now || !row.key.as_bytes().starts_with(b"bare/") {
                continue;
            }
            if matches!(
                store.sweep_delete(row.key.as_bytes(), epoch).await?,
                Reclaim::Deleted { .. }
            ) {
                deleted += 1;
            }
        }
        Ok(deleted)
    }
}

/// A session of one's own; its work is done by a task of the runtime.
pub(crate) async fn connect(url: &str) -> Result<Client, Failure> {
    let (client, connection) =
        tokio::time::timeout(Duration::from_secs(2), tokio_postgres::connect(url, NoTls)).await??;
    tokio::spawn(connection);
    Ok(client)
}

async fn publish_and_pin(
    store: &PgStore,
    publications: &[Publication],
    owner: &str,
) -> Result<Vec<Published>, Refused> {
    let told = |error: alkstore::Error| (error.is_outcome_unknown(), text(&error));
    let mut tx = store.begin_joint_tx().await.map_err(told)?;
    let (mut published, mut pins) = (Vec::new(), Vec::new());
    for publication in publications {
        let (key, payload) = (publication.key.as_bytes(), publication.payload.as_bytes());
        published.push(
            match store.joint_put(&mut tx, key, payload).await.map_err(told)? {
                Put::Stored { .. } => Published::Stored,
                Put::NotStored { .. } => Published::There,
            },
        );
        pins.push(Pin {
            key: Key::new(key).map_err(told)?,
            owner: Owner::new(owner).map_err(told)?,
            ttl: PIN_TTL,
        });
    }
    store.pin_commit(tx, &pins).await.map_err(told)?;
    Ok(published)
}

async fn insert(
    tx: &tokio_postgres::Transaction<'_>,
    publications: &[Publication],
) -> Result<(), Refused> {
    for publication in publications {
        tx.execute(
            "INSERT INTO public.refs VALUES ($1, $2)",
            &[&publication.reference, &publication.key.as_bytes()],
        )
        .await
        .map_err(|error| (false, error.to_string()))?;
    }
    Ok(())
}

impl Place for PgPlace {
    type Store = PgStore;

    fn store(&self) -> Arc<PgStore> {
        Arc::clone(&self.store)
    }

    async fn refer(&mut self, publications: &[Publication], random: &mut Random) -> Told {
        if random.percent(50) {
            self.by_t5(publications, random).await
        } else {
            self.by_pin(publications, random).await
        }
    }

    async fn drop_reference(&mut self, reference: &str) -> Outcome {
        let Ok(client) = self.client().await else {
            return Outcome::Not;
        };
        match client
            .execute("DELETE FROM public.refs WHERE id = $1", &[&reference])
            .await
        {
            Ok(0) => Outcome::Not,
            Ok(_) => Outcome::Done,
            Err(_) => Outcome::Unknown,
        }
    }

    async fn some_reference(&mut self, number: u64) -> Option<(String, String)> {
        let client = self.client().await.ok()?;
        let number = i64::try_from(number >> 1).ok()?;
        let sql = format!(
            "SELECT id, convert_from(key, 'UTF8') FROM public.refs ORDER BY id LIMIT 1 \
             OFFSET $1::int8 % greatest({PLACES}, (SELECT count(*) FROM public.refs))"
        );
        let row = client.query_opt(&sql, &[&number]).await.ok()??;
        Some((row.try_get(0).ok()?, row.try_get(1).ok()?))
    }

    async fn live(&mut self) -> Result<Vec<Vec<u8>>, Failure> {
        let client = self.client().await?;
        let rows = client
            .query("SELECT DISTINCT key FROM public.refs", &[])
            .await?;
        Ok(rows
            .iter()
            .map(|row| row.try_get(0))
            .collect::<Result<_, _>>()?)
    }

    async fn snapshot(&mut self) -> Result<Vec<Seen>, Failure> {
        let sql = format!(
            "SELECT r.id, convert_from(r.key, 'UTF8'), convert_from(e.value, 'UTF8') FROM public.refs r \
             LEFT JOIN \"{}\".entries e ON e.key = r.key",
            self.store.schema()
        );
        let client = self.client().await?;
        let tx = client
            .build_transaction()
            .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
            .read_only(true)
            .start()
            .await?;
        let rows = tx.query(&sql, &[]).await?;
        tx.commit().await?;
        let seen = |row: &tokio_postgres::Row| {
            Ok(Seen {
                reference: row.try_get(0)?,
                key: row.try_get(1)?,
                payload: row.try_get(2)?,
            })
        };
        rows.iter().map(seen).collect()
    }

    /// The table is registered with the engine.
    fn source(&self) -> Option<Box<dyn LivenessSource>> {
        None
    }

    async fn sweep_otherwise(&mut self) -> u64 {
        let store = Arc::clone(&self.store);
        if !matches!(store.sweep_lock_acquire().await, Ok(true)) {
            return 0;
        }
        let deleted = self.delete_bare().await.unwrap_or_default();
        let _ = store.sweep_lock_release().await;
        deleted
    }
}
