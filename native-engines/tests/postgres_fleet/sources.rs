//! Tables of references: what can be registered, and what they protect.

use alkstore::{EngineFleetState, EngineWindowState, ErrorKind};

use super::postgres_support::{block_on, Place, SECOND};
use super::*;

#[test]
fn f6_what_cannot_be_read_and_locked_is_refused() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open(&place).await;
        let raw = place.client().await;
        place
            .run(
                &raw,
                "CREATE TABLE {s}.refs (key bytea, name text); CREATE VIEW {s}.seen AS SELECT key FROM {s}.refs; \
                 CREATE MATERIALIZED VIEW {s}.kept AS SELECT key FROM {s}.refs; CREATE SEQUENCE {s}.counted; \
                 CREATE TEMPORARY TABLE mine (key bytea)",
            )
            .await;
        let temporary: String = place
            .row(
                &raw,
                "SELECT nspname::text FROM pg_namespace WHERE oid = pg_my_temp_schema()",
            )
            .await
            .get(0);
        let s = &place.schema;
        for (table, column, why) in [
            (String::new(), "key", "empty"),
            (format!("{s}..refs"), "key", "parts"),
            (format!("{s}."), "key", "empty"),
            (".refs".into(), "key", "empty"),
            ("a.b.c.d.e".into(), "key", "parts"),
            ("a\0b".into(), "key", "U+0000"),
            ("x".repeat(64), "key", "63 bytes"),
            (format!("{s}.refs"), "", "empty"),
            (format!("{s}.refs"), "other", "no column"),
            (format!("{s}.refs"), "ctid", "no column"),
            (format!("{s}.refs"), "name", "bytea"),
            (format!("{s}.REFS"), "key", "no table"),
            (format!("{s}.absent"), "key", "no table"),
            ("refs".into(), "key", "no table"),
            (format!("{s}.seen"), "key", "is no table"),
            (format!("{s}.kept"), "key", "is no table"),
            (format!("{s}.counted"), "key", "is no table"),
            (format!("{temporary}.mine"), "key", "temporary"),
            (format!("{s}.refs; DROP TABLE refs"), "key", "no table"),
        ] {
            let error = store
                .register_liveness_source(&table, column)
                .await
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{table}");
            assert!(error.to_string().contains(why), "{table}: {error}");
        }
        assert!(!store.has_liveness_sources());
        let absent = "SELECT count(*) FROM pg_class WHERE relname = 'absent'";
        assert_eq!(
            place.row(&raw, absent).await.get::<_, i64>(0),
            0,
            "it is the embedder's to make"
        );
    });
}

#[test]
fn f6_privileges_are_asked_for_at_once() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        drop(open(&place).await);
        let raw = place.client().await;
        let role = place.schema.replace(' ', "_");
        let sql = format!(
            "CREATE ROLE \"{role}\" LOGIN; GRANT USAGE ON SCHEMA {{s}} TO \"{role}\"; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {{s}} TO \"{role}\"; \
             GRANT USAGE ON ALL SEQUENCES IN SCHEMA {{s}} TO \"{role}\"; CREATE TABLE {{s}}.refs (key bytea)"
        );
        place.run(&raw, &sql).await;
        let theirs = Place {
            url: format!("{} user='{role}'", place.url),
            schema: place.schema.clone(),
        };
        let store = open(&theirs).await;
        let table = format!("{}.refs", place.schema);
        let register = || store.register_liveness_source(&table, "key");
        for (grant, why) in [("", "UPDATE"), ("SELECT", "UPDATE"), ("UPDATE", "")] {
            if !grant.is_empty() {
                place
                    .run(&raw, &format!("GRANT {grant} ON {{s}}.refs TO \"{role}\""))
                    .await;
            }
            match register().await {
                Ok(()) => assert_eq!(why, ""),
                Err(error) => assert!(
                    !why.is_empty() && error.to_string().contains(why),
                    "{error}"
                ),
            }
        }
        // A reference that cannot be seen would not protect.
        place
            .run(&raw, "ALTER TABLE {s}.refs ENABLE ROW LEVEL SECURITY")
            .await;
        assert!(register()
            .await
            .unwrap_err()
            .to_string()
            .contains("row security"));
        place
            .run(&raw, "ALTER TABLE {s}.refs DISABLE ROW LEVEL SECURITY")
            .await;

        // All of this role's work on a store needs no more.
        put(&store, b"k").await;
        let epoch = sweeper(&store).await;
        place
            .run(
                &raw,
                &format!("REVOKE SELECT ON {{s}}.refs FROM \"{role}\""),
            )
            .await;
        let error = store.sweep_delete(b"k", epoch).await.unwrap_err();
        assert_eq!(
            super::postgres_support::sqlstate(&error),
            Some("42501"),
            "{error:?}"
        );
        assert!(has(&store, b"k").await);
        place
            .run(
                &raw,
                &format!("DROP OWNED BY \"{role}\"; DROP ROLE \"{role}\""),
            )
            .await;
    });
}

#[test]
fn f7_every_registered_table_protects() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open(&place).await;
        let raw = place.client().await;
        let name = place.schema.replace(' ', "\"_");
        let bare = format!("\"{}\"", name.replace('"', "\"\""));
        // In `public` with a quote in its name; partitioned; two columns of one table.
        place
            .run(
                &raw,
                &format!(
                    "CREATE TABLE public.{bare} (\"Key.\" bytea); CREATE TABLE {{s}}.parts (key bytea, at int) \
                     PARTITION BY RANGE (at); CREATE TABLE {{s}}.part PARTITION OF {{s}}.parts DEFAULT; \
                     CREATE TABLE {{s}}.two (a bytea, b bytea)"
                ),
            )
            .await;
        let s = &place.schema;
        for _ in 0..2 {
            store.register_liveness_source(&name, "Key.").await.unwrap();
            store
                .register_liveness_source(&format!("{s}.parts"), "key")
                .await
                .unwrap();
            store
                .register_liveness_source(&format!("{s}.two"), "a")
                .await
                .unwrap();
            store
                .register_liveness_source(&format!("{s}.two"), "b")
                .await
                .unwrap();
        }
        assert!(store.has_liveness_sources());
        for (key, insert) in [
            ("1", format!("public.{bare} VALUES ('1')")),
            ("2", "{s}.parts VALUES ('2', 7)".into()),
            ("3", "{s}.two (a) VALUES ('3')".into()),
            ("4", "{s}.two (b) VALUES ('4')".into()),
        ] {
            assert!(!store.arbitrate(key.as_bytes()).await.unwrap(), "{key}");
            place.run(&raw, &format!("INSERT INTO {insert}")).await;
            assert!(store.arbitrate(key.as_bytes()).await.unwrap(), "{key}");
        }
        // What this handle registered is its own.
        assert!(!open(&place).await.arbitrate(b"1").await.unwrap());
        place.run(&raw, &format!("DROP TABLE public.{bare}")).await;
    });
}

#[test]
fn f6_a_store_makes_its_own_tables_alone() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open(&place).await;
        let raw = place.client().await;
        store.ensure_gc_schema().await.unwrap();
        store.ensure_gc_schema().await.unwrap();
        let refs = format!("{}.refs", place.schema);
        let missing = store.register_liveness_source(&refs, "key").await;
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::InvalidArgument);
        publish(&store, b"k", SECOND).await.unwrap();
        assert!(store.arbitrate(b"k").await.unwrap());
        let tables = "SELECT array_agg(c.relname::text ORDER BY c.relname) FROM pg_class c \
             WHERE c.relnamespace = '{s}'::regnamespace AND c.relkind NOT IN ('i', 'S')";
        let tables: Vec<String> = place.row(&raw, tables).await.get(0);
        let own = [
            "alkstore",
            "entries",
            "gc_pins",
            "gc_sweeper",
            "gc_window",
            "locks",
            "manual_clock",
        ];
        assert_eq!(tables, own);
    });
}
