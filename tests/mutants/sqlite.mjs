// What SQLite does by itself: the rules are core's, the statements and the waits are its own.
const WINDOW = 'native-engines/src/sqlite/window.rs';
const RECLAIM = 'native-engines/src/sqlite/reclaim.rs';
const ENTRIES = 'native-engines/src/sqlite/entries.rs';
const CONNECTION = 'native-engines/src/sqlite/connection.rs';

const mutant = (what, file, from, to, target, by) => ({ what, file, from, to, target, by });

export default [
  mutant('keeping moves, on SQLite', WINDOW, 'ON CONFLICT DO NOTHING', 'ON CONFLICT DO UPDATE SET visible_after = excluded.visible_after', 'list/sqlite', 'w2_r1'),
  mutant('a publication stays in the window, on SQLite', ENTRIES, '        window::unstage_row(txn, &request.key, waiting.as_ref())?;\n', '', 'list/sqlite', 'w5_r2'),
  mutant('a claim deletes whatever became of it, on SQLite', RECLAIM, 'if let Some(why_not) = rule(row.as_ref(), claim.id, now) {', 'if let Some(why_not) = rule(row.as_ref(), claim.id, now).filter(|_| false) {', 'list/sqlite', 'w8_r8'),
  mutant('a mark asks for no claim, on SQLite', RECLAIM, 'let answer = rule::mark(row.as_ref(), claim.id, txn.now());', 'let answer = row.as_ref().map_or(Reclaim::Marked, |_| rule::mark(row.as_ref(), claim.id, txn.now()));', 'native/sqlite', 'r5_r6_r7'),
  mutant('writers do not wait for each other', CONNECTION, 'BEGIN IMMEDIATE', 'BEGIN DEFERRED', 'native/sqlite', 'r5_r6_r7'),
  mutant('processes do not wait for each other', CONNECTION, 'BEGIN IMMEDIATE', 'BEGIN DEFERRED', 'native/sqlite', 'r18_processes'),
  mutant('a put does not look for a mark, on SQLite', ENTRIES, '    alkstore::rules::window::write(waiting.as_ref())?;\n', '', 'native/sqlite', 'r4_w8'),
  mutant('a claim never lapses, on SQLite', WINDOW, 'WHERE claim IS NOT NULL AND claimed_until <= ?1"', 'WHERE claim IS NOT NULL AND claimed_until <= ?1 AND 0"', 'list/sqlite', 'w5_r9'),
  mutant('what is marked is not claimed again, on SQLite', WINDOW, 'reclaiming = 1 AND visible_after <= ?1', 'reclaiming = 1 AND visible_after <= ?1 AND 0', 'list/sqlite', 'w8_r10'),
  mutant('a mark dies with its process', WINDOW, 'reclaiming = 1 AND visible_after <= ?1', 'reclaiming = 1 AND visible_after <= ?1 AND 0', 'native/sqlite', 'w8_killed_between'),
  mutant('nobody asks whose sweep it is, on SQLite', 'native-engines/src/sqlite/store.rs', 'locks::check_sweep(txn, fence)?;', 'let _ = (locks::check_sweep, fence);', 'list/sqlite', 'g1_r14'),
  mutant('a claim is not written, on SQLite', WINDOW, 'lapsed = NULL WHERE key = ?1', 'lapsed = NULL WHERE key = ?1 AND 0', 'list/sqlite', 'w7_r15_claimers'),
  mutant('a move keeps the claim, on SQLite', WINDOW, 'SET visible_after = ?2, claim = NULL, claimed_until = NULL, lapsed = NULL,', 'SET visible_after = ?2,', 'list/sqlite', 'w5_r16'),
  mutant('busy looks like nothing due', 'native-engines/src/sqlite/window_state.rs', `                .write(Kind::Long, move |txn| window::take(txn, now, limit))
                .await`, `                .write(Kind::Long, move |txn| window::take(txn, now, limit))
                .await
                .or_else(|error| if error.is_retryable() { Ok(Vec::new()) } else { Err(error) })`, 'native/sqlite', 'l3_w3_busy'),
  mutant('busy is not waited for', 'native-engines/src/sqlite/writer.rs', 'if request.since().elapsed() >= limit {', 'if request.since().elapsed() >= Duration::ZERO {', 'native/sqlite', 'l3_w3_busy'),
  mutant('the file keeps no floor of time', 'native-engines/src/sqlite/clock.rs', 'let at = reading.0.max(floor.as_nanos());', 'let at = { let _ = floor; reading.0 };', 'native/sqlite', 'k7_the_floor'),
  mutant('what is put back comes at once, on SQLite', WINDOW, 'SET visible_after = ?2, claim = NULL', 'SET visible_after = coalesce(visible_after, ?2), claim = NULL', 'list/sqlite', 'w5_r20'),
  mutant('a reader gets a part, on SQLite', ENTRIES, 'CASE WHEN length(e.value) <= ?2 THEN e.value END', 'CASE WHEN length(e.value) <= ?2 THEN substr(e.value, 1, 65536) END', 'list/sqlite', 'r22_a_reader'),
];
