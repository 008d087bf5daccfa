//! Writers: they publish, refer and drop, and write down what they were told.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use alkstore::EngineWindowState;

use crate::journal::Journal;
use crate::place::{publish, Outcome, Place, Publication, Published};
use crate::random::Random;

/// Some keys that are wanted all the time, and many that are left alone long enough to be swept.
const HOT: u64 = 12;
const KEYS: u64 = 400;
/// How many of the oldest candidates writers look at.
const OLDEST: usize = 12;

/// One writer.
pub(crate) struct Writer<P> {
    pub(crate) place: P,
    pub(crate) journal: Journal,
    pub(crate) payloads: PathBuf,
    pub(crate) random: Random,
    /// Its slot and generation, which make its names unique.
    pub(crate) who: String,
    made: u64,
    declines: bool,
}

impl<P: Place> Writer<P> {
    pub(crate) fn new(
        place: P,
        journal: Journal,
        payloads: &Path,
        mut random: Random,
        who: &str,
    ) -> Self {
        let declines = random.percent(50);
        Self {
            place,
            journal,
            payloads: payloads.to_owned(),
            random,
            who: who.to_owned(),
            made: 0,
            declines,
        }
    }

    pub(crate) async fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let number = self.random.next();
            // Times of growth and of decline.
            if self.random.below(300) == 0 {
                self.declines = !self.declines;
            }
            if self.random.percent(if self.declines { 62 } else { 34 }) {
                if let Some((reference, key)) = self.place.some_reference(number).await {
                    self.drop_reference(&reference, &key).await;
                }
            } else if self.random.percent(25) {
                self.publish().await;
            } else {
                self.refer().await;
            }
            if self.random.percent(10) {
                tokio::time::sleep(self.random.millis(0, 8)).await;
            } else {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn drop_reference(&mut self, reference: &str, key: &str) {
        self.journal.note("drop?", key, reference, "");
        let what = match self.place.drop_reference(reference).await {
            Outcome::Done => "dropped",
            Outcome::Not => "drop-not",
            Outcome::Unknown => "drop-unknown",
        };
        self.journal.note(what, key, reference, "");
    }

    /// Without a reference: a deduplicated write, or soon garbage.
    async fn publish(&mut self) {
        let publication = self.upload().await;
        let store = self.place.store();
        let (published, why) = publish(&*store, &publication.key, &publication.payload).await;
        self.published(&publication, published, &why);
    }

    async fn refer(&mut self) {
        let mut publications = vec![self.upload().await];
        if self.random.percent(20) {
            let another = self.upload().await;
            if another.key == publications[0].key {
                self.published(&another, Published::Not, "named twice");
            } else {
                publications.push(another);
            }
            // Mostly in order, as the contract asks; else one of two may meet a conflict, and must not hang.
            if !self.random.percent(20) {
                publications.sort_by(|a, b| a.key.cmp(&b.key));
            }
        }
        for publication in &publications {
            self.journal
                .note("refer?", &publication.key, &publication.reference, "");
        }
        let told = self.place.refer(&publications, &mut self.random).await;
        let what = match told.referred {
            Outcome::Done => "referred",
            Outcome::Not => "refused",
            Outcome::Unknown => "refer-unknown",
        };
        for (publication, published) in publications.iter().zip(told.published) {
            self.journal
                .note(what, &publication.key, &publication.reference, &told.why);
            self.published(publication, published, &told.why);
        }
    }

    /// A payload under a name that is not used again, for some key.
    async fn upload(&mut self) -> Publication {
        self.made += 1;
        let name = format!("{}-{}", self.who, self.made);
        let key = self.key().await;
        let is_bare = key.starts_with("bare/");
        let payload = if is_bare { String::new() } else { name.clone() };
        if !is_bare {
            self.journal.note("upload", &key, &payload, "");
            if fs::write(self.payloads.join(&payload), &payload).is_err() {
                std::process::abort();
            }
        }
        Publication {
            key,
            payload,
            reference: format!("r-{name}"),
        }
    }

    /// Often one that a sweep is about to take, or has in hand.
    async fn key(&mut self) -> String {
        let number = self.random.next();
        if self.random.percent(20) {
            let store = self.place.store();
            let rows = store.window_list(None, OLDEST).await.unwrap_or_default();
            let at = usize::try_from(number >> 32).unwrap_or(0) % rows.len().max(1);
            if let Some(row) = rows.get(at) {
                return String::from_utf8_lossy(row.key.as_bytes()).into_owned();
            }
        }
        let most = if self.random.percent(30) { HOT } else { KEYS };
        let number = number % most;
        format!(
            "{}/{number:03}",
            if number % 4 == 0 { "bare" } else { "blob" }
        )
    }

    /// Writes down what became of an upload, and removes it where nobody refers to it.
    fn published(&mut self, publication: &Publication, published: Published, why: &str) {
        let (key, payload) = (&publication.key, &publication.payload);
        let what = match published {
            Published::Stored => "stored",
            Published::There => "there",
            Published::Not => "unpublished",
            Published::Unknown => "publish-unknown",
        };
        self.journal.note(what, key, payload, why);
        if !payload.is_empty() && matches!(published, Published::There | Published::Not) {
            let _ = fs::remove_file(self.payloads.join(payload));
        }
    }
}
