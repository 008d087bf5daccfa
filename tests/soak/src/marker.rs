//! Markers: they stage whatever nothing refers to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alkstore::{
    stage_unreferenced, HookError, HookFuture, Key, LiveKeys, StageOptions, StageReport,
};
use tokio::sync::Mutex;

use crate::journal::Journal;
use crate::place::{text, Place, GRACE};
use crate::random::Random;

pub(crate) async fn run<P: Place>(
    place: P,
    journal: &Journal,
    random: &mut Random,
    stop: &AtomicBool,
) {
    let place = Mutex::new(place);
    while !stop.load(Ordering::Relaxed) {
        match mark(&place, random.millis(0, 60)).await {
            Ok(report) => journal.note(
                "marked",
                "",
                "",
                &format!("{} of {}", report.staged, report.listed),
            ),
            Err(error) => journal.note("mark-failed", "", "", &text(&error)),
        }
        // Sometimes longer than the grace: then nobody takes a key out of the window that was referred to between the look
        // at the references and the staging, and the sweep has to notice.
        let pause = if random.percent(20) {
            random.millis(600, 1500)
        } else {
            random.millis(20, 200)
        };
        tokio::time::sleep(pause).await;
    }
}

/// One pass, which takes its time.
pub(crate) async fn mark<P: Place>(
    place: &Mutex<P>,
    pause: Duration,
) -> alkstore::Result<StageReport> {
    let store = place.lock().await.store();
    let options = StageOptions::new(GRACE).allow_short_grace();
    let told = false;
    let mut live = Live { place, pause, told };
    stage_unreferenced(&*store, &mut live, options).await
}

/// The live keys, read when they are asked for: that is after the entries were listed.
struct Live<'p, P> {
    place: &'p Mutex<P>,
    /// Between the look at the references and the staging.
    pause: Duration,
    told: bool,
}

impl<P: Place> LiveKeys for Live<'_, P> {
    fn next_keys(&mut self) -> HookFuture<'_, Result<Option<Vec<Key<'static>>>, HookError>> {
        Box::pin(async {
            if std::mem::replace(&mut self.told, true) {
                return Ok(None);
            }
            let keys = self.place.lock().await.live().await?;
            tokio::time::sleep(self.pause).await;
            let keys = keys.into_iter().map(Key::new).collect::<Result<_, _>>()?;
            Ok(Some(keys))
        })
    }
}
