//! Random operations on the bare state, with clocks and limits that run wild: the counts stay exact, nothing panics,
//! and what a snapshot says is what the state holds.
#![allow(clippy::unwrap_used)] // in a test an unwrap is its failure

use std::collections::{BTreeSet, HashSet};
use std::mem::{discriminant, Discriminant};
use std::time::Duration;

use alkstore::{
    Candidate, Changeset, Claim, ErrorKind, Expect, Key, LockName, Millis, Owner, PutMode, Reclaim,
    Restage, Revision, Timestamp, Ttl, Value,
};
use alkstore_mem::{Claimant, Handle, Options, PutRow, Seeds, State};

const NAMES: u64 = 2_000;
const ROUNDS: usize = 12_000;

struct Random(u64);

impl Random {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Few names are used much, many seldom, so that slots are left, kept as ghosts, forgotten and given away.
    fn name(&mut self) -> String {
        let number = if self.below(2) == 0 {
            self.below(8)
        } else {
            self.below(NAMES)
        };
        let length = usize::try_from(number % 37).unwrap();
        format!("n{number}{}", "x".repeat(length))
    }

    fn ttl(&mut self) -> Ttl {
        match self.below(20) {
            0 => Ttl::MAX,
            1 => Ttl::new(Duration::from_nanos(1)).unwrap(),
            n => Ttl::try_from(Millis(f64::from(u8::try_from(n * 3).unwrap()))).unwrap(),
        }
    }

    fn restage(&mut self) -> Restage {
        [Restage::Move, Restage::Keep][usize::from(self.below(2) == 0)]
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let at = self.below(from.len().max(1) as u64);
        from.get(usize::try_from(at).unwrap()).cloned()
    }
}

fn key(name: &str) -> Key<'static> {
    Key::new(name.as_bytes().to_vec()).unwrap()
}

/// What a snapshot says, read by hand.
struct Census {
    counts: [usize; 3],
    bytes: usize,
    /// Rows of the window that are marked, and that were put back.
    marks: usize,
    requeued: usize,
}

fn census(state: &State, snapshot: &[u8]) -> Census {
    let mut rest = &snapshot[12..snapshot.len() - 4];
    let mut take = |length: usize| {
        let (taken, more) = rest.split_at(length);
        rest = more;
        taken
    };
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let short = |bytes: &[u8]| usize::from(u16::from_le_bytes(bytes.try_into().unwrap()));
    let revision = number(take(8));
    let counts = [(); 3].map(|()| usize::try_from(number(take(8))).unwrap());
    let (mut bytes, mut marks, mut requeued) = (0, 0, 0);
    let mut given = BTreeSet::new();
    let mut given = |number: u64| {
        assert!((1..=revision).contains(&number));
        assert!(given.insert(number), "{number} was given twice");
        Revision::new(number).unwrap()
    };
    for _ in 0..counts[0] {
        let length = short(take(2));
        bytes += take(length).len();
        let length = short(take(2));
        let owner = take(length);
        let token = given(number(take(8)));
        // An owner that the state itself mints is kept as its token alone.
        if owner != state.minted_owner(token).as_bytes() {
            bytes += owner.len();
        }
        take(8);
    }
    for _ in 0..counts[1] {
        let length = short(take(2));
        bytes += take(length).len();
        given(number(take(8)));
        if take(1) == [1] {
            take(8);
        }
        let length = u32::from_le_bytes(take(4).try_into().unwrap());
        bytes += take(length as usize).len();
    }
    for _ in 0..counts[2] {
        let length = short(take(2));
        bytes += take(length).len();
        take(8);
        if take(1) == [1] {
            given(number(take(8)));
            take(8);
        }
        let marked = take(1)[0] == 1;
        let count = u32::from_le_bytes(take(4).try_into().unwrap());
        marks += usize::from(marked);
        requeued += usize::from(count > 0);
    }
    assert!(rest.is_empty());
    assert_eq!(revision, state.stats().revision);
    Census {
        counts,
        bytes,
        marks,
        requeued,
    }
}

struct Run {
    random: Random,
    state: State,
    options: Options,
    now: Timestamp,
    grants: Vec<(String, String, Revision, Handle)>,
    handles: Vec<Handle>,
    claims: Vec<Claim>,
    epochs: Vec<Revision>,
    /// The kinds of answers that marking and deleting gave.
    answers: HashSet<Discriminant<Reclaim>>,
}

impl Run {
    fn new(seed: u64, options: Options) -> Self {
        let seeds = Seeds {
            hash: seed,
            mint: seed,
        };
        Self {
            random: Random(seed),
            state: State::new(seeds, options),
            options,
            now: Timestamp::default(),
            grants: Vec::new(),
            handles: Vec::new(),
            claims: Vec::new(),
            epochs: Vec::new(),
            answers: HashSet::new(),
        }
    }

    fn tick(&mut self) {
        let by = Duration::from_micros(self.random.below(3_000));
        self.now = match self.random.below(400) {
            0 => Timestamp::MAX,
            1 => Timestamp::MIN,
            2 => Timestamp::default(),
            3 => Timestamp::from_nanos(self.now.as_nanos().saturating_sub(5_000_000)),
            _ => self.now.plus(by),
        };
    }

    fn step(&mut self) {
        match self.random.below(12) {
            0..=2 => self.locks(),
            3..=5 => self.entries(),
            6 => self.changeset(),
            7 | 8 => self.window(),
            9 | 10 => self.deletion(),
            _ => self.rest(),
        }
    }

    fn locks(&mut self) {
        let (state, random, now) = (&mut self.state, &mut self.random, self.now);
        let text = random.name();
        let name = LockName::new(&*text).unwrap();
        let ttl = random.ttl();
        let old = random.pick(&self.grants);
        let owner = random.name();
        let valid = Owner::new(&*owner).unwrap();
        let claimant = if random.below(3) == 0 {
            Claimant::Fresh
        } else {
            Claimant::Named(&valid)
        };
        match (random.below(8), old) {
            (0..=2, _) | (_, None) => {
                if let Some(grant) = may_be_full(state.try_lock(&name, claimant, ttl, now)) {
                    let owner = match claimant {
                        Claimant::Fresh => state.minted_owner(grant.token),
                        Claimant::Named(_) => owner,
                    };
                    self.grants.push((text, owner, grant.token, grant.handle));
                }
            }
            (3, Some((.., handle))) => {
                if let Some(again) = state.try_lock_by(handle, claimant, ttl, now) {
                    may_be_full(again);
                }
            }
            (4, Some((.., token, handle))) => {
                state.renew_by(handle, token, ttl, now);
            }
            (5, Some((.., token, handle))) => {
                let was_there = state.release_by(handle, token);
                assert!(!was_there || !state.release_by(handle, token));
            }
            (6, Some((name, owner, token, _))) => {
                let (name, owner) = (LockName::new(name).unwrap(), Owner::new(owner).unwrap());
                let renewed = state.renew(&name, &owner, token, ttl, now);
                assert!(renewed.is_none_or(|deadline| deadline == now.after(ttl)));
                assert!(renewed.is_none() || state.release(&name, &owner, token));
            }
            (_, Some((name, _, token, _))) => {
                state.force_release(&LockName::new(name).unwrap(), token);
            }
        }
    }

    fn entries(&mut self) {
        let (state, random, now) = (&mut self.state, &mut self.random, self.now);
        let key = key(&random.name());
        let size = usize::try_from(random.below(90)).unwrap();
        let version = state.get(&key, now).map(|entry| entry.version);
        let mode = match (random.below(3), version) {
            (0, _) => PutMode::Create,
            (1, Some(version)) => PutMode::Update(version),
            _ => PutMode::Replace,
        };
        let guard = random.pick(&self.grants).filter(|_| random.below(9) == 0);
        let put = PutRow {
            value: Value::from(vec![7; size]),
            mode,
            ttl: (random.below(2) == 0).then(|| random.ttl()),
            guard: guard.map(|(name, _, token, _)| (LockName::new(name).unwrap(), token)),
        };
        let handle = random.pick(&self.handles);
        match (random.below(6), handle) {
            (0 | 1, _) | (_, None) => {
                may_be_full(state.put(&key, put, now).map(Some));
            }
            (2, Some(handle)) => {
                if let Some(put) = state.put_by(handle, put, now) {
                    may_be_full(put.map(Some));
                }
            }
            (3, Some(handle)) => {
                let value = state.value_by(handle, now).map(Option::<&Value>::cloned);
                let entry = state.get_by(handle, now);
                assert_eq!(value, entry.map(|entry| entry.map(|entry| entry.value)));
            }
            (4, _) => {
                state.touch(&key, random.ttl(), now);
            }
            _ => {
                let deleted = state.delete(&key, version, now);
                assert_eq!(deleted, version.is_some());
            }
        }
        if let Some(handle) = state.entry_handle(&key) {
            self.handles.push(handle);
        }
    }

    fn changeset(&mut self) {
        let (state, random, now) = (&mut self.state, &mut self.random, self.now);
        let mut changeset = Changeset::<Value>::default();
        for _ in 0..random.below(6) {
            let key = key(&random.name());
            let value = Value::from(vec![9; usize::try_from(random.below(90)).unwrap()]);
            let ttl = (random.below(2) == 0).then(|| random.ttl());
            let _ = match random.below(7) {
                0 => changeset.put(key, value, PutMode::Create, ttl),
                1 | 2 => changeset.put(key, value, PutMode::Replace, ttl),
                3 => changeset.delete(key),
                4 => changeset.stage(key, now, random.restage()),
                5 => changeset.unstage(key),
                _ => changeset.check(key, Expect::Absent),
            };
        }
        let puts: Vec<_> = changeset.keys().map(|(key, _)| key.clone()).collect();
        let before = state.stats().revision;
        match state.commit(changeset, now) {
            Ok(commit) => {
                let given = state.stats().revision - before;
                assert_eq!(commit.versions.len() as u64, given);
            }
            Err(error) => {
                let expected = [ErrorKind::Conflict, ErrorKind::CapacityExceeded];
                assert!(expected.contains(&error.kind()), "{error}");
                assert_eq!(state.stats().revision, before, "{puts:?}");
            }
        }
    }

    fn window(&mut self) {
        let (state, random, now) = (&mut self.state, &mut self.random, self.now);
        let limit = usize::try_from(random.below(5)).unwrap();
        let due = [now, Timestamp::MAX, Timestamp::MIN][usize::try_from(random.below(3)).unwrap()];
        match random.below(8) {
            0..=2 => {
                let rows: Vec<_> = (0..random.below(4))
                    .map(|_| Candidate {
                        key: key(&random.name()),
                        visible_after: now.plus(Duration::from_millis(random.below(20))),
                    })
                    .collect();
                may_be_full(state.window_stage(&rows, random.restage(), now).map(Some));
            }
            3 => {
                state.window_take(due, Some(limit), now);
            }
            4 | 5 => {
                let claims = state.window_claim(due, random.ttl(), limit, now).unwrap();
                assert!(claims.len() <= limit);
                let keys: BTreeSet<_> = claims.iter().map(|claim| &claim.key).collect();
                assert_eq!(keys.len(), claims.len(), "a row was handed out twice");
                self.claims.extend(claims);
            }
            6 => {
                let claims: Vec<_> = random.pick(&self.claims).into_iter().collect();
                let settled = state.window_settle(&claims, now);
                assert!(settled == 0 || state.window_settle(&claims, now) == 0);
            }
            _ => {
                let claims: Vec<_> = random.pick(&self.claims).into_iter().collect();
                state.window_requeue(&claims, due, now);
                state.window_unstage(&[key(&random.name())]);
            }
        }
    }

    fn deletion(&mut self) {
        let (state, random, now) = (&mut self.state, &mut self.random, self.now);
        // The latest claim is the one that stands most often.
        let mut claims: Vec<_> = self.claims.last().cloned().into_iter().collect();
        claims.extend((0..random.below(3)).filter_map(|_| random.pick(&self.claims)));
        let epoch = random.pick(&self.epochs).filter(|_| random.below(4) == 0);
        let keys: Vec<_> = claims.iter().map(|claim| claim.key.clone()).collect();
        match random.below(9) {
            0..=2 => {
                let marks = fenced(state.window_mark(&claims, epoch, now));
                for (claim, mark) in claims.iter().zip(marks.into_iter().flatten()) {
                    self.answers.insert(discriminant(&mark));
                    let row = state.window_info(&claim.key);
                    let reclaiming = row.is_some_and(|row| row.reclaiming);
                    assert!(mark != Reclaim::Marked || reclaiming);
                    assert_ne!(mark, Reclaim::Unmarked);
                    if reclaiming {
                        let refused = state.put(&claim.key, replaced(), now).unwrap_err();
                        assert_eq!(refused.kind(), ErrorKind::Conflict);
                    }
                }
            }
            step @ 3..=5 => {
                let judged = state.window_judge(&keys, now);
                let gone = if step == 5 {
                    state.window_delete(&claims, epoch, now)
                } else {
                    state.window_finish(&claims, epoch, now)
                };
                let mut seen = BTreeSet::new();
                for ((claim, gone), judged) in claims
                    .iter()
                    .zip(fenced(gone).into_iter().flatten())
                    .zip(judged)
                {
                    self.answers.insert(discriminant(&gone));
                    let left = state.window_info(&claim.key).is_some();
                    match gone {
                        Reclaim::Deleted { .. } | Reclaim::Absent => {
                            assert_eq!(gone, judged, "what it was judged to be");
                            assert!(!left && state.get(&claim.key, now).is_none());
                            assert!(seen.insert(&claim.key), "a row went twice");
                        }
                        Reclaim::Unmarked => assert!(step != 5 && left),
                        Reclaim::Marked => assert!(step == 5 && left),
                        Reclaim::Voided | Reclaim::Lapsed => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
            6 => {
                let all = state.window_list(None, usize::MAX);
                assert_eq!(all.len(), state.stats().window);
                let order = |row: &alkstore::WindowRow| (row.visible_after, row.key.clone());
                assert!(all.windows(2).all(|two| order(&two[0]) < order(&two[1])));
                let after = random.pick(&all);
                let from = after.as_ref().map_or(0, |after| {
                    1 + all.iter().position(|row| row == after).unwrap()
                });
                let limit = usize::try_from(random.below(5)).unwrap();
                let end = all.len().min(from + limit);
                assert_eq!(state.window_list(after.as_ref(), limit), all[from..end]);
                for row in &all {
                    assert_eq!(state.window_info(&row.key).as_ref(), Some(row));
                }
                let counted = state.window_stats(now, now);
                let count = |is: fn(&alkstore::WindowRow, Timestamp) -> bool| {
                    all.iter().filter(|row| is(row, now)).count() as u64
                };
                assert_eq!(counted.rows, all.len() as u64);
                assert_eq!(counted.due, count(|row, now| row.visible_after <= now));
                assert_eq!(counted.reclaiming, count(|row, _| row.reclaiming));
                assert_eq!(counted.requeued, count(|row, _| row.requeues > 0));
                let live = |row: &alkstore::WindowRow, now| {
                    row.claimed_until.is_some_and(|until| until > now)
                };
                assert_eq!(counted.claimed, count(live));
                assert_eq!(counted.oldest, all.first().map(|row| row.visible_after));
            }
            7 => {
                let begun = may_be_full(state.sweep_begin(random.ttl(), now));
                let last = self.epochs.last().copied();
                assert!(begun.is_none() || begun > last, "{begun:?} after {last:?}");
                self.epochs.extend(begun);
            }
            _ => {
                if let Some(epoch) = random.pick(&self.epochs) {
                    state.sweep_extend(epoch, random.ttl(), now);
                    let ended = random.below(2) == 0 && state.sweep_end(epoch);
                    assert!(!ended || fenced(state.window_mark(&[], Some(epoch), now)).is_none());
                }
            }
        }
    }

    fn rest(&mut self) {
        let (state, random, now) = (&mut self.state, &mut self.random, self.now);
        let limit = usize::try_from(random.below(9)).unwrap();
        match random.below(40) {
            0..=9 => {
                assert!(state.purge_lapsed(limit, now) <= limit);
            }
            10 => {
                state.purge_lapsed(usize::MAX, now);
                assert_eq!(state.purge_lapsed(usize::MAX, now), 0);
            }
            11 => {
                let listed = state.list_locks("", None, usize::MAX, now);
                assert_eq!(listed.len(), state.stats().locks);
                assert!(listed.windows(2).all(|pair| pair[0].name < pair[1].name));
            }
            12 => {
                let listed = state.list(b"n1", Some(b"n1"), limit, now);
                assert!(listed.len() <= limit);
                assert!(listed.windows(2).all(|pair| pair[0].key < pair[1].key));
            }
            13 => {
                let snapshot = state.snapshot().unwrap();
                state.restore(&snapshot).unwrap();
                for handle in &self.handles {
                    assert_eq!(state.get_by(*handle, now), None, "handles end here");
                }
                for (.., token, handle) in &self.grants {
                    assert!(!state.release_by(*handle, *token));
                }
            }
            _ => {}
        }
    }

    fn check(&self) {
        let snapshot = self.state.snapshot().unwrap();
        let stats = self.state.stats();
        let census = census(&self.state, &snapshot);
        // The lock of a sweep is left out of a snapshot; its owner is minted, so its name is all that it counts for.
        let swept = self.state.lock_info(&LockName::SWEEP, self.now).is_some();
        let locks = stats.locks - usize::from(swept);
        let name = LockName::SWEEP.as_str().len() * usize::from(swept);
        assert_eq!(census.counts, [locks, stats.entries, stats.window]);
        assert_eq!(census.bytes + name, stats.bytes, "the bytes are not exact");
        let window = self.state.window_stats(self.now, self.now);
        let marked = (window.reclaiming, window.requeued);
        assert_eq!(marked, (census.marks as u64, census.requeued as u64));
        assert!(stats.locks <= self.options.max_locks);
        assert!(stats.entries <= self.options.max_entries);
        let seeds = Seeds { hash: 1, mint: 2 };
        let mut copy = State::<Value>::new(seeds, Options::default());
        copy.restore(&snapshot).unwrap();
        let mut again = copy.snapshot().unwrap();
        let (end, counter) = (again.len() - 4, 12..20);
        again[counter.clone()].copy_from_slice(&snapshot[counter]);
        assert_eq!(&again[..end], &snapshot[..end], "a snapshot has one form");
    }
}

/// The answers, unless the sweep is not the current one.
fn fenced(result: alkstore::Result<Vec<Reclaim>>) -> Option<Vec<Reclaim>> {
    result
        .map_err(|error| assert_eq!(error.kind(), ErrorKind::LeaseLost))
        .ok()
}

fn replaced() -> PutRow<'static, Value> {
    PutRow {
        value: Value::from(&b"never"[..]),
        mode: PutMode::Replace,
        ttl: None,
        guard: None,
    }
}

/// The answer, unless the store is full, the guard is not live, or the key is marked, which all may be.
fn may_be_full<T>(result: alkstore::Result<Option<T>>) -> Option<T> {
    result.unwrap_or_else(|error| {
        let expected = [
            ErrorKind::CapacityExceeded,
            ErrorKind::LeaseLost,
            ErrorKind::Conflict,
        ];
        assert!(expected.contains(&error.kind()), "{error}");
        None
    })
}

fn run(seed: u64, options: Options) -> Run {
    let mut run = Run::new(seed, options);
    for round in 0..ROUNDS {
        run.tick();
        let before = run.state.stats().bytes;
        run.step();
        let after = run.state.stats().bytes;
        // A change that grows the store leaves it within its limit.
        assert!(after <= before || after <= options.max_bytes, "{round}");
        if round % 64 == 0 {
            run.check();
        }
    }
    run.check();
    run
}

#[test]
fn an_unlimited_state() {
    let run = run(1, Options::default());
    assert_eq!(
        run.answers.len(),
        6,
        "all but what protects: {:?}",
        run.answers
    );
}

#[test]
fn a_state_that_is_always_full() {
    for seed in 2..5 {
        let mut options = Options::default();
        options.max_locks = 40;
        options.max_entries = 60;
        options.max_bytes = 4_000;
        run(seed, options);
    }
}

#[test]
fn a_state_without_room() {
    let mut options = Options::default();
    options.max_locks = 0;
    options.max_entries = 0;
    options.max_bytes = 0;
    run(9, options);
}
