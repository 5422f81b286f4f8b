//! Sources that change: `:edit` with the user's editor, and `:watch`.

use std::time::{Duration, Instant};

use advlab_cli::prompt::PromptSession;

use super::{play, session};

/// A session whose editor replaces one text by another.
fn editing(from: &'static str, to: &'static str) -> PromptSession {
    let mut session = session();
    session.editor = Some(Box::new(move |file| {
        let text = std::fs::read_to_string(file)?;
        std::fs::write(file, text.replace(from, to))
    }));
    session
}

#[test]
fn an_editor_changes_the_last_input_a_function_or_the_recipe() {
    let dialogue = "> :edit
        ! no recipe is loaded
        > :recipe dr_grpo
        > 1 + 2
        > :edit
        = 21
        > :edit
        = 201
        > fn twice(x) { x * 2 }
        > 1 +
        ! Error
        > :edit twice
        > twice(1)
        = 20
        > :edit mean
        ! is not a script";
    play(&mut editing("2", "20"), dialogue);
    let dialogue = "> :recipe dr_grpo
        > :edit
        ~ is the recipe now
        > advantage().max(\"batch\").value()
        = 1.875
        > :edit twice
        ! twice";
    play(
        &mut editing("batch.reward -", "2.0 * batch.reward -"),
        dialogue,
    );
}

/// A recipe of the user's own is edited in its file, and keeps its settings.
#[test]
fn an_edited_file_becomes_the_recipe() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.rhai");
    let script = "fn params() { #{ k: #{ value: 1.0 } } }\nfn advantage(batch, p) { 3 * p.k * batch.reward }\n";
    std::fs::write(&file, script).expect("a script");
    let dialogue = format!(
        "> :recipe {} k=2
        > :edit
        ~ is now the recipe
        > advantage().max(\"batch\").value()
        = 14",
        file.display()
    );
    play(&mut editing("3 *", "7 *"), &dialogue);
    let written = std::fs::read_to_string(&file).expect("a script");
    assert!(written.contains("7 *"), "{written}");
}

/// The next news, which come some tenths of a second after a save.
fn news(session: &PromptSession) -> String {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(300) {
        if let Some(news) = session.news() {
            return news;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("a save was not told of");
}

/// A save is told of, with what it changes on the batch, and the new version is the recipe in use.
#[test]
fn a_save_of_a_watched_script_shows_what_it_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.rhai");
    let write = |formula: &str| {
        let text = format!("fn advantage(batch, p) {{ {formula} }}");
        std::fs::write(&file, text).expect("a script");
    };
    write("batch.reward - batch.reward.mean(\"group\")");
    let largest = |number: &str| format!("> advantage().max(\"batch\").value()\n= {number}");
    let mut session = session();
    play(
        &mut session,
        &format!("> :watch {}\n~ is watched", file.display()),
    );
    assert_eq!(session.news(), None);
    play(&mut session, &largest("0.875"));

    write("2 * (batch.reward - batch.reward.mean(\"group\"))");
    let told = news(&session);
    assert!(
        told.contains("+1 -1 lines") && told.contains("accuracy"),
        "{told}"
    );
    play(&mut session, &largest("1.75"));

    write("batch.rewrad");
    let told = news(&session);
    assert!(told.contains("did you mean `reward`?"), "{told}");
    play(&mut session, &largest("1.75"));

    // Another recipe stays in use, and saves are told of all the same.
    play(&mut session, "> :recipe grpo");
    write("3 * batch.reward");
    assert!(news(&session).contains("accuracy"));
    play(&mut session, "> :recipe\n~ grpo e5123f");
    let dialogue = "> :watch
        ~ is not watched any more
        > :watch grpo
        ! advlab new
        > :watch nowhere.rhai
        ! cannot read";
    play(&mut session, dialogue);
}
