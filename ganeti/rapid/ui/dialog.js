// Questions to the person in front, and notes.

import { byId, el } from "/ui/dom.js";

const NOTES_MAX = 4;
const NOTE_MS = 12000;

// Answers what was chosen ("" if there was nothing to choose), or null: Escape and Cancel are no.
export function confirmed({ title, text, word, choices = null }) {
  const dialog = byId("confirm");
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  byId("confirm-yes").textContent = word;
  byId("confirm-choice").hidden = choices === null;
  byId("confirm-label").textContent = choices?.label ?? "";
  byId("confirm-select").replaceChildren(...(choices?.values ?? []).map((value) => el("option", {}, value)));
  byId("confirm-yes").disabled = choices?.values.length === 0;
  dialog.returnValue = "no";
  return new Promise((resolve) => {
    const chosen = () => (dialog.returnValue === "yes" ? byId("confirm-select").value : null);
    dialog.addEventListener("close", () => resolve(chosen()), { once: true });
    dialog.showModal();
    byId("confirm-no").focus();
  });
}

export function note(tone, ...content) {
  const box = byId("notes");
  const gone = () => shown.remove();
  const shown = el("p", { class: `note ${tone}` }, el("span", {}, content),
    el("button", { type: "button", class: "quiet", "aria-label": "Close", click: gone }, "×"));
  box.append(shown);
  while (box.children.length > NOTES_MAX) box.firstElementChild.remove();
  if (tone !== "red") setTimeout(gone, NOTE_MS); // what went wrong stays until it is closed
}

// Asks until `check` accepts what was entered, or it is given up; answers whether it was accepted.
export function signIn(check) {
  const dialog = byId("login");
  const form = byId("login-form");
  const fields = { user: byId("login-user"), password: byId("login-password"), token: byId("login-token") };
  const wrong = byId("login-error");
  const controller = new AbortController();
  const on = (target, event, act) => target.addEventListener(event, act, { signal: controller.signal });
  wrong.textContent = "";
  return new Promise((resolve) => {
    let isDone = false;
    on(form, "submit", async (event) => {
      event.preventDefault();
      const entered = Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value.trim()]));
      entered.password = fields.password.value;
      byId("login-submit").disabled = true;
      wrong.textContent = "";
      wrong.textContent = (await check(entered)) ?? "";
      byId("login-submit").disabled = false;
      if (wrong.textContent) {
        fields[entered.token ? "token" : "password"].select();
        return;
      }
      isDone = true;
      dialog.close();
    });
    on(byId("login-cancel"), "click", () => dialog.close());
    on(dialog, "close", () => {
      controller.abort();
      fields.password.value = fields.token.value = "";
      resolve(isDone);
    });
    if (!dialog.open) dialog.showModal();
    fields.user.focus();
  });
}
