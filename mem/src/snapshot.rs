//! Snapshots: the whole state as bytes, and back.
//!
//! Format 2, all numbers little-endian: `ALKSNAP` and a zero byte; version (u32); the last revision (u64); the number
//! of locks, entries and window rows (u64 each); the rows, each kind in strictly increasing bytewise order of its
//! names; a CRC-32 of all that came before (u32). A text or byte string is its length (names, owners and keys u16,
//! values u32) and its bytes. A deadline that may be missing is a byte (0 or 1) and, where it is 1, an i64. Format 1 lacked
//! the mark and the count of a window row. The lock of a sweep is left out: a restored store is not being swept.

use std::fmt;

use alkstore::rules::window::Row;
use alkstore::{
    Error, ErrorKind, Key, LockName, Owner, Payload, Result, Revision, Timestamp, MAX_VALUE_BYTES,
};
use crc::{Crc, Table as Lookup, CRC_32_ISO_HDLC};

use crate::entries::EntryRow;
use crate::index::Place;
use crate::locks::LockRow;
use crate::state::State;

const MAGIC: &[u8; 8] = b"ALKSNAP\0";
const VERSION: u32 = 2;
const CHECKSUM: Crc<u32, Lookup<1>> = Crc::<u32, Lookup<1>>::new(&CRC_32_ISO_HDLC);

/// How far a restore moves the revisions on: more tokens than a store can have given between the snapshot and its end.
const JUMP: u64 = 1 << 32;

/// Why bytes are not a snapshot that can be restored: the source of the error.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotError {
    /// They do not begin as a snapshot does.
    NotASnapshot,
    /// A newer version of alkstore wrote them.
    Newer {
        /// The version of the format.
        version: u32,
    },
    /// They end before the snapshot does.
    Truncated,
    /// The checksum does not fit.
    Corrupt,
    /// The checksum fits, but something in them can never have been written by a store.
    Invalid(&'static str),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASnapshot => f.write_str("these bytes are not a snapshot"),
            Self::Newer { version } => {
                write!(
                    f,
                    "the format is version {version}, this build reads up to {VERSION}"
                )
            }
            Self::Truncated => f.write_str("the bytes end before the snapshot does"),
            Self::Corrupt => f.write_str("the checksum does not fit: the bytes were changed"),
            Self::Invalid(what) => f.write_str(what),
        }
    }
}

/// The same as its text: a derived one would bring the code that quotes strings into the wasm.
impl fmt::Debug for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for SnapshotError {}

impl From<SnapshotError> for Error {
    fn from(error: SnapshotError) -> Self {
        Error::new(
            ErrorKind::InvalidArgument,
            "the snapshot was refused, and the store is unchanged",
        )
        .with_source(error)
    }
}

/// A value that can be written to a snapshot and read from one.
pub trait SnapshotPayload: Payload {
    /// Appends exactly [`size`](Payload::size) bytes.
    fn append_to(&self, bytes: &mut Vec<u8>);

    /// The value of these bytes.
    fn from_bytes(bytes: &[u8]) -> Self;
}

impl SnapshotPayload for alkstore::Value {
    fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self);
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        bytes.into()
    }
}

impl<V: SnapshotPayload> State<V> {
    /// S1: everything, as bytes. Deadlines are absolute. Fails where there is no memory left for them.
    pub fn snapshot(&self) -> Result<Vec<u8>> {
        let mut out = Writer(Vec::new());
        out.0
            .try_reserve_exact(self.snapshot_bytes())
            .map_err(|_| {
                Error::new(
                    ErrorKind::CapacityExceeded,
                    "there is no memory left for a snapshot",
                )
            })?;
        out.0.extend_from_slice(MAGIC);
        out.0.extend_from_slice(&VERSION.to_le_bytes());
        out.number(self.revision);
        out.number((self.locks.len() - usize::from(self.has_sweep_row())) as u64);
        out.number(self.entries.len() as u64);
        out.number(self.window.len() as u64);
        for (name, slot) in self.locks.sorted() {
            let place = Place::At(slot);
            if name == LockName::SWEEP.as_str().as_bytes() {
                continue;
            }
            if let (Some(row), Some(deadline)) = (self.locks.row(place), self.locks.deadline(place))
            {
                out.short(name);
                out.short(self.owner_text(row).as_bytes());
                out.number(row.token.get());
                out.instant(deadline);
            }
        }
        for (key, slot) in self.entries.sorted() {
            let place = Place::At(slot);
            if let Some(row) = self.entries.row(place) {
                out.short(key);
                out.number(row.version.get());
                out.maybe_instant(self.entries.deadline(place));
                out.length(row.value.size());
                row.value.append_to(&mut out.0);
            }
        }
        for (key, row) in self.window.rows() {
            out.short(key);
            out.instant(row.visible_after);
            out.0.push(u8::from(row.claim.is_some()));
            if let Some((id, until)) = row.claim {
                out.number(id.get());
                out.instant(until);
            }
            out.0.push(u8::from(row.reclaiming));
            out.0.extend_from_slice(&row.requeues.to_le_bytes());
        }
        let sum = CHECKSUM.checksum(&out.0);
        out.0.extend_from_slice(&sum.to_le_bytes());
        Ok(out.0)
    }

    fn has_sweep_row(&self) -> bool {
        let place = self.locks.find(LockName::SWEEP.as_str().as_bytes());
        self.locks.row(place).is_some()
    }

    /// At least as many bytes as a snapshot takes, so that writing it never moves it.
    fn snapshot_bytes(&self) -> usize {
        // What a row has besides its texts and value is less than this; an owner that was minted is not in `bytes`.
        const ROW: usize = 72;
        let rows = self.locks.len() + self.entries.len() + self.window.len();
        64 + self.bytes.saturating_add(rows.saturating_mul(ROW))
    }

    /// S1 and S2: becomes what the snapshot holds, or fails and stays as it is.
    ///
    /// The revisions go on from the higher of the two counters plus 2^32, since tokens may have been given after the
    /// snapshot was taken. The limits of this store's options are not applied: a restore brings back what was there.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let snapshot = Snapshot::parse(bytes)?;
        let revision = self.revision.max(snapshot.revision) + JUMP;
        if revision > Revision::MAX {
            return Err(SnapshotError::Invalid("its revisions leave no room for new ones").into());
        }
        self.clear();
        self.revision = revision;
        snapshot.walk(self)?;
        Ok(())
    }
}

/// What is done with the rows of a snapshot.
trait Visitor {
    fn lock(&mut self, _: &LockBytes<'_>) {}
    fn entry(&mut self, _: &EntryBytes<'_>) {}
    fn window(&mut self, _: &WindowBytes<'_>) {}
}

/// Looks only whether the rows hold together.
struct Check;

impl Visitor for Check {}

impl<V: SnapshotPayload> Visitor for State<V> {
    fn lock(&mut self, lock: &LockBytes<'_>) {
        let row = LockRow {
            owner: self.keep_owner(lock.owner, lock.token),
            token: lock.token,
        };
        let place = self.locks.find(lock.name);
        self.put_lock(place, lock.name, row, lock.deadline);
    }

    fn entry(&mut self, entry: &EntryBytes<'_>) {
        let row = EntryRow {
            value: V::from_bytes(entry.value),
            version: entry.version,
        };
        let place = self.entries.find(entry.key);
        self.put_entry(place, entry.key, row, entry.expires_at);
    }

    fn window(&mut self, window: &WindowBytes<'_>) {
        self.put_window(window.key, window.row);
    }
}

/// A snapshot that was read to its end and holds together. It borrows the bytes, so that reading allocates nothing.
struct Snapshot<'a> {
    revision: u64,
    /// Locks, entries, window rows.
    counts: [u64; 3],
    rows: Reader<'a>,
}

struct LockBytes<'a> {
    name: &'a [u8],
    owner: &'a str,
    token: Revision,
    deadline: Timestamp,
}

struct EntryBytes<'a> {
    key: &'a [u8],
    version: Revision,
    expires_at: Option<Timestamp>,
    value: &'a [u8],
}

struct WindowBytes<'a> {
    key: &'a [u8],
    row: Row,
}

impl<'a> Snapshot<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, SnapshotError> {
        let mut rows = Reader::open(bytes)?;
        let revision = rows.number()?;
        if revision > Revision::MAX {
            return Err(SnapshotError::Invalid(
                "its revision counter is out of range",
            ));
        }
        rows.revision = revision;
        let counts = [rows.number()?, rows.number()?, rows.number()?];
        let snapshot = Self {
            revision,
            counts,
            rows,
        };
        snapshot.walk(&mut Check)?;
        Ok(snapshot)
    }

    fn walk(&self, visitor: &mut impl Visitor) -> Result<(), SnapshotError> {
        let mut rows = self.rows;
        let [locks, entries, window] = self.counts;
        rows.each(locks, Reader::lock, |row| row.name, |row| visitor.lock(row))?;
        rows.each(
            entries,
            Reader::entry,
            |row| row.key,
            |row| {
                visitor.entry(row);
            },
        )?;
        rows.each(
            window,
            Reader::window,
            |row| row.key,
            |row| {
                visitor.window(row);
            },
        )?;
        if !rows.rest.is_empty() {
            return Err(SnapshotError::Invalid(
                "bytes are left over behind its last row",
            ));
        }
        Ok(())
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn instant(&mut self, at: Timestamp) {
        self.0.extend_from_slice(&at.as_nanos().to_le_bytes());
    }

    fn maybe_instant(&mut self, at: Option<Timestamp>) {
        self.0.push(u8::from(at.is_some()));
        if let Some(at) = at {
            self.instant(at);
        }
    }

    /// A name, owner or key: valid ones are far shorter than 2^16.
    #[allow(clippy::cast_possible_truncation)]
    fn short(&mut self, bytes: &[u8]) {
        self.0
            .extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        self.0.extend_from_slice(bytes);
    }

    /// The length of a value: valid ones are far shorter than 2^32.
    #[allow(clippy::cast_possible_truncation)]
    fn length(&mut self, length: usize) {
        self.0.extend_from_slice(&(length as u32).to_le_bytes());
    }
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    rest: &'a [u8],
    /// The version of the format.
    version: u32,
    /// The counter that no token, version or claim may exceed.
    revision: u64,
}

impl<'a> Reader<'a> {
    fn open(bytes: &'a [u8]) -> Result<Self, SnapshotError> {
        let rest = bytes
            .strip_prefix(MAGIC)
            .ok_or(SnapshotError::NotASnapshot)?;
        let mut input = Self {
            rest,
            version: 0,
            revision: 0,
        };
        let version = u32::from_le_bytes(input.array()?);
        input.version = version;
        if version > VERSION {
            return Err(SnapshotError::Newer { version });
        }
        if version == 0 {
            return Err(SnapshotError::NotASnapshot);
        }
        let (rest, sum) = input
            .rest
            .split_last_chunk()
            .ok_or(SnapshotError::Truncated)?;
        if CHECKSUM.checksum(&bytes[..bytes.len() - sum.len()]) != u32::from_le_bytes(*sum) {
            return Err(SnapshotError::Corrupt);
        }
        input.rest = rest;
        Ok(input)
    }

    /// Visits `count` rows, whose names must strictly increase.
    fn each<T>(
        &mut self,
        count: u64,
        read: fn(&mut Self) -> Result<T, SnapshotError>,
        name: fn(&T) -> &'a [u8],
        mut visit: impl FnMut(&T),
    ) -> Result<(), SnapshotError> {
        let mut last: Option<&[u8]> = None;
        for _ in 0..count {
            let row = read(self)?;
            if last.is_some_and(|last| last >= name(&row)) {
                return Err(SnapshotError::Invalid(
                    "its rows are out of order or doubled",
                ));
            }
            last = Some(name(&row));
            visit(&row);
        }
        Ok(())
    }

    fn lock(&mut self) -> Result<LockBytes<'a>, SnapshotError> {
        let name = self.short()?;
        let text = std::str::from_utf8(name)
            .ok()
            .and_then(|name| LockName::new(name).ok());
        if text.is_none() {
            return Err(SnapshotError::Invalid("a lock name in it is invalid"));
        }
        let owner = std::str::from_utf8(self.short()?)
            .ok()
            .filter(|owner| Owner::new(*owner).is_ok())
            .ok_or(SnapshotError::Invalid("an owner in it is invalid"))?;
        Ok(LockBytes {
            name,
            owner,
            token: self.given()?,
            deadline: self.instant()?,
        })
    }

    fn entry(&mut self) -> Result<EntryBytes<'a>, SnapshotError> {
        let key = self.key()?;
        let version = self.given()?;
        let expires_at = if self.flag()? {
            Some(self.instant()?)
        } else {
            None
        };
        let length = u32::from_le_bytes(self.array()?) as usize;
        if length > MAX_VALUE_BYTES {
            return Err(SnapshotError::Invalid("a value in it is too long"));
        }
        Ok(EntryBytes {
            key,
            version,
            expires_at,
            value: self.take(length)?,
        })
    }

    fn window(&mut self) -> Result<WindowBytes<'a>, SnapshotError> {
        let key = self.key()?;
        let visible_after = self.instant()?;
        let claim = if self.flag()? {
            Some((self.given()?, self.instant()?))
        } else {
            None
        };
        let mut row = Row {
            claim,
            ..Row::new(visible_after)
        };
        if self.version > 1 {
            row.reclaiming = self.flag()?;
            row.requeues = u32::from_le_bytes(self.array()?);
        }
        Ok(WindowBytes { key, row })
    }

    fn key(&mut self) -> Result<&'a [u8], SnapshotError> {
        let key = self.short()?;
        match Key::new(key) {
            Ok(_) => Ok(key),
            Err(_) => Err(SnapshotError::Invalid("a key in it is invalid")),
        }
    }

    /// A revision that the counter has passed.
    fn given(&mut self) -> Result<Revision, SnapshotError> {
        let number = self.number()?;
        Revision::new(number)
            .filter(|_| number <= self.revision)
            .ok_or(SnapshotError::Invalid(
                "a revision in it is above its counter",
            ))
    }

    fn flag(&mut self) -> Result<bool, SnapshotError> {
        match self.array::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(SnapshotError::Invalid("a flag in it is neither 0 nor 1")),
        }
    }

    fn number(&mut self) -> Result<u64, SnapshotError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn instant(&mut self) -> Result<Timestamp, SnapshotError> {
        Ok(Timestamp::from_nanos(i64::from_le_bytes(self.array()?)))
    }

    fn short(&mut self) -> Result<&'a [u8], SnapshotError> {
        let length = u16::from_le_bytes(self.array()?);
        self.take(usize::from(length))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let (array, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(SnapshotError::Truncated)?;
        self.rest = rest;
        Ok(*array)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], SnapshotError> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(SnapshotError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }
}
