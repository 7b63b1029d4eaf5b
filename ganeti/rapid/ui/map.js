// Which node backs which: a picture, and the same as a table.

import { nodesFound } from "/ui/cluster.js";
import { between, el, link, size, svg } from "/ui/dom.js";
import { Table, inOrder } from "/ui/table.js";

const SIDE = 640;
const CENTRE = SIDE / 2;
const RADIUS = 215;
const LABELS_MAX = 48; // more of them would cover each other
const WIDTH_MAX = 5;

// Answers, for each pair of primary and secondary node, which instances connect them.
export function pairs(instances) {
  const found = new Map();
  for (const instance of instances) {
    for (const secondary of instance.snodes) {
      const key = JSON.stringify([instance.pnode, secondary]);
      if (!found.has(key)) found.set(key, { from: instance.pnode, to: secondary, instances: [] });
      found.get(key).instances.push(instance);
    }
  }
  return [...found.values()];
}

const memoryOf = (pair) => pair.instances.reduce((sum, instance) => sum + instance.beparams.maxmem, 0);
const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

function picture(nodes, edges) {
  const places = new Map(nodes.map((node, at) => {
    const angle = (2 * Math.PI * at) / nodes.length - Math.PI / 2;
    return [node.name, { x: CENTRE + RADIUS * Math.cos(angle), y: CENTRE + RADIUS * Math.sin(angle), angle }];
  }));
  const most = Math.max(1, ...edges.map((edge) => edge.instances.length));
  const lines = edges.filter(({ from, to }) => places.has(from) && places.has(to)).map((edge) => line(edge, places, most));
  const dots = nodes.map((node) => dot(node, places.get(node.name), nodes.length <= LABELS_MAX));
  const arrow = svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 17, markerHeight: 17, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0 0 8 4 0 8z" }));
  return svg("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, role: "img", "aria-label": "Lines from each node to those that back its instances; the table says the same" }, svg("defs", {}, arrow), lines, dots);
}

// Bends to one side, so that the lines of both directions are apart; ends at the rim of the dot.
function line(edge, places, most) {
  const [from, to] = [places.get(edge.from), places.get(edge.to)];
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  const bend = [(from.x + to.x) / 2 - dy * 0.13, (from.y + to.y) / 2 + dx * 0.13];
  const back = 18 / length;
  const end = [to.x - dx * back - (dy * back) * 0.25, to.y - dy * back + (dx * back) * 0.25];
  const text = `${edge.to} backs ${count(edge.instances.length, "instance")} of ${edge.from}`;
  return svg("path", {
    class: "edge",
    d: `M${from.x} ${from.y}Q${bend[0]} ${bend[1]} ${end[0]} ${end[1]}`,
    "stroke-width": (1.5 + (WIDTH_MAX - 1.5) * (edge.instances.length / most)).toFixed(1),
    "marker-end": "url(#arrow)",
  }, svg("title", {}, text));
}

function dot(node, place, hasLabel) {
  const [x, y] = [CENTRE + (RADIUS + 24) * Math.cos(place.angle), CENTRE + (RADIUS + 24) * Math.sin(place.angle)];
  const side = Math.cos(place.angle);
  const anchor = Math.abs(side) < 0.2 ? "middle" : side > 0 ? "start" : "end";
  return svg("a", { href: link("node", node.name).hash, class: node.offline ? "dot away" : "dot", "aria-label": node.name },
    svg("title", {}, `${node.name}: ${count(node.pinst_cnt, "instance")}, backs ${node.sinst_cnt}`),
    svg("circle", { cx: place.x, cy: place.y, r: 13 }),
    svg("text", { x: place.x, y: place.y, class: "number" }, String(node.pinst_cnt)),
    hasLabel && svg("text", { x, y, "text-anchor": anchor }, node.name.split(".")[0]));
}

export class MapView {
  constructor() {
    this.title = "Map";
    this.picture = el("figure", { class: "map" });
    this.edges = [];
    const named = (list, other) => (list.length ? between(list.map((pair) => el("span", { class: "whole" }, link("node", pair[other], pair[other].split(".")[0]), ` ${pair.instances.length} (${size(memoryOf(pair))})`))) : "–");
    const of = (side, name) => this.edges.filter((pair) => pair[side] === name);
    this.table = new Table({
      columns: [
        { name: "Node", sort: (row) => row.name, cell: (row) => link("node", row.name, row.name.split(".")[0]), kind: "title" },
        { name: "Its instances are backed by", sort: (row) => of("from", row.name).length, cell: (row) => named(of("from", row.name), "to") },
        { name: "It backs instances of", sort: (row) => of("to", row.name).length, cell: (row) => named(of("to", row.name), "from") },
        { name: "Not backed", sort: (row) => row.alone, cell: (row) => String(row.alone), kind: "number" },
      ],
      key: (row) => row.name,
      label: "Which node backs which",
      empty: "No nodes to show.",
    });
    this.element = el("section", {}, el("h1", {}, "Who backs whom"),
      el("p", { class: "hint" }, "An arrow points to the node that takes over when the one where it starts fails. A number says how many instances run on a node."),
      el("div", { class: "split" }, this.picture, this.table.element));
  }

  update(app) {
    const shown = nodesFound(app);
    if (app.instances === this.instances && app.nodes === this.nodes && app.words === this.words) return;
    Object.assign(this, { instances: app.instances, nodes: app.nodes, words: app.words, edges: pairs(app.instances) });
    const nodes = [...app.nodes].sort((one, other) => inOrder(one.name, other.name));
    const hadFocus = this.picture.contains(document.activeElement) && document.activeElement.getAttribute("href");
    this.picture.replaceChildren(picture(nodes, this.edges));
    if (hadFocus) this.picture.querySelector(`a[href="${CSS.escape(hadFocus)}"]`)?.focus();
    const alone = new Map();
    for (const { pnode, snodes } of app.instances) if (!snodes.length) alone.set(pnode, (alone.get(pnode) ?? 0) + 1);
    this.table.update(nodes.filter((node) => shown.includes(node)).map(({ name }) => ({ name, alone: alone.get(name) ?? 0 })));
  }

  close() {
    this.table.close();
  }
}
