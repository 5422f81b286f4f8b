//! Parameters: their declaration, their values, and what is said of wrong ones.

use advlab::script::{Host, ParamValue};

use super::lab::{recipe, step};

const SCRIPT: &str = r#"
fn params() {
    #{
        k: #{ value: 4, min: 1, max: 64, doc: "draws" },
        eps: #{ value: 1e-6, min: 0.0 },
        std: #{ value: "sample", choices: ["sample", "population"] },
        note: #{ value: "any" },
        centred: #{ value: true },
        clip: #{ value: (), min: 0.0 },
        draws: #{ value: (), min: 1 },
        names: #{ value: ["a"] },
        weights: #{ value: [1.0], min: 0.0 },
        short: 0.5,
    }
}
fn advantage(batch, p) {
    print(`${p.k} ${p.eps} ${p.std} ${p.note} ${p.centred} ${p.clip == ()}`);
    if p.names.len() > 1 { print(`${p.draws} ${p.names} ${p.weights} ${p.short}`); }
    batch.reward
}
"#;

/// Lists also as TOML and JSON write them.
#[test]
fn hooks_see_the_defaults_and_what_is_set() {
    let defaults = "4 0.000001 sample any true true";
    let lists = format!("{defaults}3 [\"b\", \"c\"] [1.0, 0.5] 2.0");
    for (settings, expected) in [
        ("", defaults),
        (
            "k=8|eps=0|std=population|note=with = and spaces|centred=false|clip=2",
            "8 0.0 population with = and spaces false false",
        ),
        ("clip=1|clip=none", defaults),
        ("draws=3|names=b, c|weights=1,0.5|short=2", &lists),
        (
            r#"draws=3|names=["b", "c"]|weights=[1, 0.5]|short=2"#,
            &lists,
        ),
    ] {
        let mut recipe = recipe(SCRIPT);
        for setting in settings.split_terminator('|') {
            let (name, text) = setting.split_once('=').unwrap();
            recipe.set_text(name, text).expect(name);
        }
        let prints = step(&recipe, &mut recipe.init().unwrap()).reports.prints;
        assert_eq!(prints.concat(), expected, "{settings}");
    }
    for (text, shown, json) in [
        (r#"["a,b", "c"]"#, "a,b,c", r#"["a,b","c"]"#),
        ("b,c", "b,c", r#"["b","c"]"#),
    ] {
        let mut recipe = recipe(SCRIPT);
        recipe.set_text("names", text).unwrap();
        let names = recipe.params().get("names").unwrap();
        assert_eq!(names.to_string(), shown);
        assert_eq!(serde_json::to_string(names).unwrap(), json);
    }
}

#[test]
fn wrong_values_say_what_the_parameter_takes() {
    for case in [
        "k=0 => an integer from 1 to 64",
        "k=65 => an integer from 1 to 64",
        "k=2.5 => an integer from 1 to 64",
        "k= => an integer from 1 to 64",
        "eps=-1 => a number, at least 0",
        "eps=nan => a number, at least 0",
        "std=populaton => did you mean `population`?",
        "centred=yes => true or false",
        "clip=-0.5 => none or a number, at least 0",
        "draws=2.5 => none or an integer, at least 1",
        "draws=0 => none or an integer, at least 1",
        "weights=1,-1 => a list as in `a,b`, each a number, at least 0",
        "weights=1,x => each a number",
        "epss=1 => did you mean `eps`?",
        "entirely_else=1 => `k`",
    ] {
        let (setting, expected) = case.split_once(" => ").unwrap();
        let (name, text) = setting.split_once('=').unwrap();
        let mut recipe = recipe(SCRIPT);
        let before = recipe.params().clone();
        let error = recipe.set_text(name, text).unwrap_err().to_string();
        let is_named = error.contains(&format!("`{name}`"));
        assert!(is_named && error.contains(expected), "{setting}: {error}");
        assert_eq!(recipe.params(), &before, "{setting} changed something");
    }
}

#[test]
fn typed_settings_are_checked_too() {
    let mut recipe = recipe(SCRIPT);
    recipe.set("eps", ParamValue::Integer(1)).unwrap();
    assert_eq!(recipe.params().get("eps"), Some(&ParamValue::Number(1.0)));
    assert!(recipe.set("k", ParamValue::Number(2.0)).is_err());
    assert!(recipe.set("k", ParamValue::Text("2".into())).is_err());
    assert!(recipe.set("centred", ParamValue::Integer(1)).is_err());
    recipe.set("clip", ParamValue::Unset).unwrap();
    assert!(recipe.set("k", ParamValue::Unset).is_err());
}

#[test]
fn wrong_declarations_are_errors_at_load() {
    for case in [
        "k: [[1]] => must be a default, or a map",
        "k: #{ min: 1 } => needs a `value`",
        "k: #{ value: 4, mni: 1 } => did you mean `min`?",
        "k: #{ value: 4, min: \"1\" } => `min` must be a number",
        "k: #{ value: 0, min: 1 } => default does not fit",
        "k: #{ value: \"a\", choices: [\"b\"] } => default does not fit",
        "k: #{ value: \"a\", choices: \"a\" } => array of strings",
        "k: #{ value: [[1]] } => cannot be an array",
        "k: #{ value: 4, doc: 1 } => `doc` must be a string",
    ] {
        let (declared, expected) = case.split_once(" => ").unwrap();
        let text = format!(
            "fn params() {{ #{{ {declared} }} }} fn advantage(batch, p) {{ batch.reward }}"
        );
        let error = Host::new().compile("test", &text).expect_err(declared);
        let said = error.to_string();
        assert!(
            said.contains(expected) && said.contains("`k`"),
            "{declared}: {said}"
        );
    }
}

/// Settings are JSON's own types, and a bound that is none is not told.
#[test]
fn settings_are_json() {
    let mut recipe = recipe(
        "fn params() { #{
            k: #{ value: 4, min: 1, max: 9223372036854775807 }, eps: #{ value: 0.5 }, on: #{ value: true },
            name: #{ value: \"x\" }, limit: #{ value: () },
        } }
        fn advantage(batch, p) { batch.reward }",
    );
    recipe.set_text("eps", "inf").unwrap();
    let json = ["k", "eps", "on", "name", "limit"].map(|name| recipe.params().get(name));
    let json = serde_json::to_string(&json).unwrap();
    assert_eq!(json, r#"[4,"inf",true,"x",null]"#);
    let error = recipe.set_text("k", "0").unwrap_err();
    assert_eq!(error.message, "`k` is 0: it takes an integer, at least 1");
}
