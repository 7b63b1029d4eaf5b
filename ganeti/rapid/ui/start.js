// A part of the page that does not come, on a network or machine that is overloaded, stops all of
// it: a module that fails to load is asked for once only.  So the page is loaded anew then, three
// times, and says so in the end.

const KEY = "ganeti-loads", LOADS_MAX = 3, PAUSE_MS = 1000;
let failed = false;

addEventListener("error", (event) => {
  if (!(event.target instanceof HTMLScriptElement)) return;
  failed = true;
  const loads = Number(sessionStorage.getItem(KEY)) + 1;
  if (loads > LOADS_MAX) {
    document.querySelector("#main").textContent = "Parts of this page did not come. Load it again.";
    sessionStorage.removeItem(KEY);
    return;
  }
  sessionStorage.setItem(KEY, loads);
  setTimeout(() => location.reload(), loads * PAUSE_MS);
}, true);
addEventListener("load", () => failed || sessionStorage.removeItem(KEY));
