// Choosing many instances, and doing the same to all of them.

import { el } from "/ui/dom.js";
import { confirmed } from "/ui/dialog.js";

export class Selection {
  // actions: {word, method, verb, fits(thing), single?(thing): whether it needs no more to be said}
  constructor(app, actions, found) {
    Object.assign(this, { app, actions, found });
    this.names = new Set();
    this.count = el("span", {});
    this.buttons = actions.map((action) => el("button", { type: "button", "data-bulk": action.verb, click: () => this.#act(action) }, action.word));
    this.element = el("div", { class: "bulk", role: "toolbar", "aria-label": "With the chosen ones", hidden: true }, this.count, this.buttons,
      el("button", { type: "button", class: "quiet", click: () => this.#choose(this.found(app).map(({ name }) => name)) }, "Choose all"),
      el("button", { type: "button", class: "quiet", click: () => this.#choose([]) }, "Choose none"));
    this.boxes = new Map();
  }

  box(thing) {
    const box = el("input", {
      type: "checkbox",
      checked: this.names.has(thing.name),
      "aria-label": `Choose ${thing.name}`,
      "data-focus": `choose ${thing.name}`,
      change: () => {
        if (box.checked) this.names.add(thing.name);
        else this.names.delete(thing.name);
        this.show();
      },
    });
    this.boxes.set(thing.name, box);
    return box;
  }

  #choose(names) {
    this.names = new Set(names);
    this.boxes.forEach((box, name) => { box.checked = this.names.has(name); });
    this.show();
  }

  #chosen() {
    return this.app.instances.filter(({ name }) => this.names.has(name));
  }

  show() {
    const things = this.#chosen();
    this.element.hidden = this.names.size === 0;
    this.count.textContent = `${things.length} chosen`;
    this.buttons.forEach((button, at) => {
      const fitting = things.filter((thing) => this.#fits(this.actions[at], thing)).length;
      button.textContent = `${this.actions[at].word} ${fitting}`;
      button.disabled = fitting === 0;
    });
  }

  #fits(action, thing) {
    return action.fits(thing) && !action.choices?.(thing, this.app.nodes);
  }

  async #act(action) {
    const things = this.#chosen().filter((thing) => this.#fits(action, thing));
    const names = things.map(({ name }) => name);
    const text = `${names.slice(0, 8).join(", ")}${names.length > 8 ? ` and ${names.length - 8} more` : ""}`;
    if (await confirmed({ title: `${action.word} ${names.length} ${names.length === 1 ? "instance" : "instances"}?`, text, word: action.word }) === null) return;
    const failed = [];
    for (const name of names) {
      try {
        this.app.watched.add(await this.app.api.ask(action.method, `/2/instances/${encodeURIComponent(name)}/${action.verb}?reason=dashboard`));
      } catch (error) {
        failed.push(`${name}: ${error.message}`);
      }
    }
    if (names.length > failed.length) this.app.tell("blue", `${action.word}: ${names.length - failed.length} jobs were submitted.`);
    if (failed.length) this.app.tell("red", `${failed.length} were refused. ${failed[0]}`);
    this.#choose([]);
    this.app.refresh();
  }
}
