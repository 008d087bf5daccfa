//! What every exported function does at its beginning and its end.

use std::cell::{Cell, RefCell};

use alkstore::{
    Changeset, Error, ErrorKind, Gate, Key, Millis, PutMode, Result, Revision, Timestamp, Ttl,
};
use alkstore_mem::State;
use js_sys::{Array, Uint8Array};
use wasm_bindgen::prelude::{wasm_bindgen, JsValue};

use crate::tx::Open;
use crate::value::JsBytes;

/// The answer of a call that failed.
pub(crate) const FAILED: f64 = -1.0;

/// The answer of a call whose handle has ended: repeat it with the name.
pub(crate) const ENDED: f64 = -2.0;

/// A length that stands for "not given".
pub(crate) const NONE: u32 = u32::MAX;

/// The size of each of the two parts of the input region. Above the limit of every text and key, so that what is too
/// long by a little is judged here.
pub(crate) const PART: usize = 1536;

/// How many numbers a call may leave behind.
pub(crate) const OUTPUTS: usize = 14;

/// Everything that an instance holds.
pub(crate) struct Store {
    pub(crate) gate: Gate,
    pub(crate) state: State<JsBytes>,
    /// Transactions that JavaScript has open, and the number of the next.
    pub(crate) open: Vec<(u32, Open)>,
    pub(crate) next_tx: u32,
    /// The changeset that JavaScript is putting together.
    pub(crate) changes: Changeset<JsBytes>,
    /// The keys that JavaScript is putting together, and for each an instant or the number of a claim.
    pub(crate) batch: Batch,
    /// A snapshot on its way in or out.
    pub(crate) snapshot: Vec<u8>,
}

pub(crate) type Batch = (Vec<Key<'static>>, Vec<f64>);

thread_local! {
    static STORE: RefCell<Option<Store>> = const { RefCell::new(None) };
    static INPUT: RefCell<[u8; 2 * PART]> = const { RefCell::new([0; 2 * PART]) };
    static OUTPUT: [Cell<f64>; OUTPUTS] = const { [const { Cell::new(0.0) }; OUTPUTS] };
}

/// The address of the input region: two parts of 1536 bytes each, for what a call names first and second.
#[wasm_bindgen]
pub fn input() -> usize {
    INPUT.with(|input| input.as_ptr().addr())
}

/// The address of the numbers that a call may leave behind.
#[wasm_bindgen]
pub fn output() -> usize {
    OUTPUT.with(|output| output.as_ptr().addr())
}

pub(crate) fn fill(store: Store) {
    STORE.set(Some(store));
}

/// Runs one operation on the store; a failure is kept for JavaScript to take.
#[inline]
pub(crate) fn operate<T>(failed: T, operation: impl FnOnce(&mut Store) -> Result<T>) -> T {
    attempt(operation).unwrap_or_else(|error| {
        crate::error::keep(error);
        failed
    })
}

/// The same for callers on this side, who take the failure themselves.
#[inline]
pub(crate) fn attempt<T>(operation: impl FnOnce(&mut Store) -> Result<T>) -> Result<T> {
    STORE.with_borrow_mut(|store| match store {
        Some(store) => operation(store),
        None => Err(Error::closed()),
    })
}

/// The same for an answer that is a number.
#[inline]
pub(crate) fn number(operation: impl FnOnce(&mut Store) -> Result<f64>) -> f64 {
    operate(FAILED, operation)
}

/// The same for yes or no.
#[inline]
pub(crate) fn answer(operation: impl FnOnce(&mut Store) -> Result<bool>) -> f64 {
    number(|store| operation(store).map(|yes| f64::from(u8::from(yes))))
}

/// The same for rows, flattened into one array that is filled when the store is no longer borrowed; `false` where it
/// failed.
pub(crate) fn rows<T>(
    operation: impl FnOnce(&mut Store) -> Result<Vec<T>>,
    flatten: impl Fn(&T, &Cells),
) -> JsValue {
    let Some(rows) = operate(None, |store| operation(store).map(Some)) else {
        return JsValue::FALSE;
    };
    let cells = Cells(Array::new());
    for row in &rows {
        flatten(row, &cells);
    }
    cells.0.into()
}

/// The cells of rows. Its methods are not inlined, because there are many cells.
pub(crate) struct Cells(Array);

impl Cells {
    #[inline(never)]
    pub(crate) fn number(&self, number: f64) {
        self.0.push(&number.into());
    }

    #[inline(never)]
    pub(crate) fn flag(&self, flag: bool) {
        self.0.push(&flag.into());
    }

    #[inline(never)]
    pub(crate) fn text(&self, text: &str) {
        self.0.push(&text.into());
    }

    #[inline(never)]
    pub(crate) fn key(&self, key: &Key<'_>) {
        self.0.push(&Uint8Array::from(key.as_bytes()));
    }
}

#[inline]
pub(crate) fn leave<const N: usize>(numbers: [f64; N]) {
    OUTPUT.with(|output| {
        for (cell, number) in output.iter().zip(numbers) {
            cell.set(number);
        }
    });
}

/// The first part of the input, `bytes` long.
#[inline]
pub(crate) fn first<T>(bytes: u32, read: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
    both(bytes, 0, |first, _| read(first))
}

/// The two parts of the input.
#[inline]
pub(crate) fn both<T>(
    first_bytes: u32,
    second_bytes: u32,
    read: impl FnOnce(&[u8], &[u8]) -> Result<T>,
) -> Result<T> {
    INPUT.with_borrow(|input| {
        let (first, second) = parts(input, first_bytes, second_bytes)?;
        read(first, second)
    })
}

/// The two parts of the input, of which the second may not be given.
#[inline]
pub(crate) fn one_or_both<T>(
    first_bytes: u32,
    second_bytes: u32,
    read: impl FnOnce(&[u8], Option<&[u8]>) -> Result<T>,
) -> Result<T> {
    let given = second_bytes != NONE;
    let bytes = if given { second_bytes } else { 0 };
    both(first_bytes, bytes, |first, second| {
        read(first, given.then_some(second))
    })
}

/// Apart from the above, which is compiled once for each caller.
#[inline(never)]
fn parts(input: &[u8; 2 * PART], first: u32, second: u32) -> Result<(&[u8], &[u8])> {
    let (one, two) = input.split_at(PART);
    match (one.get(..first as usize), two.get(..second as usize)) {
        (Some(one), Some(two)) => Ok((one, two)),
        _ => Err(invalid("an input is longer than its region")),
    }
}

/// Text, which JavaScript has encoded.
#[inline]
pub(crate) fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes)
        .map_err(|_| Error::new(ErrorKind::InvalidName, "the text is not UTF-8"))
}

pub(crate) fn revision(number: f64) -> Result<Revision> {
    // Saturates; what is no revision, 0 or above 2^53 - 1, is refused by `Revision` itself.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Revision::new(number as u64)
        .ok_or_else(|| invalid("a token or version is a whole number from 1 to 2^53 - 1"))
}

/// A revision that may be left out, as 0.
pub(crate) fn maybe_revision(number: f64) -> Result<Option<Revision>> {
    (number != 0.0).then(|| revision(number)).transpose()
}

/// Every revision is below 2^53.
#[allow(clippy::cast_precision_loss)]
#[inline]
pub(crate) fn from_revision(revision: Revision) -> f64 {
    revision.get() as f64
}

#[inline]
pub(crate) fn instant(millis: f64) -> Result<Timestamp> {
    Timestamp::from_millis(millis).ok_or_else(|| invalid("an instant must be a number"))
}

/// An instant that may be missing, as NaN.
#[inline]
pub(crate) fn from_maybe_instant(at: Option<Timestamp>) -> f64 {
    at.map_or(f64::NAN, Timestamp::as_millis)
}

/// A time to live that may be left out.
pub(crate) fn maybe_ttl(given: bool, millis: f64) -> Result<Option<Ttl>> {
    given.then(|| Millis(millis).try_into()).transpose()
}

/// A limit; infinity is no limit.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, which is wanted
pub(crate) fn limit(number: f64) -> usize {
    number as usize
}

/// When to write: `Update(version)` where a version is given, else `Create` or `Replace`.
pub(crate) fn put_mode(create: bool, version: f64) -> Result<PutMode> {
    Ok(match maybe_revision(version)? {
        Some(version) => PutMode::Update(version),
        None if create => PutMode::Create,
        None => PutMode::Replace,
    })
}

#[cold]
pub(crate) fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
