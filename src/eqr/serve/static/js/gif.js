// Pictures to an animated GIF: one palette for all frames, LZW as the format wants it, endless repetition.

export class Gif {
  constructor(width, height) {
    Object.assign(this, { width, height, frames: [] });
  }

  /** Take the pixels (RGBA) of a frame and how long it stays, in hundredths of a second. */
  add(pixels, delay) {
    this.frames.push({ pixels, delay });
  }

  encode() {
    const palette = popular(this.frames.map(({ pixels }) => pixels));
    const bytes = [...ascii("GIF89a"), ...word(this.width), ...word(this.height), 0xf7, 0, 0, ...palette.flat()];
    bytes.push(0x21, 0xff, 11, ...ascii("NETSCAPE2.0"), 3, 1, 0, 0, 0);
    const parts = [Uint8Array.from(bytes)];
    const near = nearest(palette);
    for (const { pixels, delay } of this.frames) {
      const head = [0x21, 0xf9, 4, 4, ...word(delay), 0, 0, 0x2c, 0, 0, 0, 0, ...word(this.width), ...word(this.height), 0, 8];
      const numbers = new Uint8Array(pixels.length / 4);
      for (let place = 0; place < numbers.length; place += 1) {
        numbers[place] = near(pixels[4 * place], pixels[4 * place + 1], pixels[4 * place + 2]);
      }
      parts.push(Uint8Array.from(head), squeeze(numbers));
    }
    parts.push(Uint8Array.of(0x3b));
    return new Blob(parts, { type: "image/gif" });
  }
}

const ascii = (text) => Array.from(text, (letter) => letter.charCodeAt(0));
const word = (number) => [number & 255, number >> 8];

/** The 256 most frequent colours, five bits a channel. */
function popular(pictures) {
  const counts = new Map();
  for (const pixels of pictures) {
    for (let place = 0; place < pixels.length; place += 4) {
      const key = ((pixels[place] >> 3) << 10) | ((pixels[place + 1] >> 3) << 5) | (pixels[place + 2] >> 3);
      const seen = counts.get(key);
      if (seen) seen[0] += 1;
      else counts.set(key, [1, [pixels[place], pixels[place + 1], pixels[place + 2]]]);
    }
  }
  const colours = [...counts.values()].sort((a, b) => b[0] - a[0]).slice(0, 256).map(([, colour]) => colour);
  while (colours.length < 256) colours.push([0, 0, 0]);
  return colours;
}

function nearest(palette) {
  const known = new Map();
  return (red, green, blue) => {
    const key = (red << 16) | (green << 8) | blue;
    if (known.has(key)) return known.get(key);
    let [best, least] = [0, Infinity];
    palette.forEach(([r, g, b], number) => {
      const distance = (r - red) ** 2 + (g - green) ** 2 + (b - blue) ** 2;
      if (distance < least) [best, least] = [number, distance];
    });
    known.set(key, best);
    return best;
  };
}

/** LZW with codes of 9 to 12 bits, in blocks of up to 255 bytes. */
function squeeze(numbers) {
  const [CLEAR, END] = [256, 257];
  const packed = [];
  let [held, bits, size] = [0, 0, 9];
  const put = (code) => {
    held |= code << bits;
    for (bits += size; bits >= 8; bits -= 8, held >>>= 8) packed.push(held & 255);
  };
  let table = new Map();
  put(CLEAR);
  let prefix = numbers[0];
  for (let place = 1; place < numbers.length; place += 1) {
    const key = (prefix << 8) | numbers[place];
    const code = table.get(key);
    if (code !== undefined) {
      prefix = code;
      continue;
    }
    put(prefix);
    const next = END + 1 + table.size;
    if (next < 4096) {
      table.set(key, next);
      if (next === 1 << size && size < 12) size += 1;
    } else {
      put(CLEAR);
      table = new Map();
      size = 9;
    }
    prefix = numbers[place];
  }
  put(prefix);
  if (END + 1 + table.size === 1 << size && size < 12) size += 1; // the reader has grown its table by now
  put(END);
  if (bits > 0) packed.push(held & 255);
  const out = [];
  for (let from = 0; from < packed.length; from += 255) {
    const block = packed.slice(from, from + 255);
    out.push(block.length, ...block);
  }
  out.push(0);
  return Uint8Array.from(out);
}
