// Users of the remote API: one's own tokens, and for administrators everybody's rights and roles.

import { badge, between, el, when } from "/ui/dom.js";
import { confirmed } from "/ui/dialog.js";
import { Table } from "/ui/table.js";

const REFRESH_MS = 15_000;
const OWN = "/2/user/tokens";
const DAYS = ["7", "30", "90", "365"];
const WHERE = "gnt-rapi set-user and gnt-rapi set-role change users and roles, on the master node.";

const end = (token) => (token.expires ? when([token.expires, 0], true) : "never");
const isOver = (token) => token.expires > 0 && token.expires * 1000 <= Date.now();
const words = (list) => (list.length ? list.join(", ") : "–");
const rights = (user) => (user.rights.length ? between(user.rights.map((right) => badge(right, right === "write" ? "amber" : "blue")), " ") : "–");

const removal = (app, token, path) => el("button", {
  type: "button",
  "aria-label": `Remove the token ${token.id}`,
  "data-focus": path,
  click: () => app.act({ word: "Remove it", method: "DELETE", path, title: `Remove the token ${token.id}?`, text: "Whatever signs in with it is refused from then on." }),
}, "Remove");

const tokenCell = (app, user) => (user.tokens.length ? user.tokens.map((token) => el("div", {}, el("code", {}, token.id), ` until ${end(token)} `,
  el("span", { class: "actions" }, removal(app, token, `/2/users/${encodeURIComponent(user.name)}/tokens/${encodeURIComponent(token.id)}`)))) : "–");

const grantText = (grant) => [grant.rights.join(", "), `on ${grant.resources.join(", ")}`,
  grant.names.length ? `of instances ${grant.names.join(", ")}` : "", grant.tags.length ? `with the tags ${grant.tags.join(", ")}` : ""].filter(Boolean).join(" ");

function tables(app) {
  const own = new Table({
    label: "Your tokens",
    empty: "You have no token.",
    key: (token) => token.id,
    columns: [
      { name: "Token", sort: (token) => token.id, cell: (token) => el("code", {}, token.id), kind: "title" },
      { name: "Good until", sort: (token) => token.expires || Infinity, cell: (token) => (isOver(token) ? [end(token), " ", badge("over", "grey")] : end(token)) },
      { name: "Actions", cell: (token) => el("span", { class: "actions" }, removal(app, token, `${OWN}/${encodeURIComponent(token.id)}`)), kind: "acts" },
    ],
  });
  const users = new Table({
    label: "Users",
    empty: "None.",
    key: (user) => user.name,
    columns: [
      { name: "User", sort: (user) => user.name, cell: (user) => user.name, kind: "title" },
      { name: "Rights", sort: (user) => user.rights.join(" "), cell: rights },
      { name: "Roles", sort: (user) => user.roles.join(" "), cell: (user) => words(user.roles) },
      { name: "Password", sort: (user) => user.password, cell: (user) => badge(user.password, { cleartext: "red", ha1: "amber", none: "grey" }[user.password] ?? "green") },
      { name: "Tokens", sort: (user) => user.tokens.length, cell: (user) => tokenCell(app, user) },
    ],
  });
  const roles = new Table({
    label: "Roles",
    empty: "There are no roles.",
    key: (role) => role.name,
    columns: [
      { name: "Role", sort: (role) => role.name, cell: (role) => role.name, kind: "title" },
      { name: "May", cell: (role) => role.grants.map((grant) => el("div", {}, grantText(grant))) },
    ],
  });
  return { own, users, roles };
}

export class UsersView {
  constructor(app) {
    Object.assign(this, { title: "Users", asked: -Infinity, tables: tables(app) });
    const { own, users, roles } = this.tables;
    const byToken = app.api.authorization?.startsWith("Bearer ");
    const make = app.user.name && !byToken && el("button", { type: "button", click: () => this.#make(app) }, "New token");
    this.hint = el("p", { class: "hint" }, app.user.name ? (byToken ? "You signed in with a token: new ones are made by those who sign in with the password." : "") : "Sign in to see your tokens.");
    this.made = el("div");
    this.wrong = el("p", { class: "wrong" });
    this.element = el("section", {}, el("div", { class: "head" }, el("h1", {}, "Users"), make), this.hint, this.made, this.wrong,
      app.user.name ? [el("h2", {}, `Tokens of ${app.user.name}`), own.element] : null,
      app.mayWrite ? [el("h2", {}, "All users"), el("p", { class: "hint" }, WHERE), users.element, el("h2", {}, "Roles"), roles.element] : null);
  }

  async update(app) {
    const isSame = app.ended === this.ended && app.words === this.words && performance.now() - this.asked < REFRESH_MS;
    if (!app.user.name || isSame) return;
    Object.assign(this, { ended: app.ended, words: app.words, asked: performance.now() });
    const [me, all] = await Promise.allSettled([app.api.ask("GET", "/2/user"), app.mayWrite ? app.api.ask("GET", "/2/users") : null]);
    if (this.isClosed) return;
    this.wrong.textContent = [me, all].map(({ reason }) => reason?.message ?? "").join(" ").trim();
    this.tables.own.update(me.value?.tokens ?? []);
    const chosen = (rows) => rows.filter((row) => app.words.every((word) => JSON.stringify(row).toLowerCase().includes(word)));
    this.tables.users.update(chosen(all.value?.users ?? []));
    this.tables.roles.update(chosen(all.value?.roles ?? []));
  }

  async #make(app) {
    const days = await confirmed({
      title: "Make a token?",
      text: `It stands for ${app.user.name}, with all rights of ${app.user.name}, for programs that are not to know the password.`,
      word: "Make it",
      choices: { label: "Good for so many days", values: DAYS },
    });
    if (days === null) return;
    try {
      const { token, expires, job } = await app.api.ask("POST", OWN, { body: { days: Number(days) } });
      const copy = el("button", { type: "button", click: () => navigator.clipboard.writeText(token) }, "Copy");
      this.made.replaceChildren(el("p", { class: "note green" }, el("span", {}, "The new token, good until ", end({ expires }), ", is shown only now: ", el("code", { id: "new-token" }, token)), copy));
      if (job === null) app.tell("red", "The other master candidates do not know the token yet; gnt-cluster redist-conf tells them.");
      else app.watch(job, "Tell the other master candidates");
    } catch (error) {
      app.tell("red", error.message);
    }
    this.asked = -Infinity;
    this.update(app);
  }

  close() {
    this.isClosed = true;
    this.made.replaceChildren(); // a secret stays nowhere
    Object.values(this.tables).forEach((table) => table.close());
  }
}
