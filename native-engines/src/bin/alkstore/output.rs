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

pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// A number of bytes, to four digits or so.
pub fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    // Tenths of the unit, so that nothing but whole numbers is needed.
    let (mut tenths, mut unit) = (u128::from(bytes) * 10, None);
    for larger in units {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
        unit = Some(larger);
    }
    match unit {
        None => format!("{bytes} bytes"),
        Some(unit) => format!("{}.{} {unit}", tenths / 10, tenths % 10),
    }
}

/// One fact a line, aligned.
pub fn facts(facts: &[(&str, String)]) -> Result<()> {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<_> = facts
        .iter()
        .map(|(name, text)| format!("{name:width$}  {text}"))
        .collect();
    line(&lines.join(
        "
",
    ))
}

/// Whether a line on the error output can be written over.
pub fn can_rewrite() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Writes over the present line of the error output; empty to clear it.
pub fn rewrite(text: &str) {
    let _ = io::stderr().write_all(format!("\r\u{1b}[K{text}").as_bytes());
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

/// Whole milliseconds, for programs.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1024 * 1024 - 1, "1023.9 KiB"),
            (5 << 40, "5.0 TiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
