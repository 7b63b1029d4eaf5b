// One operation: its form, a rehearsal where there is one, and the job that it becomes.

import { byId, el, link } from "/ui/dom.js";
import { Form, FormError, schemaFields } from "/ui/form.js";
import { messageOf } from "/ui/jobs.js";

const FINAL = new Set(["success", "error", "canceled"]);
const WATCHED = ["status", "opresult"];

let document_ = null; // it is large, so it is asked for when the first form is opened, and once

export function api(app) {
  document_ ??= app.api.ask("GET", "/2/openapi.json").catch((error) => {
    document_ = null;
    throw error;
  });
  return document_;
}

export async function schemaOf(app, method, path) {
  const { paths, components } = await api(app);
  const found = paths[path][method.toLowerCase()];
  return {
    schemas: components.schemas,
    properties: found.requestBody?.content["application/json"].schema.properties ?? {},
    rehearses: found.parameters.some(({ name }) => name === "dry-run"),
  };
}

export const filled = (path, values) => path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(values[name]));

// Waits until a job has ended; tells each line of its log.
export async function waited(app, id, tell = () => {}) {
  let info = null;
  let serial = null;
  while (info === null || !FINAL.has(info[0])) {
    const change = await app.api.ask("PUT", `/2/jobs/${id}/wait`, { body: { fields: WATCHED, previous_job_info: info, previous_log_serial: serial } });
    if (change === null) continue;
    info = change.job_info;
    for (const entry of change.log_entries ?? []) {
      serial = entry[0];
      tell(messageOf(entry));
    }
  }
  return { status: info[0], results: info[1] };
}

export function failureOf(results) {
  const bad = results.find((each) => Array.isArray(each) && typeof each[0] === "string" && Array.isArray(each[1]));
  return bad ? String(bad[1][0]) : "";
}

// operation: {title, text, word, danger, method, path, in, fields, more, bodyOf, queryOf, pathOf, rehearsed, also, follow}
// also: answers a further request, which is submitted after it; follow: the page of the job is opened.
export class OperationPanel {
  constructor(app, operation, done) {
    Object.assign(this, { app, operation, done });
    this.wrong = el("p", { class: "wrong", role: "alert" });
    this.told = el("ol", { class: "log", hidden: true, "aria-live": "polite" });
    this.form = new Form(operation.fields ?? []);
    this.more = el("div");
    this.rehearse = el("button", { type: "button", hidden: true, click: () => this.#run(true) }, "Rehearse");
    this.submit = el("button", { type: "submit", class: operation.danger ? "main danger" : "main" }, operation.word);
    this.element = el("form", { class: "operation", novalidate: true, submit: (event) => { event.preventDefault(); this.#run(false); } },
      operation.text ? el("p", { class: "hint" }, operation.text) : null,
      this.form.element, this.more, this.wrong, this.told,
      el("div", { class: "buttons" }, operation.cancel ? el("button", { type: "button", class: "quiet", click: operation.cancel }, "Cancel") : null, this.rehearse, this.submit));
    this.#load();
  }

  async #load() {
    const { method, path, fields = [], more } = this.operation;
    try {
      const { schemas, properties, rehearses } = await schemaOf(this.app, method, path);
      this.rehearse.hidden = !rehearses;
      const known = new Set([...fields.map(({ name }) => name), ...(this.operation.without ?? [])]);
      const left = more ? schemaFields(properties, schemas, known) : [];
      if (!left.length) return;
      this.rest = new Form(left);
      this.more.replaceChildren(el("details", {}, el("summary", {}, "All settings"), this.rest.element));
    } catch (error) {
      this.wrong.textContent = error.message; // the form works without them
    }
  }

  async #run(isRehearsal) {
    const { operation, app } = this;
    this.wrong.textContent = "";
    let request;
    try {
      request = this.#request(isRehearsal);
    } catch (error) {
      if (!(error instanceof FormError)) throw error;
      this.wrong.textContent = error.message;
      return;
    }
    this.submit.disabled = this.rehearse.disabled = true;
    try {
      const id = await app.api.ask(operation.method, request.path, { body: request.body });
      if (isRehearsal) await this.#rehearsal(id);
      else {
        if (id === null) app.warnUntold(operation.title);
        else app.watch(id, operation.title);
        if (request.also) app.watch(await app.api.ask(request.also.method, request.also.path), operation.title);
        if (operation.follow) location.hash = `#/job/${id}`;
        this.done?.(id);
      }
    } catch (error) {
      this.wrong.textContent = error.message;
    }
    this.submit.disabled = this.rehearse.disabled = false;
  }

  #request(isRehearsal) {
    const { operation } = this;
    const values = this.form.values();
    const body = { ...(operation.bodyOf ? operation.bodyOf(values, isRehearsal) : values), ...(this.rest?.values() ?? {}) };
    const query = new URLSearchParams([["reason", "dashboard"], ...(isRehearsal ? [["dry-run", "1"]] : []), ...(operation.queryOf?.(values) ?? [])]);
    const path = filled(operation.path, { ...operation.in, ...operation.pathOf?.(values) });
    const isEmpty = operation.noBody || Object.keys(body).length === 0;
    const also = operation.also?.(values);
    if (also) also.path = `${filled(also.path, operation.in)}?${new URLSearchParams([["reason", "dashboard"], ...also.query])}`;
    return { path: `${path}?${query}`, also, body: operation.wholeBody ? operation.wholeBody(values) : isEmpty ? undefined : body };
  }

  async #rehearsal(id) {
    this.told.hidden = false;
    this.told.replaceChildren(el("li", {}, "Rehearsing: nothing is changed …"));
    const tell = (...text) => this.told.append(el("li", {}, ...text));
    const { status, results } = await waited(this.app, id, tell);
    if (status === "success") tell(...(this.operation.rehearsed?.(results[0]) ?? ["It can be done."]));
    else tell(el("span", { class: "wrong" }, failureOf(results) || `The job ended in ${status}.`));
    tell(link("job", id, `Job ${id}`));
  }
}

// Opens it in a dialog.
export function operate(app, operation) {
  const dialog = byId("operate");
  const close = () => dialog.close();
  const panel = new OperationPanel(app, { ...operation, cancel: close }, close);
  dialog.replaceChildren(el("h2", { id: "operate-title" }, operation.title), panel.element);
  dialog.showModal();
  dialog.querySelector("input, select, textarea")?.focus();
}

// A menu of operations; it lies above everything, so no table cuts it off.
export function operationMenu(app, operations, label) {
  if (!app.mayWrite || !operations.length) return null;
  const items = el("div", { class: "items", popover: "auto" }, operations.map(({ word, open, danger }) => el("button", {
    type: "button",
    class: danger ? "quiet danger" : "quiet",
    "data-operation": word,
    click: () => {
      items.hidePopover();
      open();
    },
  }, word)));
  const button = el("button", { type: "button", class: "more", "aria-label": label, "aria-haspopup": "true", "data-focus": label, click: () => items.togglePopover() }, "More …");
  const menu = el("span", { class: "menu" }, button, items);
  items.addEventListener("beforetoggle", ({ newState }) => menu.classList.toggle("open", newState === "open"));
  items.addEventListener("toggle", ({ newState }) => {
    if (newState !== "open") return;
    const place = button.getBoundingClientRect();
    items.style.left = `${Math.max(8, Math.min(place.left, document.documentElement.clientWidth - items.offsetWidth - 8))}px`;
    items.style.top = `${Math.max(8, Math.min(place.bottom + 4, innerHeight - items.offsetHeight - 8))}px`;
    items.querySelector("button").focus();
  });
  items.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = [...items.children];
    all[(all.indexOf(document.activeElement) + step + all.length) % all.length].focus();
  });
  return menu;
}
