// Tables that make their rows when they are about to be seen, and again only when they changed.

import { el } from "/ui/dom.js";

const CHUNK = 60;
const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

// Compares names as people do: node2 comes before node10.
export const inOrder = (one, other) => collator.compare(one, other);

function compare(one, other) {
  if (one === other) return 0;
  if (one === null || one === undefined) return 1;
  if (other === null || other === undefined) return -1;
  return typeof one === "number" && typeof other === "number" ? one - other : collator.compare(one, other);
}

export class Table {
  // columns: {name, cell(row), sort?(row), kind?}; key: row -> what tells it from others.
  constructor({ columns, key, label, empty, sortBy = 0, descending = false }) {
    Object.assign(this, { columns, key, empty, sortBy, descending });
    this.rows = [];
    this.made = new Map();
    this.shown = CHUNK;
    this.heads = columns.map((column, at) => this.#head(column, at));
    this.body = el("tbody");
    const closed = ({ newState }) => newState === "closed" && this.#render();
    this.body.addEventListener("toggle", closed, true); // a menu's; it does not bubble
    this.rest = el("p", { class: "empty" });
    const caption = el("caption", { class: "unseen" }, label);
    this.element = el("div", { class: "table" },
      el("table", {}, caption, el("thead", {}, el("tr", {}, this.heads)), this.body), this.rest);
    this.observer = new IntersectionObserver((seen) => {
      if (seen.some((each) => each.isIntersecting) && this.shown < this.rows.length) this.#more();
    }, { rootMargin: "600px" });
    this.observer.observe(this.rest);
  }

  close() {
    this.observer.disconnect();
  }

  update(rows) {
    this.all = rows;
    const { sort } = this.columns[this.sortBy];
    const sign = this.descending ? -1 : 1;
    this.rows = rows
      .map((row) => [sort ? sort(row) : null, row])
      .sort((one, other) => sign * compare(one[0], other[0]))
      .map(([, row]) => row);
    this.#render();
  }

  #head(column, at) {
    if (!column.sort) return el("th", { scope: "col" }, column.name);
    const turn = () => {
      this.descending = this.sortBy === at && !this.descending;
      this.sortBy = at;
      this.update(this.all);
    };
    return el("th", { scope: "col", class: column.kind }, el("button", { type: "button", click: turn }, column.name));
  }

  #more() {
    this.shown += CHUNK;
    this.#render();
    this.observer.unobserve(this.rest); // tells again if the end is still in sight
    this.observer.observe(this.rest);
  }

  #render() {
    this.heads.forEach((head, at) => {
      if (at === this.sortBy) head.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const made = new Map();
    const wanted = this.rows.slice(0, this.shown).map((row) => {
      const key = String(this.key(row));
      const known = this.made.get(key);
      // A menu that is open stays so; the row shows what is new once it is closed.
      const stays = known && (known.row === row || known.element.querySelector(".menu.open"));
      const found = stays ? known : { row, element: this.#row(row) };
      made.set(key, found);
      return found.element;
    });
    this.made = made;
    this.#place(wanted);
    const left = this.rows.length - wanted.length;
    this.element.classList.toggle("none", this.rows.length === 0);
    this.rest.textContent = left > 0 ? `${left} more` : this.rows.length ? "" : this.empty;
  }

  // Moves only what is not in its place, so that what has the focus keeps it.
  #place(wanted) {
    const focused = document.activeElement?.closest?.("[data-focus]")?.dataset.focus;
    const kept = new Set(wanted);
    for (const element of [...this.body.children]) if (!kept.has(element)) element.remove();
    wanted.forEach((element, at) => {
      const there = this.body.children[at];
      if (there !== element) this.body.insertBefore(element, there ?? null);
    });
    if (focused && !document.activeElement?.closest?.("[data-focus]")) {
      this.body.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    }
  }

  #row(row) {
    return el("tr", {}, this.columns.map((column) =>
      el("td", { "data-label": column.name, class: column.kind }, el("div", {}, column.cell(row)))));
  }
}
