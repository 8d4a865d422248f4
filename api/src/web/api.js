// The core's HTTP API, and its stream of live events.

export const me = { name: undefined, scopes: [], csrf: undefined, without_users: false, must_enrol: false, second_factor: false };
export const may = (scope) => me.scopes.includes(scope);

/** A refusal: its sentence, its status, and what is wrong with each line of an import. */
export class Problem extends Error {
  constructor(status, problem) {
    super(problem?.detail ?? `HTTP status ${status}`);
    this.status = status;
    this.lines = problem?.lines ?? [];
    this.needs = problem?.needs;
  }
}

let loggedOut = () => {};
export const onLogout = (f) => { loggedOut = f; };

async function ask(method, path, body, headers = {}) {
  const type = typeof body === "string" ? "text/csv" : "application/json";
  const sent = { method, headers: { ...headers }, credentials: "same-origin" };
  if (body !== undefined) {
    sent.headers["Content-Type"] = type;
    sent.body = typeof body === "string" ? body : JSON.stringify(body);
  }
  if (method !== "GET" && me.csrf) sent.headers["X-CSRF-Token"] = me.csrf;
  let answer;
  try {
    answer = await fetch(path, sent);
  } catch {
    throw new Problem(0, { detail: "The core does not answer." });
  }
  const text = await answer.text();
  let value;
  try { value = text ? JSON.parse(text) : undefined; } catch { value = undefined; }
  if (!answer.ok) {
    if (answer.status === 401 && !path.endsWith("/session")) loggedOut();
    throw new Problem(answer.status, value);
  }
  return { value, etag: answer.headers.get("ETag") };
}

export const get = async (path) => (await ask("GET", path)).value;
export const getTagged = (path) => ask("GET", path);
export const post = async (path, body) => (await ask("POST", path, body)).value;
export const put = async (path, body, etag) => (await ask("PUT", path, body, etag ? { "If-Match": etag } : {})).value;
export const patch = async (path, body, etag) => ask("PATCH", path, body, etag ? { "If-Match": etag } : {});
export const del = async (path, etag) => (await ask("DELETE", path, undefined, etag ? { "If-Match": etag } : {})).value;
export const part = encodeURIComponent;

export async function whoami() {
  Object.assign(me, { csrf: undefined }, await get("/api/v1/session"));
  return me;
}

export async function login(body) {
  me.csrf = undefined;
  Object.assign(me, await post("/api/v1/session", body));
}

export async function logout() {
  try { await del("/api/v1/session"); } finally { Object.assign(me, { name: undefined, scopes: [], csrf: undefined }); }
}

// One stream for the page. The browser resumes it by Last-Event-ID after a break.
const listeners = new Map();
let source, watched, last = "";
export const live = { up: false };

export function on(event, f) {
  if (!listeners.has(event)) listeners.set(event, new Set());
  listeners.get(event).add(f);
  return () => listeners.get(event).delete(f);
}

function emit(event, data) {
  for (const f of listeners.get(event) ?? []) f(data);
}

function state(up) {
  if (live.up !== up) { live.up = up; emit("live", up); }
}

/** Opens the stream; `ue` is one whose signalling is watched. */
export function connect(ue) {
  if (source && watched === ue && source.readyState !== EventSource.CLOSED) return;
  source?.close();
  watched = ue;
  const query = new URLSearchParams();
  if (ue) query.set("ue", ue);
  if (last) query.set("last_event_id", last);
  source = new EventSource(`/api/v1/events?${query}`);
  source.onopen = () => state(true);
  source.onerror = () => {
    state(false);
    // A refusal ends the stream for the browser; a break does not.
    if (source?.readyState === EventSource.CLOSED) setTimeout(() => whoami().then(() => connect(watched), () => {}), 2000);
  };
  for (const event of ["counts", "event", "ue", "gnb", "signalling", "reset"]) {
    source.addEventListener(event, (message) => {
      if (message.lastEventId) last = message.lastEventId;
      emit(event, JSON.parse(message.data));
    });
  }
}

/** Opens the stream again where it was, after another login. */
export function reconnect() {
  connect(watched);
}

export function disconnect() {
  source?.close();
  source = undefined;
  state(false);
}
