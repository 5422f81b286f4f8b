//! Compares advlab's results with the results of the Python library transformers on the same texts and chats.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::policy::transformer_tests::{MODELS, error_of, folder};

const VOCABULARY: u32 = 400;

fn load(folder: &Path) -> Result<Text> {
    Text::load(folder, VOCABULARY)
}

fn cases(model: &str) -> Value {
    read_json(&folder(model).join("cases.json")).unwrap()
}

/// Returns a new folder that has a model's tokenizer and no other file.
fn bare() -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    let from = folder("qwen2").join("tokenizer.json");
    fs::copy(from, copy.path().join("tokenizer.json")).unwrap();
    copy
}

fn write(folder: &Path, file: &str, content: impl ToString) {
    fs::write(folder.join(file), content.to_string()).unwrap();
}

#[test]
fn texts_become_the_tokens_of_transformers_and_come_back() {
    for model in MODELS {
        let text = load(&folder(model)).unwrap();
        let cases = cases(model);
        let cases = cases["tokenize"].as_array().unwrap();
        assert_eq!(cases.len(), 7);
        for case in cases {
            let source = case["text"].as_str().unwrap();
            assert_eq!(json!(text.encode(source).unwrap()), case["ids"], "{source}");
            let plain = text.tokens(source, false).unwrap();
            assert_eq!(json!(plain), case["ids_plain"], "{source}");
            assert_eq!(json!(text.decode(&plain).unwrap()), case["decoded"]);
        }
    }
}

#[test]
fn special_tokens_are_left_out_of_a_responses_text() {
    let text = load(&folder("qwen2")).unwrap();
    let tokens = text.tokens("A: 26<|im_end|>", false).unwrap();
    assert_eq!(tokens.last(), Some(&299));
    assert_eq!(text.decode(&tokens).unwrap(), "A: 26");
}

#[test]
fn a_chat_becomes_the_text_of_transformers() {
    for model in ["qwen2", "qwen3"] {
        let chat = &cases(model)["chat"];
        let messages = chat["messages"].as_array().unwrap().iter();
        let message = |message: &Value| {
            let of = |key| message[key].as_str().unwrap().to_string();
            (of("role"), of("content"))
        };
        let messages: Vec<(String, String)> = messages.map(message).collect();
        let messages = messages.iter();
        let messages: Vec<_> = messages
            .map(|(role, content)| Message { role, content })
            .collect();
        let text = load(&folder(model)).unwrap();
        let template = text.template.as_ref().unwrap();
        assert_eq!(json!(template.render(&messages).unwrap()), chat["text"]);
        // Each tag of a message is a single token, and no token is added to the tokens that the template writes.
        let tokens = text.encode_chat(&messages).unwrap();
        let start = text.tokenizer.token_to_id("<|im_start|>").unwrap();
        let starts = tokens.iter().filter(|token| **token == start).count();
        assert_eq!((tokens[0], starts), (start, 3), "{model}");
    }
}

/// Returns the text that a template in `tokenizer_config.json` makes of a chat with a single user message.
fn rendered(template: impl Into<Value>) -> String {
    let copy = bare();
    let config = json!({
        "chat_template": template.into(),
        "bos_token": { "content": "<s>", "special": true },
        "eos_token": "</s>",
        "pad_token": null,
    });
    write(copy.path(), "tokenizer_config.json", config);
    let content = "<b> \"1+1\" & é\n";
    let role = "user";
    let rendered = load(copy.path()).and_then(|text| {
        let template = text.template.as_ref().unwrap();
        template.render(&[Message { role, content }])
    });
    rendered.unwrap_or_else(|error| error[0].to_string())
}

#[test]
fn templates_have_what_transformers_gives_them() {
    // The expected texts are the results of transformers 5.10.4, except for the date.
    let cases = [
        (
            "{{ bos_token }}{{ messages[0]['content'] | trim }}{{ eos_token }}",
            "<s><b> \"1+1\" & é</s>",
        ),
        ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
        (
            "{{ strftime_now('%A, %-d %B %Y, %Y-%m-%d') }}",
            "Friday, 26 July 2024, 2024-07-26",
        ),
        (
            "{% if tools is none and not documents %}\n  {% for m in messages %}\n{{ m.role }}\n  {% endfor %}\nend\n{% endif %}\n",
            "user\nend\n",
        ),
        (
            "{% for m in messages[::-1] %}{% if loop.last %}{% break %}{% endif %}x{% endfor %}{{ pad_token is defined }}",
            "False",
        ),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + loop.index %}{% endfor %}{{ ns.n }}",
            "1",
        ),
        (
            "{% set c = '<think>\na\n</think>\n\nb' %}{{ c.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') + c.split('</think>')[-1].strip() }}",
            "ab",
        ),
        (
            "{%- macro tag(x) -%}[{{ x.upper() }}]{%- endmacro -%}{{ tag(messages[0].get('role')) }}{{ messages[0].get('name', '-') }}",
            "[USER]-",
        ),
        (
            "{{ enable_thinking is defined and enable_thinking is false }}{{ messages[0].tool_calls }}{{ messages[0].content is string }}",
            "FalseTrue",
        ),
        (
            "{{ '%s-%02d' | format('a', 7) }} {{ 'abc'[1:] }} {{ [1, 2] + [3] }}",
            "a-07 bc [1, 2, 3]",
        ),
    ];
    for (template, expected) in cases {
        assert_eq!(rendered(template), expected, "{template}");
    }
    let named = json!([
        { "name": "tool_use", "template": "tools" },
        { "name": "default", "template": "plain" },
    ]);
    assert_eq!(rendered(named), "plain");
}

#[test]
fn a_template_that_fails_says_why_and_where() {
    let raised = rendered("{{ raise_exception('Only assistants may speak!') }}");
    let expected = "the chat template fails: Only assistants may speak!";
    assert!(raised.contains(expected), "{raised}");
    let copy = bare();
    let broken = "{{ bos_token }}\n{% for m in %}";
    write(copy.path(), "chat_template.jinja", broken);
    let error = error_of(load(copy.path()));
    let is_said = error.contains("chat_template.jinja") && error.contains("line 2");
    assert!(is_said, "{error}");
    fs::remove_file(copy.path().join("chat_template.jinja")).unwrap();
    let error = error_of(load(copy.path()).unwrap().encode_chat(&[]));
    assert!(error.contains("the model has no chat template"), "{error}");
}

#[test]
fn a_response_ends_where_the_folder_says() {
    let copy = bare();
    let write = |file: &str, content: Value| write(copy.path(), file, content);
    let ends = || load(copy.path()).unwrap().ends;
    assert!(ends().is_empty());
    write(
        "tokenizer_config.json",
        json!({ "eos_token": "<|im_end|>" }),
    );
    assert_eq!(ends(), [299]);
    write("config.json", json!({ "eos_token_id": 297 }));
    assert_eq!(ends(), [297]);
    let file = "generation_config.json";
    write(
        file,
        json!({ "eos_token_id": [299, 297], "stop_strings": "####", "top_k": 20 }),
    );
    assert_eq!(ends(), [299, 297]);
    let text = load(copy.path()).unwrap().with_stops(&["Q:".to_string()]);
    assert_eq!(text.stops, ["####", "Q:"]);
    for (content, expected) in [
        (
            json!({ "stop_strings": 3 }),
            "generation_config.json, `stop_strings`: invalid type",
        ),
        (
            json!({ "eos_token_id": 400 }),
            "`eos_token_id` is 400; the vocabulary has only IDs below 400",
        ),
    ] {
        write(file, content);
        let error = error_of(load(copy.path()));
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn stop_strings_are_found_over_several_tokens_and_inside_of_one() {
    let text = load(&folder("llama")).unwrap();
    let stops = ["\n\n", "日本", "A: 6", "<|eot_id|>"].map(str::to_string);
    let text = text.with_stops(&stops);
    for (response, ended) in [
        ("so 5\nA: 6", true),
        ("so 5\nA: 5", false),
        ("at\n\n  costs", true),
        ("one\ntwo\n", false),
        ("in 日本", true),
        ("in 日", false),
        ("5<|eot_id|>", true),
        ("", false),
    ] {
        let tokens = text.tokens(response, false).unwrap();
        let found = (1..=tokens.len()).any(|end| text.has_stop(&tokens[..end]).unwrap());
        assert_eq!(found, ended, "{response}");
    }
    let without = load(&folder("llama")).unwrap();
    assert!(!without.has_stop(&[32, 25]).unwrap());
}

#[test]
fn a_tokenizer_of_more_tokens_than_the_model_is_refused() {
    let error = error_of(Text::load(bare().path(), 299));
    let expected = "`<|im_end|>` has the ID 299, but the model's vocabulary has only IDs below 299";
    assert!(error.contains(expected), "{error}");
}
