//! What people and programs read: colours on terminals alone, tables aligned there and separated by tabs elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, SystemTime};

use alkstore::{Owner, Timestamp};
use clap::builder::styling::{AnsiColor, Style};

use crate::exit::{Failure, Result};

/// Says what went wrong on the error output.
pub fn complain(text: &str) {
    say(AnsiColor::Red.on_default().bold(), text);
}

/// Says something that is worth knowing on the error output.
pub fn note(text: &str) {
    say(AnsiColor::Cyan.on_default().bold(), text);
}

pub fn advise(text: &str) {
    // The error output being closed is no reason to fail otherwise.
    let _ = writeln!(io::stderr(), "  {text}");
}

fn say(style: Style, text: &str) {
    let style = if coloured(&io::stderr()) {
        style
    } else {
        Style::new()
    };
    // One write, so that the lines of several processes on one terminal do not mix.
    let line = format!("{style}alkstore:{style:#} {text}\n");
    let _ = io::stderr().write_all(line.as_bytes());
}

fn coloured(stream: &impl IsTerminal) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    stream.is_terminal()
        && !set("NO_COLOR")
        && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Writes bytes to the output as they are.
pub fn bytes(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}

pub fn line(text: &str) -> Result<()> {
    bytes(format!("{text}\n").as_bytes())
}

pub fn json(value: &serde_json::Value) -> Result<()> {
    line(&value.to_string())
}

/// Rows under a heading, aligned, on a terminal; rows alone, separated by tabs, elsewhere.
pub fn table<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> Result<()> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        let lines: String = rows.iter().map(|row| row.join("\t") + "\n").collect();
        return bytes(lines.as_bytes());
    }
    let bold = if coloured(&stdout) {
        Style::new().bold()
    } else {
        Style::new()
    };
    let width: [usize; N] = std::array::from_fn(|at| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([heading[at].len()]).max().unwrap_or(0)
    });
    let aligned = |cells: [&str; N]| {
        let cells: Vec<_> = cells
            .iter()
            .zip(width)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned()
    };
    let mut text = format!("{bold}{}{bold:#}\n", aligned(heading));
    for row in rows {
        text += &aligned(row.each_ref().map(String::as_str));
        text.push('\n');
    }
    bytes(text.as_bytes())
}

/// Names and owners in messages: nothing in them can break a line or turn the reading order round.
pub fn printable(text: &str) -> String {
    Owner::new(text).map_or_else(|_| text.escape_debug().to_string(), |text| text.to_string())
}

/// Keys in messages and listings: as text where they are text.
pub fn key(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) => printable(text),
        Err(_) => key.escape_ascii().to_string(),
    }
}

/// An instant in UTC, to the millisecond.
pub fn instant(at: Timestamp) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    let since = u64::try_from(at.as_nanos()).map(Duration::from_nanos);
    let written = since.is_ok_and(|since| {
        let at = humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + since);
        write!(text, "{at}").is_ok()
    });
    if written {
        text
    } else {
        // Before 1970, which only a clock that is very wrong shows.
        format!("{} ns from 1970", at.as_nanos())
    }
}

/// A duration to three digits or so: nobody wants nanoseconds.
pub fn duration(duration: Duration) -> String {
    let rounded = if duration >= Duration::from_secs(10) {
        Duration::from_secs(duration.as_secs())
    } else if duration >= Duration::from_millis(10) {
        Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    } else {
        Duration::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    };
    humantime::format_duration(rounded).to_string()
}
