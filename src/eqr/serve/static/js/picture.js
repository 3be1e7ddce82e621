// Grids as pictures: small multiples on canvas, and a whole solution as a GIF or as one animated SVG.

import { Gif } from "./gif.js";

const COLOURS = {
  paper: "#fffdf8", line: "#cfc8ba", strong: "#3b3833", ink: "#1c1a17", model: "#0b5f6b", doubt: "#f0c674",
  wall: "#3b3833", start: "#1f6f43", goal: "#b3261e", path: "#0b7a89",
};
const PALETTE = [
  "#111111", "#1e5fbf", "#c8342b", "#2a8a3c", "#ffd84d", "#8a8a8a", "#b82d8f", "#ff9838", "#7fd3f7", "#7a1f2b",
];
const LAST_FRAME = 200; // hundredths of a second

/** The page's own colours, light or dark as it is now. */
export function pageColours() {
  const colour = (name) => {
    const probe = document.createElement("i");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const names = { paper: "cell", line: "line", strong: "strong", ink: "ink", model: "model", doubt: "fog", wall: "wall" };
  const found = Object.fromEntries(Object.entries(names).map(([key, name]) => [key, colour(name)]));
  return { ...COLOURS, ...found, start: colour("start"), goal: colour("goal"), path: found.model };
}

/** Draw one grid into a canvas context of `size` pixels across. */
export function drawGrid(context, task, puzzle, frame, size, colours = COLOURS) {
  const step = size / task.drawn[1];
  const small = step < 12; // too small for letters
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, size, step * task.drawn[0]);
  for (let cell = 0; cell < task.cells; cell += 1) {
    const { token, given, doubt } = cellOf(task, puzzle, frame, cell);
    const [x, y] = [task.at(cell)[1] * step, task.at(cell)[0] * step];
    const symbol = task.symbol(token);
    const fill = background(task, symbol, token, colours);
    if (fill || doubt > 0.02) {
      context.globalAlpha = fill ? 1 - 0.75 * doubt : Math.min(1, doubt);
      context.fillStyle = fill ?? colours.doubt;
      context.fillRect(x, y, step + 0.5, step + 0.5);
      context.globalAlpha = 1;
    }
    const letter = letterOf(task, symbol, token);
    if (!letter || (small && task.kind === "maze")) continue;
    context.fillStyle = task.kind === "maze" ? "#ffffff" : given ? colours.ink : colours.model;
    context.font = `${given ? 600 : 400} ${step * (small ? 0.9 : 0.6)}px Georgia, serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(letter, x + step / 2, y + step * 0.54);
  }
  if (task.kind !== "maze") rules(context, task, step, colours);
}

function rules(context, task, step, colours) {
  const [boxRows, boxColumns] = task.boxes ?? [0, 0];
  for (let number = 0; number <= task.drawn[1]; number += 1) {
    rule(context, colours, boxColumns && number % boxColumns === 0, number * step, 0, number * step, task.drawn[0] * step);
  }
  for (let number = 0; number <= task.drawn[0]; number += 1) {
    rule(context, colours, boxRows && number % boxRows === 0, 0, number * step, task.drawn[1] * step, number * step);
  }
}

function rule(context, colours, strong, ...ends) {
  context.strokeStyle = strong ? colours.strong : colours.line;
  context.lineWidth = strong ? 2 : 1;
  context.beginPath();
  context.moveTo(ends[0], ends[1]);
  context.lineTo(ends[2], ends[3]);
  context.stroke();
}

function cellOf(task, puzzle, frame, cell) {
  const given = task.isGiven(puzzle[cell]);
  const token = given || !frame ? puzzle[cell] : frame.tokens[cell];
  return { token, given, doubt: given || !frame ? 0 : 1 - frame.confidence[cell] };
}

function background(task, symbol, token, colours = COLOURS) {
  if (task.kind === "maze") return { "#": colours.wall, S: colours.start, G: colours.goal, o: colours.path }[symbol];
  return task.kind === "colours" ? PALETTE[token - 1] : null;
}

function letterOf(task, symbol, token) {
  if (task.kind === "maze") return "SG".includes(symbol) ? symbol : "";
  if (task.kind === "colours") return "";
  return token === task.blank ? "" : symbol;
}

/** The whole film of a start as a GIF. */
export function gif(task, film, start, hundredths = 18) {
  const step = Math.max(8, Math.round(360 / task.drawn[1]));
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [step * task.drawn[1] + 1, step * task.drawn[0] + 1];
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const picture = new Gif(canvas.width, canvas.height);
  const last = film.starts.get(start).length - 1;
  for (let segment = 0; segment <= last; segment += 1) {
    context.fillStyle = COLOURS.paper;
    context.fillRect(0, 0, canvas.width, canvas.height);
    drawGrid(context, task, film.puzzle, film.at(start, segment), step * task.drawn[1]);
    const delay = segment === last ? LAST_FRAME : hundredths;
    picture.add(context.getImageData(0, 0, canvas.width, canvas.height).data, delay);
  }
  return picture.encode();
}

/** The same as one SVG file that moves by itself (SMIL), sharp at any size. */
export function svg(task, film, start, seconds = 0.18) {
  const step = 40;
  const last = film.starts.get(start).length - 1;
  const duration = (last * seconds + 2).toFixed(2);
  const [width, height] = [step * task.drawn[1], step * task.drawn[0]];
  const parts = [`<rect width="${width}" height="${height}" fill="${COLOURS.paper}"/>`];
  for (let segment = 0; segment <= last; segment += 1) {
    const cells = [];
    for (let cell = 0; cell < task.cells; cell += 1) {
      const { token, given, doubt } = cellOf(task, film.puzzle, film.at(start, segment), cell);
      const [x, y] = [task.at(cell)[1] * step, task.at(cell)[0] * step];
      const symbol = task.symbol(token);
      const fill = background(task, symbol, token) ?? (doubt > 0.02 ? COLOURS.doubt : null);
      const opacity = background(task, symbol, token) ? 1 - 0.75 * doubt : doubt;
      if (fill) cells.push(`<rect x="${x}" y="${y}" width="${step}" height="${step}" fill="${fill}" opacity="${opacity.toFixed(2)}"/>`);
      const letter = letterOf(task, symbol, token);
      const ink = task.kind === "maze" ? "#fff" : given ? COLOURS.ink : COLOURS.model;
      if (letter) cells.push(`<text x="${x + step / 2}" y="${y + step * 0.72}" fill="${ink}" font-weight="${given ? 600 : 400}">${letter}</text>`);
    }
    const from = (segment * seconds) / duration;
    const to = segment === last ? 1 : ((segment + 1) * seconds) / duration;
    const times = segment === last ? `0;${from.toFixed(4)}` : `0;${from.toFixed(4)};${to.toFixed(4)}`;
    const values = segment === last ? "none;inline" : "none;inline;none";
    const moves = `<animate attributeName="display" calcMode="discrete" dur="${duration}s" repeatCount="indefinite" keyTimes="${times}" values="${values}"/>`;
    parts.push(`<g${segment === last ? "" : ' display="none"'}>${moves}${cells.join("")}</g>`);
  }
  if (task.kind !== "maze") parts.push(svgRules(task, step, width, height));
  const style = `font-family="Georgia, serif" font-size="${step * 0.6}" text-anchor="middle"`;
  return new Blob(
    [`<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 -1 ${width + 2} ${height + 2}" ${style}>${parts.join("")}</svg>`],
    { type: "image/svg+xml" },
  );
}

function svgRules(task, step, width, height) {
  const [boxRows, boxColumns] = task.boxes ?? [0, 0];
  const lines = [];
  for (let number = 0; number <= task.drawn[1]; number += 1) {
    const strong = boxColumns && number % boxColumns === 0;
    lines.push(`<path d="M${number * step} 0V${height}" stroke="${strong ? COLOURS.strong : COLOURS.line}" stroke-width="${strong ? 2 : 1}"/>`);
  }
  for (let number = 0; number <= task.drawn[0]; number += 1) {
    const strong = boxRows && number % boxRows === 0;
    lines.push(`<path d="M0 ${number * step}H${width}" stroke="${strong ? COLOURS.strong : COLOURS.line}" stroke-width="${strong ? 2 : 1}"/>`);
  }
  return lines.join("");
}
