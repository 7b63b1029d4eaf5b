// What can be done to instances and nodes beside starting and stopping: one row each.

import { operate } from "/ui/operate.js";
import { described } from "/ui/form.js";
import { schemaOf } from "/ui/operate.js";
import { POLICIES } from "/ui/policy.js";
import { inOrder } from "/ui/table.js";

const I = "/2/instances/{instance}";
const N = "/2/nodes/{node}";

const isUp = (instance) => instance.oper_state === true;
const others = (app, ...names) => app.nodes.filter((node) => !node.offline && !names.includes(node.name)).map(({ name }) => name).sort(inOrder);
const perhaps = (text, values) => ({ kind: "choice", choices: [["", text], ...values], value: "" });
const disks = (i) => i["disk.sizes"].map((mib, at) => [String(at), `disk ${at}${i["disk.names"][at] ? ` (${i["disk.names"][at]})` : ""}, ${mib} MiB`]);
const nics = (i) => i["nic.macs"].map((mac, at) => [String(at), `interface ${at}, ${mac}${i["nic.ips"][at] ? `, ${i["nic.ips"][at]}` : ""}`]);
const first = (choices) => ({ kind: "choice", choices, value: choices[0]?.[0] ?? "", always: true });
const change = (kind, row, i) => ({ [kind]: [row], ...(isUp(i) ? { hotplug: true } : {}) });
const hot = (i) => (isUp(i) ? "It runs, so it gets or loses the device while it does (hotplug)." : "It will be seen at the next start.");
const tagQuery = ({ tags = [] }) => tags.map((tag) => ["tag", tag]);
const params = (now, properties) => Object.fromEntries(Object.entries(now).map(([name, value]) => [name, { now: value, help: properties[name]?.description }]));

const INSTANCE = [
  {
    word: "Edit",
    async make(app, i) {
      const [{ properties, schemas }, systems] = await Promise.all([schemaOf(app, "PUT", `${I}/modify`), app.systems()]);
      return {
        method: "PUT",
        path: `${I}/modify`,
        text: "Most settings count from the next start on. A parameter that is left empty stays as it is; the word default takes it back to the cluster's.",
        fields: [
          { name: "memory", label: "Memory", kind: "size", value: `${i.beparams.maxmem}M` },
          { name: "minmem", label: "At least", kind: "size", value: `${i.beparams.minmem}M` },
          { name: "vcpus", label: "CPUs", kind: "number", value: i.beparams.vcpus },
          { name: "os_name", label: "System", ...perhaps(`as it is (${i.os || "none"})`, systems) },
          { name: "custom_hvparams", label: "Parameters of the hypervisor", kind: "params", params: params(i.hvparams, described(properties.custom_hvparams ?? {}, schemas)) },
          { name: "custom_beparams", label: "Parameters of the backend", kind: "params", params: params(i.beparams, described(properties.custom_beparams ?? {}, schemas)) },
        ],
        without: ["disks", "nics", "beparams", "hvparams", "hotplug", "hotplug_if_possible"],
        more: true,
        bodyOf: ({ memory, minmem, vcpus, custom_beparams: more = {}, ...rest }) => {
          const beparams = { ...(memory ? { maxmem: memory, minmem: Math.min(minmem ?? i.beparams.minmem, memory) } : {}), ...(minmem ? { minmem } : {}), ...(vcpus ? { vcpus } : {}), ...more };
          if (memory && !minmem && i.beparams.minmem === i.beparams.maxmem) beparams.minmem = memory;
          return { ...rest, ...(Object.keys(beparams).length ? { custom_beparams: beparams } : {}) };
        },
      };
    },
  },
  {
    word: "Grow a disk",
    fits: (i) => i["disk.sizes"].length > 0,
    make: (_app, i) => ({
      method: "POST",
      path: `${I}/disk/{disk}/grow`,
      text: "A disk cannot be made smaller again.",
      fields: [{ name: "disk", label: "Disk", ...first(disks(i)) }, { name: "amount", label: "Larger by", kind: "size", required: true, placeholder: "10G" }],
      pathOf: ({ disk }) => ({ disk }),
      bodyOf: ({ amount }) => ({ amount }),
    }),
  },
  {
    word: "Add a disk",
    make: (_app, i) => ({
      method: "PUT",
      path: `${I}/modify`,
      text: hot(i),
      fields: [{ name: "size", label: "Size", kind: "size", required: true, value: "10G" }, { name: "name", label: "Name", kind: "text" }],
      bodyOf: (settings) => change("disks", ["add", settings], i),
    }),
  },
  {
    word: "Remove a disk",
    danger: true,
    fits: (i) => i["disk.sizes"].length > 0,
    make: (_app, i) => ({ method: "PUT", path: `${I}/modify`, text: `All data on the disk is lost. ${hot(i)}`, fields: [{ name: "disk", label: "Disk", ...first(disks(i)) }], bodyOf: ({ disk }) => change("disks", ["remove", Number(disk), {}], i) }),
  },
  {
    word: "Add an interface",
    async make(app, i) {
      const networks = (await app.api.ask("GET", "/2/networks?bulk=1")).map(({ name }) => name);
      return {
        method: "PUT",
        path: `${I}/modify`,
        text: hot(i),
        fields: [{ name: "network", label: "Network", ...perhaps("none: the default link", networks) }, { name: "ip", label: "Address", kind: "text", placeholder: "pool takes a free one of the network" }, { name: "link", label: "Link", kind: "text" }, { name: "mac", label: "MAC", kind: "text", placeholder: "a new one" }],
        bodyOf: (settings) => change("nics", ["add", settings], i),
      };
    },
  },
  {
    word: "Remove an interface",
    danger: true,
    fits: (i) => i["nic.macs"].length > 0,
    make: (_app, i) => ({ method: "PUT", path: `${I}/modify`, text: hot(i), fields: [{ name: "nic", label: "Interface", ...first(nics(i)) }], bodyOf: ({ nic }) => change("nics", ["remove", Number(nic), {}], i) }),
  },
  {
    word: "Take a snapshot",
    make: () => ({ method: "POST", path: `${I}/snapshots`, text: "Of all disks at one moment.", fields: [{ name: "snapshot_name", label: "Name", kind: "text", required: true }, { name: "quiesce", label: "Ask the guest agent to hold still", kind: "flag" }], bodyOf: (values) => ({ action: "create", ...values }) }),
  },
  {
    word: "Back up",
    make: (app, i) => ({
      method: "PUT",
      path: `${I}/export`,
      text: "Writes disks and settings to a node; an older backup of it there is replaced.",
      fields: [{ name: "destination", label: "To node", ...first(others(app).map((name) => [name, name])) }, { name: "shutdown", label: "Stop it meanwhile", kind: "flag", value: isUp(i), always: true }],
      without: ["target_node"],
      more: true,
    }),
  },
  ...POLICIES.instance,
  { word: "Add tags", make: () => ({ method: "PUT", path: `${I}/tags`, fields: [{ name: "tags", label: "Tags", kind: "words", required: true }], queryOf: tagQuery, noBody: true }) },
  { word: "Remove tags", fits: (i) => i.tags.length > 0, make: (_app, i) => ({ method: "DELETE", path: `${I}/tags`, fields: [{ name: "tags", label: "Tags", kind: "words", required: true, value: i.tags.join(" "), always: true }], queryOf: tagQuery, noBody: true }) },
  {
    word: "Fail over",
    fits: (i) => i.snodes.length > 0,
    make: (_app, i) => ({ method: "PUT", path: `${I}/failover`, text: `It stops on ${i.pnode} and starts on ${i.snodes[0]}.`, more: true }),
  },
  { word: "Move", fits: (i) => !i.snodes.length && i["disk.sizes"].length > 0, make: (app, i) => ({ method: "PUT", path: `${I}/move`, text: "Its disks are copied to another node; it is stopped meanwhile.", fields: [{ name: "target_node", label: "To node", ...first(others(app, i.pnode).map((name) => [name, name])) }], more: true }) },
  { word: "Replace disks", fits: (i) => i.snodes.length > 0, make: (app, i) => ({ method: "POST", path: `${I}/replace-disks`, text: "Makes the copy anew, on another node if one is given.", fields: [{ name: "mode", label: "Which", kind: "choice", choices: [["replace_on_secondary", "disks of the second node"], ["replace_on_primary", "disks of the first node"], ["replace_new_secondary", "with a new second node"], ["replace_auto", "those that are broken"]], value: "replace_on_secondary", always: true }, { name: "remote_node", label: "New second node", ...perhaps("none", others(app, i.pnode, ...i.snodes)) }], more: true }) },
  {
    word: "Install anew",
    danger: true,
    fits: (i) => !isUp(i),
    async make(app, i) {
      const systems = await app.systems();
      return { method: "POST", path: `${I}/reinstall`, text: "What is on its disks is lost.", fields: [{ name: "os", label: "System", kind: "choice", choices: systems, value: i.os, always: true }, { name: "start", label: "Start it then", kind: "flag", value: true, always: true }] };
    },
  },
  { word: "Rename", fits: (i) => !isUp(i), make: (_app, i) => ({ method: "PUT", path: `${I}/rename`, fields: [{ name: "new_name", label: "New name", kind: "text", required: true, value: i.name, always: true }, { name: "name_check", label: "The name must be known to the name service", kind: "flag", value: false, always: true }], bodyOf: (values) => ({ ip_check: false, ...values }) }) },
  {
    word: "Remove",
    danger: true,
    make: (_app, i) => ({
      method: "DELETE",
      path: I,
      text: `${i.name} and all that is on its disks will be gone${isUp(i) ? "; it runs, and is stopped first" : ""}.`,
      fields: [{ name: "sure", label: `Write ${i.name} to say yes`, kind: "text", required: true, sure: i.name }],
      bodyOf: () => ({}),
    }),
  },
];

const EVACUATED = [["all", "all"], ["primary-only", "those that run here"], ["secondary-only", "those that are backed here"]];
const ROLES = ["regular", "master-candidate", "drained", "offline"];

const NODE = [
  {
    word: "Evacuate",
    make: (app, n) => ({
      method: "POST",
      path: `${N}/evacuate`,
      text: "Submits the jobs that move instances away. Rehearse shows them first.",
      fields: [{ name: "mode", label: "Instances", kind: "choice", choices: EVACUATED, value: "all", always: true }, { name: "remote_node", label: "To node", ...perhaps(`chosen by ${app.info.default_iallocator || "the allocator"}`, others(app, n.name)) }],
      rehearsed: (jobs) => [jobs?.length ? `${jobs.length} ${jobs.length === 1 ? "job" : "jobs"} would be submitted.` : "There is nothing to move."],
      bodyOf: (values) => (values.remote_node ? values : { ...values, iallocator: app.info.default_iallocator || "hail" }),
      more: true,
    }),
  },
  { word: "Migrate all away", make: () => ({ method: "POST", path: `${N}/migrate`, text: "All instances that run here move to the nodes that back them, while they run." }) },
  {
    word: "Change the role",
    make: (_app, n) => ({
      method: "PUT",
      path: `${N}/role`,
      text: "A drained node gets no new instances; an offline one is not asked at all.",
      fields: [{ name: "role", label: "Role", kind: "choice", choices: ROLES, value: { C: "master-candidate", D: "drained", O: "offline" }[n.role] ?? "regular", always: true }, { name: "force", label: "Go on in spite of warnings", kind: "flag" }, { name: "promote", label: "Promote other candidates if needed", kind: "flag" }],
      wholeBody: ({ role }) => role,
      queryOf: ({ force, promote }) => [...(force ? [["force", "1"]] : []), ...(promote ? [["auto-promote", "1"]] : [])],
    }),
  },
  { word: "Edit", make: () => ({ method: "POST", path: `${N}/modify`, more: true }) },
  { word: "Power", danger: true, make: (_app, n) => ({ method: "POST", path: "/2/opcodes/OP_OOB_COMMAND", text: "By the program of the node parameter oob_program.", fields: [{ name: "command", label: "Command", kind: "choice", choices: ["power-status", "power-on", "power-off", "power-cycle", "health"], value: "power-status", always: true }], bodyOf: (values) => ({ node_names: [n.name], ...values }) }) },
  { word: "Reset the hard way", danger: true, make: (_app, n) => ({ method: "POST", path: `${N}/powercycle`, text: `${n.name} starts again at once, as if its power had failed.`, fields: [{ name: "force", label: "In spite of warnings", kind: "flag" }], queryOf: ({ force }) => (force ? [["force", "1"]] : []), noBody: true }) },
  { word: "Add tags", make: () => ({ method: "PUT", path: `${N}/tags`, fields: [{ name: "tags", label: "Tags", kind: "words", required: true }], queryOf: tagQuery, noBody: true }) },
  { word: "Remove tags", fits: (n) => n.tags.length > 0, make: (_app, n) => ({ method: "DELETE", path: `${N}/tags`, fields: [{ name: "tags", label: "Tags", kind: "words", required: true, value: n.tags.join(" "), always: true }], queryOf: tagQuery, noBody: true }) },
  { word: "Remove from the cluster", danger: true, make: (_app, n) => ({ method: "DELETE", path: N, text: `${n.name} leaves the cluster.`, fields: [{ name: "sure", label: `Write ${n.name} to say yes`, kind: "text", required: true, sure: n.name }], bodyOf: () => ({}) }) },
];

const TABLES = { instance: INSTANCE, node: NODE };

// Answers the operations that fit a thing, each with the function that opens it.
export function operationsOf(app, kind, thing, rows = TABLES[kind]) {
  return rows.filter(({ fits }) => !fits || fits(thing)).map((row) => ({
    word: row.word,
    danger: row.danger,
    open: () => open(app, kind, thing, row),
  }));
}

async function open(app, kind, thing, row) {
  try {
    const made = await row.make(app, thing);
    operate(app, { word: row.word, danger: row.danger, title: thing.name ? `${row.word}: ${thing.name}` : row.word, in: { [kind]: thing.name }, ...made });
  } catch (error) {
    app.tell("red", error.message);
  }
}
