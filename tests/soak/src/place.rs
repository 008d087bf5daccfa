//! What a role needs of an engine and of the embedder around it: a store, the references, and how one comes to be.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use alkstore::{
    Changeset, Error, LivenessSource, Put, PutMode, PutOptions, Store, StoreExt, TxPut,
};

use crate::random::Random;

/// How long what is staged waits. Short, so that as much as possible is swept.
pub(crate) const GRACE: Duration = Duration::from_millis(400);
/// How long claims, and on the engines with a lease the sweep itself, outlive a sweeper.
pub(crate) const LEASE: Duration = Duration::from_millis(1500);
/// How long a sweep waits for the reclaimer.
pub(crate) const HOOK_TIMEOUT: Duration = Duration::from_millis(400);
/// How long a pin lives.
pub(crate) const PIN_TTL: Duration = Duration::from_secs(3);

/// Who looks for a reference to drop chooses one of so many places, or of as many as there are references if they are more,
/// and finds a place empty: so there are some all the time, and each lasts a while.
pub(crate) const PLACES: usize = 300;

/// The failure of a check, a connection or a file.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A key to publish, with a payload that was uploaded for it, and the reference to commit.
#[derive(Clone, Debug)]
pub(crate) struct Publication {
    pub(crate) key: String,
    /// The payload's name, which becomes the entry's value; empty where the key stands for nothing outside.
    pub(crate) payload: String,
    pub(crate) reference: String,
}

/// What a writer knows of its publication of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    /// The entry is the writer's, and so is the payload.
    Stored,
    /// There was one already.
    There,
    /// Nothing happened.
    Not,
    /// One of these.
    Unknown,
}

/// What a writer knows of something that happened or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Not,
    Unknown,
}

/// What a writer was told in all.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// Of each key.
    pub(crate) published: Vec<Published>,
    /// Of all references together.
    pub(crate) referred: Outcome,
    pub(crate) why: String,
}

impl Told {
    /// Nothing happened, or nobody knows.
    pub(crate) fn failed(
        publications: &[Publication],
        unknown: bool,
        why: impl fmt::Display,
    ) -> Self {
        let (published, referred) = if unknown {
            (Published::Unknown, Outcome::Unknown)
        } else {
            (Published::Not, Outcome::Not)
        };
        Self {
            published: vec![published; publications.len()],
            referred,
            why: why.to_string(),
        }
    }

    /// The references did not come to be; the publications stay.
    pub(crate) fn unreferred(published: Vec<Published>, why: impl fmt::Display) -> Self {
        Self {
            published,
            referred: Outcome::Not,
            why: why.to_string(),
        }
    }
}

/// A committed reference as a witness sees it, with the value of its key's entry.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) reference: String,
    pub(crate) key: String,
    pub(crate) payload: Option<String>,
}

/// One worker's way to a store and to the references.
pub(crate) trait Place: Send + 'static {
    type Store: Store + 'static;

    fn store(&self) -> Arc<Self::Store>;

    /// Publishes and refers, in one of the ways that the contract allows on this engine.
    fn refer(
        &mut self,
        publications: &[Publication],
        random: &mut Random,
    ) -> impl Future<Output = Told> + Send;

    fn drop_reference(&mut self, reference: &str) -> impl Future<Output = Outcome> + Send;

    /// A committed reference, or none, as `number` chooses; its key too.
    fn some_reference(
        &mut self,
        number: u64,
    ) -> impl Future<Output = Option<(String, String)>> + Send;

    /// The keys that are referred to.
    fn live(&mut self) -> impl Future<Output = Result<Vec<Vec<u8>>, Failure>> + Send;

    /// Every committed reference and the entry that it points at, as of one instant.
    fn snapshot(&mut self) -> impl Future<Output = Result<Vec<Seen>, Failure>> + Send;

    /// Who tells a sweep what is live, where that is not the engine itself.
    fn source(&self) -> Option<Box<dyn LivenessSource>>;

    /// Deletes in the engine's other ways; answers how many went.
    fn sweep_otherwise(&mut self) -> impl Future<Output = u64> + Send {
        async { 0 }
    }
}

/// Publishes one key alone.
pub(crate) async fn publish<S: Store + ?Sized>(
    store: &S,
    key: &str,
    payload: &str,
) -> (Published, String) {
    let put = store.put(key.as_bytes(), payload.as_bytes(), PutOptions::create());
    match put.await {
        Ok(Put::Stored { .. }) => (Published::Stored, String::new()),
        Ok(_) => (Published::There, String::new()),
        Err(error) if error.is_outcome_unknown() => (Published::Unknown, text(&error)),
        Err(error) => (Published::Not, text(&error)),
    }
}

/// The changeset of a transaction that publishes all of them, by what the store says now.
pub(crate) async fn changeset<S: Store + ?Sized>(
    store: &S,
    publications: &[Publication],
) -> alkstore::Result<(Changeset, Vec<Published>)> {
    let mut tx = store.begin();
    let mut published = Vec::new();
    for publication in publications {
        let (key, payload) = (publication.key.as_bytes(), publication.payload.as_bytes());
        published.push(match tx.put(key, payload, PutMode::Create, None).await? {
            TxPut::Staged => Published::Stored,
            TxPut::NotStored { .. } => Published::There,
        });
    }
    Ok((tx.into_changeset()?, published))
}

/// An error with its causes.
pub(crate) fn text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
