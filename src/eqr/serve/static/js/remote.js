// Solving by a server: POST /v1/solve/stream, whose server-sent events are frames and answers.

const KEY = "eqr-api-key"; // kept for this tab only

/** Ask the server; where it wants a key, ask the person for it once. */
async function ask(path, body, signal) {
  const key = sessionStorage.getItem(KEY);
  const headers = { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
  const response = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body), signal } : { headers });
  if (response.status === 401) {
    const given = prompt("This server asks for its API key");
    if (given) {
      sessionStorage.setItem(KEY, given);
      return ask(path, body, signal);
    }
  }
  if (!response.ok) throw await problem(response);
  return response;
}

export class Remote {
  async models() {
    return (await (await ask("v1/models")).json()).models;
  }

  /** Yield {frame} after every segment and {answer} at the end; throws what the server says is wrong. */
  async *solve(task, puzzle, settings, signal) {
    const response = await ask("v1/solve/stream", { ...settings, puzzle: task.text(puzzle) }, signal);
    for await (const [name, data] of events(response.body)) {
      if (name === "segment") yield { frame: frame(task, data) };
      else if (name === "answer") yield { answer: { ...data, tokens: tokens(task, data.answer) } };
      else if (name === "problem") throw new Error(data.detail);
    }
  }

  /** What the task itself says about a puzzle that this page has no rules for. */
  async check(task, model, puzzle) {
    const response = await ask("v1/check", { model, puzzle: task.text(puzzle) });
    const verdict = await response.json();
    return verdict.valid ? [] : [{ cells: verdict.cells, reason: verdict.reason }];
  }
}

function tokens(task, text) {
  return Uint8Array.from(text, (symbol) => (symbol === "?" ? 0 : task.token(symbol)));
}

function frame(task, data) {
  return { ...data, tokens: tokens(task, data.grid), confidence: data.confidence.map((percent) => percent / 100) };
}

async function problem(response) {
  const said = await response.json().catch(() => null);
  return new Error(said?.detail ?? said?.title ?? `the server answers ${response.status}`);
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const fields = Object.fromEntries(
        text.slice(0, end).split("\n").filter((line) => !line.startsWith(":")).map((line) => {
          const colon = line.indexOf(":");
          return [line.slice(0, colon), line.slice(colon + 1).trim()];
        }),
      );
      text = text.slice(end + 2);
      if (fields.data) yield [fields.event, JSON.parse(fields.data)];
    }
  }
}
