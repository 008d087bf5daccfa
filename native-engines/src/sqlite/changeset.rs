//! Changesets over the rows of a write transaction.

use alkstore::rules::changeset::{self as rule, Rows};
use alkstore::rules::entry::Head;
use alkstore::rules::window::Row;
use alkstore::{Changeset, Commit, Key, LockName, Restage, Revision, Timestamp, Value};

use super::failure::Failure;
use super::txn::Txn;
use super::{entries, locks, window};

/// T2 and T3.
pub(super) fn apply(txn: &mut Txn<'_>, changeset: &Changeset) -> Result<Commit, Failure> {
    let now = txn.now();
    rule::judge(changeset, txn, now)?;
    rule::apply(changeset.clone(), txn, now)
}

impl Rows<Value> for Txn<'_> {
    type Error = Failure;

    fn grant(&mut self, name: &LockName<'_>) -> Result<Option<(Revision, Timestamp)>, Failure> {
        locks::token_and_deadline(self, name)
    }

    fn head(&mut self, key: &Key<'_>) -> Result<Option<Head>, Failure> {
        entries::head(self, key)
    }

    fn waiting(&mut self, key: &Key<'_>) -> Result<Option<Row>, Failure> {
        window::row(self, key)
    }

    fn write(
        &mut self,
        key: &Key<'_>,
        value: Value,
        expires_at: Option<Timestamp>,
    ) -> Result<Revision, Failure> {
        entries::write(self, key, &value, expires_at)
    }

    fn remove(&mut self, key: &Key<'_>) -> Result<(), Failure> {
        entries::remove(self, key)
    }

    fn unstage(&mut self, key: &Key<'_>) -> Result<(), Failure> {
        window::unstage(self, key).map(drop)
    }

    fn stage(
        &mut self,
        key: &Key<'_>,
        visible_after: Timestamp,
        restage: Restage,
    ) -> Result<(), Failure> {
        window::stage(self, key, visible_after, restage)
    }
}
