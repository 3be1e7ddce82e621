// The large grid: a puzzle being written (keyboard, touch, brush) or a solution being watched.

const KEYS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class Board {
  /** `edited(tokens)` is called whenever the person changes the puzzle. */
  constructor(element, { edited, chosen }) {
    this.element = element;
    this.edited = edited;
    this.chosen = chosen;
    this.brush = null;
    element.addEventListener("keydown", (event) => this.onKey(event));
    element.addEventListener("pointerdown", (event) => this.onPress(event));
    element.addEventListener("pointermove", (event) => this.onDrag(event));
    element.addEventListener("focusin", (event) => this.select(Number(event.target.dataset.cell), false));
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => (this.stroke = null));
  }

  show(task, puzzle) {
    this.task = task;
    this.puzzle = puzzle;
    this.frame = null;
    this.current = 0;
    const { element } = this;
    element.dataset.kind = task.kind;
    element.dataset.size = task.columns > 20 ? "large" : task.columns > 9 ? "medium" : "small";
    element.style.setProperty("--columns", task.columns);
    element.style.setProperty("--rows", task.rows);
    element.setAttribute("aria-label", `${task.title}, ${task.rows} rows, ${task.columns} columns`);
    element.setAttribute("aria-rowcount", task.rows);
    element.setAttribute("aria-colcount", task.columns);
    const rows = [];
    this.cells = [];
    for (let row = 0; row < task.rows; row += 1) {
      const line = document.createElement("div");
      line.className = "line";
      line.setAttribute("role", "row");
      for (let column = 0; column < task.columns; column += 1) line.append(this.make(row, column));
      rows.push(line);
    }
    element.replaceChildren(...rows);
    this.cells[0].tabIndex = 0;
    this.paint(puzzle, null, new Set());
  }

  make(row, column) {
    const { task } = this;
    const cell = document.createElement("div");
    cell.className = "cell";
    cell.setAttribute("role", "gridcell");
    cell.tabIndex = -1;
    cell.dataset.cell = row * task.columns + column;
    if (task.boxes) {
      const [boxRows, boxColumns] = task.boxes;
      if (row % boxRows === 0) cell.classList.add("box-top");
      if (column % boxColumns === 0) cell.classList.add("box-left");
    }
    const mark = document.createElement("span");
    mark.className = "mark";
    cell.append(mark);
    this.cells.push(cell);
    return cell;
  }

  /** Show the puzzle itself, with what is wrong in it. */
  write(puzzle, wrong) {
    this.puzzle = puzzle;
    this.frame = null;
    this.paint(puzzle, null, new Set(), wrong);
  }

  /** Show a frame of a solution: given cells stay, the others say what the model thinks and how surely. */
  watch(frame, changed) {
    this.frame = frame;
    const tokens = this.puzzle.map((token, cell) => (this.task.isGiven(token) ? token : frame.tokens[cell]));
    this.paint(tokens, frame.confidence, changed);
  }

  paint(tokens, confidence, changed, wrong = new Set()) {
    const { task, puzzle } = this;
    this.shown = tokens;
    for (const [number, cell] of this.cells.entries()) {
      const token = tokens[number];
      const given = task.isGiven(puzzle[number]);
      const doubt = given || !confidence ? 0 : 1 - confidence[number];
      const symbol = task.symbol(token);
      cell.dataset.symbol = symbol;
      cell.firstChild.textContent = task.kind === "maze" && "# o".includes(symbol) ? "" : token === task.blank ? "" : symbol;
      cell.classList.toggle("given", given);
      cell.classList.toggle("wrong", wrong.has(number));
      cell.style.setProperty("--doubt", doubt.toFixed(2));
      if (changed.has(number) && !given) flash(cell);
      else cell.classList.remove("changed");
      cell.setAttribute("aria-label", this.says(number, token, given, doubt, wrong.has(number)));
    }
  }

  says(number, token, given, doubt, wrong) {
    const { task } = this;
    const words = [task.place(number), task.word(token)];
    if (given) words.push("given");
    else if (this.frame) words.push(`${Math.round(100 * (1 - doubt))} percent sure`);
    if (wrong) words.push("contradicts another cell");
    return words.join(", ");
  }

  select(number, focus = true) {
    if (!(number >= 0 && number < this.cells.length)) return;
    this.cells[this.current].tabIndex = -1;
    this.cells[this.current].classList.remove("current");
    this.current = number;
    this.cells[number].tabIndex = 0;
    this.cells[number].classList.add("current");
    this.chosen(number);
    if (focus) this.cells[number].focus({ preventScroll: false });
  }

  /** Write a token into the current cell. */
  put(token, number = this.current) {
    if (this.puzzle[number] === token && !this.frame) return;
    const puzzle = this.puzzle.slice();
    if (this.task.kind === "maze" && "SG".includes(this.task.symbol(token))) {
      puzzle.forEach((other, cell) => other === token && (puzzle[cell] = this.task.blank)); // one start, one goal
    }
    puzzle[number] = token;
    this.edited(puzzle);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { task } = this;
    const move = KEYS[event.key];
    if (move) {
      const row = Math.floor(this.current / task.columns) + move[0];
      const column = (this.current % task.columns) + move[1];
      if (row >= 0 && row < task.rows && column >= 0 && column < task.columns) {
        this.select(row * task.columns + column);
      }
    } else if (event.key === "Home" || event.key === "End") {
      const first = this.current - (this.current % task.columns);
      this.select(event.key === "Home" ? first : first + task.columns - 1);
    } else if (event.key === "Backspace" || event.key === "Delete") {
      this.put(task.blank || 1);
    } else {
      const token = this.typed(event.key);
      if (!token) return;
      this.put(token);
    }
    event.preventDefault();
  }

  typed(key) {
    const { task } = this;
    if (key.length !== 1) return 0;
    const token = task.token(key) || task.token(key.toUpperCase());
    if (token && !(task.kind === "maze" && key === "o")) return token;
    return ".0_* ".includes(key) ? task.blank : 0;
  }

  cellAt(event) {
    const found = document.elementFromPoint(event.clientX, event.clientY)?.closest?.(".cell");
    return found && this.element.contains(found) ? Number(found.dataset.cell) : null;
  }

  onPress(event) {
    const number = this.cellAt(event);
    if (number === null || event.button !== 0) return;
    this.select(number);
    if (this.brush === null) return;
    event.preventDefault();
    event.target.releasePointerCapture?.(event.pointerId); // a finger draws over other cells too
    const same = this.puzzle[number] === this.brush && !this.frame;
    this.stroke = same && this.task.blank ? this.task.blank : this.brush; // a second stroke wipes
    this.put(this.stroke, number);
  }

  onDrag(event) {
    if (this.stroke === null || this.stroke === undefined) return;
    const number = this.cellAt(event);
    if (number !== null) this.put(this.stroke, number);
  }
}

function flash(cell) {
  cell.classList.remove("changed");
  void cell.offsetWidth; // restarts the animation
  cell.classList.add("changed");
}
