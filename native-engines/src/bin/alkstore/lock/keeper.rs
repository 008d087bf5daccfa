//! The keeper: from the first try to the release. It waits for one event after another, and looks at the time after
//! each of them.

use std::process::ExitCode;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;

use super::command::{self, Group};
use super::guard::Guard;
use super::moment::{Moment, Terms};
use super::signals::{self, Suspension};
use super::tenancy::{self, Grant, Order, Renewal, Wish};
use super::terminal::Terminal;
use super::LockArgs;
use crate::exit::{Failure, Result, LOST, SIGNALS, SYSTEM, USAGE};
use crate::locks::quoted;
use crate::output;
use crate::place::PlaceArgs;

/// How often a group that is being ended is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// What happens around the keeper.
pub enum Event {
    /// The lock was taken.
    Granted(Grant),
    /// It is not to be had yet; who has it.
    Waiting(Option<String>),
    /// It is not to be had, and the time to wait is over.
    Busy(Option<String>),
    /// It cannot be taken.
    Failed(Failure),
    Renewed(Renewal),
    Released(std::result::Result<bool, Failure>),
    Signal(Signal),
    /// The keeper had stopped itself and goes on.
    Resumed,
    /// The command has ended or was stopped.
    Command(WaitStatus),
}

pub fn run(place: &PlaceArgs, args: &LockArgs) -> Result {
    let terms = Terms::new(args.ttl, args.grace).ok_or_else(|| {
        Failure::new(
            USAGE,
            "the --grace may be half of the --ttl at most, so that renewals have their time",
        )
    })?;
    // An address that makes no sense is told before anything is started.
    place.describe()?;
    let (events, happened) = channel();
    let (suspension, blocked) = signals::watch(events.clone())?;
    let wish = Wish {
        place: place.clone(),
        name: args.name.clone(),
        owner: args.owner.clone(),
        terms,
        until: match args.wait {
            _ if args.try_once => Some(Moment::now()),
            Some(Some(limit)) => Some(Moment::now().plus(limit)),
            _ => None,
        },
    };
    let (orders, ordered) = channel();
    let told = events.clone();
    std::thread::Builder::new()
        .name("store".to_owned())
        .spawn(move || tenancy::run(&wish, &ordered, &told))
        .map_err(|error| Failure::system("a thread cannot be started", error))?;

    let grant = match take(args, &orders, &happened, &suspension)? {
        Taken::Grant(grant) => grant,
        Taken::Interrupted(signal) => return Ok(died_of(signal, false)),
    };
    let deadline = grant.deadline;
    if terms.term_at(deadline).passed() {
        let _ = release(&orders, &happened, deadline);
        let text = format!(
            "lost the lock {} before the command was run: this process was stopped meanwhile",
            quoted(&args.name)
        );
        return Err(Failure::new(LOST, text));
    }
    let started = Guard::start(terms, deadline).and_then(|mut guard| {
        let group = command::start(args, &grant, place, &blocked, events)?;
        guard.watch(group);
        Ok((guard, group))
    });
    let (guard, group) = match started {
        Ok(started) => started,
        Err(failure) => {
            let _ = release(&orders, &happened, deadline);
            return Err(failure);
        }
    };
    let mut keeper = Keeper {
        name: quoted(&args.name),
        terms,
        deadline,
        renew_at: deadline.minus(terms.ttl).plus(terms.renewal()),
        renewing: false,
        trouble: None,
        group,
        guard,
        orders,
        suspension,
        terminal: Terminal::open(),
        stopped: None,
        suspended: false,
        going_on: false,
        ending: None,
    };
    if let Some(terminal) = keeper.terminal.as_ref().filter(|_| Terminal::is_whole()) {
        terminal.give(group.id());
    }
    let end = keeper.keep(&happened);
    Ok(keeper.finish(&end, &happened))
}

enum Taken {
    Grant(Grant),
    Interrupted(Signal),
}

fn take(
    args: &LockArgs,
    orders: &Sender<Order>,
    happened: &Receiver<Event>,
    suspension: &Suspension,
) -> Result<Taken> {
    let mut interrupted = None;
    let lock = || format!("the lock {} is ", quoted(&args.name));
    loop {
        match (happened.recv(), interrupted) {
            (Ok(Event::Granted(grant)), None) => return Ok(Taken::Grant(grant)),
            (Ok(Event::Waiting(who)), _) if !args.quiet && !args.try_once => {
                let who = who.as_deref().unwrap_or("not free");
                output::note(&format!("{}{who}; waiting", lock()));
            }
            (Ok(Event::Busy(who)), None) => {
                let who = who.as_deref().unwrap_or("held by somebody else");
                return Err(Failure::new(
                    args.conflict_exit_code,
                    format!("{}{who}", lock()),
                ));
            }
            (Ok(Event::Failed(failure)), None) => return Err(failure),
            // The tenancy has ended as it was told to, with the lock released where it had come at the last moment.
            (Ok(Event::Released(_) | Event::Busy(_) | Event::Failed(_)) | Err(_), Some(signal)) => {
                return Ok(Taken::Interrupted(signal))
            }
            (Ok(Event::Signal(signal)), _) => match signal {
                Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM => {
                    if interrupted.is_some() {
                        return Ok(Taken::Interrupted(signal));
                    }
                    interrupted = Some(signal);
                    let _ = orders.send(Order::Release);
                }
                Signal::SIGTSTP => suspension.begin_alone(),
                _ => {}
            },
            (Ok(_), _) => {}
            (Err(_), None) => {
                return Err(Failure::new(
                    SYSTEM,
                    "the thread that speaks to the store has ended",
                ))
            }
        }
    }
}

struct Keeper {
    name: String,
    terms: Terms,
    deadline: Moment,
    renew_at: Moment,
    /// A renewal was ordered and has not been answered.
    renewing: bool,
    /// Why the last renewal failed.
    trouble: Option<String>,
    group: Group,
    guard: Guard,
    orders: Sender<Order>,
    suspension: Suspension,
    terminal: Option<Terminal>,
    /// The signal that stopped the command.
    stopped: Option<Signal>,
    /// This process is about to stop, or has not got to what comes after it yet.
    suspended: bool,
    /// The command is to go on once the lock is known to be good.
    going_on: bool,
    ending: Option<Ending>,
}

/// The lock is lost.
struct Ending {
    kill_at: Moment,
    killed: bool,
    status: Option<WaitStatus>,
}

enum End {
    Lost,
    Ended {
        status: WaitStatus,
        had_terminal: bool,
    },
}

impl Keeper {
    fn keep(&mut self, happened: &Receiver<Event>) -> End {
        loop {
            match happened.recv_timeout(self.nap()) {
                Ok(Event::Command(WaitStatus::Stopped(_, signal))) => self.on_stop(signal),
                Ok(Event::Command(status)) => {
                    if let Some(ending) = &mut self.ending {
                        ending.status = Some(status);
                    } else if self.ended_unwatched() {
                        return End::Lost;
                    } else {
                        let had_terminal = self.terminal.as_ref().is_some_and(Terminal::is_given);
                        return End::Ended {
                            status,
                            had_terminal,
                        };
                    }
                }
                Ok(Event::Renewed(renewal)) => self.on_renewal(renewal),
                Ok(Event::Signal(signal)) => self.on_signal(signal),
                Ok(Event::Resumed) => self.on_resumed(),
                // None of the others comes any more.
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.lose("this program has failed"),
            }
            if self.look() {
                return End::Lost;
            }
        }
    }

    fn nap(&self) -> Duration {
        if self.ending.is_some() {
            return LOOK;
        }
        let term_at = self.terms.term_at(self.deadline);
        let next = if self.renewing {
            term_at
        } else {
            term_at.min(self.renew_at)
        };
        next.nap()
    }

    /// Does what is due. True once the command's group was ended.
    fn look(&mut self) -> bool {
        if let Some(ending) = &mut self.ending {
            if ending.kill_at.passed() && !ending.killed {
                self.group.signal(Signal::SIGKILL);
                ending.killed = true;
            }
            return ending.status.is_some() && (ending.killed || self.group.is_gone());
        }
        if self.suspended {
            return false;
        }
        if self.terms.term_at(self.deadline).passed() && !self.going_on {
            let why = self.trouble.take();
            self.lose(
                why.as_deref().unwrap_or(
                    "this process was stopped, or the store did not answer, for too long",
                ),
            );
            return false;
        }
        if self.renew_at.passed() && !self.renewing {
            self.renewing = true;
            let _ = self.orders.send(Order::Renew);
        }
        false
    }

    fn on_renewal(&mut self, renewal: Renewal) {
        self.renewing = false;
        match renewal {
            _ if self.ending.is_some() => {}
            Renewal::Good { deadline } => {
                self.deadline = deadline;
                self.renew_at = deadline.minus(self.terms.ttl).plus(self.terms.renewal());
                if self.trouble.take().is_some() {
                    output::note(&format!("the lock {} is renewed again", self.name));
                }
                if !self.going_on {
                    self.guard.until(deadline);
                } else if self.terms.term_at(deadline).passed() {
                    // The answer to what was asked before the stop.
                    self.renew_at = Moment::now();
                } else {
                    self.go_on();
                }
            }
            Renewal::Lost(who) => {
                let why = who.map_or_else(
                    || "it was released, or lapsed".to_owned(),
                    |who| format!("it is now {who}"),
                );
                self.lose(&why);
            }
            Renewal::Failed(failure) => {
                if self.trouble.is_none() {
                    let name = &self.name;
                    output::complain(&format!(
                        "renewing the lock {name} failed, trying again: {}",
                        failure.text()
                    ));
                }
                self.trouble = Some(failure.text().to_owned());
                self.renew_at = Moment::now().plus(self.terms.retry());
                if self.going_on && self.terms.term_at(self.deadline).passed() {
                    self.lose(failure.text());
                }
            }
        }
    }

    fn on_signal(&mut self, signal: Signal) {
        match signal {
            Signal::SIGCONT if self.stopped.is_some() => self.check_and_go_on(),
            Signal::SIGTERM | Signal::SIGHUP => {
                self.group.signal(signal);
                if self.stopped.is_some() {
                    self.check_and_go_on();
                }
            }
            _ => self.group.signal(signal),
        }
    }

    /// The command was stopped: by Ctrl-Z, because it wants the terminal, or by somebody.
    fn on_stop(&mut self, signal: Signal) {
        if self.ending.is_some() {
            self.group.signal(Signal::SIGCONT);
            return;
        }
        match signal {
            Signal::SIGTTIN | Signal::SIGTTOU => {
                if let Some(terminal) = &self.terminal {
                    terminal.give(self.group.id());
                    if terminal.is_of(self.group.id()) {
                        self.group.signal(Signal::SIGCONT);
                        return;
                    }
                }
            }
            Signal::SIGTSTP => {}
            // The lock is held on for a command that somebody has stopped.
            _ => {
                self.stopped = Some(signal);
                return;
            }
        }
        self.stopped = Some(signal);
        self.guard.pause();
        if let Some(terminal) = &self.terminal {
            terminal.take_back();
        }
        self.suspended = true;
        self.suspension.begin();
    }

    fn on_resumed(&mut self) {
        self.suspended = false;
        // The guard stays paused until the command goes on: told of a deadline that has passed, it would end the
        // stopped command in a way that lets it run once more.
        let wants_terminal = matches!(self.stopped, Some(Signal::SIGTTIN | Signal::SIGTTOU));
        let has_terminal = self.terminal.as_ref().is_some_and(Terminal::is_ours);
        // Where nobody could stop us, and the terminal is another job's, going on would stop the command again at once.
        if !wants_terminal || has_terminal {
            self.check_and_go_on();
        }
    }

    /// Before the command goes on the store is asked whether the lock is still good.
    fn check_and_go_on(&mut self) {
        if self.stopped.is_some() && self.ending.is_none() {
            self.suspended = false;
            self.going_on = true;
            self.renew_at = Moment::now();
        }
    }

    fn go_on(&mut self) {
        self.stopped = None;
        self.going_on = false;
        self.guard.until(self.deadline);
        if let Some(terminal) = self.terminal.as_ref().filter(|_| Terminal::is_whole()) {
            terminal.give(self.group.id());
        }
        self.group.signal(Signal::SIGCONT);
    }

    /// Begins to end the command. One that is stopped does not come to run again, and one that had its time neither.
    fn lose(&mut self, why: &str) {
        if self.ending.is_some() {
            return;
        }
        output::complain(&format!(
            "lost the lock {}, ending the command: {why}",
            self.name
        ));
        let last = self.terms.kill_at(self.deadline);
        let kill_at = if self.stopped.is_some() {
            Moment::now()
        } else {
            last.min(Moment::now().plus(self.terms.grace))
        };
        if !kill_at.passed() {
            self.group.terminate();
        }
        self.going_on = false;
        self.ending = Some(Ending {
            kill_at,
            killed: false,
            status: None,
        });
    }

    /// Whether the command ended at a time when the guard ends it, and this process was not there to see it. Then
    /// nobody knows whether it came to its end, and while the lock was good.
    fn ended_unwatched(&self) -> bool {
        let unwatched = self.terms.term_at(self.deadline).passed();
        if unwatched {
            output::complain(&format!(
                "lost the lock {}: this process was stopped for too long to see how the command ended",
                self.name
            ));
        }
        unwatched
    }

    /// The command is no more: releases the lock and tells the exit code.
    fn finish(self, end: &End, happened: &Receiver<Event>) -> ExitCode {
        if let Some(terminal) = &self.terminal {
            terminal.take_back();
            if matches!(end, End::Lost) {
                terminal.restore();
            }
        }
        if matches!(end, End::Ended { .. }) && !self.group.is_gone() {
            output::note(
                "the command has left processes in the background, which go on without the lock",
            );
        }
        if matches!(end, End::Lost) {
            // What is left of the group, should it have lost its leader to the guard.
            self.group.signal(Signal::SIGKILL);
        }
        self.guard.done();
        let released = release(&self.orders, happened, self.deadline);
        let &End::Ended {
            status,
            had_terminal,
        } = end
        else {
            return ExitCode::from(LOST);
        };
        match released {
            Some(Ok(true)) => {}
            Some(Ok(false)) => {
                output::complain(&format!(
                    "lost the lock {} before the command came to its end: it was released, or lapsed",
                    self.name
                ));
                return ExitCode::from(LOST);
            }
            failed => {
                let why = failed.and_then(std::result::Result::err);
                let why = why
                    .as_ref()
                    .map_or("the store does not answer", Failure::text);
                let left = output::duration(self.deadline.left());
                output::complain(&format!(
                    "the lock {} could not be released and lapses by itself in {left}: {why}",
                    self.name
                ));
            }
        }
        match status {
            WaitStatus::Exited(_, code) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
            WaitStatus::Signaled(_, signal, _) => died_of(signal, had_terminal),
            _ => ExitCode::from(u8::MAX),
        }
    }
}

/// Releases the lock; `None` where there was no answer by the time the lock lapses by itself, or somebody could not
/// wait.
fn release(
    orders: &Sender<Order>,
    happened: &Receiver<Event>,
    deadline: Moment,
) -> Option<std::result::Result<bool, Failure>> {
    orders.send(Order::Release).ok()?;
    let until = deadline.max(Moment::now().plus(Duration::from_secs(1)));
    while !until.passed() {
        match happened.recv_timeout(until.nap()) {
            Ok(Event::Released(released)) => return Some(released),
            Ok(Event::Signal(Signal::SIGINT | Signal::SIGTERM))
            | Err(RecvTimeoutError::Disconnected) => return None,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
    }
    None
}

/// 128 and the signal. An interrupt ends this process too, as it would have without the lock in between: where the
/// terminal was the command's alone, nobody else in our group has heard of it.
fn died_of(signal: Signal, with_group: bool) -> ExitCode {
    if signal == Signal::SIGINT {
        signals::die_of_interrupt(with_group);
    }
    ExitCode::from(SIGNALS.saturating_add(u8::try_from(signal as i32).unwrap_or(0)))
}
