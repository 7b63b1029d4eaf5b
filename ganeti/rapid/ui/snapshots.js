// The snapshots of an instance; a job finds out which there are.

import { el, when } from "/ui/dom.js";
import { failureOf, operate, waited } from "/ui/operate.js";

const PATH = "/2/instances/{instance}/snapshots";

export class Snapshots {
  constructor(name) {
    this.name = name;
    this.list = el("div");
    this.element = el("details", { class: "snapshots", toggle: () => this.element.open && this.#load() }, el("summary", {}, "Snapshots"), this.list);
  }

  // Asks anew once a job has ended, if they are looked at.
  update(app) {
    this.element.hidden = !app.mayWrite;
    const isNew = this.app && this.ended !== app.ended;
    Object.assign(this, { app, ended: app.ended });
    if (isNew && this.element.open && this.wasOurs) this.#load();
  }

  async #load() {
    this.wasOurs = false;
    if (!this.list.children.length) this.list.replaceChildren(el("p", { class: "empty" }, "Asking …"));
    try {
      const id = await this.app.api.ask("POST", `/2/instances/${encodeURIComponent(this.name)}/snapshots/list`);
      const { status, results } = await waited(this.app, id);
      if (status !== "success") throw new Error(failureOf(results));
      this.list.replaceChildren(...this.#rows(results[0]));
    } catch (error) {
      this.list.replaceChildren(el("p", { class: "wrong" }, error.message));
    }
  }

  #rows(found) {
    if (!found.length) return [el("p", { class: "empty" }, "There are none.")];
    return [el("ul", { class: "plain" }, found.map(([name, time, disks]) => el("li", {}, el("strong", {}, name), ` ${when([time, 0], true)}, disks ${disks.join(", ")} `,
      el("span", { class: "actions" }, this.#button("Go back", "restore", name, "All that was written since is lost."), this.#button("Remove", "remove", name, "The disks stay as they are.")))))];
  }

  #button(word, action, name, text) {
    const click = () => {
      this.wasOurs = true;
      operate(this.app, { title: `${word}: ${name} of ${this.name}`, word, danger: true, text, method: "POST", path: PATH, in: { instance: this.name }, bodyOf: () => ({ action, snapshot_name: name }) });
    };
    return el("button", { type: "button", "aria-label": `${word}: ${name}`, click }, word);
  }
}
