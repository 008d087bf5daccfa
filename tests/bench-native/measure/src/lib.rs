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

    /// The same for a job of `items` and several peers: each round sets up and times everyone, and answers the seconds of
    /// the own side and then of `peers`, in their order. A peer has a goal or none. The rates are told.
    pub fn bulk(
        &mut self,
        job: &str,
        items: usize,
        peers: &[(&str, Option<f64>)],
        rounds: usize,
        mut round: impl FnMut() -> Vec<f64>,
    ) {
        eprintln!("  {job} ...");
        let times: Vec<_> = (0..rounds).map(|_| round()).collect();
        let middle = |at: usize| median(times.iter().map(|times| times[at]).collect());
        for (at, (peer, goal)) in peers.iter().enumerate() {
            self.rows.push(Row {
                job: job.into(),
                engine: self.engine,
                peer: (*peer).into(),
                ratio: median(times.iter().map(|times| times[at + 1] / times[0]).collect()),
                goal: *goal,
                lower: false,
                note: format!("{} against {}", rate(items, middle(0)), rate(items, middle(at + 1))),
            });
        }
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

/// So many items in so many seconds, as a person reads it.
pub fn rate(items: usize, seconds: f64) -> String {
    match items as f64 / seconds {
        rate if rate >= 1e6 => format!("{:.2} M/s", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.0} k/s", rate / 1e3),
        rate => format!("{rate:.0}/s"),
    }
}

/// The jobs that the command line names, each as often as it likes; all where it names none.
pub fn wanted(job: &str) -> bool {
    let named: Vec<_> = std::env::args().skip(1).collect();
    named.is_empty() || named.iter().any(|named| named == job)
}

/// Does `work`, and answers by how many bytes the memory of this process was larger at its peak than before.
pub fn peak(work: impl FnOnce()) -> f64 {
    // Makes the peak what there is now.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = status("VmRSS:");
    work();
    status("VmHWM:") - before
}

/// Bytes of this process that are in memory.
pub fn resident() -> f64 {
    status("VmRSS:")
}

fn status(line: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|found| found.strip_prefix(line));
    let kilobytes = found.and_then(|found| found.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kilobytes.unwrap_or(f64::NAN) * 1024.0
}

/// Runs this program anew with `args`, in a process whose memory nobody has used yet, and answers the numbers it prints.
pub fn child(args: &[&str]) -> Vec<f64> {
    let program = std::env::current_exe().expect("the path of this program");
    let output = std::process::Command::new(program).args(args).output().expect("this program runs again");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// A time for one job, as a person reads it.
pub fn human(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s => format!("{:.2} ms", s * 1e3),
    }
}
