-- Everything that one store keeps in its schema. Each part begins with a line `--: NAME`, where NAME is that of the
-- object in the catalogue; schema.rs creates the parts whose objects are missing, in this order.
--
-- {schema} is the quoted schema, {revision} the sequence as a literal, {keys} and {names} are the two classes of
-- advisory locks. Instants and durations are bigint nanoseconds. Functions end in the version of the schema that
-- introduced them, so that nodes of two versions can work side by side.

--: alkstore
CREATE TABLE {schema}.alkstore (version integer NOT NULL);
INSERT INTO {schema}.alkstore VALUES (1);

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

--: gc_window
CREATE TABLE {schema}.gc_window (
  key bytea PRIMARY KEY,
  visible_after bigint NOT NULL,
  claim bigint,
  claim_until bigint
);

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
-- {2, NULL} lease lost.
--
-- The lock order of every write: stripes of keys, rows of entries, rows of guards, rows of the window.
--: put_v1
CREATE FUNCTION {schema}.put_v1(p_key bytea, p_value bytea, p_mode integer, p_version bigint, p_ttl bigint,
  p_stripe integer, p_guard text, p_token bigint)
RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS
$alkstore$
DECLARE
  v_current bigint;
  v_expires_at bigint;
  v_now bigint;
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock({keys}, p_stripe);
  IF p_mode = 0 AND p_guard IS NULL THEN
    -- The usual loser: it writes nothing, so it locks no row.
    SELECT e.version INTO v_current FROM {schema}.entries e
      WHERE e.key = p_key AND (e.expires_at IS NULL OR e.expires_at > {schema}.clock());
    IF FOUND THEN
      DELETE FROM {schema}.gc_window WHERE key = p_key;
      RETURN ARRAY[1, v_current];
    END IF;
  END IF;
  SELECT e.version, e.expires_at INTO v_current, v_expires_at
    FROM {schema}.entries e WHERE e.key = p_key FOR UPDATE;
  IF p_guard IS NOT NULL AND NOT {schema}.guard_v1(p_guard, p_token) THEN
    RETURN ARRAY[2, NULL];
  END IF;
  v_now := {schema}.clock();
  IF v_expires_at <= v_now THEN
    v_current := NULL;
  END IF;
  IF p_mode = 0 THEN
    DELETE FROM {schema}.gc_window WHERE key = p_key;
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
-- a publication either sees the row and removes it, or comes before it.
--: stage_v1
CREATE FUNCTION {schema}.stage_v1(p_keys bytea[], p_after bigint[], p_move boolean, p_stripes integer[])
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
      ON CONFLICT (key) DO UPDATE SET visible_after = excluded.visible_after, claim = NULL, claim_until = NULL
      WHERE w.visible_after <> excluded.visible_after;
  ELSE
    INSERT INTO {schema}.gc_window AS w (key, visible_after)
      SELECT * FROM unnest(p_keys, p_after)
      ON CONFLICT (key) DO NOTHING;
  END IF;
END
$alkstore$;

-- Applies a changeset or nothing of it. o_status: 0 applied, 1 conflict, 2 lease lost, by the guard at o_guard
-- (from 1). o_versions are those of p_puts, in bytewise order of the keys. All arrays of keys are in bytewise order,
-- that of stripes is ascending.
--: commit_v1
CREATE FUNCTION {schema}.commit_v1(
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
  PERFORM FROM {schema}.gc_window WHERE key = ANY (p_unstages) ORDER BY key FOR UPDATE;
  DELETE FROM {schema}.gc_window WHERE key = ANY (p_unstages);
  PERFORM {schema}.stage_v1(p_moves, p_moves_after, true, ARRAY[]::integer[]);
  PERFORM {schema}.stage_v1(p_keeps, p_keeps_after, false, ARRAY[]::integer[]);
  o_status := 0;
END
$alkstore$;
