//! No password of an address in any output, whatever goes wrong.

use crate::support::{Home, Running};

const CANARY: &str = "c4n4ry-s3cr3t";

#[test]
fn no_output_shows_the_password() {
    let home = Home::new();
    let urls = [
        format!("postgres://app:{CANARY}@127.0.0.1:1/app"),
        format!("postgres://app:{CANARY}@127.0.0.1:not-a-port/app"),
        format!("postgres://app:{CANARY}@/?host=%2Fno%2Fsuch%2Ffolder"),
        format!("postgresql://app:{CANARY}@127.0.0.1:1/app?unknown={CANARY}"),
        format!("mysql://app:{CANARY}@h/d"),
        format!("host=127.0.0.1 port=1 password={CANARY}"),
    ];
    let verbs: &[&[&str]] = &[
        &["lock", "n", "--try", "--", "true"],
        &["locks"],
        &["locks", "--json"],
        &["inspect", "n"],
        &["release", "n", "--token", "1"],
        &["entries", "get", "k"],
        &["entries", "put", "k", "--value", "v"],
        &["entries", "ls"],
        &["gc", "sweep", "--window-decides"],
        &["gc", "sweep", "--liveness", "a.b:c", "--json", "--fleet"],
        &["gc", "sweep"],
        &["gc", "status", "--json"],
        &["gc", "explain", "k", "--liveness", "a.b:c"],
        &["gc", "stage", "k"],
        &["gc", "stage", "-"],
        &["gc", "unstage", "k"],
        &["gc", "pin", "k"],
        &["gc", "unpin", "k"],
        &["gc", "sweep", "--help"],
        &["init"],
        &["doctor"],
        &["purge"],
        &["--help"],
        &["lock", "--help"],
        &["man"],
        &["lock", "n"],
        &["frobnicate"],
        &[],
    ];
    let silent = |what: &str, args: &[&str], command: std::process::Command| {
        let done = Running::start(command).done();
        let out = String::from_utf8_lossy(&done.out);
        assert!(
            !out.contains(CANARY) && !done.err.contains(CANARY),
            "{what} {args:?}: {out}{}",
            done.err
        );
    };
    for url in &urls {
        for args in verbs {
            let mut by_variable = home.command(args);
            by_variable.env("ALKSTORE_URL", url);
            silent("variable", args, by_variable);
            for option in [
                vec!["--store".to_owned(), url.clone()],
                vec![format!("--store={url}")],
            ] {
                let mut by_option = home.command(&option);
                by_option.args(*args);
                silent("option", args, by_option);
            }
        }
        // In a wrong place, where the parser would repeat it.
        for args in [
            vec![url.as_str(), "locks"],
            vec!["locks", url, url],
            vec!["lock", "n", "--ttl", url, "--", "true"],
            vec!["lock", "n", url],
            vec!["--url", url, "locks"],
            vec!["gc", "sweep", "--liveness", url],
            vec!["gc", "sweep", "--rate", url],
            vec!["gc", url],
            vec!["gc", "pin", "k", "--ttl", url],
            vec!["completions", url],
        ] {
            silent("place", &args, home.command(&args));
        }
        let equals = format!("--url={url}");
        silent(
            "place",
            &["--url="],
            home.command(&[equals.as_str(), "locks"]),
        );
    }
}
