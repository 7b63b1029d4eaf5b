// Maintenance: events of nodes, what can be done about them, the last round, and why nothing is done.

import { badge, between, el, facts, link, when } from "/ui/dom.js";
import { operate } from "/ui/operate.js";
import { Table } from "/ui/table.js";

const TONES = { noted: "blue", pending: "blue", completed: "green", failed: "red", canceled: "grey" };
const OFF = "Maintenance is switched off. gnt-cluster modify --maintenance-interval=300 switches it on.";

const jobLinks = (ids) => (ids.length ? between(ids.map((id) => link("job", id))) : "–");
const switched = ({ "is-on": isOn, why }) => (isOn ? `on${why ? `; ${why}` : ""}` : "off");

// From the configuration, with the reasons of the daemon, if it answers.
function rowsOf({ maintenance, status, nodes }) {
  const known = new Map((status?.incidents ?? []).map((each) => [each.id, each]));
  const tags = new Map(nodes.map((node) => [node.name, node.tags]));
  return maintenance.incidents.map((each) => ({
    ...each,
    why: known.get(each.uuid)?.why ?? "",
    isTagged: tags.get(each.node)?.includes(each.tag) ?? false,
  }));
}

const I = (row) => `/2/maintenance/incidents/${encodeURIComponent(row.uuid)}`;
const isOpen = (row) => ["noted", "pending"].includes(row["repair-status"]);
const ACTIONS = [
  { word: "Cancel", method: "POST", fits: isOpen, path: (row) => `${I(row)}/cancel`, title: "Have nobody act on it?", text: () => "Jobs that were submitted already go on. The node stays as it is." },
  { word: "Acknowledge", method: "DELETE", fits: (row) => !isOpen(row) && row.isTagged, path: (row) => `/2/nodes/${encodeURIComponent(row.node)}/tags?tag=${encodeURIComponent(row.tag)}&reason=dashboard`, title: "Acknowledge it?", text: (row) => `Takes the tag ${row.tag} from the node; maintenance forgets the event in its next round, unless the node still reports it.` },
  { word: "Forget", method: "DELETE", fits: (row) => !isOpen(row), path: I, title: "Forget it?", text: () => "If the node still reports it, it is noted and acted on anew." },
];

const actions = (row, app) => el("span", { class: "actions" }, ACTIONS.filter(({ fits }) => fits(row)).map(({ word, method, path, title, text }) => el("button", {
  type: "button",
  "aria-label": `${word}: ${row.action} of ${row.node}`,
  "data-focus": `${word} ${row.uuid}`,
  click: () => app.act({ word, method, path: path(row), title, text: `${row.action} of ${row.node}: ${text(row)}` }),
}, word)));

// The settings as gnt-cluster modify has them.
function settings(app) {
  const now = app.maintenance ?? {};
  const flag = (name, label, key) => ({ name, label, kind: "flag", value: now[key] ?? false });
  operate(app, {
    word: "Change them",
    title: "Settings of maintenance",
    method: "PUT",
    path: "/2/modify",
    fields: [
      { name: "maint_round_delay", label: "A round every so many seconds; 0 switches maintenance off", kind: "number", value: now.roundDelay ?? 300, always: !app.maintenance },
      flag("maint_auto_repair", "Repair instances, as far as their tags allow", "autoRepair"),
      flag("maint_balance", "Balance node groups", "balance"),
      flag("maint_use_load", "Count the measured load when balancing", "useLoad"),
      flag("maint_move_disks", "Balancing may copy disks to other nodes", "moveDisks"),
    ],
  });
}

export class MaintenanceView {
  constructor(app) {
    this.title = "Maintenance";
    this.table = new Table({
      label: "Events of nodes",
      empty: "No node asks for anything.",
      key: (row) => row.uuid,
      columns: [
        { name: "Node", cell: (row) => link("node", row.node), sort: (row) => row.node },
        { name: "Action", cell: (row) => row.action, sort: (row) => row.action },
        { name: "State", cell: (row) => badge(row["repair-status"], TONES[row["repair-status"]] ?? "grey"), sort: (row) => row["repair-status"] },
        { name: "Nothing is done now because", cell: (row) => row.why || "–" },
        { name: "Jobs", cell: (row) => jobLinks(row.jobs) },
        { name: "Tag of the node", cell: (row) => (row.isTagged ? el("span", { class: "tag", title: row.tag }, row.tag.split(":").slice(0, -1).join(":")) : "–") },
        { name: "Report", cell: (row) => JSON.stringify(row.original) },
        ...(app.mayWrite ? [{ name: "Actions", cell: (row) => actions(row, app), kind: "acts" }] : []),
      ],
    });
    this.round = el("div", { id: "round" });
    const change = app.mayWrite && el("button", { type: "button", click: () => settings(app) }, "Settings");
    this.element = el("section", {}, el("div", { class: "head" }, el("h1", {}, "Maintenance"), change), this.table.element, el("h2", {}, "Last round"), this.round);
  }

  update(app) {
    const { maintenance, status } = app;
    const rows = maintenance ? rowsOf(app) : [];
    const text = JSON.stringify([maintenance, status, rows]);
    if (text === this.text) return;
    this.text = text;
    this.table.update(rows);
    if (!maintenance) {
      this.round.replaceChildren(el("p", { class: "empty" }, OFF));
      return;
    }
    const { begun = null, balancing, repairs, unknown = {} } = status?.round ?? {};
    const unknownNodes = Object.entries(unknown).map(([node, why]) => el("div", {}, link("node", node), `: ${why}`));
    this.round.replaceChildren(facts([
      ["Begun", begun === null ? "not since the daemon started" : when([begun, 0], true)],
      ["Jobs", jobLinks(maintenance.jobs)],
      ["Looks every", `${maintenance.roundDelay} s`],
      ["Balancing", balancing && switched(balancing)],
      ["Repairs of instances", repairs && switched(repairs)],
      ["Health not known", unknownNodes.length ? unknownNodes : null],
    ]));
  }

  close() {
    this.table.close();
  }
}
