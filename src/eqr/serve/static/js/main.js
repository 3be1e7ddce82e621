// The page: a puzzle is written, solved by a server or in the browser, watched, scrubbed and shared.

import { Board } from "./board.js";
import { Film } from "./film.js";
import { Local } from "./local.js";
import { drawGrid, gif, pageColours, svg } from "./picture.js";
import { drawPlot } from "./plot.js";
import { Remote } from "./remote.js";
import { Settings } from "./settings.js";
import { Task } from "./task.js";

const $ = (id) => document.getElementById(id);
const inBrowser = document.querySelector('meta[name="eqr-backend"]').content === "browser";
const solver = inBrowser ? new Local() : new Remote();
const board = new Board($("board"), { edited: edit, chosen: () => {} });
const settings = new Settings(remember);
const state = { models: [], model: null, task: null, puzzle: null, film: null, start: 0, segment: 0, run: null, playing: false };

// --- choosing and writing a puzzle

function choose(name, packed) {
  stop();
  const named = (wanted) => state.models.find((model) => model.name === wanted);
  const usual = () => state.models.find(({ task }) => task.name === "sudoku-9x9");
  state.model = named(name) ?? named("sudoku-9x9-hard") ?? usual() ?? state.models[0];
  state.task = new Task(state.model.task);
  $("task").value = state.model.name;
  settings.fit(state.model);
  showExamples();
  showPalette();
  board.show(state.task, state.task.none());
  const given = packed ? state.task.unpack(packed) : null;
  edit(given ?? state.task.parse(state.model.examples[0]?.puzzle ?? "").tokens ?? state.task.none());
  $("about").textContent = `${state.model.title}: ${state.model.parameters.toLocaleString("en")} parameters. ${state.model.said}`;
  $("where").textContent = inBrowser ? "Everything runs in this page; nothing is sent anywhere." : "";
}

function showExamples() {
  const buttons = state.model.examples.map(({ label, puzzle }) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () => edit(state.task.parse(puzzle).tokens));
    button.dataset.puzzle = puzzle;
    return button;
  });
  $("examples").replaceChildren(...buttons);
}

function showPalette() {
  const { task } = state;
  const paints = task.kind === "maze";
  board.brush = null;
  const wanted = [...task.symbols].filter((symbol) => !(paints && symbol === "o"));
  const buttons = wanted.map((symbol) => {
    const token = task.token(symbol);
    const button = document.createElement("button");
    button.type = "button";
    const word = task.word(token);
    button.textContent = paints ? word : token === task.blank ? "⌫" : symbol;
    button.setAttribute("aria-label", paints ? `Draw ${word}` : token === task.blank ? "Erase" : `Write ${symbol}`);
    button.classList.toggle("brush", paints);
    button.addEventListener("click", () => (paints ? dip(token) : board.put(token)));
    button.dataset.token = token;
    return button;
  });
  $("palette").replaceChildren(...buttons);
  $("palette").setAttribute("aria-label", paints ? "Brushes: draw on the maze with mouse or finger" : "Symbols for the chosen cell");
  if (paints) dip(task.token("#"));
}

function dip(token) {
  board.brush = token;
  for (const button of $("palette").children) button.setAttribute("aria-pressed", Number(button.dataset.token) === token);
}

/** Take a puzzle as the person now wants it. */
function edit(puzzle) {
  stop();
  state.puzzle = puzzle;
  state.film = null;
  $("player").hidden = true;
  $("starts-card").hidden = true;
  $("gif").disabled = $("svg").disabled = true;
  judge(state.task.problems(puzzle));
  if (!["sudoku", "maze"].includes(state.task.kind)) askTheTask(puzzle);
  const text = state.task.text(puzzle);
  for (const button of $("examples").children) {
    button.setAttribute("aria-pressed", state.task.text(state.task.parse(button.dataset.puzzle).tokens ?? []) === text);
  }
  verdict("", "Nothing has run yet", "Write a puzzle or take an example, then press Solve or Enter.");
  drawPlot($("plot"), new Film(puzzle), { segment: 0, shown: 0 });
  remember();
}

function judge(problems) {
  board.write(state.puzzle, new Set(problems.flatMap(({ cells }) => cells)));
  const [first, ...others] = problems.map(({ reason }) => reason);
  const more = others.length ? `; ${others.length} more ${others.length > 1 ? "problems" : "problem"}` : "";
  $("trouble").textContent = first ? `${first[0].toUpperCase()}${first.slice(1)}${more}.` : "";
  $("solve").disabled = problems.length > 0;
}

/** Rules that this page does not know are asked of the server. */
async function askTheTask(puzzle) {
  if (!solver.check) return;
  const problems = await solver.check(state.task, state.model.name, puzzle).catch(() => []);
  if (state.puzzle === puzzle && !state.film) judge(problems);
}

function openPaste() {
  const { task } = state;
  $("paste-hint").textContent = `${task.rows} rows of ${task.columns}. ${task.hint}`;
  $("paste-error").textContent = "";
  $("paste-text").value = "";
  $("paste-dialog").showModal();
}

/** Take pasted text; returns whether it could be read. */
function takeText(text) {
  const { tokens, error } = state.task.parse(text);
  if (tokens) edit(tokens);
  return error ?? null;
}

// --- solving and watching

async function solve() {
  stop();
  const request = settings.request();
  const run = new AbortController();
  const film = new Film(state.puzzle);
  Object.assign(state, { run, film, start: 0, segment: 0, playing: true, followed: false });
  $("stop").hidden = false;
  $("solve").hidden = true;
  $("starts").replaceChildren();
  verdict("busy", inBrowser ? "Loading the model" : "Thinking", "");
  play(film);
  try {
    for await (const { frame, answer } of solver.solve(state.task, state.puzzle, request, run.signal)) {
      if (state.film !== film) return;
      if (frame) film.add(frame);
      if (answer) film.answer = answer;
    }
    if (!film.answer && !run.signal.aborted) throw new Error("the connection ended before the answer came; try again");
  } catch (error) {
    if (error.name !== "AbortError" && state.film === film) {
      film.failed = true;
      verdict("failed", "That did not work", error.message);
    }
  } finally {
    if (state.run === run) ended();
  }
}

function ended() {
  state.run = null;
  $("stop").hidden = true;
  $("solve").hidden = false;
}

function stop() {
  state.run?.abort();
  state.playing = false;
  ended();
  $("play").textContent = "▶";
  $("play").setAttribute("aria-label", "Play");
}

/** Show one segment after another, as they come or at the chosen pace. */
async function play(film) {
  state.playing = true;
  $("play").textContent = "❚❚";
  $("play").setAttribute("aria-label", "Pause");
  while (state.playing && state.film === film) {
    if (state.segment < film.length) {
      const pace = settings.stop("pace");
      state.segment = pace ? state.segment + 1 : film.length;
      showSegment();
      await wait(pace || 16);
    } else if (film.answer || film.failed || !state.run) {
      break;
    } else {
      await wait(16);
    }
  }
  if (state.film !== film) return;
  state.playing = false;
  $("play").textContent = "▶";
  $("play").setAttribute("aria-label", "Play");
  if (film.answer && state.segment >= film.length) showAnswer();
}

function showSegment() {
  const { film, segment, start } = state;
  $("player").hidden = false;
  $("scrub").max = film.length;
  $("scrub").value = segment;
  $("scrub").setAttribute("aria-valuetext", `segment ${segment} of ${film.length}`);
  $("segment").textContent = `${segment} / ${film.length}`;
  const frame = film.at(start, segment);
  if (frame) board.watch(frame, film.changed(start, segment));
  drawPlot($("plot"), film, { segment, shown: start, chosen: film.answer?.start, tolerance: settings.tolerance });
  showStarts();
  if (film.failed) return;
  if (!film.answer) verdict("busy", "Thinking", `Segment ${segment}`);
  else if (segment >= film.length) sayAnswer();
  else verdict("", `Segment ${segment} of ${film.length}`, "Not the answer yet: the board as it was on the way.");
}

function showStarts() {
  const { film, task } = state;
  $("starts-card").hidden = film.starts.size < 2;
  if (film.starts.size < 2) return;
  const list = $("starts");
  const colours = pageColours();
  for (const start of [...film.starts.keys()].sort((a, b) => a - b)) {
    let button = list.querySelector(`[data-start="${start}"]`);
    if (!button) {
      button = document.createElement("button");
      button.type = "button";
      button.dataset.start = start;
      const canvas = document.createElement("canvas");
      canvas.width = 180;
      canvas.height = Math.round((180 * task.drawn[0]) / task.drawn[1]);
      const label = document.createElement("span");
      label.append(document.createElement("span"), document.createElement("span"));
      label.firstChild.className = "heard"; // the number alone says enough to those who see the row
      button.append(canvas, label);
      button.addEventListener("click", () => look(start));
      list.append(button);
    }
    const frame = film.at(start, state.segment);
    drawGrid(button.firstChild.getContext("2d"), task, film.puzzle, frame, 180, colours);
    const chosen = film.answer?.start === start ? " ✓" : "";
    const [said, seen] = button.lastChild.children;
    said.textContent = chosen ? "Chosen start " : "Start ";
    seen.textContent = frame ? `${start + 1}: ${frame.residual.toPrecision(2)}${chosen}` : `${start + 1}`;
    button.setAttribute("aria-pressed", start === state.start);
  }
}

function look(start) {
  state.start = start;
  state.followed = true;
  showSegment();
}

function scrub(segment) {
  state.playing = false;
  state.segment = Math.max(1, Math.min(segment, state.film.length));
  showSegment();
}

function showAnswer() {
  const { answer } = state.film;
  if (!state.followed) state.start = answer.start;
  state.followed = true;
  showSegment();
  $("gif").disabled = $("svg").disabled = false;
}

function sayAnswer() {
  const { answer } = state.film;
  const word = state.task.judged ? "Solved" : "Answered";
  const headline = answer.valid ? word : "Not solved";
  const stopped = { settled: "It settled.", halted: "Its rule halted it." }[answer.status] ?? "It ran out of segments.";
  const why = answer.reason ? `${answer.reason[0].toUpperCase()}${answer.reason.slice(1)}. ` : "";
  const starts = state.film.starts.size > 1 ? ` Start ${answer.start + 1} is chosen.` : "";
  const note = answer.note ? ` Note: ${answer.note}.` : "";
  verdict(answer.valid ? "solved" : "failed", headline, `${why}${stopped}${starts}${note}`, [
    ["depth", answer.depth],
    ["NFE", answer.nfe],
    ["residual", answer.residual.toPrecision(2)],
    ["milliseconds", (1000 * answer.seconds).toFixed(answer.seconds < 0.1 ? 1 : 0)],
  ]);
}

function verdict(kind, headline, detail, facts = []) {
  const card = $("verdict");
  card.dataset.state = kind;
  const [head, rest] = [document.createElement("p"), document.createElement("p")];
  head.className = "headline";
  rest.className = "detail";
  [head.textContent, rest.textContent] = [headline, detail];
  const list = document.createElement("dl");
  list.className = "facts";
  for (const [name, value] of facts) {
    const [pair, term, said] = ["div", "dt", "dd"].map((tag) => document.createElement(tag));
    [term.textContent, said.textContent] = [name, value];
    pair.append(term, said);
    list.append(pair);
  }
  card.replaceChildren(head, rest, ...(facts.length ? [list] : []));
}

// --- sharing

/** Keep the whole state in the address, so that a link shows the same. */
function remember() {
  if (!state.task) return;
  const { pace, ...values } = settings.values();
  const words = new URLSearchParams({ task: state.model.name, puzzle: state.task.pack(state.puzzle) });
  for (const [name, value] of Object.entries(values)) {
    if (value !== state.model.defaults[name]) words.set(name, value);
  }
  history.replaceState(null, "", `#${words}`);
}

function recall() {
  const words = new URLSearchParams(location.hash.slice(1));
  choose(words.get("task"), words.get("puzzle"));
  const said = { ...state.model.defaults };
  for (const name of ["depth", "breadth", "noise", "seed", "identity"]) if (words.has(name)) said[name] = Number(words.get(name));
  for (const name of ["halt", "select"]) if (words.has(name)) said[name] = words.get(name);
  if (words.has("race")) said.race = words.get("race") === "true";
  settings.set(said);
  remember();
}

async function share() {
  try {
    await navigator.clipboard.writeText(location.href);
    say("Link copied");
  } catch {
    say("Copy it from the address bar");
  }
}

function download(blob, suffix) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${state.model.name}.${suffix}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  say(`${suffix.toUpperCase()} saved, ${Math.ceil(blob.size / 1000)} kB`);
}

function say(text) {
  $("done").textContent = text;
}

// --- the rest

const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

function theme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  $("theme").textContent = `Theme: ${name}`;
  $("theme").dataset.name = name;
}

function connect() {
  $("task").addEventListener("change", (event) => choose(event.target.value));
  $("solve").addEventListener("click", solve);
  $("stop").addEventListener("click", () => {
    stop();
    verdict("", "Stopped", "Press Solve to begin again.");
  });
  $("clear").addEventListener("click", () => edit(state.task.none()));
  $("paste").addEventListener("click", openPaste);
  $("paste-take").addEventListener("click", () => {
    const error = takeText($("paste-text").value);
    $("paste-error").textContent = error ?? "";
    if (!error) $("paste-dialog").close();
  });
  $("play").addEventListener("click", () => {
    if (state.playing) return (state.playing = false);
    if (state.segment >= state.film.length) state.segment = 0;
    return play(state.film);
  });
  $("scrub").addEventListener("input", (event) => scrub(Number(event.target.value)));
  $("share").addEventListener("click", share);
  $("gif").addEventListener("click", () => download(gif(state.task, state.film, state.start), "gif"));
  $("svg").addEventListener("click", () => download(svg(state.task, state.film, state.start), "svg"));
  $("theme").addEventListener("click", (event) => {
    theme({ auto: "light", light: "dark", dark: "auto" }[event.target.dataset.name]);
  });
  addEventListener("paste", (event) => {
    if (event.target.closest?.("input, textarea, dialog")) return;
    const error = takeText(event.clipboardData.getData("text"));
    if (error) $("trouble").textContent = `Pasted text: ${error}.`;
  });
  addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.target.closest?.("a, button, select, textarea, dialog")) return;
    if (!$("solve").disabled && !state.run) solve();
  });
  addEventListener("hashchange", recall);
}

async function begin() {
  theme("auto");
  connect();
  try {
    state.models = await solver.models();
  } catch (error) {
    verdict("failed", "No models", error.message);
    $("solve").disabled = true;
    return;
  }
  $("task").replaceChildren(...state.models.map(({ name, title }) => new Option(title, name)));
  recall();
  document.documentElement.dataset.ready = "true";
}

begin();
