// Curves of what a node or an instance used, in the last hour and the last day.

import { el, size, svg } from "/ui/dom.js";

const PAUSE_MS = 60_000;
const [WIDTH, HEIGHT] = [300, 84];
const KIB = 1024;
const SPANS = { hour: [3600, "Last hour"], day: [86400, "Last day"] };

function rate(bytes) {
  const units = ["B/s", "KiB/s", "MiB/s", "GiB/s"];
  let at = 0;
  while (bytes >= KIB && at < units.length - 1) {
    bytes /= KIB;
    at += 1;
  }
  return `${bytes >= 100 || at === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[at]}`;
}

// What is drawn: title, fields with their words, how a value is told, what the axis shows at least.
const CURVES = [
  { title: "Processors busy", fields: { cpu: "" }, tell: (value) => value.toFixed(2), least: 0.1, most: ({ cpus }) => cpus },
  { title: "Memory", fields: { memory: "" }, tell: size, least: 1, most: ({ memory }) => memory },
  { title: "Disks", fields: { disk_read: "read", disk_written: "written" }, tell: rate, least: KIB },
  { title: "Network", fields: { net_in: "in", net_out: "out" }, tell: rate, least: KIB },
];

function line(points, at, begins, seconds, most, kind) {
  const place = (point) => [((point[0] - begins) / seconds) * WIDTH, HEIGHT - 2 - (Math.min(point[at], most) / most) * (HEIGHT - 6)].map((each) => each.toFixed(1));
  const path = points.map((point, number) => `${number ? "L" : "M"}${place(point).join(" ")}`).join("");
  const only = points.length === 1 ? place(points[0]) : null;
  return only ? svg("circle", { class: kind, cx: only[0], cy: only[1], r: 2 }) : svg("path", { class: kind, d: path });
}

function curve({ title, fields, tell, least, most }, found, span, limits) {
  const [seconds] = SPANS[span];
  const now = Date.now() / 1000;
  const points = found[span].filter(([time]) => time >= now - seconds);
  const names = Object.entries(fields).map(([name, word]) => [found.fields.indexOf(name), word]);
  const peak = Math.max(least, ...points.flatMap((point) => names.map(([at]) => point[at])));
  const top = Math.max(peak, most?.(limits) ?? 0);
  const last = points.at(-1);
  const told = last ? names.map(([at, word]) => `${word} ${tell(last[at])}`.trim()).join(", ") : "no values yet";
  return el("figure", { class: "curve" },
    el("figcaption", {}, el("span", {}, title), el("strong", {}, told)),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${told}; at most ${tell(peak)}` },
      points.length ? names.map(([at], number) => line(points, at, now - seconds, seconds, top, number ? "second" : "first")) : []),
    el("span", { class: "small" }, `${top > peak * 1.001 ? "all:" : "most:"} ${tell(top)}`));
}

export class Curves {
  constructor(kind, name) {
    Object.assign(this, { kind, name, span: "hour", found: null, asked: -Infinity });
    this.body = el("div", { class: "curves" });
    this.said = el("p", { class: "hint" });
    this.buttons = Object.entries(SPANS).map(([span, [, word]]) => el("button", { type: "button", "data-span": span, "aria-pressed": String(span === this.span), click: () => this.#choose(span) }, word));
    this.element = el("div", { class: "usage", hidden: true }, el("div", { class: "head" }, el("h2", {}, "Usage"), el("span", { class: "spans" }, this.buttons)), this.said, this.body);
  }

  #choose(span) {
    this.span = span;
    this.buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.span === span)));
    this.#draw();
  }

  // limits: how many processors and how much memory there are.
  async update(app, limits) {
    this.limits = limits;
    if (performance.now() - this.asked < PAUSE_MS || this.isClosed) return;
    this.asked = performance.now();
    try {
      this.found = await app.api.ask("GET", `/2/${this.kind}s/${encodeURIComponent(this.name)}/usage`);
      this.why = this.found ? this.found.problem ?? "" : "Its node keeps no values of it.";
    } catch (error) {
      this.why = error.message;
    }
    this.#draw();
  }

  #draw() {
    this.element.hidden = false;
    this.said.textContent = this.why ?? "";
    this.body.replaceChildren(...(this.found && !this.found.problem ? CURVES.map((each) => curve(each, this.found, this.span, this.limits)) : []));
  }

  close() {
    this.isClosed = true;
  }
}
