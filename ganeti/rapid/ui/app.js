// The whole: who is signed in, what is known of the cluster, which view is shown.

import { Api, authorizationOf } from "/ui/api.js";
import { InstanceView, NodeView, OverviewView, found, instancesFound, instancesView, nodesFound, nodesView } from "/ui/cluster.js";
import { confirmed, note, signIn } from "/ui/dialog.js";
import { breakable, byId, el, link } from "/ui/dom.js";
import { Follower, JOBS_PAGE, JobView, JobsView, isOpen, jobsPath, merged } from "/ui/jobs.js";
import { MaintenanceView } from "/ui/maintenance.js";
import { CreateView } from "/ui/create.js";
import { MapView } from "/ui/map.js";
import { BackupsView } from "/ui/backups.js";
import { NetworkView, groupsView, networksView, systemsView } from "/ui/places.js";
import { StorageView } from "/ui/storage.js";
import { UsersView } from "/ui/users.js";

const POLL_MS = 5000;
const FOLLOWED_MAX = 3; // a browser opens few connections to one server
const SYSTEMS_MS = 600_000;
const OLD_PAGES_MAX = 5; // of jobs that are asked for again because some of them are not done
const THEME = "ganeti-theme";

const VIEWS = {
  overview: (app) => new OverviewView(app),
  instances: (app) => instancesView(app),
  nodes: () => nodesView(),
  jobs: (app) => new JobsView(app),
  map: () => new MapView(),
  maintenance: (app) => new MaintenanceView(app),
  instance: (_app, name) => new InstanceView(name),
  node: (app, name) => new NodeView(name, app),
  job: (_app, id) => new JobView(id),
  groups: (app) => groupsView(app),
  networks: (app) => networksView(app),
  systems: (app) => systemsView(app),
  backups: (app) => new BackupsView(app),
  storage: (app) => new StorageView(app),
  users: (app) => new UsersView(app),
  network: (_app, name) => new NetworkView(name),
  create: (app, name) => new CreateView(app, name),
};
const TABS = { overview: "Overview", instances: "Instances", nodes: "Nodes", groups: "Groups", networks: "Networks", storage: "Storage", systems: "Systems", backups: "Backups", jobs: "Jobs", map: "Map", maintenance: "Maintenance", users: "Users" };
const KEYS = { o: "overview", i: "instances", d: "nodes", g: "groups", w: "networks", t: "storage", s: "systems", b: "backups", j: "jobs", m: "map", a: "maintenance", u: "users", n: "create" };
const PARENT = { network: "networks", instance: "instances", create: "instances", node: "nodes", job: "jobs" };
const LISTS = {
  info: "/2/info",
  groups: "/2/groups?bulk=1",
  nodes: "/2/nodes?bulk=1",
  instances: "/2/instances?bulk=1&copies=1",
  jobs: jobsPath(),
  maintenance: "/2/maintenance",
};
const STATUS = "/2/maintenance/status"; // asked for while maintenance is on and looked at
// Asked for while the overview is looked at, and so rarely: the master counts for seconds, or asks every node.
const SLOW = { room: ["/2/capacity", 300_000], availability: ["/2/availability", 15_000] };

// Takes a new list, but keeps the objects that are the same as before: their rows stay as they are.
function renewed(before, after, key) {
  const known = new Map(before.map((each) => [each[key], each]));
  return after.map((each) => {
    const old = known.get(each[key]);
    const text = JSON.stringify(each);
    if (old?.text === text) return old;
    Object.defineProperty(each, "text", { value: text });
    return each;
  });
}

class App {
  constructor() {
    this.api = new Api();
    this.follower = new Follower(this.api, (id, values) => this.#jobChanged(id, values));
    this.ended = 0; // jobs that ended while we look; views ask anew then
    this.watched = new Set(); // jobs that were submitted here, until they are done
    this.words = [];
    this.#forget();
  }

  #forget() {
    Object.assign(this, { info: null, maintenance: null, status: null, nodes: [], instances: [], jobs: [], groups: [], user: { name: null, rights: [] }, troubles: new Map() });
    Object.assign(this, { jobsWanted: JOBS_PAGE, hasOlderJobs: false, room: null, availability: null, slowAsked: {} });
    this.follower.stop();
  }

  get mayWrite() {
    return this.user.rights.includes("write");
  }

  jobsFound() {
    return found(this.jobs, this.words, (job) => [String(job.id), job.status, ...job.summary]);
  }

  // Says why there is nothing to press; "" if there is.
  get lacks() {
    if (this.mayWrite) return "";
    if (!this.user.name) return "Sign in to start, stop or migrate instances, and to cancel jobs.";
    return `You can look at everything here and change nothing: ${this.user.name} has no right to write.`;
  }

  // Asking.

  async start() {
    this.#wire();
    await this.#identify();
    this.#open(); // not before: views show what the user may do
    await this.refresh();
    if ([...this.troubles.values()].some((error) => error.status === 401)) await this.signIn();
    setInterval(() => document.hidden || this.refresh(), POLL_MS);
    document.addEventListener("visibilitychange", () => document.hidden || this.refresh());
    window.addEventListener("pageshow", (event) => event.persisted && this.refresh()); // back on it
  }

  async #identify() {
    try {
      this.user = await this.api.ask("GET", "/2/user");
    } catch (error) {
      if (error.status === 401) this.api.sign(null);
      this.user = { name: null, rights: [] };
    }
    byId("who").textContent = this.user.name ? `${this.user.name}${this.mayWrite ? "" : " (reads only)"}` : "";
    byId("sign").textContent = this.user.name ? "Sign out" : "Sign in";
  }

  refresh() {
    this.asking ??= this.#askAll().finally(() => { this.asking = null; });
    return this.asking;
  }

  async #askAll() {
    const asked = this.api.authorization;
    const names = Object.keys(LISTS);
    const answers = await Promise.allSettled(names.map((name) => this.api.changed(LISTS[name])));
    if (asked !== this.api.authorization) return; // somebody else is signed in now
    answers.forEach(({ status, value, reason }, at) => {
      if (status === "rejected") this.troubles.set(names[at], reason);
      else this.troubles.delete(names[at]);
      if (status === "fulfilled" && value !== undefined) this.#take(names[at], value);
    });
    Object.keys(SLOW).forEach((name) => this.#askSlow(asked, name));
    await this.#askStatus();
    await this.#askOldJobs(asked);
    if (asked !== this.api.authorization) return;
    this.#follow();
    this.show();
  }

  // Why nothing is done is known to the maintenance daemon alone.
  async #askStatus() {
    if (!this.maintenance || this.kind !== "maintenance") return;
    try {
      this.status = await this.api.ask("GET", STATUS);
      this.troubles.delete("status");
    } catch (error) {
      this.status = null;
      this.troubles.set("status", error);
    }
  }

  // Nobody waits for it: lists are shown meanwhile.
  async #askSlow(asked, name) {
    const [path, pause] = SLOW[name];
    if (this.kind !== "overview" || performance.now() - this.slowAsked[name] < pause) return;
    this.slowAsked[name] = performance.now();
    const answer = await this.api.ask("GET", path).catch((error) => ({ error }));
    if (asked !== this.api.authorization) return;
    this[name] = answer;
    this.show();
  }

  #take(name, value) {
    if (name === "info" || name === "maintenance") {
      this[name] = value;
      return;
    }
    if (name === "jobs") this.#takeJobs(value, Infinity);
    else this[name] = renewed(this[name], value, "name");
  }

  // Takes a page of jobs, all there are before one; of those known so far, what it leaves out is gone.
  #takeJobs(page, before) {
    const last = new Map(this.jobs.map((job) => [job.id, job.last]));
    page.forEach((job) => Object.assign(job, { isOpen: isOpen(job), last: last.get(job.id) }));
    const jobs = merged(this.jobs, renewed(this.jobs, page, "id"), before);
    this.jobs = jobs.slice(0, this.jobsWanted);
    if (jobs.length > this.jobsWanted) this.hasOlderJobs = true;
    else if (page.length < JOBS_PAGE) this.hasOlderJobs = false;
    else if (jobs.at(-1).id === page[0].id) this.hasOlderJobs = true;
    this.jobs.filter((job) => !job.isOpen && this.watched.delete(job.id)).forEach((job) => this.#tellEnd(job));
  }

  // The newest jobs are asked for each time; older ones that are shown, as long as they are not done.
  async #askOldJobs(asked) {
    let below = this.jobs[JOBS_PAGE - 1]?.id ?? 0;
    for (let pages = 0; pages < OLD_PAGES_MAX; pages += 1) {
      const old = this.jobs.find((job) => job.isOpen && job.id < below);
      if (!old) return;
      try {
        const page = await this.api.ask("GET", jobsPath(old.id + 1));
        if (asked !== this.api.authorization) return;
        this.#takeJobs(page, old.id + 1);
        below = page[0]?.id ?? 0;
      } catch (error) {
        this.troubles.set("jobs", error);
        return;
      }
    }
  }

  async askOlderJobs() {
    const before = this.jobs.at(-1)?.id ?? 0;
    try {
      const page = await this.api.ask("GET", jobsPath(before));
      this.jobsWanted += JOBS_PAGE;
      this.#takeJobs(page, before);
    } catch (error) {
      note("red", error.message);
    }
    this.show();
  }

  #follow() {
    const open = this.jobs.filter((job) => job.isOpen).sort((one, other) => other.id - one.id);
    open.slice(0, FOLLOWED_MAX).forEach((job) => this.follower.follow(job.id));
  }

  #jobChanged(id, values) {
    this.jobs = this.jobs.map((job) => (job.id === id ? { ...job, ...values, isOpen: isOpen(values) } : job));
    const job = this.jobs.find((each) => each.id === id);
    if (!isOpen(values)) {
      this.ended += 1;
      this.api.tags.delete(LISTS.jobs);
      if (job && this.watched.delete(id)) this.#tellEnd(job); // otherwise the list tells, which has its summary
      this.refresh();
    }
    this.show();
  }

  #tellEnd(job) {
    this.ended += 1;
    note(job.status === "success" ? "green" : "red", link("job", job.id, `Job ${job.id}`), ` ${job.summary.join(", ")}: ${job.status}`);
  }

  // Acting.

  // Where a job tells the other nodes, none at all is a warning.
  async act({ word, title, text, method, path, choices, bodyOf, isTold }) {
    const chosen = await confirmed({ title, text, word, choices });
    if (chosen === null) return;
    try {
      const answer = await this.api.ask(method, path, { body: bodyOf?.(chosen) });
      if (answer === null && isTold) {
        this.warnUntold(title.replace("?", ""));
      } else if (answer === null) {
        note("green", `${title.replace("?", ":")} done.`);
      } else if (typeof answer !== "number") {
        note(answer[0] ? "green" : "red", answer[1]);
      } else {
        this.watch(answer, title.replace("?", ""));
      }
    } catch (error) {
      const why = error.status === 401 ? "You are not signed in any more: the password or token is not valid now." : error.message;
      note("red", `${title.replace("?", ":")} ${why}`);
      if (error.status === 401 || error.status === 403) {
        await this.#identify(); // the rights are not what they were
        this.#open();
      }
    }
    await this.refresh();
  }

  warnUntold(title) {
    note("red", `${title}: done, but no job could be submitted that tells the other nodes.`);
  }

  tell(tone, ...content) {
    note(tone, ...content);
  }

  // Which systems there are takes a job to find out, so it is asked rarely.
  async systems() {
    if (!this.os || performance.now() - this.os.asked > SYSTEMS_MS) {
      this.os = { asked: performance.now(), names: await this.api.ask("GET", "/2/os") };
    }
    return this.os.names;
  }

  // Tells of a job that was submitted here, and of its end.
  watch(id, title) {
    this.watched.add(id);
    note("blue", `${title}: `, link("job", id, `job ${id}`), " was submitted.");
    this.follower.follow(id);
    this.refresh();
  }

  async signIn() {
    const check = async (entered) => {
      const authorization = authorizationOf(entered);
      try {
        await this.api.ask("GET", "/2/user", { authorization });
      } catch (error) {
        return error.status === 401 ? "The user, the password or the token is wrong." : error.message;
      }
      this.api.sign(authorization);
      return null;
    };
    if (await signIn(check)) await this.#changeUser();
  }

  async #changeUser() {
    this.#forget();
    this.asking = null;
    await this.#identify();
    this.#open();
    await this.refresh();
  }

  // Showing.

  #wire() {
    const kept = sessionStorage.getItem(THEME);
    if (kept) document.documentElement.dataset.theme = kept;
    byId("theme").addEventListener("click", () => this.#changeTheme());
    byId("sign").addEventListener("click", () => {
      if (!this.user.name) return this.signIn();
      this.api.sign(null);
      return this.#changeUser();
    });
    byId("skip").addEventListener("click", (event) => {
      event.preventDefault();
      byId("main").focus();
    });
    byId("search-form").addEventListener("submit", (event) => event.preventDefault());
    byId("search").addEventListener("input", (event) => {
      this.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      this.show();
    });
    document.addEventListener("keydown", (event) => {
      const isTyping = event.target.closest("input, textarea, select, dialog");
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "/") {
        event.preventDefault();
        byId("search").focus();
      } else if (Object.hasOwn(KEYS, event.key)) {
        location.hash = `#/${KEYS[event.key]}`;
      }
    });
    window.addEventListener("hashchange", () => {
      this.#open();
      window.scrollTo(0, 0);
      byId("main").focus({ preventScroll: true });
    });
  }

  #changeTheme() {
    const { dataset } = document.documentElement;
    const isDark = dataset.theme ? dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    dataset.theme = isDark ? "light" : "dark";
    sessionStorage.setItem(THEME, dataset.theme);
  }

  #open() {
    const [kind, name] = location.hash.replace(/^#\/?/, "").split("/");
    this.kind = Object.hasOwn(VIEWS, kind) ? kind : "overview";
    this.view?.close();
    let given = "";
    try {
      given = decodeURIComponent(name ?? "");
    } catch {
      this.kind = "overview";
    }
    this.view = VIEWS[this.kind](this, given);
    if (["maintenance", "overview"].includes(this.kind) && this.info) this.refresh();
    byId("main").replaceChildren(this.view.element);
    this.show();
  }

  show() {
    const name = this.info?.name ?? "Ganeti";
    if (byId("cluster").textContent !== name) byId("cluster").replaceChildren(...breakable(name));
    document.title = `${this.view.title} – ${name}`;
    const errors = [...new Set([...this.troubles.values()].map((error) => error.message))];
    byId("trouble").hidden = errors.length === 0;
    if (byId("trouble").textContent !== errors.join(" ")) byId("trouble").textContent = errors.join(" ");
    this.#showTabs();
    if (this.info || this.troubles.size) this.view.update(this);
  }

  #showTabs() {
    const counts = { instances: [instancesFound(this), this.instances], nodes: [nodesFound(this), this.nodes], jobs: [this.jobsFound(), this.jobs] };
    const texts = Object.entries(TABS).map(([kind, word]) => {
      const [some, all] = counts[kind] ?? [[], []];
      const whole = `${all.length}${kind === "jobs" && this.hasOlderJobs ? "+" : ""}`;
      return [kind, word, counts[kind] && this.info ? (this.words.length ? `${some.length}/${whole}` : whole) : ""];
    });
    const here = PARENT[this.kind] ?? this.kind;
    const signature = JSON.stringify([texts, here]);
    if (signature === this.tabs) return;
    this.tabs = signature;
    const tabs = byId("tabs");
    if (!tabs.children.length) tabs.append(...texts.map(([kind]) => el("a", { href: `#/${kind}` }, el("span"), " ", el("span", { class: "count" }))));
    texts.forEach(([kind, word, count], at) => {
      const tab = tabs.children[at];
      tab.firstElementChild.textContent = word;
      tab.lastElementChild.textContent = count;
      if (kind === here) {
        tab.setAttribute("aria-current", "page");
        tab.scrollIntoView({ block: "nearest", inline: "center" }); // on a telephone not all can be seen
      } else tab.removeAttribute("aria-current");
    });
  }
}

new App().start();
