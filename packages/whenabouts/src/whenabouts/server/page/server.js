// Requests to the page's server, and their errors.

import { faultText, t } from "./language.js";
import { make, streamTitles } from "./words.js";

/** A refusal or failure, in the server's words if there are any. */
export class Fault extends Error {
  constructor(status, message, { code = "", field = null, retryAfter = null } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.field = field;
    this.retryAfter = retryAfter;
  }
}

const BUSY_TRIES = 5;

/** The address of a route, relative to the page, with everything from data escaped. */
export function address(path, parameters = {}) {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of [value].flat()) if (each !== "" && each !== null && each !== undefined) given.append(name, each);
  }
  const tail = given.toString();
  return `api/${path}${tail ? "?" + tail : ""}`;
}

const BASE = new URL(".", location.href).pathname;

/** An address given by the server, made relative to the page (and so to a proxy's path); null for others. */
export function own(given) {
  const below = given?.startsWith(BASE) ? given.slice(BASE.length) : given?.replace(/^\//, "");
  return below?.startsWith("api/") ? below : null;
}

export const ofVideo = (id, part = "") => `videos/${encodeURIComponent(id)}${part}`;
export const clipOf = (id, start, end) =>
  address(ofVideo(id, "/clip"), { start: start.toFixed(3), end: end.toFixed(3) });

/**
 * The JSON of a route. After 429 and 503 it retries after Retry-After seconds, calling `onWait(seconds, why)` first.
 * Throws Fault; passes AbortError on.
 */
export async function ask(path, parameters = {}, { signal, onWait } = {}) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      const body = await (await replied(path, parameters, signal)).json();
      Object.assign(streamTitles, body.stream_titles);
      return body;
    } catch (fault) {
      const waits = fault instanceof Fault && fault.retryAfter !== null && attempt < BUSY_TRIES;
      if (!waits) throw fault;
      onWait?.(fault.retryAfter, fault.status === 429 ? t("The server is busy.") : t("The corpus cannot be read."));
      await pause(fault.retryAfter, signal);
    }
  }
}

/** A script that is fetched when needed: its `import()`. Throws Fault if the server does not give it. */
export const loaded = (script) => script.catch(() => { throw unanswered(); });

const unanswered = () => new Fault(0, navigator.onLine === false
  ? t("This browser is offline.")
  : t("The server does not answer. Is `whenabouts serve` still running?"));

/** The JSON of a route that changes something. Throws Fault. */
export async function sent(method, path, body) {
  return (await fetched(address(path), undefined, body === undefined ? undefined : JSON.stringify(body), method)).json();
}

/** The reply of a route; requests with a picture are posted, because they are too long for an address. */
function replied(path, parameters, signal) {
  if (!parameters.picture) return fetched(address(path, parameters), signal);
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const listed = given.map(([name, value]) => [name, ["within", "stream", "where"].includes(name) ? [value].flat() : value]);
  return fetched(address(path), signal, JSON.stringify(Object.fromEntries(listed)));
}

/** A successful response, else Fault. With a body it is posted as JSON. */
export async function fetched(url, signal, body, method = body === undefined ? "GET" : "POST") {
  let response;
  try {
    const posted = body === undefined ? { method } : { method, body };
    const headers = { Accept: "application/json, */*", ...(posted.body && { "Content-Type": "application/json" }) };
    response = await fetch(url, { signal, headers, ...posted });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw unanswered();
  }
  if (response.ok) return response;
  throw await faultOf(response);
}

async function faultOf(response) {
  const body = await response.json().catch(() => null);
  const error = body?.error ?? {};
  const message = typeof error.message === "string" ? faultText(error.message) : t("The server answered {status}.", { status: `${response.status} ${response.statusText}` });
  const busy = response.status === 429 || response.status === 503;
  const seconds = Number(response.headers.get("Retry-After"));
  const retryAfter = busy && response.headers.has("Retry-After") ? Math.min(60, Math.max(1, seconds || 1)) : null;
  return new Fault(response.status, message, { code: String(error.code ?? ""), field: error.field ?? null, retryAfter });
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("left", "AbortError"));
    }, { once: true });
  });
}

/** Fetch a file for download; returns a text with its name and the server's notes. */
export async function download(url, otherwise) {
  const response = await fetched(url);
  const disposition = response.headers.get("Content-Disposition") ?? "";
  const name = fileName(disposition) ?? otherwise;
  const object = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = object;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(object), 60_000);
  const notes = JSON.parse(response.headers.get("X-Whenabouts-Notes") ?? "[]");
  return [t("Saved {name}.", { name }), ...notes.map((note) => `${t("Note: {text}", { text: faultText(note) })}.`)].join(" ");
}

function fileName(disposition) {
  const long = /filename\*=UTF-8''([^;]+)/i.exec(disposition);
  if (long) {
    try {
      return decodeURIComponent(long[1]);
    } catch { /* the plain name follows */ }
  }
  return /filename="([^"]+)"/i.exec(disposition)?.[1] ?? /filename=([^;\s]+)/i.exec(disposition)?.[1] ?? null;
}

/** Copy a text to the clipboard. Throws if the browser refuses. */
export async function copied(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const field = make("textarea", { class: "unseen", "aria-hidden": "true" });
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (!done) throw new Error("not allowed");
}
