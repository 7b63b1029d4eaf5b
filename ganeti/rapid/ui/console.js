// The console of one instance: a terminal (xterm.js) or a screen (noVNC), by WebSocket.
// The address is console.html#NAME/serial or #NAME/graphics.

import { Api } from "/ui/api.js";
import { byId } from "/ui/dom.js";

const PROTOCOL = "ganeti.console";
const TICKET = "ganeti.ticket.";
const FONT = 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';

const say = (text) => { byId("state").textContent = text; };

// Asks for a ticket as the user who is signed in, and opens the socket with it at once.
async function connect(name, way) {
  const { ticket } = await new Api().ask("POST", `/2/instances/${encodeURIComponent(name)}/console-ticket?way=${way}`);
  const socket = new WebSocket(`${location.origin.replace("http", "ws")}/ui/console-socket`, [PROTOCOL, TICKET + ticket]);
  socket.binaryType = "arraybuffer";
  return socket;
}

async function terminal(socket) {
  const [{ Terminal }, { FitAddon }] = await Promise.all([import("/ui/lib/xterm/xterm.mjs"), import("/ui/lib/xterm/addon-fit.mjs")]);
  const shown = new Terminal({ cursorBlink: true, fontFamily: FONT, fontSize: 15, scrollback: 5000, screenReaderMode: true });
  const fit = new FitAddon();
  shown.loadAddon(fit);
  shown.open(byId("screen"));
  const fitted = new ResizeObserver(() => fit.fit());
  fitted.observe(byId("screen"));
  const encoder = new TextEncoder();
  const send = (bytes) => { if (socket.readyState === WebSocket.OPEN) socket.send(bytes); };
  shown.onData((text) => send(encoder.encode(text)));
  shown.onBinary((text) => send(Uint8Array.from(text, (each) => each.charCodeAt(0))));
  socket.addEventListener("message", ({ data }) => shown.write(new Uint8Array(data)));
  shown.focus();
  return { close: () => { fitted.disconnect(); shown.dispose(); } };
}

async function screen(socket) {
  const { default: RFB } = await import("/ui/lib/novnc/core/rfb.js");
  const shown = new RFB(byId("screen"), socket);
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
    Object.assign(this, { name, way });
    document.title = `${name} – ${way} console`;
    byId("name").textContent = name;
    byId("back").href = `/ui/#/instance/${encodeURIComponent(name)}`;
    byId("again").onclick = () => this.open();
    byId("whole").onclick = () => byId("screen").requestFullscreen();
  }

  async open() {
    this.shown?.close();
    byId("screen").replaceChildren();
    byId("keys").hidden = true;
    say("Connecting …");
    try {
      const socket = await connect(this.name, this.way);
      this.socket = socket;
      if (this.way === "serial") socket.addEventListener("open", () => say("Connected"));
      socket.addEventListener("close", ({ reason }) => this.socket === socket && say(reason || "Not connected"));
      this.shown = await (this.way === "graphics" ? screen : terminal)(socket);
    } catch (error) {
      say(error.status === 401 ? "Sign in to the dashboard in this tab first." : error.message);
    }
  }
}

const [name, way] = location.hash.slice(1).split("/").map(decodeURIComponent);
new Console(name, way === "graphics" ? "graphics" : "serial").open();
window.addEventListener("hashchange", () => location.reload());
