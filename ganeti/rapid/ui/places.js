// Groups, networks and systems: lists, what can be done, and the address map of a network.

import { badge, el, facts, link } from "/ui/dom.js";
import { operate, operationMenu } from "/ui/operate.js";
import { operationsOf } from "/ui/operations.js";
import { POLICIES } from "/ui/policy.js";
import { Table } from "/ui/table.js";

const REFRESH_MS = 15_000;
const MAP_MAX = 4096; // addresses that are drawn
const G = "/2/groups/{group}";
const W = "/2/networks/{network}";
const text = (name, label, more = {}) => ({ name, label, kind: "text", ...more });
export const sure = (thing) => [{ name: "sure", label: `Write ${thing.name} to say yes`, kind: "text", required: true, sure: thing.name }];
const nothing = () => ({});
const tagged = [
  { word: "Add tags", method: "PUT", fields: () => [{ name: "tags", label: "Tags", kind: "words", required: true }] },
  { word: "Remove tags", method: "DELETE", fits: (thing) => thing.tags.length > 0, fields: (thing) => [{ name: "tags", label: "Tags", kind: "words", required: true, value: thing.tags.join(" "), always: true }] },
];
const tags = (path) => tagged.map(({ word, method, fits, fields }) => ({ word, fits, make: (_app, thing) => ({ method, path: `${path}/tags`, fields: fields(thing), queryOf: ({ tags: all = [] }) => all.map((tag) => ["tag", tag]), noBody: true }) }));

const GROUP = [
  { word: "Edit", make: () => ({ method: "PUT", path: `${G}/modify`, more: true }) },
  { word: "Rename", make: (_app, g) => ({ method: "PUT", path: `${G}/rename`, fields: [text("new_name", "New name", { required: true, value: g.name, always: true })] }) },
  { word: "Take nodes in", make: (app, g) => ({ method: "PUT", path: `${G}/assign-nodes`, text: "Nodes leave the group that they are in now.", fields: [{ name: "nodes", label: "Nodes", kind: "words", required: true, placeholder: app.nodes.filter((node) => node["group.uuid"] !== g.uuid).map(({ name }) => name).join(" ") }], more: true }) },
  { word: "Evacuate", make: () => ({ method: "POST", path: `${G}/evacuate`, text: "Moves its instances to other groups.", more: true }) },
  ...tags(G),
  ...POLICIES.group,
  { word: "Remove", danger: true, make: (_app, g) => ({ method: "DELETE", path: G, text: "Only a group without nodes can be removed.", fields: sure(g), bodyOf: nothing, noBody: true }) },
];

const NETWORK = [
  { word: "Connect to a group", make: (app) => ({ method: "PUT", path: `${W}/connect`, fields: [{ name: "group_name", label: "Group", kind: "choice", choices: app.groups.map(({ name }) => name), value: app.groups[0]?.name, always: true }, { name: "network_mode", label: "Mode", kind: "choice", choices: ["bridged", "routed", "openvswitch"], value: "bridged", always: true }, text("network_link", "Link", { required: true, value: "br0", always: true })], more: true }) },
  { word: "Disconnect from a group", make: (app) => ({ method: "PUT", path: `${W}/disconnect`, fields: [{ name: "group_name", label: "Group", kind: "choice", choices: app.groups.map(({ name }) => name), value: app.groups[0]?.name, always: true }] }) },
  { word: "Edit", make: () => ({ method: "PUT", path: `${W}/modify`, text: "add reserved ips and remove reserved ips are lists, such as [\"192.0.2.7\"].", more: true }) },
  ...tags(W),
  { word: "Remove", danger: true, make: (_app, n) => ({ method: "DELETE", path: W, fields: sure(n), bodyOf: nothing, noBody: true }) },
];

const NEW = {
  groups: { word: "New group", method: "POST", path: "/2/groups", fields: [text("name", "Name", { required: true })], more: true },
  networks: { word: "New network", method: "POST", path: "/2/networks", fields: [text("name", "Name", { required: true }), text("network", "Addresses", { placeholder: "192.0.2.0/24" }), text("gateway", "Gateway", { placeholder: "192.0.2.1" }), text("network6", "IPv6 addresses", { placeholder: "2001:db8::/64" }), text("gateway6", "IPv6 gateway", { placeholder: "2001:db8::1" }), { name: "tags", label: "Tags", kind: "words" }], more: true },
};

// A view that asks for its own list.
export class OwnListView {
  // of: {title, path, columns(app), key, label, rows?, add?, hint?, also?}; also: a path that adds to it
  constructor(app, of) {
    Object.assign(this, { app, of, title: of.title, asked: -Infinity });
    const add = of.add && app.mayWrite && el("button", { type: "button", class: "main", click: () => operate(app, { title: of.add.word, ...of.add, word: "Make it" }) }, of.add.word);
    this.table = new Table({ columns: of.columns(app), key: of.key, label: of.title, empty: of.empty ?? "None." });
    this.said = el("p", { class: "hint" }, of.hint ?? "");
    this.wrong = el("p", { class: "wrong" });
    this.element = el("section", {}, el("div", { class: "head" }, el("h1", {}, of.title), add), this.said, this.wrong, this.table.element);
  }

  async update(app) {
    const isNew = app.ended !== this.ended && !this.of.ask; // a job has ended: it may have changed this
    if (!isNew && app.words === this.words && performance.now() - this.asked < REFRESH_MS) return;
    Object.assign(this, { words: app.words, ended: app.ended, asked: performance.now() });
    try {
      const found = await (this.of.ask?.(app) ?? app.api.ask("GET", this.of.path));
      const more = this.of.also && (await app.api.ask("GET", this.of.also).catch(() => null));
      this.wrong.textContent = "";
      if (!this.isClosed) this.table.update((this.of.rows?.(found, app, more) ?? found).filter((row) => app.words.every((word) => JSON.stringify(row).toLowerCase().includes(word))));
    } catch (error) {
      this.wrong.textContent = error.message;
    }
  }

  close() {
    this.isClosed = true;
    this.table.close();
  }
}

const menu = (app, kind, thing, rows) => operationMenu(app, operationsOf(app, kind, thing, rows), `What can be done with ${thing.name}`) ?? "–";
const acts = (app, kind, rows) => (app.mayWrite ? [{ name: "Actions", cell: (thing) => menu(app, kind, thing, rows), kind: "acts" }] : []);
const tagCells = (thing) => (thing.tags.length ? thing.tags.map((tag) => el("span", { class: "tag" }, tag)) : "–");

export const groupsView = (app) => new OwnListView(app, {
  title: "Groups",
  path: "/2/groups?bulk=1",
  add: NEW.groups,
  key: (group) => group.name,
  columns: () => [
    { name: "Group", sort: (g) => g.name, cell: (g) => g.name, kind: "title" },
    { name: "Allocation", sort: (g) => g.alloc_policy, cell: (g) => badge(g.alloc_policy, { preferred: "green", last_resort: "amber" }[g.alloc_policy] ?? "grey") },
    { name: "Nodes", sort: (g) => g.node_cnt, cell: (g) => (g.node_list.length ? g.node_list.map((name, at) => [at ? ", " : "", link("node", name, name.split(".")[0])]).flat() : "none") },
    { name: "Disks", cell: (g) => g.ipolicy["disk-templates"].join(", ") },
    { name: "Tags", cell: tagCells },
    ...acts(app, "group", GROUP),
  ],
});

export const networksView = (app) => new OwnListView(app, {
  title: "Networks",
  path: "/2/networks?bulk=1",
  add: NEW.networks,
  key: (network) => network.name,
  columns: () => [
    { name: "Network", sort: (n) => n.name, cell: (n) => link("network", n.name), kind: "title" },
    { name: "Addresses", sort: (n) => n.network ?? n.network6, cell: (n) => [n.network, n.network6].filter(Boolean).join(", ") },
    { name: "Gateway", sort: (n) => n.gateway ?? n.gateway6, cell: (n) => n.gateway ?? n.gateway6 ?? "–" },
    { name: "Free", sort: (n) => n.free_count, cell: (n) => String(n.free_count ?? "–"), kind: "number" },
    { name: "Reserved", sort: (n) => n.reserved_count, cell: (n) => String(n.reserved_count ?? "–"), kind: "number" },
    { name: "Tags", cell: tagCells },
    ...acts(app, "network", NETWORK),
  ],
});

const number = (address) => address.split(".").reduce((all, part) => all * 256 + Number(part), 0);
const address = (value) => [24, 16, 8, 0].map((bits) => Math.floor(value / 2 ** bits) % 256).join(".");

// A dot for each address: X is taken, a dot is free.
function addressMap(network, instances) {
  if (!network.map || network.map.length > MAP_MAX) return el("p", { class: "hint" }, "A network of this size or kind is not drawn.");
  const [base, bits] = network.network.split("/");
  const begins = number(base) - (number(base) % 2 ** (32 - Number(bits)));
  const owners = new Map();
  for (const instance of instances) {
    instance["nic.ips"].forEach((ip, at) => instance["nic.networks.names"][at] === network.name && ip && owners.set(ip, instance.name));
  }
  const cells = [...network.map].map((mark, at) => {
    const ip = address(begins + at);
    const owner = owners.get(ip);
    const said = `${ip}: ${owner ?? (mark === "." ? "free" : ip === network.gateway ? "gateway" : "reserved")}`;
    if (owner) return el("a", { class: "used", href: link("instance", owner).hash, title: said, "aria-label": said });
    return el("span", { class: mark === "." ? "free" : "held", title: said });
  });
  return el("div", { class: "addresses", role: "img", "aria-label": `${owners.size} addresses of instances, ${network.free_count} free` }, cells);
}

// IPv6 has too many addresses to draw: those of instances are listed, and the ranges that are reserved.
function addressList(network, instances) {
  const given = instances.flatMap((instance) => instance["nic.ips"].flatMap((ip, at) => (ip?.includes(":") && instance["nic.networks.names"][at] === network.name ? [[ip, instance.name]] : [])));
  const kept = (network.external_reservations6 || "").split(", ").filter(Boolean).map((range) => [range, "reserved"]);
  const rows = [...(network.gateway6 ? [[network.gateway6, "gateway"]] : []), ...kept, ...given.slice(0, MAP_MAX).map(([ip, name]) => [ip, link("instance", name)])];
  return rows.length ? facts(rows) : el("p", { class: "hint" }, "No IPv6 address is given yet.");
}

export class NetworkView {
  constructor(name) {
    Object.assign(this, { title: name, name });
    this.body = el("div", {}, el("p", { class: "empty" }, "Asking …"));
    this.element = el("section", {}, el("h1", {}, name), this.body);
  }

  async update(app) {
    if (this.ended === app.ended && this.instances === app.instances) return;
    Object.assign(this, { ended: app.ended, instances: app.instances });
    try {
      const n = await app.api.ask("GET", `/2/networks/${encodeURIComponent(this.name)}`);
      this.body.replaceChildren(
        el("div", { class: "doing" }, menu(app, "network", n, NETWORK)),
        facts([["Addresses", n.network], ["Gateway", n.gateway], ["IPv6", n.network6], ["IPv6 gateway", n.gateway6], ["MAC prefix", n.mac_prefix], ["Free", n.free_count], ["Reserved", n.reserved_count],
          ["Groups", (n.group_list ?? []).map((each) => (Array.isArray(each) ? each.filter(Boolean).join(", ") : each)).join("; ") || "none"], ["Tags", n.tags.join(", ")]]),
        el("h2", {}, "Addresses"),
        el("p", { class: "legend" }, el("span", { class: "key used" }), " of an instance ", el("span", { class: "key held" }), " reserved ", el("span", { class: "key free" }), " free"),
        addressMap(n, app.instances),
        ...(n.network6 ? [el("h2", {}, "IPv6 addresses"), addressList(n, app.instances)] : []));
    } catch (error) {
      this.body.replaceChildren(el("p", { class: "wrong" }, error.message));
    }
  }

  close() {}
}

const OS = [
  { word: "Hide or refuse", make: () => ({ method: "PUT", path: "/2/os/{os}/modify", text: "A hidden system is not offered; one on the black list is refused.", more: true }) },
];

export const systemsView = (app) => new OwnListView(app, {
  title: "Systems",
  ask: () => app.systems(),
  hint: "Definitions of operating systems that every node has, with their variants.",
  key: (row) => row.name,
  rows: (names) => names.map((name) => ({ name })),
  columns: () => [
    { name: "System", sort: (row) => row.name, cell: (row) => row.name.split("+")[0], kind: "title" },
    { name: "Variant", cell: (row) => row.name.split("+")[1] ?? "–" },
    { name: "Instances", sort: (row) => count(app, row.name), cell: (row) => String(count(app, row.name)), kind: "number" },
    ...(app.mayWrite ? [{ name: "Actions", cell: (row) => menu(app, "os", { name: row.name.split("+")[0] }, OS), kind: "acts" }] : []),
  ],
});

const count = (app, name) => app.instances.filter((instance) => instance.os === name).length;
