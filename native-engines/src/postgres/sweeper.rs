//! The fleet's one sweeper: an advisory lock of a session that belongs to nothing else, and the epochs that it starts.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alkstore::{Error, ErrorKind, Result, Revision};
use deadpool_postgres::ClientWrapper;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::Row;

use super::connection::Connections;
use super::error::{Failure, Stage};
use super::schema::Schema;
use super::{number, revision};

/// The number of the lock. Such numbers belong to a database, so it depends on the schema alone.
const KEY: &str = "pg_catalog.hashtextextended($1, 0)";

/// Takes the lock if it is free. A holder whose machine vanished is noticed after a minute, not after the system's two
/// hours, and one that merely idles is not thrown out.
const TRY: &str = "SELECT pg_catalog.pg_try_advisory_lock({key}), \
     pg_catalog.set_config('tcp_keepalives_idle', '30', false), \
     pg_catalog.set_config('tcp_keepalives_interval', '10', false), \
     pg_catalog.set_config('tcp_keepalives_count', '3', false), \
     pg_catalog.set_config('idle_session_timeout', '0', false)";

/// Waits for deletions under the epoch before.
const BEGIN: &str = "SELECT {schema}.sweep_begin_v2()";

const END: &str = "SELECT {schema}.sweep_end_v2($1)";

const CURRENT: &str = "SELECT 1 FROM {schema}.gc_sweeper WHERE epoch = $1";

/// What a handle knows of its being the sweeper.
pub(super) struct Sweeper {
    slot: Mutex<Slot>,
    name: String,
    take: String,
    begin: String,
    end: String,
    current: String,
    free: String,
}

enum Slot {
    Free,
    /// A call is at it.
    Acquiring,
    Held(Arc<Lease>),
}

/// The session that has the lock. Dropping it closes the connection, and with that the server frees the lock.
struct Lease {
    client: ClientWrapper,
    epoch: Revision,
}

/// Frees the slot again where an acquisition fails or is dropped.
struct Acquiring<'s>(&'s Sweeper);

impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        let mut slot = self.0.slot();
        if matches!(*slot, Slot::Acquiring) {
            *slot = Slot::Free;
        }
    }
}

impl Sweeper {
    pub(super) fn new(schema: &Schema) -> Self {
        Self {
            slot: Mutex::new(Slot::Free),
            name: format!("alkstore sweep {}", schema.name()),
            take: TRY.replace("{key}", KEY),
            begin: schema.fill(BEGIN),
            end: schema.fill(END),
            current: schema.fill(CURRENT),
            free: format!("SELECT pg_catalog.pg_advisory_unlock({KEY})"),
        }
    }

    /// The epoch of this handle's lease.
    pub(super) fn epoch(&self) -> Option<Revision> {
        self.lease().map(|lease| lease.epoch)
    }

    /// The new epoch; `None` where another is the sweeper, or this handle already.
    pub(super) async fn acquire(&self, connections: &Connections) -> Result<Option<Revision>> {
        if connections.are_pooled() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the lock of the sweep belongs to a session, and through a transaction pooler a store has none: sweep \
                 from a store that is connected to the server itself",
            ));
        }
        {
            let mut slot = self.slot();
            match &*slot {
                Slot::Held(lease) if !lease.client.is_closed() => return Ok(None),
                Slot::Acquiring => return Ok(None),
                Slot::Held(_) | Slot::Free => *slot = Slot::Acquiring,
            }
        }
        let acquiring = Acquiring(self);
        let mut stage = Stage::Connecting;
        let work = async {
            let client = connections.separate().await?;
            stage = Stage::Reading;
            let name = (&self.name as &(dyn ToSql + Sync), Type::TEXT);
            let taken = client.query_typed(&self.take, &[name]).await?;
            if !answer::<bool>(&taken)? {
                return Ok(None);
            }
            let begun = client.query_typed(&self.begin, &[]).await?;
            let epoch = answer::<i64>(&begun)?;
            Ok(Some((client, epoch)))
        };
        let taken = within(connections, work).await;
        let taken = taken.map_err(|failure| failure.into_error(stage))?;
        let Some((client, epoch)) = taken else {
            return Ok(None);
        };
        let epoch = revision(epoch)?;
        let lease = Arc::new(Lease { client, epoch });
        *self.slot() = Slot::Held(Arc::clone(&lease));
        drop(acquiring);
        if connections.are_closed() {
            // Meanwhile, and perhaps before closing could see the lease.
            self.forget(&lease);
            return Err(Error::closed());
        }
        Ok(Some(epoch))
    }

    /// Whether this handle's session lives and `epoch` is still the current one.
    pub(super) async fn holds(&self, connections: &Connections, epoch: Revision) -> Result<bool> {
        let Some(lease) = self.lease().filter(|lease| lease.epoch == epoch) else {
            return Ok(false);
        };
        let params = (&self.current, &number(epoch) as _, Type::INT8);
        let rows = match within(connections, ask(&lease, params)).await {
            Ok(rows) => rows,
            Err(failure) if is_lost(&failure) => Vec::new(),
            Err(failure) => return Err(failure.into_error(Stage::Reading)),
        };
        if rows.is_empty() {
            self.forget(&lease);
        }
        Ok(!rows.is_empty())
    }

    /// Frees the lock; whether it was held until now, under `epoch` where one is named.
    pub(super) async fn release(
        &self,
        connections: &Connections,
        epoch: Option<Revision>,
    ) -> Result<bool> {
        let named = |lease: &Arc<Lease>| epoch.is_none_or(|epoch| lease.epoch == epoch);
        let Some(lease) = self.lease().filter(named) else {
            return Ok(false);
        };
        // From here on the lock goes with the session, whatever fails and whoever drops this.
        self.forget(&lease);
        let ended = async {
            let end = (&self.end, &number(lease.epoch) as _, Type::INT8);
            let current = answer::<bool>(&ask(&lease, end).await?)?;
            let free = (&self.free, &self.name as _, Type::TEXT);
            ask(&lease, free).await?;
            Ok(current)
        };
        match within(connections, ended).await {
            Ok(current) => Ok(current),
            Err(failure) if is_lost(&failure) => Ok(false),
            Err(failure) => Err(Failure::into_error(failure, Stage::Reading)),
        }
    }

    fn lease(&self) -> Option<Arc<Lease>> {
        match &*self.slot() {
            Slot::Held(lease) => Some(Arc::clone(lease)),
            Slot::Free | Slot::Acquiring => None,
        }
    }

    fn forget(&self, lease: &Arc<Lease>) {
        let mut slot = self.slot();
        if matches!(&*slot, Slot::Held(held) if Arc::ptr_eq(held, lease)) {
            *slot = Slot::Free;
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a statement, which has one parameter, on the session of the lease.
async fn ask(
    lease: &Lease,
    (text, param, of): (&String, &(dyn ToSql + Sync), Type),
) -> std::result::Result<Vec<Row>, Failure> {
    Ok(lease.client.query_typed(text, &[(param, of)]).await?)
}

async fn within<T>(
    connections: &Connections,
    work: impl Future<Output = std::result::Result<T, Failure>>,
) -> std::result::Result<T, Failure> {
    let timeout = connections.timeout();
    tokio::time::timeout(timeout, work)
        .await
        .unwrap_or(Err(Failure::Elapsed(timeout)))
}

/// Whether the session is gone, and the lock with it.
fn is_lost(failure: &Failure) -> bool {
    matches!(failure, Failure::Driver(_)) && !failure.spares_connection()
}

fn answer<'r, T: tokio_postgres::types::FromSql<'r>>(
    rows: &'r [Row],
) -> std::result::Result<T, Failure> {
    rows.first()
        .and_then(|row| row.try_get(0).ok())
        .ok_or(Failure::Answer)
}

impl fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweeper")
            .field("epoch", &self.epoch())
            .finish_non_exhaustive()
    }
}
