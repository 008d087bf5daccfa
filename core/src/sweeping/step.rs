//! What passes between a sweep and those who drive it.

use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use crate::{
    Claim, Error, HookError, Key, Reclaim, Revision, SweepReport, Timestamp, Ttl, WindowRow,
};

/// What [`SweepOptions`](crate::SweepOptions) says, without those who are asked and told.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // each is told of in the options' function of its name
#[allow(clippy::struct_excessive_bools)] // they are options, not states
pub struct Terms {
    /// How many sources there are.
    pub sources: usize,
    /// Whether that is said, or the engine itself knows what refers to keys.
    pub window_decides: bool,
    /// Whether the engine has pins, which are looked at before sources are asked.
    pub pins: bool,
    /// Whether there is a reclaimer.
    pub reclaims: bool,
    /// Whether there is a timer.
    pub waits: bool,
    pub limit: Option<u64>,
    pub batch: Option<usize>,
    pub time_limit: Option<Duration>,
    pub rate: Option<NonZeroU32>,
    pub hook_timeout: Option<Duration>,
    pub claim_lease: Option<Duration>,
    pub backoff: Option<(Duration, Duration)>,
    pub dry_run: bool,
}

/// What is to be done next, and what is then answered. Where the engine fails at it, that is
/// [`Failed`](Answer::Failed).
#[derive(Debug)]
#[allow(missing_docs)] // the names are those of the operations and their parameters
pub enum Step<'s> {
    /// Read the store clock: [`Instant`](Answer::Instant).
    Now,
    /// [`Epoch`](Answer::Epoch).
    Begin { lease: Ttl },
    /// [`Stands`](Answer::Stands).
    Extend { epoch: Revision, lease: Ttl },
    /// [`Claims`](Answer::Claims).
    Claim {
        due: Timestamp,
        lease: Ttl,
        most: usize,
    },
    /// [`Rows`](Answer::Rows).
    List {
        after: Option<&'s WindowRow>,
        most: usize,
    },
    /// [`Outcomes`](Answer::Outcomes).
    Judge { keys: Vec<Key<'s>> },
    /// [`Outcomes`](Answer::Outcomes).
    Mark {
        claims: &'s [Claim],
        fence: Option<Revision>,
    },
    /// [`Outcomes`](Answer::Outcomes).
    Finish {
        claims: &'s [Claim],
        fence: Option<Revision>,
    },
    /// [`Outcomes`](Answer::Outcomes).
    Delete {
        claims: &'s [Claim],
        fence: Option<Revision>,
    },
    /// [`Count`](Answer::Count).
    Settle { claims: &'s [Claim] },
    /// [`Count`](Answer::Count).
    Requeue { claims: &'s [Claim], at: Timestamp },
    /// [`Done`](Answer::Done), also where it failed: the sweep's lease lapses then.
    End { epoch: Revision },
    /// Ask a source, by its number: [`Live`](Answer::Live), [`Threw`](Answer::Threw) or [`Late`](Answer::Late).
    Live { source: usize, keys: Vec<Key<'s>> },
    /// Have payloads deleted, or only measured: [`Freed`](Answer::Freed) or [`Late`](Answer::Late).
    Reclaim { keys: Vec<Key<'s>>, measure: bool },
    /// Wait: [`Done`](Answer::Done).
    Sleep { duration: Duration },
    /// Tell how it goes: [`Done`](Answer::Done).
    Tell { so_far: &'s SweepReport },
    /// It is over: see [`Sweep::into_report`](super::Sweep::into_report).
    Over,
}

/// What came of a step.
#[derive(Debug)]
pub enum Answer {
    /// That is all.
    Done,
    /// The engine failed.
    Failed(Error),
    /// The time.
    Instant(Timestamp),
    /// The sweep's epoch; `None` where another is under way.
    Epoch(Option<Revision>),
    /// Whether it still stands.
    Stands(bool),
    /// The claims.
    Claims(Vec<Claim>),
    /// The rows.
    Rows(Vec<WindowRow>),
    /// What became of each.
    Outcomes(Vec<Reclaim>),
    /// For how many it was done.
    Count(usize),
    /// Which are live, in order.
    Live(Vec<bool>),
    /// The hook failed, and why, where that can be told.
    Threw(Option<HookError>),
    /// The hook took longer than its timeout.
    Late,
    /// The bytes that were freed, in order, `None` for what could not be deleted; and why the last such could not, where
    /// that can be told.
    Freed(Vec<Option<u64>>, Option<HookError>),
}
