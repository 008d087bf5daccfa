//! What the contract says is in a store, and in an open transaction.

use std::collections::{BTreeMap, BTreeSet};

use alkstore::rules::entry::{self, Head};
use alkstore::rules::lock::Grant;
use alkstore::rules::window::{self, Row};
use alkstore::{
    Commit, Expect, Key, LockInfo, PutMode, Reclaim, Restage, Revision, Timestamp, Ttl, TxEntry,
    TxPut, Value, WindowRow,
};

use crate::failure::Refusal;
use crate::fixture::START;
use crate::{ensure, ensure_eq, CaseResult, Failure};

/// What the contract says is in a store.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) now: Timestamp,
    pub(crate) locks: BTreeMap<String, Grant<String>>,
    pub(crate) entries: BTreeMap<Vec<u8>, Stored>,
    pub(crate) window: BTreeMap<Vec<u8>, Row>,
    /// The epoch of the sweep that is under way, where that is no lock among the others.
    pub(crate) sweep: Option<Revision>,
    /// Every revision that was given, and the last one of each lock and each entry.
    pub(crate) given: BTreeSet<Revision>,
    pub(crate) last_token: BTreeMap<String, Revision>,
    pub(crate) last_version: BTreeMap<Vec<u8>, Revision>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) value: Vec<u8>,
    pub(crate) head: Head,
}

/// A value and how long it lives; a deletion has none.
pub(crate) type Written = (Vec<u8>, Option<Ttl>);

/// A changeset, as the model sees it.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) guards: BTreeMap<String, Revision>,
    pub(crate) checks: BTreeMap<Vec<u8>, Expect>,
    pub(crate) writes: BTreeMap<Vec<u8>, Option<Written>>,
    pub(crate) unstage: BTreeSet<Vec<u8>>,
    pub(crate) stage: BTreeMap<Vec<u8>, (Timestamp, Restage)>,
}

/// An open transaction, as the model sees it.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) reads: BTreeMap<Vec<u8>, Option<Stored>>,
    pub(crate) plan: Plan,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            now: START,
            locks: BTreeMap::new(),
            entries: BTreeMap::new(),
            window: BTreeMap::new(),
            sweep: None,
            given: BTreeSet::new(),
            last_token: BTreeMap::new(),
            last_version: BTreeMap::new(),
        }
    }
}

impl Model {
    pub(crate) fn head(&self, key: &[u8]) -> Option<Head> {
        self.entries.get(key).map(|stored| stored.head)
    }

    pub(crate) fn live(&self, key: &[u8]) -> Option<&Stored> {
        entry::live(self.head(key), self.now)?;
        self.entries.get(key)
    }

    pub(crate) fn guard_holds(&self, name: &str, token: Revision) -> bool {
        let row = self.locks.get(name);
        row.is_some_and(|grant| grant.token == token && !grant.deadline.lapsed(self.now))
    }

    /// Takes note of a revision that the engine gave: never given before, and the highest of its name or key.
    pub(crate) fn fresh(&mut self, revision: Revision) -> CaseResult {
        ensure!(
            self.given.insert(revision),
            "the revision {revision} was given before"
        );
        Ok(())
    }

    pub(crate) fn granted(
        &mut self,
        name: &str,
        owner: &str,
        token: Revision,
        deadline: Timestamp,
    ) -> CaseResult {
        self.fresh(token)?;
        let last = self.last_token.insert(name.to_owned(), token);
        ensure!(last < Some(token), "the token {token} came after {last:?}");
        let owner = owner.to_owned();
        self.locks.insert(
            name.to_owned(),
            Grant {
                owner,
                token,
                deadline,
            },
        );
        Ok(())
    }

    pub(crate) fn written(
        &mut self,
        key: &[u8],
        value: &[u8],
        version: Revision,
        ttl: Option<Ttl>,
    ) -> CaseResult {
        self.fresh(version)?;
        let last = self.last_version.insert(key.to_vec(), version);
        ensure!(
            last < Some(version),
            "the version {version} came after {last:?}"
        );
        let expires_at = entry::deadline(ttl, self.now);
        let head = Head {
            version,
            expires_at,
        };
        self.entries.insert(
            key.to_vec(),
            Stored {
                value: value.to_vec(),
                head,
            },
        );
        Ok(())
    }

    pub(crate) fn stage(&mut self, key: &[u8], at: Timestamp, restage: Restage) {
        if let Some(row) = window::stage(self.window.get(key), at, restage) {
            self.window.insert(key.to_vec(), row);
        }
    }

    pub(crate) fn info(&self, name: &str) -> Option<LockInfo> {
        let grant = self.locks.get(name)?;
        Some(LockInfo {
            name: name.to_owned(),
            owner: grant.owner.clone(),
            token: grant.token,
            deadline: grant.deadline,
            lapsed: grant.deadline.lapsed(self.now),
        })
    }

    pub(crate) fn lapsed_entries(&self) -> Vec<Vec<u8>> {
        let dead = |(key, stored): (&Vec<u8>, &Stored)| {
            entry::live(Some(stored.head), self.now)
                .is_none()
                .then(|| key.clone())
        };
        self.entries.iter().filter_map(dead).collect()
    }

    pub(crate) fn lapsed_locks(&self) -> Vec<String> {
        let dead = |(name, grant): (&String, &Grant<String>)| {
            grant.deadline.lapsed(self.now).then(|| name.clone())
        };
        self.locks.iter().filter_map(dead).collect()
    }

    /// Whether the key may be written.
    pub(crate) fn writable(&self, key: &[u8]) -> bool {
        !self.window.get(key).is_some_and(|row| row.reclaiming)
    }

    /// Takes a key out of the window, unless it is marked; whether it was there.
    pub(crate) fn unstage(&mut self, key: &[u8]) -> bool {
        window::unstage(self.window.get(key)) && self.window.remove(key).is_some()
    }

    /// What the deletion of a key meets.
    pub(crate) fn what_goes(&self, key: &[u8]) -> Reclaim {
        self.live(key)
            .map_or(Reclaim::Absent, |stored| Reclaim::Deleted {
                bytes: stored.value.len() as u64,
            })
    }

    /// The window in the order in which its rows become due.
    pub(crate) fn waiting(&self) -> CaseResult<Vec<WindowRow>> {
        let mut rows = Vec::new();
        for (key, row) in &self.window {
            rows.push(WindowRow {
                key: Key::new(key.clone())?,
                visible_after: row.visible_after,
                claimed_until: row.claim.map(|(_, until)| until),
                reclaiming: row.reclaiming,
                requeues: row.requeues,
            });
        }
        rows.sort_by(|one, other| {
            (one.visible_after, &one.key).cmp(&(other.visible_after, &other.key))
        });
        Ok(rows)
    }

    /// Whether a changeset may be applied: guards, then checks and marks.
    pub(crate) fn judge(&self, plan: &Plan) -> Option<Refusal> {
        if !plan
            .guards
            .iter()
            .all(|(name, token)| self.guard_holds(name, *token))
        {
            return Some(Refusal::LeaseLost);
        }
        let holds = |(key, expect): (&Vec<u8>, &Expect)| {
            let current = self.live(key).map(|stored| stored.head.version);
            match expect {
                Expect::Absent => current.is_none(),
                Expect::Version(version) => current == Some(*version),
            }
        };
        let puts = plan.writes.iter().filter(|(_, write)| write.is_some());
        let trusted = puts.map(|(key, _)| key).chain(&plan.unstage);
        let mut writable = trusted.map(|key| self.writable(key));
        (!plan.checks.iter().all(holds) || writable.any(|may| !may)).then_some(Refusal::Conflict)
    }

    pub(crate) fn apply(&mut self, plan: &Plan, commit: &Commit) -> CaseResult {
        let puts: Vec<_> = plan
            .writes
            .iter()
            .filter(|(_, write)| write.is_some())
            .map(|(key, _)| &**key)
            .collect();
        let written: Vec<_> = commit
            .versions
            .iter()
            .map(|(key, _)| key.as_bytes())
            .collect();
        ensure_eq!(written, puts, "the keys that the commit says it wrote");
        for (key, write) in &plan.writes {
            match write {
                Some((value, ttl)) => {
                    let Some(version) = commit.version(key) else {
                        return Err(Failure::new("a write without a version"));
                    };
                    self.written(key, value, version, *ttl)?;
                }
                None => drop(self.entries.remove(key)),
            }
        }
        for key in &plan.unstage {
            self.unstage(key);
        }
        for (key, (at, restage)) in &plan.stage {
            self.stage(key, *at, *restage);
        }
        Ok(())
    }
}

impl Pending {
    /// What the transaction sees of a key, asking the store where it has not yet.
    pub(crate) fn see(&mut self, model: &Model, key: &[u8]) -> Option<TxEntry> {
        if let Some(write) = self.plan.writes.get(key) {
            let value = write.as_ref().map(|(value, _)| Value::from(&**value))?;
            return Some(TxEntry {
                value,
                version: None,
            });
        }
        let read = self
            .reads
            .entry(key.to_vec())
            .or_insert_with(|| model.live(key).cloned());
        read.as_ref().map(|stored| TxEntry {
            value: Value::from(&*stored.value),
            version: Some(stored.head.version),
        })
    }

    pub(crate) fn put(
        &mut self,
        model: &Model,
        key: &[u8],
        value: Vec<u8>,
        mode: PutMode,
        ttl: Option<Ttl>,
    ) -> TxPut {
        let stored = if mode == PutMode::Replace {
            true
        } else {
            let current = self.see(model, key);
            if mode == PutMode::Create {
                self.unstage(key);
            }
            let wins = match mode {
                PutMode::Update(version) => current
                    .as_ref()
                    .is_some_and(|entry| entry.version == Some(version)),
                _ => current.is_none(),
            };
            if !wins {
                return TxPut::NotStored {
                    current: current.and_then(|entry| entry.version),
                };
            }
            wins
        };
        if stored {
            self.plan.writes.insert(key.to_vec(), Some((value, ttl)));
        }
        TxPut::Staged
    }

    pub(crate) fn unstage(&mut self, key: &[u8]) {
        self.plan.unstage.insert(key.to_vec());
        self.plan.stage.remove(key);
    }

    pub(crate) fn finish(mut self) -> Plan {
        for (key, read) in self.reads {
            let expect = read.map_or(Expect::Absent, |stored| {
                Expect::Version(stored.head.version)
            });
            self.plan.checks.insert(key, expect);
        }
        self.plan
    }
}
