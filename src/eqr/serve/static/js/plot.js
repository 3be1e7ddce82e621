// The residual of every start against the segment, on a logarithmic scale, as plain SVG.

const SVG = "http://www.w3.org/2000/svg";
const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [220, 44, 12, 12, 36];

export function drawPlot(svg, film, { segment, shown, chosen, tolerance }) {
  const width = svg.clientWidth || 520; // a unit is a pixel: letters are as large on a phone as on a desk
  const lines = [...film.starts.keys()].sort((a, b) => a - b).map((start) => [start, film.residuals(start)]);
  const values = lines.flatMap(([, points]) => points.map(([, residual]) => residual)).filter((value) => value > 0);
  const high = Math.log10(1.25 * Math.max(...values, 1));
  const low = Math.log10(0.8 * Math.min(...values, tolerance ?? 0.1));
  const last = Math.max(film.length, 4);
  const x = (number) => LEFT + ((number - 1) / Math.max(last - 1, 1)) * (width - LEFT - RIGHT);
  const y = (value) => {
    const place = (high - Math.log10(Math.max(value, 10 ** low))) / (high - low);
    return TOP + place * (HEIGHT - TOP - BOTTOM);
  };
  const parts = [];
  for (let power = Math.floor(high); power >= low; power -= 1) {
    const at = y(10 ** power);
    parts.push(make("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }));
    parts.push(make("text", { class: "tick", x: LEFT - 8, y: at + 4, "text-anchor": "end" }, power > -4 ? String(10 ** power) : `1e${power}`));
  }
  for (const number of ticks(last)) {
    parts.push(make("text", { class: "tick", x: x(number), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, number));
  }
  parts.push(make("text", { class: "tick", x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 3, "text-anchor": "middle" }, "segment"));
  if (tolerance) parts.push(make("line", { class: "tolerance", x1: LEFT, x2: width - RIGHT, y1: y(tolerance), y2: y(tolerance) }));
  if (segment) parts.push(make("line", { class: "cursor", x1: x(segment), x2: x(segment), y1: TOP, y2: HEIGHT - BOTTOM }));
  // the start that is looked at is drawn last, on top
  for (const [start, points] of lines.sort(([a], [b]) => (a === shown) - (b === shown))) {
    if (!points.length) continue;
    const kind = start === shown ? "trace shown" : start === chosen ? "trace chosen" : "trace";
    const path = points.map(([number, residual]) => `${x(number).toFixed(1)},${y(residual).toFixed(1)}`).join(" ");
    parts.push(make("polyline", { class: kind, points: path }));
    const [number, residual] = points.filter(([at]) => at <= segment).at(-1) ?? points[0];
    if (start === shown) parts.push(make("circle", { class: "dot", cx: x(number), cy: y(residual), r: 4.5 }));
  }
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.replaceChildren(...parts);
  const now = film.at(shown, segment);
  svg.setAttribute(
    "aria-label",
    now
      ? `Residual of start ${shown + 1} at segment ${now.segment}: ${now.residual.toPrecision(2)}; ${lines.length} starts in all`
      : "Residual against segment; nothing has run yet",
  );
}

function ticks(last) {
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((size) => last / size <= 8) ?? 2000;
  const found = [1];
  for (let number = step; number <= last; number += step) if (number > 1) found.push(number);
  return found;
}

function make(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
