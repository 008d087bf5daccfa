-- Everything that one store keeps in its schema. Each part begins with a line `--: NAME`, where NAME is that of the
-- object in the catalogue; schema.rs creates the parts whose objects are missing, in this order.
--
-- {schema} is the quoted schema, {revision} the sequence as a literal, {keys} and {names} are the two classes of
-- advisory locks. Instants and durations are bigint nanoseconds. Functions end in the version of the schema that
-- introduced them, so that nodes of two versions can work side by side.

--: alkstore
CREATE TABLE {schema}.alkstore (version integer NOT NULL);
INSERT INTO {schema}.alkstore VALUES (2);

-- CACHE 1: with a cache each connection would draw from a range of its own, and tokens would not follow grants.
--: revision
CREATE SEQUENCE {schema}.revision AS bigint MINVALUE 1 MAXVALUE 9007199254740991 NO CYCLE CACHE 1;

-- Names compare bytewise. Room in each page keeps renewals in it.
--: locks
CREATE TABLE {schema}.locks (
  name text COLLATE "C" PRIMARY KEY,
  owner text COLLATE "C" NOT NULL,
  token bigint NOT NULL,
  deadline bigint NOT NULL
) WITH (fillfactor = 70);

--: entries
CREATE TABLE {schema}.entries (
  key bytea PRIMARY KEY,
  value bytea NOT NULL,
  version bigint NOT NULL,
  expires_at bigint
);

--: entries_expires_at
CREATE INDEX entries_expires_at ON {schema}.entries (expires_at) WHERE expires_at IS NOT NULL;

-- Room in each page keeps claims and marks in it, without a write to the indexes: three times as fast.
--: gc_window
CREATE TABLE {schema}.gc_window (
  key bytea PRIMARY KEY,
  visible_after bigint NOT NULL,
  claim bigint,
  claim_until bigint,
  reclaiming boolean NOT NULL DEFAULT false,
  requeues integer NOT NULL DEFAULT 0
) WITH (fillfactor = 40);

--: gc_window_due
CREATE INDEX gc_window_due ON {schema}.gc_window (visible_after, key);

--: gc_pins
CREATE TABLE {schema}.gc_pins (
  key bytea NOT NULL,
  owner text COLLATE "C" NOT NULL,
  expires_at bigint NOT NULL,
  PRIMARY KEY (key, owner)
);

-- The store clock. clock_timestamp() moves on within a statement and a transaction; now() does not, and would refuse
-- what lapsed during a wait.
--: clock
CREATE FUNCTION {schema}.clock() RETURNS bigint LANGUAGE {language} VOLATILE AS
$alkstore${clock}$alkstore$;

-- The end of a time to live, at most the end of the range; NULL where there is no time to live.
--: after_v1
CREATE FUNCTION {schema}.after_v1(p_now bigint, p_ttl bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$alkstore$
  SELECT CASE WHEN p_now > 9223372036854775807 - p_ttl THEN 9223372036854775807 ELSE p_now + p_ttl END
$alkstore$;

-- The functions below are volatile and in plpgsql, so each of their statements takes a snapshot of its own under READ
-- COMMITTED: what is read after a wait is what is there after the wait.

-- Answers {token, deadline}, or NULL where another owner's lease is live.
--
-- A live row ends it as a pure read, which writes nothing and draws no token. Every grant of a name holds the name's
-- advisory lock from before it draws its token until it commits, so tokens follow grants although rows are deleted.
--: try_lock_v1
CREATE FUNCTION {schema}.try_lock_v1(p_name text, p_owner text, p_ttl bigint, p_hash integer)
RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS
$alkstore$
DECLARE
  v_owner text;
  v_token bigint;
  v_deadline bigint;
  v_now bigint;
  v_found boolean;
BEGIN
  SELECT l.owner, l.token, l.deadline INTO v_owner, v_token, v_deadline
    FROM {schema}.locks l WHERE l.name = p_name;
  IF FOUND AND v_deadline > {schema}.clock() THEN
    IF v_owner = p_owner THEN
      RETURN ARRAY[v_token, v_deadline];
    END IF;
    RETURN NULL;
  END IF;
  PERFORM pg_catalog.pg_advisory_xact_lock({names}, p_hash);
  -- Waits for a renewal or a release under way. Afterwards nobody can touch the name until this commits.
  SELECT l.owner, l.token, l.deadline INTO v_owner, v_token, v_deadline
    FROM {schema}.locks l WHERE l.name = p_name FOR UPDATE;
  v_found := FOUND;
  v_now := {schema}.clock();
  IF v_found AND v_deadline > v_now THEN
    IF v_owner = p_owner THEN
      RETURN ARRAY[v_token, v_deadline];
    END IF;
    RETURN NULL;
  END IF;
  v_token := pg_catalog.nextval({revision});
  v_deadline := {schema}.after_v1(v_now, p_ttl);
  IF v_found THEN
    UPDATE {schema}.locks SET owner = p_owner, token = v_token, deadline = v_deadline WHERE name = p_name;
  ELSE
    INSERT INTO {schema}.locks (name, owner, token, deadline) VALUES (p_name, p_owner, v_token, v_deadline);
  END IF;
  RETURN ARRAY[v_token, v_deadline];
END
$alkstore$;

-- Answers the new deadline, or NULL. The row is locked first and judged after: a renewal that waited past its own
-- deadline finds it lapsed.
--: renew_v1
CREATE FUNCTION {schema}.renew_v1(p_name text, p_owner text, p_token bigint, p_ttl bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE AS
$alkstore$
DECLARE
  v_deadline bigint;
  v_now bigint;
BEGIN
  SELECT l.deadline INTO v_deadline
    FROM {schema}.locks l WHERE l.name = p_name AND l.owner = p_owner AND l.token = p_token
    FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  v_now := {schema}.clock();
  IF v_deadline <= v_now THEN
    RETURN NULL;
  END IF;
  v_deadline := {schema}.after_v1(v_now, p_ttl);
  UPDATE {schema}.locks SET deadline = v_deadline WHERE name = p_name;
  RETURN v_deadline;
END
$alkstore$;

-- The same as the release of a grant, which is one DELETE, but the commit does not wait for the disk.
--: release_relaxed_v1
CREATE FUNCTION {schema}.release_relaxed_v1(p_name text, p_owner text, p_token bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS
$alkstore$
BEGIN
  PERFORM pg_catalog.set_config('synchronous_commit', 'off', true);
  DELETE FROM {schema}.locks WHERE name = p_name AND owner = p_owner AND token = p_token;
  RETURN FOUND;
END
$alkstore$;

-- Whether the grant is live, judged after every wait. The lock on its row keeps grants and releases out until the
-- caller's commit; renewals pass.
--: guard_v1
CREATE FUNCTION {schema}.guard_v1(p_name text, p_token bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS
$alkstore$
DECLARE
  v_token bigint;
  v_deadline bigint;
BEGIN
  SELECT l.token, l.deadline INTO v_token, v_deadline
    FROM {schema}.locks l WHERE l.name = p_name FOR KEY SHARE;
  RETURN FOUND AND v_token = p_token AND v_deadline > {schema}.clock();
END
$alkstore$;

-- p_mode: 0 create, 1 replace, 2 update over p_version. Answers {0, version} stored, {1, current or NULL} not stored,
-- {2, NULL} lease lost, {3, NULL} the key is being reclaimed.
--
-- The lock order of everything: stripes of keys (ascending), rows of entries, rows of guards, rows of the window, rows of
-- pins, registered tables; rows by key. Whoever waits for a row while it holds others keeps to it. Marks are written under
-- the stripe, held exclusively, so they stand still for whoever holds it.
--: put_v2
CREATE FUNCTION {schema}.put_v2(p_key bytea, p_value bytea, p_mode integer, p_version bigint, p_ttl bigint,
  p_stripe integer, p_guard text, p_token bigint)
RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS
$alkstore$
DECLARE
  v_current bigint;
  v_expires_at bigint;
  v_reclaiming boolean;
  v_now bigint;
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock({keys}, p_stripe);
  IF p_mode = 0 AND p_guard IS NULL THEN
    -- The usual loser: it writes nothing, so it locks no row.
    SELECT e.version INTO v_current FROM {schema}.entries e
      WHERE e.key = p_key AND (e.expires_at IS NULL OR e.expires_at > {schema}.clock());
    IF FOUND THEN
      SELECT w.reclaiming INTO v_reclaiming FROM {schema}.gc_window w WHERE w.key = p_key;
      IF v_reclaiming THEN
        RETURN ARRAY[3, NULL];
      ELSIF FOUND THEN
        DELETE FROM {schema}.gc_window WHERE key = p_key;
      END IF;
      RETURN ARRAY[1, v_current];
    END IF;
  END IF;
  SELECT e.version, e.expires_at INTO v_current, v_expires_at
    FROM {schema}.entries e WHERE e.key = p_key FOR UPDATE;
  IF p_guard IS NOT NULL AND NOT {schema}.guard_v1(p_guard, p_token) THEN
    RETURN ARRAY[2, NULL];
  END IF;
  SELECT w.reclaiming INTO v_reclaiming FROM {schema}.gc_window w WHERE w.key = p_key;
  IF v_reclaiming THEN
    RETURN ARRAY[3, NULL];
  ELSIF FOUND AND p_mode = 0 THEN
    DELETE FROM {schema}.gc_window WHERE key = p_key;
  END IF;
  v_now := {schema}.clock();
  IF v_expires_at <= v_now THEN
    v_current := NULL;
  END IF;
  IF (p_mode = 0 AND v_current IS NOT NULL) OR (p_mode = 2 AND v_current IS DISTINCT FROM p_version) THEN
    RETURN ARRAY[1, v_current];
  END IF;
  v_current := pg_catalog.nextval({revision});
  INSERT INTO {schema}.entries AS e (key, value, version, expires_at)
    VALUES (p_key, p_value, v_current, {schema}.after_v1(v_now, p_ttl))
    ON CONFLICT (key) DO UPDATE
    SET value = excluded.value, version = excluded.version, expires_at = excluded.expires_at;
  RETURN ARRAY[0, v_current];
END
$alkstore$;

--: touch_v1
CREATE FUNCTION {schema}.touch_v1(p_key bytea, p_ttl bigint, p_stripe integer)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS
$alkstore$
DECLARE
  v_now bigint;
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock({keys}, p_stripe);
  PERFORM FROM {schema}.entries WHERE key = p_key FOR UPDATE;
  v_now := {schema}.clock();
  UPDATE {schema}.entries SET expires_at = {schema}.after_v1(v_now, p_ttl)
    WHERE key = p_key AND (expires_at IS NULL OR expires_at > v_now);
  RETURN FOUND;
END
$alkstore$;

--: delete_v1
CREATE FUNCTION {schema}.delete_v1(p_key bytea, p_version bigint, p_stripe integer)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS
$alkstore$
DECLARE
  v_now bigint;
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock({keys}, p_stripe);
  PERFORM FROM {schema}.entries WHERE key = p_key FOR UPDATE;
  v_now := {schema}.clock();
  DELETE FROM {schema}.entries
    WHERE key = p_key AND (expires_at IS NULL OR expires_at > v_now) AND (p_version IS NULL OR version = p_version);
  RETURN FOUND;
END
$alkstore$;

-- Inserts candidates, each key once, in bytewise order. A write of the same key is kept out until the commit, so that
-- a publication either sees the row and removes it, or comes before it. What is being reclaimed is past staging.
--: stage_v2
CREATE FUNCTION {schema}.stage_v2(p_keys bytea[], p_after bigint[], p_move boolean, p_stripes integer[])
RETURNS void LANGUAGE plpgsql VOLATILE AS
$alkstore$
DECLARE
  v_stripe integer;
BEGIN
  FOREACH v_stripe IN ARRAY p_stripes LOOP
    PERFORM pg_catalog.pg_advisory_xact_lock_shared({keys}, v_stripe);
  END LOOP;
  IF p_move THEN
    INSERT INTO {schema}.gc_window AS w (key, visible_after)
      SELECT * FROM unnest(p_keys, p_after)
      ON CONFLICT (key) DO UPDATE
      SET visible_after = excluded.visible_after, claim = NULL, claim_until = NULL, requeues = 0
      WHERE w.visible_after <> excluded.visible_after AND NOT w.reclaiming;
  ELSE
    INSERT INTO {schema}.gc_window AS w (key, visible_after)
      SELECT * FROM unnest(p_keys, p_after)
      ON CONFLICT (key) DO NOTHING;
  END IF;
END
$alkstore$;

-- The same for keys that are due p_grace after the wait for the writes of their keys.
--: stage_after_v2
CREATE FUNCTION {schema}.stage_after_v2(p_keys bytea[], p_grace bigint, p_move boolean, p_stripes integer[])
RETURNS void LANGUAGE plpgsql VOLATILE AS
$alkstore$
BEGIN
  PERFORM {schema}.stage_v2(ARRAY[]::bytea[], ARRAY[]::bigint[], p_move, p_stripes);
  PERFORM {schema}.stage_v2(p_keys,
    pg_catalog.array_fill({schema}.after_v1({schema}.clock(), p_grace), ARRAY[pg_catalog.cardinality(p_keys)]),
    p_move, ARRAY[]::integer[]);
END
$alkstore$;

-- Applies a changeset or nothing of it. o_status: 0 applied, 1 conflict, 2 lease lost, by the guard at o_guard
-- (from 1), 3 a key to put is being reclaimed. o_versions are those of p_puts, in bytewise order of the keys. All arrays of keys are in bytewise order,
-- that of stripes is ascending.
--: commit_v2
CREATE FUNCTION {schema}.commit_v2(
  p_stripes integer[], p_exclusive boolean[], p_guards text[], p_tokens bigint[],
  p_checks bytea[], p_expected bigint[], p_puts bytea[], p_values bytea[], p_ttls bigint[], p_deletes bytea[],
  p_unstages bytea[], p_moves bytea[], p_moves_after bigint[], p_keeps bytea[], p_keeps_after bigint[],
  OUT o_status integer, OUT o_guard bigint, OUT o_versions bigint[])
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS
$alkstore$
DECLARE
  v_now bigint;
BEGIN
  IF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN
    -- One snapshot for the whole transaction could not see what was committed during a wait.
    RAISE EXCEPTION USING ERRCODE = 'ALK01', MESSAGE = 'the transaction is not READ COMMITTED';
  END IF;
  FOR v_i IN 1 .. pg_catalog.cardinality(p_stripes) LOOP
    IF p_exclusive[v_i] THEN
      PERFORM pg_catalog.pg_advisory_xact_lock({keys}, p_stripes[v_i]);
    ELSE
      PERFORM pg_catalog.pg_advisory_xact_lock_shared({keys}, p_stripes[v_i]);
    END IF;
  END LOOP;
  PERFORM FROM {schema}.entries WHERE key = ANY (p_puts || p_deletes) ORDER BY key FOR UPDATE;
  PERFORM FROM {schema}.locks WHERE name = ANY (p_guards) ORDER BY name FOR KEY SHARE;
  v_now := {schema}.clock();

  SELECT g.place INTO o_guard
    FROM unnest(p_guards, p_tokens) WITH ORDINALITY AS g(name, token, place)
    LEFT JOIN {schema}.locks l ON l.name = g.name
    WHERE l.token IS DISTINCT FROM g.token OR l.deadline <= v_now
    ORDER BY g.place LIMIT 1;
  IF FOUND THEN
    o_status := 2;
    RETURN;
  END IF;
  PERFORM FROM unnest(p_checks, p_expected) AS c(key, version)
    LEFT JOIN {schema}.entries e ON e.key = c.key AND (e.expires_at IS NULL OR e.expires_at > v_now)
    WHERE e.version IS DISTINCT FROM c.version LIMIT 1;
  IF FOUND THEN
    o_status := 1;
    RETURN;
  END IF;
  -- A create that found an entry writes nothing and leaves the window, and its caller trusts that entry all the same.
  PERFORM FROM {schema}.gc_window WHERE key = ANY (p_puts || p_unstages) AND reclaiming LIMIT 1;
  IF FOUND THEN
    o_status := 3;
    RETURN;
  END IF;

  IF pg_catalog.cardinality(p_puts) > 0 THEN
    WITH written AS (
      INSERT INTO {schema}.entries AS e (key, value, version, expires_at)
        SELECT p.key, p.value, pg_catalog.nextval({revision}), {schema}.after_v1(v_now, p.ttl)
        FROM unnest(p_puts, p_values, p_ttls) AS p(key, value, ttl)
        ON CONFLICT (key) DO UPDATE
        SET value = excluded.value, version = excluded.version, expires_at = excluded.expires_at
        RETURNING e.key, e.version
    )
    SELECT pg_catalog.array_agg(written.version ORDER BY written.key) INTO o_versions FROM written;
  END IF;
  DELETE FROM {schema}.entries WHERE key = ANY (p_deletes);
  PERFORM FROM {schema}.gc_window WHERE key = ANY (p_unstages || p_moves || p_keeps) ORDER BY key FOR UPDATE;
  DELETE FROM {schema}.gc_window WHERE key = ANY (p_unstages) AND NOT reclaiming;
  PERFORM {schema}.stage_v2(p_moves, p_moves_after, true, ARRAY[]::integer[]);
  PERFORM {schema}.stage_v2(p_keeps, p_keeps_after, false, ARRAY[]::integer[]);
  o_status := 0;
END
$alkstore$;

-- Whether the sweep p_fence is the current one; NULL is no fence. A lock keeps a successor out until the caller's
-- commit: that of the lease's row, which renewals pass; in a fleet an advisory one past the last stripe, since a row
-- that many deletions share is written by each of them.
--: fence_v2
CREATE FUNCTION {schema}.fence_v2(p_fence bigint, p_fleet boolean)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS
$alkstore$
BEGIN
  IF p_fence IS NULL THEN
    RETURN true;
  ELSIF p_fleet THEN
    PERFORM pg_catalog.pg_advisory_xact_lock_shared({keys}, 1024);
    PERFORM FROM {schema}.gc_sweeper s WHERE s.epoch = p_fence;
    RETURN FOUND;
  END IF;
  RETURN {schema}.guard_v1('__alkstore_sweep', p_fence);
END
$alkstore$;

-- What protects each of p_keys, which are distinct: 0 nothing, 1 a live pin, 2 a row of a registered table. The caller
-- holds the stripes of the keys exclusively, so no pin can be added; p_tables and p_columns are quoted.
--
-- All pins are locked before the time is read, the lapsed ones too: a renewal comes before or after. Of keys that no live
-- pin protects they are deleted, so that a renewal that waited finds nothing. The tables are read after that, so that
-- every reference is seen that was committed while a pin was live. Whatever fails here fails the caller; so does row
-- security that would hide references.
--: arbitrate_v2
CREATE FUNCTION {schema}.arbitrate_v2(p_keys bytea[], p_tables text[], p_columns text[])
RETURNS integer[] LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_nestloop = off SET plan_cache_mode = force_generic_plan SET jit = off
SET row_security = off AS
$alkstore$
DECLARE
  v_verdicts integer[] := pg_catalog.array_fill(0, ARRAY[pg_catalog.cardinality(p_keys)]);
  v_rest bytea[] := p_keys;
  v_look text;
  v_found bytea[];
  v_seen integer[];
  v_places integer[];
  v_place integer;
  v_now bigint;
BEGIN
  IF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'ALK01', MESSAGE = 'the transaction is not READ COMMITTED';
  END IF;
  PERFORM FROM {schema}.gc_pins p WHERE p.key = ANY (p_keys) ORDER BY p.key, p.owner FOR UPDATE;
  IF FOUND THEN
    v_now := {schema}.clock();
    WITH pinned AS MATERIALIZED (
      SELECT p.key FROM {schema}.gc_pins p WHERE p.key = ANY (p_keys) AND p.expires_at > v_now GROUP BY p.key
    )
    SELECT pg_catalog.array_agg(CASE WHEN d.key IS NULL THEN 0 ELSE 1 END ORDER BY k.place),
        pg_catalog.array_agg(k.key ORDER BY k.place) FILTER (WHERE d.key IS NULL)
      INTO v_verdicts, v_rest
      FROM unnest(p_keys) WITH ORDINALITY AS k(key, place) LEFT JOIN pinned d ON d.key = k.key;
    DELETE FROM {schema}.gc_pins WHERE key = ANY (v_rest);
  END IF;
  IF pg_catalog.cardinality(p_tables) = 0 THEN
    RETURN v_verdicts;
  END IF;
  -- In one snapshot of all tables, so that a reference which moves between rows or tables is seen here or there.
  SELECT 'SELECT pg_catalog.array_agg(k.key), pg_catalog.array_agg(k.place)'
      || ' FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) AS k(key, place) CROSS JOIN LATERAL (('
      || pg_catalog.string_agg('SELECT FROM ' || s.tab || ' t WHERE t.' || s.col || ' = k.key', ') UNION ALL (')
      || ') LIMIT 1) AS r'
    INTO v_look FROM unnest(p_tables, p_columns) AS s(tab, col);
  EXECUTE v_look INTO v_found, v_seen
    USING p_keys, ARRAY(SELECT pg_catalog.generate_series(1, pg_catalog.cardinality(p_keys)));
  IF v_found IS NULL THEN
    RETURN v_verdicts;
  END IF;
  FOR v_i IN 1 .. pg_catalog.cardinality(p_tables) LOOP
    -- In the order of the keys, at most one row for each.
    EXECUTE 'SELECT pg_catalog.array_agg(k.place)'
        || ' FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) AS k(key, place)'
        || ' CROSS JOIN LATERAL (SELECT FROM ' || p_tables[v_i] || ' t WHERE t.' || p_columns[v_i]
        || ' = k.key LIMIT 1 FOR UPDATE) AS r'
      INTO v_places USING v_found, v_seen;
    FOREACH v_place IN ARRAY coalesce(v_places, ARRAY[]::integer[]) LOOP
      IF v_verdicts[v_place] = 0 THEN
        v_verdicts[v_place] := 2;
      END IF;
    END LOOP;
  END LOOP;
  SELECT pg_catalog.array_agg(s.key), pg_catalog.array_agg(s.place) INTO v_found, v_seen
    FROM unnest(v_found, v_seen) AS s(key, place) WHERE v_verdicts[s.place] = 0;
  IF v_found IS NOT NULL THEN
    -- Something went meanwhile. If it moved, the statement that waited for it could not see where to.
    EXECUTE v_look INTO v_found, v_places USING v_found, v_seen;
    FOREACH v_place IN ARRAY coalesce(v_places, ARRAY[]::integer[]) LOOP
      v_verdicts[v_place] := 2;
    END LOOP;
  END IF;
  RETURN v_verdicts;
END
$alkstore$;

-- p_step of the claims p_claims on p_keys, which are distinct and in bytewise order: 0 mark, 1 finish, 2 both at once.
-- Answers for each claim, in order, the bytes of the entry that was deleted; or -1 there was none, -2 marked, -3 not
-- marked, -4 voided, -5 lapsed, -6 pinned, -7 referenced. NULL where the fence does not hold: nothing was changed.
--
-- The rows of entries need no lock before they are deleted: all who write them hold the stripe, but for the purge of
-- lapsed ones, which waits for nobody.
--: reclaim_v2
CREATE FUNCTION {schema}.reclaim_v2(p_step integer, p_keys bytea[], p_claims bigint[], p_stripes integer[],
  p_fence bigint, p_fleet boolean, p_tables text[], p_columns text[])
RETURNS bigint[] LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_nestloop = off SET plan_cache_mode = force_generic_plan SET jit = off AS
$alkstore$
DECLARE
  v_standing bigint := CASE WHEN p_step = 1 THEN -2 ELSE -3 END;
  v_now bigint;
  v_keys bytea[];
  v_rows tid[];
  v_claims bigint[];
  v_answers bigint[];
  v_places bigint[];
  v_verdicts integer[];
  v_found bytea[];
  v_results bigint[];
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock({keys}, s.stripe) FROM unnest(p_stripes) AS s(stripe);
  IF NOT {schema}.fence_v2(p_fence, p_fleet) THEN
    RETURN NULL;
  END IF;
  -- The time is read when the last row is locked.
  WITH held AS MATERIALIZED (
    SELECT w.key, w.claim, w.claim_until, w.reclaiming, w.ctid AS at
      FROM {schema}.gc_window w WHERE w.key = ANY (p_keys) ORDER BY w.key FOR UPDATE
  ), clock AS MATERIALIZED (
    SELECT {schema}.clock() AS now FROM (SELECT pg_catalog.count(*) FROM held) AS every
  )
  SELECT (SELECT k.now FROM clock k), pg_catalog.array_agg(h.key), pg_catalog.array_agg(h.at),
      pg_catalog.array_agg(h.claim), pg_catalog.array_agg(CASE
        WHEN h.claim IS NULL THEN -4
        WHEN h.claim_until <= (SELECT k.now FROM clock k) THEN -5
        WHEN h.reclaiming THEN -2
        ELSE -3
      END)
    INTO v_now, v_keys, v_rows, v_claims, v_answers FROM held h;
  IF NOT {schema}.fence_v2(p_fence, p_fleet) THEN
    RETURN NULL;
  END IF;
  -- The usual case, a row for each claim and all of them standing, needs no join.
  IF (v_keys = p_keys AND v_claims = p_claims AND v_standing = ALL (v_answers)) IS NOT TRUE THEN
    WITH judged AS MATERIALIZED (
      SELECT c.place, c.key, h.at, CASE
          WHEN h.state IS NULL THEN -4
          WHEN h.state <> -4 AND h.claim <> c.claim THEN -5
          ELSE h.state
        END AS state
        FROM unnest(p_keys, p_claims) WITH ORDINALITY AS c(key, claim, place)
        LEFT JOIN unnest(v_keys, v_rows, v_claims, v_answers) AS h(key, at, claim, state) ON h.key = c.key
        ORDER BY c.place
    )
    SELECT coalesce(pg_catalog.array_agg(j.state), ARRAY[]::bigint[]),
        pg_catalog.array_agg(j.place) FILTER (WHERE j.state = v_standing),
        pg_catalog.array_agg(j.key) FILTER (WHERE j.state = v_standing),
        pg_catalog.array_agg(j.at) FILTER (WHERE j.state = v_standing)
      INTO v_answers, v_places, v_keys, v_rows FROM judged j;
    IF v_keys IS NULL THEN
      RETURN v_answers;
    END IF;
  END IF;

  IF p_step <> 1 THEN
    v_verdicts := {schema}.arbitrate_v2(v_keys, p_tables, p_columns);
    IF v_verdicts && ARRAY[1, 2] THEN
      FOR v_i IN 1 .. pg_catalog.cardinality(v_keys) LOOP
        IF v_verdicts[v_i] <> 0 THEN
          v_answers[coalesce(v_places[v_i], v_i)] := -5 - v_verdicts[v_i];
        END IF;
      END LOOP;
      SELECT pg_catalog.array_agg(coalesce(g.place, g.n)), pg_catalog.array_agg(g.key), pg_catalog.array_agg(g.at)
        INTO v_places, v_keys, v_rows
        FROM unnest(v_places, v_keys, v_rows, v_verdicts) WITH ORDINALITY AS g(place, key, at, verdict, n)
        WHERE g.verdict = 0;
      IF v_keys IS NULL THEN
        RETURN v_answers;
      END IF;
    END IF;
  END IF;

  -- The rows of the window are locked, so they are where they were.
  IF p_step = 0 THEN
    UPDATE {schema}.gc_window w SET reclaiming = true WHERE w.ctid = ANY (v_rows);
    v_results := pg_catalog.array_fill(-2::bigint, ARRAY[pg_catalog.cardinality(v_keys)]);
  ELSE
    WITH gone AS MATERIALIZED (
      DELETE FROM {schema}.entries e WHERE e.key = ANY (v_keys)
        RETURNING e.key, CASE WHEN e.expires_at <= v_now THEN -1 ELSE pg_catalog.octet_length(e.value) END AS bytes
    )
    SELECT pg_catalog.array_agg(g.key), pg_catalog.array_agg(g.bytes) INTO v_found, v_results
      FROM (SELECT gone.key, gone.bytes FROM gone ORDER BY gone.key) AS g;
    DELETE FROM {schema}.gc_window w WHERE w.ctid = ANY (v_rows);
    IF v_found IS DISTINCT FROM v_keys THEN
      SELECT pg_catalog.array_agg(coalesce(g.bytes, -1) ORDER BY k.place) INTO v_results
        FROM unnest(v_keys) WITH ORDINALITY AS k(key, place)
        LEFT JOIN unnest(v_found, v_results) AS g(key, bytes) ON g.key = k.key;
    END IF;
  END IF;
  IF v_places IS NULL THEN
    RETURN v_results;
  END IF;
  FOR v_i IN 1 .. pg_catalog.cardinality(v_places) LOOP
    v_answers[v_places[v_i]] := v_results[v_i];
  END LOOP;
  RETURN v_answers;
END
$alkstore$;

-- The current sweep's epoch, in the one row; NULL after it ended.
--: gc_sweeper
CREATE TABLE {schema}.gc_sweeper (epoch bigint);
INSERT INTO {schema}.gc_sweeper VALUES (NULL);

-- Starts a new epoch once the deletions under the one before are through.
--: sweep_begin_v2
CREATE FUNCTION {schema}.sweep_begin_v2() RETURNS bigint LANGUAGE plpgsql VOLATILE AS
$alkstore$
DECLARE
  v_epoch bigint;
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock({keys}, 1024);
  UPDATE {schema}.gc_sweeper SET epoch = pg_catalog.nextval({revision}) RETURNING epoch INTO v_epoch;
  RETURN v_epoch;
END
$alkstore$;

-- Ends the epoch, likewise; whether it was the current one.
--: sweep_end_v2
CREATE FUNCTION {schema}.sweep_end_v2(p_epoch bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS
$alkstore$
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock({keys}, 1024);
  UPDATE {schema}.gc_sweeper SET epoch = NULL WHERE epoch = p_epoch;
  RETURN FOUND;
END
$alkstore$;

-- Whether something protects the key at this instant.
--: protected_v2
CREATE FUNCTION {schema}.protected_v2(p_key bytea, p_stripe integer, p_tables text[], p_columns text[])
RETURNS boolean LANGUAGE plpgsql VOLATILE AS
$alkstore$
DECLARE
  v_verdicts integer[];
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock({keys}, p_stripe);
  v_verdicts := {schema}.arbitrate_v2(ARRAY[p_key], p_tables, p_columns);
  RETURN v_verdicts[1] <> 0;
END
$alkstore$;

-- Answers as reclaim_v2 does for one claim; there is no claim here, so a row of the window goes with the entry, unless
-- it is marked.
--: sweep_delete_v2
CREATE FUNCTION {schema}.sweep_delete_v2(p_key bytea, p_stripe integer, p_epoch bigint, p_tables text[],
  p_columns text[])
RETURNS bigint LANGUAGE plpgsql VOLATILE AS
$alkstore$
DECLARE
  v_verdicts integer[];
  v_bytes bigint;
  v_expires_at bigint;
  v_reclaiming boolean;
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock({keys}, p_stripe);
  IF NOT {schema}.fence_v2(p_epoch, true) THEN
    RETURN NULL;
  END IF;
  SELECT w.reclaiming INTO v_reclaiming FROM {schema}.gc_window w WHERE w.key = p_key FOR UPDATE;
  IF v_reclaiming THEN
    RETURN -2;
  END IF;
  v_verdicts := {schema}.arbitrate_v2(ARRAY[p_key], p_tables, p_columns);
  IF v_verdicts[1] <> 0 THEN
    RETURN -5 - v_verdicts[1];
  END IF;
  DELETE FROM {schema}.gc_window WHERE key = p_key;
  DELETE FROM {schema}.entries WHERE key = p_key
    RETURNING pg_catalog.octet_length(value), expires_at INTO v_bytes, v_expires_at;
  RETURN CASE WHEN v_bytes IS NULL OR v_expires_at <= {schema}.clock() THEN -1 ELSE v_bytes END;
END
$alkstore$;

-- Writes the pins of a publisher, whose keys and owners are distinct and in bytewise order; the commit follows in the
-- same breath. p_stripes are those that the transaction does not hold yet, ascending.
--
-- The time is read when nothing is left to wait for, so no pin is born lapsed: no other transaction can add one of these
-- pins, and those that are there are locked.
--: pin_v2
CREATE FUNCTION {schema}.pin_v2(p_stripes integer[], p_keys bytea[], p_owners text[], p_ttls bigint[])
RETURNS void LANGUAGE plpgsql VOLATILE AS
$alkstore$
DECLARE
  v_now bigint;
BEGIN
  FOR v_i IN 1 .. pg_catalog.cardinality(p_stripes) LOOP
    PERFORM pg_catalog.pg_advisory_xact_lock({keys}, p_stripes[v_i]);
  END LOOP;
  PERFORM FROM {schema}.gc_window WHERE key = ANY (p_keys) ORDER BY key FOR UPDATE;
  PERFORM FROM {schema}.gc_pins p JOIN unnest(p_keys, p_owners) AS n(key, owner) ON p.key = n.key AND p.owner = n.owner
    ORDER BY p.key, p.owner FOR NO KEY UPDATE OF p;
  v_now := {schema}.clock();
  PERFORM FROM {schema}.gc_window WHERE key = ANY (p_keys) AND reclaiming LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'ALK12', MESSAGE = 'a key to pin is being reclaimed';
  END IF;
  PERFORM FROM unnest(p_keys) AS n(key)
    LEFT JOIN {schema}.entries e ON e.key = n.key AND (e.expires_at IS NULL OR e.expires_at > v_now)
    WHERE e.key IS NULL LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'ALK11', MESSAGE = 'a key to pin has no live entry';
  END IF;
  -- As a publication does: what a sweep has claimed and asked about is asked about anew.
  DELETE FROM {schema}.gc_window WHERE key = ANY (p_keys);
  INSERT INTO {schema}.gc_pins AS p (key, owner, expires_at)
    SELECT n.key, n.owner, {schema}.after_v1(v_now, n.ttl) FROM unnest(p_keys, p_owners, p_ttls) AS n(key, owner, ttl)
    ON CONFLICT (key, owner) DO UPDATE SET expires_at = excluded.expires_at;
END
$alkstore$;

-- Answers the new deadline, or NULL. The row is locked first and judged after: what waited for the arbiter of the key
-- finds the row gone, what waited past its own deadline finds it lapsed. A pin that somebody
-- holds is renewed all the same.
--: pin_renew_v2
CREATE FUNCTION {schema}.pin_renew_v2(p_key bytea, p_owner text, p_ttl bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE AS
$alkstore$
DECLARE
  v_deadline bigint;
  v_now bigint;
BEGIN
  SELECT p.expires_at INTO v_deadline FROM {schema}.gc_pins p WHERE p.key = p_key AND p.owner = p_owner
    FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  v_now := {schema}.clock();
  IF v_deadline <= v_now THEN
    RETURN NULL;
  END IF;
  v_deadline := {schema}.after_v1(v_now, p_ttl);
  UPDATE {schema}.gc_pins SET expires_at = v_deadline WHERE key = p_key AND owner = p_owner;
  RETURN v_deadline;
END
$alkstore$;

-- Whether the pin is live, judged after every wait. It is in the caller's transaction: the lock on the row keeps the
-- arbiter of the key out until its end, and lets renewals pass.
--: pin_hold_v2
CREATE FUNCTION {schema}.pin_hold_v2(p_key bytea, p_owner text)
RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS
$alkstore$
DECLARE
  v_deadline bigint;
BEGIN
  SELECT p.expires_at INTO v_deadline FROM {schema}.gc_pins p WHERE p.key = p_key AND p.owner = p_owner
    FOR KEY SHARE;
  RETURN FOUND AND v_deadline > {schema}.clock();
END
$alkstore$;
