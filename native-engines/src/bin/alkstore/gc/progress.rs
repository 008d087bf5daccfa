//! How far it has got, on one line of the terminal; nothing where the error output is none.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::output;

/// How often the line is drawn at most.
const FRAME: Duration = Duration::from_millis(100);

/// How long the bar is.
const BAR: u64 = 20;

/// The line, until it is dropped.
pub struct Progress {
    doing: &'static str,
    total: Option<u64>,
    shown: bool,
    since: Instant,
    drawn: Option<Instant>,
}

impl Progress {
    pub fn new(doing: &'static str, quiet: bool) -> Self {
        Self {
            doing,
            total: None,
            shown: !quiet && output::can_rewrite(),
            since: Instant::now(),
            drawn: None,
        }
    }

    /// Whether anybody sees it: what it takes to learn the total may be spared else.
    pub fn is_shown(&self) -> bool {
        self.shown
    }

    /// Shows the beginning.
    pub fn begin(&mut self, total: Option<u64>) {
        self.total = total;
        self.since = Instant::now();
        self.at(0);
    }

    pub fn at(&mut self, done: u64) {
        if !self.shown || self.drawn.is_some_and(|drawn| drawn.elapsed() < FRAME) {
            return;
        }
        self.drawn = Some(Instant::now());
        output::rewrite(&line(self.doing, done, self.total, self.since.elapsed()));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            output::rewrite("");
        }
    }
}

fn line(doing: &str, done: u64, total: Option<u64>, since: Duration) -> String {
    let mut text = format!("{doing} ");
    // More may come than were there at the beginning.
    let total = total.map(|total| total.max(done));
    // Writing to a string cannot fail.
    if let Some(total @ 1..) = total {
        let part = |of: u64| u64::try_from(u128::from(done) * u128::from(of) / u128::from(total));
        let full = part(BAR).unwrap_or(BAR);
        for at in 0..BAR {
            text.push(if at < full { '#' } else { '.' });
        }
        let percent = part(100).unwrap_or(100);
        let _ = write!(text, " {percent:3}%  {done} of {total}");
    } else {
        let _ = write!(text, "{done}");
    }
    let millis = since.as_millis().max(1);
    let rate = u128::from(done) * 1000 / millis;
    if done == 0 || since < Duration::from_millis(500) {
        return text;
    }
    let _ = write!(text, "  {rate}/s");
    if let Some(left) = total.map(|total| total - done).filter(|left| *left > 0) {
        let seconds = u128::from(left) * millis / u128::from(done) / 1000;
        let left = Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX).max(1));
        let _ = write!(text, "  {} left", humantime::format_duration(left));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_how_far_how_fast_and_how_long() {
        let seconds = Duration::from_secs;
        for (done, total, since, text) in [
            (0, Some(200), seconds(0), "sweeping ....................   0%  0 of 200"),
            (50, Some(200), seconds(10), "sweeping #####...............  25%  50 of 200  5/s  30s left"),
            (200, Some(200), seconds(40), "sweeping #################### 100%  200 of 200  5/s"),
            // Became due meanwhile, or was pinned by others when counted.
            (250, Some(200), seconds(50), "sweeping #################### 100%  250 of 250  5/s"),
            (0, Some(0), seconds(1), "sweeping 0"),
            (3000, None, seconds(2), "sweeping 3000  1500/s"),
            (u64::MAX, Some(u64::MAX), seconds(1), "sweeping #################### 100%  18446744073709551615 of 18446744073709551615  18446744073709551615/s"),
        ] {
            assert_eq!(line("sweeping", done, total, since), text);
        }
    }
}
