//! The side of the keeper that speaks to the store, on a thread of its own: however long a call takes, the keeper
//! watches the time and the command.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use alkstore::{Error, Lock, LockInfo, Revision};

use super::keeper::Event;
use super::moment::{Moment, Terms};
use crate::exit::Failure;
use crate::locks::{holder, Holder};
use crate::place::{Missing, Open, PlaceArgs};

/// How long to wait between two tries: from the first to the second of these, growing.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(400));

/// What is wanted.
#[derive(Clone)]
pub struct Wish {
    pub place: PlaceArgs,
    pub name: String,
    /// `None` for one of its own.
    pub owner: Option<String>,
    pub terms: Terms,
    /// When to give up waiting; `None` for never.
    pub until: Option<Moment>,
}

/// What the keeper orders.
pub enum Order {
    Renew,
    /// The end, with or without a lock.
    Release,
}

#[derive(Clone, Debug)]
pub struct Grant {
    pub owner: String,
    pub token: Revision,
    /// Until when the lock is good for certain.
    pub deadline: Moment,
}

/// How a renewal came out.
pub enum Renewal {
    Good {
        deadline: Moment,
    },
    /// The grant is gone; who has the lock now, where somebody has.
    Lost(Option<String>),
    Failed(Failure),
}

/// Takes the lock, and then does as ordered until it is released.
pub fn run(wish: &Wish, orders: &Receiver<Order>, events: &Sender<Event>) {
    // Nobody listens any more where sending fails: then there is nothing left to do either.
    let open = match wish.place.open(Missing::Create, wish.terms.patience()) {
        Ok(open) => open,
        Err(failure) => {
            let _ = events.send(Event::Failed(failure));
            return;
        }
    };
    let taken = Tenant {
        wish,
        open: &open,
        orders,
        events,
    }
    .take();
    if let Some(lock) = taken {
        serve(wish, &open, lock, orders, events);
    }
    open.close();
}

struct Tenant<'a> {
    wish: &'a Wish,
    open: &'a Open,
    orders: &'a Receiver<Order>,
    events: &'a Sender<Event>,
}

impl Tenant<'_> {
    /// The lock, of which the keeper has been told; `None` where he was told that there will be none.
    fn take(&self) -> Option<Box<dyn Lock>> {
        let mut pause = PAUSES.0;
        let mut owner = self.owner();
        let mut told = false;
        // Whether a grant that comes back may be an earlier one, whose time is partly over.
        let mut shared = self.wish.owner.is_some();
        loop {
            let sent = Moment::now();
            let tried = self
                .open
                .store
                .try_lock(&self.wish.name, &owner, self.wish.terms.ttl);
            match self.open.wait(tried) {
                Ok(Some(lock)) => match self.settle(lock, sent, shared) {
                    Ok(Some(lock)) => return Some(lock),
                    Ok(None) => continue,
                    Err(error) => return self.fail(error),
                },
                Ok(None) => {
                    shared = self.wish.owner.is_some();
                    // The owner says since when the lock is held, so each try has its own.
                    owner = self.owner();
                    let give_up = self.wish.until.is_some_and(Moment::passed);
                    if give_up || !told {
                        let who = self.holder();
                        told = true;
                        let event = if give_up {
                            Event::Busy(who)
                        } else {
                            Event::Waiting(who)
                        };
                        if self.events.send(event).is_err() || give_up {
                            return None;
                        }
                    }
                }
                Err(error) => {
                    // While waiting, a store that is away for a moment is one more thing to wait for.
                    let give_up = self.wish.until.is_some_and(Moment::passed);
                    if !told || give_up || !error.is_retryable() && !error.is_outcome_unknown() {
                        return self.fail(error);
                    }
                    shared = true;
                }
            }
            let left = self
                .wish
                .until
                .map_or(pause, |until| until.left().min(pause));
            match self.orders.recv_timeout(left) {
                Err(RecvTimeoutError::Timeout) | Ok(Order::Renew) => {}
                Ok(Order::Release) | Err(RecvTimeoutError::Disconnected) => {
                    let _ = self.events.send(Event::Released(Ok(true)));
                    return None;
                }
            }
            pause = (pause * 3 / 2).min(PAUSES.1);
        }
    }

    fn owner(&self) -> String {
        self.wish.owner.clone().unwrap_or_else(Holder::fresh)
    }

    /// Learns the deadline of a grant that may be an earlier one. `None` where it lapsed meanwhile.
    fn settle(
        &self,
        mut lock: Box<dyn Lock>,
        sent: Moment,
        shared: bool,
    ) -> Result<Option<Box<dyn Lock>>, Error> {
        let mut sent = sent;
        if shared {
            sent = Moment::now();
            if !self.open.wait(lock.renew(self.wish.terms.ttl))? {
                return Ok(None);
            }
        }
        let grant = Grant {
            owner: lock.owner().to_owned(),
            token: lock.token(),
            deadline: sent.plus(self.wish.terms.ttl),
        };
        let _ = self.events.send(Event::Granted(grant));
        Ok(Some(lock))
    }

    fn fail(&self, error: Error) -> Option<Box<dyn Lock>> {
        let _ = self.events.send(Event::Failed(error.into()));
        None
    }

    fn holder(&self) -> Option<String> {
        who(self.open, &self.wish.name)
    }
}

fn who(open: &Open, name: &str) -> Option<String> {
    let info: Option<LockInfo> = open.wait(open.store.lock_info(name)).ok()?;
    let now = open.wait(open.store.now()).ok()?;
    info.filter(|info| !info.lapsed)
        .map(|info| holder(&info, now))
}

fn serve(
    wish: &Wish,
    open: &Open,
    mut lock: Box<dyn Lock>,
    orders: &Receiver<Order>,
    events: &Sender<Event>,
) {
    while let Ok(order) = orders.recv() {
        match order {
            Order::Renew => {
                let sent = Moment::now();
                let renewal = match open.wait(lock.renew(wish.terms.ttl)) {
                    Ok(true) => Renewal::Good {
                        deadline: sent.plus(wish.terms.ttl),
                    },
                    Ok(false) => Renewal::Lost(who(open, &wish.name)),
                    Err(error) => Renewal::Failed(error.into()),
                };
                if events.send(Event::Renewed(renewal)).is_err() {
                    return;
                }
            }
            Order::Release => {
                let released = release(open, lock);
                let _ = events.send(Event::Released(released));
                return;
            }
        }
    }
}

/// A release whose answer was lost is repeated; that it then finds nothing is no loss.
fn release(open: &Open, lock: Box<dyn Lock>) -> Result<bool, Failure> {
    const TRIES: usize = 3;
    let (name, owner, token) = (
        lock.name().to_owned(),
        lock.owner().to_owned(),
        lock.token(),
    );
    let mut lock = lock;
    let mut unknown = false;
    for again in (0..TRIES).rev() {
        match open.wait(lock.release()) {
            Ok(released) => return Ok(released || unknown),
            Err(error) if again == 0 => return Err(error.into()),
            Err(error) => unknown |= error.is_outcome_unknown(),
        }
        std::thread::sleep(PAUSES.0);
        lock = open.store.lock_handle(&name, &owner, token)?;
    }
    Ok(unknown)
}
