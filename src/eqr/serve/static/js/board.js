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
    const [height, width] = task.drawn;
    element.style.setProperty("--columns", width);
    element.style.setProperty("--rows", height);
    [this.signs, this.edges, this.nodes] = [new Map(), null, null];
    this.listed = task.links.every(([first, second]) => task.at(first)[0] === 0 && task.at(second)[0] === 0);
    this.cells = Array.from({ length: task.cells }, (_, cell) => this.make(cell));
    const at = task.cellsAt;
    element.replaceChildren(
      ...Array.from({ length: height }, (_, row) => {
        const line = document.createElement("div");
        line.className = "line";
        line.setAttribute("role", "row");
        for (let column = 0; column < width; column += 1) {
          const cell = at.get(row * width + column);
          line.append(cell === undefined ? hole() : this.cells[cell]);
        }
        return line;
      }),
    );
    this.cells[0].tabIndex = 0;
    this.graph?.remove();
    const far = task.links.filter(([first, second]) => !this.side(first, second));
    this.graph = far.length ? this.drawGraph() : null;
    if (this.graph) element.before(this.graph);
    this.paint(puzzle, null, new Set());
  }

  /** On which side of a cell another lies, "" if they do not touch. */
  side(first, second) {
    const [row, column] = this.task.at(first);
    const [otherRow, otherColumn] = this.task.at(second);
    if (this.listed) return ""; // nodes stand side by side and are no neighbours
    if (row === otherRow && otherColumn === column + 1) return "right";
    return column === otherColumn && otherRow === row + 1 ? "below" : "";
  }

  /** Nodes on a circle and the edges between them, above the cells in which they are written. */
  drawGraph() {
    const { task } = this;
    const nodes = [...new Set(task.links.flatMap(([first, second]) => [first, second]))].sort((a, b) => a - b);
    const angle = (place) => (2 * Math.PI * place) / nodes.length - Math.PI / 2;
    const at = new Map(nodes.map((node, place) => [node, [50 + 42 * Math.cos(angle(place)), 50 + 42 * Math.sin(angle(place))]]));
    const graph = shape("svg", { viewBox: "0 0 100 100", class: "graph" });
    this.edges = task.links.map(([first, second], index) => {
      const [[x1, y1], [x2, y2]] = [at.get(first), at.get(second)];
      return graph.appendChild(this.pressed(shape("line", { x1, y1, x2, y2 }), index));
    });
    this.nodes = new Map(
      nodes.map((node) => {
        const [x, y] = at.get(node);
        const group = graph.appendChild(shape("g", { transform: `translate(${x} ${y})` }));
        group.append(shape("circle", { r: 6 }), shape("text", {}));
        return [node, group];
      }),
    );
    return graph;
  }

  /** Let a sign or an edge take its next value when it is pressed. */
  pressed(element, index) {
    const turn = (event) => {
      event.preventDefault();
      event.stopPropagation();
      const link = this.task.links[index];
      this.put(this.task.next(link, this.puzzle), link[2]);
    };
    element.setAttribute("role", "button");
    element.setAttribute("tabindex", 0);
    element.addEventListener("pointerdown", turn);
    element.addEventListener("keydown", (event) => "Enter ".includes(event.key) && turn(event));
    return element;
  }

  paintLinks(tokens) {
    const { task } = this;
    for (const [index, link] of task.links.entries()) {
      const sign = task.sign(link, tokens);
      const shown = this.signs?.get(index);
      if (shown) shown.textContent = shown.classList.contains("below") ? ({ "<": "\u2227", ">": "\u2228" }[sign] ?? sign) : sign;
      this.edges?.[index]?.classList.toggle("there", sign !== "");
      const said = `${task.place(link[0])} and ${task.place(link[1])}: ${sign || "nothing"}`;
      (shown ?? this.edges?.[index])?.setAttribute("aria-label", said);
    }
    for (const [node, group] of this.nodes ?? []) {
      const token = tokens[node];
      group.dataset.value = token === task.blank ? "" : String(token - task.blank);
      group.lastChild.textContent = token === task.blank ? "" : task.short(token);
    }
  }

  make(number) {
    const { task } = this;
    const cell = document.createElement("div");
    cell.className = "cell";
    cell.setAttribute("role", "gridcell");
    cell.tabIndex = -1;
    cell.dataset.cell = number;
    const [row, column] = task.at(number);
    if (task.boxes) {
      const [boxRows, boxColumns] = task.boxes;
      if (row % boxRows === 0) cell.classList.add("box-top");
      if (column % boxColumns === 0) cell.classList.add("box-left");
    }
    const apart = (other, area) => other !== undefined && area(other) !== area(number);
    const [above, before] = [task.cellAt(row - 1, column), task.cellAt(row, column - 1)];
    if (apart(above, (other) => task.areas[other])) cell.classList.add("box-top");
    if (apart(before, (other) => task.areas[other])) cell.classList.add("box-left");
    cell.classList.toggle("shaded", task.shaded.includes(number));
    const mark = document.createElement("span");
    mark.className = "mark";
    cell.append(mark);
    const cage = task.cages.find((cells) => cells.slice(0, -1).includes(number));
    if (cage) cell.append(this.cage(cage, number, row, column));
    for (const [index, [first, second]] of task.links.entries()) {
      const side = first === number && this.side(first, second);
      if (!side) continue;
      const sign = document.createElement("b");
      sign.className = `sign ${side}`;
      this.signs.set(index, this.pressed(sign, index));
      cell.append(sign);
    }
    return cell;
  }

  /** The part of a cage's dashed line that runs in a cell; the first cell says what the cage comes to. */
  cage(cage, number, row, column) {
    const { task } = this;
    const line = document.createElement("i");
    line.className = "cage";
    const sides = { top: [-1, 0], right: [0, 1], bottom: [1, 0], left: [0, -1] };
    for (const [side, [down, right]] of Object.entries(sides)) {
      if (!cage.includes(task.cellAt(row + down, column + right))) line.classList.add(side);
    }
    if (cage[0] === number) line.dataset.told = cage.at(-1);
    return line;
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
    this.paintLinks(tokens);
    for (const [number, cell] of this.cells.entries()) {
      const token = tokens[number];
      const given = task.isGiven(puzzle[number]);
      const doubt = given || !confidence ? 0 : 1 - confidence[number];
      const symbol = task.symbol(token);
      cell.dataset.symbol = symbol;
      cell.firstChild.textContent = task.kind === "maze" && "# o".includes(symbol) ? "" : token === task.blank ? "" : task.short(token);
      const told = cell.querySelector("[data-told]");
      if (told) told.textContent = tokens[told.dataset.told] === task.blank ? "" : task.short(tokens[told.dataset.told]);
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
      let [row, column] = task.at(this.current);
      const [height, width] = task.drawn;
      let next;
      while (next === undefined && row >= 0 && row < height && column >= 0 && column < width) {
        [row, column] = [row + move[0], column + move[1]]; // over holes
        next = task.cellAt(row, column);
      }
      if (next !== undefined) this.select(next);
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

function shape(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function hole() {
  const place = document.createElement("div");
  place.className = "hole";
  place.setAttribute("role", "presentation");
  return place;
}

function flash(cell) {
  cell.classList.remove("changed");
  void cell.offsetWidth; // restarts the animation
  cell.classList.add("changed");
}
