// Solving in the browser: the graphs of `eqr export --onnx`, run by onnxruntime-web. The loop is eqr's own, with
// a batch of starts instead of an engine; the same puzzle, seed and settings give the same answer.

import { rowKey } from "./keys.js";
import { halting, select, settles } from "./rules.js";

const GRAPHS = ["embed", "start", "cycle", "read"];
const ABREAST = 8; // starts that race at once, as in eqr.solve.Budget
const BATCH = 16; // starts side by side where none races

export class Local {
  async models() {
    const { models } = await (await fetch("models.json")).json();
    this.folders = new Map(models.map((model) => [model.name, model.folder]));
    this.loaded = new Map();
    return models;
  }

  async load(name) {
    if (!this.loaded.has(name)) this.loaded.set(name, open(this.folders.get(name)));
    return this.loaded.get(name);
  }

  async *solve(task, puzzle, settings, signal) {
    const model = await this.load(settings.model);
    const began = performance.now();
    const candidates = [];
    // who chooses a verified answer needs no more starts once there is one
    const verifying = settings.select === "verified" && settings.breadth > 1 && task.judged;
    const wins = ({ halted, complete, tokens }) =>
      (settings.race && halted) || (verifying && complete && task.accepts(puzzle, tokens));
    for (const starts of rounds(settings.breadth, settings.race || verifying)) {
      for await (const event of advance(model, puzzle, settings, starts, wins, signal)) {
        if (event.frame) yield event;
        else candidates.push(event.candidate);
      }
      if (candidates.some(wins)) break;
    }
    const best = select(settings.select, candidates, (tokens) => task.accepts(puzzle, tokens));
    const valid = task.accepts(puzzle, best.tokens);
    const answer = {
      tokens: best.tokens,
      valid: valid ?? true,
      reason: valid === false ? reason(task, puzzle, best.tokens) : "",
      start: best.start,
      depth: best.depth,
      nfe: candidates.reduce((sum, { depth }) => sum + depth, 0),
      status: best.halted ? (settles(settings.halt) ? "settled" : "halted") : "out of segments",
      residual: best.residuals.at(-1),
      halt: best.halt,
      seconds: (performance.now() - began) / 1000,
    };
    yield { answer };
  }
}

function reason(task, puzzle, answer) {
  const changed = puzzle.findIndex((token, cell) => task.isGiven(token) && answer[cell] !== token);
  if (changed >= 0) return `the given ${task.word(puzzle[changed])} in ${task.place(changed)} was changed`;
  return task.kind === "maze" ? "the marks are no shortest path" : (task.problems(answer)[0]?.reason ?? "cells are left blank");
}

function rounds(breadth, compete) {
  const most = compete ? ABREAST : BATCH;
  const size = Math.ceil(breadth / Math.ceil(breadth / most));
  const all = Array.from({ length: breadth }, (_, start) => start);
  return Array.from({ length: Math.ceil(breadth / size) }, (_, round) => all.slice(round * size, (round + 1) * size));
}

async function open(folder) {
  const runtime = await import("../ort/ort.wasm.min.mjs");
  runtime.env.wasm.wasmPaths = new URL("../ort/", import.meta.url).href;
  runtime.env.wasm.numThreads = 1;
  runtime.env.logLevel = "error";
  const manifest = await (await fetch(`${folder}/model.json`)).json();
  const sessions = {};
  for (const name of GRAPHS) {
    sessions[name] = await runtime.InferenceSession.create(`${folder}/${manifest.graphs[name].file}`);
  }
  return { runtime, manifest, sessions };
}

/** Run some starts side by side until each has ended, or one has won. */
async function* advance({ runtime, manifest, sessions }, puzzle, settings, starts, wins, signal) {
  const { Tensor } = runtime;
  const run = (name, given) => {
    const session = sessions[name];
    const taken = session.inputNames.filter((input) => input in given).map((input) => [input, given[input]]);
    return session.run(Object.fromEntries(taken));
  };
  const states = manifest.graphs.start.outputs;
  const damping = new Tensor("float32", [settings.damping ?? manifest.path.damping], []);
  const scales = settings.noise === null ? manifest.path.noise : [settings.noise, settings.noise];
  const noise = new Tensor("float32", scales, [2]);

  let rows = starts.map((start) => ({ start, residuals: [], rule: halting(settings.halt)() }));
  const repeated = BigInt64Array.from(rows.flatMap(() => Array.from(puzzle, BigInt)));
  const { seed, identity } = settings;
  let keys = new Tensor("int64", BigInt64Array.from(starts, (start) => rowKey(seed, puzzle, start, identity)), [rows.length]);
  let { x } = await run("embed", {
    puzzles: new Tensor("int64", repeated, [rows.length, puzzle.length]),
    identities: new Tensor("int64", new BigInt64Array(rows.length).fill(BigInt(identity)), [rows.length]),
  });
  let state = await run("start", { x, keys });
  for (let segment = 1; rows.length; segment += 1) {
    await new Promise((resolve) => setTimeout(resolve)); // let the page breathe
    if (signal.aborted) throw new DOMException("stopped", "AbortError");
    const depths = new Tensor("int64", new BigInt64Array(rows.length).fill(BigInt(segment - 1)), [rows.length]);
    const before = state;
    for (let number = 0; number < manifest.cycles; number += 1) {
      const cycle = new Tensor("int64", [BigInt(number)], []);
      const after = await run("cycle", { ...state, x, keys, depths, cycle, damping, noise });
      state = Object.fromEntries(states.map((name) => [name, after[`${name}_after`]]));
    }
    const given = { ...state };
    for (const name of states) given[`${name}_before`] = before[name];
    const { logits, halt, residual } = await run("read", given);
    const readings = rows.map((row, place) => ({
      start: row.start,
      segment,
      ...decoded(logits, place),
      residual: residual.data[place],
      halt: halt.data[place],
    }));
    const halted = rows.map((row, place) => row.rule(readings[place]));
    const ended = readings.map((reading, place) => {
      rows[place].residuals.push(reading.residual);
      const complete = halted[place] || segment >= settings.depth;
      return { ...reading, residuals: rows[place].residuals, depth: segment, halted: halted[place], complete };
    });
    const over = ended.some(wins);
    const done = ended.map(({ complete }) => complete || over);
    for (const place of rows.keys()) {
      yield { frame: { ...readings[place], done: done[place] } };
      if (done[place]) yield { candidate: ended[place] };
    }
    const going = rows.map((_, place) => place).filter((place) => !done[place]);
    if (going.length && going.length < rows.length) {
      for (const name of states) state[name] = kept(Tensor, state[name], going);
      x = kept(Tensor, x, going);
      keys = new Tensor("int64", BigInt64Array.from(going, (place) => keys.data[place]), [going.length]);
    }
    rows = going.map((place) => rows[place]);
  }
}

/** Copy out some rows of a latent (tokens, rows, width). */
function kept(Tensor, latent, places) {
  const [tokens, rows, width] = latent.dims;
  const data = new Float32Array(tokens * places.length * width);
  for (let token = 0; token < tokens; token += 1) {
    places.forEach((place, to) => {
      const from = (token * rows + place) * width;
      data.set(latent.data.subarray(from, from + width), (token * places.length + to) * width);
    });
  }
  return new Tensor("float32", data, [tokens, places.length, width]);
}

/** The likeliest token of every cell and its probability. */
function decoded({ data, dims: [, cells, vocabulary] }, row) {
  const tokens = new Uint8Array(cells);
  const confidence = new Float32Array(cells);
  for (let cell = 0; cell < cells; cell += 1) {
    const scores = data.subarray((row * cells + cell) * vocabulary, (row * cells + cell + 1) * vocabulary);
    let best = 0;
    for (let token = 1; token < vocabulary; token += 1) if (scores[token] > scores[best]) best = token;
    let sum = 0;
    for (const score of scores) sum += Math.exp(score - scores[best]);
    tokens[cell] = best;
    confidence[cell] = 1 / sum;
  }
  return { tokens, confidence };
}
