//! Connections to Postgres: deadlines, what comes back to the pool, settings that are not the defaults, poolers, and
//! what errors say and keep to themselves.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::unwrap_used)] // what a test cannot go on without

mod postgres_support;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use alkstore::{Changeset, Entries, Error, ErrorKind, Lifecycle, Locks, PutOptions, Transactions};
use alkstore_native::postgres::{PgOptions, PgStore, PgTls};
use postgres_support::{block_on, sqlstate, Place, SECOND, START};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener, UnixStream};

const CANARY: &str = "hunter2-canary";

async fn refused(options: PgOptions) -> Error {
    PgStore::open(options).await.expect_err("no store")
}

#[test]
fn a_silent_server_leaves_no_call_hanging() {
    let Some(mut cluster) = alkstore_tests::postgres::cluster(&[]) else {
        return;
    };
    let place = Place::on(&cluster.url());
    block_on(async {
        let timeout = Duration::from_millis(300);
        let store = place
            .open(place.options().pool_size(1).call_timeout(timeout))
            .await;
        store.put(b"k", b"v", PutOptions::create()).await.unwrap();
        cluster.stop().unwrap();
        let begun = Instant::now();
        let lost = store.try_lock("n", "a", SECOND).await.err().unwrap();
        assert!(lost.is_outcome_unknown() && lost.is_retryable(), "{lost:?}");
        // Its connection is gone, so this call does not even come to have one.
        let lost = store.get(b"k").await.unwrap_err();
        assert!(
            !lost.is_outcome_unknown() && lost.is_retryable(),
            "{lost:?}"
        );
        assert!(begun.elapsed() < Duration::from_secs(5));
        cluster.resume().unwrap();
        let found = loop {
            match store.get(b"k").await {
                Ok(found) => break found,
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
        };
        assert_eq!(&*found.unwrap().value, b"v");
        assert!(store.try_lock("n", "a", SECOND).await.unwrap().is_some());
    });
}

#[test]
fn a_wait_that_is_too_long_is_known_not_to_have_happened() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let timeout = Duration::from_millis(400);
        let store = Arc::new(
            place
                .open(place.options().pool_size(1).call_timeout(timeout))
                .await,
        );
        store.put(b"k", b"v", PutOptions::create()).await.unwrap();
        let raw = place.client().await;
        place
            .run(&raw, "BEGIN; SELECT FROM {s}.entries FOR UPDATE")
            .await;
        let waits = {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.put(b"k", b"w", PutOptions::replace()).await })
        };
        let looker = place.client().await;
        place.until_waiting(&looker, 1).await;
        // The pool is empty meanwhile. This call began later, so it may still get the connection.
        let late = store.get(b"k").await;
        let waited = waits.await.unwrap().unwrap_err();
        assert_eq!(sqlstate(&waited), Some("57014"), "{waited:?}");
        assert!(waited.is_retryable() && !waited.is_outcome_unknown());
        if let Err(late) = late {
            assert!(
                late.is_retryable() && !late.is_outcome_unknown(),
                "{late:?}"
            );
        }
        place.run(&raw, "COMMIT").await;
        assert_eq!(&*store.get(b"k").await.unwrap().unwrap().value, b"v");
    });
}

#[test]
fn a_call_that_gets_no_connection_was_not_made() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let quick = place
            .options()
            .pool_size(1)
            .call_timeout(Duration::from_millis(300));
        let store = Arc::new(place.open(quick).await);
        store.put(b"k", b"v", PutOptions::create()).await.unwrap();
        let raw = place.client().await;
        place
            .run(&raw, "BEGIN; SELECT FROM {s}.entries FOR UPDATE")
            .await;
        let calls: Vec<_> = (0..8)
            .map(|_| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { store.put(b"k", b"w", PutOptions::replace()).await })
            })
            .collect();
        let mut without = 0;
        for call in calls {
            let error = call.await.unwrap().unwrap_err();
            assert!(error.is_retryable(), "{error:?}");
            without += u32::from(!error.is_outcome_unknown() && sqlstate(&error).is_none());
        }
        // The first waits for the row. Another one gets the connection with little time left, and cannot know.
        assert!(without >= 6, "{without}");
        // Those whose outcome is not known have come to their end, too.
        let looker = place.client().await;
        place.until_waiting(&looker, 0).await;
        place.run(&raw, "COMMIT").await;
        assert_eq!(&*store.get(b"k").await.unwrap().unwrap().value, b"v");
    });
}

#[test]
fn sessions_are_pinned_whatever_the_defaults_are() {
    let Some(cluster) = alkstore_tests::postgres::cluster(&[
        "default_transaction_isolation=serializable",
        "default_transaction_read_only=on",
        "synchronous_commit=off",
        "statement_timeout=1",
        "search_path=nowhere",
    ]) else {
        return;
    };
    let place = Place::on(&cluster.url());
    block_on(async {
        let store = Arc::new(place.store().await);
        let raw = place.client().await;
        place
            .run(
                &raw,
                "SET statement_timeout = 0; SET default_transaction_read_only = off",
            )
            .await;
        drop(store.try_lock("n", "before", SECOND).await.unwrap());
        store.set_clock(START.plus(SECOND)).await.unwrap();
        // The grant waits for a write of its row; under a snapshot for the whole transaction it would fail after.
        place
            .run(&raw, "BEGIN; UPDATE {s}.locks SET deadline = deadline")
            .await;
        let acquire = {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                store
                    .try_lock("n", "after", SECOND)
                    .await
                    .map(|lock| lock.is_some())
            })
        };
        let looker = place.client().await;
        place.run(&looker, "SET statement_timeout = 0").await;
        place.until_waiting(&looker, 1).await;
        place.run(&raw, "COMMIT").await;
        assert!(acquire.await.unwrap().unwrap());
        // A changeset looks at the level itself.
        store.commit_changeset(Changeset::new()).await.unwrap();

        // Through a pooler that keeps sessions to itself these defaults would hold: that is refused.
        let pooled = refused(place.options().transaction_pooler(true).manual_clock(START)).await;
        assert!(pooled.to_string().contains("read committed"), "{pooled:?}");
    });
}

/// A pooler as far as its clients can tell: it forwards to the server, but takes no startup options.
fn pooler(socket: &Path, server: String) {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = UnixStream::connect(&server).await.unwrap();
            tokio::spawn(async move {
                let length = client.read_u32().await.unwrap();
                let mut startup = vec![0; length as usize - 4];
                client.read_exact(&mut startup).await.unwrap();
                let mut kept = startup[..4].to_vec();
                let mut texts = startup[4..].split(|byte| *byte == 0);
                while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
                    if !name.is_empty() && name != b"options" {
                        kept.extend([name, b"\0", value, b"\0"].concat());
                    }
                }
                kept.push(0);
                server
                    .write_u32(u32::try_from(kept.len()).unwrap() + 4)
                    .await
                    .unwrap();
                server.write_all(&kept).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
}

#[test]
fn a_pooler_that_drops_settings_is_refused_unless_allowed() {
    let Some(cluster) = alkstore_tests::postgres::cluster(&[]) else {
        return;
    };
    let direct = Place::on(&cluster.url());
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        pooler(
            &folder.path().join(".s.PGSQL.5432"),
            format!("{}/.s.PGSQL.5432", cluster.folder().display()),
        );
        let url = format!(
            "host='{}' user=postgres dbname=postgres",
            folder.path().display()
        );
        let place = Place {
            url,
            schema: direct.schema.clone(),
        };
        let error = refused(place.options()).await;
        assert!(
            error.to_string().contains("transaction_pooler"),
            "{error:?}"
        );

        let store = place.open(place.options().transaction_pooler(true)).await;
        let lock = store.try_lock("n", "a", SECOND).await.unwrap().unwrap();
        let fenced = PutOptions::create().guard("n", lock.token());
        assert!(store.put(b"k", b"v", fenced).await.unwrap().is_stored());
        assert_eq!(store.list(b"", None, 10).await.unwrap().len(), 1);
        // Nothing is prepared, as the next transaction may be on another connection.
        let looker = direct.client().await;
        direct.run(&looker, "SELECT 1").await;
        assert!(lock.release().await.unwrap());
    });
}

#[test]
fn what_cannot_be_reached_or_entered_is_told_apart() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = format!("host='{}' user=postgres", folder.path().display());
        let error = refused(PgOptions::new(&nowhere).unwrap()).await;
        assert!(
            error.is_retryable() && !error.is_outcome_unknown(),
            "{error:?}"
        );
        assert_eq!(error.kind(), ErrorKind::Database);

        let error =
            refused(PgOptions::new(&format!("{} dbname=no_such", place.url)).unwrap()).await;
        assert_eq!(sqlstate(&error), Some("3D000"), "{error:?}");
        assert!(!error.is_retryable());
        let error = refused(PgOptions::new(&format!("{} user=no_such", place.url)).unwrap()).await;
        assert_eq!(sqlstate(&error), Some("28000"), "{error:?}");
        assert!(!error.is_retryable());

        // Somebody who listens and says nothing.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = format!(
            "postgres://u@127.0.0.1:{}/d",
            listener.local_addr().unwrap().port()
        );
        let silent = PgOptions::new(&silent).unwrap();
        for options in [
            silent.clone().call_timeout(Duration::from_millis(100)),
            silent.connect_timeout(Duration::from_millis(100)),
        ] {
            let error = refused(options).await;
            assert!(
                error.is_retryable() && !error.is_outcome_unknown(),
                "{error:?}"
            );
        }
    });
}

#[test]
fn no_text_shows_the_password() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let mut texts = Vec::new();
        for garbage in [
            format!("postgres://u:{CANARY}@"),
            format!("postgres://u:p?{CANARY}=1@h/d"),
            format!("password={CANARY} port=x{CANARY}"),
            format!("host=h password='{CANARY}"),
            CANARY.to_owned(),
            format!("options={CANARY} nonsense={CANARY}"),
        ] {
            match PgOptions::new(&garbage) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                    texts.push(everything(&error));
                }
                Ok(options) => {
                    texts.push(format!("{options:?} {options:#?}"));
                    let options = options
                        .connect_timeout(Duration::from_millis(100))
                        .call_timeout(Duration::from_secs(1));
                    texts.push(everything(&refused(options).await));
                }
            }
        }
        let url = format!("{} password={CANARY}", place.url);
        for url in [
            url.clone(),
            format!("{url} dbname=no_such"),
            format!("{url} user=no_such"),
            format!("postgres://u:{CANARY}@127.0.0.1:1/d"),
        ] {
            let options = PgOptions::new(&url)
                .unwrap()
                .schema(&place.schema)
                .call_timeout(Duration::from_secs(5));
            texts.push(format!("{options:?} {options:#?}"));
            match PgStore::open(options).await {
                Ok(store) => {
                    texts.push(format!("{store:?} {store:#?}"));
                    store.close().await.unwrap();
                    texts.push(everything(&store.now().await.unwrap_err()));
                }
                Err(error) => texts.push(everything(&error)),
            }
        }
        for text in texts {
            assert!(!text.contains("hunter2"), "{text}");
        }
    });
}

#[test]
fn no_text_shows_a_value() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        // A server that is asked to show parameters in its errors does so in the error's context.
        let url = format!(
            "{} options='-c log_parameter_max_length_on_error=-1'",
            place.url
        );
        let store = place
            .open(PgOptions::new(&url).unwrap().schema(&place.schema))
            .await;
        let raw = place.client().await;
        place
            .run(
                &raw,
                "ALTER TABLE {s}.entries ADD CONSTRAINT short CHECK (octet_length(value) < 3)",
            )
            .await;
        let error = store
            .put(b"k", CANARY.as_bytes(), PutOptions::create())
            .await
            .unwrap_err();
        assert_eq!(sqlstate(&error), Some("23514"));
        assert!(!error.is_retryable() && !error.is_outcome_unknown());
        // As it is, and as the server writes bytes.
        let text = everything(&error);
        assert!(
            !text.contains("68756e74657232") && !text.contains("hunter2"),
            "{text}"
        );
    });
}

/// All that an error has to say, causes included.
fn everything(error: &Error) -> String {
    let mut texts = vec![format!("{error} {error:?} {error:#?}")];
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        texts.push(format!("{error} {error:?}"));
        cause = error.source();
    }
    texts.join(" ")
}

#[test]
fn a_server_on_the_network_is_not_spoken_to_in_the_clear() {
    block_on(async {
        // It offers no TLS, as somebody in the middle would have it.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut request = [0; 8];
            client.read_exact(&mut request).await.unwrap();
            client.write_all(b"N").await.unwrap();
            let mut rest = Vec::new();
            let _ = client.read_to_end(&mut rest).await;
            (request, rest)
        });
        let url = format!("host=127.0.0.1 port={port} user=u password={CANARY}");
        let error = refused(PgOptions::new(&url).unwrap().tls(PgTls::Verify)).await;
        assert!(!error.is_outcome_unknown());
        assert!(!everything(&error).contains("hunter2"));
        let (request, rest) = heard.await.unwrap();
        assert_eq!(request, [0, 0, 0, 8, 4, 210, 22, 47], "a request for TLS");
        assert_eq!(rest, b"", "and nothing after it was refused");
    });
}

#[test]
fn the_servers_certificate_and_name_are_verified() {
    let authority = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root = params.self_signed(&authority).unwrap().pem();
    let issuer = rcgen::Issuer::new(params, authority);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(["localhost".to_owned()])
        .and_then(|params| params.signed_by(&key, &issuer))
        .unwrap();
    // The only server with a port, since a socket has no TLS.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let settings = [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        "ssl=on".to_owned(),
        "ssl_cert_file=server.crt".to_owned(),
        "ssl_key_file=server.key".to_owned(),
    ];
    let files = [
        ("server.crt", certificate.pem()),
        ("server.key", key.serialize_pem()),
        // Nobody gets in without TLS.
        (
            "pg_hba.conf",
            "hostssl all all 127.0.0.1/32 trust\n".to_owned(),
        ),
    ];
    let Some(_cluster) = alkstore_tests::postgres::cluster_with(&settings, &files) else {
        return;
    };
    block_on(async {
        let to =
            |host: &str| PgOptions::new(&format!("host={host} port={port} user=postgres")).unwrap();
        let good = to("localhost")
            .tls(PgTls::Verify)
            .root_certificates(root.clone());
        let store = PgStore::open(good).await.unwrap();
        assert!(store.try_lock("n", "a", SECOND).await.unwrap().is_some());

        // Another authority, another name, no TLS at all.
        let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        for options in [
            to("localhost")
                .tls(PgTls::Verify)
                .root_certificates(stranger.cert.pem()),
            to("localhost").tls(PgTls::Verify),
            to("127.0.0.1")
                .tls(PgTls::Verify)
                .root_certificates(root.clone()),
            to("localhost").tls(PgTls::InsecurePlaintext),
            to("localhost"),
        ] {
            let error = refused(options).await;
            assert!(
                !error.is_retryable() && !error.is_outcome_unknown(),
                "{error:?}"
            );
        }
        let error = refused(
            to("localhost")
                .tls(PgTls::Verify)
                .root_certificates("no PEM"),
        )
        .await;
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    });
}
