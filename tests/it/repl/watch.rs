//! `:watch`: a save is told of, with what it changes on the batch, and the new version is the recipe in use.

use std::time::{Duration, Instant};

use advlab_cli::prompt::Session;

use super::session;

/// The next news, which come some tenths of a second after a save.
fn news(session: &Session) -> String {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(30) {
        if let Some(news) = session.news() {
            return news;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("a save was not told of within 30 s");
}

#[test]
fn a_save_shows_what_it_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.rhai");
    let write = |formula: &str| {
        let text = format!("fn advantage(batch, p) {{ {formula} }}");
        std::fs::write(&file, text).expect("a script");
    };
    write("batch.reward - batch.reward.mean(\"group\")");
    let mut session = session();
    let outcome = session.submit(&format!(":watch {}", file.display()));
    assert!(!outcome.is_error, "{}", outcome.text);
    assert_eq!(session.news(), None);
    let before = session.submit("advantage().max(\"batch\").value()").text;

    write("2 * (batch.reward - batch.reward.mean(\"group\"))");
    let told = news(&session);
    assert!(told.contains("1 line more, 1 line less"), "{told}");
    assert!(told.contains("accuracy"), "{told}");
    let after = session.submit("advantage().max(\"batch\").value()").text;
    let number = |text: &str| text.parse::<f64>().expect("a number");
    assert_eq!(
        number(&after),
        2.0 * number(&before),
        "the new version is in use"
    );

    write("batch.rewrad");
    let told = news(&session);
    assert!(told.contains("did you mean `reward`?"), "{told}");
    assert_eq!(
        session.submit("advantage().max(\"batch\").value()").text,
        after
    );

    assert!(
        session
            .submit(":watch")
            .text
            .contains("not watched any more")
    );
    assert!(session.submit(":watch grpo").text.contains("advlab new"));
    assert!(session.submit(":watch nowhere.rhai").is_error);
}
