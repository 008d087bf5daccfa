//! The world in memory: threads, and a map of references.
//!
//! There is no transaction that holds entries and references, so a writer refers within the grace of what it published:
//! half of it, by its own clock, and judged when nobody can read the references.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use alkstore::{HookError, HookFuture, Key, LivenessSource};
use alkstore_mem::MemStore;

use crate::place::{
    changeset, publish, text, Failure, Outcome, Place, Publication, Published, Seen, Told, GRACE,
    PLACES,
};
use crate::random::Random;

/// References by name, with their keys.
type References = Arc<Mutex<BTreeMap<String, String>>>;

#[derive(Clone)]
pub(crate) struct MemPlace {
    store: Arc<MemStore>,
    references: References,
}

impl MemPlace {
    pub(crate) fn new() -> Self {
        Self {
            store: Arc::new(MemStore::open()),
            references: References::default(),
        }
    }
}

impl MemPlace {
    async fn at_once(&self, publications: &[Publication]) -> alkstore::Result<Vec<Published>> {
        let (changeset, published) = changeset(&*self.store, publications).await?;
        self.store.commit_changeset(changeset)?;
        Ok(published)
    }
}

fn lock(references: &References) -> MutexGuard<'_, BTreeMap<String, String>> {
    references.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Place for MemPlace {
    type Store = MemStore;

    fn store(&self) -> Arc<MemStore> {
        Arc::clone(&self.store)
    }

    async fn refer(&mut self, publications: &[Publication], random: &mut Random) -> Told {
        let begun = Instant::now();
        let mut published = Vec::new();
        let one_by_one = random.percent(50);
        if !one_by_one {
            match self.at_once(publications).await {
                Ok(done) => published = done,
                Err(error) => return Told::failed(publications, false, text(&error)),
            }
        }
        for publication in publications.iter().filter(|_| one_by_one) {
            let (now, why) = publish(&*self.store, &publication.key, &publication.payload).await;
            published.push(now);
            if matches!(now, Published::Not | Published::Unknown) {
                published.resize(publications.len(), Published::Not);
                return Told::unreferred(published, why);
            }
        }
        match random.below(100) {
            0 => tokio::time::sleep(GRACE).await,
            1..=8 => tokio::time::sleep(random.millis(1, 120)).await,
            _ => {}
        }
        let mut references = lock(&self.references);
        if begun.elapsed() > GRACE / 2 {
            return Told::unreferred(published, "too late after the publication");
        }
        for publication in publications {
            references.insert(publication.reference.clone(), publication.key.clone());
        }
        Told {
            published,
            referred: Outcome::Done,
            why: String::new(),
        }
    }

    async fn drop_reference(&mut self, reference: &str) -> Outcome {
        match lock(&self.references).remove(reference) {
            Some(_) => Outcome::Done,
            None => Outcome::Not,
        }
    }

    async fn some_reference(&mut self, number: u64) -> Option<(String, String)> {
        let references = lock(&self.references);
        let at = usize::try_from(number).unwrap_or(0) % references.len().max(PLACES);
        let (reference, key) = references.iter().nth(at)?;
        Some((reference.clone(), key.clone()))
    }

    async fn live(&mut self) -> Result<Vec<Vec<u8>>, Failure> {
        let references = lock(&self.references);
        Ok(references
            .values()
            .map(|key| key.clone().into_bytes())
            .collect())
    }

    /// While the references are held nobody adds one, so each must have its entry all the time.
    async fn snapshot(&mut self) -> Result<Vec<Seen>, Failure> {
        let references = lock(&self.references);
        let mut seen = Vec::new();
        for (reference, key) in &*references {
            let entry = self.store.get(key.as_bytes())?;
            seen.push(Seen {
                reference: reference.clone(),
                key: key.clone(),
                payload: entry.map(|entry| String::from_utf8_lossy(&entry.value).into_owned()),
            });
        }
        Ok(seen)
    }

    fn source(&self) -> Option<Box<dyn LivenessSource>> {
        Some(Box::new(Source(Arc::clone(&self.references))))
    }
}

struct Source(References);

impl LivenessSource for Source {
    fn live<'a>(&'a self, keys: &'a [Key<'a>]) -> HookFuture<'a, Result<Vec<bool>, HookError>> {
        let references = lock(&self.0);
        let is_live = |key: &Key<'_>| {
            references
                .values()
                .any(|live| live.as_bytes() == key.as_bytes())
        };
        let live = keys.iter().map(is_live).collect();
        Box::pin(std::future::ready(Ok(live)))
    }
}
