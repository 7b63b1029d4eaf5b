// Nodes and instances: overview, lists, one of each, and what can be done to an instance.

import { badge, bar, between, el, facts, link, size } from "/ui/dom.js";
import { Curves } from "/ui/curves.js";
import { jobsAbout } from "/ui/about.js";
import { jobTable } from "/ui/jobs.js";
import { operationMenu } from "/ui/operate.js";
import { operationsOf } from "/ui/operations.js";
import { effective } from "/ui/policy.js";
import { Selection } from "/ui/select.js";
import { Snapshots } from "/ui/snapshots.js";
import { Table, inOrder } from "/ui/table.js";

const ROLES = { M: "master", C: "master candidate", R: "regular", D: "drained", O: "offline" };
const ROLE_TONES = { M: "blue", C: "green", R: "green", D: "amber", O: "red" };
const ROOM_WEEKS = 4; // less than this is marked
const WARNINGS_MAX = 3; // in a card
const SHARED = new Set(["blockdev", "diskless", "ext", "gluster", "rbd", "sharedfile"]);

const isUp = (instance) => instance.oper_state === true;
const templatesOf = (instance) => instance["disk.templates"] ?? [instance.disk_template];
const canMigrate = (instance) => isUp(instance) && templatesOf(instance).every((each) => each === "drbd" || SHARED.has(each));
const targets = (instance, nodes) => {
  const home = nodes.find((node) => node.name === instance.pnode);
  const fits = (node) => node !== home && !node.offline && !node.drained && node.vm_capable && node["group.uuid"] === home?.["group.uuid"];
  return nodes.filter(fits).map((node) => node.name).sort(inOrder);
};
const ACTIONS = [
  { word: "Start", method: "PUT", verb: "startup", fits: (instance) => !isUp(instance), text: (i) => `It will run on ${i.pnode}.` },
  { word: "Stop", method: "PUT", verb: "shutdown", fits: isUp, text: (i) => `It runs on ${i.pnode} and will be shut down.` },
  { word: "Reboot", method: "POST", verb: "reboot", fits: isUp, text: () => "What runs in it is interrupted." },
  {
    word: "Migrate",
    method: "PUT",
    verb: "migrate",
    fits: canMigrate,
    text: (i) => `It moves from ${i.pnode} to ${i.snodes[0] ?? "the chosen node"} while it runs.`,
    choices: (i, nodes) => (i.snodes.length ? null : { label: "To node", values: targets(i, nodes) }),
    bodyOf: (i) => (i.snodes.length ? undefined : (chosen) => ({ target_node: chosen })),
  },
];

const short = (name) => name.split(".")[0];

function stateBadge(instance) {
  const status = instance.status ?? "unknown";
  if (status === "running") return badge("running", "green");
  if (/^(ADMIN|USER)_(down|offline)$/.test(status)) return badge(status.includes("offline") ? "offline" : "stopped", "grey");
  return badge(status.replace("_", ": "), "red");
}

// What is to be said of the copies of mirrored disks: nothing while they are up to date.
const COPY_TONES = { degraded: "red", faulty: "red", unknown: "amber" };
const COPY_WORDS = { degraded: "copy out of date", faulty: "data unusable", unknown: "copy not known" };
const copyOf = (instance, at) => ({ state: instance["disk.copies"]?.[at], percent: instance["disk.copied"]?.[at] });

function copyMark({ state, percent }, detailed = false) {
  if (state === "syncing") return el("span", { class: "copy" }, badge("syncing", "blue"), bar(percent, 100, `${percent.toFixed(1)} %`, "blue"));
  if (state in COPY_TONES) return badge(COPY_WORDS[state], COPY_TONES[state]);
  if (!detailed || !state) return null;
  return badge(state === "inactive" ? "copy not active" : `copy ${state}`, state === "inactive" ? "grey" : "green");
}

// Of all disks the one that needs most to be looked at.
function worstCopy(instance) {
  const copies = (instance["disk.copies"] ?? []).map((_, at) => copyOf(instance, at));
  const of = (wanted) => copies.filter(({ state }) => state === wanted);
  const [first] = [...of("faulty"), ...of("degraded"), ...of("syncing").sort((a, b) => a.percent - b.percent), ...of("unknown")];
  return first && copyMark(first);
}

const isCopyBad = (instance) => (instance["disk.copies"] ?? []).some((state) => state === "degraded" || state === "faulty");
const backedBy = (i) => (i.snodes.length ? [...between(i.snodes.map((name) => link("node", name, short(name)))), " ", worstCopy(i)] : "–");

export function actions(instance, app) {
  if (!app.mayWrite) return null;
  return el("span", { class: "actions" }, ACTIONS.filter(({ fits }) => fits(instance)).map((action) => el("button", {
    type: "button",
    "data-focus": `${action.verb} ${instance.name}`,
    "aria-label": `${action.word} ${instance.name}`,
    click: () => app.act({
      word: action.word,
      method: action.method,
      choices: action.choices?.(instance, app.nodes),
      bodyOf: action.bodyOf?.(instance),
      path: `/2/instances/${encodeURIComponent(instance.name)}/${action.verb}?reason=dashboard`,
      title: `${action.word} ${instance.name}?`,
      text: action.text(instance),
    }),
  }, action.word)));
}

// The ways to the console that its parameters name; they open in a tab of their own, as the same user.
function consoles(instance, app) {
  const { hvparams = {} } = instance;
  if (!app.mayWrite || !isUp(instance)) return null;
  const ways = [hvparams.serial_console !== false && ["serial", "Console"], hvparams.vnc_bind_address && ["graphics", "Screen"]].filter(Boolean);
  return el("span", { class: "actions" }, ways.map(([way, word]) => el("a", { class: "button", href: `/ui/console.html#${encodeURIComponent(instance.name)}/${way}`, target: "_blank", rel: "opener" }, word)));
}

const tagList = (tags) => (tags.length ? [...tags].sort().map((tag) => el("span", { class: "tag" }, tag)) : ["–"]);

function instanceTable(app, label, empty = "No instances to show.", selection = null) {
  const columns = [
    { name: "Instance", sort: (i) => i.name, cell: (i) => el("a", { href: link("instance", i.name).hash, "data-focus": i.name }, i.name), kind: "title" },
    { name: "State", sort: (i) => i.status, cell: stateBadge },
    { name: "Node", sort: (i) => i.pnode, cell: (i) => link("node", i.pnode, short(i.pnode)) },
    { name: "Backed by", sort: (i) => i.snodes[0] ?? "", cell: backedBy },
    { name: "Memory", sort: (i) => i.beparams.maxmem, cell: (i) => size(i.beparams.maxmem), kind: "number" },
    { name: "CPUs", sort: (i) => i.beparams.vcpus, cell: (i) => String(i.beparams.vcpus), kind: "number" },
    { name: "System", sort: (i) => i.os, cell: (i) => i.os || "–" },
  ];
  if (app.mayWrite) columns.push({ name: "Actions", cell: (i) => actions(i, app), kind: "acts" });
  if (selection) columns.unshift({ name: "", cell: (i) => selection.box(i), kind: "choose" });
  return new Table({ columns, key: (i) => i.name, label, empty, sortBy: selection ? 1 : 0 });
}

const memory = (node) => (typeof node.mtotal === "number" ? bar(node.mtotal - node.mfree, node.mtotal, `${size(node.mtotal - node.mfree)} of ${size(node.mtotal)}`) : "–");
const disk = (node) => (typeof node.dtotal === "number" && node.dtotal > 0 ? bar(node.dtotal - node.dfree, node.dtotal, `${size(node.dtotal - node.dfree)} of ${size(node.dtotal)}`) : "–");
const share = (total, free) => (typeof total === "number" && total > 0 ? (total - free) / total : null);
const roleBadge = (node) => badge(ROLES[node.role] ?? node.role, ROLE_TONES[node.role] ?? "grey");

function nodeTable(label) {
  return new Table({
    columns: [
      { name: "Node", sort: (n) => n.name, cell: (n) => el("a", { href: link("node", n.name).hash, "data-focus": n.name }, n.name), kind: "title" },
      { name: "Role", sort: (n) => ROLES[n.role], cell: roleBadge },
      { name: "Memory in use", sort: (n) => share(n.mtotal, n.mfree), cell: memory },
      { name: "Disk in use", sort: (n) => share(n.dtotal, n.dfree), cell: disk },
      { name: "CPUs", sort: (n) => n.ctotal, cell: (n) => String(n.ctotal ?? "–"), kind: "number" },
      { name: "Instances", sort: (n) => n.pinst_cnt, cell: (n) => String(n.pinst_cnt), kind: "number" },
      { name: "Backs", sort: (n) => n.sinst_cnt, cell: (n) => String(n.sinst_cnt), kind: "number" },
    ],
    key: (n) => n.name,
    label,
    empty: "No nodes to show.",
  });
}

// Searching: the text of each thing is made once.
const texts = new WeakMap();

export function found(things, words, textOf) {
  if (!words.length) return things;
  return things.filter((thing) => {
    if (!texts.has(thing)) texts.set(thing, textOf(thing).filter(Boolean).join(" ").toLowerCase());
    const text = texts.get(thing);
    return words.every((word) => text.includes(word));
  });
}

export const instancesFound = (app) => found(app.instances, app.words, (i) => [i.name, i.status, stateBadge(i).textContent, worstCopy(i)?.textContent, i.pnode, ...i.snodes, i.os, i.disk_template, ...i.tags, ...i["nic.ips"]]);
export const nodesFound = (app) => found(app.nodes, app.words, (n) => [n.name, ROLES[n.role], n.pip, ...n.tags]);

class ListView {
  constructor(title, table, rows, head = null, selection = null) {
    Object.assign(this, { title, table, rows, selection });
    this.hint = el("p", { class: "hint" });
    this.element = el("section", {}, el("div", { class: "head" }, el("h1", {}, title), head), this.hint, selection?.element ?? "", table.element);
  }

  update(app) {
    this.hint.textContent = app.lacks;
    this.table.update(this.rows(app));
    this.selection?.show();
  }

  close() {
    this.table.close();
  }
}

export const nodesView = () => new ListView("Nodes", nodeTable("Nodes"), nodesFound);
export function instancesView(app) {
  const selection = app.mayWrite ? new Selection(app, ACTIONS, instancesFound) : null;
  const table = instanceTable(app, "Instances", undefined, selection);
  return new ListView("Instances", table, instancesFound, selection && el("a", { class: "button main", href: "#/create" }, "New instance"), selection);
}

function card(title, number, text, href, tone = "") {
  return el("a", { class: `card ${tone}`, href }, el("span", { class: "small" }, title), el("strong", {}, String(number)), el("span", { class: "small" }, text));
}

// How many more instances fit, of which size; what the cluster lacks first, and when.
function roomTexts(room) {
  if (!room) return ["…", ["being counted"]];
  if (room.error) return ["–", [room.error.message]];
  const { count, lacking, memory: each, disk: space, vcpus, growth } = room;
  const weeks = growth && Math.floor(growth.weeks);
  const lasts = weeks === 0 ? "less than a week" : `${weeks}${growth?.lacking ? "" : "+"} ${weeks === 1 ? "week" : "weeks"}`;
  return [`${count}${lacking || count === 0 ? "" : "+"}`, [
    `more of ${size(each)}, disks of ${size(space)}, ${vcpus} ${vcpus === 1 ? "CPU" : "CPUs"}`,
    lacking ? `limited by ${lacking}` : count ? "and no limit is near" : "no node can take any",
    growth ? `enough for ${lasts} at the growth of late` : "the cluster does not grow",
  ]];
}

function roomCard(room) {
  const [number, texts] = roomTexts(room);
  const isShort = room?.count === 0 || (room?.growth && room.growth.weeks < ROOM_WEEKS);
  const found = card("Room", number, texts[0], "#/nodes", isShort ? "amber" : "");
  found.append(...texts.slice(1).map((text) => el("span", { class: "small" }, text)));
  return found;
}

// Whether a dead node's instances would start elsewhere; nothing where nobody wants that.
function availabilityCards(status) {
  if (!status) return [];
  if (status.error) return [card("High availability", "–", status.error.message, "#/nodes", "amber")];
  const { warnings, holder, trouble, nodes, paused_until: until } = status;
  const isBad = trouble || nodes.some(({ lease }) => lease === "missed" || lease === "dead");
  const word = trouble ? "idle" : until ? "paused" : warnings.length ? "look" : "ready";
  const texts = warnings.length ? warnings : [`${holder} leads, ${status.may_take_over.length} may take over`];
  const found = card("High availability", word, texts[0], "#/nodes", isBad ? "red" : warnings.length ? "amber" : "");
  found.append(...texts.slice(1, WARNINGS_MAX).map((text) => el("span", { class: "small" }, text)));
  if (until) found.append(el("span", { class: "small" }, `until ${new Date(until * 1000).toLocaleString()}, by ${status.paused_by}: ${status.paused_why}`));
  return [found];
}

export class OverviewView {
  constructor(app) {
    this.title = "Overview";
    this.cards = el("div", { class: "cards" });
    this.tables = [nodeTable("Nodes"), instanceTable(app, "Instances that need a look", "None."), jobTable("Latest jobs")];
    this.second = el("h2");
    const [nodes, instances, jobs] = this.tables.map((table) => table.element);
    this.element = el("section", {}, el("h1", { class: "unseen" }, "Overview"), this.cards,
      el("h2", {}, "Nodes"), nodes, this.second, instances, el("h2", {}, "Latest jobs"), jobs);
  }

  update(app) {
    const up = app.instances.filter(isUp);
    const bad = app.instances.filter((i) => /^ERROR/.test(i.status ?? "") || isCopyBad(i));
    const away = app.nodes.filter((n) => n.offline || n.drained);
    const open = app.jobs.filter((job) => job.isOpen);
    const sum = (of) => app.nodes.reduce((all, n) => all + (typeof n[of] === "number" ? n[of] : 0), 0);
    this.cards.replaceChildren(
      card("Nodes", app.nodes.length, away.length ? `${away.length} offline or drained` : "all in use", "#/nodes", away.length ? "amber" : ""),
      card("Instances", app.instances.length, `${up.length} running`, "#/instances"),
      card("Trouble", bad.length, bad.length ? "instances with errors or bad copies" : "none", "#/instances", bad.length ? "red" : ""),
      card("Jobs", `${open.length}${app.hasOlderJobs && app.jobs.at(-1).isOpen ? "+" : ""}`, "waiting or running", "#/jobs"),
      card("Memory", size(sum("mfree")), `free of ${size(sum("mtotal"))}`, "#/nodes"),
      ...availabilityCards(app.availability),
      roomCard(app.room),
    );
    const isSearch = app.words.length > 0;
    this.second.textContent = isSearch ? "Instances found" : "Instances that need a look";
    this.tables[0].update(nodesFound(app));
    this.tables[1].update(isSearch ? instancesFound(app) : bad);
    this.tables[2].update(app.jobsFound().slice(0, 10));
  }

  close() {
    this.tables.forEach((table) => table.close());
  }
}

// One thing; it is drawn again when it changed.
class OneView {
  constructor(kind, name) {
    Object.assign(this, { title: name, kind, name });
    this.body = el("div");
    this.curves = new Curves(kind, name);
    this.jobs = jobTable(`Latest jobs about ${name}`);
    this.older = el("p", { class: "hint" });
    this.element = el("section", {}, el("h1", {}, name), this.body, this.curves.element, el("h2", {}, "Latest jobs"), this.jobs.element, this.older);
  }

  update(app) {
    this.older.textContent = app.hasOlderJobs ? `Of the newest ${app.jobs.length} jobs; the list of jobs can show more.` : "";
    const thing = app[`${this.kind}s`].find((each) => each.name === this.name);
    this.jobs.update(jobsAbout(app.jobs, this.kind, this.name, app[`${this.kind}s`]).slice(0, 10));
    if (thing) this.curves.update(app, this.limits(thing));
    const around = this.around?.(thing, app);
    if (thing && thing === this.drawn && around === this.drawnAround) return;
    Object.assign(this, { drawn: thing, drawnAround: around });
    const focused = document.activeElement?.dataset?.focus;
    this.body.replaceChildren(...(thing ? this.draw(thing, app) : [el("p", { class: "empty" }, `There is no ${this.kind} of this name.`)]));
    if (focused) this.body.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  }

  close() {
    this.jobs.close();
    this.curves.close();
  }
}

function backupsOf(instance, app) {
  const { of, text } = effective(app, instance);
  return of ? `${text} (${of === "itself" ? "its own policy" : `policy of ${of}`})` : "no policy";
}

export class InstanceView extends OneView {
  constructor(name) {
    super("instance", name);
    this.snapshots = new Snapshots(name);
    this.body.after(this.snapshots.element);
  }

  update(app) {
    super.update(app);
    this.snapshots.update(app);
  }

  // What is shown of it that other objects say.
  around(i, app) {
    return i && backupsOf(i, app);
  }

  limits(i) {
    return { cpus: i.beparams.vcpus, memory: i.beparams.maxmem };
  }

  draw(i, app) {
    const nics = i["nic.macs"].map((mac, at) => el("div", {}, between([mac, i["nic.ips"][at], i["nic.networks.names"][at], i["nic.links"][at]].filter(Boolean), " · ")));
    const disks = i["disk.sizes"].map((mib, at) => el("div", {}, `${i["disk.names"][at] ?? `disk ${at}`}: ${size(mib)} `, copyMark(copyOf(i, at), true)));
    return [
      el("div", { class: "doing" }, stateBadge(i), actions(i, app), consoles(i, app), operationMenu(app, operationsOf(app, "instance", i), `More for ${i.name}`)),
      app.lacks && el("p", { class: "hint" }, app.lacks),
      facts([
        ["Node", link("node", i.pnode)],
        ["Backed by", i.snodes.length ? between(i.snodes.map((name) => link("node", name))) : "no other node"],
        ["Wanted state", i.admin_state],
        ["Memory", i.beparams.minmem === i.beparams.maxmem ? size(i.beparams.maxmem) : `${size(i.beparams.minmem)} to ${size(i.beparams.maxmem)}`],
        ["CPUs", i.beparams.vcpus],
        ["System", i.os],
        ["Disks", disks.length ? [el("div", {}, i.disk_template), ...disks] : i.disk_template],
        ["Networks", nics.length ? nics : "none"],
        ["Backups", backupsOf(i, app)],
        ["Tags", tagList(i.tags)],
        ["UUID", i.uuid],
      ]),
    ];
  }
}

export class NodeView extends OneView {
  constructor(name, app) {
    super("node", name);
    this.here = instanceTable(app, `Instances on ${name}`);
    this.backed = instanceTable(app, `Instances that ${name} backs`);
    this.body.after(el("h2", {}, "Runs here"), this.here.element, el("h2", {}, "Would be taken over from others"), this.backed.element);
  }

  limits(n) {
    return { cpus: n.ctotal, memory: n.mtotal };
  }

  update(app) {
    super.update(app);
    this.here.update(app.instances.filter((i) => i.pnode === this.name));
    this.backed.update(app.instances.filter((i) => i.snodes.includes(this.name)));
  }

  close() {
    super.close();
    this.here.close();
    this.backed.close();
  }

  draw(n, app) {
    return [
      el("div", { class: "doing" }, roleBadge(n), operationMenu(app, operationsOf(app, "node", n), `More for ${n.name}`)),
      facts([
        ["Address", n.pip],
        ["Second address", n.sip === n.pip ? "" : n.sip],
        ["Group", app.groups.find((group) => group.uuid === n["group.uuid"])?.name],
        ["Memory in use", memory(n)],
        ["Disk in use", disk(n)],
        ["CPUs", n.ctotal],
        ["Tags", tagList(n.tags)],
      ]),
    ];
  }
}
