// The console of one instance: a terminal (xterm.js) or a screen (noVNC), by WebSocket.
// The address is console.html#NAME/serial or #NAME/graphics.

import { Api } from "/ui/api.js";
import { byId } from "/ui/dom.js";

const PROTOCOL = "ganeti.console";
const TICKET = "ganeti.ticket.";
const CLOSING_MS = 3000; // for the server to let the console go that was there before
const FONT = 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';

const say = (text) => { byId("state").textContent = text; };

// Asks for a ticket as the user who is signed in; a socket is to be opened with it at once.
async function ticketFor(name, way) {
  const { ticket } = await new Api().ask("POST", `/2/instances/${encodeURIComponent(name)}/console-ticket?way=${way}`);
  return ticket;
}

function connect(ticket) {
  const socket = new WebSocket(`${location.origin.replace("http", "ws")}/ui/console-socket`, [PROTOCOL, TICKET + ticket]);
  socket.binaryType = "arraybuffer";
  return socket;
}

// Resolves once the server has let the console of a socket go: it is for one client at a time.
// One that is not open yet is closed when it is: dropped before, the browser says that it is
// closed while the server may still hold the console (and warns in its log).
function closed(socket) {
  if (!socket || socket.readyState === WebSocket.CLOSED) return Promise.resolve();
  if (socket.readyState === WebSocket.CONNECTING) socket.addEventListener("open", () => socket.close());
  else socket.close();
  return new Promise((done) => {
    socket.addEventListener("close", done);
    setTimeout(done, CLOSING_MS);
  });
}

// Resolves once a socket is open, or will never be.
const opened = (socket) => new Promise((done) => {
  for (const event of ["open", "close"]) socket.addEventListener(event, done);
});

// The two ways of showing a socket; nothing that it says is lost, as all is loaded before it is opened.
async function terminal() {
  const [{ Terminal }, { FitAddon }] = await Promise.all([import("/ui/lib/xterm/xterm.mjs"), import("/ui/lib/xterm/addon-fit.mjs")]);
  const options = { cursorBlink: true, fontFamily: FONT, fontSize: 15, scrollback: 5000, screenReaderMode: true };
  return (socket) => showTerminal(new Terminal(options), new FitAddon(), socket);
}

function showTerminal(shown, fit, socket) {
  shown.loadAddon(fit);
  shown.open(byId("screen"));
  const fitted = new ResizeObserver(() => fit.fit());
  fitted.observe(byId("screen"));
  const encoder = new TextEncoder();
  const send = (bytes) => { if (socket.readyState === WebSocket.OPEN) socket.send(bytes); };
  shown.onData((text) => send(encoder.encode(text)));
  shown.onBinary((text) => send(Uint8Array.from(text, (each) => each.charCodeAt(0))));
  socket.addEventListener("message", () => say("Connected"), { once: true });
  socket.addEventListener("message", ({ data }) => shown.write(new Uint8Array(data)));
  shown.focus();
  return { close: () => { fitted.disconnect(); shown.dispose(); } };
}

async function screen() {
  const { default: RFB } = await import("/ui/lib/novnc/core/rfb.js");
  return (socket) => showScreen(new RFB(byId("screen"), socket));
}

function showScreen(shown) {
  shown.scaleViewport = true;
  shown.background = "transparent";
  shown.addEventListener("credentialsrequired", () => {
    const password = window.prompt("Password of the console:");
    if (password === null) shown.disconnect();
    else shown.sendCredentials({ password });
  });
  shown.addEventListener("connect", () => {
    say("Connected");
    shown.focus();
  });
  shown.addEventListener("securityfailure", ({ detail }) => say(`Refused: ${detail.reason ?? "wrong password"}`));
  byId("keys").hidden = false;
  byId("keys").onclick = () => {
    shown.sendCtrlAltDel();
    shown.focus();
  };
  return { close: () => shown.disconnect() };
}

class Console {
  constructor(name, way) {
    Object.assign(this, { name, way, attempt: 0 });
    document.title = `${name} – ${way} console`;
    byId("name").textContent = name;
    byId("back").href = `/ui/#/instance/${encodeURIComponent(name)}`;
    byId("again").onclick = () => this.open();
    byId("whole").onclick = () => byId("screen").requestFullscreen();
  }

  // A later call, by the button, takes the place of one that is under way.
  async open() {
    this.attempt += 1;
    const { attempt } = this;
    this.closing = Promise.all([this.closing, closed(this.socket)]);
    this.shown?.close();
    this.shown = this.socket = undefined;
    byId("screen").replaceChildren();
    byId("keys").hidden = true;
    say("Connecting …");
    try {
      const [show] = await Promise.all([this.way === "graphics" ? screen() : terminal(), this.closing]);
      if (this.attempt !== attempt) return;
      const ticket = await ticketFor(this.name, this.way);
      if (this.attempt !== attempt) return;
      const socket = connect(ticket);
      this.socket = socket;
      socket.addEventListener("close", ({ reason }) => this.socket === socket && say(reason || "Not connected"));
      await opened(socket);
      if (this.attempt === attempt && socket.readyState === WebSocket.OPEN) this.shown = show(socket);
    } catch (error) {
      if (this.attempt === attempt) say(error.status === 401 ? "Sign in to the dashboard in this tab first." : error.message);
    }
  }
}

const [name, way] = location.hash.slice(1).split("/").map(decodeURIComponent);
new Console(name, way === "graphics" ? "graphics" : "serial").open();
window.addEventListener("hashchange", () => location.reload());
