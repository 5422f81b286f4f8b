//! Requests as bytes: what is answered, what is refused, and what becomes of those who are slow or many.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use advlab_cli::report::view::Site;

use super::{Address, Folder, serve, trainers, trainers_with};

fn ask(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut answer = String::new();
    // One that is refused may be cut off.
    let _ = stream.write_all(request.as_bytes());
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn get(page: &Address, path: &str) -> String {
    let Address { port, token } = page;
    let sign = if path.contains('?') { '&' } else { '?' };
    let head = format!("GET {path}{sign}token={token} HTTP/1.1");
    ask(*port, &format!("{head}\r\nHost: localhost:{port}\r\n\r\n"))
}

/// The body of an answer.
fn json_of(page: &Address, path: &str) -> Value {
    let answer = get(page, path);
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

#[test]
fn requests_are_answered_or_refused() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("secret"), "unseen").unwrap();
    let page = serve(&[folder.path()]);
    let Address { port, token } = &page;
    let expect = |status: &str, request: &str| {
        let answer = ask(*port, request);
        // What is refused before it was read may be cut off on its way.
        let is_cut = answer.is_empty() && status == "431";
        let is_so = answer.starts_with(&format!("HTTP/1.1 {status} "));
        assert!(is_cut || is_so, "{request}\n{answer}");
        assert!(!answer.contains("unseen"));
        assert!(status == "200" || !answer.contains(token), "{answer}");
    };
    let request = |status: &str, method: &str, target: &str, host: &str| {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        expect(status, &head);
    };
    let refused = |status: &str, target: &str| request(status, "GET", target, "localhost");
    let root = format!("/?token={token}");
    // Names of this machine, and those of sites whose names lead here.
    request("200", "GET", &root, "127.0.0.1:80");
    request("200", "GET", &root, "localhost");
    let others = "evil.example localhost.evil.example 127.0.0.1:evil.example \
         127.0.0.1:80:evil.example 127.0.0.1:99999";
    for host in others.split(' ').chain([""]) {
        request("403", "GET", &root, host);
    }
    expect("403", &format!("GET {root} HTTP/1.0\r\n\r\n"));
    // Whoever has not the token: another site, or another user of the machine.
    let (other, shorter) = (token.replace(&token[..1], "g"), &token[1..]);
    let paths = format!(
        "/ /?token= /?token={other} /?token={shorter} /?token={token}0 /?other={token} /news /nothing \
         /lines?run=0&file=metrics&from=0 /change?run=0&from=aa&to=bb /group?run=0&step=1&group=0"
    );
    paths.split(' ').for_each(|path| refused("403", path));
    request("403", "POST", "/", "localhost");
    let nothing = "/../secret? /%2e%2e/secret? /scripts/aa/mine.rhai? /change?run=7&from=aa&to=bb \
         /change?run=0&from=aa /lines?run=0&file=../secret&from=0 /lines?run=0&file=metrics&from=-1 \
         /batch?run=99999999999999999999&step=1";
    for target in nothing.split(' ') {
        refused("404", &format!("{target}&token={token}"));
    }
    // It only reads.
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        request("405", method, &root, "localhost");
    }
    expect("400", "hello\r\n\r\n");
    request(
        "431",
        "GET",
        &root,
        &format!("localhost\r\nX: {}", "x".repeat(20_000)),
    );
}

#[test]
fn a_change_is_shown_with_its_lines() {
    let folder = Folder::new();
    let page = serve(&[folder.path()]);
    let change = json_of(&page, "/change?run=0&from=aa&to=bb");
    let diff = "@@ -1,3 +1,3 @@\n fn advantage(batch, p) {\n-    batch.reward\n+    batch.reward - 1\n }\n";
    let expected = json!([{ "name": "mine.rhai", "diff": diff }]);
    assert_eq!(change["files"], expected);
    let batch = json_of(&page, "/batch?run=0&step=1");
    let error = batch["error"].as_str().unwrap();
    assert_eq!(error, "the batch of step 1 is no longer kept");
}

/// A run that begins later is found at the tenth question for news, and one that is linked is one run.
#[test]
fn new_runs_are_looked_for_now_and_then() {
    let place = tempfile::tempdir().unwrap();
    let add = |name: &str| {
        std::fs::create_dir(place.path().join(name)).unwrap();
        std::fs::write(place.path().join(name).join("metrics.jsonl"), "").unwrap();
    };
    add("a");
    let page = serve(&[place.path()]);
    let shown = || json_of(&page, "/news")["runs"].as_array().unwrap().len();
    add("b");
    #[cfg(unix)]
    std::os::unix::fs::symlink(place.path().join("a"), place.path().join("link")).unwrap();
    let counts: Vec<usize> = (0..10).map(|_| shown()).collect();
    assert_eq!(counts, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
}

/// The page reads whole lines from where its last one begins.
#[test]
fn a_file_is_read_line_by_line_while_it_grows() {
    let folder = Folder::new();
    let page = serve(&[folder.path()]);
    let size = || json_of(&page, "/news")["runs"][0]["metrics"].clone();
    let address = |from: &Value| format!("/lines?run=0&file=metrics&from={from}");
    let lines = |from: &Value| json_of(&page, &address(from));
    let all = lines(&0.into());
    let text = all["text"].as_str().unwrap();
    assert_eq!((text.lines().count(), &all["end"]), (3, &size()));
    let last = text.lines().last().unwrap();
    assert_eq!(lines(&all["last"])["text"], format!("{last}\n"));
    // A line that is being written is not one yet.
    let metrics = folder.path().join("metrics.jsonl");
    let mut file = std::fs::File::options()
        .append(true)
        .open(&metrics)
        .unwrap();
    file.write_all(b"{\"step\":3").unwrap();
    assert_eq!(lines(&all["last"])["text"], format!("{last}\n"));
    file.write_all(b"}\n").unwrap();
    let more = lines(&all["last"]);
    assert_eq!(more["text"], format!("{last}\n{{\"step\":3}}\n"));
    assert_eq!((&more["last"], &more["end"]), (&all["end"], &size()));
    // As when it is resumed from a checkpoint.
    file.set_len(10).unwrap();
    assert_eq!(lines(&more["last"])["text"], "");
    std::fs::remove_file(&metrics).unwrap();
    assert_eq!((&lines(&0.into())["text"], size()), (&"".into(), 0.into()));
    std::fs::create_dir(&metrics).unwrap();
    if cfg!(unix) {
        let error = &lines(&0.into())["error"];
        assert_eq!(error, "cannot read metrics.jsonl: it is a folder");
    }
}

/// Rows from all parts of a large file, whole ones, with evaluations where they are.
#[test]
fn a_sample_of_the_rows_is_of_the_whole_file() {
    let folder = Folder::new();
    let row = |step: u32| {
        let is_evaluated = if step.is_multiple_of(5) {
            "evaluation"
        } else {
            "other"
        };
        format!(
            "{{\"step\":{step},\"{is_evaluated}\":{{}},\"text\":\"{}\"}}\n",
            "x".repeat(900)
        )
    };
    let rows: String = (0..10_000).map(row).collect();
    std::fs::write(folder.path().join("metrics.jsonl"), rows).unwrap();
    let page = serve(&[folder.path()]);
    let sample = json_of(&page, "/sample?run=0");
    let steps = sample["text"].as_str().unwrap().lines();
    let steps = steps.map(|line| serde_json::from_str::<Value>(line).unwrap()["step"].as_u64());
    let steps: Vec<u64> = steps.map(Option::unwrap).collect();
    assert_eq!(steps.len(), 400);
    assert!(
        steps.is_sorted() && steps[0] < 25 && steps[399] > 9_970,
        "{steps:?}"
    );
    assert!(steps.iter().all(|step| step.is_multiple_of(5)), "{steps:?}");
    std::fs::remove_file(folder.path().join("metrics.jsonl")).unwrap();
    assert_eq!(json_of(&page, "/sample?run=0")["text"], "");
}

#[test]
fn a_batch_is_told_by_groups_and_by_tokens() {
    let place = trainers();
    let page = serve(&[place.path()]);
    let batch = json_of(&page, "/batch?run=0&step=1");
    let groups = r#"[["a",2,0.5,0.25,2.5],["b",2,0.5,0.25,1.5]]"#;
    assert_eq!(batch["groups"].to_string(), groups);
    assert_eq!(batch["mass"]["summary"]["responses"], 4);
    let group = json_of(&page, "/group?run=0&step=1&group=0");
    assert_eq!(group["prompt"], "<b>one</b>");
    assert_eq!(group["most"], 0.25);
    let second = &group["responses"][1];
    assert_eq!(second["ends"].to_string(), "[1,10,12]");
    assert_eq!(second["advantages"].to_string(), "[-0.25,-0.25,-0.25]");
    // Three words are no two tokens.
    let other = json_of(&page, "/group?run=0&step=1&group=1");
    assert_eq!(other["responses"][1]["ends"], Value::Null);
    assert!(get(&page, "/group?run=0&step=1&group=9").starts_with("HTTP/1.1 404"));
    let objective = json_of(&page, "/objective?run=0&step=1");
    let svg = objective["svg"].as_str();
    assert!(svg.unwrap().starts_with("<svg"), "{objective}");
}

#[test]
fn a_batch_is_told_from_the_state_that_its_step_began_with() {
    let place = trainers_with(
        "fn init(p) {\n    #{ n: 1 }\n}\n\nfn advantage(batch, p) {\n    this.n += 1;\n    batch.reward * this.n\n}\n",
    );
    let page = serve(&[place.path()]);
    let most = |step| {
        json_of(&page, &format!("/group?run=0&step={step}&group=0"))["most"]
            .as_f64()
            .unwrap()
    };
    let batch = |step| json_of(&page, &format!("/batch?run=0&step={step}"));
    let is_first = |step| batch(step)["is_first_state"].as_bool();
    assert_eq!((most(0), most(1), is_first(1)), (2.0, 3.0, Some(false)));
    // As in a run's folder, which keeps none.
    let state = place.path().join("advlab/batches/step-000000.json");
    std::fs::remove_file(&state).unwrap();
    assert_eq!((most(0), is_first(0)), (2.0, Some(true)));
    std::fs::write(&state, "{").unwrap();
    most(1);
    let torn = batch(0);
    let error = torn["error"].as_str().unwrap();
    assert!(error.contains("step-000000.json"), "{torn}");
}

#[test]
fn a_file_for_others_does_not_say_where_the_run_was() {
    let place = trainers();
    let file = place.path().join("page.html");
    let site = Site::of(&[place.path().join("advlab")]).unwrap();
    site.export(&file).unwrap();
    let text = std::fs::read_to_string(file).unwrap();
    let name = place.path().file_name().unwrap().to_string_lossy();
    assert!(text.contains(&format!("\"folder\":\"{name}/advlab\"")));
    assert!(!text.contains(&*place.path().to_string_lossy()));

    // The scripts and the data of a run may be anywhere, and its errors name them, or what is beside them.
    let folder = Folder::new();
    let own = folder.path().display();
    let config = format!(
        "recipe = \"/home/my name/lab/mine.rhai\"\nloss_recipe = \"{own}/losses/mine.rhai\"\nlr = 0.5\n\
         [math]\ndata = \"/data/questions.jsonl\"\n[transformer]\nmodel = \"/model\"\n"
    );
    // What does not fit together is no matter to the page of a run that is there.
    let config = config + "stop_strings = []\n";
    let task = "task = \"math\"\npolicy = \"transformer\"\n";
    std::fs::write(folder.path().join("config.toml"), format!("{task}{config}")).unwrap();
    let missing = format!(
        "/home/my name/lab/mine.rhai: No such file; /home/my name/other.rhai:6:1, \"{own}/losses/x\"\n\
         /home/me/one/two, \u{1b}/home/me/one/three, data=/home/me/one/four; [/home/me/one/five] </home/me/one/six> \
         (\"/home/me/one/seven\") file:///home/me/one/eight, //home/me/one/nine; https://example.org/lab/page"
    );
    folder.event(json!({ "step": 2, "event": "warning", "message": &missing }));
    folder.event(json!({ "step": 2, "event": "rejected", "version": "dd", "error": &missing }));
    std::fs::create_dir(folder.path().join("batches")).unwrap();
    let batch = folder.path().join("batches/step-000002.safetensors");
    std::fs::write(batch, "not one").unwrap();
    let file = place.path().join("other.html");
    let site = Site::of(&[folder.path().to_path_buf()]).unwrap();
    site.export(&file).unwrap();
    let text = std::fs::read_to_string(file).unwrap();
    let name = folder.path().file_name().unwrap().to_string_lossy();
    for shown in [
        "\"loss_recipe\":\"losses/mine.rhai\"".to_string(),
        "\"math.data\":\"data/questions.jsonl\"".to_string(),
        "\"transformer.model\":\"model\"".to_string(),
        "lab/mine.rhai: No such file; my name/other.rhai:6:1".to_string(),
        "data=one/four; [one/five]".to_string(),
        "https://example.org/lab/page".to_string(),
        "\"batch?run=0&step=2\":{\"error\":".to_string(),
        format!(
            "\"name\":\"{}/{name}\"",
            folder
                .path()
                .parent()
                .unwrap()
                .file_name()
                .unwrap()
                .display()
        ),
    ] {
        assert!(text.contains(&shown), "{shown}");
    }
    // The page itself has no path: its addresses have no folder.
    let starts = ["home", "data", "model", "tmp"].map(|root| format!("/{root}"));
    let parent = format!("{}/", folder.path().parent().unwrap().display());
    for start in starts.iter().chain([&parent]) {
        let at = text.find(start).unwrap_or(text.len());
        let found = text[at..].chars().take(60).collect::<String>();
        assert_eq!(found, "", "{start}");
    }
}
