// What Postgres does by itself: its statements restate the rules, and hold what must stand still.
const SCHEMA = 'native-engines/src/postgres/schema.sql';
const WINDOW = 'native-engines/src/postgres/window.rs';

// The time of the machine, not of the store; the tests keep the store's in 1970.
const WALL = '(extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000000)::pg_catalog.int8';

const mutant = (what, file, from, to, target, by) => ({ what, file, from, to, target, by });

export default [
  mutant('a sweep asks about what is pinned', WINDOW, `    fn has_pins(&self) -> bool {
        true`, `    fn has_pins(&self) -> bool {
        false`, 'native/postgres_fleet', 'g5_what_is_pinned_is_not_asked_about'),
  mutant('a pin leaves the claim', SCHEMA, '  DELETE FROM {schema}.gc_window WHERE key = ANY (p_keys);\n  INSERT INTO {schema}.gc_pins', '  INSERT INTO {schema}.gc_pins', 'native/postgres_fleet', 'g5_a_pin_voids_the_claim_that_was_asked_about'),
  mutant('sweep_delete holds no key', SCHEMA, `  PERFORM pg_catalog.pg_advisory_xact_lock({keys}, p_stripe);
  IF NOT {schema}.fence_v2(p_epoch, true) THEN`, '  IF NOT {schema}.fence_v2(p_epoch, true) THEN', 'native/postgres_fleet', 'r5_the_deletion_waits_for_the_publisher_and_reads_the_new_pin'),
  mutant('arbitrate holds no key', SCHEMA, `  PERFORM pg_catalog.pg_advisory_xact_lock({keys}, p_stripe);
  v_verdicts := {schema}.arbitrate_v2(ARRAY[p_key], p_tables, p_columns);
  RETURN`, `  v_verdicts := {schema}.arbitrate_v2(ARRAY[p_key], p_tables, p_columns);
  RETURN`, 'native/postgres_fleet', 'r6_a_publisher_that_rolls_back_protects_nothing'),
  mutant('sweep_delete asks for no epoch', SCHEMA, `  IF NOT {schema}.fence_v2(p_epoch, true) THEN
    RETURN NULL;
  END IF;
`, '', 'native/postgres_fleet', 'r14_a_sweeper_that_lost_its_session_deletes_nothing_more'),
  mutant('the epoch is not held until the commit', SCHEMA, '    PERFORM pg_catalog.pg_advisory_xact_lock_shared({keys}, 1024);\n', '', 'native/postgres_fleet', 'r14_a_sweeper_that_lost_its_session_deletes_nothing_more'),
  mutant('sweep_delete deletes what is marked', SCHEMA, `  IF v_reclaiming THEN
    RETURN -2;
  END IF;
  v_verdicts`, '  v_verdicts', 'native/postgres_fleet', 'r14_a_sweeper_that_lost_its_session_deletes_nothing_more'),
  mutant('sweep_delete does not heed the verdict', SCHEMA, `  IF v_verdicts[1] <> 0 THEN
    RETURN -5 - v_verdicts[1];
  END IF;
`, '', 'native/postgres_fleet', 'r5_the_deletion_waits_for_the_publisher_and_reads_the_new_pin'),
  mutant('the arbiter leaves lapsed pins', SCHEMA, `    DELETE FROM {schema}.gc_pins WHERE key = ANY (v_rest);
`, '', 'native/postgres_fleet', 'r13_of_a_renewal_and_a_deletion_one_wins'),
  mutant('the arbiter locks no pins', SCHEMA, `ORDER BY p.key, p.owner FOR UPDATE;
  IF FOUND THEN`, `ORDER BY p.key, p.owner;
  IF FOUND THEN`, 'native/postgres_fleet', 'r13_of_a_renewal_and_a_deletion_one_wins'),
  mutant('the arbiter locks no references', SCHEMA, '= k.key LIMIT 1 FOR UPDATE)', '= k.key LIMIT 1)', 'native/postgres_fleet', 'r13_of_a_renewal_and_a_deletion_one_wins'),
  mutant('a pin lives at its deadline', SCHEMA, 'AND p.expires_at > v_now GROUP BY', 'AND p.expires_at >= v_now GROUP BY', 'native/postgres_fleet', 'r13_of_a_renewal_and_a_deletion_one_wins'),
  mutant('a failing source protects nothing', SCHEMA, `  EXECUTE v_look INTO v_found, v_seen
    USING p_keys, ARRAY(SELECT pg_catalog.generate_series(1, pg_catalog.cardinality(p_keys)));
`, `  BEGIN
  EXECUTE v_look INTO v_found, v_seen
    USING p_keys, ARRAY(SELECT pg_catalog.generate_series(1, pg_catalog.cardinality(p_keys)));
  EXCEPTION WHEN OTHERS THEN v_found := NULL;
  END;
`, 'native/postgres_fleet', 'r17_a_source_that_fails_protects'),
  mutant('the arbiter decides on what it read while it waited', SCHEMA, `  IF v_found IS NOT NULL THEN
    -- Something`, `  IF false THEN
    -- Something`, 'native/postgres_fleet', 'f7_a_reference_that_moves_protects_all_the_while'),
  mutant('row security hides references', SCHEMA, `
SET row_security = off AS`, ' AS', 'native/postgres_fleet', 'f6_row_security_of_later_fails_the_arbiter'),
  mutant('pins count from before the waits', SCHEMA, `  FOR v_i IN 1 .. pg_catalog.cardinality(p_stripes) LOOP
    PERFORM pg_catalog.pg_advisory_xact_lock({keys}, p_stripes[v_i]);
  END LOOP;
  PERFORM FROM {schema}.gc_window WHERE key = ANY (p_keys) ORDER BY key FOR UPDATE;
  PERFORM FROM {schema}.gc_pins p JOIN unnest(p_keys, p_owners) AS n(key, owner) ON p.key = n.key AND p.owner = n.owner
    ORDER BY p.key, p.owner FOR NO KEY UPDATE OF p;
  v_now := {schema}.clock();
`, `  v_now := {schema}.clock();
  FOR v_i IN 1 .. pg_catalog.cardinality(p_stripes) LOOP
    PERFORM pg_catalog.pg_advisory_xact_lock({keys}, p_stripes[v_i]);
  END LOOP;
  PERFORM FROM {schema}.gc_window WHERE key = ANY (p_keys) ORDER BY key FOR UPDATE;
  PERFORM FROM {schema}.gc_pins p JOIN unnest(p_keys, p_owners) AS n(key, owner) ON p.key = n.key AND p.owner = n.owner
    ORDER BY p.key, p.owner FOR NO KEY UPDATE OF p;
`, 'native/postgres_fleet', 'r11_a_transaction_that_stalls_past_the_ttl_commits_live_pins'),
  mutant('pin_commit locks no pins', SCHEMA, 'ORDER BY p.key, p.owner FOR NO KEY UPDATE OF p;', 'ORDER BY p.key, p.owner;', 'native/postgres_fleet', 'r11_a_transaction_that_stalls_past_the_ttl_commits_live_pins'),
  mutant('pin_commit holds no keys', SCHEMA, `    PERFORM pg_catalog.pg_advisory_xact_lock({keys}, p_stripes[v_i]);
  END LOOP;
  PERFORM FROM {schema}.gc_window WHERE key = ANY (p_keys) ORDER BY key FOR UPDATE;
`, `    NULL;
  END LOOP;
  PERFORM FROM {schema}.gc_window WHERE key = ANY (p_keys) ORDER BY key FOR UPDATE;
`, 'native/postgres_fleet', 'r11_a_transaction_that_stalls_past_the_ttl_commits_live_pins'),
  mutant('a pin is not renewed by its owner', SCHEMA, 'ON CONFLICT (key, owner) DO UPDATE SET expires_at = excluded.expires_at;', 'ON CONFLICT (key, owner) DO NOTHING;', 'native/postgres_fleet', 'r11_a_transaction_that_stalls_past_the_ttl_commits_live_pins'),
  mutant('pin_commit wants no entry', SCHEMA, `  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'ALK11', MESSAGE = 'a key to pin has no live entry';
  END IF;
`, '', 'native/postgres_fleet', 'r12_what_is_gone_or_going_cannot_be_pinned'),
  mutant('a lapsed entry can be pinned', SCHEMA, `LEFT JOIN {schema}.entries e ON e.key = n.key AND (e.expires_at IS NULL OR e.expires_at > v_now)
    WHERE e.key IS NULL`, `LEFT JOIN {schema}.entries e ON e.key = n.key
    WHERE e.key IS NULL`, 'native/postgres_fleet', 'r12_what_is_gone_or_going_cannot_be_pinned'),
  mutant('pin_commit pins what is marked', SCHEMA, `  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'ALK12', MESSAGE = 'a key to pin is being reclaimed';
  END IF;
`, '', 'native/postgres_fleet', 'r12_what_is_gone_or_going_cannot_be_pinned'),
  mutant('a renewal of a pin is judged before its wait', SCHEMA, `  SELECT p.expires_at INTO v_deadline FROM {schema}.gc_pins p WHERE p.key = p_key AND p.owner = p_owner
    FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  v_now := {schema}.clock();
`, `  v_now := {schema}.clock();
  SELECT p.expires_at INTO v_deadline FROM {schema}.gc_pins p WHERE p.key = p_key AND p.owner = p_owner
    FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
`, 'native/postgres_fleet', 'r12_a_renewal_that_waits_past_the_deadline_is_refused'),
  mutant('a lapsed pin is renewed', SCHEMA, `  IF v_deadline <= v_now THEN
    RETURN NULL;
  END IF;
  v_deadline := {schema}.after_v1(v_now, p_ttl);
  UPDATE {schema}.gc_pins`, `  v_deadline := {schema}.after_v1(v_now, p_ttl);
  UPDATE {schema}.gc_pins`, 'native/postgres_fleet', 'f4_only_a_live_pin_is_renewed'),
  mutant('pin_hold_in holds no pin', SCHEMA, `
    FOR KEY SHARE;
  RETURN FOUND AND v_deadline >`, `;
  RETURN FOUND AND v_deadline >`, 'native/postgres_fleet', 'f4_a_pin_that_is_held_outlasts_its_deadline'),
  mutant('a lapsed pin is held', SCHEMA, `    FOR KEY SHARE;
  RETURN FOUND AND v_deadline > {schema}.clock();`, `    FOR KEY SHARE;
  RETURN FOUND;`, 'native/postgres_fleet', 'f4_a_pin_that_is_held_outlasts_its_deadline'),
  mutant('joint_lock locks no keys', 'native-engines/src/postgres/joint.rs', '[&missing, &none.keys', '[&Vec::<i32>::new(), &none.keys', 'native/postgres_fleet', 'f10_keys_that_are_locked_at_once_are_put_in_any_order'),
  mutant('a put holds no key', SCHEMA, `  PERFORM pg_catalog.pg_advisory_xact_lock({keys}, p_stripe);
  IF p_mode = 0 AND p_guard IS NULL THEN`, '  IF p_mode = 0 AND p_guard IS NULL THEN', 'native/postgres_fleet', 'r4_a_publisher_waits_for_the_deletion_and_writes_anew'),
  mutant('a publication of what is there leaves it in the window', SCHEMA, `      ELSIF FOUND THEN
        DELETE FROM {schema}.gc_window WHERE key = p_key;
      END IF;
      RETURN ARRAY[1, v_current];`, `      END IF;
      RETURN ARRAY[1, v_current];`, 'native/postgres_fleet', 'r2_a_publication_takes_the_key_out_of_the_window'),

  mutant('keeping moves, in SQL', SCHEMA, `
      ON CONFLICT (key) DO NOTHING;`, `
      ON CONFLICT (key) DO UPDATE SET visible_after = excluded.visible_after;`, 'list/postgres', 'w2_r1'),
  mutant('a publication of what is new leaves it in the window', SCHEMA, `  ELSIF FOUND AND p_mode = 0 THEN
    DELETE FROM {schema}.gc_window WHERE key = p_key;
  END IF;`, '  END IF;', 'list/postgres', 'e6_create_takes'),
  mutant('a claim stands without a row', SCHEMA, 'WHEN h.state IS NULL THEN -4', 'WHEN h.state IS NULL THEN -3', 'native/postgres_window', 'r3_a_mark_that_waits'),
  mutant('a put that waited does not look for a mark', SCHEMA, `  IF v_reclaiming THEN
    RETURN ARRAY[3, NULL];
  ELSIF FOUND AND p_mode = 0 THEN`, `  IF false THEN
    RETURN ARRAY[3, NULL];
  ELSIF FOUND AND p_mode = 0 THEN`, 'native/postgres_window', 'r4_a_write_that_waits'),
  mutant('a changeset that waited does not look for a mark', SCHEMA, `WHERE key = ANY (p_puts || p_unstages) AND reclaiming LIMIT 1;
  IF FOUND THEN`, `WHERE key = ANY (p_puts || p_unstages) AND reclaiming LIMIT 1;
  IF false THEN`, 'native/postgres_window', 'r4_a_write_that_waits'),
  mutant('only a key that is there is held', SCHEMA, `  PERFORM pg_catalog.pg_advisory_xact_lock({keys}, p_stripe);
  IF p_mode = 0 AND p_guard IS NULL THEN`, `  PERFORM pg_catalog.pg_advisory_xact_lock({keys}, p_stripe) FROM {schema}.entries WHERE key = p_key;
  IF p_mode = 0 AND p_guard IS NULL THEN`, 'native/postgres_fleet', 'r7_an_absent_key'),
  mutant('any claim finishes, in SQL', SCHEMA, `          WHEN h.state <> -4 AND h.claim <> c.claim THEN -5
`, '', 'list/postgres', 'w8_r8'),
  mutant('a claim never lapses, in SQL', WINDOW, 'AND (w.claim_until IS NULL OR w.claim_until <= (SELECT {schema}.clock()))', 'AND w.claim_until IS NULL', 'list/postgres', 'w5_r9'),
  mutant('claims hold nobody off, in SQL', WINDOW, 'AND (w.claim_until IS NULL OR w.claim_until <= (SELECT {schema}.clock()))', '', 'list/postgres', 'w7_r15_claimers'),
  mutant('what is marked is not claimed again, in SQL', WINDOW, 'chosen("")', 'chosen(UNMARKED)', 'list/postgres', 'w8_r10'),
  mutant('a limit is evaluated again', WINDOW, `w.ctid = ANY (ARRAY( \\
           SELECT w.ctid FROM {{schema}}.gc_window w WHERE {AVAILABLE} {also} \\
           ORDER BY w.visible_after, w.key LIMIT $2 FOR UPDATE SKIP LOCKED)) \\`, `w.ctid IN ( \\
           SELECT w.ctid FROM {{schema}}.gc_window w WHERE {AVAILABLE} {also} \\
           ORDER BY w.visible_after, w.key LIMIT $2 FOR UPDATE SKIP LOCKED) \\`, 'native/postgres_window', 'w7_no_plan'),
  mutant('takers wait for each other', WINDOW, 'FOR UPDATE SKIP LOCKED', 'FOR UPDATE', 'native/postgres_window', 'w3_rows_that_others'),
  mutant('a list is read, and then deleted by key', WINDOW, 'WHERE {AVAILABLE} {UNMARKED} RETURNING w.key, w.visible_after"', 'WHERE w.key = ANY (ARRAY(SELECT w.key FROM {{schema}}.gc_window w WHERE {AVAILABLE} {UNMARKED})) RETURNING w.key, w.visible_after"', 'native/postgres_window', 'r16_a_row'),
  mutant('a move keeps the claim, in SQL', SCHEMA, 'SET visible_after = excluded.visible_after, claim = NULL, claim_until = NULL, requeues = 0', 'SET visible_after = excluded.visible_after, requeues = 0', 'list/postgres', 'w5_r16'),
  mutant('the fence is not asked again after the wait', SCHEMA, `    INTO v_now, v_keys, v_rows, v_claims, v_answers FROM held h;
  IF NOT {schema}.fence_v2(p_fence, p_fleet) THEN
    RETURN NULL;
  END IF;`, `    INTO v_now, v_keys, v_rows, v_claims, v_answers FROM held h;`, 'native/postgres_window', 'r14_a_sweep_that_is_no_longer'),
  mutant('claims lapse by the time of the machine', WINDOW, 'OR w.claim_until <= (SELECT {schema}.clock()))', `OR w.claim_until <= ${WALL})`, 'native/postgres_fleet', 'r19_a_node'),
  mutant('pins lapse by the time of the machine', SCHEMA, `    v_now := {schema}.clock();
    WITH pinned`, `    v_now := ${WALL};
    WITH pinned`, 'native/postgres_fleet', 'r19_a_node'),
  mutant('a node tells the time itself', 'native-engines/src/postgres/mod.rs', 'Ok(Timestamp::from_nanos(column(&row, 0)?))', `column::<i64>(&row, 0)?;
            let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            Ok(Timestamp::from_nanos(0).plus(since))`, 'native/postgres_fleet', 'r19_a_node'),
  mutant('what is put back comes at once, in SQL', WINDOW, 'SET visible_after = $3, claim = NULL', 'SET visible_after = CASE WHEN $3 IS NULL THEN 0 ELSE w.visible_after END, claim = NULL', 'list/postgres', 'w5_r20'),
  mutant('what is pinned comes again at once', WINDOW, 'SET visible_after = $3, claim = NULL', 'SET visible_after = CASE WHEN $3 IS NULL THEN 0 ELSE w.visible_after END, claim = NULL', 'native/postgres_fleet', 'r20_what_is_pinned'),
  mutant('a deadlock is no conflict', 'native-engines/src/postgres/error.rs', '*code == SqlState::T_R_DEADLOCK_DETECTED || ', '', 'native/postgres_fleet', 'r21_publishers'),
  mutant('a reader gets a part, in SQL', 'native-engines/src/postgres/entries.rs', 'SELECT value, version, expires_at FROM', 'SELECT pg_catalog.substr(value, 1, 65536), version, expires_at FROM', 'list/postgres', 'r22_a_reader'),
  mutant('a reader waits for a deletion', 'native-engines/src/postgres/entries.rs', `WHERE key = $1 AND (expires_at IS NULL OR expires_at > {schema}.clock())",
                ),
                [bytes()],`, `WHERE key = $1 AND (expires_at IS NULL OR expires_at > {schema}.clock()) FOR KEY SHARE",
                ),
                [bytes()],`, 'native/postgres_window', 'r22_a_reader'),
  mutant('the grace counts from before the wait', SCHEMA, `  PERFORM {schema}.stage_v2(ARRAY[]::bytea[], ARRAY[]::bigint[], p_move, p_stripes);
`, '', 'native/postgres_window', 'r2_a_mark_pass_that_waits'),
];
