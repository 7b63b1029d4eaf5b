// Making an instance, new or from an export: the form, and the allocator's choice with its reasons.

import { el, between, link } from "/ui/dom.js";
import { OperationPanel, schemaOf } from "/ui/operate.js";
import { described } from "/ui/form.js";
import { inOrder } from "/ui/table.js";

const PATH = "/2/instances";
const MIRRORED = "drbd";
const WITHOUT = ["mode", "os_type", "instance_name", "identify_defaults", "explain", "no_nics", "commit"];

const usable = (app) => app.nodes.filter((node) => !node.offline && !node.drained && node.vm_capable !== false).map(({ name }) => name).sort(inOrder);

function diskFields() {
  return [{ name: "size", label: "Size", kind: "size", value: "10G", required: true }, { name: "name", label: "Name", kind: "text" }];
}

function nicFields(networks) {
  return [
    { name: "network", label: "Network", kind: "choice", choices: [["", "none: the default link"], ...networks], value: "" },
    { name: "ip", label: "Address", kind: "text", placeholder: networks.length ? "pool takes a free one" : "" },
    { name: "link", label: "Link", kind: "text", placeholder: "default" },
    { name: "mac", label: "MAC", kind: "text", placeholder: "a new one" },
  ];
}

function help(properties, now) {
  const names = [...new Set([...Object.keys(now), ...Object.keys(properties)])].filter((name) => name in now);
  return Object.fromEntries(names.map((name) => [name, { now: now[name], help: properties[name]?.description }]));
}

function fields(app, { systems, networks, properties, schemas, source }) {
  const { info } = app;
  const templates = info.enabled_disk_templates;
  const standard = info.beparams?.default ?? {};
  const hypervisor = info.default_hypervisor;
  return [
    { name: "name", label: "Name", kind: "text", required: true, value: source?.name, always: true },
    source ? null : { name: "os", label: "System", kind: "choice", choices: [["", "none"], ...systems], value: systems[0] ?? "", always: true },
    { name: "memory", label: "Memory", kind: "size", value: `${standard.maxmem ?? 128}M`, always: true },
    { name: "vcpus", label: "CPUs", kind: "number", value: standard.vcpus ?? 1, always: true },
    { name: "disk_template", label: "Disks are", kind: "choice", choices: templates, value: templates[0], always: true },
    { name: "disks", label: "Disks", one: "a disk", kind: "rows", fields: diskFields },
    { name: "nics", label: "Interfaces", one: "an interface", kind: "rows", fields: () => nicFields(networks) },
    { name: "place", label: "Node", kind: "choice", choices: [["", `chosen by ${info.default_iallocator || "the allocator"}`], ...usable(app)], value: "" },
    { name: "snode", label: `Second node (${MIRRORED} only)`, kind: "choice", choices: [["", "chosen"], ...usable(app)], value: "" },
    { name: "tags", label: "Tags", kind: "words", placeholder: "words, with blanks between" },
    { name: "start", label: "Start it at once", kind: "flag", value: true },
    { name: "name_check", label: "The name must be known to the name service", kind: "flag", value: false, always: true },
    { name: "hvparams", label: `Parameters of ${hypervisor}`, kind: "params", params: help(described(properties.hvparams ?? {}, schemas), info.hvparams?.[hypervisor] ?? {}) },
    { name: "beparams", label: "Parameters of the backend", kind: "params", params: help(described(properties.beparams ?? {}, schemas), standard) },
  ].filter(Boolean);
}

// Makes the body of the request out of what was entered.
export function bodyOf(app, values, isRehearsal, source) {
  const { memory, vcpus, place, name_check: isKnown = false, beparams = {}, snode, disks, nics, ...rest } = values;
  const isDiskless = values.disk_template === "diskless";
  const body = {
    __version__: 1,
    mode: source ? "import" : "create",
    ...rest,
    name_check: isKnown,
    ip_check: isKnown,
    disks: isDiskless ? [] : disks,
    nics,
    beparams: { minmem: memory, maxmem: memory, vcpus, ...beparams },
    hypervisor: app.info.default_hypervisor,
  };
  if (!body.os) Object.assign(body, source ? {} : { os: undefined, no_install: true });
  if (source) Object.assign(body, { src_node: source.node, src_path: source.name });
  if (place) Object.assign(body, { pnode: place, ...(snode ? { snode } : {}) });
  else Object.assign(body, { iallocator: app.info.default_iallocator || "hail", ...(isRehearsal ? { explain: true } : {}) });
  return body;
}

const chosen = (nodes) => ["It would be made on ", el("strong", {}, between((nodes ?? []).map((name) => link("node", name)), " and "), ".")];

export class CreateView {
  // The name is that of an export, NODE:INSTANCE, or empty.
  constructor(app, name) {
    const [node, instance] = name.split(":");
    this.source = instance ? { node, name: instance } : null;
    this.title = this.source ? `Bring back ${instance}` : "New instance";
    this.body = el("div", {}, el("p", { class: "empty" }, "Asking …"));
    this.element = el("section", {}, el("h1", {}, this.title), this.body);
    this.app = app;
  }

  update(app) {
    if (this.begun || !app.info) return;
    this.begun = true;
    this.#load(app);
  }

  close() {}

  async #load(app) {
    if (!app.mayWrite) {
      this.body.replaceChildren(el("p", { class: "empty" }, app.lacks));
      return;
    }
    try {
      const [systems, networks, found] = await Promise.all([
        app.systems(), app.api.ask("GET", "/2/networks?bulk=1"), schemaOf(app, "POST", PATH)]);
      const around = { ...found, systems, networks: networks.map(({ name }) => name), source: this.source };
      const panel = new OperationPanel(app, {
        title: this.title,
        word: this.source ? "Bring it back" : "Create",
        text: "Rehearse asks the allocator where it would go, and why; nothing is made by it.",
        method: "POST",
        path: PATH,
        fields: fields(app, around),
        without: WITHOUT,
        more: true,
        bodyOf: (values, isRehearsal) => bodyOf(app, values, isRehearsal, this.source),
        rehearsed: chosen,
      }, (id) => { location.hash = `#/job/${id}`; });
      this.body.replaceChildren(panel.element);
      panel.element.querySelector("input").focus();
    } catch (error) {
      this.body.replaceChildren(el("p", { class: "wrong" }, error.message));
    }
  }
}
