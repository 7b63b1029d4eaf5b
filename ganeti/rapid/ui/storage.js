// Storage units of nodes: room, state, and what can be done with them.  Only a job finds them out,
// so they are asked for when the view is opened, when a job has changed one, and on demand.

import { badge, bar, el, link, size, when } from "/ui/dom.js";
import { failureOf, operationMenu, waited } from "/ui/operate.js";
import { operationsOf } from "/ui/operations.js";
import { Table } from "/ui/table.js";

const PATH = "/2/opcodes/OP_NODE_QUERY_STORAGE"; // one job for all nodes
const FIELDS = ["node", "type", "name", "size", "used", "free", "allocatable", "status"];
const KEPT_MS = 300_000;
const LVM = ["lvm-vg", "lvm-pv"];
const UNITS = { plain: LVM, drbd: LVM, file: ["file"], sharedfile: ["sharedfile"], gluster: ["gluster"], rbd: ["rados"] };
const WORDS = { "lvm-vg": "volume group", "lvm-pv": "physical volume", file: "directory", sharedfile: "shared directory", gluster: "Gluster volume", rados: "Ceph pool" };
const CHANGES = /^(NODE_MODIFY_STORAGE|REPAIR_NODE_STORAGE)\b/;
const OK = "ok";

const U = "/2/nodes/{node}/storage";
const about = (unit, ...more) => [["storage_type", unit.type], ["name", unit.name], ...more];
const change = (isAllowed) => (_app, unit) => ({
  method: "PUT",
  path: `${U}/modify`,
  in: { node: unit.node },
  text: isAllowed ? "New disks may lie on it again." : "Disks that lie on it stay there; no new ones are put on it.",
  queryOf: () => about(unit, ["allocatable", isAllowed ? "1" : "0"]),
  noBody: true,
});
const UNIT = [
  { word: "Put no new disks on it", fits: (unit) => unit.type === "lvm-pv" && unit.allocatable === true, make: change(false) },
  { word: "Put new disks on it", fits: (unit) => unit.type === "lvm-pv" && unit.allocatable === false, make: change(true) },
  {
    word: "Repair",
    danger: true,
    fits: (unit) => unit.type === "lvm-vg" && !unit.name.includes("/"), // not the thin pools in it
    make: (_app, unit) => ({
      method: "PUT",
      path: `${U}/repair`,
      in: { node: unit.node },
      text: `Takes physical volumes that are missing out of the group on ${unit.node}, if no volume had space there. It is refused unless all data of the node is good on others.`,
      queryOf: () => about(unit),
      noBody: true,
    }),
  },
];

const kinds = (info) => [...new Set((info.enabled_disk_templates ?? []).flatMap((template) => UNITS[template] ?? []))];
// The newest job that has changed a unit.
const lastChange = (jobs) => jobs.reduce((last, job) => (!job.isOpen && job.id > last && job.summary.some((each) => CHANGES.test(each)) ? job.id : last), 0);
const isSized = (unit) => typeof unit.size === "number";
const used = (unit) => (isSized(unit) ? bar(unit.used, unit.size, `${Math.round((100 * unit.used) / unit.size || 0)} %`) : "–");
const state = ({ status }) => (status === OK ? badge("ok", "green") : [badge("look", "red"), " ", el("span", { class: "said" }, String(status))]);

let known = null; // the last answer, for whom and when

async function askKind(app, kind) {
  const told = [];
  const id = await app.api.ask("POST", `${PATH}?reason=dashboard`, { body: { storage_type: kind, output_fields: FIELDS } });
  const { status, results } = await waited(app, id, (text) => told.push(text));
  if (status !== "success") throw new Error(`${WORDS[kind]}: ${failureOf(results) || `job ${id} ended in ${status}`}`);
  return { told, units: results[0].map((row) => Object.fromEntries(FIELDS.map((field, at) => [field, row[at]]))) };
}

export class StorageView {
  constructor(app) {
    this.title = "Storage";
    this.again = el("button", { type: "button", click: () => this.#ask(app) }, "Ask again");
    this.hint = el("p", { class: "hint" });
    this.told = el("ul", { class: "wrong", role: "alert" });
    const columns = [
      { name: "Node", sort: (unit) => unit.node, cell: (unit) => link("node", unit.node), kind: "title" },
      { name: "Kind", sort: (unit) => unit.type, cell: (unit) => el("span", { title: unit.type }, WORDS[unit.type] ?? unit.type) },
      { name: "Unit", sort: (unit) => unit.name, cell: (unit) => unit.name },
      { name: "In use", sort: (unit) => (isSized(unit) && unit.size > 0 ? unit.used / unit.size : null), cell: used },
      { name: "Free", sort: (unit) => unit.free, cell: (unit) => size(unit.free), kind: "number" },
      { name: "Total", sort: (unit) => unit.size, cell: (unit) => size(unit.size), kind: "number" },
      { name: "New disks", sort: (unit) => String(unit.allocatable), cell: (unit) => (unit.allocatable ? badge("allowed", "green") : badge("none", "amber")) },
      { name: "State", sort: (unit) => unit.status, cell: state },
      { name: "Actions", cell: (unit) => operationMenu(app, operationsOf(app, "storage", unit, UNIT), `What can be done with ${unit.name} of ${unit.node}`) ?? "–", kind: "acts" },
    ];
    const key = (unit) => [unit.node, unit.type, unit.name].join("\0");
    this.table = new Table({ columns, key, label: "Storage", empty: "" });
    this.element = el("section", {}, el("div", { class: "head" }, el("h1", {}, "Storage"), app.mayWrite ? this.again : null), this.hint, this.told, this.table.element);
  }

  update(app) {
    if (!app.mayWrite) {
      this.hint.textContent = `Only a job finds out what the nodes have. ${app.lacks}`;
      return;
    }
    if (!app.info) return;
    const isKnown = known && known.authorization === app.api.authorization;
    const isFresh = isKnown && performance.now() - known.asked < KEPT_MS && lastChange(app.jobs) === known.changed;
    if (!isFresh && !this.isAsking) this.#ask(app);
    this.#show(app);
  }

  async #ask(app) {
    this.isAsking = this.again.disabled = true;
    const found = { authorization: app.api.authorization, asked: performance.now(), changed: lastChange(app.jobs), at: [Date.now() / 1000, 0] };
    const answers = await Promise.allSettled(kinds(app.info).map((kind) => askKind(app, kind)));
    const units = answers.flatMap(({ value }) => value?.units ?? []);
    const told = answers.flatMap(({ value, reason }) => value?.told ?? reason.message);
    this.isAsking = this.again.disabled = false;
    if (found.authorization !== app.api.authorization) return; // somebody else is signed in now
    known = { ...found, units, told };
    if (!this.isClosed) this.#show(app);
  }

  #show(app) {
    const isKnown = known?.authorization === app.api.authorization;
    const away = app.nodes.filter((node) => node.offline).map(({ name }) => `${name} is offline and was not asked.`);
    const asked = isKnown ? ["As it was at ", when(known.at), ".", ...away.map((text) => ` ${text}`)].join("") : "";
    this.hint.textContent = this.isAsking ? `${asked} Asking the nodes …` : asked;
    if (!isKnown || (known === this.known && app.words === this.words)) return;
    Object.assign(this, { known, words: app.words });
    this.table.empty = kinds(app.info).length ? "None." : "The disk templates of this cluster have no storage that nodes could tell of.";
    this.told.replaceChildren(...known.told.map((text) => el("li", {}, text)));
    this.table.update(known.units.filter((unit) => app.words.every((word) => `${JSON.stringify(unit)} ${WORDS[unit.type]}`.toLowerCase().includes(word))));
  }

  close() {
    this.isClosed = true;
    this.table.close();
  }
}
