// The key of a trajectory, as eqr.model.definitions.row_key makes it: BLAKE2b of "seed/restart/", "identity/"
// where there is one, and the tokens: eight bytes, read as a little-endian number without its top bit. Same key,
// same start, same noise.

const START = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];
const ORDER = [
  "0123456789abcdef", "ea489fd61c02b753",
  "b8c052fdae367194", "7931dcbe265a40f8",
  "905724afe1bc683d", "2c6a0b834d75fe19",
  "c51fed4a0763928b", "db7ec13950f4862a",
  "6fe9b308c2d714a5", "a2847615fb9e3cd0",
].map((row) => Array.from(row, (digit) => parseInt(digit, 16)));
const QUARTERS = [
  [0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15],
  [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14],
];
const WORD = (1n << 64n) - 1n;
const BLOCK = 128;
const ROUNDS = 12;
const BYTES = 8;

export function rowKey(seed, tokens, restart, identity = 0) {
  const head = new TextEncoder().encode(`${seed}/${restart}/${identity ? `${identity}/` : ""}`);
  const message = new Uint8Array(head.length + tokens.length);
  message.set(head);
  message.set(tokens, head.length);
  return hash(message)[0] & (WORD >> 1n);
}

/** BLAKE2b's state after a message; its first word is the digest of eight bytes. */
function hash(message) {
  const state = START.slice();
  state[0] ^= 0x01010000n ^ BigInt(BYTES);
  for (let from = 0; from === 0 || from < message.length; from += BLOCK) {
    const block = new Uint8Array(BLOCK);
    block.set(message.subarray(from, from + BLOCK));
    const length = Math.min(from + BLOCK, message.length);
    compress(state, new DataView(block.buffer), BigInt(length), from + BLOCK >= message.length);
  }
  return state;
}

function compress(state, block, length, last) {
  const v = [...state, ...START];
  v[12] ^= length;
  if (last) v[14] ^= WORD;
  const words = Array.from({ length: 16 }, (_, place) => block.getBigUint64(8 * place, true));
  for (let round = 0; round < ROUNDS; round += 1) {
    const order = ORDER[round % ORDER.length];
    QUARTERS.forEach(([a, b, c, d], place) => {
      v[a] = (v[a] + v[b] + words[order[2 * place]]) & WORD;
      v[d] = turn(v[d] ^ v[a], 32n);
      v[c] = (v[c] + v[d]) & WORD;
      v[b] = turn(v[b] ^ v[c], 24n);
      v[a] = (v[a] + v[b] + words[order[2 * place + 1]]) & WORD;
      v[d] = turn(v[d] ^ v[a], 16n);
      v[c] = (v[c] + v[d]) & WORD;
      v[b] = turn(v[b] ^ v[c], 63n);
    });
  }
  for (let place = 0; place < 8; place += 1) state[place] ^= v[place] ^ v[place + 8];
}

function turn(word, bits) {
  return ((word >> bits) | (word << (64n - bits))) & WORD;
}
