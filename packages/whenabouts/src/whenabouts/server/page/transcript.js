// The words of the open video: they follow the player and can be searched; selecting some sets the moment.

import { t } from "./language.js";
import { address, ask, ofVideo } from "./server.js";
import { clock, counted, make, marker } from "./words.js";

const byId = (id) => document.getElementById(id);
// Cues are loaded in pieces, because a day of film has tens of thousands; a search loads all.
const AROUND = 300;

export class Transcript {
  /** `hooks`: seek(seconds), picked(start, end) for selected words, failed(message). */
  constructor(hooks) {
    this.hooks = hooks;
    this.cues = [];
    const on = (id, name, act) => byId(id).addEventListener(name, act);
    on("cue-list", "keydown", (event) => this.#key(event));
    on("cue-list", "pointerup", () => setTimeout(() => this.#pick()));
    on("cue-find", "input", () => void this.#find());
    on("cue-find", "keydown", (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        this.#next(event.shiftKey ? -1 : 1);
      } else if (event.key === "Escape" && byId("cue-find").value) {
        event.stopPropagation();
        byId("cue-find").value = "";
        void this.#find();
      }
    });
  }

  /** Empty the list, for another video or none. */
  forget() {
    this.cues = [];
    this.read = null;
    byId("cues").hidden = true;
    byId("cue-list").replaceChildren();
    byId("cue-find").value = byId("cue-found").textContent = "";
  }

  /** Show words of a video around a time; `length` is the video's, or null; `query` is marked in them. */
  async open({ id, query, length, signal }, around) {
    Object.assign(this, { id, query, length, signal });
    if (this.read && this.read.start <= around && around < this.read.end) return;
    const short = length !== null && length <= 24 * AROUND;
    await this.#load(short ? [0, length + 1] : [Math.max(0, around - AROUND), around + AROUND]);
  }

  async #load([start, end]) {
    const read = { start, end };
    this.read = read;
    const { signal } = this;
    try {
      const reply = await ask(ofVideo(this.id, "/cues"), { start: start.toFixed(3), end: end.toFixed(3) }, { signal });
      if (!signal.aborted && this.read === read) this.#show(reply.data);
    } catch (error) {
      if (error.name !== "AbortError") this.hooks.failed(t("No words: {why}", { why: error.message }));
    }
  }

  #show(cues) {
    const mark = marker(this.query ?? "");
    this.cues = cues.map((cue, row) => {
      const button = make("button", { type: "button", class: "cue-time", tabindex: row ? -1 : 0, click: () => this.hooks.seek(cue.start) }, clock(cue.start));
      const text = make("span", { class: "cue-text", click: () => getSelection().isCollapsed && this.hooks.seek(cue.start) }, ...mark(cue.text));
      return { ...cue, button, line: make("li", { class: "cue" }, button, text) };
    });
    byId("cue-list").replaceChildren(...this.cues.map((cue) => cue.line));
    byId("cues").hidden = this.cues.length === 0;
    const sure = cues.map((cue) => cue.recognised).filter(Number.isFinite);
    byId("cue-sureness").hidden = !sure.length;
    byId("cue-sureness").textContent = sure.length ? t("These words were recognised by a program, {percent} % sure on average.", { percent: Math.floor((100 * sure.reduce((sum, each) => sum + each, 0)) / sure.length) }) : "";
    for (const link of document.querySelectorAll("#cue-save a")) {
      link.href = address(ofVideo(this.id, "/transcript"), { format: link.dataset.format });
    }
    this.current = null;
    if (this.moment) this.mark(...this.moment);
    this.#scrollTo(this.cues.find((cue) => cue.end > (this.moment?.[0] ?? 0)));
  }

  /** Mark the words in the moment. */
  mark(start, end) {
    this.moment = [start, end];
    for (const cue of this.cues) cue.line.classList.toggle("inside", cue.start < end && cue.end > start);
  }

  /** Mark the words said at a time; while playing, keep them in sight and load further ones. */
  follow(at, plays) {
    const now = this.cues.find((cue) => cue.start <= at && at < cue.end) ?? null;
    if (now === this.current) return;
    this.current?.line.removeAttribute("aria-current");
    this.current = now;
    if (!now) return;
    now.line.setAttribute("aria-current", "true");
    if (plays) this.#scrollTo(now);
    if (this.length !== null && at > this.read.end - 20 && this.read.end < this.length) void this.#load([Math.max(0, at - AROUND), at + AROUND]);
  }

  /** Scroll the list of words, never the page. */
  #scrollTo(cue) {
    if (!cue) return;
    const list = byId("cue-list");
    const from = cue.line.getBoundingClientRect().top - list.getBoundingClientRect().top;
    list.scrollTop += from - list.clientHeight / 3;
  }

  // A selection of words

  /** Selected words set the moment, from the first passage to the last. */
  #pick() {
    const selection = getSelection();
    if (selection.isCollapsed || !byId("cue-list").contains(selection.anchorNode)) return;
    const range = selection.getRangeAt(0);
    const inside = this.cues.filter((cue) => range.intersectsNode(cue.line.lastChild));
    if (inside.length) this.hooks.picked(inside[0].start, Math.max(...inside.map((cue) => cue.end)));
  }

  #key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = this.cues.findIndex((cue) => cue.button === event.target);
    if (!step || row < 0) return;
    event.preventDefault();
    event.stopPropagation();
    const to = Math.min(this.cues.length - 1, Math.max(0, row + step));
    this.cues[row].button.tabIndex = -1;
    this.cues[to].button.tabIndex = 0;
    this.cues[to].button.focus();
    // Shift extends the moment from the first selected passage.
    this.anchor = event.shiftKey ? this.anchor ?? row : null;
    if (this.anchor === null) return;
    const [first, last] = [Math.min(this.anchor, to), Math.max(this.anchor, to)];
    this.hooks.picked(this.cues[first].start, Math.max(...this.cues.slice(first, last + 1).map((cue) => cue.end)));
  }

  // Searching in the words

  async #find() {
    const wanted = byId("cue-find").value.trim().toLocaleLowerCase();
    this.found = [];
    if (wanted && (this.read.start > 0 || (this.length ?? Infinity) > this.read.end)) await this.#load([0, (this.length ?? 31 * 86400) + 1]);
    if (wanted !== byId("cue-find").value.trim().toLocaleLowerCase()) return;
    for (const cue of this.cues) {
      const has = wanted !== "" && cue.text.toLocaleLowerCase().includes(wanted);
      cue.line.classList.toggle("has", has);
      if (has) this.found.push(cue);
    }
    this.place = -1;
    byId("cue-found").textContent = wanted ? counted(this.found.length, "passage") : "";
    if (this.found.length) this.#scrollTo(this.found[0]);
  }

  #next(by) {
    if (!this.found?.length) return;
    this.place = (this.place + by + this.found.length) % this.found.length;
    const cue = this.found[this.place];
    byId("cue-found").textContent = t("{n} of {all}", { n: this.place + 1, all: this.found.length });
    this.#scrollTo(cue);
    this.hooks.seek(cue.start);
  }
}
