"use strict";
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const token = new URLSearchParams(location.search).get("token");
// The curves that are shown first; the recipe's own come after the fifth.
const FIRST = "pass@1 pass@K reward_mean length entropy groups_without_signal effective_responses advantage_std loss kl clip_share grad_norm".split(" ");
const runs = [], panels = new Map(), uses = {};
let chosen = 0, mark = null, cursor = null, waiting = false, ahead = 0;
const now = () => runs[chosen];
const isUse = (event) => event.kind === "use";

function el(tag, properties, ...inner) {
	const element = document.createElement(tag);
	for (const [name, value] of Object.entries(properties ?? {})) {
		if (name in element && name !== "style") element[name] = value;
		else element.setAttribute(name, value);
	}
	element.append(...inner);
	return element;
}
const says = (tag, textContent, className = "") => el(tag, { textContent, className });
const hint = (text) => says("p", text, "hint");
const fill = (id, ...inner) => $(id).replaceChildren(...inner);
const button = (onclick, properties, ...inner) => el("button", { type: "button", onclick, ...properties }, ...inner);

// What the server or the file says, or an `error`.
async function get(address) {
	if (data.answers) return data.answers[address] ?? { error: "not in this file" };
	try {
		const answer = await fetch(`${address}&token=${token}`);
		return answer.ok ? await answer.json() : { error: `${answer.status} ${answer.statusText}` };
	} catch { return { error: "the server does not answer" }; }
}

function number(x, n) {
	if (x == null || !isFinite(x)) return "–";
	const size = Math.abs(x);
	const text = size && (size < 1e-3 || size >= 1e6) ? x.toExponential(1) : size >= 100 && !n ? x.toFixed(0) : String(+x.toPrecision(n ?? 3));
	return text.replace("-", "−");
}

// Numbers of rows that have no curve.
const HIDDEN = "step batch_step crc32c responses groups device_memory ms/native".split(" ");
// The most marks of a curve: a screen cannot show more.
const MARKS = 400;

// Adds a number to a curve's last mark, `[step, mean, least, most, count]`, or begins another: each stands for `width` steps.
function join(marks, width, step, value) {
	const last = marks.at(-1);
	if (!last || Math.floor(last[0] / width) !== Math.floor(step / width)) return marks.push([step, value, value, value, 1]);
	last[1] += (value - last[1]) / ++last[4];
	last[2] = Math.min(last[2], value);
	last[3] = Math.max(last[3], value);
}

function addRow(run, row) {
	const step = run.step = row.step ?? run.step + 1, width = 2 ** Math.ceil(Math.log2(Math.floor(step / MARKS) + 1));
	if (width !== run.width) for (const curve of Object.values(run.curves)) {
		curve.marks = [];
		curve.steps.forEach((step, index) => join(curve.marks, width, step, curve.values[index]));
	}
	run.width = width;
	const add = (path, step, value) => {
		const curve = run.curves[path] ??= { steps: [], values: [], marks: [] };
		curve.steps.push(step);
		curve.values.push(value);
		join(curve.marks, width, step, value);
	};
	const each = (value, path) => {
		if (value && typeof value === "object") for (const name in value) each(value[name], path ? `${path}/${name}` : name);
		if (typeof value !== "number" || HIDDEN.includes(path)) return;
		// An evaluation's number is at the number of steps that were done before it.
		if (path.startsWith("initial_evaluation/")) add(path.slice(8), step, value);
		else add(path, step + path.startsWith("evaluation/"), value);
	};
	each(row, "");
}

const short = (version) => String(version).slice(0, 6);
// How an event is listed: its kind, which is how its mark looks, and its line. Others are not listed.
const LISTED = {
	start: ({ version }) => ["", `${short(version)} begins`],
	use: ({ from, version, lines_added = 0, lines_removed = 0 }) => ["use", `${short(from)} → ${short(version)}  +${lines_added} −${lines_removed}`],
	rejected: ({ version, error }) => ["bad", `rejected ${short(version)}: ${error}`],
	failed: ({ version, error }) => ["bad", `failed ${short(version)}: ${error}`],
	warning: ({ message }) => ["note", message],
};

function addEvent(run, event) {
	const [kind, line] = LISTED[event.event]?.(event) ?? [];
	run.events.push({ step: event.step ?? 0, kind, line, from: event.from, version: event.version });
}

// The means of a run's numbers before a step, and from it on: over as many steps as there are to the next change on either side,
// at most 50.
function around(run, index) {
	const { step } = run.events[index];
	const from = Math.max(run.events.slice(0, index).findLast(isUse)?.step ?? 0, step - 50);
	const to = Math.min(run.events.slice(index + 1).find(isUse)?.step ?? Infinity, step + 50);
	const mean = ({ steps, values }, from, to) => {
		const own = values.filter((_, index) => steps[index] >= from && steps[index] < to);
		return own.length ? own.reduce((sum, value) => sum + value, 0) / own.length : null;
	};
	const means = Object.entries(run.curves).map(([name, curve]) => {
		// An evaluation after the step before is one of what was before; the first one of all comes before the first step.
		const late = +name.startsWith("evaluation/");
		return [name, [mean(curve, from && from + late, step + late), mean(curve, step + late, to + late)]];
	});
	return { from, to, means: new Map(means) };
}

// Curves.

function ticks(least, most, wanted) {
	const rough = (most - least) / wanted, power = 10 ** Math.floor(Math.log10(rough));
	const step = [1, 2, 5, 10].map((round) => round * power).find((step) => step >= rough * 0.999);
	const all = [];
	for (let at = Math.ceil(least / step - 1e-9); at <= most / step + 1e-9; at++) all.push(at * step);
	return all;
}

// The names of panels: those that are shown first, and the others.
function names() {
	const all = [...new Set(runs.flatMap((run) => Object.keys(run.curves).map((name) => name.replace("evaluation/", ""))))];
	const most = Math.max(...all.map((name) => /^pass@(\d+)$/.exec(name)?.[1] ?? 0));
	const first = FIRST.map((name) => name.replace("K", most));
	first.splice(5, 0, ...all.filter((name) => name.startsWith("metrics/")).sort());
	const shown = [...new Set(first)].filter((name) => all.includes(name));
	return [shown, all.filter((name) => !shown.includes(name)).sort()];
}

function panel(name) {
	if (!panels.has(name)) {
		const value = el("span"), svg = el("p", { innerHTML: "<svg role=img></svg>" }).firstChild;
		const one = { name, value, svg, figure: el("figure", {}, el("figcaption", {}, says("b", name.replace("metrics/", "")), value), svg) };
		svg.onpointermove = (event) => point(stepAt(one, event));
		svg.onpointerleave = () => point(null);
		svg.onclick = (event) => pick(one, event);
		panels.set(name, one);
	}
	return panels.get(name);
}

const shown = () => runs.filter((run) => run.shown);
const done = (run) => Math.max(0, run.step);

// The end of the axis, which seldom moves.
function axis() {
	const last = Math.max(1, ...shown().map(done)), power = 10 ** Math.floor(Math.log10(last)) / 5;
	const all = Math.max(...shown().map((run) => run.heading.steps ?? Infinity));
	return Math.max(last, Math.min(all, Math.ceil(last / power) * power));
}

const LEFT = 44, RIGHT = 14, TOP = 6, FLOOR = 144;

function draw(one, width, end) {
	const lines = [];
	let least = Infinity, most = -Infinity;
	for (const run of shown()) for (const prefix of ["", "evaluation/"]) {
		const marks = run.curves[prefix + one.name]?.marks;
		if (!marks) continue;
		lines.push({ marks, run, prefix });
		for (const [, , low, high] of marks) {
			least = Math.min(least, low);
			most = Math.max(most, high);
		}
	}
	if (most - least <= 1e-9 * Math.max(Math.abs(least), Math.abs(most))) { least -= 0.5; most += 0.5; }
	const room = (most - least) * 0.05;
	if (least) least -= room;
	most += room;
	const x = (step) => Math.round((LEFT + step / end * (width - LEFT - RIGHT)) * 10) / 10;
	const y = (value) => Math.round((TOP + (most - value) / (most - least) * (FLOOR - TOP)) * 10) / 10;
	const path = (marks, index) => marks.reduce((path, mark) => `${path}${x(mark[0])},${y(mark[index])} `, "");
	let out = "";
	for (const tick of ticks(least, most, 4)) out += `<path class="grid" d="M${LEFT} ${y(tick)}H${width - RIGHT}"/><text x="${LEFT - 6}" y="${y(tick)}" dy="4" text-anchor="end">${number(tick, 9)}</text>`;
	for (const tick of ticks(0, end, width / 90)) {
		if (tick % 1 === 0) out += `<text x="${x(tick)}" y="159" text-anchor="middle">${tick >= 1e4 ? tick / 1e3 + "k" : tick}</text>`;
	}
	if (now().shown) {
		// The same in all panels.
		const upright = (events) => [...new Set(events.map(({ step }) => Math.round(x(step))))].map((x) => `M${x} ${TOP}V${FLOOR}`).join("");
		if (uses.key !== (uses.key = [chosen, now().events.length, width, end].join())) {
			const all = now().events.filter(isUse);
			uses.path = `<path class="moments" stroke-opacity="${Math.min(1, 30 / all.length)}" d="${upright(all)}"/>`;
		}
		out += uses.path;
		if (mark !== null) out += `<path class="chosen" d="${upright([now().events[mark]])}"/>`;
	}
	for (const { marks, run, prefix } of lines) {
		const ink = `var(--${runs.indexOf(run) % 7})`;
		if (run.width > 1 && !prefix) out += `<polygon fill="${ink}" fill-opacity=".18" points="${path(marks, 3)} ${path([...marks].reverse(), 2)}"/>`;
		const faint = !prefix && lines.some((line) => line.run === run && line.prefix);
		out += `<polyline fill="none" stroke="${ink}" stroke-width="${prefix ? 2 : 1.4}" stroke-opacity="${faint ? 0.45 : 1}" stroke-linejoin="round" points="${path(marks, 1)}"/>`;
		if (prefix && marks.length <= 60) for (const mark of marks) out += `<circle r="2.5" fill="${ink}" cx="${x(mark[0])}" cy="${y(mark[1])}"/>`;
	}
	one.svg.innerHTML = out + `<path class="cursor" d="M0 ${TOP}V${FLOOR}"/>`;
	one.svg.setAttribute("viewBox", `0 0 ${width} 164`);
	Object.assign(one, { x, width, end, lines });
	read(one);
}

// The values at the cursor, or the newest.
function read(one) {
	const values = one.lines.filter((line) => line.run === now()).map(({ marks, prefix }) => {
		const last = cursor === null ? marks.at(-1) : marks.findLast((mark) => mark[0] <= cursor);
		return (prefix && "● ") + number(last?.[1]);
	});
	const words = (cursor === null ? "" : `step ${cursor}: `) + values.join("  ");
	one.value.textContent = words;
	one.svg.setAttribute("aria-label", `${one.name} over steps: ${words}`);
	one.svg.lastChild.setAttribute("transform", `translate(${cursor === null ? -9 : one.x(cursor)} 0)`);
}

function stepAt({ svg, width, end }, event) {
	const share = (event.clientX - svg.getBoundingClientRect().left - LEFT) / (width - LEFT - RIGHT);
	return Math.round(Math.min(1, Math.max(0, share)) * end);
}

function point(step) {
	cursor = step;
	for (const one of panels.values()) if (one.lines && one.figure.offsetParent) read(one);
}

// A click near a dashed line chooses that version.
function pick(one, event) {
	const far = ({ step }) => Math.abs(step - stepAt(one, event));
	const best = now().events.filter(isUse).sort((a, b) => far(a) - far(b))[0];
	if (best && far(best) * one.width <= 9 * one.end) choose(now().events.indexOf(best), true);
}

// Draws all, once a frame.
function redraw() {
	if (waiting || !now()) return;
	waiting = true;
	requestAnimationFrame(() => {
		waiting = false;
		const end = axis(), lists = names();
		$("curves").hidden = !lists.flat().length;
		$("history").hidden = !now().events.length;
		lists.forEach((list, index) => {
			const parent = $(index ? "rest" : "panels"), drawn = list.map(panel);
			drawn.forEach((one, index) => { if (parent.children[index] !== one.figure) parent.insertBefore(one.figure, parent.children[index]); });
			while (parent.children.length > drawn.length) parent.lastChild.remove();
			const width = drawn[0]?.figure.clientWidth;
			if (width) for (const one of drawn) draw(one, width, end);
		});
		strip(end);
	});
}

// Versions and messages.

function strip(end) {
	const { events, listed } = now();
	events.slice(listed).forEach(({ step, kind, line }, offset) => {
		if (!line) return;
		const index = listed + offset;
		const properties = { "data-event": index, "aria-pressed": "false" }, show = () => choose(index);
		$("events").append(el("li", { className: kind }, button(show, properties, says("span", step), says("b", line))));
		if (kind) $("strip").append(button(show, { ...properties, className: kind, tabIndex: -1, title: `step ${step}: ${line}` }));
	});
	if (listed === events.length && now().end === end) return;
	Object.assign(now(), { listed: events.length, end });
	for (const one of $("strip").children) one.style.setProperty("--x", Math.min(1, events[one.dataset.event].step / end));
	if (!$("strip").querySelector('[tabindex="0"]') && $("strip").lastChild) $("strip").lastChild.tabIndex = 0;
}

$("strip").onkeydown = (event) => {
	const go = { ArrowRight: 1, ArrowLeft: -1, Home: -1e9, End: 1e9 }[event.key];
	if (!go) return;
	event.preventDefault();
	const all = [...$("strip").children], here = all.indexOf(event.target);
	const next = all[Math.min(all.length - 1, Math.max(0, here + go))];
	event.target.tabIndex = -1;
	next.tabIndex = 0;
	next.focus();
};

// A share is a bar behind its cell.
function table(heads, rows, share = () => null) {
	const cell = (row) => (text, column) => {
		const part = share(row, column);
		return part == null ? says("td", text) : el("td", { textContent: text, className: "bar", style: `--share: ${100 * part}%` });
	};
	const line = (cells) => el("tr", {}, ...cells);
	return el("table", {}, el("thead", {}, line(heads.map((head) => says("th", head)))), el("tbody", {}, ...rows.map((cells, row) => line(cells.map(cell(row))))));
}

async function choose(index, scroll) {
	mark = index;
	const run = now(), { step, kind, line } = run.events[index], detail = $("detail");
	for (const one of document.querySelectorAll("[data-event]")) one.setAttribute("aria-pressed", +one.dataset.event === index);
	$("events").querySelector("[aria-pressed=true]").scrollIntoView({ block: "nearest" });
	redraw();
	const title = says("h3", `Step ${step}`);
	if (kind !== "use") return detail.replaceChildren(title, says("p", line, kind === "bad" ? "error" : ""));
	const event = run.events[index], change = await get(`change?run=${chosen}&from=${event.from}&to=${event.version}`);
	if (mark !== index || run !== now()) return;
	if (change.error) return detail.replaceChildren(title, hint(change.error));
	const kinds = { "+": "add", "-": "del", "@": "gap" };
	const shown = (line) => line[0] === "@" ? `line ${/\+(\d+)/.exec(line)[1]}` : `${line[0]} ${line.slice(1)}`;
	const files = change.files.map(({ name, diff }) => el("div", {}, says("h3", name), el("pre", { tabIndex: 0 }, ...diff.trimEnd().split("\n").map((line) => says("span", shown(line), kinds[line[0]] ?? "")))));
	if (!files.length) files.push(hint("No line differs."));
	const { from, to, means: all } = around(run, index);
	const rows = names()[0].flatMap((name) => ["evaluation/" + name, name]).filter((name) => all.get(name)?.some((mean) => mean !== null)).map((name) => {
		const [before, after] = all.get(name), more = before == null || after == null ? null : after - before;
		return [name.replace("evaluation/", "● ").replace("metrics/", ""), number(before), number(after), (more > 0 ? "+" : "") + number(more)];
	});
	detail.replaceChildren(title, ...files, says("h3", `Means of steps ${from} to ${step - 1}, and ${step} to ${Math.min(to - 1, done(run))}`), table(["", "before", "after", "change"], rows));
	if (scroll) detail.scrollIntoView({ block: "nearest" });
}

// The batch.

const HEADS = ["group", "responses", "accuracy", "mean |A|", "length"];
let batch = null, group = 0, picked = null, sorted = [3, -1], loading = false, drawn = "";
const at = (what) => `${what}?run=${chosen}&step=${$("steps").value}`;

// Lists the kept batches; the newest is followed unless another was chosen.
function kept() {
	const select = $("steps"), all = now().heading.batches, had = [...select.options].map((option) => +option.value);
	if (String(had) === String(all)) return;
	const was = +select.value, follows = was === (had.at(-1) ?? 0);
	select.replaceChildren(...all.map((step) => says("option", step)));
	$("batch").hidden = $("design").hidden = !all.length;
	if (!follows && all.includes(was)) select.value = was;
	else { select.value = all.at(-1) ?? ""; load(); }
}

async function load() {
	if (loading || !$("steps").value) return;
	loading = true;
	const address = at("batch"), seen = await get(address);
	// A run that goes on keeps new ones.
	setTimeout(() => { loading = false; if (address !== at("batch")) load(); }, 1000);
	const all = seen.mass?.summary;
	batch = all ? seen : null;
	// At first, the group with the most to see.
	if (batch) group = batch.groups[picked] ? picked : batch.groups.reduce((best, one, index, all) => one[3] > all[best][3] ? index : best, 0);
	$("batch-about").textContent = all ? `${seen.recipe} ${seen.version}: ${all.groups} groups, ${all.groups_without_signal} without signal, ${all.responses} responses, ${all.tokens} tokens${seen.is_first_state ? "; with a first step's state" : ""}` : seen.error;
	for (const id of ["groups", "responses", "mass"]) fill(id);
	if (!batch) return fill("objective", drawn = "");
	list();
	responses();
	mass(batch.mass);
	const key = chosen + batch.recipe + batch.version;
	if (drawn === (drawn = key)) return;
	fill("objective", hint("computing"));
	const { svg = "", error, notes = [error] } = await get(at("objective"));
	if (drawn !== key) return;
	if (error) drawn = "";
	$("objective").innerHTML = svg;
	$("objective").append(...notes.map(hint));
}

function list() {
	const [column, sign] = sorted, rank = (one) => one[column] ?? -1, all = batch.groups;
	const order = [...all.keys()].sort((a, b) => sign * (column ? rank(all[a]) - rank(all[b]) : all[a][0].localeCompare(all[b][0], "en", { numeric: true })));
	const most = Math.max(...all.map((one) => one[3])) || 1;
	const shown = table(HEADS, order.map((index) => all[index].map((cell, column) => column ? number(cell) : cell)), (row, column) => [, , all[order[row]][2], all[order[row]][3] / most][column]);
	[...shown.tHead.rows[0].cells].forEach((head, index) => {
		head.ariaSort = index === column ? sign > 0 ? "ascending" : "descending" : "none";
		head.replaceChildren(button(() => {
			sorted = [index, index === column ? -sign : index ? -1 : 1];
			list();
			$("groups").querySelectorAll("th button")[index].focus();
		}, { textContent: HEADS[index] }));
	});
	[...shown.tBodies[0].rows].forEach((row, place) => {
		const first = row.cells[0];
		row.ariaCurrent = order[place] === group;
		row.onclick = () => {
			shown.querySelector("[aria-current=true]").ariaCurrent = false;
			row.ariaCurrent = true;
			group = picked = order[place];
			responses();
		};
		first.replaceChildren(button(null, { textContent: first.textContent }));
	});
	fill("groups", shown);
}

async function responses() {
	const address = `${at("group")}&group=${group}`, seen = await get(address);
	if (address !== `${at("group")}&group=${group}`) return;
	if (seen.error) return fill("responses", hint(seen.error));
	const all = seen.responses.map(({ number: index, reward, length, text, solution, ends, advantages }) => {
		const token = (text, index) => {
			// A square root shows what is small.
			const a = advantages[index] ?? advantages[0], share = 0.6 * Math.sqrt(Math.abs(a) / (seen.most || 1));
			return el("span", { className: a < 0 ? "neg" : "", style: `background: rgb(var(--${a < 0 ? "cold" : "warm"}) / ${share.toFixed(2)})`, title: `token ${index}: A ${number(a)}`, textContent: text });
		};
		let parts = [text ?? ""];
		if (ends) parts = [...ends.map((end, index) => token(text.slice(ends[index - 1] ?? 0, end), index)), text.slice(ends.at(-1) ?? 0)];
		else if (advantages.length > 1 || text == null) parts.push("\n", ...Array.from({ length }, (_, index) => token(` ${index} `, index)));
		else parts = [token(text, 0)];
		const mean = advantages.reduce((sum, a) => sum + a, 0) / advantages.length;
		const about = `Response ${index}: reward ${number(reward)}, mean A ${number(mean)}, ${length} tokens${solution == null ? "" : ", solution " + solution}`;
		return el("article", {}, says("h3", about), el("p", { className: "text" }, ...parts));
	});
	fill("responses", el("p", { className: "hint" }, `A of a token: ${number(-seen.most)}`, says("span", "", "scale"), `${number(seen.most)}; below 0 underlined`), says("p", seen.prompt ?? "", "text hint"), ...all);
}

function mass({ parts, loss, summary }) {
	const percent = (share) => share == null ? "–" : (100 * share).toFixed(1) + " %";
	const shares = parts.map((part) => [part.tokens, part.advantage, part.gradient]);
	const rows = parts.map((part, row) => [(part.by === parts[row - 1]?.by ? "" : part.by + ": ") + part.part, ...shares[row].map(percent)]);
	fill("mass", table(["share of", "tokens", "|A|", "|dloss/dlogp|"], rows, (row, column) => shares[row][column - 1]), hint(`Effective: ${number(summary.effective_responses)} of ${summary.responses} responses.${loss ? ` The loss is ${loss}.` : ""}`));
}

$("steps").onchange = load;

// Shows another run.
function turn(id) {
	chosen = id;
	picked = null;
	fill("steps");
	forget();
	head();
}

// News.

// Reads what was added to a file of a run since the last news; true if that failed. The last line is read again: if it differs, the file was cut.
async function grow(run, id, file, add) {
	const size = run.heading[file];
	while (run[file].size !== size) {
		const tail = run[file], { text, last, end, error } = await get(`lines?run=${id}&file=${file}&from=${tail.last}`);
		if (error) {
			run.problem ??= error;
			return true;
		}
		if (!text.startsWith(tail.line)) {
			reset(run, file);
			continue;
		}
		const lines = text.slice(tail.line.length).split("\n").slice(0, -1);
		try { for (const line of lines) { add(run, JSON.parse(line)); tail.read++; } }
		catch { run.problem ??= `cannot read ${file}.jsonl: its line ${tail.read + 1} is no JSON`; }
		if (lines.length) Object.assign(tail, { last, line: lines.at(-1) + "\n" });
		if (run.problem || !lines.length || end >= size || data.answers) tail.size = size;
		redraw();
	}
}

// Forgets what was read of a file.
function reset(run, file) {
	run[file] = { size: 0, last: 0, line: "", read: 0 };
	if (file === "metrics") Object.assign(run, { curves: {}, step: -1, width: 1 });
	else {
		run.events = [];
		if (run === now()) forget();
	}
}

async function news() {
	const { now: clock, runs: all = [], error } = document.hidden && !data.answers ? {} : await get("news?");
	if (error) {
		$("state").className = "";
		$("state").textContent = `the server is gone: \`advlab view ${now()?.heading.folder ?? "RUN"}\` shows the run again`;
	}
	for (const [id, heading] of all.entries()) {
		const run = runs[id] ??= { shown: true, listed: 0 }, text = JSON.stringify(heading);
		ahead = clock - Date.now() / 1e3;
		run.heading = heading;
		if (run.seen === text) continue;
		if (!run.metrics || run.problem) for (const file of ["metrics", "reloads"]) reset(run, file);
		delete run.problem;
		const failed = [await grow(run, id, "metrics", addRow), await grow(run, id, "reloads", addEvent)];
		// What could not be read is tried again.
		run.seen = failed.includes(true) ? "" : text;
		head();
	}
	// A run that stands still has no news.
	if (all.length) state();
	if (!data.answers) setTimeout(news, 500);
}

function forget() {
	mark = null;
	now().listed = 0;
	for (const id of ["strip", "events", "detail"]) fill(id);
}

function head() {
	const { name, recipe, seed, folder } = now().heading;
	$("about").textContent = [name, recipe, seed == null ? "" : `seed ${seed}`].filter(Boolean).join(" · ");
	$("about").title = folder;
	document.title = `${name} – advlab`;
	state();
	kept();
	if (runs.length > 1 && $("runs").children.length !== runs.length + 1) chooser();
	redraw();
}

// How far a run is, and whether it is over.
function place({ exists, done, steps, is_stopped }) {
	if (!exists) return ["the folder is gone", true];
	const at = done ? `step ${done}${steps ? ` of ${steps}` : ""}` : "the first step";
	if (done && steps && done >= steps) return [at + ", finished", true];
	if (is_stopped) return [`stopped ${done ? "at" : "before"} ${at}`, true];
	return [done ? at : `waiting for ${at}`, false];
}

function state() {
	const { written } = now().heading, { problem } = now(), [at, isOver] = place(now().heading);
	const live = !problem && !data.answers && !isOver && Date.now() / 1e3 + ahead - written < 20;
	$("state").className = live ? "live" : "";
	$("state").textContent = (problem ?? at) + (live || !written ? "" : ", written " + new Date(written * 1e3).toLocaleString());
}

function chooser() {
	const chips = runs.map((run, id) => {
		const box = el("input", { type: "checkbox", checked: run.shown, onchange: () => { run.shown = box.checked; redraw(); } });
		return el("label", { title: run.heading.folder }, box, el("i", { style: `border-color: var(--${id % 7})` }), run.heading.name);
	});
	const select = el("select", { onchange: () => turn(+select.value) }, ...runs.map((run, value) => el("option", { value, textContent: run.heading.name, selected: value === chosen })));
	fill("runs", ...chips, el("label", {}, "details of ", select));
	$("runs").hidden = false;
}

new ResizeObserver(redraw).observe($("panels"));
$("more").ontoggle = redraw;
news();
