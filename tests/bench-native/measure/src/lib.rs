//! How every benchmark here measures: contenders take turns, round after round, so that whatever else the machine does
//! meets all of them; each round gives one ratio to each peer; the median of those is the figure.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// One contender: does its job `n` times.
pub struct Contender<'a> {
    name: &'static str,
    work: Box<dyn FnMut(u64) + 'a>,
}

impl<'a> Contender<'a> {
    pub fn new(name: &'static str, work: impl FnMut(u64) + 'a) -> Self {
        Self {
            name,
            work: Box::new(work),
        }
    }
}

impl Contender<'_> {
    /// Does the job without measuring it.
    pub fn warm(&mut self, n: u64) {
        (self.work)(n);
    }
}

/// A line of the table.
pub struct Row {
    job: String,
    engine: &'static str,
    peer: String,
    ratio: f64,
    goal: Option<f64>,
    /// Whether smaller is better.
    lower: bool,
    note: String,
}

/// The rows of one program.
pub struct Table {
    engine: &'static str,
    full: bool,
    rows: Vec<Row>,
}

impl Table {
    /// A table for `engine`. Rounds are long where the environment has `BENCH=full`.
    pub fn new(engine: &'static str) -> Self {
        let full = std::env::var_os("BENCH").is_some_and(|mode| mode == "full");
        Self {
            engine,
            full,
            rows: Vec::new(),
        }
    }

    pub fn full(&self) -> bool {
        self.full
    }

    /// Measures the first contender against each of the others; `goals` name peers and the least ratio of rates.
    pub fn race(&mut self, job: &str, contenders: &mut [Contender<'_>], goals: &[(&str, f64)]) {
        eprintln!("  {job} ...");
        let (rounds, slice) = if self.full { (31, 60) } else { (11, 20) };
        let slice = Duration::from_millis(slice);
        let sizes: Vec<u64> = contenders.iter_mut().map(|c| calibrate(c, slice)).collect();
        let mut times = vec![Vec::new(); contenders.len()];
        for _ in 0..rounds {
            for (at, contender) in contenders.iter_mut().enumerate() {
                times[at].push(per_job(contender, sizes[at]));
            }
        }
        let own = median(times[0].clone());
        for (at, contender) in contenders.iter().enumerate().skip(1) {
            let ratios = times[at].iter().zip(&times[0]).map(|(peer, own)| peer / own);
            let peer = median(times[at].clone());
            self.rows.push(Row {
                job: job.into(),
                engine: self.engine,
                peer: contender.name.into(),
                ratio: median(ratios.collect()),
                goal: goals.iter().find(|(name, _)| *name == contender.name).map(|(_, goal)| *goal),
                lower: false,
                note: format!("{} against {}", human(own), human(peer)),
            });
        }
    }

    /// The same for a job that cannot be repeated as it is: each round sets up and times both sides, and answers the
    /// seconds of the own one and of the peer.
    pub fn rounds(
        &mut self,
        job: &str,
        peer: &str,
        goal: Option<f64>,
        rounds: usize,
        mut round: impl FnMut() -> (f64, f64),
    ) {
        eprintln!("  {job} ...");
        let times: Vec<_> = (0..rounds).map(|_| round()).collect();
        let own = median(times.iter().map(|time| time.0).collect());
        let other = median(times.iter().map(|time| time.1).collect());
        self.rows.push(Row {
            job: job.into(),
            engine: self.engine,
            peer: peer.into(),
            ratio: median(times.iter().map(|(own, peer)| peer / own).collect()),
            goal,
            lower: false,
            note: format!("{} against {}", human(own), human(other)),
        });
    }

    /// Adds a figure that is no race.
    pub fn figure(&mut self, job: &str, peer: &str, value: f64, goal: Option<f64>, note: &str) {
        self.rows.push(Row {
            job: job.into(),
            engine: self.engine,
            peer: peer.into(),
            ratio: value,
            goal,
            lower: true,
            note: note.into(),
        });
    }

    /// Prints the table and writes `<engine>.json` into the folder that `BENCH_OUT` names, by default `target/bench`.
    pub fn finish(self) -> std::io::Result<()> {
        println!("| job | against | ratio | goal | |\n|---|---|---:|---:|---|");
        let mut json = String::from("[\n");
        for (at, row) in self.rows.iter().enumerate() {
            let met = row.goal.map(|goal| if row.lower { row.ratio <= goal } else { row.ratio >= goal });
            let goal = row.goal.map_or(String::new(), |goal| {
                format!("{} {goal}{}", if row.lower { "<=" } else { ">=" }, if met == Some(true) { "" } else { " MISSED" })
            });
            println!("| {} | {} | {:.2} | {goal} | {} |", row.job, row.peer, row.ratio, row.note);
            let _ = writeln!(
                json,
                r#"  {{"job": "{}", "engine": "{}", "peer": "{}", "ratio": {:.4}, "goal": {}, "lower": {}, "note": "{}"}}{}"#,
                row.job,
                row.engine,
                row.peer,
                row.ratio,
                row.goal.map_or("null".into(), |goal| goal.to_string()),
                row.lower,
                row.note,
                if at + 1 == self.rows.len() { "" } else { "," }
            );
        }
        json.push_str("]\n");
        let folder = std::env::var_os("BENCH_OUT").unwrap_or_else(|| "target/bench".into());
        std::fs::create_dir_all(&folder)?;
        std::fs::write(Path::new(&folder).join(format!("{}.json", self.engine)), json)
    }
}

/// How often the job fits into `slice`.
fn calibrate(contender: &mut Contender<'_>, slice: Duration) -> u64 {
    let mut n = 1;
    loop {
        let start = Instant::now();
        (contender.work)(n);
        let took = start.elapsed();
        if took * 4 > slice {
            return ((n as f64 * slice.as_secs_f64() / took.as_secs_f64()) as u64).max(1);
        }
        n *= 4;
    }
}

fn per_job(contender: &mut Contender<'_>, n: u64) -> f64 {
    let start = Instant::now();
    (contender.work)(n);
    start.elapsed().as_secs_f64() / n as f64
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A time for one job, as a person reads it.
pub fn human(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s => format!("{:.2} ms", s * 1e3),
    }
}
