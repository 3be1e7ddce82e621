// What was seen of a solution: for every start, its grid, confidence and residual after each segment.

export class Film {
  constructor(puzzle) {
    this.puzzle = puzzle;
    this.starts = new Map(); // start -> frames by segment, from 1
    this.answer = null;
  }

  add(frame) {
    if (!this.starts.has(frame.start)) this.starts.set(frame.start, []);
    this.starts.get(frame.start)[frame.segment] = frame;
  }

  get length() {
    let longest = 0;
    for (const frames of this.starts.values()) longest = Math.max(longest, frames.length - 1);
    return longest;
  }

  /** The frame of a start at a segment: its last one if it had ended before, null if it had not begun. */
  at(start, segment) {
    const frames = this.starts.get(start) ?? [];
    for (let number = Math.min(segment, frames.length - 1); number >= 1; number -= 1) {
      if (frames[number]) return frames[number]; // a slow reader is spared some frames
    }
    return null;
  }

  /** Cells that differ from the segment before. */
  changed(start, segment) {
    const frame = this.at(start, segment);
    if (!frame || frame.segment < segment) return new Set();
    const before = segment > 1 ? this.at(start, segment - 1)?.tokens : this.puzzle;
    const cells = new Set();
    if (before) frame.tokens.forEach((token, cell) => token !== before[cell] && cells.add(cell));
    return cells;
  }

  residuals(start) {
    return (this.starts.get(start) ?? []).filter(Boolean).map((frame) => [frame.segment, frame.residual]);
  }
}
