// Users of the remote API: one's own tokens, and for administrators everybody's rights and roles.

import { badge, between, el, when } from "/ui/dom.js";
import { confirmed } from "/ui/dialog.js";
import { operate } from "/ui/operate.js";
import { Table } from "/ui/table.js";

const REFRESH_MS = 15_000;
const OWN = "/2/user/tokens";
const DAYS = ["7", "30", "90", "365"];
const RIGHTS = ["read", "write"];
const EVERYTHING = "/2/*";
const BY_TOKEN = "You signed in with a token: tokens, users and roles are changed by those who sign in with the password.";

const end = (token) => (token.expires ? when([token.expires, 0], true) : "never");
const isOver = (token) => token.expires > 0 && token.expires * 1000 <= Date.now();
const words = (list) => (list.length ? list.join(", ") : "–");
const rights = (user) => (user.rights.length ? between(user.rights.map((right) => badge(right, right === "write" ? "amber" : "blue")), " ") : "–");

const removing = (app, what, path, text) => el("button", {
  type: "button",
  "aria-label": `Remove the ${what}`,
  "data-focus": path,
  click: () => app.act({ word: "Remove it", method: "DELETE", path, title: `Remove the ${what}?`, text, isTold: true }),
}, "Remove");

const removal = (app, token, path) => removing(app, `token ${token.id}`, path, "Whatever signs in with it is refused from then on.");

// Forms for users and roles.

const flags = (has) => RIGHTS.map((right) => ({ name: right, label: right, kind: "flag", value: has.includes(right), always: true }));
const chosenRights = (values) => RIGHTS.filter((right) => values[right]);

function setUser(app, user, roles) {
  const isOwn = user?.name === app.user.name; // nobody changes what oneself may do
  const known = roles.map(({ name }) => name).join(", ");
  return operate(app, {
    title: user ? `Change the user ${user.name}` : "New user",
    word: user ? "Change" : "Make it",
    method: "PUT",
    path: "/2/users/{user}",
    in: { user: user?.name },
    fields: [
      ...(user ? [] : [{ name: "user", label: "Name", kind: "text", required: true }]),
      { name: "password", label: "Password", kind: "secret", hint: user ? "It stays without a new one." : "Without one the user has tokens only." },
      ...(isOwn ? [] : [...flags(user?.rights ?? ["read"]), { name: "roles", label: "Roles", kind: "words", value: user?.roles.join(" "), always: true, hint: known ? `Known: ${known}.` : "There are none yet." }]),
    ],
    pathOf: (values) => (user ? {} : { user: values.user }),
    bodyOf: (values) => ({ password: values.password ?? null, ...(isOwn ? {} : { rights: chosenRights(values), roles: values.roles ?? [] }) }),
  });
}

function grantFields(grant) {
  const patterns = { kind: "words", always: true };
  return [
    ...flags(grant?.rights ?? ["read"]),
    { ...patterns, name: "resources", label: "Resources", value: (grant?.resources ?? [EVERYTHING]).join(" "), hint: `Patterns, such as ${EVERYTHING} or /2/instances/*/startup.` },
    { ...patterns, name: "names", label: "Only instances named", value: grant?.names.join(" "), hint: "Patterns, such as web*." },
    { ...patterns, name: "tags", label: "Or with the tags", value: grant?.tags.join(" ") },
  ];
}

const grantOf = (values) => ({ rights: chosenRights(values), resources: values.resources ?? [EVERYTHING], names: values.names ?? [], tags: values.tags ?? [] });

const setRole = (app, role) => operate(app, {
  title: role ? `Change the role ${role.name}` : "New role",
  word: role ? "Change" : "Make it",
  method: "PUT",
  path: "/2/roles/{role}",
  in: { role: role?.name },
  fields: [
    ...(role ? [] : [{ name: "role", label: "Name", kind: "text", required: true }]),
    { name: "grants", label: "Who has it may", one: "a grant", kind: "rows", count: role?.grants.length ?? 1, fields: (at) => grantFields(role?.grants[at]) },
  ],
  pathOf: (values) => (role ? {} : { role: values.role }),
  bodyOf: ({ grants }) => ({ grants: grants.map(grantOf) }),
});

const button = (label, click) => el("button", { type: "button", "aria-label": label, "data-focus": label, click }, "Change");

const tokenCell = (app, user) => (user.tokens.length ? user.tokens.map((token) => el("div", {}, el("code", {}, token.id), ` until ${end(token)} `,
  el("span", { class: "actions" }, removal(app, token, `/2/users/${encodeURIComponent(user.name)}/tokens/${encodeURIComponent(token.id)}`)))) : "–");

const grantText = (grant) => [grant.rights.join(", "), `on ${grant.resources.join(", ")}`,
  grant.names.length ? `of instances ${grant.names.join(", ")}` : "", grant.tags.length ? `with the tags ${grant.tags.join(", ")}` : ""].filter(Boolean).join(" ");

function tables(app, view) {
  const actions = (cell) => (view.mayChange ? [{ name: "Actions", cell: (row) => el("span", { class: "actions" }, cell(row)), kind: "acts" }] : []);
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
      ...actions((user) => [
        button(`Change the user ${user.name}`, () => setUser(app, user, view.roles)),
        user.name === app.user.name ? null : removing(app, `user ${user.name}`, `/2/users/${encodeURIComponent(user.name)}`, "All tokens of the user go too."),
      ]),
    ],
  });
  const roles = new Table({
    label: "Roles",
    empty: "There are no roles.",
    key: (role) => role.name,
    columns: [
      { name: "Role", sort: (role) => role.name, cell: (role) => role.name, kind: "title" },
      { name: "May", cell: (role) => role.grants.map((grant) => el("div", {}, grantText(grant))) },
      ...actions((role) => [
        app.user.roles?.includes(role.name) ? null : button(`Change the role ${role.name}`, () => setRole(app, role)), // as above
        removing(app, `role ${role.name}`, `/2/roles/${encodeURIComponent(role.name)}`, "It goes if no user has it."),
      ]),
    ],
  });
  return { own, users, roles };
}

export class UsersView {
  constructor(app) {
    const byToken = app.api.authorization?.startsWith("Bearer ");
    Object.assign(this, { title: "Users", asked: -Infinity, roles: [], mayChange: app.mayWrite && !byToken });
    this.tables = tables(app, this);
    const { own, users, roles } = this.tables;
    const make = app.user.name && !byToken && el("button", { type: "button", click: () => this.#make(app) }, "New token");
    this.hint = el("p", { class: "hint" }, app.user.name ? (byToken ? BY_TOKEN : "") : "Sign in to see your tokens.");
    this.made = el("div");
    this.wrong = el("p", { class: "wrong" });
    this.lists = el("div", { hidden: true }, // until the rows are there, which would push a button away from under a click
      app.user.name ? [el("h2", {}, `Tokens of ${app.user.name}`), own.element] : null,
      app.mayWrite ? [this.#head("All users", "New user", () => setUser(app, null, this.roles)), users.element, this.#head("Roles", "New role", () => setRole(app, null)), roles.element] : null);
    this.element = el("section", {}, el("div", { class: "head" }, el("h1", {}, "Users"), make), this.hint, this.made, this.wrong, this.lists);
  }

  #head(title, word, click) {
    return el("div", { class: "head" }, el("h2", {}, title), this.mayChange ? el("button", { type: "button", "data-operation": word, click }, word) : null);
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
    this.roles = all.value?.roles ?? [];
    this.tables.roles.update(chosen(this.roles));
    this.lists.hidden = false;
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
