// Maintenance: events of nodes, the last round, and why nothing is done.

import { badge, between, el, facts, link, when } from "/ui/dom.js";
import { Table } from "/ui/table.js";

const TONES = { noted: "blue", pending: "blue", completed: "green", failed: "red", canceled: "grey" };
const OFF = "Maintenance is switched off. gnt-cluster modify --maintenance-interval=300 switches it on.";

const jobLinks = (ids) => (ids.length ? between(ids.map((id) => link("job", id))) : "–");
const switched = ({ "is-on": isOn, why }) => (isOn ? `on${why ? `; ${why}` : ""}` : "off");

// From the configuration, with the reasons of the daemon, if it answers.
function rowsOf({ maintenance, status }) {
  const known = new Map((status?.incidents ?? []).map((each) => [each.id, each]));
  return maintenance.incidents.map((each) => ({ ...each, why: known.get(each.uuid)?.why ?? "" }));
}

export class MaintenanceView {
  constructor() {
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
        { name: "Tag", cell: (row) => row.tag },
        { name: "Report", cell: (row) => JSON.stringify(row.original) },
      ],
    });
    this.round = el("div", { id: "round" });
    this.element = el("section", {}, el("h1", {}, "Maintenance"), this.table.element, el("h2", {}, "Last round"), this.round);
  }

  update(app) {
    const { maintenance, status } = app;
    const text = JSON.stringify([maintenance, status]);
    if (text === this.text) return;
    this.text = text;
    this.table.update(maintenance ? rowsOf(app) : []);
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
