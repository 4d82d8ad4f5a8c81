// The last searches, stored only in this browser. A guest's are not stored.

import { t } from "./language.js";
import { make } from "./words.js";

const MOST = 50;
// Different paths of a host are different libraries.
const KEY = `whenabouts searches ${location.pathname}`;

/** A guest's page names the guest; the name may arrive after the first answer. */
const isGuest = () => document.getElementById("guest")?.hidden === false;

/** The list below the search box. `linkTo(question)` and `go(question)` lead to a search. */
export class Past {
  #root;
  #box;
  #hooks;
  #waiting = [];

  constructor(root, box, hooks) {
    this.#root = root;
    this.#box = box;
    this.#hooks = hooks;
    root.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("input", () => this.close());
    box.addEventListener("click", () => { if (!box.value) this.open(); });
    document.addEventListener("pointerdown", (event) => {
      if (event.target !== box && !root.contains(event.target)) this.close();
    });
    // Stored late, when it is known whether the user is a guest.
    window.addEventListener("pagehide", () => this.#write());
  }

  get isOpen() {
    return !this.#root.hidden;
  }

  /** Store a question: an object of texts, with `q`. */
  remember(question) {
    this.#write();
    this.#waiting = [question];
  }

  /** Open the list unless it is empty; returns whether it is open. With `focus`, focus its first search. */
  open({ focus = false } = {}) {
    this.#write();
    const kept = isGuest() ? [] : read();
    this.#root.hidden = kept.length === 0;
    this.#root.replaceChildren(make("ul", { "aria-label": t("Earlier searches") }, ...kept.map((question) => this.#line(question))),
      make("button", { type: "button", class: "link", click: () => this.#clear() }, t("Clear all")));
    if (focus) this.#root.querySelector("a")?.focus();
    return this.isOpen;
  }

  close({ focus = false } = {}) {
    this.#root.hidden = true;
    if (focus) this.#box.focus();
  }

  #line(question) {
    const { q, ...more } = question;
    const beside = Object.entries(more).map(([name, value]) => `${name}: ${value}`).join(", ");
    const click = (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.close();
      this.#hooks.go(question);
    };
    return make("li", {},
      make("a", { href: this.#hooks.linkTo(question), click }, q, beside ? make("span", { class: "quiet" }, ` ${beside}`) : null),
      make("button", { type: "button", class: "round", "aria-label": t("Forget {what}", { what: q }), click: () => this.#forget(question) }, "×"));
  }

  #key(event) {
    const links = [...this.#root.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement?.closest("li")?.querySelector("a"));
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      const to = links[at + step];
      if (to) to.focus();
      else if (step < 0) this.#box.focus();
    } else if (event.key === "Delete" && at >= 0) {
      links[at].parentElement.querySelector("button").click();
    } else if (event.key === "Escape") {
      this.close({ focus: true });
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  #forget(question) {
    const kept = read();
    const at = kept.findIndex((other) => same(other, question));
    write(kept.filter((_, place) => place !== at));
    if (!this.open()) this.#box.focus();
    else [...this.#root.querySelectorAll("a")].at(Math.min(at, kept.length - 2))?.focus();
  }

  #clear() {
    this.#waiting = [];
    write([]);
    this.close({ focus: true });
  }

  #write() {
    if (this.#waiting.length && !isGuest()) {
      write([...this.#waiting, ...read().filter((other) => !this.#waiting.some((mine) => same(mine, other)))].slice(0, MOST));
    }
    this.#waiting = [];
  }
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** The stored questions. Other programs of the host may write there, so their form is checked. */
function read() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    const isQuestion = (each) => each?.q && Object.values(each).every((value) => typeof value === "string");
    return Array.isArray(kept) ? kept.filter(isQuestion).slice(0, MOST) : [];
  } catch {
    return [];
  }
}

function write(kept) {
  try {
    if (kept.length) localStorage.setItem(KEY, JSON.stringify(kept));
    else localStorage.removeItem(KEY);
  } catch { /* a browser that keeps nothing has no history */ }
}
