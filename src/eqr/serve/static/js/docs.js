// The OpenAPI description as a page, without a network: routes, their fields, their answers.

function make(tag, text, ...children) {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
}

function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if (schema.type === "array") return `list of ${typeOf(schema.items ?? {})}`;
  const bounds = Object.entries({ minimum: "≥", exclusiveMinimum: ">", maximum: "≤", exclusiveMaximum: "<", maxLength: "length ≤" })
    .filter(([key]) => key in schema).map(([key, sign]) => `${sign} ${schema[key]}`);
  return [schema.type ?? "anything", ...bounds].join(" ");
}

function fields(schema) {
  const table = make("table", "", make("thead", "", make("tr", "", make("th", "field"), make("th", "type"), make("th", "default"), make("th", "meaning"))));
  const body = make("tbody");
  for (const [name, field] of Object.entries(schema.properties ?? {})) {
    const row = make("tr", "", make("td", "", make("code", name)), make("td", typeOf(field)));
    const initial = field.default === undefined ? (schema.required?.includes(name) ? "required" : "") : JSON.stringify(field.default);
    row.append(make("td", initial), make("td", field.description ?? ""));
    body.append(row);
  }
  table.append(body);
  return table;
}

const description = await (await fetch("openapi.json")).json();
const schemas = description.components.schemas;
const shown = [];
for (const [path, methods] of Object.entries(description.paths)) {
  for (const [method, route] of Object.entries(methods)) {
    const card = make("section", "", make("h2", `${method.toUpperCase()} ${path}`), make("p", route.description ?? route.summary));
    card.className = "card";
    const body = route.requestBody?.content["application/json"].schema.$ref?.split("/").at(-1);
    if (body) card.append(make("h3", "Body"), fields(schemas[body]));
    const list = make("ul");
    for (const [status, answer] of Object.entries(route.responses)) list.append(make("li", `${status}: ${answer.description}`));
    card.append(make("h3", "Answers"), list);
    const reply = route.responses["200"]?.content?.["application/json"]?.schema?.$ref?.split("/").at(-1);
    if (reply) card.append(fields(schemas[reply]));
    shown.push(card);
  }
}
document.getElementById("routes").replaceChildren(...shown);
