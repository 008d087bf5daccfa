//! One key at a time: arbitration, alone and with the deletion, against bare deletions of one row a commit.

use std::time::Instant;

use alkstore::{EngineFleetState as _, Reclaim};
use alkstore_native::postgres::{PgOptions, PgStore};
use futures_util::future::join_all;
use measure::Table;
use tokio::runtime::Runtime;

use crate::peers::Raw;
use crate::sweep::fill_entries;
use crate::{quoted, store, WARM};

const PEER: &str = "DELETE by key, one a commit";

pub fn arbitration(table: &mut Table, runtime: &Runtime, url: &str) {
    for clients in [1, 8] {
        let each = if table.full() { 1_000 } else { 200 };
        let rows = clients * each;
        let (stores, bare, raw) = runtime.block_on(async {
            let first = store(url, 1, |options| options.fleet(true)).await;
            let raw = Raw::connect(url, clients).await;
            let schema = quoted(&first);
            raw.run(&format!(
                "CREATE TABLE {schema}.refs (key bytea NOT NULL);
                 CREATE INDEX refs_key ON {schema}.refs (key);
                 INSERT INTO {schema}.refs SELECT sha256((-n)::text::bytea) FROM generate_series(1, 100000) n;
                 INSERT INTO {schema}.gc_pins SELECT sha256((-n)::text::bytea), 'publisher', 9e18
                 FROM generate_series(1, 100000) n;
                 ANALYZE {schema}.refs; ANALYZE {schema}.gc_pins"
            ))
            .await;
            let name = first.schema().to_owned();
            let mut stores = vec![first];
            while stores.len() < clients {
                let options = PgOptions::new(url)
                    .unwrap()
                    .schema(name.as_str())
                    .pool_size(1)
                    .fleet(true);
                stores.push(PgStore::open(options).await.unwrap());
            }
            for store in &stores {
                let refs = format!("{name}.refs");
                store.register_liveness_source(&refs, "key").await.unwrap();
            }
            assert!(stores[0].sweep_lock_acquire().await.unwrap());
            (stores, store(url, 1, |options| options).await, raw)
        });
        let schema = quoted(&stores[0]);
        let epoch = stores[0].sweep_epoch().unwrap();
        let bare = quoted(&bare);
        let sql = format!("DELETE FROM {bare}.entries WHERE key = $1");
        let statements = runtime.block_on(async {
            let prepared = (0..clients).map(|client| raw.prepare(client, &sql));
            join_all(prepared).await
        });
        // Each client has keys of its own, strewn over the table.
        let keys: Vec<Vec<u8>> = runtime.block_on(async {
            fill_entries(&raw, &schema, rows, "true").await;
            let sql = format!("SELECT key FROM {schema}.entries ORDER BY version");
            let rows = raw.rows(&sql).await;
            rows.iter().map(|row| row.get(0)).collect()
        });
        let shares: Vec<&[Vec<u8>]> = keys.chunks(each).collect();
        let delete_raw = async || {
            fill_entries(&raw, &bare, rows, "true").await;
            let begun = Instant::now();
            let shares = shares.iter().enumerate().map(|(client, keys)| {
                let (raw, statement) = (&raw, &statements[client]);
                async move {
                    for key in *keys {
                        assert_eq!(raw.execute(client, statement, &[key]).await, 1);
                    }
                }
            });
            join_all(shares).await;
            begun.elapsed().as_secs_f64()
        };
        let rounds = if table.full() { 9 } else { 3 };
        // Until each connection has planned for good what it will be asked.
        runtime.block_on(async {
            for _ in 0..WARM {
                for store in &stores {
                    assert!(!store.arbitrate(b"nothing").await.unwrap());
                    let gone = store.sweep_delete(b"nothing", epoch).await.unwrap();
                    assert_eq!(gone, Reclaim::Absent);
                }
                for (client, statement) in statements.iter().enumerate() {
                    raw.execute(client, statement, &[&&b"nothing"[..]]).await;
                }
            }
        });
        let peers = [(PEER, None)];
        let job = format!("arbitrate, {clients} sweepers");
        table.bulk(&job, rows, &peers, rounds, || {
            runtime.block_on(async {
                let begun = Instant::now();
                join_all(stores.iter().zip(&shares).map(|(store, keys)| async move {
                    for key in *keys {
                        assert!(!store.arbitrate(key).await.unwrap());
                    }
                }))
                .await;
                vec![begun.elapsed().as_secs_f64(), delete_raw().await]
            })
        });
        let job = format!("sweep_delete, {clients} sweepers");
        table.bulk(&job, rows, &peers, rounds, || {
            runtime.block_on(async {
                fill_entries(&raw, &schema, rows, "true").await;
                let begun = Instant::now();
                join_all(stores.iter().zip(&shares).map(|(store, keys)| async move {
                    for key in *keys {
                        let gone = store.sweep_delete(key, epoch).await.unwrap();
                        assert_eq!(gone, Reclaim::Deleted { bytes: 100 });
                    }
                }))
                .await;
                vec![begun.elapsed().as_secs_f64(), delete_raw().await]
            })
        });
    }
}
