//! Why a key is, or is not, deleted: what is known of it, and what follows.

use alkstore::{EntryMeta, Timestamp, WindowRow};

use crate::output;

/// What is known of a key.
pub struct Known {
    pub now: Timestamp,
    pub entry: Option<EntryMeta>,
    pub row: Option<WindowRow>,
    /// Who has a live pin that is the last to lapse.
    pub pin: Option<(String, Timestamp)>,
    /// A table that refers to it.
    pub reference: Option<String>,
    /// Whether tables of references were asked.
    pub asked: bool,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Absent,
    Unstaged,
    Reclaiming,
    Waiting,
    Claimed,
    Pinned,
    Referenced,
    Leaves,
    Deleted,
}

impl Verdict {
    /// In the order in which a sweep meets these things.
    pub fn of(known: &Known) -> Self {
        let Some(row) = &known.row else {
            return if known.entry.is_some() {
                Self::Unstaged
            } else {
                Self::Absent
            };
        };
        let claimed = row
            .claimed_until
            .is_some_and(|until| !until.lapsed(known.now));
        match () {
            () if claimed => Self::Claimed,
            () if !row.visible_after.lapsed(known.now) => Self::Waiting,
            () if row.reclaiming => Self::Reclaiming,
            () if known.pin.is_some() => Self::Pinned,
            () if known.reference.is_some() => Self::Referenced,
            () if known.entry.is_none() => Self::Leaves,
            () => Self::Deleted,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Unstaged => "unstaged",
            Self::Reclaiming => "reclaiming",
            Self::Waiting => "waiting",
            Self::Claimed => "claimed",
            Self::Pinned => "pinned",
            Self::Referenced => "referenced",
            Self::Leaves => "leaves",
            Self::Deleted => "deleted",
        }
    }

    /// One sentence.
    pub fn sentence(self, known: &Known) -> String {
        let row = known.row.as_ref();
        let instant = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), output::instant);
        match self {
            Self::Absent => "there is no such entry, and nothing waits".to_owned(),
            Self::Unstaged => "not in the window: nothing deletes it unless a mark pass, or `alkstore gc stage`, \
                 stages it"
                .to_owned(),
            Self::Reclaiming => "its deletion has begun: a sweep with the reclaimer of its payload finishes it, \
                 this program's leaves it"
                .to_owned(),
            Self::Waiting => {
                let until = instant(row.map(|row| row.visible_after));
                let also = match (&known.pin, &known.reference) {
                    (Some((owner, until)), _) => format!(
                        "; it is also protected by a pin of {owner} until {}",
                        output::instant(*until)
                    ),
                    (None, Some(table)) => format!("; it is also referred to by {table}"),
                    (None, None) => String::new(),
                };
                format!("waits until {until}{also}")
            }
            Self::Claimed => format!(
                "a sweep has it in hand, until {} at the latest",
                instant(row.and_then(|row| row.claimed_until))
            ),
            Self::Pinned => {
                let (owner, until) = known.pin.clone().unzip();
                format!(
                    "protected by a pin of {} until {}",
                    owner.unwrap_or_default(),
                    instant(until)
                )
            }
            Self::Referenced => format!(
                "protected by {}: the next sweep that asks it takes the key out of the window",
                known.reference.as_deref().unwrap_or("a table of references")
            ),
            Self::Leaves => {
                "there is no entry any more: the next sweep takes the key out of the window".to_owned()
            }
            Self::Deleted if known.asked => "would be deleted by the next sweep".to_owned(),
            Self::Deleted => "would be deleted by the next sweep, unless a table that it asks refers to it: name them \
                 with --liveness"
                .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alkstore::{Key, Revision};

    fn at(nanos: i64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn each_thing_that_protects_is_met_in_turn() {
        let key = Key::new(&b"k"[..]).unwrap().into_owned();
        let mut known = Known {
            now: at(100),
            entry: None,
            row: None,
            pin: None,
            reference: None,
            asked: true,
        };
        let told = |known: &Known| {
            let verdict = Verdict::of(known);
            (verdict, verdict.sentence(known))
        };
        assert_eq!(told(&known).0, Verdict::Absent);
        known.entry = Some(EntryMeta {
            key: key.clone(),
            version: Revision::new(1).unwrap(),
            size: 1,
            expires_at: None,
        });
        assert_eq!(told(&known).0, Verdict::Unstaged);
        let row = |visible_after, claimed_until: Option<i64>, reclaiming| {
            Some(WindowRow {
                key: key.clone(),
                visible_after: at(visible_after),
                claimed_until: claimed_until.map(at),
                reclaiming,
                requeues: 0,
            })
        };
        known.row = row(101, None, false);
        assert_eq!(told(&known).0, Verdict::Waiting);
        known.reference = Some("t:c".to_owned());
        assert!(told(&known).1.contains("referred to by t:c"));
        known.pin = Some(("me".to_owned(), at(200)));
        assert!(told(&known).1.contains("pin of me"));
        known.row = row(100, Some(101), false);
        assert_eq!(told(&known).0, Verdict::Claimed);
        known.row = row(100, Some(100), true);
        assert_eq!(told(&known).0, Verdict::Reclaiming);
        known.row = row(100, Some(100), false);
        assert_eq!(told(&known).0, Verdict::Pinned);
        known.pin = None;
        assert_eq!(told(&known).0, Verdict::Referenced);
        known.reference = None;
        assert_eq!(told(&known).1, "would be deleted by the next sweep");
        known.asked = false;
        assert!(told(&known).1.contains("--liveness"));
        known.entry = None;
        assert_eq!(told(&known).0, Verdict::Leaves);
    }
}
