//! Pins by hand, on Postgres.

use serde_json::{json, Value};

use crate::place::{fields, Place};

#[test]
fn a_pin_protects_until_it_is_ended() {
    let Some(place) = Place::postgres() else {
        return;
    };
    let home = &place.home;
    let absent = home.run(&["gc", "pin", "k"]);
    assert_eq!((absent.code(), absent.text()), (75, ""));
    assert!(
        absent.err.contains("\"k\" was not pinned"),
        "{}",
        absent.err
    );
    assert!(absent.err.contains("no live entry"), "{}", absent.err);
    assert_eq!(place.status()["pins"], json!([]));

    place.put(&["k", "other"]);
    place.stage(&["k", "other"]);
    let pinned = home.run(&["gc", "pin", "k", "--owner", "me", "--ttl", "1h"]);
    assert_eq!(pinned.code(), 0, "{pinned:?}");
    assert!(
        pinned.text().starts_with("pinned for me until "),
        "{}",
        pinned.text()
    );
    assert_eq!(
        place.explain("k", &[])["verdict"],
        "unstaged",
        "a pin takes the key out of the window"
    );
    place.stage(&["k"]);
    let told = place.explain("k", &[]);
    assert_eq!(told["verdict"], "pinned");
    let until = told["pins"][0]["expires_at"].as_str().unwrap();
    assert_eq!(
        told["sentence"],
        format!("protected by a pin of me until {until}")
    );
    assert!(
        pinned.text().trim_end().ends_with(until),
        "{}",
        pinned.text()
    );
    assert_eq!(fields(&told["pins"][0]), ["expires_at", "lapsed", "owner"]);
    let pins = &place.status()["pins"];
    assert_eq!(
        pins,
        &json!([{ "owner": "me", "live": 1, "lapsed": 0, "soonest": until }])
    );
    let words = home.run(&["gc", "status"]);
    assert!(
        words
            .text()
            .contains("pins        1 live, 0 lapsed: me, the first lapses in "),
        "{}",
        words.text()
    );

    let dry = place.sweep(&["--window-decides", "--dry-run"]);
    let real = place.sweep(&["--window-decides"]);
    for report in [dry, real] {
        assert_eq!(report["protected_by_pin"], 1, "{report}");
        assert_eq!(report["requeued"], 1, "{report}");
        assert_eq!(report["deleted"], 1, "{report}");
    }
    assert_eq!(place.keys(), ["k"]);
    assert_eq!(place.explain("k", &[])["window"]["requeues"], 1);
    assert_eq!(place.status()["requeued"], 1);

    let others = home.run(&["gc", "unpin", "k", "--owner", "you"]);
    assert_eq!(others.code(), 1);
    assert!(others.err.contains("no pin of you"), "{}", others.err);
    assert_eq!(home.run(&["gc", "unpin", "k", "--owner", "me"]).code(), 0);
    assert_eq!(home.run(&["gc", "unpin", "k", "--owner", "me"]).code(), 1);
    place.stage(&["k"]);
    assert_eq!(place.explain("k", &[])["verdict"], "deleted");
    assert_eq!(place.sweep(&["--window-decides"])["deleted"], 1);
    assert!(place.keys().is_empty());
}

#[test]
fn whose_pin_it_is_need_not_be_said() {
    let Some(place) = Place::postgres() else {
        return;
    };
    let home = &place.home;
    let table = place.references();
    place.put(&["k"]);
    place.refer("k");
    assert_eq!(home.run(&["gc", "pin", "6b", "--hex"]).code(), 0);
    assert_eq!(
        home.run(&["gc", "pin", "k", "--ttl", "2h"]).code(),
        0,
        "renewed"
    );
    let told = place.explain("k", &["--liveness", &table]);
    assert_eq!(told["pins"].as_array().unwrap().len(), 1, "{told}");
    assert!(told["pins"][0]["owner"].as_str().unwrap().contains('@'));
    assert_eq!(
        told["references"][0]["live"],
        Value::Null,
        "a pin comes before it"
    );
    assert_eq!(home.run(&["gc", "unpin", "k"]).code(), 0);
    let told = place.explain("k", &["--liveness", &table]);
    assert_eq!(told["references"][0]["live"], true);
}
