// Forms: fields that are named here, and fields made of the schema in the OpenAPI document.

import { el } from "/ui/dom.js";

const UNITS = { "": 1, m: 1, g: 1024, t: 1024 * 1024 };
let fields = 0;

export class FormError extends Error {}

// Sizes are MiB; people write 512M, 10G or 1.5T.
export function mib(text) {
  const found = /^([\d.]+)\s*([mgt]?)(i?b)?$/i.exec(text.trim());
  if (!found || Number.isNaN(Number(found[1]))) throw new FormError(`"${text}" is no size, such as 512M or 10G`);
  return Math.round(Number(found[1]) * UNITS[found[2].toLowerCase()]);
}

function whole(text) {
  if (!/^-?\d+$/.test(text.trim())) throw new FormError(`"${text}" is no whole number`);
  return Number(text);
}

function json(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new FormError("This is not JSON");
  }
}

// A parameter gets the type that it has now.
function typed(text, now) {
  if (text === "default") return text;
  if (typeof now === "boolean") {
    if (!/^(yes|no|true|false)$/i.test(text)) throw new FormError(`"${text}" is neither yes nor no`);
    return /^(yes|true)$/i.test(text);
  }
  if (typeof now === "number" && !Number.isNaN(Number(text))) return Number(text);
  return text;
}

const words = (text) => text.split(/[\s,]+/).filter(Boolean);
const READ = { text: (text) => text, secret: (text) => text, choice: (text) => text, size: mib, number: whole, words, json };
const shown = (value) => (typeof value === "boolean" ? (value ? "yes" : "no") : String(value ?? ""));

// Each maker answers {element, read, control}; read answers undefined for a field that says nothing.
const MAKERS = {
  flag(spec) {
    const box = el("input", { type: "checkbox", checked: spec.value === true });
    return { control: box, element: el("label", { class: "flag" }, box, ` ${spec.label}`), read: () => (box.checked === (spec.start ?? !!spec.value) && !spec.always ? undefined : box.checked) };
  },
  choice(spec) {
    const options = spec.choices.map((each) => (Array.isArray(each) ? each : [each, each]));
    const control = el("select", {}, options.map(([value, text]) => el("option", { value, selected: value === spec.value }, text)));
    return labelled(spec, control);
  },
  json: (spec) => labelled(spec, el("textarea", { rows: 3, spellcheck: "false" })),
  params(spec) {
    const rows = Object.entries(spec.params).map(([name, { now, help }]) => [name, now, el("input", { placeholder: shown(now), autocomplete: "off", spellcheck: "false", "aria-label": name }), help]);
    const element = el("details", {}, el("summary", {}, spec.label), el("div", { class: "params" },
      rows.map(([name, , input, help]) => el("label", { title: help ?? "" }, name, input, help ? el("span", { class: "small" }, help) : null))));
    const read = () => {
      const found = rows.filter(([, , input]) => input.value.trim() !== "").map(([name, now, input]) => [name, typed(input.value.trim(), now)]);
      return found.length ? Object.fromEntries(found) : undefined;
    };
    return { element, read, control: element };
  },
  rows(spec) {
    const made = [];
    const list = el("div", { class: "rows" });
    const add = (at) => {
      const inner = new Form(spec.fields(at));
      const row = el("div", { class: "row" }, inner.element, el("button", {
        type: "button",
        class: "quiet",
        "aria-label": `Leave out this ${spec.one}`,
        click: () => {
          made.splice(made.indexOf(inner), 1);
          row.remove();
        },
      }, "×"));
      made.push(inner);
      list.append(row);
    };
    for (let at = 0; at < (spec.count ?? 1); at += 1) add(at);
    const more = el("button", { type: "button", class: "quiet", click: () => add() }, `Add ${spec.one}`);
    return { element: el("fieldset", {}, el("legend", {}, spec.label), list, more), read: () => made.map((form) => form.values()), control: more };
  },
};

function labelled(spec, control) {
  const read = () => {
    const text = control.value.trim();
    const wrong = text !== "" && spec.check?.(text);
    if (wrong) throw new FormError(wrong);
    if (text === "" || (text === shown(spec.value) && !spec.always)) {
      if (text === "" && spec.required) throw new FormError(`${spec.label} is missing`);
      return spec.required && text !== "" ? READ[spec.kind](text) : undefined;
    }
    if (spec.sure && text !== spec.sure) throw new FormError(`this is not ${spec.sure}`);
    return READ[spec.kind](text);
  };
  return { control, read, element: el("label", {}, spec.label, control, spec.hint ? el("span", { class: "small" }, spec.hint) : null) };
}

function make(spec) {
  const maker = MAKERS[spec.kind];
  if (maker) return maker(spec);
  const control = el("input", { type: spec.kind === "secret" ? "password" : "text", value: shown(spec.value), placeholder: spec.placeholder, required: spec.required, autocomplete: "off", autocapitalize: "off", spellcheck: "false", inputmode: spec.kind === "number" ? "numeric" : null });
  return labelled(spec, control);
}

export class Form {
  // specs: {name, kind, label, value, hint, required, always, check, choices | params | fields};
  // check: answers what is wrong with a text, or "".
  constructor(specs) {
    this.fields = specs.map((spec) => ({ spec, ...make({ label: spec.name, ...spec }) }));
    this.element = el("div", { class: "fields" }, this.fields.map((field) => field.element));
    for (const { control, spec } of this.fields) {
      fields += 1;
      control.id = `field-${fields}`;
      control.dataset.name = spec.name;
    }
  }

  values() {
    const found = {};
    for (const { spec, read, control } of this.fields) {
      try {
        control.removeAttribute("aria-invalid");
        const value = read();
        if (value !== undefined) found[spec.name] = value;
      } catch (error) {
        if (!(error instanceof FormError)) throw error;
        control.setAttribute("aria-invalid", "true");
        control.focus();
        throw new FormError(error.message.startsWith(spec.label) ? error.message : `${spec.label}: ${error.message}`);
      }
    }
    return found;
  }
}

// Fields of the schema of a body.

const NEVER = /_uuid$|^(debug_level|depends|expected_version|priority|dry_run|__version__|reason)$/;

function plainSchema(schema, schemas) {
  let found = schema;
  while (found.$ref) found = schemas[found.$ref.split("/").at(-1)];
  const some = (found.anyOf ?? []).filter((each) => each.type !== "null");
  return some.length === 1 ? plainSchema(some[0], schemas) : found;
}

export function schemaFields(properties, schemas, without) {
  return Object.entries(properties).filter(([name]) => !without.has(name) && !NEVER.test(name)).map(([name, schema]) => {
    const plain = plainSchema(schema, schemas);
    const label = name.replaceAll("_", " ");
    const hint = schema.description ?? plain.description;
    const start = schema.default;
    if (plain.enum) return { name, label, hint, kind: "choice", choices: [["", `default${start ? ` (${start})` : ""}`], ...plain.enum], value: "" };
    if (plain.type === "boolean") return { name, label, hint, kind: "flag", value: start === true };
    if (plain.type === "integer") return { name, label, hint, kind: "number", placeholder: shown(start) };
    if (plain.type === "string") return { name, label, hint, kind: "text", placeholder: shown(start) };
    return { name, label, hint: hint ?? "JSON", kind: "json" };
  });
}

export const described = (schema, schemas) => plainSchema(schema, schemas).properties ?? {};
