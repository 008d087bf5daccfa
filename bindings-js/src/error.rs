//! The error of the last call that failed, taken by JavaScript in three calls.

use std::cell::RefCell;
use std::error::Error as _;

use alkstore::{Error, ErrorKind};
use alkstore_mem::SnapshotError;
use wasm_bindgen::prelude::{wasm_bindgen, JsValue};

thread_local! {
    static LAST: RefCell<Option<Error>> = const { RefCell::new(None) };
}

#[cold]
#[inline(never)]
pub(crate) fn keep(error: Error) {
    LAST.set(Some(error));
}

/// The index of the error's code in the table of `js/error.js`; plus 32 where retrying may help, plus 64 where nobody
/// knows whether the call took effect.
#[wasm_bindgen]
pub fn error_code() -> u32 {
    LAST.with_borrow(|last| {
        last.as_ref().map_or(CODE_OF_NOTHING, |error| {
            code(error)
                + 32 * u32::from(error.is_retryable())
                + 64 * u32::from(error.is_outcome_unknown())
        })
    })
}

/// The error's text.
#[wasm_bindgen]
pub fn error_message() -> JsValue {
    let message = LAST.with_borrow(|last| last.as_ref().map(ToString::to_string));
    message.unwrap_or_default().into()
}

/// The texts of its causes; empty where it has none. The error is then forgotten.
#[wasm_bindgen]
pub fn take_error_detail() -> JsValue {
    let error = LAST.take();
    let mut detail = String::new();
    let mut cause = error.as_ref().and_then(|error| error.source());
    while let Some(error) = cause {
        if !detail.is_empty() {
            detail.push_str(": ");
        }
        detail.push_str(&error.to_string());
        cause = error.source();
    }
    detail.into()
}

const CODE_OF_NOTHING: u32 = 7;

fn code(error: &Error) -> u32 {
    if let Some(snapshot) = error.source().and_then(|source| source.downcast_ref()) {
        return match snapshot {
            SnapshotError::Newer { .. } => 10,
            _ => 9,
        };
    }
    match error.kind() {
        ErrorKind::InvalidName => 0,
        ErrorKind::ReservedName => 1,
        ErrorKind::InvalidArgument => 2,
        ErrorKind::Conflict => 4,
        ErrorKind::LeaseLost => 5,
        ErrorKind::CapacityExceeded => 6,
        _ if error.is_invalid_duration() => 3,
        _ if error.is_closed() => 8,
        _ => CODE_OF_NOTHING,
    }
}
