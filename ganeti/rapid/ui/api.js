// The remote API, as any other client has it.

const KEPT = "ganeti-authorization";
const DEADLINE_MS = 90_000; // longer than the server takes for its slowest answer

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Texts of error answers are written as HTML text; they are shown as text.
const ENTITIES = { "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#x27;": "'", "&amp;": "&" };
const plain = (text) => text.replace(/&(lt|gt|quot|#x27|amp);/g, (found) => ENTITIES[found]);

function basic(user, password) {
  const bytes = new TextEncoder().encode(`${user}:${password}`);
  return `Basic ${btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""))}`;
}

export const authorizationOf = ({ user, password, token }) => (token ? `Bearer ${token}` : basic(user, password));

export class Api {
  constructor() {
    this.authorization = sessionStorage.getItem(KEPT);
    this.tags = new Map();
    this.leaving = new AbortController();
    // A browser keeps a page that was left, and with it the few connections on which it asks.
    window.addEventListener("pagehide", () => {
      this.leaving.abort();
      this.leaving = new AbortController();
    });
  }

  sign(authorization) {
    this.authorization = authorization;
    this.tags = new Map(); // an answer under way puts its tag into the one before
    if (authorization) sessionStorage.setItem(KEPT, authorization);
    else sessionStorage.removeItem(KEPT);
  }

  async #send(method, path, { body, headers = {}, authorization = this.authorization, signal } = {}) {
    const sent = { Accept: "application/json", ...headers };
    if (authorization) sent.Authorization = authorization;
    if (body !== undefined) sent["Content-Type"] = "application/json";
    try {
      return await fetch(path, {
        method,
        headers: sent,
        body: body === undefined ? undefined : JSON.stringify(body),
        cache: "no-store",
        credentials: "omit", // keeps the browser from asking for a password itself
        signal: AbortSignal.any([this.leaving.signal, AbortSignal.timeout(DEADLINE_MS), ...(signal ? [signal] : [])]),
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ApiError(0, "The cluster does not answer.");
    }
  }

  async ask(method, path, options) {
    const response = await this.#send(method, path, options);
    if (!response.ok) throw await this.#problem(response);
    return response.json();
  }

  // Answers undefined if nothing changed since the last time.
  async changed(path) {
    const { tags } = this;
    const tag = tags.get(path);
    const response = await this.#send("GET", path, { headers: tag ? { "If-None-Match": tag } : {} });
    if (response.status === 304) return undefined;
    if (!response.ok) {
      tags.delete(path);
      throw await this.#problem(response);
    }
    const found = await response.json();
    tags.set(path, response.headers.get("ETag"));
    return found;
  }

  async #problem(response) {
    try {
      const { detail, message } = await response.json();
      return new ApiError(response.status, plain(detail || message));
    } catch {
      return new ApiError(response.status, `The cluster answers with status ${response.status}.`);
    }
  }
}
