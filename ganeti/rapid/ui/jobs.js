// Jobs: the list, one with its log, and following those that are not done by long polls.

import { parametersOf, reasonOf, submitterOf } from "/ui/about.js";
import { badge, bar, el, facts, lasted, link, when } from "/ui/dom.js";
import { Table } from "/ui/table.js";

const FINAL = new Set(["success", "error", "canceled"]);
const TONES = { success: "green", error: "red", canceled: "amber", running: "blue" };
const WATCHED = ["status", "opstatus", "start_ts", "end_ts"];
const RETRY_MS = 3000;
const STATUSES = ["queued", "waiting", "running", "success", "error", "canceled"];

export const JOBS_PAGE = 100;

export const jobsPath = (before) => `/2/jobs?bulk=1&limit=${JOBS_PAGE}${before === undefined ? "" : `&before=${before}`}`;

// Puts a page of jobs, all there are before one, in the place of what was known of them; newest first.
export function merged(known, page, before) {
  const lowest = page.length < JOBS_PAGE ? 0 : page[0].id;
  return [...known.filter((job) => job.id < lowest || job.id >= before), ...page].sort((one, other) => other.id - one.id);
}

export const isOpen = (job) => !FINAL.has(job.status);

const statusBadge = (job) => badge(job.status ?? "unknown", TONES[job.status] ?? "grey");
const summary = (job) => job.summary.join(", ");

function progress(job) {
  const done = job.opstatus.filter((status) => FINAL.has(status)).length;
  return bar(done, job.opstatus.length, `${done} of ${job.opstatus.length}`, TONES[job.status] ?? "grey");
}

export function jobTable(label) {
  return new Table({
    columns: [
      { name: "Job", sort: (job) => job.id, cell: (job) => el("a", { href: link("job", job.id).hash, "data-focus": `job ${job.id}` }, String(job.id)), kind: "number title" },
      { name: "Status", sort: (job) => job.status, cell: statusBadge },
      { name: "What", sort: summary, cell: (job) => [summary(job), job.last ? el("div", { class: "small" }, job.last) : null], kind: "wide" },
      { name: "By", sort: submitterOf, cell: submitterOf },
      { name: "Done", cell: progress },
      { name: "Received", sort: (job) => job.received_ts?.[0], cell: (job) => when(job.received_ts) },
      { name: "Took", cell: (job) => lasted(job.start_ts, job.end_ts) },
    ],
    key: (job) => job.id,
    label,
    empty: "No jobs to show.",
    descending: true,
  });
}

export class JobsView {
  constructor(app) {
    this.title = "Jobs";
    this.table = jobTable("Jobs");
    this.status = el("select", { id: "job-status", "aria-label": "Status", change: () => this.update(app) }, el("option", { value: "" }, "of any status"), ["open", ...STATUSES].map((word) => el("option", {}, word)));
    this.who = el("select", { id: "job-who", "aria-label": "Submitted by", change: () => this.update(app) });
    this.object = el("input", { id: "job-object", type: "search", placeholder: "about: an instance, a node", "aria-label": "About", autocomplete: "off", spellcheck: "false", input: () => this.update(app) });
    this.older = el("button", { type: "button", class: "older", hidden: true, click: () => this.#more(app) });
    this.element = el("section", {}, el("h1", {}, "Jobs"), el("div", { class: "filters" }, this.status, this.who, this.object), this.table.element, this.older);
  }

  update(app) {
    this.#offerUsers(app.jobs);
    this.table.update(app.jobsFound().filter((job) => this.#fits(job)));
    this.older.hidden = !app.hasOlderJobs;
    this.older.textContent = app.words.length ? "Search older jobs too" : "Show older jobs";
  }

  #fits(job) {
    const { status: { value: status }, who: { value: who }, object } = this;
    const about = object.value.trim().toLowerCase();
    return (!status || (status === "open" ? isOpen(job) : job.status === status))
      && (!who || submitterOf(job) === who)
      && (!about || (job.ops ?? []).some((op) => JSON.stringify(parametersOf(op)).toLowerCase().includes(about)));
  }

  #offerUsers(jobs) {
    const users = [...new Set(jobs.map(submitterOf))].sort();
    const text = users.join();
    if (text === this.users) return;
    this.users = text;
    const { value } = this.who;
    this.who.replaceChildren(el("option", { value: "" }, "by anybody"), ...users.map((name) => el("option", { selected: name === value }, name)));
  }

  async #more(app) {
    this.older.disabled = true;
    await app.askOlderJobs();
    this.older.disabled = false;
  }

  close() {
    this.table.close();
  }
}

export function messageOf([, , kind, message]) {
  const text = typeof message === "string" ? message : JSON.stringify(message);
  return kind === "message" ? text : `${kind}: ${text}`;
}

// Follows jobs by long polls, and keeps what they log.  Who may not wait for jobs sees them at the
// pace of the lists.
export class Follower {
  constructor(api, changed) {
    Object.assign(this, { api, changed });
    this.logs = new Map();
    this.open = new Map();
    this.isRefused = false;
  }

  stop() {
    this.open.forEach((controller) => controller.abort());
    this.open.clear();
    this.logs.clear();
    this.isRefused = false;
  }

  log(id) {
    if (!this.logs.has(id)) this.logs.set(id, []);
    return this.logs.get(id);
  }

  async follow(id) {
    if (this.isRefused || this.open.has(id)) return;
    const controller = new AbortController();
    this.open.set(id, controller);
    try {
      await this.#poll(id, controller.signal);
    } catch (error) {
      if (controller.signal.aborted) return;
      if (error.status === 401 || error.status === 403) this.isRefused = true;
      else await new Promise((resolve) => setTimeout(resolve, RETRY_MS)); // the lists ask again then
    }
    if (this.open.get(id) === controller) this.open.delete(id);
  }

  async #poll(id, signal) {
    const log = this.log(id);
    let info = null;
    while (info === null || !FINAL.has(info[0])) {
      const body = { fields: WATCHED, previous_job_info: info, previous_log_serial: log.at(-1)?.[0] ?? null };
      const change = await this.api.ask("PUT", `/2/jobs/${id}/wait`, { body, signal });
      if (change === null) continue;
      info = change.job_info;
      const entries = change.log_entries ?? [];
      log.push(...entries);
      const last = log.length ? messageOf(log.at(-1)) : "";
      this.changed(id, { ...Object.fromEntries(WATCHED.map((field, at) => [field, info[at]])), last });
    }
  }
}

export class JobView {
  constructor(id) {
    this.title = `Job ${id}`;
    this.id = Number(id);
    this.body = el("div");
    this.log = el("ol", { class: "log", role: "log", "aria-label": `Log of job ${id}`, tabindex: "0" });
    this.element = el("section", {}, el("h1", {}, this.title), this.body, el("h2", {}, "Log"), this.log);
    this.shown = new Set();
  }

  close() {
    this.isClosed = true;
  }

  // The list tells how it stands; its opcodes and results are asked for when that changes.
  update(app) {
    const row = app.jobs.find((job) => job.id === this.id);
    const isAlone = !row || app.follower.isRefused; // nobody else tells how it goes on
    if (!this.job || this.problem || (row && row.status !== this.job.status) || (isOpen(this.job) && isAlone)) this.#load(app);
    if (row && this.job) this.job = { ...this.job, ...row };
    if (this.job && isOpen(this.job)) app.follower.follow(this.id);
    this.#draw(app);
  }

  async #load(app) {
    if (this.isLoading) return;
    this.isLoading = true;
    try {
      this.job = await app.api.ask("GET", `/2/jobs/${this.id}`);
      this.problem = this.job.status === null ? "There is no such job; it may be archived." : "";
    } catch (error) {
      this.problem = error.message;
    }
    this.isLoading = false;
    if (!this.isClosed) this.#draw(app);
    if (this.job?.status && isOpen(this.job)) app.follower.follow(this.id);
  }

  #draw(app) {
    const { job } = this;
    if (this.problem || !job?.status) {
      this.body.replaceChildren(el("p", { class: "empty" }, this.problem || "Asking …"));
      this.signature = null;
      return;
    }
    const signature = JSON.stringify([job.status, job.opstatus, job.opresult, job.end_ts, app.mayWrite]);
    if (signature !== this.signature) {
      this.signature = signature;
      const canCancel = app.mayWrite && isOpen(job);
      this.body.replaceChildren(
        el("p", {}, statusBadge(job), " ", progress(job), " ", canCancel && this.#cancelButton(app)),
        isOpen(job) && app.lacks ? el("p", { class: "hint" }, app.lacks) : "",
        facts([["Submitted by", submitterOf(job)], ["Reason", reasonOf(job)], ["Received", when(job.received_ts, true)], ["Started", when(job.start_ts, true)], ["Ended", when(job.end_ts, true)], ["Took", job.end_ts ? lasted(job.start_ts, job.end_ts) : ""]]),
        el("h2", {}, "Operations"),
        el("ol", { class: "ops" }, job.summary.map((text, at) => el("li", {}, statusBadge({ status: job.opstatus[at] }), ` ${text} `, outcome(job, at), parameters(job.ops?.[at])))),
      );
    }
    const entries = [...(job.oplog ?? []).flat(), ...app.follower.log(this.id)];
    for (const entry of entries.sort((one, other) => one[0] - other[0])) {
      if (this.shown.has(entry[0])) continue;
      this.shown.add(entry[0]);
      this.log.append(el("li", {}, el("time", {}, when(entry[1])), " ", messageOf(entry)));
    }
    this.log.classList.toggle("none", this.shown.size === 0);
  }

  #cancelButton(app) {
    const title = `Cancel job ${this.id}?`;
    const text = "It ends at its next wait, and what it has begun is undone.";
    return el("button", { type: "button", click: () => app.act({ word: "Cancel job", title, text, method: "DELETE", path: `/2/jobs/${this.id}` }) }, "Cancel job");
  }
}

function parameters(op) {
  const rows = op ? parametersOf(op) : [];
  if (!rows.length) return null;
  return el("details", {}, el("summary", {}, "Parameters"), facts(rows.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)])));
}

// What an operation that failed says: [class, [message, ...]].
function outcome(job, at) {
  const result = job.opresult?.[at];
  if (job.opstatus[at] !== "error" || !result) return null;
  const message = Array.isArray(result) && Array.isArray(result[1]) ? result[1][0] : result;
  return el("span", { class: "wrong" }, typeof message === "string" ? message : JSON.stringify(message));
}
