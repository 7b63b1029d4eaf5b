// The whole: who is signed in, what is known of the cluster, which view is shown.

import { Api, authorizationOf } from "/ui/api.js";
import { InstanceView, NodeView, OverviewView, found, instancesFound, instancesView, nodesFound, nodesView } from "/ui/cluster.js";
import { confirmed, note, signIn } from "/ui/dialog.js";
import { byId, el, link } from "/ui/dom.js";
import { Follower, JobView, JobsView, isOpen } from "/ui/jobs.js";
import { MapView } from "/ui/map.js";

const POLL_MS = 5000;
const FOLLOWED_MAX = 3; // a browser opens few connections to one server
const THEME = "ganeti-theme";

const VIEWS = {
  overview: (app) => new OverviewView(app),
  instances: (app) => instancesView(app),
  nodes: () => nodesView(),
  jobs: () => new JobsView(),
  map: () => new MapView(),
  instance: (_app, name) => new InstanceView(name),
  node: (app, name) => new NodeView(name, app),
  job: (_app, id) => new JobView(id),
};
const TABS = { overview: "Overview", instances: "Instances", nodes: "Nodes", jobs: "Jobs", map: "Map" };
const PARENT = { instance: "instances", node: "nodes", job: "jobs" };
const LISTS = {
  info: "/2/info",
  groups: "/2/groups?bulk=1",
  nodes: "/2/nodes?bulk=1",
  instances: "/2/instances?bulk=1",
  jobs: "/2/jobs?bulk=1",
};

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
    this.watched = new Set(); // jobs that were submitted here, until they are done
    this.#forget();
  }

  #forget() {
    Object.assign(this, { info: null, nodes: [], instances: [], jobs: [], groups: [], user: { name: null, rights: [] }, words: [], troubles: new Map() });
    this.follower.stop();
  }

  get mayWrite() {
    return this.user.rights.includes("write");
  }

  jobsFound() {
    return found(this.jobs, this.words, (job) => [String(job.id), job.status, ...job.summary]);
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
    this.#follow();
    this.show();
  }

  #take(name, value) {
    if (name === "info") {
      this.info = value;
      return;
    }
    if (name === "jobs") {
      const before = new Map(this.jobs.map((job) => [job.id, job.last]));
      value.forEach((job) => Object.assign(job, { isOpen: isOpen(job), last: before.get(job.id) }));
    }
    this[name] = renewed(this[name], value, name === "jobs" ? "id" : "name");
    this.jobs.filter((job) => !job.isOpen && this.watched.delete(job.id)).forEach((job) => this.#tellEnd(job));
  }

  #follow() {
    const open = this.jobs.filter((job) => job.isOpen).sort((one, other) => other.id - one.id);
    open.slice(0, FOLLOWED_MAX).forEach((job) => this.follower.follow(job.id));
  }

  #jobChanged(id, values) {
    this.jobs = this.jobs.map((job) => (job.id === id ? { ...job, ...values, isOpen: isOpen(values) } : job));
    const job = this.jobs.find((each) => each.id === id);
    if (!isOpen(values)) {
      this.api.tags.delete(LISTS.jobs);
      if (this.watched.delete(id)) this.#tellEnd(job ?? { id, ...values, summary: [] });
      this.refresh();
    }
    this.show();
  }

  #tellEnd(job) {
    note(job.status === "success" ? "green" : "red", link("job", job.id, `Job ${job.id}`), ` ${job.summary.join(", ")}: ${job.status}`);
  }

  // Acting.

  async act({ word, title, text, method, path }) {
    if (!(await confirmed(title, text, word))) return;
    try {
      const answer = await this.api.ask(method, path);
      if (typeof answer !== "number") {
        note(answer[0] ? "green" : "red", answer[1]);
      } else {
        this.watched.add(answer);
        note("blue", `${title.replace("?", ":")} `, link("job", answer, `job ${answer}`), " was submitted.");
        this.follower.follow(answer);
      }
    } catch (error) {
      note("red", `${title.replace("?", ":")} ${error.message}`);
    }
    await this.refresh();
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
      const isTyping = event.target.closest("input, textarea, dialog");
      if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      byId("search").focus();
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
    byId("main").replaceChildren(this.view.element);
    this.show();
  }

  show() {
    const name = this.info?.name ?? "Ganeti";
    byId("cluster").textContent = name;
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
      return [kind, word, counts[kind] && this.info ? (this.words.length ? `${some.length}/${all.length}` : `${all.length}`) : ""];
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
      if (kind === here) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    });
  }
}

new App().start();
