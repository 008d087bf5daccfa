//! The value types through JSON: what is valid comes back, what is not is refused with its reason.
#![cfg(feature = "serde")]
#![allow(clippy::unwrap_used)] // in a test an unwrap is its failure

use std::fmt::Debug;

use alkstore::{
    Candidate, Claim, EntryMeta, Key, LockInfo, LockName, Owner, Put, Reclaim, Restage, Revision,
    Timestamp, Ttl, WindowRow, WindowStats,
};
use serde::{de::DeserializeOwned, Serialize};

fn comes_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let text = serde_json::to_string(value).unwrap();
    let again: T = serde_json::from_str(&text).unwrap();
    assert_eq!(again, *value, "{text}");
}

fn refused<T: DeserializeOwned + Debug>(text: &str, reason: &str) {
    let error = serde_json::from_str::<T>(text).unwrap_err().to_string();
    assert!(error.contains(reason), "{text}: {error}");
}

fn info() -> LockInfo {
    LockInfo {
        name: "a".into(),
        owner: "o\n".into(),
        token: Revision::new(7).unwrap(),
        deadline: Timestamp::MIN,
        lapsed: true,
    }
}

#[test]
fn what_is_valid_comes_back() {
    let key = Key::new(vec![0, 255]).unwrap();
    let id = Revision::new(Revision::MAX).unwrap();
    comes_back(&LockName::new("caf\u{e9} \u{1f600}").unwrap());
    comes_back(&Owner::new("__alkstore_x").unwrap());
    comes_back(&key);
    comes_back(&id);
    comes_back(&Timestamp::MIN);
    comes_back(&Timestamp::MAX);
    comes_back(&Ttl::MAX);
    comes_back(&info());
    comes_back(&EntryMeta {
        key: key.clone(),
        version: id,
        expires_at: None,
        size: 5,
    });
    comes_back(&Put::NotStored { current: None });
    comes_back(&Put::Stored { version: id });
    comes_back(&Restage::Keep);
    comes_back(&Candidate {
        key: key.clone(),
        visible_after: Timestamp::MAX,
    });
    comes_back(&Claim {
        key: key.clone(),
        visible_after: Timestamp::MIN,
        id,
        until: Timestamp::MAX,
        reclaiming: true,
        requeues: 3,
    });
    comes_back(&Reclaim::Deleted { bytes: 7 });
    comes_back(&Reclaim::Voided);
    comes_back(&WindowRow {
        key,
        visible_after: Timestamp::MIN,
        claimed_until: Some(Timestamp::MAX),
        reclaiming: true,
        requeues: u32::MAX,
    });
    comes_back(&WindowStats {
        rows: 1,
        oldest: Some(Timestamp::MIN),
        ..WindowStats::default()
    });
}

#[test]
fn what_is_invalid_is_refused() {
    refused::<LockName<'_>>(r#""""#, "empty");
    refused::<LockName<'_>>(r#"" ""#, "white space");
    refused::<LockName<'_>>(r#""a\u0000""#, "U+0000");
    refused::<LockName<'_>>(r#""__alkstore_x""#, "reserved");
    refused::<Owner<'_>>(&format!("{:?}", "x".repeat(513)), "513");
    refused::<Key<'_>>("[]", "0 bytes");
    refused::<Key<'_>>("[256]", "256");
    refused::<Revision>("0", "2^53");
    refused::<Revision>("9007199254740992", "2^53");
    refused::<Ttl>("0", "above zero");
    refused::<Ttl>("-1", "above zero");
    refused::<Ttl>("3155760000000000001", "100 years");
    let text = serde_json::to_string(&info()).unwrap();
    let sweep = text.replace(r#""a""#, r#""__alkstore_sweep""#);
    let shown: LockInfo = serde_json::from_str(&sweep).unwrap();
    assert_eq!(shown.name, "__alkstore_sweep", "listings show it");
    refused::<LockInfo>(&text.replace(r#""a""#, r#"" ""#), "lock name");
    refused::<LockInfo>(&text.replace(r#""o\n""#, r#""""#), "owner");
}
