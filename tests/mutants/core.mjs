// The rules in core, and what memory does by itself. The list on the memory engine is to notice.
const LOCK = 'core/src/rules/lock.rs';
const ENTRY = 'core/src/rules/entry.rs';
const CHANGESET = 'core/src/rules/changeset.rs';
const WINDOW = 'core/src/rules/window.rs';
const TIME = 'core/src/time.rs';
const NAME = 'core/src/name.rs';
const KEY = 'core/src/key.rs';
const VALIDATE = 'core/src/validate.rs';
const TX = 'core/src/tx.rs';
const BUILDER = 'core/src/changeset.rs';
const SWEEP = 'core/src/sweeping.rs';
const BATCH = 'core/src/sweeping/batch.rs';
const DRIVE = 'core/src/drive.rs';
const SWEEP_RULES = 'core/src/rules/sweep.rs';
const STAGING = 'core/src/staging.rs';

const mutant = (what, file, from, to, by) => ({ what, file, from, to, target: 'list/mem', by });

export default [
  mutant('a lapsed lock is never granted anew', LOCK, 'Some(grant) if !grant.deadline.lapsed(now) => {', 'Some(grant) => {', 'l1_lapsed_is_granted_at_the_deadline'),
  mutant('a live lock is granted anew', LOCK, 'Some(grant) if !grant.deadline.lapsed(now) => {', 'Some(grant) if grant.deadline == now => {', 'l3_losing'),
  mutant('everybody is the owner', LOCK, 'if grant.owner == *owner {', 'if true {', 'l3_losing'),
  mutant('nobody is the owner', LOCK, 'if grant.owner == *owner {', 'if false {', 'l2_the_owner'),
  mutant('the owner is granted anew', LOCK, '                Acquisition::Kept', '                Acquisition::Granted(now.after(ttl))', 'l2_the_owner'),
  mutant('a grant has lapsed at once', LOCK, '_ => Acquisition::Granted(now.after(ttl)),', '_ => Acquisition::Granted(now),', 'l1_absent'),
  mutant('anybody renews', LOCK, 'row.filter(|grant| is_grant(grant, owner, token) && !grant.deadline.lapsed(now))', 'row.filter(|grant| !grant.deadline.lapsed(now))', 'l5_renew_of_another_grant'),
  mutant('a renewal resurrects', LOCK, 'row.filter(|grant| is_grant(grant, owner, token) && !grant.deadline.lapsed(now))', 'row.filter(|grant| is_grant(grant, owner, token))', 'l5_renew_at_the_deadline'),
  mutant('a renewal adds', LOCK, '.map(|_| now.after(ttl))', '.map(|grant| grant.deadline.after(ttl))', 'l5_renew_is_absolute'),
  mutant('a renewal never shortens', LOCK, '.map(|_| now.after(ttl))', '.map(|grant| grant.deadline.max(now.after(ttl)))', 'l5_renew_is_absolute'),
  mutant('anybody releases', LOCK, 'row.is_some_and(|grant| is_grant(grant, owner, token))', 'row.is_some()', 'l6_release_of_another_grant'),
  mutant('nobody releases', LOCK, 'row.is_some_and(|grant| is_grant(grant, owner, token))', 'false', 'l16_a_handle'),
  mutant('force_release takes any token', LOCK, 'row.is_some_and(|grant| grant.token == token)', 'row.is_some()', 'l15_force_release'),
  mutant('a guard takes any token', LOCK, 'if current == token && !deadline.lapsed(now)', 'if !deadline.lapsed(now)', 'e5_k13'),
  mutant('a guard ignores the deadline', LOCK, 'if current == token && !deadline.lapsed(now)', 'if current == token', 'e5_a_fenced_write'),
  mutant('a grant is its token alone', LOCK, 'grant.token == token && grant.owner == *owner', 'grant.token == token', 'l5_renew_of_another_grant'),
  mutant('a grant is its owner alone', LOCK, 'grant.token == token && grant.owner == *owner', 'grant.owner == *owner', 'l6_k2'),
  mutant('the guard error is no LeaseLost', LOCK, 'ErrorKind::LeaseLost,', 'ErrorKind::Conflict,', 'e5_a_fenced_write'),

  mutant('at its deadline a lease is live', TIME, 'self.0 <= now.0', 'self.0 < now.0', 'l1_lapsed_is_granted_at_the_deadline'),
  mutant('a deadline wraps', TIME, 'Self(self.0.saturating_add(ttl.0))', 'Self(self.0.wrapping_add(ttl.0))', 'd1_a_deadline_past_the_range'),
  mutant('a ttl of zero is let in', TIME, 'if duration.is_zero() {', 'if false {', 'd1_the_duration_guard'),
  mutant('a hundred years are refused', TIME, 'if duration > Self::MAX.as_duration() {', 'if duration >= Self::MAX.as_duration() {', 'd1_the_extremes'),
  mutant('a refused duration is an invalid argument', TIME, 'Error::new(ErrorKind::Database, "the duration was refused")', 'Error::new(ErrorKind::InvalidArgument, "the duration was refused")', 'd1_the_duration_guard'),

  mutant('entries never lapse', ENTRY, 'row.filter(|head| !head.expires_at.is_some_and(|deadline| deadline.lapsed(now)))', '{ let _ = now; row }', 'e3_a_lapsed_entry'),
  mutant('entries with a ttl are never live', ENTRY, 'row.filter(|head| !head.expires_at.is_some_and(|deadline| deadline.lapsed(now)))', '{ let _ = now; row.filter(|head| head.expires_at.is_none()) }', 'e3_a_lapsed_entry'),
  mutant('a put sees lapsed entries', ENTRY, 'let current = live(row, now).map(|head| head.version);', 'let current = row.map(|head| head.version);', 'e3_a_lapsed_entry'),
  mutant('a loser is not told the version', ENTRY, 'Err(current)', 'Err(None)', 'e2_create_lets'),
  mutant('a create overwrites', ENTRY, 'PutMode::Create => current.is_none(),', 'PutMode::Create => true,', 'e2_create_lets'),
  mutant('a replace needs an entry', ENTRY, 'PutMode::Replace => true,', 'PutMode::Replace => current.is_some(),', 'e2_replace'),
  mutant('an update takes any version', ENTRY, 'PutMode::Update(version) => current == Some(Some(version)),', 'PutMode::Update(_) => current.is_some(),', 'e2_update'),
  mutant('an update creates', ENTRY, 'PutMode::Update(version) => current == Some(Some(version)),', 'PutMode::Update(version) => current.is_none_or(|c| c == Some(version)),', 'e2_update'),
  mutant('a create publishes nothing', ENTRY, 'mode == PutMode::Create', '{ let _ = mode; false }', 'e6_create'),
  mutant('every put publishes', ENTRY, 'mode == PutMode::Create', '{ let _ = mode; true }', 'e6_other_modes'),
  mutant('a losing create publishes nothing', ENTRY, 'publish: publishes(mode),', 'publish: publishes(mode) && current.is_none(),', 'e6_create'),
  mutant('a write forgets its ttl', ENTRY, 'ttl.map(|ttl| now.after(ttl))', '{ let _ = (ttl, now); None }', 'e2_replace'),
  mutant('a touch resurrects', ENTRY, 'live(row, now).map(|_| now.after(ttl))', 'row.map(|_| now.after(ttl))', 'e3_a_lapsed_entry'),
  mutant('a touch adds', ENTRY, 'live(row, now).map(|_| now.after(ttl))', 'live(row, now).map(|head| head.expires_at.unwrap_or(now).after(ttl))', 'e3_touch'),
  mutant('a delete finds lapsed entries', ENTRY, 'live(row, now).is_some_and(|head| if_version', '{ let _ = now; row }.is_some_and(|head| if_version', 'e3_a_lapsed_entry'),
  mutant('a delete takes any version', ENTRY, 'if_version.is_none_or(|version| version == head.version)', 'if_version.is_none_or(|version| version.get() > 0 || version == head.version)', 'e4_delete'),
  mutant('a delete needs a version', ENTRY, 'if_version.is_none_or(|version| version == head.version)', 'if_version.is_some_and(|version| version == head.version)', 'e4_delete'),

  mutant('a changeset ignores its guards', CHANGESET, 'lock::guard(row, name, token, now)?;', 'let _ = lock::guard(row, name, token, now);', 't1_a_transaction_is_guarded'),
  mutant('a changeset ignores its checks', CHANGESET, 'if !holds(expect, row, now) {', 'if !holds(expect, row, now) && false {', 't3_there_is_no_write_skew'),
  mutant('checks are judged before guards', CHANGESET, `    for (name, token) in changeset.guards() {
        let row = rows.grant(name)?;
        lock::guard(row, name, token, now)?;
    }
    for (key, ops) in changeset.keys() {
        if let Some(expect) = ops.check {
            let row = rows.head(key)?;
            if !holds(expect, row, now) {
                return Err(conflict().into());
            }
        }
        // A create that found an entry writes nothing, and its caller trusts that entry all the same.
        if ops.unstage || matches!(ops.write, Some(EntryWrite::Put { .. })) {
            window::write(rows.waiting(key)?.as_ref())?;
        }
    }`, `    for (key, ops) in changeset.keys() {
        if let Some(expect) = ops.check {
            let row = rows.head(key)?;
            if !holds(expect, row, now) {
                return Err(conflict().into());
            }
        }
        // A create that found an entry writes nothing, and its caller trusts that entry all the same.
        if ops.unstage || matches!(ops.write, Some(EntryWrite::Put { .. })) {
            window::write(rows.waiting(key)?.as_ref())?;
        }
    }
    for (name, token) in changeset.guards() {
        let row = rows.grant(name)?;
        lock::guard(row, name, token, now)?;
    }`, 't3_guards_are_judged'),
  mutant('a check sees lapsed entries', CHANGESET, 'let current = entry::live(row, now).map(|head| head.version);', 'let current = { let _ = now; row }.map(|head| head.version);', 't3_what_was_read'),
  mutant('absence always holds', CHANGESET, 'Expect::Absent => current.is_none(),', 'Expect::Absent => true,', 't3_absence'),
  mutant('any version will do', CHANGESET, 'Expect::Version(version) => current == Some(version),', 'Expect::Version(version) => current >= Some(version),', 't3_what_was_read'),
  mutant('a missing version will do', CHANGESET, 'Expect::Version(version) => current == Some(version),', 'Expect::Version(version) => current.is_none_or(|c| c == version),', 't3_what_was_read'),
  mutant('a conflict is no conflict', CHANGESET, 'ErrorKind::Conflict,', 'ErrorKind::LeaseLost,', 't3_there_is_no_write_skew'),
  mutant('a commit forgets ttls', CHANGESET, 'entry::deadline(ttl, now)', 'entry::deadline(ttl, now).filter(|_| false)', 't1_ttls'),
  mutant('a commit tells no versions', CHANGESET, 'commit.versions.push((key.clone(), version));', 'let _ = version;', 't4_a_changeset_is_committed'),
  mutant('a commit deletes nothing', CHANGESET, 'Some(EntryWrite::Delete) => rows.remove(&key)?,', 'Some(EntryWrite::Delete) => {}', 't4_a_changeset_is_committed'),
  mutant('a commit unstages nothing', CHANGESET, 'if unstage {', 'if unstage && false {', 't4_a_changeset_is_committed'),
  mutant('a commit stages nothing', CHANGESET, 'if let Some((visible_after, restage)) = stage {', 'if let Some((visible_after, restage)) = stage.filter(|_| false) {', 't4_a_changeset_is_committed'),
  mutant('a commit stages before it unstages', CHANGESET, `        if unstage {
            rows.unstage(&key)?;
        }
        if let Some((visible_after, restage)) = stage {
            rows.stage(&key, visible_after, restage)?;
        }`, `        if let Some((visible_after, restage)) = stage {
            rows.stage(&key, visible_after, restage)?;
        }
        if unstage {
            rows.unstage(&key)?;
        }`, 't4_a_changeset_is_committed'),

  mutant('a changeset writes a marked key', CHANGESET, 'if ops.unstage || matches!(ops.write, Some(EntryWrite::Put { .. })) {', 'if false {', 'w8_a_marked_key'),
  mutant('a changeset trusts a marked entry', CHANGESET, 'if ops.unstage || matches!(ops.write, Some(EntryWrite::Put { .. })) {', 'if matches!(ops.write, Some(EntryWrite::Put { .. })) {', 'w8_a_marked_key'),
  mutant('a changeset deletes no marked entry', CHANGESET, 'if ops.unstage || matches!(ops.write, Some(EntryWrite::Put { .. })) {', 'if ops.unstage || ops.write.is_some() {', 'w8_e4'),
  mutant('a changeset rests on no marked entry', CHANGESET, 'if ops.unstage || matches!(ops.write, Some(EntryWrite::Put { .. })) {', 'if ops.check.is_some() || ops.write.is_some() {', 'w8_e4'),
  mutant('marks are judged before guards', CHANGESET, '    for (name, token) in changeset.guards() {\n', '    for (key, ops) in changeset.keys() {\n        if ops.write.is_some() { window::write(rows.waiting(key)?.as_ref())?; }\n    }\n    for (name, token) in changeset.guards() {\n', 'w8_e5'),

  mutant('staging the same deadline voids a claim', WINDOW, 'old.visible_after == visible_after => None,', '(old.visible_after == visible_after && old.claim.is_none()) => None,', 'w5_r16'),
  mutant('staging keeps what moves', WINDOW, '(restage == Restage::Move).then_some', '(restage == Restage::Keep).then_some', 'w2_a_new_deadline'),
  mutant('staging always moves', WINDOW, '(restage == Restage::Move).then_some', '(restage == Restage::Move || restage == Restage::Keep).then_some', 'w2_r1'),
  mutant('a move keeps the claim', WINDOW, 'Some(_) => (restage == Restage::Move).then_some(Row::new(visible_after)),', 'Some(old) => (restage == Restage::Move).then_some(Row { claim: old.claim, ..Row::new(visible_after) }),', 'w5_r16'),
  mutant('due only after its instant', WINDOW, 'row.visible_after <= now &&', 'row.visible_after < now &&', 'w3_take'),
  mutant('claimed rows are available', WINDOW, '&& row.claim.is_none_or(|(_, until)| until.lapsed(store_now))', '&& { let _ = store_now; true }', 'k7_w5_claims'),
  mutant('a claimed row is never available again', WINDOW, '&& row.claim.is_none_or(|(_, until)| until.lapsed(store_now))', '&& { let _ = store_now; row.claim.is_none() }', 'w5_r9'),
  mutant("claims lapse by the caller's clock", WINDOW, '&& row.claim.is_none_or(|(_, until)| until.lapsed(store_now))', '&& { let _ = store_now; row.claim.is_none_or(|(_, until)| until.lapsed(now)) }', 'w5_claims_lapse_by'),
  mutant('any claim settles', WINDOW, '.is_some_and(|(claim, until)| claim == id && !until.lapsed(store_now))', '.is_some_and(|(claim, until)| (claim == id || claim != id) && !until.lapsed(store_now))', 'w5_only_the_claims_own'),
  mutant('a lapsed claim settles', WINDOW, '.is_some_and(|(claim, until)| claim == id && !until.lapsed(store_now))', '.is_some_and(|(claim, until)| claim == id && until == until.max(store_now.min(until)))', 'w5_a_lapsed_claim'),
  mutant('what is unclaimed settles', WINDOW, 'row.is_some_and(|row| row.claimed_by(id, store_now) && !row.reclaiming)', 'row.is_some_and(|row| (row.claim.is_none() || row.claimed_by(id, store_now)) && !row.reclaiming)', 'w5_requeue_puts'),
  mutant('a requeued row keeps its instant', WINDOW, '            visible_after,\n            claim: None,\n            reclaiming: row.reclaiming,', '            visible_after: { let _ = visible_after; row.visible_after },\n            claim: None,\n            reclaiming: row.reclaiming,', 'w5_requeue_puts'),
  mutant('a requeued row stays claimed', WINDOW, '            claim: None,\n            reclaiming: row.reclaiming,', '            claim: row.claim,\n            reclaiming: row.reclaiming,', 'w5_requeue_puts'),
  mutant('anybody requeues', WINDOW, 'row.filter(|row| row.claimed_by(id, store_now))', '{ let _ = (id, store_now); row }', 'w5_only_the_claims_own'),
  mutant('requeueing drops the mark', WINDOW, 'reclaiming: row.reclaiming,', 'reclaiming: false,', 'w8_w5_requeue'),
  mutant('requeueing does not count', WINDOW, 'row.requeues.saturating_add(1)', 'row.requeues', 'w5_requeues_are_counted'),
  mutant('requeueing counts once', WINDOW, 'row.requeues.saturating_add(1)', '1', 'w5_requeues_are_counted'),
  mutant('a marked row is not requeued', WINDOW, 'row.filter(|row| row.claimed_by(id, store_now))', 'row.filter(|row| row.claimed_by(id, store_now) && !row.reclaiming)', 'w8_w5_requeue'),
  mutant('a move keeps the count', WINDOW, 'Some(_) => (restage == Restage::Move).then_some(Row::new(visible_after)),', 'Some(old) => (restage == Restage::Move).then_some(Row { requeues: old.requeues, ..Row::new(visible_after) }),', 'w5_requeues_are_counted'),

  mutant('a marked row is moved', WINDOW, 'Some(old) if old.reclaiming || old.visible_after', 'Some(old) if old.visible_after', 'w8_w2'),
  mutant('a marked row is unstaged', WINDOW, 'row.is_some_and(|row| !row.reclaiming)', 'row.is_some()', 'w8_w2'),
  mutant('nothing is unstaged', WINDOW, 'row.is_some_and(|row| !row.reclaiming)', 'row.is_some_and(|row| row.reclaiming)', 'w4_'),
  // Memory keeps marked rows apart, so the rule is asked of the others alone.
  mutant('a marked row is taken', 'mem/src/window.rs', '.filter(|_| marked)', '.filter(|_| marked || true)', 'w8_w2'),
  mutant('a marked row is settled', WINDOW, 'row.claimed_by(id, store_now) && !row.reclaiming', 'row.claimed_by(id, store_now)', 'w8_w2'),
  mutant('a marked row is not claimed again', WINDOW, 'row.visible_after <= now && row', '!row.reclaiming && row.visible_after <= now && row', 'w8_r9'),
  mutant('a marked key is written', WINDOW, 'return Err(reclaiming());', 'return Ok(());', 'w8_a_marked_key'),
  mutant('a key that waits is not written', WINDOW, 'if row.is_some_and(|row| row.reclaiming) {', 'if row.is_some() {', 'e6_create_takes'),
  mutant('a claimed key is not written', WINDOW, 'if row.is_some_and(|row| row.reclaiming) {', 'if row.is_some_and(|row| row.reclaiming || row.claim.is_some()) {', 'e6_w5'),
  mutant('a marked key is refused for good', WINDOW, 'ErrorKind::Conflict,', 'ErrorKind::LeaseLost,', 'w8_a_marked_key'),
  mutant('a lapsed claim still deletes', WINDOW, 'until.lapsed(store_now).then_some(Reclaim::Lapsed)', '(until.lapsed(store_now) && until > store_now).then_some(Reclaim::Lapsed)', 'w8_r9'),
  mutant('a claim lapses after its deadline', WINDOW, 'until.lapsed(store_now).then_some(Reclaim::Lapsed)', '(until < store_now).then_some(Reclaim::Lapsed)', 'w8_r9'),
  mutant('a live claim has lapsed', WINDOW, 'until.lapsed(store_now).then_some(Reclaim::Lapsed)', '{ let _ = (until, store_now); Some(Reclaim::Lapsed) }', 'w8_marked_and_finished'),
  mutant("another's claim deletes", WINDOW, 'Some((claim, until)) if claim == id => until', 'Some((claim, until)) if claim >= id || claim < id => until', 'w8_r8'),
  mutant("an older claim deletes", WINDOW, 'Some((claim, until)) if claim == id => until', 'Some((claim, until)) if claim >= id => until', 'w8_r8'),
  mutant("another's claim is a void one", WINDOW, 'Some(_) => Some(Reclaim::Lapsed),', 'Some(_) => Some(Reclaim::Voided),', 'w8_r3'),
  mutant('what is void has lapsed', WINDOW, 'None => Some(Reclaim::Voided),', 'None => Some(Reclaim::Lapsed),', 'w8_r3'),
  mutant('without a claim one deletes', WINDOW, 'None => Some(Reclaim::Voided),', 'None => row.is_none().then_some(Reclaim::Voided),', 'w8_r3'),
  mutant('marking asks for no claim', WINDOW, 'fallen(row, id, store_now).unwrap_or(Reclaim::Marked)', '{ let _ = (row, id, store_now); Reclaim::Marked }', 'w8_r3'),
  mutant('finishing asks for no claim', WINDOW, 'fallen(row, id, store_now).or_else(unmarked)', '{ let _ = (id, store_now); unmarked() }', 'w8_r8'),
  mutant('deleting asks for no claim', WINDOW, 'fallen(row, id, store_now).or_else(marked)', '{ let _ = (id, store_now); marked() }', 'w8_r3'),
  mutant('finishing asks for no mark', WINDOW, 'fallen(row, id, store_now).or_else(unmarked)', '{ let _ = unmarked; fallen(row, id, store_now) }', 'w8_a_step_out_of_turn'),
  mutant('deleting asks for a mark', WINDOW, '            .then_some(Reclaim::Marked)', '            .then_some(Reclaim::Marked).map_or(Some(Reclaim::Unmarked), |_| None)', 'w8_deleted_in_one_step'),
  mutant('deleting passes over the mark', WINDOW, 'fallen(row, id, store_now).or_else(marked)', '{ let _ = marked; fallen(row, id, store_now) }', 'w8_a_step_out_of_turn'),
  mutant('the mark is asked before the claim', WINDOW, 'fallen(row, id, store_now).or_else(unmarked)', 'unmarked().or_else(|| fallen(row, id, store_now))', 'w8_r3'),

  mutant('512 bytes are too long', NAME, '1..=MAX_NAME_BYTES => Ok(()),', '1..MAX_NAME_BYTES => Ok(()),', 'n1_n2_strange'),
  mutant('characters are counted, not bytes', NAME, 'check_length(what, text.len())?;', 'check_length(what, text.chars().count())?;', 'n1_what_is_no_name'),
  mutant('UTF-16 is counted, not bytes', NAME, 'check_length(what, text.len())?;', 'check_length(what, text.encode_utf16().count())?;', 'n1_what_is_no_name'),
  mutant('U+0000 is let in', NAME, "text.contains('\\0')", "text == \"\\0\"", 'n1_what_is_no_name'),
  mutant('white space alone is a name', NAME, 'text.chars().all(char::is_whitespace)', "text == \" \"", 'n1_what_is_no_name'),
  mutant('white space is trimmed away', NAME, 'text.chars().all(char::is_whitespace)', 'text.starts_with(char::is_whitespace)', 'n1_n2_strange'),
  mutant('reserved names are let in', NAME, 'if name.starts_with(RESERVED_PREFIX) {', 'if name == RESERVED_PREFIX {', 'n3_reserved'),
  mutant('a reserved word in the middle is refused', NAME, 'if name.starts_with(RESERVED_PREFIX) {', 'if name.contains(RESERVED_PREFIX) {', 'n1_n2_strange'),
  mutant('the empty key is let in', KEY, 'if bytes == 0 || bytes > MAX_KEY_BYTES {', 'if bytes > MAX_KEY_BYTES {', 'e1_keys'),
  mutant('1024 bytes are too long', KEY, 'if bytes == 0 || bytes > MAX_KEY_BYTES {', 'if bytes == 0 || bytes >= MAX_KEY_BYTES {', 'e1_keys'),

  mutant('the owner is judged before the name', VALIDATE, `        name: LockName::new(name)?,
        owner: Owner::new(owner)?,
        ttl: ttl.try_into()?,`, `        owner: Owner::new(owner)?,
        name: LockName::new(name)?,
        ttl: ttl.try_into()?,`, 'n4_'),
  mutant('the duration is judged before the owner', VALIDATE, `        name: LockName::new(name)?,
        owner: Owner::new(owner)?,
        ttl: ttl.try_into()?,`, `        name: LockName::new(name)?,
        ttl: ttl.try_into()?,
        owner: Owner::new(owner)?,`, 'n4_'),
  mutant('a closed store is noticed first', VALIDATE, '    let request = Acquire {', '    gate.check()?;\n    let request = Acquire {', 'n4_'),
  mutant('a closed store is open', 'core/src/store.rs', 'if self.0.load(Ordering::SeqCst) {', 'if false && self.0.load(Ordering::SeqCst) {', 'c1_after_close'),
  mutant('the largest value is refused', VALIDATE, 'if bytes <= limit {', 'if bytes < limit {', 'e1_values'),
  mutant('the guard is judged before the ttl', VALIDATE, `        ttl: ttl.map(TryInto::try_into).transpose()?,
        guard: guard
            .map(|(name, token)| Ok::<_, Error>((LockName::new(name)?, token)))
            .transpose()?,`, `        guard: guard
            .map(|(name, token)| Ok::<_, Error>((LockName::new(name)?, token)))
            .transpose()?,
        ttl: ttl.map(TryInto::try_into).transpose()?,`, 'n4_'),

  mutant('reads are not checked', TX, 'seen.check = Some(', 'let _ = Some(', 't3_there_is_no_write_skew'),
  mutant('own writes are not seen', TX, 'match &seen.write {', 'match &seen.write.as_ref().filter(|_| false) {', 't1_a_transaction_reads'),
  mutant('a create in a transaction publishes nothing', TX, 'if rules::entry::publishes(mode) {', 'if false && rules::entry::publishes(mode) {', 't4_e6'),
  mutant('a losing put in a transaction writes', TX, 'if !rules::entry::wins(version, mode) {', 'if false && !rules::entry::wins(version, mode) {', 't1_a_transaction_reads'),
  mutant('a delete in a transaction deletes nothing', TX, 'self.0.see(key.borrowed()).write = Some(EntryWrite::Delete);', 'let _ = self.0.see(key.borrowed());', 't1_'),
  mutant('keeping forgets what the transaction staged', TX, '(Some(_), Restage::Keep) => {}', '(Some(_), Restage::Keep) if false => {}', 't4_the_last_word'),
  mutant('two tokens guard one lock', BUILDER, 'Ok(at) if self.guards[at].1 != token => Err', 'Ok(at) if false && self.guards[at].1 != token => Err', 't1_a_transaction_is_guarded'),

  mutant('a key is checked for two things', BUILDER, 'if ops.check.is_some() && check.is_some() && ops.check != check {', 'if false && ops.check.is_some() && check.is_some() && ops.check != check {', 't4_contradictions'),
  mutant('a key is written twice', BUILDER, 'if write.is_some() && ops.write.is_some() {', 'if false && write.is_some() && ops.write.is_some() {', 't4_contradictions'),
  mutant('a key is staged twice', BUILDER, 'if ops.stage.is_some() {', 'if false && ops.stage.is_some() {', 't4_contradictions'),
  mutant('a create in a changeset checks nothing', BUILDER, 'PutMode::Create => Some(Expect::Absent),', 'PutMode::Create => None,', 't4_a_write_brings'),
  mutant('an update in a changeset checks nothing', BUILDER, 'PutMode::Update(version) => Some(Expect::Version(version)),', 'PutMode::Update(_) => None,', 't4_a_write_brings'),
  mutant('the key of a put is not counted', BUILDER, 'bytes += key.as_bytes().len();', 'bytes = bytes.max(key.as_bytes().len());', 'bad_input_a_changeset'),
  mutant('a refused part leaves its bytes', BUILDER, 'self.room(items, bytes)?;\n        self.bytes += bytes;', 'self.bytes += bytes;\n        self.room(items, 0)?;', 'bad_input_a_changeset'),
  mutant('the items of a changeset are not capped', BUILDER, 'if self.guards.len() + self.keys.len() + items > MAX_CHANGESET_ITEMS {', 'if items > MAX_CHANGESET_ITEMS {', 't3_the_size'),
  mutant('the bytes of a changeset are not capped', BUILDER, 'if self.bytes.saturating_add(bytes) > MAX_CHANGESET_BYTES {', 'if bytes > MAX_CHANGESET_BYTES {', 't3_the_bytes'),
  mutant('nobody need know what is live', SWEEP, 'if !asked {', 'if !asked && false {', 'g6_nothing'),
  mutant('a second sweep goes on', SWEEP, '(Phase::Begin, Answer::Epoch(None)) => self.abort(GcAbortCause::SweeperLock),', '(Phase::Begin, Answer::Epoch(None)) => { self.epoch = Revision::new(1); self.round(); }', 'g3_a_second'),
  mutant('a sweep never ends', SWEEP, '(Phase::End, Some(epoch)) => Step::End { epoch },', '(Phase::End, Some(epoch)) => Step::Requeue { claims: { let _ = epoch; &[] }, at: self.at },', 'g1_what_is_due'),
  mutant('a batch is limited by the batch alone', SWEEP, '|left| left.min(self.batch)', '|left| self.batch.max(left.min(1))', 'g1_it_ends'),
  mutant('a sweep has all the time', SWEEP, '|limit| since >= limit', '|limit| since > limit', 'g1_it_ends'),
  mutant('the time of each claim counts, not that of the start', DRIVE, 'window_claim(due, lease.as_duration(), most)', 'window_claim({ let _ = due; store.now().await? }, lease.as_duration(), most)', 'g1_r19'),
  mutant('what is in hand is not given back', SWEEP, 'self.phase = Phase::GiveBack;', 'self.end();', 'g1_r17'),
  mutant('what is given back waits', SWEEP, 'self.at = due;', 'self.at = due.plus(BACKOFF.0);', 'g1_r17'),
  mutant('the sweep is not extended', SWEEP, '            self.phase = Phase::Extend;', '            self.extended();', 'g1_a_rate'),
  mutant('a pause is one nap', SWEEP, 'self.wait.min(NAP)', 'self.wait.max(NAP)', 'g1_a_rate'),
  mutant('a pause hears no cancel', SWEEP, '        if self.cancelled {\n            self.halt(SweepStop::Cancelled);\n        } else if self.terms.time', '        if self.cancelled && self.wait.is_zero() {\n            self.halt(SweepStop::Cancelled);\n        } else if self.terms.time', 'g1_a_pause'),
  mutant('the rate is ignored', SWEEP, 'if let Some(rate) = self.terms.rate {', 'if let Some(rate) = self.terms.rate.filter(|_| false) {', 'g1_a_rate'),
  mutant('an answer of another length is taken', BATCH, 'if live.len() != asked.count() {', 'if asked.count() == usize::MAX {', 'g1_r17'),
  mutant('a source that fails protects nothing', BATCH, '        self.abort(GcAbortCause::LivenessFailed);', '        self.source += 1;\n        self.ask();', 'g1_r17'),
  mutant('only the last source counts', BATCH, '        self.source += 1;\n', '        self.source += 1;\n        if self.source < self.terms.sources {\n            self.hand.append(&mut self.live);\n        }\n', 'g1_every_source'),
  mutant('what is marked is asked about again', BATCH, '    !claim.reclaiming\n', '    !claim.reclaiming || true\n', 'g1_w8_what'),
  mutant('what is live stays in the window', BATCH, '        if !self.live.is_empty() {', '        self.live.clear();\n        if !self.live.is_empty() {', 'g1_g3_an_engine'),
  mutant('a cancel waits for the payloads', BATCH, 'self.cancelled && self.terms.reclaims && self.then == Phase::Arbitrate', 'false', 'g1_a_cancelled'),
  mutant('payloads are deleted however late', BATCH, 'claim.until.since(self.now) < margin;', 'claim.until.since(self.now) < margin / 1000;', 'g1_r8_no_payload'),
  mutant('a dry run deletes payloads', SWEEP, 'measure: self.terms.dry_run,', 'measure: self.terms.dry_run && false,', 'g2_'),
  mutant('a dry run is a sweep', SWEEP, 'if self.terms.dry_run {', 'if self.terms.dry_run && false {', 'g2_'),
  mutant('a dry run counts what others have', SWEEP, '|until| until.lapsed(self.now))', '|until| until.lapsed(self.now) || true)', 'g2_'),
  mutant('a dry run finishes what was marked', SWEEP_RULES, '_ if reclaiming => Reclaim::Marked,', '_ if reclaiming && reclaims => Reclaim::Marked,', 'g2_'),
  mutant('a reclaimer of few words is believed', BATCH, 'if freed.len() != self.hand.len() {', 'if false {', 'g1_a_reclaimer'),
  mutant('what failed is gone', BATCH, '            report.failed += 1;\n            Next::PutBack', '            report.failed += 1;\n            gone.push(0);\n            Next::Reclaim', 'g3_the_report'),
  mutant('the entry tells what was freed', BATCH, '*bytes = freed', '{ let _ = (bytes, freed); }', 'g1_payloads'),
  mutant('a deletion passes no fence', SWEEP, '(Phase::Arbitrate, fence) => Step::Delete { claims, fence },', '(Phase::Arbitrate, _) => Step::Delete { claims, fence: None },', 'g1_r14'),
  mutant('a mark passes no fence', SWEEP, '(Phase::Arbitrate, fence) if self.terms.reclaims => Step::Mark { claims, fence },', '(Phase::Arbitrate, _) if self.terms.reclaims => Step::Mark { claims, fence: None },', 'g1_r14'),
  mutant('an end passes no fence', SWEEP, '(Phase::Finish, fence) => Step::Finish { claims, fence },', '(Phase::Finish, _) => Step::Finish { claims, fence: None },', 'g1_r14'),
  mutant('a lost lease is a failure of the engine', SWEEP, 'let cause = if error.kind() == ErrorKind::LeaseLost {', 'let cause = if false {', 'g1_r14'),
  mutant('what is put back comes at once', BATCH, '.max(Duration::from_nanos(1));', ';', 'g4_'),
  mutant('a hook may take as long as it likes', DRIVE, 'alarm.as_mut().poll(context).map(|()| None)', '{ let _ = &mut alarm; Poll::Pending }', 'g1_r17'),
  mutant('a batch of nothing is let in', SWEEP, 'let wrong = if batch == 0 || batch > MAX_BATCH {', 'let wrong = if batch > MAX_BATCH {', 'g1_options'),
  mutant('a batch of any size is let in', SWEEP, 'let wrong = if batch == 0 || batch > MAX_BATCH {', 'let wrong = if batch == 0 {', 'g1_options'),
  mutant('a rate needs no timer', SWEEP, '(terms.rate.is_some() || timeout.is_some())', 'timeout.is_some()', 'g1_options'),
  mutant('a hook may take the whole lease', SWEEP, 'time.is_zero() || time >= lease.as_duration()', 'time.is_zero() || time > lease.as_duration()', 'g1_options'),

  mutant('a key never backs off', SWEEP_RULES, 'let factor = 1_u32.checked_shl(requeues).unwrap_or(u32::MAX);', 'let _ = requeues; let factor = 1;', 'g4_'),
  mutant('a key backs off for ever', SWEEP_RULES, '.min(most)', '.max(most.min(first))', 'g4_'),

  mutant('a short grace is taken', STAGING, 'if options.grace < SHORTEST_GRACE && !options.any_grace {', 'if options.grace < SHORTEST_GRACE && false && !options.any_grace {', 'g1_a_short_grace'),
  mutant('a minute is too short', STAGING, 'if options.grace < SHORTEST_GRACE', 'if options.grace <= SHORTEST_GRACE', 'g1_a_short_grace'),
  mutant('a mark pass reads one page', STAGING, 'let ends = page.len() < BATCH;', 'let ends = page.len() <= BATCH;', 'g1_a_mark_pass_has'),
  mutant('a mark pass marks everything', STAGING, 'store.list(options.prefix, from, BATCH)', 'store.list(b"", from, BATCH)', 'g1_a_mark_pass_stages'),
  mutant('live keys are staged', STAGING, 'unreferenced.remove(key);', 'let _ = key;', 'g1_a_mark_pass_stages'),
  mutant('live keys stay in the window', STAGING, 'report.unstaged += store.window_unstage(&keys).await? as u64;', '', 'g1_a_mark_pass_stages'),
  mutant('a mark pass puts ends off', STAGING, '.window_stage_after(&batch, options.grace, Restage::Keep)', '.window_stage_after(&batch, options.grace, Restage::Move)', 'g1_r1'),
  mutant('a failure is the end of the live keys', STAGING, 'live.next_keys().await.map_err(failed)?', 'live.next_keys().await.map_err(failed).unwrap_or(None)', 'g1_a_mark_pass_that_learns'),
  mutant('the grace counts from before the staging', STAGING, `        store
            .window_stage_after(&batch, options.grace, Restage::Keep)
            .await?;`, `        let visible_after = store.now().await?.after(Ttl::new(options.grace)?);
        let candidate = |key: &Key<'static>| crate::Candidate { key: key.clone(), visible_after };
        let batch: Vec<_> = batch.iter().map(candidate).collect();
        store.window_stage(&batch, Restage::Keep).await?;`, 'g1_r2_a_long'),

  mutant('claims hold nobody off', 'mem/src/window.rs', 'claim: Some((id, until)),', 'claim: Some((id, store_now)),', 'w7_r15_claimers'),
  mutant('what is marked is never finished', WINDOW, 'row.visible_after <= now && row', '!row.reclaiming && row.visible_after <= now && row', 'w8_r10'),
  mutant('a dedup hit stays in the window', ENTRY, 'publish: publishes(mode),', 'publish: publishes(mode) && current.is_none(),', 'w5_r2'),
  mutant('a marked key is free for publishers', WINDOW, 'return Err(reclaiming());', 'return Ok(());', 'w8_r4_a_publisher'),
  mutant('a sweep deletes under a claim that is void', WINDOW, 'fallen(row, id, store_now).or_else(marked)', '{ let _ = (id, store_now); marked() }', 'g1_r3'),
  mutant('what moved is deleted', WINDOW, 'fallen(row, id, store_now).or_else(marked)', '{ let _ = (id, store_now); marked() }', 'g1_r16'),
  mutant('a reader in memory misses a long value', 'mem/src/entries.rs', 'value: self.entries.row(place)?.value.clone(),', 'value: self.entries.row(place).filter(|row| row.value.size() < 65536)?.value.clone(),', 'r22_a_reader'),
];
