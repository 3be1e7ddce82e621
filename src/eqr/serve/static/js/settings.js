// The sliders: each has a few named stops, and the first of them that fits what the model and server allow.

const HALTS = [
  ["head", "it says it is done"],
  ["head+stable:1", "it says so and the answer stands"],
  ["head+stable:1/stable:64", "… or the answer stands for 64"],
  ["head+stable:3", "… for three segments"],
  ["residual:0.02", "the state is calm"],
  ["never", "the depth is used up"],
];
const PACES = [
  [0, "as fast as it comes"],
  [60, "quick"],
  [160, "watchable"],
  [400, "slow"],
  [900, "very slow"],
];
const NOISES = [null, 0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5];

export class Settings {
  constructor(changed) {
    this.changed = changed;
    this.inputs = {};
    for (const name of ["depth", "breadth", "noise", "halt", "pace", "select", "race", "seed", "identity"]) {
      this.inputs[name] = document.getElementById(name);
      this.inputs[name].addEventListener("input", () => this.say());
      this.inputs[name].addEventListener("change", () => this.changed());
    }
  }

  /** Take the stops that a model allows; keeps what was chosen where it still can be. */
  fit(model) {
    const before = this.model ? this.values() : { ...model.defaults };
    this.model = model;
    const { depth, breadth } = model.limits;
    this.stops = {
      depth: powers(depth).map((value) => [value, `${value} segment${value > 1 ? "s" : ""}`]),
      breadth: powers(breadth).map((value) => [value, `${value} start${value > 1 ? "s" : ""}`]),
      noise: (model.noisy ? NOISES : [null]).map((value) => [value, value === null ? `the model's, ${model.noise}` : String(value)]),
      halt: HALTS,
      pace: PACES,
    };
    for (const [name, stops] of Object.entries(this.stops)) {
      this.inputs[name].max = stops.length - 1;
      this.inputs[name].disabled = stops.length < 2;
    }
    // a model that knows families is told which of them a puzzle is of
    document.getElementById("family").hidden = !model.identities;
    this.inputs.identity.max = Math.max(model.identities - 1, 0);
    this.set({ pace: 160, ...before });
  }

  set(values) {
    for (const [name, stops] of Object.entries(this.stops)) {
      if (!(name in values)) continue;
      const near = (value) => (typeof value === "number" ? Math.abs(value - values[name]) : Infinity);
      let stop = stops.findIndex(([value]) => value === values[name]);
      if (stop < 0) stop = stops.reduce((best, [value], place) => (near(value) < near(stops[best][0]) ? place : best), 0);
      this.inputs[name].value = stop;
    }
    if ("select" in values) this.inputs.select.value = values.select;
    if ("race" in values) this.inputs.race.checked = Boolean(values.race);
    if ("seed" in values) this.inputs.seed.value = values.seed;
    if ("identity" in values) this.inputs.identity.value = Math.min(values.identity, this.inputs.identity.max);
    this.say();
  }

  /** Show in words where each slider stands, on the page and to a screen reader. */
  say() {
    for (const [name, stops] of Object.entries(this.stops)) {
      const words = stops[this.inputs[name].value][1];
      document.getElementById(`${name}-says`).textContent = words;
      this.inputs[name].setAttribute("aria-valuetext", words);
    }
  }

  stop(name) {
    return this.stops[name][this.inputs[name].value][0];
  }

  values() {
    const halt = this.stop("halt");
    return {
      depth: this.stop("depth"),
      breadth: this.stop("breadth"),
      noise: this.stop("noise"),
      halt,
      pace: this.stop("pace"),
      select: this.inputs.select.value,
      race: this.inputs.race.checked && halt !== "never", // a race is won by halting
      seed: whole(this.inputs.seed),
      identity: whole(this.inputs.identity),
    };
  }

  /** What a solver is asked for. Within its budget: breadth gives way to depth. */
  request() {
    const { pace, ...asked } = this.values();
    const { segments } = this.model.limits;
    return { ...asked, model: this.model.name, breadth: Math.max(1, Math.min(asked.breadth, Math.floor(segments / asked.depth))) };
  }

  get tolerance() {
    const found = /residual:([\d.]+)/.exec(this.stop("halt"));
    return found ? Number(found[1]) : null;
  }
}

/** A field's number, within what it allows. */
function whole({ value, max }) {
  return Math.min(Math.max(0, Math.trunc(Number(value)) || 0), Number(max));
}

function powers(most) {
  const found = [];
  for (let power = 1; power <= most; power *= 2) found.push(power);
  return found;
}
