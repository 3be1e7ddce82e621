// A kind of puzzle as the page knows it: how it is read, what in it is wrong, which cells stay as given.
// Tokens are numbers from 1; `symbols[token - 1]` is a token's character, 0 is padding (only a model says that).

export const PAD = 0;

export class Task {
  constructor(about) {
    Object.assign(this, about); // name, title, rows, columns, symbols, kind, boxes, fixed, words
    this.cells = this.rows * this.columns;
    this.drawn ??= [this.rows, this.columns];
    if (!this.places?.length) this.places = Array.from({ length: this.cells }, (_, cell) => cell);
    this.cellsAt = new Map(this.places.map((place, cell) => [place, cell]));
    for (const name of ["areas", "shaded", "cages", "links"]) this[name] ??= [];
    this.keeps = new Set([...this.fixed].map((symbol) => this.token(symbol)));
    this.blank = this.token(this.empty);
    this.units = this.kind === "sudoku" ? sudokuUnits(this) : [];
  }

  token(symbol) {
    return this.symbols.indexOf(symbol) + 1;
  }

  symbol(token) {
    return token === PAD ? "?" : this.symbols[token - 1];
  }

  text(tokens) {
    return Array.from(tokens, (token) => this.symbol(token)).join("");
  }

  isGiven(token) {
    return this.keeps.has(token);
  }

  /** The puzzle that nothing has been written into yet. */
  none() {
    return new Uint8Array(this.cells).fill(this.blank);
  }

  /** Row and column where a cell is drawn. */
  at(cell) {
    const place = this.places[cell];
    return [Math.floor(place / this.drawn[1]), place % this.drawn[1]];
  }

  /** The cell drawn there, undefined if there is none. */
  cellAt(row, column) {
    if (row < 0 || column < 0 || column >= this.drawn[1]) return undefined;
    return this.cellsAt.get(row * this.drawn[1] + column);
  }

  /** The sign that a link's given value stands for in a grid, "" for none. */
  sign([, , told, signs], tokens) {
    return signs[tokens[told] - this.blank - 1] ?? "";
  }

  /** The token of the next value that a link can have. */
  next([, , told, signs], tokens) {
    const values = [...signs.keys()].filter((value) => signs[value] !== null);
    const now = values.indexOf(tokens[told] - this.blank - 1);
    return values[(now + 1) % values.length] + this.blank + 1;
  }

  place(cell) {
    const [row, column] = this.at(cell);
    return `row ${row + 1}, column ${column + 1}`;
  }

  /** A token as it stands in a cell: what its symbol is called, if that is short. */
  short(token) {
    const word = this.word(token);
    return this.kind === "symbols" && word.length < 4 && token !== PAD ? word : this.symbol(token);
  }

  /** What a symbol is called, for people who hear the page. */
  word(token) {
    if (token === PAD) return "nothing";
    const symbol = this.symbol(token);
    return this.words?.[symbol] ?? (token === this.blank ? "blank" : symbol);
  }

  /** Read pasted text: {tokens} or {error}. */
  parse(text) {
    return this.kind === "maze" ? parseMaze(this, text) : parseSymbols(this, text);
  }

  /** Everything that is wrong with a puzzle: [{cells, reason}], empty if nothing is. */
  problems(tokens) {
    if (this.kind === "sudoku") return sudokuProblems(this, tokens);
    if (this.kind === "maze") return mazeProblems(this, tokens);
    return [];
  }

  /** Whether an answer obeys the rules; null where this page does not know them. */
  accepts(puzzle, answer) {
    if (this.kind === "sudoku") return sudokuAccepts(this, puzzle, answer);
    if (this.kind === "maze") return mazeAccepts(this, puzzle, answer);
    return null;
  }

  // Short enough for a link: a character per cell, in base 36.
  pack(tokens) {
    return Array.from(tokens, (token) => (token - 1).toString(36)).join("");
  }

  unpack(text) {
    if (text.length !== this.cells) return null;
    const tokens = Uint8Array.from(text, (character) => parseInt(character, 36) + 1);
    return tokens.every((token) => token >= 1 && token <= this.symbols.length) ? tokens : null;
  }
}

// --- reading

const BLANKS = ".0_*";
const DRAWN = /[\s|+=,;:/\ufeff\u2500-\u257f-]/u;

function parseSymbols(task, text) {
  const tokens = [];
  let line = 1;
  let column = 0;
  for (const character of text) {
    column += 1;
    if (character === "\n") [line, column] = [line + 1, 0];
    let token = task.token(character) || task.token(character.toUpperCase());
    if (!token && task.blank && BLANKS.includes(character)) token = task.blank;
    if (token) tokens.push(token);
    else if (!DRAWN.test(character)) {
      const known = [...task.symbols].join(" ");
      return { error: `Line ${line}, character ${column}: “${character}” is none of ${known}` };
    }
  }
  return sized(task, tokens);
}

function sized(task, tokens) {
  if (tokens.length === task.cells) return { tokens: Uint8Array.from(tokens) };
  return { error: `This puzzle has ${task.cells} cells, the text has ${tokens.length}` };
}

function parseMaze(task, text) {
  let lines = text.replace(/\r\n?/g, "\n").split("\n");
  if (text.includes(".")) lines = lines.map((line) => line.replace(/\s/g, ""));
  while (lines.length > task.rows && !lines.at(-1).trim()) lines.pop();
  while (lines.length > task.rows && !lines[0].trim()) lines.shift();
  if (lines.length === 1 && lines[0].length === task.cells) {
    lines = Array.from({ length: task.rows }, (_, row) => lines[0].substr(row * task.columns, task.columns));
  }
  if (lines.length !== task.rows) {
    return { error: `This maze needs ${task.rows} lines of ${task.columns} characters, the text has ${lines.length}` };
  }
  const tokens = [];
  for (const [row, line] of lines.entries()) {
    const padded = line.padEnd(task.columns, " ");
    if (padded.length > task.columns) {
      return { error: `Row ${row + 1} has ${line.length} characters, it needs ${task.columns}` };
    }
    for (const [column, character] of [...padded].entries()) {
      const token = task.token(character === "." ? " " : character);
      if (!token) {
        return { error: `Row ${row + 1}, column ${column + 1}: “${character}” is none of # . S G` };
      }
      tokens.push(character === "o" ? task.token(" ") : token);
    }
  }
  return sized(task, tokens);
}

// --- Sudoku

function sudokuUnits({ rows: size, boxes: [boxRows, boxColumns] }) {
  const units = [];
  for (let number = 0; number < size; number += 1) {
    const row = [];
    const column = [];
    const box = [];
    const perBand = size / boxColumns;
    const top = Math.floor(number / perBand) * boxRows;
    const left = (number % perBand) * boxColumns;
    for (let place = 0; place < size; place += 1) {
      row.push(number * size + place);
      column.push(place * size + number);
      box.push((top + Math.floor(place / boxColumns)) * size + left + (place % boxColumns));
    }
    units.push(["row", number + 1, row], ["column", number + 1, column], ["box", number + 1, box]);
  }
  return units;
}

function sudokuProblems(task, tokens) {
  const problems = [];
  for (const [kind, number, cells] of task.units) {
    const seen = new Map();
    for (const cell of cells) {
      const token = tokens[cell];
      if (token !== task.blank) seen.set(token, [...(seen.get(token) ?? []), cell]);
    }
    for (const [token, twice] of seen) {
      if (twice.length > 1) {
        const times = twice.length === 2 ? "twice" : `${twice.length} times`;
        problems.push({ cells: twice, reason: `${kind} ${number} has ${task.symbol(token)} ${times}` });
      }
    }
  }
  return problems;
}

function sudokuAccepts(task, puzzle, answer) {
  if (!keepsGivens(task, puzzle, answer)) return false;
  if (answer.some((token) => token <= task.blank)) return false;
  return sudokuProblems(task, answer).length === 0;
}

function keepsGivens(task, puzzle, answer) {
  return puzzle.every((token, cell) => !task.isGiven(token) || answer[cell] === token);
}

// --- mazes

function neighbours(task, cell) {
  const column = cell % task.columns;
  const found = [];
  if (cell >= task.columns) found.push(cell - task.columns);
  if (cell < task.cells - task.columns) found.push(cell + task.columns);
  if (column > 0) found.push(cell - 1);
  if (column < task.columns - 1) found.push(cell + 1);
  return found;
}

/** Steps from the start to every cell, by breadth-first search through what is no wall. */
function distances(task, tokens, start) {
  const wall = task.token("#");
  const steps = new Int32Array(task.cells).fill(-1);
  steps[start] = 0;
  const queue = [start];
  for (let next = 0; next < queue.length; next += 1) {
    for (const cell of neighbours(task, queue[next])) {
      if (steps[cell] < 0 && tokens[cell] !== wall) {
        steps[cell] = steps[queue[next]] + 1;
        queue.push(cell);
      }
    }
  }
  return steps;
}

function mazeProblems(task, tokens) {
  const problems = [];
  const ends = {};
  for (const [symbol, word] of [["S", "start"], ["G", "goal"]]) {
    const cells = cellsOf(tokens, task.token(symbol));
    ends[symbol] = cells[0];
    if (cells.length === 0) problems.push({ cells: [], reason: `the maze has no ${word} ${symbol} yet` });
    if (cells.length > 1) problems.push({ cells, reason: `the maze has ${cells.length} ${word}s, it needs one` });
  }
  if (problems.length) return problems;
  const steps = distances(task, tokens, ends.S);
  return steps[ends.G] < 0 ? [{ cells: [ends.S, ends.G], reason: "no way leads from S to G" }] : [];
}

function cellsOf(tokens, wanted) {
  return Array.from(tokens.keys()).filter((cell) => tokens[cell] === wanted);
}

function mazeAccepts(task, puzzle, answer) {
  if (!keepsGivens(task, puzzle, answer)) return false;
  const [path, open] = [task.token("o"), task.token(" ")];
  const marked = cellsOf(answer, path);
  if (marked.some((cell) => puzzle[cell] !== open)) return false;
  if (answer.some((token, cell) => !task.isGiven(puzzle[cell]) && token !== path && token !== open)) return false;
  const start = puzzle.indexOf(task.token("S"));
  const goal = puzzle.indexOf(task.token("G"));
  const steps = distances(task, puzzle, start);
  // a shortest path marks exactly one cell at each distance, each beside the one before
  if (steps[goal] < 0 || marked.length !== steps[goal] - 1) return false;
  let here = start;
  for (let step = 1; step < steps[goal]; step += 1) {
    const next = neighbours(task, here).filter((cell) => answer[cell] === path && steps[cell] === step);
    if (next.length !== 1) return false;
    [here] = next;
  }
  return neighbours(task, here).includes(goal);
}
