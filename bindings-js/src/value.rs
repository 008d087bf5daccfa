//! Values, which stay in the JavaScript heap.

use alkstore::Payload;
use alkstore_mem::SnapshotPayload;
use js_sys::Uint8Array;

/// A reference to a `Uint8Array` that nobody else can change: JavaScript made it for this store alone.
///
/// Cloning and dropping it move a reference in a table; no JavaScript runs.
#[derive(Clone, Debug)]
pub(crate) struct JsBytes {
    bytes: Uint8Array,
    /// Kept here, so that asking for it needs no call.
    size: u32,
}

impl JsBytes {
    pub(crate) fn new(bytes: Uint8Array, size: u32) -> Self {
        Self { bytes, size }
    }

    pub(crate) fn into_bytes(self) -> Uint8Array {
        self.bytes
    }
}

impl Payload for JsBytes {
    fn size(&self) -> usize {
        self.size as usize
    }
}

impl SnapshotPayload for JsBytes {
    fn append_to(&self, bytes: &mut Vec<u8>) {
        let from = bytes.len();
        bytes.resize(from + self.size(), 0);
        self.bytes.copy_to(&mut bytes[from..]);
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        // The length of a value is checked before, and is far below 2^32.
        #[allow(clippy::cast_possible_truncation)]
        let size = bytes.len() as u32;
        Self::new(Uint8Array::from(bytes), size)
    }
}
