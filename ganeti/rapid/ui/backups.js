// Backups: exports, and the policies by which the watcher makes them.  A policy is a tag of an
// instance, its node group or the cluster; the nearest one decides.

import { badge, el, link, when } from "/ui/dom.js";
import { operationMenu } from "/ui/operate.js";
import { operationsOf } from "/ui/operations.js";
import { OwnListView, sure } from "/ui/places.js";
import { POLICIES, effective, policyText } from "/ui/policy.js";
import { Table } from "/ui/table.js";

const OF = { instance: "its own", nodegroup: "of its node group", cluster: "of the cluster" };

const rehearsal = {
  word: "Rehearse",
  make: (app, row) => ({
    method: "POST",
    path: "/2/exports/{instance}/rehearse",
    in: { instance: row.name },
    text: `Does it come back? An instance rehearsal.${row.name} is made from the export, without network interfaces, started, looked at and removed. ${row.name} itself is not touched.`,
    fields: [
      { name: "pnode", label: "On node", kind: "choice", choices: [["", `chosen by ${app.info.default_iallocator || "hail"}`], ...app.nodes.filter((node) => !node.offline && !node.drained && node.vm_capable).map(({ name }) => name)], value: "" },
      { name: "seconds", label: "Look at it for so many seconds", kind: "number", value: 60, required: true },
      { name: "agent", label: "Its guest agent has to answer", kind: "flag" },
    ],
    without: ["src_node", "iallocator"],
    more: true,
    follow: true,
    bodyOf: (values) => ({ src_node: row.node, ...(values.pnode ? {} : { iallocator: app.info.default_iallocator || "hail" }), ...values }),
  }),
};
const removal = { word: "Remove", danger: true, make: (_app, row) => ({ method: "DELETE", path: "/2/exports/{instance}", in: { instance: row.name }, text: "Removes the backups of this instance from all nodes.", fields: sure(row), bodyOf: () => ({}), noBody: true }) };

// Exports, and the instances that should have one, each with its place in the schedule.
function rowsOf(exports, app, schedule) {
  const plans = new Map((schedule ?? []).map((each) => [each.instance, each]));
  const instances = new Map(app.instances.map((each) => [each.name, each]));
  const row = (node, name) => ({ node, name, plan: plans.get(name), instance: instances.get(name) });
  const rows = exports.filter(([, name]) => name !== null).map(([node, name]) => row(node, name));
  const having = new Set(rows.map(({ name }) => name));
  const lacking = [...plans.values()].filter(({ instance, policy }) => policy !== null && !having.has(instance));
  return [...rows, ...lacking.map(({ instance }) => row(null, instance))];
}

const newest = ({ node, plan }) => (plan?.newest && plan.node === node ? [plan.newest, 0] : null);

const isDue = (seconds) => seconds * 1000 <= Date.now();
const waiting = (due, wait) => (isDue(due) ? ` due${wait ? `: ${wait}` : ""}` : ` ${when([due, 0])}`);

function next({ plan }) {
  if (!plan?.policy) return "–";
  const late = plan.is_late ? badge("too old", "red") : "";
  if (plan.begins_on) return [late, ` now, on ${plan.begins_on}`];
  return [late, waiting(plan.due, plan.wait)];
}

// What came of the last rehearsal, and when the next one is.
function rehearsed({ node, plan }) {
  if (!plan || (!plan.rehearsed && plan.rehearsal_due === null) || (node !== null && plan.node !== null && plan.node !== node)) return "–";
  const { rehearsed: last, rehearsal_due: due, rehearsal_problem: problem } = plan;
  const found = !last ? badge("never", problem ? "red" : "grey") : last.failure ? badge("failed", "red") : badge(problem ? "too old" : "ok", problem ? "red" : "green");
  const next = plan.rehearsal_begins_on ? ` now, on ${plan.rehearsal_begins_on}` : waiting(due, plan.rehearsal_wait);
  return [
    found,
    ...(last ? [` ${when([last.ended, 0])}, `, link("job", last.job, `job ${last.job}`)] : []),
    problem ? el("div", { class: "small" }, problem) : "",
    due === null ? "" : el("div", { class: "small" }, "next: ", next),
  ];
}

const policyCell = ({ plan }) => (plan?.of ? [plan.policy ?? "none", el("div", { class: "small" }, OF[plan.of])] : "–");

function actions(app, row) {
  const operations = [
    ...(row.node === null ? [] : operationsOf(app, "backup", row, [rehearsal])),
    ...(row.instance ? operationsOf(app, "instance", row.instance, POLICIES.instance) : []),
    ...(row.node === null ? [] : operationsOf(app, "backup", row, [removal])),
  ];
  const back = row.node !== null && el("a", { class: "button", href: `#/create/${encodeURIComponent(`${row.node}:${row.name}`)}` }, "Bring back");
  return el("span", { class: "actions" }, back, operationMenu(app, operations, `What can be done with ${row.name}`));
}

const exportsView = (app) => new OwnListView(app, {
  title: "Backups",
  path: "/2/exports",
  also: "/2/backup-schedule",
  hint: "An instance is backed up on its own page, or by schedule, as a policy says; the nearest of instance, node group and cluster that has one decides.",
  empty: "There are no backups.",
  key: (row) => `${row.node} ${row.name}`,
  rows: rowsOf,
  columns: () => [
    { name: "Of", sort: (row) => row.name, cell: (row) => (row.instance ? link("instance", row.name) : row.name), kind: "title" },
    { name: "On node", sort: (row) => row.node ?? "", cell: (row) => (row.node ? link("node", row.node) : "–") },
    { name: "Newest", sort: (row) => newest(row)?.[0] ?? 0, cell: (row) => when(newest(row)) },
    { name: "Policy", sort: (row) => row.plan?.policy ?? "", cell: policyCell },
    { name: "Next", sort: (row) => row.plan?.due ?? 0, cell: next },
    { name: "Rehearsed", sort: (row) => row.plan?.rehearsed?.ended ?? 0, cell: rehearsed },
    ...(app.mayWrite ? [{ name: "Actions", cell: (row) => actions(app, row), kind: "acts" }] : []),
  ],
});

// The policies that many instances have in common: of the cluster, and of node groups.
function policyTable(app) {
  const menu = (row) => operationMenu(app, operationsOf(app, row.kind, row, POLICIES[row.kind]), `Policy of ${row.name}`) ?? "–";
  return new Table({
    label: "Policies",
    empty: "",
    key: ({ kind, name }) => `${kind} ${name}`,
    columns: [
      { name: "Policy of", sort: ({ kind, name }) => (kind === "cluster" ? "" : name), cell: ({ kind, name }) => (kind === "cluster" ? "the cluster" : `node group ${name}`), kind: "title" },
      { name: "Backups", cell: (row) => policyText(row.tags) || (row.kind === "cluster" ? "–" : "as the cluster") },
      { name: "Instances", sort: (row) => row.count, cell: (row) => String(row.count), kind: "number" },
      ...(app.mayWrite ? [{ name: "Actions", cell: menu, kind: "acts" }] : []),
    ],
  });
}

export class BackupsView {
  constructor(app) {
    this.title = "Backups";
    this.list = exportsView(app);
    this.policies = policyTable(app);
    this.element = this.list.element;
    this.list.table.element.before(el("h2", {}, "Policies"), this.policies.element, el("h2", {}, "Backups and what is due"));
  }

  update(app) {
    this.list.update(app);
    if (!app.info || (this.info === app.info && this.groups === app.groups && this.instances === app.instances)) return;
    Object.assign(this, { info: app.info, groups: app.groups, instances: app.instances });
    const objects = [{ kind: "cluster", name: app.info.name, tags: app.info.tags ?? [] }, ...app.groups.map(({ name, tags }) => ({ kind: "group", name, tags }))];
    const counts = new Map();
    for (const instance of app.instances) {
      const { of } = effective(app, instance);
      counts.set(of, (counts.get(of) ?? 0) + 1);
    }
    this.policies.update(objects.map((each) => ({ ...each, count: counts.get(each.kind === "cluster" ? "the cluster" : `node group ${each.name}`) ?? 0 })));
  }

  close() {
    this.list.close();
    this.policies.close();
  }
}
