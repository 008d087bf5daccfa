//! The list for JavaScript: the same cases, run through the npm package.
//!
//! JavaScript gives a fixture, an object with the one method `call(operation, arguments)`, which does one operation of
//! the package's synchronous surface and answers it, or throws the package's error. Stores and leases live on the
//! other side and are named here by numbers, so that everything is `Send`; each future is ready at once.

use std::cell::RefCell;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use alkstore::{
    BoxFuture, Candidate, Changeset, Claim, Commit, Entries, Entry, EntryMeta, EntryWrite, Error,
    ErrorKind, Expect, Key, KeyOps, Lifecycle, Lock, LockInfo, Locks, Put, PutMode, PutOptions,
    Reclaim, Restage, Result, Revision, Timestamp, Transactions, Ttl, TtlError, Value, WindowRow,
    WindowStats,
};
use futures_util::FutureExt as _;
use js_sys::{Array, Object, Reflect, Uint8Array};
use wasm_bindgen::prelude::*;

use crate::fixture::{Engine, Fixture, Limits, Opened, Snapshots, START};

#[wasm_bindgen]
extern "C" {
    /// An engine in JavaScript.
    pub type JsFixture;

    #[wasm_bindgen(method, catch)]
    fn call(
        this: &JsFixture,
        operation: &str,
        arguments: &Array,
    ) -> std::result::Result<JsValue, JsValue>;
}

thread_local! {
    static FIXTURES: RefCell<Vec<Option<JsFixture>>> = const { RefCell::new(Vec::new()) };
}

/// The names of all cases.
#[wasm_bindgen]
#[must_use]
pub fn cases() -> Vec<String> {
    crate::CASES
        .iter()
        .map(|case| case.name.to_owned())
        .collect()
}

/// Runs one case on a fixture made for it alone; throws what was broken.
#[wasm_bindgen]
pub fn run(name: &str, fixture: JsFixture) -> std::result::Result<(), JsValue> {
    let number = FIXTURES.with_borrow_mut(|fixtures| {
        fixtures.push(Some(fixture));
        fixtures.len() - 1
    });
    let fixture = Npm {
        js: Js(number),
        clock: AtomicI64::new(START.as_nanos()),
    };
    let outcome = crate::run(name, &fixture).now_or_never();
    // Its stores can go: a browser has room for some hundred of them at a time.
    FIXTURES.with_borrow_mut(|fixtures| fixtures[number] = None);
    match outcome {
        Some(Ok(())) => Ok(()),
        Some(Err(broken)) => Err(js_sys::Error::new(&broken.to_string()).into()),
        None => Err(js_sys::Error::new("the case waits for something").into()),
    }
}

/// A JavaScript fixture, by its number.
#[derive(Clone, Copy)]
struct Js(usize);

impl Js {
    fn call(self, operation: &str, arguments: &[JsValue]) -> Result<JsValue> {
        let arguments: Array = arguments.iter().collect();
        FIXTURES.with_borrow(|fixtures| match &fixtures[self.0] {
            Some(fixture) => fixture
                .call(operation, &arguments)
                .map_err(|thrown| error(&thrown)),
            None => Err(shape("a call after the case's end")),
        })
    }
}

/// An answer of a shape that the package does not promise.
fn shape(what: &str) -> Error {
    Error::new(
        ErrorKind::Database,
        format!("not as the package's types say: {what}"),
    )
}

/// The package's error, by its code. A flag that does not fit the code is a fault of its own.
fn error(thrown: &JsValue) -> Error {
    let text = |of: &JsValue, name: &str| field(of, name).ok().and_then(|value| value.as_string());
    let Some(code) = text(thrown, "code") else {
        return shape(&format!("thrown was {thrown:?}"));
    };
    let message = text(thrown, "message").unwrap_or_default();
    let kind = match &*code {
        "INVALID_NAME" => ErrorKind::InvalidName,
        "RESERVED_NAME" => ErrorKind::ReservedName,
        "INVALID_ARGUMENT" | "SNAPSHOT" | "VERSION" => ErrorKind::InvalidArgument,
        "CONFLICT" => ErrorKind::Conflict,
        "LEASE_LOST" => ErrorKind::LeaseLost,
        "CAPACITY" => ErrorKind::CapacityExceeded,
        _ => ErrorKind::Database,
    };
    let flag = |name| field(thrown, name).ok().and_then(|value| value.as_bool());
    if (flag("retryable"), flag("outcomeUnknown"))
        != (Some(kind == ErrorKind::Conflict), Some(false))
    {
        return shape(&format!("the flags of {code}: {message}"));
    }
    match &*code {
        "CLOSED" => Error::closed(),
        "INVALID_DURATION" => {
            let cause = field(thrown, "cause")
                .ok()
                .and_then(|cause| text(&cause, "message"));
            let told = format!("{message} {}", cause.unwrap_or_default());
            let reasons = [
                TtlError::NotPositive,
                TtlError::TooLong,
                TtlError::NotANumber,
            ];
            match reasons
                .into_iter()
                .find(|reason| told.contains(&reason.to_string()))
            {
                Some(reason) => reason.into(),
                None => shape(&format!("no reason for a refused duration in {told:?}")),
            }
        }
        _ => Error::new(kind, message),
    }
}

fn field(of: &JsValue, name: &str) -> Result<JsValue> {
    Reflect::get(of, &name.into()).map_err(|_| shape(&format!("there is no {name} in {of:?}")))
}

fn object<const N: usize>(fields: [(&str, JsValue); N]) -> JsValue {
    let object = Object::new();
    for (name, value) in fields {
        // Left out rather than undefined, as callers write it.
        if !value.is_undefined() {
            let _ = Reflect::set(&object, &name.into(), &value);
        }
    }
    object.into()
}

fn array(values: impl IntoIterator<Item = JsValue>) -> JsValue {
    values.into_iter().collect::<Array>().into()
}

#[allow(clippy::cast_precision_loss)] // whole numbers up to 2^53
fn number(number: u64) -> JsValue {
    JsValue::from_f64(number as f64)
}

fn limited(limit: usize) -> JsValue {
    number(limit as u64)
}

fn bytes(bytes: &[u8]) -> JsValue {
    Uint8Array::from(bytes).into()
}

/// A duration as a JavaScript number, which above 100 years may not be rounded into them.
fn millis(ttl: Duration) -> JsValue {
    #[allow(clippy::cast_precision_loss)]
    let millis = ttl.as_secs() as f64 * 1e3 + f64::from(ttl.subsec_nanos()) / 1e6;
    let century = 3_155_760_000_000.0;
    JsValue::from_f64(if ttl > Ttl::MAX.as_duration() {
        millis.max(century + 0.001)
    } else {
        millis
    })
}

/// An instant as a JavaScript number. The ends of the range lie between two such numbers, so infinity stands for them.
fn instant(at: Timestamp) -> JsValue {
    JsValue::from_f64(match at {
        Timestamp::MIN => f64::NEG_INFINITY,
        Timestamp::MAX => f64::INFINITY,
        at => at.as_millis(),
    })
}

fn timestamp(value: &JsValue) -> Result<Timestamp> {
    let millis = value.as_f64().ok_or_else(|| shape("an instant"))?;
    for end in [Timestamp::MIN, Timestamp::MAX] {
        if millis.to_bits() == end.as_millis().to_bits() {
            return Ok(end);
        }
    }
    Timestamp::from_millis(millis).ok_or_else(|| shape("an instant"))
}

/// An instant, or null.
fn maybe_timestamp(value: &JsValue) -> Result<Option<Timestamp>> {
    if value.is_null() {
        return Ok(None);
    }
    timestamp(value).map(Some)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn count(value: &JsValue) -> Result<u64> {
    match value.as_f64() {
        Some(number) if number >= 0.0 && number.fract().abs() < f64::EPSILON => Ok(number as u64),
        _ => Err(shape(&format!("a whole number: {value:?}"))),
    }
}

fn index(value: &JsValue) -> Result<usize> {
    count(value).and_then(|number| usize::try_from(number).map_err(|_| shape("a count")))
}

fn revision(value: &JsValue) -> Result<Revision> {
    Revision::new(count(value)?).ok_or_else(|| shape("a revision"))
}

/// A revision, or null.
fn maybe_revision(value: &JsValue) -> Result<Option<Revision>> {
    if value.is_null() {
        return Ok(None);
    }
    revision(value).map(Some)
}

fn flag(value: &JsValue) -> Result<bool> {
    value.as_bool().ok_or_else(|| shape("a boolean"))
}

fn text(value: &JsValue) -> Result<String> {
    value.as_string().ok_or_else(|| shape("a string"))
}

fn octets(value: &JsValue) -> Result<Vec<u8>> {
    let octets: &Uint8Array = value.dyn_ref().ok_or_else(|| shape("bytes"))?;
    Ok(octets.to_vec())
}

fn key(value: &JsValue) -> Result<Key<'static>> {
    Key::new(octets(value)?)
}

fn rows<T>(value: &JsValue, row: impl Fn(&JsValue) -> Result<T>) -> Result<Vec<T>> {
    let rows: &Array = value.dyn_ref().ok_or_else(|| shape("an array"))?;
    rows.iter().map(|value| row(&value)).collect()
}

fn undefined_or(value: Option<JsValue>) -> JsValue {
    value.unwrap_or(JsValue::UNDEFINED)
}

/// The package as a fixture.
struct Npm {
    js: Js,
    clock: AtomicI64,
}

impl Npm {
    fn opened(&self, store: usize) -> Opened {
        let store_handle = NpmStore { js: self.js, store };
        Opened {
            store: Arc::new(store_handle),
            snapshots: Some(Arc::new(store_handle)),
            state: store,
        }
    }

    fn move_clock(&self, to: Timestamp) -> Result<()> {
        self.clock.store(to.as_nanos(), Ordering::SeqCst);
        self.js.call("setClock", &[instant(to)])?;
        Ok(())
    }
}

impl Fixture for Npm {
    fn engine(&self) -> Engine {
        Engine::Npm
    }

    fn open(&self, limits: Limits) -> BoxFuture<'_, Result<Opened>> {
        async move {
            let limit = |limit: Option<usize>| undefined_or(limit.map(limited));
            let options = object([
                ("maxLocks", limit(limits.locks)),
                ("maxEntries", limit(limits.entries)),
                ("maxBytes", limit(limits.bytes)),
            ]);
            self.move_clock(Timestamp::from_nanos(self.clock.load(Ordering::SeqCst)))?;
            Ok(self.opened(index(&self.js.call("open", &[options])?)?))
        }
        .boxed()
    }

    fn another<'a>(&'a self, of: &'a Opened) -> BoxFuture<'a, Result<Opened>> {
        async move { Ok(self.opened(of.state)) }.boxed()
    }

    fn set_clock(&self, to: Timestamp) -> BoxFuture<'_, Result<()>> {
        async move { self.move_clock(to) }.boxed()
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, Result<()>> {
        async move {
            let now = Timestamp::from_nanos(self.clock.load(Ordering::SeqCst));
            self.move_clock(now.plus(by))
        }
        .boxed()
    }
}

/// A store on the other side.
#[derive(Clone, Copy)]
struct NpmStore {
    js: Js,
    store: usize,
}

impl NpmStore {
    fn call<const N: usize>(&self, operation: &str, arguments: [JsValue; N]) -> Result<JsValue> {
        let mut all = vec![limited(self.store)];
        all.extend(arguments);
        self.js.call(operation, &all)
    }

    /// A lease that the other side holds: its number and its `expiresAt`.
    fn lease(&self, name: &str, owner: &str, lease: &JsValue) -> Result<Box<dyn Lock>> {
        let expires_at = field(lease, "expiresAt")?;
        let lock = NpmLock {
            js: self.js,
            lease: index(&field(lease, "id")?)?,
            name: text(&field(lease, "name")?)?,
            owner: text(&field(lease, "owner")?)?,
            token: revision(&field(lease, "token")?)?,
            deadline: if expires_at.is_undefined() {
                None
            } else {
                Some(timestamp(&expires_at)?)
            },
        };
        if (&*lock.name, &*lock.owner) != (name, owner) {
            return Err(shape("a lease of another name or owner"));
        }
        Ok(Box::new(lock))
    }
}

fn info(row: &JsValue) -> Result<LockInfo> {
    Ok(LockInfo {
        name: text(&field(row, "name")?)?,
        owner: text(&field(row, "owner")?)?,
        token: revision(&field(row, "token")?)?,
        deadline: timestamp(&field(row, "expiresAt")?)?,
        lapsed: flag(&field(row, "lapsed")?)?,
    })
}

impl Locks for NpmStore {
    fn try_lock<'a>(
        &'a self,
        name: &'a str,
        owner: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lock>>>> {
        async move {
            let options = object([("owner", owner.into()), ("ttl", millis(ttl))]);
            let lease = self.call("tryLock", [name.into(), options])?;
            if lease.is_null() {
                return Ok(None);
            }
            self.lease(name, owner, &lease).map(Some)
        }
        .boxed()
    }

    fn lock_handle(&self, name: &str, owner: &str, token: Revision) -> Result<Box<dyn Lock>> {
        let parts = object([
            ("name", name.into()),
            ("owner", owner.into()),
            ("token", number(token.get())),
        ]);
        let lease = self.call("lease", [parts])?;
        self.lease(name, owner, &lease)
    }

    fn lock_info<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<LockInfo>>> {
        async move {
            let row = self.call("lockInfo", [name.into()])?;
            if row.is_null() {
                return Ok(None);
            }
            info(&row).map(Some)
        }
        .boxed()
    }

    fn list_locks<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<LockInfo>>> {
        async move {
            let page = object([
                ("after", undefined_or(after.map(JsValue::from))),
                ("limit", limited(limit)),
            ]);
            rows(&self.call("queryLocks", [prefix.into(), page])?, info)
        }
        .boxed()
    }

    fn force_release<'a>(&'a self, name: &'a str, token: Revision) -> BoxFuture<'a, Result<bool>> {
        async move {
            let options = object([("token", number(token.get()))]);
            flag(&self.call("forceRelease", [name.into(), options])?)
        }
        .boxed()
    }
}

/// A lease on the other side.
struct NpmLock {
    js: Js,
    lease: usize,
    name: String,
    owner: String,
    token: Revision,
    deadline: Option<Timestamp>,
}

impl Lock for NpmLock {
    fn name(&self) -> &str {
        &self.name
    }

    fn owner(&self) -> &str {
        &self.owner
    }

    fn token(&self) -> Revision {
        self.token
    }

    fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    fn renew(&mut self, ttl: Duration) -> BoxFuture<'_, Result<bool>> {
        async move {
            let renewed = self.js.call("renew", &[limited(self.lease), millis(ttl)])?;
            if renewed.is_null() {
                return Ok(false);
            }
            self.deadline = Some(timestamp(&renewed)?);
            Ok(true)
        }
        .boxed()
    }

    fn release(self: Box<Self>) -> BoxFuture<'static, Result<bool>> {
        async move { flag(&self.js.call("release", &[limited(self.lease)])?) }.boxed()
    }
}

/// `stored` and `version` of the answer of a put.
fn put_result(answer: &JsValue) -> Result<Put> {
    let version = maybe_revision(&field(answer, "version")?)?;
    match (flag(&field(answer, "stored")?)?, version) {
        (true, Some(version)) => Ok(Put::Stored { version }),
        (true, None) => Err(shape("stored without a version")),
        (false, current) => Ok(Put::NotStored { current }),
    }
}

impl Entries for NpmStore {
    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<Entry>>> {
        async move {
            let entry = self.call("getEntry", [bytes(key)])?;
            if entry.is_null() {
                return Ok(None);
            }
            Ok(Some(Entry {
                value: Value::from(octets(&field(&entry, "value")?)?),
                version: revision(&field(&entry, "version")?)?,
                expires_at: maybe_timestamp(&field(&entry, "expiresAt")?)?,
            }))
        }
        .boxed()
    }

    fn put<'a>(
        &'a self,
        key: &'a [u8],
        value: &'a [u8],
        options: PutOptions<'a>,
    ) -> BoxFuture<'a, Result<Put>> {
        async move {
            let guard = options.guard.map(|(name, token)| {
                object([("name", name.into()), ("token", number(token.get()))])
            });
            let (operation, version) = match options.mode {
                PutMode::Create => ("putIfAbsent", None),
                PutMode::Replace => ("put", None),
                PutMode::Update(version) => ("put", Some(number(version.get()))),
            };
            let options = object([
                ("ttl", undefined_or(options.ttl.map(millis))),
                ("guard", undefined_or(guard)),
                ("ifVersion", undefined_or(version)),
            ]);
            put_result(&self.call(operation, [bytes(key), bytes(value), options])?)
        }
        .boxed()
    }

    fn touch<'a>(&'a self, key: &'a [u8], ttl: Duration) -> BoxFuture<'a, Result<bool>> {
        async move { flag(&self.call("touch", [bytes(key), millis(ttl)])?) }.boxed()
    }

    fn delete<'a>(
        &'a self,
        key: &'a [u8],
        if_version: Option<Revision>,
    ) -> BoxFuture<'a, Result<bool>> {
        async move {
            let version = undefined_or(if_version.map(|version| number(version.get())));
            flag(&self.call("delete", [bytes(key), object([("ifVersion", version)])])?)
        }
        .boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a [u8],
        after: Option<&'a [u8]>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<EntryMeta>>> {
        async move {
            let page = object([
                ("after", undefined_or(after.map(bytes))),
                ("limit", limited(limit)),
            ]);
            rows(&self.call("list", [bytes(prefix), page])?, |row| {
                Ok(EntryMeta {
                    key: key(&field(row, "key")?)?,
                    version: revision(&field(row, "version")?)?,
                    expires_at: maybe_timestamp(&field(row, "expiresAt")?)?,
                    size: count(&field(row, "size")?)?,
                })
            })
        }
        .boxed()
    }
}

fn restaging(restage: Restage) -> JsValue {
    match restage {
        Restage::Move => "move".into(),
        Restage::Keep => "keep".into(),
    }
}

/// What a changeset does with one key, in the words of `atomic`.
fn operations(key: &Key<'_>, ops: &KeyOps) -> Vec<JsValue> {
    let op = |name: &str| ("op", JsValue::from(name));
    let key = || ("key", bytes(key.as_bytes()));
    let mut list = Vec::new();
    let mut unstage = ops.unstage;
    let mut check = ops.check;
    match &ops.write {
        Some(EntryWrite::Put { value, ttl }) => {
            let value = ("value", bytes(value));
            let ttl = (
                "ttl",
                undefined_or(ttl.map(|ttl| millis(ttl.as_duration()))),
            );
            list.push(match check {
                Some(Expect::Absent) if unstage => {
                    (unstage, check) = (false, None);
                    object([op("putIfAbsent"), key(), value, ttl])
                }
                Some(Expect::Version(version)) => {
                    check = None;
                    object([
                        op("put"),
                        key(),
                        value,
                        ttl,
                        ("ifVersion", number(version.get())),
                    ])
                }
                _ => object([op("put"), key(), value, ttl]),
            });
        }
        Some(EntryWrite::Delete) => list.push(object([op("delete"), key()])),
        None => {}
    }
    if let Some(expect) = check {
        let version = match expect {
            Expect::Absent => JsValue::NULL,
            Expect::Version(version) => number(version.get()),
        };
        list.push(object([op("check"), key(), ("version", version)]));
    }
    if unstage {
        list.push(object([op("unstage"), key()]));
    }
    if let Some((at, restage)) = ops.stage {
        let stage = [
            op("stage"),
            key(),
            ("visibleAfter", instant(at)),
            ("restage", restaging(restage)),
        ];
        list.push(object(stage));
    }
    list
}

impl Transactions for NpmStore {
    fn commit_changeset(&self, changeset: Changeset) -> BoxFuture<'_, Result<Commit>> {
        async move {
            let mut list = Vec::new();
            for (name, token) in changeset.guards() {
                let token = ("token", number(token.get()));
                list.push(object([
                    ("op", "guard".into()),
                    ("name", name.as_str().into()),
                    token,
                ]));
            }
            for (key, ops) in changeset.keys() {
                list.extend(operations(key, ops));
            }
            let commit = self.call("atomic", [array(list)])?;
            let versions = rows(&field(&commit, "versions")?, |row| {
                Ok((
                    key(&field(row, "key")?)?,
                    revision(&field(row, "version")?)?,
                ))
            })?;
            Ok(Commit { versions })
        }
        .boxed()
    }
}

impl Lifecycle for NpmStore {
    fn now(&self) -> BoxFuture<'_, Result<Timestamp>> {
        async { timestamp(&self.call("now", [])?) }.boxed()
    }

    fn purge_lapsed(&self, limit: usize) -> BoxFuture<'_, Result<usize>> {
        async move { index(&self.call("purgeLapsed", [object([("limit", limited(limit))])])?) }
            .boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        async { self.call("close", []).map(drop) }.boxed()
    }
}

fn candidate(row: &JsValue) -> Result<Candidate> {
    Ok(Candidate {
        key: key(&field(row, "key")?)?,
        visible_after: timestamp(&field(row, "visibleAfter")?)?,
    })
}

/// Of a claim the package asks for no more than this.
fn claim_refs(claims: &[Claim]) -> JsValue {
    array(claims.iter().map(|claim| {
        object([
            ("key", bytes(claim.key.as_bytes())),
            ("id", number(claim.id.get())),
        ])
    }))
}

fn requeues(row: &JsValue) -> Result<u32> {
    u32::try_from(count(&field(row, "requeues")?)?).map_err(|_| shape("a count of requeues"))
}

fn outcome(answer: &JsValue) -> Result<Reclaim> {
    Ok(match &*text(&field(answer, "outcome")?)? {
        "deleted" => Reclaim::Deleted {
            bytes: count(&field(answer, "bytes")?)?,
        },
        "marked" => Reclaim::Marked,
        "absent" => Reclaim::Absent,
        "unmarked" => Reclaim::Unmarked,
        "voided" => Reclaim::Voided,
        "lapsed" => Reclaim::Lapsed,
        other => return Err(shape(&format!("the outcome {other}"))),
    })
}

fn window_row(row: &JsValue) -> Result<WindowRow> {
    let Candidate { key, visible_after } = candidate(row)?;
    Ok(WindowRow {
        key,
        visible_after,
        claimed_until: maybe_timestamp(&field(row, "claimedUntil")?)?,
        reclaiming: flag(&field(row, "reclaiming")?)?,
        requeues: requeues(row)?,
    })
}

/// The epoch of a call that deletes, where it is fenced.
fn fenced(fence: Option<Revision>) -> JsValue {
    let epoch = fence.map(|epoch| number(epoch.get()));
    object([("epoch", undefined_or(epoch))])
}

impl NpmStore {
    fn reclaim(
        &self,
        operation: &str,
        claims: &[Claim],
        fence: Option<Revision>,
    ) -> Result<Vec<Reclaim>> {
        let answers = self.call(operation, [claim_refs(claims), fenced(fence)])?;
        rows(&answers, outcome)
    }
}

impl alkstore::EngineWindowState for NpmStore {
    /// The package has nothing to make; a closed store says so all the same.
    fn ensure_gc_schema(&self) -> BoxFuture<'_, Result<()>> {
        async { self.call("now", []).map(drop) }.boxed()
    }

    fn window_stage<'a>(
        &'a self,
        candidates: &'a [Candidate],
        restage: Restage,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let candidates = array(candidates.iter().map(|row| {
                object([
                    ("key", bytes(row.key.as_bytes())),
                    ("visibleAfter", instant(row.visible_after)),
                ])
            }));
            let options = object([("restage", restaging(restage))]);
            self.call("window.stage", [candidates, options]).map(drop)
        }
        .boxed()
    }

    /// One turn of the event loop is one atomic step, so the caller's reading of the clock is as good as the store's.
    fn window_stage_after<'a>(
        &'a self,
        keys: &'a [Key<'a>],
        grace: Duration,
        restage: Restage,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let grace = alkstore::Ttl::new(grace)?;
            let visible_after = timestamp(&self.call("now", [])?)?.after(grace);
            let candidate = |key: &Key<'_>| Candidate {
                key: key.clone().into_owned(),
                visible_after,
            };
            let candidates: Vec<_> = keys.iter().map(candidate).collect();
            self.window_stage(&candidates, restage).await
        }
        .boxed()
    }

    fn window_take(
        &self,
        now: Timestamp,
        limit: Option<usize>,
    ) -> BoxFuture<'_, Result<Vec<Candidate>>> {
        async move {
            let options = object([
                ("now", instant(now)),
                ("limit", undefined_or(limit.map(limited))),
            ]);
            rows(&self.call("window.take", [options])?, candidate)
        }
        .boxed()
    }

    fn window_unstage<'a>(&'a self, keys: &'a [Key<'a>]) -> BoxFuture<'a, Result<usize>> {
        async move {
            let keys = array(keys.iter().map(|key| bytes(key.as_bytes())));
            index(&self.call("window.unstage", [keys])?)
        }
        .boxed()
    }

    fn window_claim(
        &self,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Claim>>> {
        async move {
            let options = object([
                ("now", instant(now)),
                ("lease", millis(lease)),
                ("limit", limited(limit)),
            ]);
            rows(&self.call("window.claim", [options])?, |row| {
                let Candidate { key, visible_after } = candidate(row)?;
                Ok(Claim {
                    key,
                    visible_after,
                    id: revision(&field(row, "id")?)?,
                    until: timestamp(&field(row, "until")?)?,
                    reclaiming: flag(&field(row, "reclaiming")?)?,
                    requeues: requeues(row)?,
                })
            })
        }
        .boxed()
    }

    fn window_settle<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<usize>> {
        async move { index(&self.call("window.settle", [claim_refs(claims)])?) }.boxed()
    }

    fn window_requeue<'a>(
        &'a self,
        claims: &'a [Claim],
        visible_after: Timestamp,
    ) -> BoxFuture<'a, Result<usize>> {
        async move {
            let options = object([("visibleAfter", instant(visible_after))]);
            index(&self.call("window.requeue", [claim_refs(claims), options])?)
        }
        .boxed()
    }

    fn window_mark<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        async move { self.reclaim("window.mark", claims, fence) }.boxed()
    }

    fn window_finish<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        async move { self.reclaim("window.finish", claims, fence) }.boxed()
    }

    fn window_delete<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        async move { self.reclaim("window.delete", claims, fence) }.boxed()
    }

    fn window_judge<'a>(&'a self, keys: &'a [Key<'a>]) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        async move {
            let keys = array(keys.iter().map(|key| bytes(key.as_bytes())));
            rows(&self.call("window.judge", [keys])?, outcome)
        }
        .boxed()
    }

    fn window_list<'a>(
        &'a self,
        after: Option<&'a WindowRow>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<WindowRow>>> {
        async move {
            let after = after.map(|row| {
                object([
                    ("key", bytes(row.key.as_bytes())),
                    ("visibleAfter", instant(row.visible_after)),
                ])
            });
            let page = object([("after", undefined_or(after)), ("limit", limited(limit))]);
            rows(&self.call("window.list", [page])?, window_row)
        }
        .boxed()
    }

    fn window_info<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<WindowRow>>> {
        async move {
            let row = self.call("window.info", [bytes(key)])?;
            if row.is_null() {
                return Ok(None);
            }
            window_row(&row).map(Some)
        }
        .boxed()
    }

    fn window_stats(&self, now: Timestamp) -> BoxFuture<'_, Result<WindowStats>> {
        async move {
            let stats = self.call("window.stats", [object([("now", instant(now))])])?;
            let number = |name| count(&field(&stats, name)?);
            Ok(WindowStats {
                rows: number("rows")?,
                due: number("due")?,
                claimed: number("claimed")?,
                reclaiming: number("reclaiming")?,
                requeued: number("requeued")?,
                oldest: maybe_timestamp(&field(&stats, "oldest")?)?,
            })
        }
        .boxed()
    }

    fn has_pins(&self) -> bool {
        false
    }

    fn has_liveness_sources(&self) -> bool {
        false
    }

    fn sweep_begin(&self, ttl: Duration) -> BoxFuture<'_, Result<Option<Revision>>> {
        async move { maybe_revision(&self.call("window.beginSweep", [millis(ttl)])?) }.boxed()
    }

    fn sweep_extend(&self, epoch: Revision, ttl: Duration) -> BoxFuture<'_, Result<bool>> {
        async move {
            let epoch = number(epoch.get());
            flag(&self.call("window.extendSweep", [epoch, millis(ttl)])?)
        }
        .boxed()
    }

    fn sweep_end(&self, epoch: Revision) -> BoxFuture<'_, Result<bool>> {
        async move { flag(&self.call("window.endSweep", [number(epoch.get())])?) }.boxed()
    }
}

impl Snapshots for NpmStore {
    fn snapshot(&self) -> BoxFuture<'_, Result<Vec<u8>>> {
        async { octets(&self.call("snapshot", [])?) }.boxed()
    }

    fn restore<'a>(&'a self, bytes: &'a [u8]) -> BoxFuture<'a, Result<()>> {
        async move { self.call("restore", [self::bytes(bytes)]).map(drop) }.boxed()
    }
}
