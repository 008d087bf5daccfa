//! References that change while a deletion looks for them.

use alkstore::{EngineFleetState, EngineWindowState, Reclaim};

use super::postgres_support::{block_on, sqlstate, Place};
use super::*;

/// A deletion of `k` that looks for references while a transaction is at `change`, and waits for its end.
async fn while_changing(place: &Place, store: &Arc<PgStore>, change: &str) -> Result<Reclaim> {
    let (raw, looker) = (place.client().await, place.client().await);
    let epoch = store.sweep_epoch().unwrap();
    place.run(&raw, &format!("BEGIN; {change}")).await;
    let deletion = spawn(store, move |store| {
        Box::pin(async move { store.sweep_delete(b"k", epoch).await })
    });
    place.until_waiting(&looker, 1).await;
    place.run(&raw, "COMMIT").await;
    deletion.await.unwrap()
}

#[test]
fn f7_a_reference_that_moves_protects_all_the_while() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open(&place).await;
        let raw = place.client().await;
        references(&place, &raw, &store).await;
        place
            .run(
                &raw,
                "CREATE TABLE {s}.more (a bytea, b bytea); ALTER TABLE {s}.refs ADD name text; \
                 INSERT INTO {s}.refs VALUES ('k', 'x'), ('l', 'y')",
            )
            .await;
        for column in ["a", "b"] {
            let table = format!("{}.more", place.schema);
            store
                .register_liveness_source(&table, column)
                .await
                .unwrap();
        }
        put(&store, b"k").await;
        sweeper(&store).await;
        for change in [
            // The row stays, and its key.
            "UPDATE {s}.refs SET name = 'z' WHERE key = 'k'",
            // To a new row, to another row, to a table that is looked into first, to another column, and back.
            "DELETE FROM {s}.refs WHERE key = 'k'; INSERT INTO {s}.refs VALUES ('k')",
            "UPDATE {s}.refs SET key = CASE key WHEN 'k' THEN 'l'::bytea ELSE 'k' END",
            "DELETE FROM {s}.refs WHERE key = 'k'; INSERT INTO {s}.more (b) VALUES ('k')",
            "UPDATE {s}.more SET a = b, b = a",
            "DELETE FROM {s}.more; INSERT INTO {s}.refs VALUES ('k')",
        ] {
            let outcome = while_changing(&place, &store, change).await;
            assert_eq!(outcome.unwrap(), Reclaim::Referenced, "{change}");
            assert!(has(&store, b"k").await);
        }
        let outcome = while_changing(&place, &store, "DELETE FROM {s}.refs WHERE key = 'k'").await;
        assert_eq!(outcome.unwrap(), Reclaim::Deleted { bytes: 1 });
    });
}

#[test]
fn f6_row_security_of_later_fails_the_arbiter() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        drop(open(&place).await);
        let raw = place.client().await;
        let role = place.schema.replace(' ', "_");
        let sql = format!(
            "CREATE ROLE \"{role}\" LOGIN; GRANT USAGE ON SCHEMA {{s}} TO \"{role}\"; \
             CREATE TABLE {{s}}.refs (key bytea); INSERT INTO {{s}}.refs VALUES ('k'); \
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {{s}} TO \"{role}\"; \
             GRANT USAGE ON ALL SEQUENCES IN SCHEMA {{s}} TO \"{role}\""
        );
        place.run(&raw, &sql).await;
        let theirs = Place {
            url: format!("{} user='{role}'", place.url),
            schema: place.schema.clone(),
        };
        let store = open(&theirs).await;
        // Its sessions are as the role has them.
        let pooled = open_with(&theirs, |options| options.transaction_pooler(true)).await;
        let table = format!("{}.refs", place.schema);
        store.register_liveness_source(&table, "key").await.unwrap();
        pooled
            .register_liveness_source(&table, "key")
            .await
            .unwrap();
        put(&store, b"k").await;
        let epoch = sweeper(&store).await;
        let key = [Key::new(&b"k"[..]).unwrap()];
        assert_eq!(
            store.window_judge(&key).await.unwrap(),
            [Reclaim::Referenced]
        );
        place
            .run(&raw, "ALTER TABLE {s}.refs ENABLE ROW LEVEL SECURITY")
            .await;
        let errors = [
            store.sweep_delete(b"k", epoch).await.map(drop),
            store.arbitrate(b"k").await.map(drop),
            store.window_judge(&key).await.map(drop),
            pooled.sweep_delete(b"k", epoch).await.map(drop),
            pooled.arbitrate(b"k").await.map(drop),
        ];
        for error in errors {
            let error = error.unwrap_err();
            assert_eq!(sqlstate(&error), Some("42501"), "{error:?}");
        }
        assert!(has(&store, b"k").await);
        let drop = format!("DROP OWNED BY \"{role}\"; DROP ROLE \"{role}\"");
        place.run(&raw, &drop).await;
    });
}
