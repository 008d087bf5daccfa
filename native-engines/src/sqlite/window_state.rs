//! The window's trait.

use std::time::Duration;

use alkstore::{
    validate, BoxFuture, Candidate, Claim, EngineWindowState, Key, LockName, Reclaim, Restage,
    Result, Revision, Timestamp, WindowRow, WindowStats,
};

use super::store::{Kind, SqliteStore};
use super::txn::Txn;
use super::{locks, reclaim, window, window_rows};

impl EngineWindowState for SqliteStore {
    /// The tables came to be when the store was opened.
    fn ensure_gc_schema(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            Ok(self.shared.enter()?)
        })
    }

    fn window_stage<'a>(
        &'a self,
        candidates: &'a [Candidate],
        restage: Restage,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            let stage = move |txn: &mut Txn<'_>, candidate: &Candidate| {
                window::stage(txn, &candidate.key, candidate.visible_after, restage)
            };
            // In the order of the table, so that each batch stays in a part of it; of one key, as they were named.
            let mut candidates = candidates.to_vec();
            candidates.sort_by(|a, b| a.key.cmp(&b.key));
            let staged = self.shared.each(candidates, None, stage);
            staged.await.map(drop)
        })
    }

    fn window_stage_after<'a>(
        &'a self,
        keys: &'a [Key<'a>],
        grace: Duration,
        restage: Restage,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let grace = validate::duration(&self.shared.gate, grace)?;
            let stage = move |txn: &mut Txn<'_>, key: &Key<'static>| {
                let visible_after = txn.now().after(grace);
                window::stage(txn, key, visible_after, restage)
            };
            let staged = self.shared.each(owned(keys), None, stage);
            staged.await.map(drop)
        })
    }

    fn window_take(
        &self,
        now: Timestamp,
        limit: Option<usize>,
    ) -> BoxFuture<'_, Result<Vec<Candidate>>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            self.shared
                .write(Kind::Long, move |txn| window::take(txn, now, limit))
                .await
        })
    }

    fn window_unstage<'a>(&'a self, keys: &'a [Key<'a>]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            let keys = owned(keys);
            self.shared
                .each(keys, None, window::unstage)
                .await
                .map(count)
        })
    }

    fn window_claim(
        &self,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Claim>>> {
        Box::pin(async move {
            let lease = validate::duration(&self.shared.gate, lease)?;
            self.shared
                .write(Kind::Long, move |txn| window::claim(txn, now, lease, limit))
                .await
        })
    }

    fn window_settle<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            let claims = claims.to_vec();
            self.shared
                .each(claims, None, window::settle)
                .await
                .map(count)
        })
    }

    fn window_requeue<'a>(
        &'a self,
        claims: &'a [Claim],
        visible_after: Timestamp,
    ) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            let requeue =
                move |txn: &mut Txn<'_>, claim: &Claim| window::requeue(txn, claim, visible_after);
            let claims = claims.to_vec();
            self.shared.each(claims, None, requeue).await.map(count)
        })
    }

    fn window_mark<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            let claims = claims.to_vec();
            self.shared.each(claims, fence, reclaim::mark).await
        })
    }

    fn window_finish<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            let claims = claims.to_vec();
            self.shared.each(claims, fence, reclaim::finish).await
        })
    }

    fn window_delete<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            let claims = claims.to_vec();
            self.shared.each(claims, fence, reclaim::delete).await
        })
    }

    fn window_judge<'a>(&'a self, keys: &'a [Key<'a>]) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            let keys = owned(keys);
            self.shared
                .read(move |connection, clock, reading| {
                    reclaim::judge(connection, clock, reading, &keys)
                })
                .await
        })
    }

    fn window_list<'a>(
        &'a self,
        after: Option<&'a WindowRow>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<WindowRow>>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            let after = after.cloned();
            self.shared
                .read(move |connection, clock, reading| {
                    window_rows::list(connection, clock, reading, after.as_ref(), limit)
                })
                .await
        })
    }

    fn window_info<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<WindowRow>>> {
        Box::pin(async move {
            let key = validate::key(&self.shared.gate, key)?;
            let look = self.shared.look(|connection, clock| {
                window_rows::info(connection, clock, clock.read(), &key)
            })?;
            if let Some(row) = look {
                return Ok(row);
            }
            let key = key.into_owned();
            self.shared
                .read(move |connection, clock, reading| {
                    window_rows::info(connection, clock, reading, &key)
                })
                .await
        })
    }

    fn window_stats(&self, now: Timestamp) -> BoxFuture<'_, Result<WindowStats>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            self.shared
                .read(move |connection, clock, reading| {
                    window_rows::stats(connection, clock, reading, now)
                })
                .await
        })
    }

    fn has_pins(&self) -> bool {
        false
    }

    /// False: what refers to keys is for the application to say.
    fn has_liveness_sources(&self) -> bool {
        false
    }

    fn sweep_begin(&self, ttl: Duration) -> BoxFuture<'_, Result<Option<Revision>>> {
        Box::pin(async move {
            let ttl = validate::duration(&self.shared.gate, ttl)?;
            self.shared
                .write(Kind::Short, move |txn| locks::begin_sweep(txn, ttl))
                .await
        })
    }

    fn sweep_extend(&self, epoch: Revision, ttl: Duration) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let ttl = validate::duration(&self.shared.gate, ttl)?;
            self.shared
                .write(Kind::Short, move |txn| locks::extend_sweep(txn, epoch, ttl))
                .await
        })
    }

    fn sweep_end(&self, epoch: Revision) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            self.shared
                .write(Kind::Short, move |txn| {
                    locks::force_release(txn, &LockName::SWEEP, epoch)
                })
                .await
        })
    }
}

fn count(answers: Vec<bool>) -> usize {
    answers.into_iter().filter(|there| *there).count()
}

fn owned(keys: &[Key<'_>]) -> Vec<Key<'static>> {
    keys.iter().map(|key| key.clone().into_owned()).collect()
}
