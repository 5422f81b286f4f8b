"""The lab in a notebook: reports beside the commands' own words, their numbers, pictures in a browser, `%%advantage`."""

import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scripts import command

import advlab
from advlab._batch import Call

BATCH = advlab.read()
GRPO = advlab.load("grpo")


def program(*words, **more):
    done = command(*words, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Four tiny runs of two designs, and what the command said of them."""
    folder = tmp_path_factory.mktemp("runs")
    small = [
        word for key in ("rollout_batch_size=8", "eval_prompts=8", "hidden_size=16", "batch_every=1") for word in ("--set", key)
    ]
    program("compare", "grpo", "maxrl", "--seeds", 2, "--steps", 2, *small, "--out", folder)
    return folder, program("compare", folder)


REPORTS = {
    # What Python gives, what is typed at the prompt, the columns of its table, and whether it has a figure.
    "summary": (BATCH.summary, "batch", "column level dtype is_derived mean std min max", False),
    "run": (lambda: GRPO.run(BATCH), ":run grpo", "response group length correct weight advantage", False),
    "curve": (lambda: GRPO.curve(n=8), ":curve grpo --n 8", "recipe right a_right a_wrong total", True),
    "curves": (lambda: GRPO.curve("rloo", batch=BATCH), ":curve grpo rloo", "recipe right a_right a_wrong total", True),
    "objective": (lambda: GRPO.objective("maxrl", n=8), ":objective grpo maxrl --n 8", "recipe p slope slope_error value", True),
    "mass": (lambda: GRPO.mass(BATCH), ":mass grpo", "by part tokens advantage gradient", False),
    "noise": (
        lambda: GRPO.objective("maxrl", n=8, noise=True),
        ":objective grpo maxrl --n 8 --noise",
        "recipe p slope slope_error value mean variance ratio ratio_to_best groups no_signal",
        True,
    ),
    "masses": (lambda: GRPO.mass("maxrl", BATCH), ":mass grpo maxrl", "recipe by part tokens advantage gradient", True),
    "surface": (lambda: advlab.load("ppo_clip").surface(), ":surface ppo_clip", "panel series x y z", True),
    "diff": (
        lambda: advlab.diff("grpo", "maxrl", BATCH),
        ":diff grpo maxrl",
        "accuracy groups right_a right_b wrong_a wrong_b total_a total_b",
        False,
    ),
}


@pytest.mark.parametrize(("make", "typed", "columns", "has_figure"), REPORTS.values(), ids=REPORTS)
def test_a_report_says_what_the_prompt_says(make, typed, columns, has_figure, tmp_path):
    def lines(text):
        # The time that it took is another one.
        return [line.strip() for line in text.splitlines() if not line.startswith("  time ")]

    report, said = make(), lines(program("repl", "--stdin", input=typed + "\n"))
    shown = lines(str(report))
    assert len(shown) > 3 and "\n".join(shown) in "\n".join(said)
    assert list(report.numbers) == columns.split() and len({len(column) for column in report.numbers.values()}) == 1
    assert repr(report) == str(report) and "\x1b" not in str(report)
    assert (report._repr_svg_() is not None) == has_figure
    page = report._repr_html_()
    assert Shown.of(page).text.count("\x1b") == 0 and ("<svg style=" in page) == has_figure
    for ending in ["svg", "csv", "json", "txt"] if has_figure else ["csv", "txt"]:
        report.save(tmp_path / f"report.{ending}")
        assert (tmp_path / f"report.{ending}").read_text().strip()
    with pytest.raises(advlab.RecipeError, match=r"a name that ends in .*\.csv"):
        report.save(tmp_path / "report.png")


def test_the_table_of_a_report_is_a_data_frame(monkeypatch):
    report = GRPO.mass(BATCH)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        report.to_pandas()
    monkeypatch.undo()
    frame = pytest.importorskip("pandas") and report.to_pandas()
    assert list(frame.columns) == ["by", "part", "tokens", "advantage", "gradient"]
    assert np.allclose(frame.groupby("by")["advantage"].sum(), 1)


def test_the_commands_print_the_same_numbers(root, tmp_path):
    path = root / "examples/rollouts.jsonl"
    batch = advlab.read(path)
    # The program does not wrap lines that go to a file.
    assert str(GRPO.check(batch)).split() == program("check", "grpo", path).split()
    assert str(GRPO.mass(batch)).partition("\n")[2] in program("mass", "grpo", path)
    report = advlab.load("passk", k=4).objective(n=8)
    (told,) = json.loads(program("objective", "passk", "k=4", "--n", 8, "--json"))
    assert report.numbers["slope"].tolist() == told["slope"] and report.numbers["value"].tolist() == told["value"]
    assert np.isnan(report.numbers["slope_error"]).all() and report.about["designs"][0]["nearest"] == told["nearest"]
    program("objective", "passk", "k=4", "--n", 8, "--out", tmp_path / "theirs.svg")
    report.save(tmp_path / "ours.svg")
    assert (tmp_path / "ours.svg").read_text() == (tmp_path / "theirs.svg").read_text()


def test_runs_are_compared_as_the_command_does(runs, tmp_path):
    folder, said = runs
    report = advlab.compare(folder)
    assert str(report).strip() == said.strip() and "too few seeds" in report.about["claims"][0]
    assert report.numbers["design"].tolist() == ["grpo"] * 2 + ["maxrl"] * 2 and report.numbers["seed"].tolist() == [0, 1, 0, 1]
    report.save(tmp_path / "all")
    assert sorted(file.name for file in (tmp_path / "all").iterdir()) == ["report.html", "runs.csv"]
    for name in ("runs.csv", "report.html"):
        report.save(tmp_path / name)
        assert (tmp_path / name).read_text() == (tmp_path / "all" / name).read_text()
    assert (folder / "runs.csv").read_text() == (tmp_path / "runs.csv").read_text()
    assert str(advlab.compare([folder / "grpo", folder / "maxrl"])) == str(report)


def test_a_run_is_read_by_its_folder(runs):
    run = runs[0] / "grpo" / "seed-0"
    last, first = advlab.read(run), advlab.read(run, step=0)
    assert (last.step, first.step) == (1, 0) and "`step=N` reads another" in last.notes[0]
    assert last["reward"].shape == (8 * 16,) and GRPO.mass(last).about["summary"]["responses"] == 128
    with pytest.raises(advlab.RecipeError, match="no batch of step 7"):
        advlab.read(run, step=7)


def test_numbers_are_those_of_formulas():
    n, right = 8, np.arange(9)
    rloo = advlab.load("rloo").curve(n=n).numbers
    assert np.allclose(rloo["a_right"][1:], (n - right[1:]) / (n - 1)) and np.isnan(rloo["a_right"][0])
    assert np.allclose(rloo["a_wrong"][:-1], -right[:-1] / (n - 1)) and np.isnan(rloo["a_wrong"][-1])
    assert np.allclose(advlab.load("rloo").objective(n=n).numbers["slope"], 1)
    size = np.abs(GRPO.advantage(BATCH).advantage) * BATCH.lengths
    mass = GRPO.mass(BATCH).numbers
    shares = mass["advantage"][mass["by"] == "response"]
    assert np.allclose(shares, [size[BATCH["reward"] == label].sum() / size.sum() for label in (0, 1)])
    a, b = (advlab.load(name).advantage(BATCH).advantage for name in ("grpo", "maxrl"))
    about = advlab.diff("grpo", "maxrl", BATCH).about
    assert np.isclose(about["mean"], np.abs(a - b).mean()) and np.isclose(about["correlation"], np.corrcoef(a, b)[0, 1])
    assert about["differ"] == (np.abs(a - b) > 1e-9).mean() and advlab.diff(GRPO, "grpo", BATCH).about["differ"] == 0
    assert GRPO.run(BATCH).numbers["advantage"].tolist() == a.tolist()


def test_columns_stand_for_a_batch_and_the_state_is_left_alone(script):
    columns = {"groups": [1, 1, 2, 2], "reward": [1.0, 0.0, 0.0, 1.0], "mask": np.ones((4, 2))}
    assert GRPO.mass(**columns).about["summary"]["tokens"] == 8
    recipe = advlab.load(script("fn init(p) { #{ n: 0 } } fn advantage(batch, p) { this.n += 1; this.n * batch.reward }"))
    recipe.advantage(**columns)
    assert recipe.run(**columns).numbers["advantage"].tolist() == columns["reward"] and recipe.state_dict() == {"n": 1}


WRONG = [
    (lambda: GRPO.mass(), TypeError, r"`mass` needs a batch: `advlab.read\(path\)`"),
    (lambda: advlab.diff(GRPO, "maxrl"), TypeError, "`diff` needs a batch"),
    (lambda: GRPO.mass([1, 0]), TypeError, "of the type list: columns are keyword arguments"),
    (lambda: GRPO.run("mine.jsonl"), TypeError, r"`advlab.read\('mine.jsonl'\)` reads a file"),
    (lambda: GRPO.mass({"reward": [1, 0]}), TypeError, "of the type dict: pass its columns as keyword arguments, `**columns`"),
    (lambda: GRPO.advantage([1, 0], [0, 0]), TypeError, "columns are keyword arguments, as in `groups=[0, 0], reward=[1.0, 0.0]`"),
    (lambda: GRPO.loss([1, 0], [0, 0]), TypeError, "columns are keyword arguments"),
    (lambda: GRPO.mass(reward=[1, 0]), TypeError, "`groups` is missing"),
    (lambda: GRPO.mass(reward=[1, 0], index=["a", "a"]), TypeError, "`index` is called `groups` here"),
    (lambda: setattr(GRPO, "eps", 3), AttributeError, "`advlab.load(recipe, eps=...)`"),
    (lambda: GRPO.params.update(eps=3), TypeError, "the parameters of a recipe cannot be changed"),
    (lambda: GRPO.params.__setitem__("eps", 3), TypeError, "the parameters of a recipe cannot be changed"),
    (lambda: advlab.load("fn advantage(batch, p) { batch.reward }"), TypeError, "`load(source=text)`"),
    (lambda: advlab.load("grpo", source="fn"), TypeError, "`load(source=text)`"),
    (lambda: advlab.load(), TypeError, "`load(source=text)`"),
    (lambda: advlab.load(source="fn advantage(batch, p) { x }"), advlab.RecipeError, "source:1:26"),
    (lambda: advlab.read("x.jsonl", unscored="skip"), ValueError, "is not leave-out, zero or error"),
    (lambda: advlab.read(unscored="zero"), TypeError, "apply only to a file"),
    (lambda: GRPO.mass(BATCH, reward=[1]), TypeError, "has its columns already"),
    (lambda: GRPO.mass(groups=[0, 0], rewards=[1, 0]), advlab.RecipeError, "`rewards`: pass it as `reward`"),
    (lambda: advlab.load("gae").run(BATCH), advlab.RecipeError, "no column `value`"),
    (lambda: advlab.load("reinforce_pp").objective(), advlab.RecipeError, "`batch=batch`"),
    (lambda: advlab.load("passk", k=8).curve(n=4), advlab.RecipeError, "k = 8 is more than the 4 to choose from"),
    (lambda: GRPO.curve(n=0), ValueError, "a group has 1 to 1024 responses"),
    (lambda: GRPO.curve(n=1025), ValueError, "`n` is 1025"),
    (lambda: GRPO.curve(n=8.0), TypeError, "an integer is needed"),
    (lambda: GRPO.curve(8), TypeError, "pass this argument by keyword, `n=...`"),
    (lambda: GRPO.objective(BATCH), TypeError, "pass this argument by keyword, `batch=...`"),
    (lambda: GRPO.curve("grop"), advlab.RecipeError, "did you mean `grpo`"),
    (lambda: GRPO.surface(), advlab.RecipeError, "no loss to draw"),
    (lambda: advlab.diff(GRPO, None, BATCH), TypeError, "not NoneType: `advlab.load` returns a recipe"),
    (lambda: advlab.compare([]), ValueError, "no folder was given"),
    (lambda: advlab.compare("nothing"), advlab.RecipeError, "nothing is not a run"),
    (lambda: GRPO.check().save("x.svg"), advlab.RecipeError, "the report has no figure"),
    (lambda: GRPO.curve(n=8).save("x.pdf"), advlab.RecipeError, "rsvg-convert -f pdf"),
    (lambda: advlab.read("x.jsonl", step=1), advlab.RecipeError, "`step` selects a batch of a run's folder"),
    (lambda: advlab.read(step=3), TypeError, "apply only to a file"),
    (lambda: advlab.read("x.jsonl", step="a"), TypeError, "`step` is 'a': an integer"),
    (lambda: advlab.read("x.jsonl", tokenizer="none.json"), advlab.RecipeError, "the tokenizer cannot be read"),
]


@pytest.mark.parametrize(("call", "kind", "told"), WRONG, ids=[told for _, _, told in WRONG])
def test_an_error_says_what_was_found_and_what_to_do(call, kind, told):
    with pytest.raises(kind, match=told if "\\" in told else re.escape(told)):
        call()


class Shown(html.parser.HTMLParser):
    """The text of a page, and the tags that are open at its end."""

    def __init__(self):
        super().__init__()
        self.text, self.open = "", []

    @classmethod
    def of(cls, page):
        shown = cls()
        shown.feed(page)
        assert shown.open == [], "each tag is closed"
        return shown

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_names_are_text_in_a_page():
    batch = Call.of(None, {"groups": [0, 0], "<b>x": [1.0, 2.0]}).batch
    report = advlab.Report("summary", [], batch)
    assert "<b>x" in str(report) and "<b>x" not in report._repr_html_() and "<b>x" in Shown.of(report._repr_html_()).text


RECIPE = "fn params() { #{ by: #{ value: 2.0, min: 0.0 } } }\nfn advantage(batch, p) { p.by * (batch.reward - 0.5) }\n"

CELLS = [
    # The line, the cell, what is shown, whether the cell succeeds.
    ("mine --set by=3", RECIPE, "mine .* by=3.0", True),
    ("grpo", RECIPE, r"grpo \(cell\)", True),
    ("", RECIPE, "built-in batch.*to keep the recipe, name it", True),
    ("mine --batch batch", RECIPE, "`mine.check\\(\\)` lists them", True),
    (
        "mine",
        'fn advantage(batch, p) { batch.old_logp.sum("response") / batch.length }',
        "FAILS  a response without tokens",
        True,
    ),
    ("mine", RECIPE + "fn wieght(batch, p) { batch.reward }", "nothing calls the function `wieght`.*with 1 warning", True),
    ("mine --batch other", RECIPE, "`other` is not defined: a batch must come from `advlab.read`", False),
    ("mine --batch number", RECIPE, "`number` is of the type int", False),
    ("mine --set by", RECIPE, "not of the form PARAMETER=VALUE", False),
    ("mine --set bye=3", RECIPE, "did you mean `by`", False),
    ("mine --set by=-1", RECIPE, "at least 0", False),
    ("2mine", RECIPE, "`2mine` is not the name of a variable", False),
    ("a b", RECIPE, "unrecognized arguments: b", False),
    ("'a", RECIPE, "No closing quotation", False),
    ("mine", RECIPE.replace("reward", "rewrad"), r"2 \| .*\n +\| +\^{6}\n.*did you mean `reward`", False),
    ("mine", "def advantage(batch, p):", r"mine:1:1\n.*\n +\| \^\^\^\n.*fn advantage", False),
    ("mine", RECIPE.replace("0.5)", "0.5"), r"mine:2:\d+.*\n.*0.5 }\n +\| +\^", False),
]


@pytest.mark.parametrize(("line", "cell", "shown", "succeeds"), CELLS, ids=range(len(CELLS)))
def test_a_cell_is_a_recipe(line, cell, shown, succeeds, capsys):
    shells = pytest.importorskip("IPython.core.interactiveshell")
    shell = shells.InteractiveShell.instance(colors="nocolor")
    shell.run_line_magic("load_ext", "advlab")
    shell.user_ns.update(batch=BATCH, number=3, mine="as it was", grpo=None)
    result = shell.run_cell(f"%%advantage {line}\n{cell}")
    told = "".join(capsys.readouterr())
    assert result.success == succeeds and re.search(shown, told, re.DOTALL if succeeds else 0), told
    assert "Traceback" not in told and "_magic.py" not in told
    name = line.split(" ")[0]
    if succeeds and name:
        recipe = shell.user_ns[name]
        assert isinstance(recipe, advlab.Recipe) and recipe.text.strip() == cell.strip()
    else:
        assert shell.user_ns["mine"] == "as it was"


def executed(cells, folder):
    """The cells, run in a kernel, each with its outputs."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel"), pytest.importorskip("pandas")
    notebook = nbformat.v4.new_notebook(cells=cells)
    # The command of this environment.
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    client = nbclient.NotebookClient(notebook, kernel_name="python3", timeout=600, resources={"metadata": {"path": str(folder)}})
    client.execute(env={**os.environ, "PATH": path})
    return notebook.cells


def words(cell):
    """What a cell shows, as text."""
    outputs = [
        output.get("text") or output.get("data", {}).get("text/plain") or "\n".join(output.get("traceback", []))
        for output in cell.outputs
    ]
    return "\n".join(outputs)


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """The code cells of the example, run."""
    nbformat = pytest.importorskip("nbformat")
    kept = nbformat.read(Path(__file__).parents[1] / "examples/notebook.ipynb", as_version=4)
    nbformat.validate(kept)
    code = [cell for cell in kept.cells if cell.cell_type == "code"]
    # Stored outputs would be as old as their last commit.
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    return executed(code, tmp_path_factory.mktemp("notebook"))


def test_the_example_runs(cells):
    failed = [cell for cell in cells if any(output.output_type == "error" for output in cell.outputs)]
    assert [cell.source.splitlines()[0] for cell in failed] == ["%%advantage mine --batch batch"]
    assert "did you mean `reward`" in words(failed[0]) and "Traceback" not in words(failed[0])
    expected = [
        "batch   128 responses",
        "grpo e5123f",
        "A+ right",
        "nearest",
        "mine ",
        "75.0 %|differ",
        "dloss/dlogp is computed from the loss",
        "nan",
        "count",
        "A = 1",
        "no significant difference|exactly the numbers",
    ]
    shown = "\n".join(map(words, cells))
    assert [one for one in expected if not re.search(one, shown)] == []


def test_the_pages_blocks_give_what_they_show(root, tmp_path):
    nbformat = pytest.importorskip("nbformat")
    page = (root / "docs/notebook.md").read_text()
    blocks = re.findall(r"```(\w+)\n(.*?)\n```", page, re.DOTALL)
    code = [nbformat.v4.new_code_cell(text, metadata={"tags": ["raises-exception"]}) for kind, text in blocks if kind == "python"]
    run = iter(executed(code, tmp_path))
    last, shown = None, 0
    for kind, text in blocks:
        if kind == "python":
            last = next(run)
        else:
            assert words(last).strip("\n") == text
            shown += 1
        if kind == "python" and "rewrad" not in text:
            assert not any(output.output_type == "error" for output in last.outputs), words(last)
    assert shown == 4 and (tmp_path / "curve.svg").exists() and (tmp_path / "mass.csv").exists()


LOOK = """
<script>
// Draws each figure into a canvas, and says how many of its pixels are neither white nor clear, and of how many inks.
const said = [];
for (const svg of document.querySelectorAll("svg")) {
  const place = svg.getBoundingClientRect(), image = new Image(), canvas = document.createElement("canvas");
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(svg));
  await image.decode();
  [canvas.width, canvas.height] = [640, Math.round(640 * place.height / place.width)];
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  const data = context.getImageData(0, 0, canvas.width, canvas.height).data, inks = new Set();
  let drawn = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] && data[at] + data[at + 1] + data[at + 2] < 720) { drawn++; inks.add(data.slice(at, at + 3).join()); }
  }
  const texts = [...svg.querySelectorAll("text")].filter(text => {
    const box = text.getBoundingClientRect();
    return box.left < place.left - 1 || box.right > place.right + 1 || box.top < place.top - 1 || box.bottom > place.bottom + 1;
  });
  said.push({ width: place.width, share: drawn / canvas.width / canvas.height, inks: inks.size, outside: texts.map(text => text.textContent) });
}
const lines = [...document.querySelectorAll("pre")].map(pre => getComputedStyle(pre).whiteSpace + " " + getComputedStyle(pre).fontFamily);
document.title = JSON.stringify({ figures: said, lines, wide: document.documentElement.scrollWidth });
</script>
""".replace("<script>", '<script type="module">')


@pytest.mark.parametrize(("window", "background"), [(1000, "white"), (420, "#111")])
def test_a_browser_shows_the_figures(cells, tmp_path, window, background):
    """They have ink and texts inside of their frames, at the page's width and on a narrow dark page."""
    browser = shutil.which("chromium")
    if browser is None:
        assert os.environ.get("ADVLAB_BROWSER") != "required", "`chromium` is missing"
        pytest.skip("there is no `chromium` on the path: the figures are not looked at")
    pages = [output.data["text/html"] for cell in cells for output in cell.outputs if "text/html" in output.get("data", {})]
    mine = [page for page in pages if page.startswith("<div>") and "<style" not in page]
    colour = "color:white" if background != "white" else "color:black"
    page = tmp_path / "page.html"
    page.write_text(
        f"<!doctype html><meta charset=utf-8><body style='background:{background};{colour}'>{''.join(mine)}{LOOK}", "utf-8"
    )
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=10000",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    # The window of a headless browser is at least 500 wide.
    shown = subprocess.run(
        [browser, *flags, f"--window-size={window},2000", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=600,
    ).stdout
    title = re.search(r"<title>(.*?)</title>", shown)
    assert title, "the page's script did not end"
    seen = json.loads(html.unescape(title[1]))
    assert len(seen["figures"]) == 4 and all("pre" in line and "mono" in line for line in seen["lines"])
    for figure in seen["figures"]:
        assert figure["outside"] == [] and 0.01 < figure["share"] < 0.5 and figure["inks"] > 10
        assert figure["width"] <= min(648, max(window, 500))
    texts = set(re.findall(r"<text[^>]*>([^<]+)", re.sub(r"</?tspan[^>]*>", "", shown)))
    assert {"A+ right", "right responses of 8", "objective F(p)", "advantage A", "pass@1", "0.5"} <= texts
