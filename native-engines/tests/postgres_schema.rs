//! The schema of a Postgres store: how it comes to be, who may make it, and what is refused.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::unwrap_used)] // what a test cannot go on without

mod postgres_support;

use std::time::Duration;

use alkstore::{EngineWindowState, Entries, ErrorKind, Lifecycle, Locks, PutOptions, Reclaim};
use alkstore_native::postgres::{PgOptions, PgStore};
use postgres_support::{block_on, sqlstate, Place, SECOND, START};

#[test]
fn k9_many_first_users_make_one_schema() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        for _ in 0..5 {
            let place = Place::on(&place.url);
            let opens: Vec<_> = (0..8)
                .map(|_| tokio::spawn(PgStore::open(place.options().pool_size(1))))
                .collect();
            for open in opens {
                let store = open.await.unwrap().unwrap();
                store.put(b"k", b"v", PutOptions::create()).await.unwrap();
            }
        }
    });
}

#[test]
fn e7_a_role_with_dml_alone_opens_what_is_there() {
    let Some(cluster) = alkstore_tests::postgres::cluster(&[]) else {
        return;
    };
    let place = Place::on(&cluster.url());
    block_on(async {
        let raw = place.client().await;
        place.run(&raw, "CREATE ROLE app LOGIN").await;
        let app = || {
            let options = PgOptions::new(&format!("{} user=app", place.url)).unwrap();
            options
                .schema(&place.schema)
                .call_timeout(Duration::from_secs(60))
        };
        let error = PgStore::open(app()).await.unwrap_err();
        assert_eq!(sqlstate(&error), Some("42501"));
        assert!(error.to_string().contains("as a role that may"), "{error}");
        assert!(!error.is_retryable() && !error.is_outcome_unknown());

        place.open(place.options()).await;
        place
            .run(
                &raw,
                "GRANT USAGE ON SCHEMA {s} TO app;
                 GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {s} TO app;
                 GRANT USAGE ON ALL SEQUENCES IN SCHEMA {s} TO app",
            )
            .await;
        let store = PgStore::open(app()).await.unwrap();
        let lock = store
            .try_lock("n", "a", SECOND * 60)
            .await
            .unwrap()
            .unwrap();
        let fenced = PutOptions::create().guard("n", lock.token());
        assert!(store.put(b"k", b"v", fenced).await.unwrap().is_stored());
        assert!(lock.release().await.unwrap());
        assert_eq!(store.purge_lapsed(10).await.unwrap(), 0);
    });
}

#[test]
fn what_is_missing_is_made_and_what_is_there_is_kept() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = place.open(place.options()).await;
        store.put(b"k", b"v", PutOptions::create()).await.unwrap();
        let raw = place.client().await;
        place
            .run(
                &raw,
                "DROP TABLE {s}.gc_pins; DROP FUNCTION {s}.renew_v1; DROP INDEX {s}.gc_window_due",
            )
            .await;
        let again = place.open(place.options()).await;
        assert!(again.get(b"k").await.unwrap().is_some());
        place.run(&raw, "SELECT FROM {s}.gc_pins").await;
        let mut lock = again
            .try_lock("n", "a", SECOND * 60)
            .await
            .unwrap()
            .unwrap();
        assert!(lock.renew(SECOND).await.unwrap());
    });
}

#[test]
fn names_of_schemas_are_refused_or_quoted() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let refused = async |schema: &str| {
            let error = PgStore::open(place.options().schema(schema))
                .await
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{schema:?}");
        };
        for schema in [
            "",
            "pg_x",
            "information_schema",
            "a\0b",
            "a$alkstore$b",
            &"x".repeat(64),
            &"\u{e9}".repeat(32),
        ] {
            refused(schema).await;
        }
        let raw = place.client().await;
        for schema in [
            "a\"b",
            "a'b\\",
            "A b",
            "a.b",
            "'; DROP SCHEMA public; --",
            "{schema}",
            "$$",
            "\u{202e}x",
            &"x".repeat(63),
        ] {
            let place = Place {
                url: place.url.clone(),
                schema: schema.to_owned(),
            };
            let store = place.open(place.options().manual_clock(START)).await;
            assert!(store
                .put(b"k", schema.as_bytes(), PutOptions::create())
                .await
                .unwrap()
                .is_stored());
            assert!(store.try_lock("n", "a", SECOND).await.unwrap().is_some());
            let again = place.open(place.options().manual_clock(START)).await;
            assert_eq!(
                &*again.get(b"k").await.unwrap().unwrap().value,
                schema.as_bytes()
            );
            assert_eq!(again.schema(), schema);
            let quoted = schema.replace('"', "\"\"");
            raw.batch_execute(&format!("DROP SCHEMA \"{quoted}\" CASCADE"))
                .await
                .unwrap();
        }
    });
}

#[test]
fn the_clock_of_a_schema_is_not_switched_by_accident() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let real = place.open(place.options()).await;
        let error = PgStore::open(place.options().manual_clock(START))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(
            real.set_clock(START).await.unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
        let before = real.now().await.unwrap();
        assert!(before > START && real.now().await.unwrap() >= before);

        let tests = Place::on(&place.url);
        let manual = tests.store().await;
        assert_eq!(manual.now().await.unwrap(), START);
        let error = PgStore::open(tests.options()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);

        let raw = place.client().await;
        place
            .run(&raw, "CREATE OR REPLACE FUNCTION {s}.clock() RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT 0::bigint'")
            .await;
        let error = PgStore::open(place.options()).await.unwrap_err();
        assert!(error.to_string().contains("replaced"), "{error}");
    });
}

#[test]
fn a_later_or_another_schema_is_refused() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        place.open(place.options()).await;
        let raw = place.client().await;
        place
            .run(
                &raw,
                "INSERT INTO {s}.alkstore VALUES (3); DROP FUNCTION {s}.renew_v1",
            )
            .await;
        let error = PgStore::open(place.options()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("version 3"), "{error}");
        let made = place.row(&raw, "SELECT count(*) FROM pg_proc WHERE proname = 'renew_v1' AND pronamespace = '{s}'::regnamespace");
        assert_eq!(made.await.get::<_, i64>(0), 0, "nothing is made in it");
        place.run(&raw, "DELETE FROM {s}.alkstore").await;
        let error = PgStore::open(place.options()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    });
}

/// What version 1 had and version 2 has not, over a store of version 2, with a candidate in its window.
const VERSION_1: &str = "
    DO $$ DECLARE f regprocedure; BEGIN
      FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = '{s}'::regnamespace AND proname LIKE '%\\_v2' LOOP
        EXECUTE 'DROP FUNCTION ' || f;
      END LOOP;
    END $$;
    DROP TABLE {s}.gc_sweeper, {s}.gc_window;
    CREATE TABLE {s}.gc_window (key bytea PRIMARY KEY, visible_after bigint NOT NULL, claim bigint, claim_until bigint);
    CREATE INDEX gc_window_due ON {s}.gc_window (visible_after, key);
    INSERT INTO {s}.gc_window VALUES ('old', 1000000000000000, 7, 1000000000000001), ('new', 1000000000000000, NULL, NULL);
    CREATE FUNCTION {s}.put_v1(bytea, bytea, integer, bigint, bigint, integer, text, bigint)
      RETURNS bigint[] LANGUAGE sql AS 'SELECT ARRAY[0, 1]::bigint[]';
    CREATE FUNCTION {s}.stage_v1(bytea[], bigint[], boolean, integer[]) RETURNS void LANGUAGE sql AS '';
    CREATE FUNCTION {s}.commit_v1(integer[], boolean[], text[], bigint[], bytea[], bigint[], bytea[], bytea[], bigint[],
      bytea[], bytea[], bytea[], bigint[], bytea[], bigint[], OUT o_status integer, OUT o_guard bigint,
      OUT o_versions bigint[]) LANGUAGE sql AS 'SELECT 0, 0::bigint, NULL::bigint[]';
    UPDATE {s}.alkstore SET version = 1";

#[test]
fn k9_many_openers_upgrade_a_store_of_version_1_once() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        for _ in 0..3 {
            let place = Place::on(&place.url);
            let old = place.store().await;
            old.put(b"old", b"kept", PutOptions::create())
                .await
                .unwrap();
            let raw = place.client().await;
            place.run(&raw, VERSION_1).await;

            let opens: Vec<_> = (0..8)
                .map(|_| {
                    let options = place.options().manual_clock(START).pool_size(1);
                    tokio::spawn(PgStore::open(options))
                })
                .collect();
            for open in opens {
                let store = open.await.unwrap().unwrap();
                assert!(store.get(b"old").await.unwrap().is_some());
            }
            let store = place.store().await;
            let rows = store.window_list(None, 9).await.unwrap();
            let rows: Vec<_> = rows
                .iter()
                .map(|row| {
                    (
                        row.key.as_bytes(),
                        row.claimed_until.is_some(),
                        row.reclaiming,
                        row.requeues,
                    )
                })
                .collect();
            assert_eq!(
                rows,
                [(&b"new"[..], false, false, 0), (b"old", true, false, 0)]
            );
            let now = START.plus(SECOND);
            store.set_clock(now).await.unwrap();
            let claims = store.window_claim(now, SECOND, 9).await.unwrap();
            let answers = store.window_delete(&claims, None).await.unwrap();
            assert_eq!(answers, [Reclaim::Absent, Reclaim::Deleted { bytes: 4 }]);

            let versions = place
                .row(
                    &raw,
                    "SELECT min(version), max(version), count(*) FROM {s}.alkstore",
                )
                .await;
            assert_eq!(
                (versions.get(0), versions.get(1), versions.get(2)),
                (2, 2, 1_i64)
            );
        }
    });
}

#[test]
fn a_program_of_version_1_can_no_longer_write_and_does_not_bring_its_functions_back() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        place.store().await;
        let raw = place.client().await;
        place.run(&raw, VERSION_1).await;
        let calls = [
            "SELECT {s}.put_v1('k', 'v', 0, NULL, NULL, 1, NULL, NULL)",
            "SELECT {s}.stage_v1(ARRAY['\\x01'::bytea], ARRAY[1::bigint], true, ARRAY[1])",
            "SELECT {s}.commit_v1('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
        ];
        for call in calls {
            place.run(&raw, call).await;
        }
        place.store().await;
        for call in calls {
            let error = raw.batch_execute(&place.fill(call)).await.unwrap_err();
            assert_eq!(
                error.code().map(tokio_postgres::error::SqlState::code),
                Some("42883"),
                "{call}"
            );
        }
        let names = place
            .row(
                &raw,
                "SELECT count(*) FROM pg_proc WHERE pronamespace = '{s}'::regnamespace
                   AND proname IN ('put_v1', 'stage_v1', 'commit_v1')",
            )
            .await;
        assert_eq!(names.get::<_, i64>(0), 3, "the names stay taken");
    });
}

#[test]
fn e7_a_role_with_dml_alone_is_told_who_upgrades() {
    let Some(cluster) = alkstore_tests::postgres::cluster(&[]) else {
        return;
    };
    let place = Place::on(&cluster.url());
    block_on(async {
        place.store().await;
        let raw = place.client().await;
        place.run(&raw, VERSION_1).await;
        place
            .run(
                &raw,
                "CREATE ROLE app LOGIN; GRANT USAGE, CREATE ON SCHEMA {s} TO app;
                 GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {s} TO app;
                 GRANT USAGE ON ALL SEQUENCES IN SCHEMA {s} TO app",
            )
            .await;
        let app = PgOptions::new(&format!("{} user=app", place.url)).unwrap();
        let app = app.schema(&place.schema).manual_clock(START);
        let error = PgStore::open(app).await.unwrap_err();
        assert_eq!(sqlstate(&error), Some("42501"));
        for part in ["has version 1", "needs 2", "the role that owns"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        let version = place.row(&raw, "SELECT version FROM {s}.alkstore").await;
        assert_eq!(version.get::<_, i32>(0), 1);
    });
}

#[test]
fn two_schemas_are_two_stores() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let one = place.open(place.options()).await;
        let other = Place::on(&place.url);
        let two = other.open(other.options()).await;
        assert!(one.try_lock("n", "a", SECOND * 60).await.unwrap().is_some());
        assert!(two.try_lock("n", "b", SECOND * 60).await.unwrap().is_some());
        one.put(b"k", b"v", PutOptions::create()).await.unwrap();
        assert!(two.get(b"k").await.unwrap().is_none());
    });
}
