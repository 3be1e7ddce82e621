// When a row stops and how to choose among starts, for solving without a server; the meaning and the spelling are
// those of eqr.dynamics.halting and eqr.solve.selection.

/** Read `head`, `residual:0.02:2`, `a+b` (both), `a/b` (either) or `never`; returns a maker of per-row rules. */
export function halting(text) {
  if (text === "never") return () => () => false;
  for (const [sign, every] of [["/", false], ["+", true]]) {
    if (text.includes(sign)) {
      const makers = text.split(sign).map(halting);
      return () => {
        const rules = makers.map((make) => make());
        return (reading) => {
          const said = rules.map((rule) => rule(reading)); // each counts on its own, so ask them all
          return every ? said.every(Boolean) : said.some(Boolean);
        };
      };
    }
  }
  const [word, ...numbers] = text.split(":");
  const [first, second] = numbers.map(Number);
  switch (word) {
    case "depth":
      return () => ({ segment }) => segment >= first;
    case "head":
      return () => inARow(second ?? 1, ({ halt }) => halt > (first ?? 0));
    case "residual":
      return () => inARow(second ?? 1, ({ residual }) => residual < first);
    case "stable":
      return () => {
        let [before, calm] = [null, 0];
        return ({ tokens }) => {
          const seen = tokens.join();
          calm = seen === before ? calm + 1 : 0;
          before = seen;
          return calm >= (first ?? 2);
        };
      };
    default:
      throw new Error(`unknown halting rule “${text}”`);
  }
}

/** Whether what the rule halts has an answer or a state that stays as it is. */
export function settles(text) {
  return text.split("/").every((all) => all.split("+").some((rule) => /^(residual|stable)\b/.test(rule)));
}

function inARow(patience, isCalm) {
  let calm = 0;
  return (reading) => {
    calm = isCalm(reading) ? calm + 1 : 0;
    return calm >= patience;
  };
}

/** Choose among candidates [{start, tokens, halt, residuals, depth, halted, complete}]; returns one of them. */
export function select(rule, candidates, accepts) {
  const complete = candidates.filter((candidate) => candidate.complete);
  switch (rule) {
    case "verified":
      return complete.find(({ tokens }) => accepts(tokens)) ?? lowest(complete, settled);
    case "residual":
      return lowest(complete, settled);
    case "halt":
      return lowest(complete, ({ halt }) => -halt);
    case "first":
      return complete[0];
    case "majority":
      return lowest(complete, ({ tokens }) => {
        const seen = tokens.join();
        return -complete.filter((other) => other.tokens.join() === seen).length;
      });
    default:
      throw new Error(`unknown selection rule “${rule}”`);
  }
}

function settled({ residuals }) {
  const last = residuals.slice(-3);
  return last.reduce((sum, residual) => sum + residual, 0) / last.length;
}

function lowest(candidates, cost) {
  return candidates.reduce((best, candidate) => (cost(candidate) < cost(best) ? candidate : best));
}
