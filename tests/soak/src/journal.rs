//! What workers were told, written down as they are told it: the only witness besides the databases themselves.
//!
//! One file for each worker, appended to a line at a time, so that a kill loses no line that was written. A line is
//! `MICROS WHO WHAT KEY ID DETAIL`, with `-` for what there is not.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The journal of one worker.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    who: String,
}

impl Journal {
    /// Goes on with the file of `slot`; `who` also tells its generation.
    pub(crate) fn open(folder: &Path, slot: &str, who: &str) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join(slot))?;
        let who = who.to_owned();
        Ok(Self { file, who })
    }

    /// A line that cannot be written ends the worker: from then on nobody could tell what it did.
    pub(crate) fn note(&self, what: &str, key: &str, id: &str, detail: &str) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = since.unwrap_or_default().as_micros();
        let or_none = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
        let line = format!(
            "{micros} {} {what} {} {} {}\n",
            self.who,
            or_none(key),
            or_none(id),
            or_none(&detail.replace('\n', " "))
        );
        if (&self.file).write_all(line.as_bytes()).is_err() {
            std::process::abort();
        }
    }
}

/// One line, read back.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) key: String,
    pub(crate) id: String,
    pub(crate) detail: String,
}

impl Line {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(6, ' ').map(str::to_owned).skip(2);
        Some(Self {
            what: parts.next()?,
            key: parts.next()?,
            id: parts.next()?,
            detail: parts.next()?,
        })
    }
}

/// All journals of a run, read as they grow.
#[derive(Debug)]
pub(crate) struct Journals {
    folder: PathBuf,
    read: HashMap<PathBuf, u64>,
}

impl Journals {
    pub(crate) fn new(folder: &Path) -> Self {
        let folder = folder.to_owned();
        Self {
            folder,
            read: HashMap::new(),
        }
    }

    /// The whole lines that came since the last call, in the order of each file.
    pub(crate) fn more(&mut self) -> io::Result<Vec<Line>> {
        let mut lines = Vec::new();
        for path in self.files()? {
            let from = self.read.entry(path.clone()).or_default();
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::Start(*from))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            let whole = bytes.iter().rposition(|byte| *byte == b'\n');
            let whole = whole.map_or(0, |at| at + 1);
            *from += whole as u64;
            let text = String::from_utf8_lossy(&bytes[..whole]);
            lines.extend(text.lines().filter_map(Line::parse));
        }
        Ok(lines)
    }

    /// The last lines, of every worker, that have one of `words` in them, by time.
    pub(crate) fn history(&self, words: &[&str], most: usize) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for path in self.files()? {
            let text = fs::read(&path)?;
            let text = String::from_utf8_lossy(&text);
            let concerned = |line: &&str| line.split(' ').any(|word| words.contains(&word));
            found.extend(text.lines().filter(concerned).map(str::to_owned));
        }
        found.sort();
        Ok(found.split_off(found.len().saturating_sub(most)))
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(&self.folder)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect()
    }
}
