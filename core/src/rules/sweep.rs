//! The rules of a sweep.

use core::time::Duration;

use crate::Reclaim;

/// G4: for how long a key waits that was put back `requeues` times before: `first`, then twice as long each time, up to
/// `most`.
pub fn backoff(requeues: u32, first: Duration, most: Duration) -> Duration {
    let factor = 1_u32.checked_shl(requeues).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(most)
}

/// What a sweep does with a claim after it was told what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is done with it.
    Nothing,
    /// The payload comes next.
    Reclaim,
    /// The key is live: out of the window with it, until a mark pass stages it again.
    Settle,
    /// Later.
    PutBack,
}

/// G1: what follows from an outcome. A pin ends by itself, so its key comes again; a reference is for others to end.
pub fn next(outcome: Reclaim) -> Next {
    match outcome {
        Reclaim::Marked => Next::Reclaim,
        Reclaim::Referenced => Next::Settle,
        Reclaim::Pinned => Next::PutBack,
        _ => Next::Nothing,
    }
}

/// G2: what a dry run says that arbitration would answer, where [judging](crate::EngineWindowState::window_judge) the key
/// gave `outcome`. What is marked is not arbitrated again.
pub fn predicted(outcome: Reclaim, reclaiming: bool, reclaims: bool) -> Reclaim {
    match outcome {
        _ if reclaiming => Reclaim::Marked,
        Reclaim::Deleted { .. } | Reclaim::Absent if reclaims => Reclaim::Marked,
        other => other,
    }
}
