"use strict";
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const token = new URLSearchParams(location.search).get("token");
// The curves shown first; the recipe's metrics follow the fifth.
const FIRST = "pass@1 pass@K reward_mean length entropy groups_without_signal effective_responses advantage_std loss kl clip_share grad_norm".split(" ");
const runs = [], panels = new Map();
let chosen = 0, mark = null, cursor = null, zoom = null, drag = null, waiting = false, ahead = 0;
// The reader's settings, kept in the address.
const view = { search: "", smooth: "0", time: false, seeds: false, log: [], moved: [] };
try { Object.assign(view, JSON.parse(decodeURIComponent(location.hash.slice(1)))); } catch { /* No settings. */ }
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
const average = (all) => all.reduce((sum, one) => sum + one, 0) / all.length;
const button = (onclick, properties, ...inner) => el("button", { type: "button", onclick, ...properties }, ...inner);

// Gets data or an `error`.
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

const HIDDEN = "step batch_step crc32c responses groups device_memory ms/native".split(" "), MARKS = 400;

function addRow(run, row) {
	const step = run.step = row.step ?? run.step + 1;
	const add = (path, step, value) => {
		const curve = run.curves[path] ??= { steps: [], values: [] };
		curve.steps.push(step);
		curve.values.push(value);
	};
	const each = (value, path) => {
		if (value && typeof value === "object") for (const name in value) each(value[name], path && `${path}/${name}` || name);
		if (typeof value !== "number" || HIDDEN.includes(path)) return;
		// An evaluation's x is the number of steps before it.
		if (path.startsWith("initial_evaluation/")) add(path.slice(8), step, value);
		else add(path, step + path.startsWith("evaluation/"), value);
	};
	each(row, "");
}

const plain = (name) => name.replace("metrics/", ""), short = (version) => String(version).slice(0, 6);
// Adds an event, with its mark's kind and its line.
function addEvent(run, { event, step = 0, from, version, error, message, lines_added = 0, lines_removed = 0, imports = [], effect = [] }) {
	const [kind, line] = {
		start: ["", `${short(version)} begins`],
		use: ["use", `${short(from)} → ${short(version)}  +${lines_added} −${lines_removed}${imports.map((name) => " in " + name)}`],
		rejected: ["bad", `rejected ${short(version)}: ${error}`],
		failed: ["bad", `failed ${short(version)}: ${error}`],
		warning: ["note", message],
	}[event] ?? [];
	run.events.push({ step, kind, line, from, version, effect });
}

// Returns means over up to 50 steps before and after a change, up to adjacent changes.
function around({ events, curves }, index) {
	const { step } = events[index], uses = events.filter(isUse).map((own) => own.step);
	const from = Math.max(0, step - 50, ...uses.filter((own) => own < step)), to = Math.min(step + 50, ...uses.filter((own) => own > step));
	const mean = ({ steps, values }, from, to) => average(values.filter((_, index) => steps[index] >= from && steps[index] < to));
	const means = Object.entries(curves).map(([name, curve]) => {
		// An evaluation measures the version of the previous step.
		const late = +name.startsWith("evaluation/");
		return [name, [mean(curve, from && from + late, step + late), mean(curve, step + late, to + late)]];
	});
	return { from, to, means: new Map(means) };
}

function ticks(least, most, wanted) {
	const rough = (most - least) / wanted, power = 10 ** Math.floor(Math.log10(rough));
	const step = [1, 2, 5, 10].map((round) => round * power).find((step) => step >= rough * 0.999);
	const all = [];
	for (let at = Math.ceil(least / step - 1e-9); at <= most / step + 1e-9; at++) all.push(at * step);
	return all;
}

// Returns the names of the panels, and of all other numbers.
function names() {
	const all = [...new Set(runs.flatMap((run) => Object.keys(run.curves).map((name) => name.replace("evaluation/", ""))))];
	const most = Math.max(...all.map((name) => /^pass@(\d+)$/.exec(name)?.[1] ?? 0));
	const first = FIRST.map((name) => name.replace("K", most));
	first.splice(5, 0, ...all.filter((name) => name.startsWith("metrics/")).sort());
	const order = [...new Set([...first, ...all.sort()])].filter((name) => all.includes(name) && name !== "time");
	let test = (name) => first.includes(name) !== view.moved.includes(name);
	if (view.search) try { const found = new RegExp(view.search, "i"); test = (name) => found.test(name); } catch { test = () => false; }
	return [order.filter(test), order.filter((name) => !test(name))];
}

function set(key, value) {
	view[key] = value;
	history.replaceState(null, "", "#" + encodeURIComponent(JSON.stringify(view)));
	redraw();
}
const toggle = (key, name) => set(key, view[key].includes(name) ? view[key].filter((own) => own !== name) : [...view[key], name]);

function panel(name) {
	if (panels.has(name)) return panels.get(name);
	const value = el("span"), svg = el("p", { innerHTML: "<svg role=img></svg>" }).firstChild;
	const tool = (key, textContent, title = "") => button(() => toggle(key, name), { textContent, title }), log = tool("log", "log");
	const caption = el("figcaption", {}, says("b", plain(name)), value, log, tool("moved", "±", "move to all other numbers, or back"));
	const one = { name, value, svg, log, figure: el("figure", {}, caption, svg) };
	svg.onpointerdown = (event) => {
		drag = valueAt(one, event);
		svg.setPointerCapture(event.pointerId);
	};
	svg.onpointermove = (event) => point(valueAt(one, event));
	svg.onpointerleave = () => point(null);
	svg.onpointerup = (event) => {
		const ends = [drag, valueAt(one, event)].sort((a, b) => a - b), far = (place) => Math.abs(one.x(place) - one.x(ends[0]));
		drag = null;
		if (far(ends[1]) > 8) return zoomTo(ends);
		// A click near a dashed line chooses that version.
		const near = now().events.findIndex((own) => isUse(own) && far(along(now(), own.step)) <= 9);
		if (near >= 0) choose(near, true);
	};
	panels.set(name, one);
	return one;
}

const zoomTo = (ends) => { zoom = ends; redraw(); };

const done = (run) => Math.max(0, run.step);

// Returns a run's settings and first version.
const settings = ({ heading: { recipe, seed, steps, settings }, events }) => ({ recipe, seed, steps, ...settings, version: events?.[0] && short(events[0].version) });

// Returns lists of runs, each drawn as a line: one run, or a design's seeds.
function families() {
	const all = {};
	for (const [id, run] of runs.entries()) {
		const key = view.seeds && run.heading.settings ? JSON.stringify({ ...settings(run), seed: 0, steps: 0 }) : "run " + id;
		const own = all[key] ??= { ink: `var(--${Object.keys(all).length % 7})`, members: [] };
		run.ink = own.ink;
		if (run.shown) own.members.push(run);
	}
	return Object.values(all).filter(({ members }) => members.length);
}

function bisect(all, value, low = 0, high = all.length) {
	if (low >= high) return low;
	const middle = (low + high) >> 1;
	return all[middle] < value ? bisect(all, value, middle + 1, high) : bisect(all, value, low, middle);
}

const clock = (run) => run.curves.time ?? { steps: [], values: [] };

// Returns a step's x: its number, or the seconds since the first row.
function along(run, step) {
	if (!view.time) return step;
	const { steps, values } = clock(run);
	return values[Math.min(bisect(steps, step), values.length - 1)] - values[0];
}

const stride = (steps) => 2 ** Math.max(0, Math.ceil(Math.log2(steps / MARKS)));

// Returns a curve's marks, `[x, mean, least, most, count]`. An evaluation has the previous step's time.
function marked(run, { steps, values }, isLate, [from, to]) {
	const marks = [], times = clock(run);
	const stepAt = (x) => view.time ? times.steps[bisect(times.values, times.values[0] + x)] ?? Infinity : x;
	// One more point continues the line at each end.
	const first = Math.max(0, bisect(steps, stepAt(from)) - 1), end = Math.min(steps.length, bisect(steps, stepAt(to)) + 2);
	const width = stride(view.time ? steps[end - 1] - steps[first] : to - from);
	let last = null, part = NaN;
	for (let index = first; index < end; index++) {
		const value = values[index];
		if (part !== (part = Math.floor(steps[index] / width))) {
			marks.push(last = [along(run, steps[index] - (view.time * isLate)), value, value, value, 0]);
		}
		last[1] += (value - last[1]) / ++last[4];
		last[2] = Math.min(last[2], value);
		last[3] = Math.max(last[3], value);
	}
	return marks.filter(([x]) => !isNaN(x));
}

// Returns mean, minimum and maximum over the runs.
function merged(all, width) {
	const parts = {};
	for (const [run, marks] of all.entries()) for (const [x, mean] of marks) {
		const part = parts[Math.floor(x / width)] ??= { x, means: [] };
		(part.means[run] ??= []).push(mean);
	}
	return Object.values(parts).map(({ x, means }) => {
		const own = means.filter(Boolean).map(average);
		return [x, average(own), Math.min(...own), Math.max(...own), 1];
	});
}

// Returns unbiased exponential means over a share of the axis.
function smoothed(marks, size) {
	let sum = 0, weight = 0, before = 0;
	return marks.map(([x, mean, , , count]) => {
		const kept = Math.exp((before - x) / (view.smooth * size));
		before = x;
		sum = sum * kept + mean * count;
		weight = weight * kept + count;
		return [x, sum / weight];
	});
}

const unit = ([, end]) => !view.time ? [1, ""] : end < 180 ? [1, " s"] : end < 10800 ? [60, " min"] : [3600, " h"];

const LEFT = 44, RIGHT = 14, TOP = 6, FLOOR = 144;

function draw(one, width, range, all) {
	const isLog = view.log.includes(one.name), lines = [];
	const high = isLog ? Math.log10 : (value) => value, size = range[1] - range[0];
	let least = Infinity, most = -Infinity;
	for (const { ink, members } of all) for (const prefix of ["", "evaluation/"]) {
		const curve = (run) => run.curves[prefix + one.name], isMany = members.length > 1;
		const each = members.filter(curve).map((run) => marked(run, curve(run), !!prefix, range));
		let marks = isMany ? merged(each, view.time ? size / MARKS : stride(size)) : each[0] ?? [];
		// Only numbers above 0 have a logarithm.
		if (isLog) marks = marks.filter(([, mean]) => mean > 0).map(([x, mean, low, ...more]) => [x, mean, low > 0 ? low : mean, ...more]);
		if (!marks.length) continue;
		lines.push({ marks, ink, prefix, members, hasBand: isMany || marks.some((mark) => mark[4] > 1) });
		for (const [, , low, top] of marks) {
			least = Math.min(least, high(low));
			most = Math.max(most, high(top));
		}
	}
	if (most - least <= 1e-9 * Math.max(Math.abs(least), Math.abs(most))) { least -= 0.5; most += 0.5; }
	const room = (most - least) * 0.05;
	if (least) least -= room;
	most += room;
	const plot = width - LEFT - RIGHT, x = (place) => Math.round((LEFT + (place - range[0]) / size * plot) * 10) / 10;
	const y = (value) => Math.round((TOP + (most - high(value)) / (most - least) * (FLOOR - TOP)) * 10) / 10;
	const path = (marks, index) => marks.reduce((path, mark) => `${path}${x(mark[0])},${y(mark[index])} `, "");
	let out = "", upright = ticks(least, most, 4);
	if (isLog) {
		// Only powers of ten are used if there are several.
		const powers = upright.filter(Number.isInteger);
		upright = powers.length > 1 ? powers.map((power) => 10 ** power) : ticks(10 ** least, 10 ** most, 4);
	}
	if (lines.length) for (const tick of upright) out += `<path class="grid" d="M${LEFT} ${y(tick)}H${width - RIGHT}"/><text x="${LEFT - 6}" y="${y(tick)}" dy="4" text-anchor="end">${number(tick, 9)}</text>`;
	const [seconds, name] = unit(range);
	for (const tick of ticks(range[0] / seconds, range[1] / seconds, width / 90)) {
		if (view.time || tick % 1 === 0) out += `<text x="${x(tick * seconds)}" y="159" text-anchor="middle">${tick >= 1e4 ? tick / 1e3 + "k" : number(tick, 6) + name}</text>`;
	}
	out += `<svg x="${LEFT}" width="${plot}" viewBox="${LEFT} 0 ${plot} 164">`;
	if (now().shown) {
		const upright = (events) => [...new Set(events.map(({ step }) => Math.round(x(along(now(), step)))))].filter(isFinite).map((x) => `M${x} ${TOP}V${FLOOR}`).join("");
		const all = now().events.filter(isUse);
		out += `<path class="moments" stroke-opacity="${Math.min(1, 30 / all.length)}" d="${upright(all)}"/>`;
		if (mark !== null) out += `<path class="chosen" d="${upright([now().events[mark]])}"/>`;
	}
	for (const { marks, ink, prefix, members, hasBand } of lines) {
		if (hasBand) out += `<polygon fill="${ink}" points="${path(marks, 3)} ${path([...marks].reverse(), 2)}"/>`;
		const isFaint = !prefix && lines.some((line) => line.members === members && line.prefix);
		const line = (marks, opacity) => `<polyline stroke="${ink}" stroke-width="${prefix ? 2 : 1.4}" stroke-opacity="${opacity * (isFaint ? 0.45 : 1)}" points="${path(marks, 1)}"/>`;
		out += +view.smooth ? line(marks, 0.3) + line(smoothed(marks, size), 1) : line(marks, 1);
		if (prefix && marks.length <= 60) for (const mark of marks) out += `<circle r="2.5" fill="${ink}" cx="${x(mark[0])}" cy="${y(mark[1])}"/>`;
	}
	one.svg.innerHTML = out + `</svg><path class="cursor"/>`;
	one.log.ariaPressed = isLog;
	Object.assign(one, { x, width, range, lines });
	read(one);
}

// Shows the values at the cursor, or the newest.
function read(one) {
	const values = one.lines.filter((line) => line.members.includes(now())).map(({ marks, prefix }) => {
		const last = cursor === null ? marks.at(-1) : marks.findLast((mark) => mark[0] <= cursor);
		return (prefix && "● ") + number(last?.[1]);
	});
	const [seconds, name] = unit(one.range);
	const words = (cursor === null ? "" : `${name ? "" : "step "}${number(cursor / seconds, 6)}${name}: `) + values.join("  ");
	one.value.textContent = words;
	one.svg.ariaLabel = `${one.name}: ${words}`;
	const at = cursor === null ? -9 : one.x(cursor), from = drag === null ? at : one.x(drag);
	one.svg.lastChild.setAttribute("d", `M${at} ${TOP}V${FLOOR}H${from}V${TOP}Z`);
}

function valueAt({ svg, width, range }, event) {
	const share = (event.clientX - svg.getBoundingClientRect().left - LEFT) / (width - LEFT - RIGHT);
	const value = range[0] + Math.min(1, Math.max(0, share)) * (range[1] - range[0]);
	return view.time ? value : Math.round(value);
}

function point(value) {
	cursor = value;
	for (const one of panels.values()) if (one.lines && one.figure.offsetParent) read(one);
}

// Draws at most once a frame.
function redraw() {
	if (waiting || !now()) return;
	waiting = true;
	requestAnimationFrame(() => {
		waiting = false;
		const lists = names(), all = families(), shown = runs.filter((run) => run.shown), steps = Math.max(1, ...shown.map(done));
		const range = zoom ?? [0, view.time ? Math.max(1, ...shown.map((run) => along(run, Infinity) || 0)) : steps];
		$("curves").hidden = !runs.some((run) => Object.keys(run.curves).length);
		$("whole").hidden = !zoom;
		$("history").hidden = !now().events.length;
		lists.forEach((list, index) => {
			const parent = $(index ? "rest" : "panels"), drawn = list.map(panel);
			drawn.forEach((one, index) => { if (parent.children[index] !== one.figure) parent.insertBefore(one.figure, parent.children[index]); });
			while (parent.children.length > drawn.length) parent.lastChild.remove();
			const width = drawn[0]?.figure.clientWidth;
			if (width) for (const one of drawn) draw(one, width, range, all);
		});
		strip(steps);
	});
}

function strip(end) {
	const { events, listed } = now();
	events.slice(listed).forEach(({ step, kind, line }, offset) => {
		if (!line) return;
		const index = listed + offset;
		const properties = { "data-event": index, ariaPressed: false }, show = () => choose(index);
		$("events").append(el("li", { className: kind }, button(show, properties, says("span", step), says("b", line))));
		if (kind) $("strip").append(button(show, { ...properties, className: kind, tabIndex: -1, title: `step ${step}: ${line}` }));
	});
	now().listed = events.length;
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

// A share is drawn as a bar in its cell.
function table(heads, rows, share = () => null) {
	const cell = (row) => (content, column) => {
		const part = share(row, column);
		return el("td", part == null ? {} : { className: "bar", style: `--share: ${100 * part}%` }, content);
	};
	return el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((head) => says("th", head)))), el("tbody", {}, ...rows.map((cells, row) => el("tr", {}, ...cells.map(cell(row))))));
}

// Shows a table that a click on a heading sorts. `order` is a column and a sign.
function sortable(id, order, heads, rows, shown, current, pick, share) {
	const [column, sign] = order, value = (index) => rows[index][column] ?? -1;
	const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(b, "en", { numeric: true });
	const places = [...rows.keys()].sort((a, b) => sign * compare(value(a), value(b)));
	const made = table(heads, places.map((index) => rows[index].map((cell, column) => shown(cell, column, index))), share && ((row, column) => share(places[row], column)));
	[...made.tHead.rows[0].cells].forEach((head, index) => {
		head.ariaSort = index === column ? sign > 0 ? "ascending" : "descending" : "none";
		head.replaceChildren(button(() => {
			order.splice(0, 2, index, index === column ? -sign : index ? -1 : 1);
			sortable(id, order, heads, rows, shown, current, pick, share);
		}, { textContent: heads[index] }));
	});
	[...made.tBodies[0].rows].forEach((row, place) => {
		row.ariaCurrent = places[place] === current;
		row.onclick = () => pick(places[place]);
	});
	// The focus stays on the same element.
	const parts = () => [...$(id).querySelectorAll("button, input")], spot = parts().indexOf(document.activeElement);
	fill(id, made);
	parts()[spot]?.focus();
}

// Marks changed characters, unless most changed.
function changed(line, other) {
	let start = 1, end = 0;
	const most = Math.min(line.length, other.length);
	while (start < most && line[start] === other[start]) start++;
	while (end < most - start && line.at(-1 - end) === other.at(-1 - end)) end++;
	const to = line.length - end;
	if (3 * (start - 1 + end) <= most) return [line.slice(1)];
	return [line.slice(1, start), says("mark", line.slice(start, to)), line.slice(to)];
}

// Shows a diff; marks how a removed line was replaced.
function changedLines(diff) {
	const lines = diff.trimEnd().split("\n"), others = [], kinds = { "+": "add", "-": "del", "@": "gap" };
	for (const { 1: removed, 2: added, index } of lines.map((line) => line[0]).join("").matchAll(/(-+)(\++)/g)) {
		for (let old = index; old < index + Math.min(removed.length, added.length); old++) {
			others[old] = lines[old + removed.length];
			others[old + removed.length] = lines[old];
		}
	}
	const shown = (line, index) => line[0] === "@" ? [`line ${/\+(\d+)/.exec(line)[1]}`] : [line[0] + " ", ...changed(line, others[index] ?? "")];
	return lines.map((line, index) => el("span", { className: kinds[line[0]] ?? "" }, ...shown(line, index)));
}

async function choose(index, scroll) {
	mark = index;
	const run = now(), { step, kind, line, from: old, version, effect } = run.events[index], detail = $("detail");
	for (const one of document.querySelectorAll("[data-event]")) one.ariaPressed = +one.dataset.event === index;
	$("events").querySelector("[aria-pressed=true]").scrollIntoView({ block: "nearest" });
	redraw();
	const title = says("h3", `Step ${step}`);
	if (kind !== "use") return detail.replaceChildren(title, says("p", line, kind === "bad" ? "error" : ""));
	const change = await get(`change?run=${chosen}&from=${old}&to=${version}`);
	if (mark !== index || run !== now()) return;
	if (change.error) return detail.replaceChildren(title, hint(change.error));
	const files = change.files.map(({ name, diff }) => el("div", {}, says("h3", name), el("pre", { tabIndex: 0 }, ...changedLines(diff))));
	if (!files.length) files.push(hint("No line differs."));
	const { from, to, means: all } = around(run, index);
	const rows = names()[0].flatMap((name) => ["evaluation/" + name, name]).filter((name) => all.get(name)?.some(isFinite)).map((name) => {
		const [before, after] = all.get(name), more = after - before;
		return [plain(name.replace("evaluation/", "● ")), number(before), number(after), (more > 0 ? "+" : "") + number(more)];
	});
	detail.replaceChildren(title, ...effect.map(hint), ...files, says("h3", `Means of steps ${from} to ${step - 1}, and ${step} to ${Math.min(to - 1, done(run))}`), table(["", "before", "after", "change"], rows));
	if (scroll) detail.scrollIntoView({ block: "nearest" });
}

let batch = null, group = 0, picked = null, sorted = [3, -1], loading = false, drawn = "";
const asked = () => `?run=${chosen}&step=${$("steps").value}`;

// The newest batch is shown unless another batch was chosen.
function kept() {
	const select = $("steps"), all = now().heading.batches;
	if (select.textContent === all.join("")) return;
	const was = +select.value, follows = was === +(select.lastChild?.value ?? 0);
	select.replaceChildren(...all.map((step) => says("option", step)));
	$("batch").hidden = $("design").hidden = !all.length;
	if (!follows && all.includes(was)) select.value = was;
	else { select.value = all.at(-1) ?? ""; load(); }
}

async function load() {
	if (loading || !$("steps").value) return;
	loading = true;
	const run = now(), step = $("steps").value, query = asked(), seen = await get("batch" + query);
	setTimeout(() => { loading = false; if (query !== asked()) load(); }, 1000);
	if (run !== now()) return;
	const all = seen.mass?.summary;
	// Another step may have been selected meanwhile.
	batch = all && { ...seen, step, query };
	if (all) group = batch.groups[picked] ? picked : batch.groups.reduce((best, one, index, all) => one[3] > all[best][3] ? index : best, 0);
	$("batch-about").textContent = all ? `Step ${step}, ${seen.recipe} ${seen.version}: ${all.groups} groups, ${all.groups_without_signal} without signal, ${all.responses} responses, ${all.tokens} tokens${seen.is_first_state ? "; with the initial state" : ""}` : seen.error;
	for (const id of ["groups", "responses", "mass"]) fill(id);
	if (!all) return fill("objective", drawn = "");
	list();
	responses();
	mass(batch.mass);
	const key = chosen + batch.recipe + batch.version;
	if (drawn === (drawn = key)) return;
	fill("objective", hint("computing"));
	const { svg = "", error, notes = [error] } = await get("objective" + query);
	if (drawn !== key) return;
	if (error) drawn = "";
	$("objective").innerHTML = svg;
	$("objective").append(...notes.map(hint));
}

function list() {
	const all = batch.groups, most = Math.max(...all.map((one) => one[3])) || 1;
	const shown = (cell, column) => column ? number(cell) : button(null, { textContent: cell });
	const pick = (index) => {
		group = picked = index;
		list();
		responses();
	};
	sortable("groups", sorted, ["group", "responses", "accuracy", "mean |A|", "length"], all, shown, group, pick, (index, column) => [, , all[index][2], all[index][3] / most][column]);
}

async function responses() {
	const own = batch, index = group, seen = await get(`group${own.query}&group=${index}`);
	if (own !== batch || index !== group) return;
	const title = says("h3", `Group ${own.groups[index][0]} of step ${own.step}`);
	if (seen.error) return fill("responses", title, hint(seen.error));
	const all = seen.responses.map(({ number: index, reward, length, text, solution, ends, advantages }) => {
		const token = (text, index) => {
			const a = advantages[index] ?? advantages[0], share = 0.6 * Math.sqrt(Math.abs(a) / (seen.most || 1));
			return el("span", { className: a < 0 ? "neg" : "", style: `background: rgb(var(--${a < 0 ? "cold" : "warm"}) / ${share.toFixed(2)})`, title: `token ${index}: A ${number(a)}`, textContent: text });
		};
		let parts = [text ?? ""];
		if (ends) parts = [...ends.map((end, index) => token(text.slice(ends[index - 1] ?? 0, end), index)), text.slice(ends.at(-1) ?? 0)];
		else if (advantages.length > 1 || text == null) parts.push("\n", ...Array.from({ length }, (_, index) => token(` ${index} `, index)));
		else parts = [token(text, 0)];
		const about = `Response ${index}: reward ${number(reward)}, mean A ${number(average(advantages))}, ${length} tokens${solution == null ? "" : ", solution " + solution}`;
		return el("article", {}, says("h3", about), el("p", { className: "text" }, ...parts));
	});
	fill("responses", title, el("p", { className: "hint" }, `A of a token: ${number(-seen.most)}`, says("span", "", "scale"), `${number(seen.most)}; below 0 underlined`), says("p", seen.prompt ?? "", "text hint"), ...all);
}

function mass({ parts, loss, summary }) {
	const shares = parts.map((part) => [part.tokens, part.advantage, part.gradient]);
	const rows = parts.map((part, row) => [(part.by === parts[row - 1]?.by ? "" : part.by + ": ") + part.part, ...shares[row].map((share) => share == null ? "–" : `${(100 * share).toFixed(1)} %`)]);
	fill("mass", table(["share of", "tokens", "|A|", "|dloss/dlogp|"], rows, (row, column) => shares[row][column - 1]), hint(`Effective: ${number(summary.effective_responses)} of ${summary.responses} responses.${loss ? ` The loss is ${loss}.` : ""}`));
}

$("steps").onchange = load;

function turn(id) {
	chosen = id;
	batch = picked = null;
	for (const id of ["steps", "groups", "responses"]) fill(id);
	forget();
	head();
}

// Reads a file's new lines; returns true on failure. If the last line has changed, the file is read again.
async function grow(run, id, file, add) {
	const size = run.heading[file];
	let into = run;
	if (add === addRow && size > 4e6 && !run.metrics.last && !data.answers) {
		// Reading all rows takes long, so a sample is shown first.
		const { text = "" } = await get(`sample?run=${id}`);
		for (const line of text.split("\n")) try { addRow(run, JSON.parse(line)); } catch { /* Read again below. */ }
		into = empty();
		run.isSample = true;
		redraw();
	}
	while (run[file].size !== size) {
		const tail = run[file], { text, last, end, error } = await get(`lines?run=${id}&file=${file}&from=${tail.last}`);
		if (error) {
			run.problem ??= error;
			return true;
		}
		if (!text.startsWith(tail.line)) {
			reset(run, file);
			into = run;
			continue;
		}
		const lines = text.slice(tail.line.length).split("\n").slice(0, -1);
		try { for (const line of lines) { add(into, JSON.parse(line)); tail.read++; } }
		catch { run.problem ??= `cannot read ${file}.jsonl: line ${tail.read + 1} is not JSON`; }
		if (lines.length) Object.assign(tail, { last, line: lines.at(-1) + "\n" });
		if (run.problem || !lines.length || end >= size || data.answers) {
			tail.size = size;
			if (into !== run) Object.assign(run, into);
		}
		if (into === run || tail.size === size) redraw();
	}
}

const empty = () => ({ curves: {}, step: -1, isSample: false });

function reset(run, file) {
	run[file] = { size: 0, last: 0, line: "", read: 0 };
	if (file === "metrics") Object.assign(run, empty());
	else {
		run.events = [];
		if (run === now()) forget();
	}
}

async function news() {
	const { now: clock, runs: all = [], error } = document.hidden && !data.answers ? {} : await get("news?");
	if (error && now()) {
		const [at, isOver] = place(now().heading);
		$("state").className = "";
		$("state").textContent = `${at}${isOver ? "" : " when last seen"}; the server is gone: \`advlab view ${now().heading.folder}\` shows the run again`;
	}
	for (const [id, heading] of all.entries()) {
		const run = runs[id] ??= { shown: true, listed: 0 }, text = JSON.stringify(heading);
		ahead = clock - Date.now() / 1e3;
		run.heading = heading;
		if (run.seen === text) continue;
		if (!run.metrics || run.problem) for (const file of ["metrics", "reloads"]) reset(run, file);
		delete run.problem;
		head();
		const failed = [await grow(run, id, "reloads", addEvent), await grow(run, id, "metrics", addRow)];
		run.seen = failed.includes(true) ? "" : text;
		head();
	}
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
	$("about").textContent = [name, recipe, seed != null && `seed ${seed}`].filter(Boolean).join(" · ");
	$("about").title = folder;
	document.title = `${name} – advlab`;
	state();
	kept();
	families();
	if (runs.length > 1) chooser();
	redraw();
}

// Returns a run's progress, and whether it is over.
function place({ exists, done, steps, is_stopped }) {
	if (!exists) return ["the folder is gone", true];
	const at = done ? `step ${done}${steps ? ` of ${steps}` : ""}` : "the first step";
	if (steps && done >= steps) return [at + ", finished", true];
	if (is_stopped) return [`stopped ${done ? "at" : "before"} ${at}`, true];
	return [done ? at : `waiting for ${at}`, false];
}

function state() {
	const { heading, problem, isSample } = now(), { written } = heading, [at, isOver] = place(heading);
	const live = !problem && !data.answers && !isOver && Date.now() / 1e3 + ahead - written < 20;
	$("state").className = live ? "live" : "";
	$("state").textContent = (problem ?? at) + (isSample ? ", a sample of its rows" : "") + (live || !written ? "" : ", written " + new Date(written * 1e3).toLocaleString());
}

// Shows the runs, the settings in which they differ, and their newest numbers.
const order = [0, 1];
function chooser() {
	const keys = [...new Set(runs.flatMap((run) => Object.keys(settings(run))))].filter((key) => new Set(runs.map((run) => settings(run)[key])).size > 1);
	const scores = names()[0].slice(0, 4), newest = ({ curves }) => (name) => (curves["evaluation/" + name] ?? curves[name])?.values.at(-1);
	const rows = runs.map((run) => [run.heading.name, place(run.heading)[0], ...keys.map((key) => settings(run)[key]), ...scores.map(newest(run))]);
	const shown = (cell, column, index) => {
		const run = runs[index];
		if (column) return column > keys.length + 1 ? number(cell) : cell ?? "–";
		const box = el("input", { type: "checkbox", checked: run.shown, onclick: (event) => { event.stopPropagation(); run.shown = box.checked; redraw(); } });
		return el("label", { title: run.heading.folder }, box, el("i", { style: `border-color: ${run.ink}` }), button(null, { textContent: cell }));
	};
	sortable("runs", order, ["run", "state", ...keys, ...scores.map(plain)], rows, shown, chosen, turn);
	$("all").hidden = false;
}

for (const id of ["search", "smooth", "time", "seeds"]) {
	const key = $(id).type === "checkbox" ? "checked" : "value";
	$(id)[key] = view[id];
	$(id).oninput = () => {
		if (id === "time") zoom = null;
		set(id, $(id)[key]);
		head();
	};
}
$("whole").onclick = () => zoomTo(null);
new ResizeObserver(redraw).observe($("panels"));
$("more").ontoggle = redraw;
news();
