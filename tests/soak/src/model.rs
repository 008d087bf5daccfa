//! The reference model: what must be there by what writers were told.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::journal::Line;

/// A reference by the journals.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, Default)]
struct Reference {
    key: String,
    /// Told that it is there.
    acknowledged: bool,
    /// Told that it is not.
    refused: bool,
    drop_begun: bool,
    dropped: bool,
}

/// References, payloads and counts, by the lines so far.
#[derive(Debug, Default)]
pub(crate) struct Model {
    references: HashMap<String, Reference>,
    /// Payloads of entries that were acknowledged and not deleted yet.
    stored: HashSet<String>,
    counts: BTreeMap<String, u64>,
}

impl Model {
    pub(crate) fn learn(&mut self, lines: &[Line]) {
        for line in lines {
            self.count(line);
            let reference = || line.id.clone();
            match line.what.as_str() {
                "referred" => {
                    let known = self.references.entry(reference()).or_default();
                    known.key.clone_from(&line.key);
                    known.acknowledged = true;
                }
                "refused" => self.references.entry(reference()).or_default().refused = true,
                "drop?" => self.references.entry(reference()).or_default().drop_begun = true,
                "dropped" => self.references.entry(reference()).or_default().dropped = true,
                "stored" if line.id != "-" => {
                    self.stored.insert(line.id.clone());
                }
                "reclaimed" => {
                    self.stored.remove(&line.id);
                }
                _ => {}
            }
        }
    }

    /// References that must be there, with their keys.
    pub(crate) fn certain(&self) -> Vec<(String, String)> {
        let certain = |known: &Reference| known.acknowledged && !known.drop_begun;
        let all = self.references.iter().filter(|(_, known)| certain(known));
        all.map(|(reference, known)| (reference.clone(), known.key.clone()))
            .collect()
    }

    pub(crate) fn is_certain(&self, reference: &str) -> bool {
        let known = self.references.get(reference);
        known.is_some_and(|known| known.acknowledged && !known.drop_begun)
    }

    /// Why a reference must not be there, where it must not.
    pub(crate) fn forbids(&self, reference: &str) -> Option<&'static str> {
        let known = self.references.get(reference)?;
        if known.dropped {
            Some("it was dropped, and acknowledged so")
        } else if known.refused {
            Some("its writer was told that it had failed")
        } else {
            None
        }
    }

    /// Whether a writer was told that it had published this payload.
    pub(crate) fn was_stored(&self, payload: &str) -> bool {
        self.stored.contains(payload)
    }

    /// Names are used once, so what is over needs no memory; a run may be long.
    pub(crate) fn forget_the_dropped(&mut self, seen: &HashSet<&str>) {
        self.references.retain(|reference, known| {
            !(known.acknowledged && known.dropped) || seen.contains(reference.as_str())
        });
    }

    pub(crate) fn total(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    /// What writers did.
    pub(crate) fn operations(&self) -> u64 {
        let words = [
            "dropped",
            "drop-not",
            "drop-unknown",
            "stored",
            "there",
            "unpublished",
            "publish-unknown",
        ];
        words.iter().map(|word| self.total(word)).sum()
    }

    fn count(&mut self, line: &Line) {
        let mut add =
            |what: &str, number: u64| *self.counts.entry(what.to_owned()).or_default() += number;
        add(&line.what, 1);
        match line.what.as_str() {
            "swept" => {
                for part in line.detail.split(' ') {
                    match part.split_once('=') {
                        Some(("stop", stop)) => add(&format!("stop {stop}"), 1),
                        Some((what, number)) => add(what, number.parse().unwrap_or(0)),
                        None => {}
                    }
                }
            }
            "unpublished"
                if line.detail.contains("being deleted") || line.detail.contains("reclaimed") =>
            {
                add("met a mark", 1);
            }
            "refused"
                if line.detail.contains("pin lapsed") || line.detail.contains("lost the pin") =>
            {
                add("met a lapsed pin", 1);
            }
            "refused" if line.detail.contains("deadlock") => add("met a deadlock", 1),
            _ => {}
        }
    }
}
