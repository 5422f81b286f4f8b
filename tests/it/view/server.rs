//! Requests as bytes: what is answered, what is refused, and what becomes of those who are slow or many.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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

fn body(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

#[test]
fn requests_are_answered_or_refused() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("secret"), "unseen").unwrap();
    let page = serve(&[folder.path()]);
    let Address { port, token } = &page;
    let query = format!("?token={token}");
    let with = |host: &str| format!("GET /{query} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let to = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let by = |method: &str| format!("{method} /{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let long = with(&format!("localhost\r\nX: {}", "x".repeat(20_000)));
    let other = token.replace(&token[..1], "g");
    let cases = [
        (with("127.0.0.1:80"), "200"),
        (with("localhost"), "200"),
        // A site whose name leads here.
        (with("evil.example"), "403"),
        (with("localhost.evil.example"), "403"),
        (with("127.0.0.1:evil.example"), "403"),
        (with("127.0.0.1:80:evil.example"), "403"),
        (with("127.0.0.1:99999"), "403"),
        (with(""), "403"),
        (format!("GET /{query} HTTP/1.0\r\n\r\n"), "403"),
        // Whoever has not the token: another site, or another user of the machine.
        (to("/"), "403"),
        (to("/?token="), "403"),
        (to(&format!("/?token={other}")), "403"),
        (to(&format!("/?token={}", &token[1..])), "403"),
        (to(&format!("/?token={token}0")), "403"),
        (to(&format!("/?other={token}")), "403"),
        (to("/news"), "403"),
        (to("/lines?run=0&file=metrics&from=0"), "403"),
        (to("/change?run=0&from=aa&to=bb"), "403"),
        (to("/group?run=0&step=1&group=0"), "403"),
        (to("/nothing"), "403"),
        (
            "POST / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_string(),
            "403",
        ),
        (to(&format!("/../secret{query}")), "404"),
        (to(&format!("/%2e%2e/secret{query}")), "404"),
        (to(&format!("/scripts/aa/mine.rhai{query}")), "404"),
        (to(&format!("/change{query}&run=7&from=aa&to=bb")), "404"),
        (to(&format!("/change{query}&run=0&from=aa")), "404"),
        (
            to(&format!("/lines{query}&run=0&file=../secret&from=0")),
            "404",
        ),
        (
            to(&format!("/lines{query}&run=0&file=metrics&from=-1")),
            "404",
        ),
        (
            to(&format!("/batch{query}&run=99999999999999999999&step=1")),
            "404",
        ),
        // It only reads.
        (by("POST"), "405"),
        (by("PUT"), "405"),
        (by("DELETE"), "405"),
        (by("OPTIONS"), "405"),
        ("hello\r\n\r\n".to_string(), "400"),
        (long, "431"),
    ];
    for (request, status) in cases {
        let answer = ask(*port, &request);
        // What is refused before it was read may be cut off on its way.
        let is_cut = answer.is_empty() && status == "431";
        assert!(
            is_cut || answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}\n{answer}"
        );
        assert!(!answer.contains("unseen"));
        assert!(status == "200" || !answer.contains(token), "{answer}");
    }
}

#[test]
fn a_change_is_shown_with_its_lines() {
    let folder = Folder::new();
    let page = serve(&[folder.path()]);
    let change = body(&get(&page, "/change?run=0&from=aa&to=bb"));
    let diff = "@@ -1,3 +1,3 @@\n fn advantage(batch, p) {\n-    batch.reward\n+    batch.reward - 1\n }\n";
    assert_eq!(
        change["files"],
        json!([{ "name": "mine.rhai", "diff": diff }])
    );
    let batch = body(&get(&page, "/batch?run=0&step=1"));
    let error = batch["error"].as_str().unwrap();
    assert_eq!(error, "the batch of step 1 is not kept any more");
}

/// The page reads whole lines from where its last one begins.
#[test]
fn a_file_is_read_line_by_line_while_it_grows() {
    let folder = Folder::new();
    let page = serve(&[folder.path()]);
    let size = || body(&get(&page, "/news"))["runs"][0]["metrics"].clone();
    let lines = |from: &Value| {
        body(&get(
            &page,
            &format!("/lines?run=0&file=metrics&from={from}"),
        ))
    };
    let all = lines(&0.into());
    let text = all["text"].as_str().unwrap();
    assert_eq!((text.lines().count(), &all["end"]), (3, &size()));
    let last = text.lines().last().unwrap();
    assert_eq!(lines(&all["last"])["text"], format!("{last}\n"));
    // A line that is being written is not one yet.
    let mut file = std::fs::File::options()
        .append(true)
        .open(folder.path().join("metrics.jsonl"))
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
    std::fs::remove_file(folder.path().join("metrics.jsonl")).unwrap();
    assert_eq!(
        (lines(&0.into())["text"].as_str(), size()),
        (Some(""), 0.into())
    );
    std::fs::create_dir(folder.path().join("metrics.jsonl")).unwrap();
    if cfg!(unix) {
        let error = &lines(&0.into())["error"];
        assert_eq!(error, "cannot read metrics.jsonl: it is a folder");
    }
}

#[test]
fn a_batch_is_told_by_groups_and_by_tokens() {
    let place = trainers();
    let page = serve(&[place.path()]);
    let batch = body(&get(&page, "/batch?run=0&step=1"));
    assert_eq!(
        batch["groups"].to_string(),
        r#"[["a",2,0.5,0.25,2.5],["b",2,0.5,0.25,1.5]]"#
    );
    assert_eq!(batch["mass"]["summary"]["responses"], 4);
    let group = body(&get(&page, "/group?run=0&step=1&group=0"));
    assert_eq!(
        (&group["prompt"], &group["most"]),
        (&"<b>one</b>".into(), &0.25.into())
    );
    let second = &group["responses"][1];
    assert_eq!(second["ends"].to_string(), "[1,10,12]");
    assert_eq!(second["advantages"].to_string(), "[-0.25,-0.25,-0.25]");
    // Three words are no two tokens.
    let other = body(&get(&page, "/group?run=0&step=1&group=1"));
    assert_eq!(other["responses"][1]["ends"], Value::Null);
    assert!(get(&page, "/group?run=0&step=1&group=9").starts_with("HTTP/1.1 404"));
    let objective = body(&get(&page, "/objective?run=0&step=1"));
    assert!(
        objective["svg"].as_str().unwrap().starts_with("<svg"),
        "{objective}"
    );
}

#[test]
fn a_batch_is_told_from_the_state_that_its_step_began_with() {
    let place = trainers_with(
        "fn init(p) {\n    #{ n: 1 }\n}\n\nfn advantage(batch, p) {\n    this.n += 1;\n    batch.reward * this.n\n}\n",
    );
    let page = serve(&[place.path()]);
    let most =
        |step: u64| body(&get(&page, &format!("/group?run=0&step={step}&group=0")))["most"].clone();
    assert_eq!((most(0), most(1)), (2.0.into(), 3.0.into()));
    let is_first = |step: u64| {
        body(&get(&page, &format!("/batch?run=0&step={step}")))["is_first_state"].clone()
    };
    assert_eq!(is_first(1), false);
    // As in a run's folder, which keeps none.
    std::fs::remove_file(place.path().join("advlab/batches/step-000000.json")).unwrap();
    assert_eq!((most(0), is_first(0)), (2.0.into(), true.into()));
    std::fs::write(place.path().join("advlab/batches/step-000000.json"), "{").unwrap();
    most(1);
    let torn = body(&get(&page, "/batch?run=0&step=0"));
    assert!(
        torn["error"].as_str().unwrap().contains("step-000000.json"),
        "{torn}"
    );
}

#[test]
fn a_file_for_others_does_not_say_where_the_run_was() {
    let place = trainers();
    let file = place.path().join("page.html");
    Site::of(&[place.path().join("advlab")])
        .unwrap()
        .export(&file)
        .unwrap();
    let text = std::fs::read_to_string(file).unwrap();
    let names: Vec<_> = place
        .path()
        .iter()
        .map(|name| name.to_string_lossy())
        .collect();
    assert!(text.contains(&format!("\"folder\":\"{}/advlab\"", names.last().unwrap())));
    assert!(!text.contains(&*place.path().to_string_lossy()));
}

#[cfg(unix)]
#[test]
fn a_flood_of_connections_does_nothing_to_a_run() {
    let place = tempfile::tempdir().unwrap();
    let config = "rollout_batch_size = 4\ngroup_size = 4\nmaze_size = 2\nsteps = 1000000\neval_prompts = 4\nhidden_size = 8\n";
    std::fs::write(place.path().join("run.toml"), config).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_advlab"))
        .args(["train", "run.toml", "--view=0", "--out", "run"])
        .current_dir(place.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let page = lines.find_map(|line| Address::find(&line.unwrap()));
    let page = page.unwrap();
    let rest = std::thread::spawn(move || lines.for_each(drop));
    let rows = || {
        std::fs::read_to_string(place.path().join("run/metrics.jsonl"))
            .unwrap()
            .lines()
            .count()
    };
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_secs(30);
        while !is_so() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    // Six times the server's places, and few of what a process may have open.
    let connect = |_| TcpStream::connect(("127.0.0.1", page.port)).ok();
    let mut streams: Vec<TcpStream> = (0..200).filter_map(connect).collect();
    for stream in &mut streams {
        // A request that never ends.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: ");
    }
    let during = rows();
    until("the run stands still", &|| rows() > during);
    // The slow ones are there still: the oldest were closed for those that came later.
    until("the server does not answer", &|| {
        get(&page, "/").starts_with("HTTP/1.1 200")
    });
    drop(streams);
    let id = run.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
    assert!(run.wait().unwrap().success());
    rest.join().unwrap();
}
