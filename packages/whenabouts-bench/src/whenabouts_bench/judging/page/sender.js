// What an annotator says, brought to the server: kept in this browser until the server has it.

import { t } from "./language.js";
import { Fault, fetched } from "./server.js";

const LONGEST_PAUSE = 15;

/** A number that no other request has; `crypto.randomUUID` is there on https only. */
export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Sender {
  /** `key` names what is kept; `hooks`: waiting(text or null), told while the server does not take it. */
  constructor(key, hooks) {
    this.key = key;
    this.hooks = hooks;
  }

  /** What an earlier page could not bring to the server, or null: {path, body}. */
  get kept() {
    return kept(this.key);
  }

  /** The server's answer. The same body is sent until it comes: its id counts once. Throws Fault for a refusal. */
  async send(path, body) {
    keep(this.key, { path, body });
    for (let pause = 1; ; pause = Math.min(LONGEST_PAUSE, pause * 2)) {
      try {
        const answer = await (await fetched(`api/${path}`, undefined, JSON.stringify(body))).json();
        keep(this.key, null);
        this.hooks.waiting(null);
        return answer;
      } catch (fault) {
        if (!(fault instanceof Fault)) throw fault;
        // What is refused for what it says stays refused; who is not let in opens the link and sends it then.
        const isFinal = fault.status >= 400 && fault.status < 500 && fault.status !== 429 && fault.status !== 401;
        if (isFinal) keep(this.key, null);
        if (isFinal || fault.status === 401) {
          this.hooks.waiting(null);
          throw fault;
        }
        const why = fault.status ? fault.message : t("The server does not answer.");
        this.hooks.waiting(`${why} ${t("Your answer is kept in this browser and sent again.")}`);
        await untilLater(fault.retryAfter ?? pause);
      }
    }
  }
}

/** What this browser keeps under a key, or null. */
export function kept(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null;
  }
}

/** Keep something beyond this page; null forgets it. */
export function keep(key, what) {
  try {
    if (what === null) localStorage.removeItem(key);
    else localStorage.setItem(key, JSON.stringify(what));
  } catch { /* a browser that keeps nothing has it while the page is open */ }
}

/** Some seconds, or until the browser is online again. */
function untilLater(seconds) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000);
    addEventListener("online", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
