// One moment of one video: played, its borders moved, its words read, taken away.

import { address, ask, clipOf, download, Fault, fetched, ofVideo } from "./server.js";
import { Lanes } from "./lanes.js";
import { Beat, Timeline, curvesOf } from "./timeline.js";
import { clock, day, length, make, marker, noTime, readClock, span } from "./words.js";

const byId = (id) => document.getElementById(id);
// Cues are read in pieces: a day of film has tens of thousands.
const CUES_AROUND = 300;

export class Player {
  /** `hooks`: changed(start, end), linkTo(moment), onlyThis(id), say(text), results(), question(). */
  constructor(hooks) {
    this.hooks = hooks;
    this.root = byId("player");
    this.beat = new Beat(() => this.#tick());
    this.lanes = new Lanes(byId("lanes"), (seconds) => this.seek(seconds), (name) => void this.#who(name));
    this.timeline = new Timeline(byId("timeline"), {
      seek: (seconds) => this.seek(seconds),
      viewed: (from, to) => this.lanes.view(from, to),
      changed: (start, end, isFinal, side) => this.#moved(start, end, isFinal, side),
    });
    this.loops = true;
    this.cues = [];
    this.opened = null;
    this.#listen();
  }

  get isOpen() {
    return this.opened !== null;
  }

  // Opening and closing

  /**
   * Show a video at a moment. `start`, `end` may be null: then the beginning. `result` is the result that
   * was opened (null: none), `title` what to call the video until its record is read, `fault` what to say of
   * the address.
   */
  async open({ id, start, end, result, query, model, title, fault = "" }) {
    const before = this.opened;
    const same = before?.id === id && before.query === query && before.model === model && this.isWhole;
    this.opening?.abort();
    this.opening = new AbortController();
    const { signal } = this.opening;
    const from = start ?? 0;
    const until = end ?? from + 5;
    const info = same ? this.info : null;
    this.opened = { id, query, model, result };
    this.info = info;
    Object.assign(this, { start: from, end: until, given: start !== null });
    this.root.hidden = false;
    byId("title").textContent = title || id;
    this.#tell(fault, Boolean(fault));
    byId("why-panel").hidden = true;
    byId("export").open = false;
    if (!same) this.#forget();
    this.root.scrollTop = 0;
    try {
      this.info = info ?? (await ask(ofVideo(id), {}, { signal }));
    } catch (error) {
      if (error.name !== "AbortError") this.#refuse(error);
      return;
    }
    if (signal.aborted) return;
    this.#describe();
    this.#load(same);
    await Promise.all([same ? this.timeline.setCurves(this.curves) : this.#curves(signal), this.#words(from, signal, same), same ? null : this.#people(signal)]);
    this.isWhole ||= !signal.aborted;
  }

  /** Which result the open moment is, once the answer is there. */
  bind(result) {
    this.opened.result = result;
    if (this.info) this.#showBorders();
  }

  close() {
    this.opening?.abort();
    this.opened = null;
    this.#drop();
    this.root.hidden = true;
  }

  #forget() {
    this.#drop();
    this.curves = {};
    this.cues = [];
    this.isWhole = false;
    byId("subtitle").textContent = "";
    byId("unplayable").hidden = true;
    byId("cues").hidden = true;
    byId("cue-list").replaceChildren();
    this.lanes.show([]);
  }

  #refuse(error) {
    this.#tell(error instanceof Fault ? error.message : String(error), true);
    this.#drop();
  }

  #describe() {
    const { info } = this;
    this.rate = rateOf(info);
    this.length = Number.isFinite(info.duration) ? info.duration : null;
    if (this.length !== null && this.start >= this.length) {
      this.#tell(`The address names a moment after the end of this video (${clock(this.length, 3)}).`, true);
      Object.assign(this, { start: 0, end: 5, given: false });
    }
    if (!this.given && this.length !== null) this.end = Math.min(this.end, this.length);
    byId("title").textContent = info.title;
    const date = `${day(info.recorded)}${info.recorded_from === "modified" ? " (date of the file)" : ""}`;
    const facts = [length(this.length ?? NaN), date, info.damage, info.frame_rate ? `${Number(this.rate.toFixed(3))} frames a second` : ""];
    byId("subtitle").textContent = facts.filter(Boolean).join(" · ");
    this.#frameTimeline();
  }

  #frameTimeline() {
    this.timeline.show({
      duration: this.length ?? Math.max(this.end * 1.5, 10),
      rate: this.rate, start: this.start, end: this.end, shots: this.info.shots ?? [],
    });
    this.#showBorders();
  }

  // Playing

  #load(same) {
    this.guarded = false;
    if (same && this.media?.isConnected && !this.clip) {
      this.media.pause();
      this.seek(this.start);
      return;
    }
    this.clip = null;
    byId("unplayable").hidden = true;
    if (this.info.kind === "transcript" || this.info.available === false) {
      this.#absent();
      return;
    }
    const file = address(ofVideo(this.opened.id, "/file"));
    this.#mount(!this.info.has_picture ? "audio" : "video", `${file}#t=${this.start.toFixed(3)}`);
  }

  /** Only words are left to show. */
  #absent() {
    this.#drop();
    byId("screen").className = "screen empty";
    byId("unplayable-text").textContent = this.info.kind === "transcript"
      ? "These are words without a recording: there is nothing to play."
      : "The file of this video is not there any more, or has changed since it was indexed.";
    byId("play-clip").hidden = true;
    byId("unplayable").hidden = false;
    for (const id of ["play", "cut"]) byId(id).disabled = true;
  }

  #mount(kind, source) {
    this.#drop();
    const media = make(kind, { controls: true, preload: "metadata", playsinline: true, "aria-label": byId("title").textContent });
    const on = (name, act) => media.addEventListener(name, () => this.media === media && act());
    on("loadedmetadata", () => this.#ready());
    on("error", () => this.#unplayable());
    on("timeupdate", () => this.#tick());
    on("seeked", () => this.#tick());
    on("play", () => this.#playing(true));
    on("pause", () => this.#playing(false));
    on("ended", () => this.#ended());
    media.src = source;
    this.media = media;
    for (const id of ["play", "cut"]) byId(id).disabled = false;
    byId("screen").className = `screen ${kind}`;
    byId("screen").replaceChildren(media);
  }

  #drop() {
    if (!this.media) return;
    const media = this.media;
    this.media = null;
    media.pause();
    media.removeAttribute("src");
    media.load();
    media.remove();
    this.#playing(false);
  }

  #ready() {
    const { media } = this;
    if (media.tagName === "VIDEO" && media.videoWidth === 0 && !this.clip && this.info.has_picture) {
      this.#unplayable("the sound of this file, but not its pictures");
    }
    if (this.length === null && Number.isFinite(media.duration) && !this.clip) {
      this.length = media.duration;
      this.timeline.setDuration(media.duration);
    }
    if (Math.abs(this.at - this.start) > 0.02) this.seek(this.start);
    this.#tick();
  }

  #unplayable(what = "") {
    if (this.clip) {
      byId("unplayable-text").textContent = "The cut moment cannot be played either. It may still be downloaded with “Cut”.";
      byId("play-clip").hidden = true;
    } else {
      const kind = (/\.([a-z0-9]{1,5})$/i.exec(this.info.name)?.[1] ?? "").toLowerCase();
      byId("unplayable-text").textContent = what
        ? `This browser plays ${what}.`
        : `This browser cannot play this file${kind ? ` (${kind})` : ""}, or the file is gone.`;
      byId("play-clip").hidden = false;
    }
    byId("unplayable").hidden = false;
    if (!what) byId("screen").classList.add("empty");
    this.hooks.say(byId("unplayable-text").textContent);
  }

  /** Play the moment as the server cuts it, for files that a browser cannot play. */
  async playClip() {
    const { start, end } = this;
    const url = clipOf(this.opened.id, start, end);
    this.#tell("Cutting the moment…");
    try {
      const response = await fetched(url);
      await response.body?.cancel();
    } catch (error) {
      this.#tell(error.message, true);
      return;
    }
    this.#tell("");
    this.clip = { start, end };
    byId("unplayable").hidden = true;
    this.#mount(!this.info.has_picture ? "audio" : "video", url);
    byId("screen").classList.add("clip");
  }

  /** Where the player stands, in the video's seconds. */
  get at() {
    return (this.media?.currentTime ?? this.start) + (this.clip?.start ?? 0);
  }

  seek(seconds) {
    this.guarded = false;
    if (!this.media) return;
    const most = this.clip ? this.clip.end - this.clip.start : (this.length ?? Infinity);
    this.media.currentTime = Math.min(most, Math.max(0, seconds - (this.clip?.start ?? 0)));
    this.timeline.setHead(seconds);
  }

  frame(step) {
    this.media?.pause();
    this.seek((Math.round(this.at * this.rate) + step) / this.rate);
  }

  /** Play the moment from where it stands in it, else from its start; pause where it plays. */
  toggle() {
    const { media } = this;
    if (!media) return;
    if (!media.paused) {
      media.pause();
      return;
    }
    if (this.at < this.start - 0.02 || this.at >= this.end - 0.5 / this.rate) this.seek(this.start);
    this.guarded = true;
    media.play().catch(() => { /* the error event says why */ });
  }

  toggleLoop() {
    this.loops = !this.loops;
    byId("loop").setAttribute("aria-pressed", String(this.loops));
  }

  #playing(plays) {
    byId("play-label").textContent = plays ? "Pause" : "Play moment";
    byId("play").classList.toggle("plays", plays);
    this.beat.run(plays);
  }

  #tick() {
    if (!this.media) return;
    const { at } = this;
    if (this.guarded && !this.media.paused && at >= this.end) {
      if (this.loops) {
        this.seek(this.start);
        this.guarded = true;
      } else {
        this.media.pause();
        this.guarded = false;
      }
      return;
    }
    this.timeline.setHead(at);
    byId("readout").textContent = this.timeline.describe(at);
    this.#follow(at);
  }

  #ended() {
    if (!this.guarded || !this.loops) return;
    this.seek(this.start);
    this.guarded = true;
    this.media.play().catch(() => { /* the error event says why */ });
  }

  // The moment

  #moved(start, end, isFinal, side) {
    Object.assign(this, { start, end });
    this.#showBorders();
    this.media?.pause();
    this.seek(side === "end" ? Math.max(start, end - 1 / this.rate) : start);
    if (isFinal) this.hooks.changed(start, end);
  }

  #showBorders() {
    const { result } = this.opened;
    byId("start").value = clock(this.start, 3);
    byId("end").value = clock(this.end, 3);
    byId("start").removeAttribute("aria-invalid");
    byId("end").removeAttribute("aria-invalid");
    byId("length").textContent = `${(this.end - this.start).toFixed(2)} s long`;
    const own = !result || Math.abs(result.start - this.start) > 5e-4 || Math.abs(result.end - this.end) > 5e-4;
    byId("reset").hidden = !result || !own;
    byId("why").textContent = result && !own ? "Why here?" : "Why not here?";
    byId("why").disabled = !this.opened.query;
    this.#markInside();
  }

  setBorder(side, seconds) {
    this.timeline.move(side, seconds, true);
  }

  #typed(side) {
    const seconds = readClock(byId(side).value, this.rate);
    if (seconds === null) {
      byId(side).setAttribute("aria-invalid", "true");
      this.#tell(noTime(byId(side).value), true);
      return;
    }
    this.#tell("");
    this.setBorder(side, seconds);
  }

  // Curves and words

  async #curves(signal) {
    if (!this.opened.query) return;
    try {
      const reply = await (this.opened.model
        ? this.#reasons(signal)
        : ask(ofVideo(this.opened.id, "/curves"), { query: this.opened.query }, { signal }));
      if (signal.aborted) return;
      this.curves = curvesOf(reply);
      this.timeline.setCurves(this.curves);
      this.#tick();
    } catch (error) {
      if (error.name !== "AbortError") this.#tell(`No curves: ${error.message}`, true);
    }
  }

  async #who(name) {
    const script = await import("./people.js");
    await script.askWho(name, () => void this.#people(this.opening.signal));
  }

  async #people(signal) {
    try {
      const reply = await ask(ofVideo(this.opened.id, "/people"), {}, { signal });
      if (!signal.aborted) this.lanes.show(reply.data, reply.may_change);
    } catch (error) {
      if (error.name !== "AbortError") this.#tell(`Who speaks is not known: ${error.message}`, true);
    }
  }

  async #words(around, signal, same) {
    const { start = Infinity, end = -Infinity } = (same && this.cuesRead) || {};
    if (start <= around && around < end) {
      this.#markInside();
      return;
    }
    const short = this.length !== null && this.length <= 4 * CUES_AROUND;
    const read = short ? { start: 0, end: this.length + 1 } : { start: Math.max(0, around - CUES_AROUND), end: around + CUES_AROUND };
    this.cuesRead = read;
    try {
      const reply = await ask(ofVideo(this.opened.id, "/cues"), { start: read.start.toFixed(3), end: read.end.toFixed(3) }, { signal });
      if (!signal.aborted) this.#showCues(reply.data);
    } catch (error) {
      if (error.name !== "AbortError") this.#tell(`No words: ${error.message}`, true);
    }
  }

  #showCues(cues) {
    const mark = marker(this.opened.query ?? "");
    this.cues = cues.map((cue, row) => {
      const button = make("button", { type: "button", class: "cue", tabindex: row ? -1 : 0, click: () => this.seek(cue.start) },
        make("span", { class: "cue-time" }, clock(cue.start)), make("span", { class: "cue-text" }, ...mark(cue.text)));
      return { ...cue, button };
    });
    byId("cue-list").replaceChildren(...this.cues.map((cue) => make("li", {}, cue.button)));
    byId("cues").hidden = this.cues.length === 0;
    this.current = null;
    this.#markInside();
    this.#scrollTo(this.cues.find((cue) => cue.end > this.start));
    this.#follow(this.at);
  }

  #markInside() {
    for (const cue of this.cues) {
      cue.button.classList.toggle("inside", cue.start < this.end && cue.end > this.start);
    }
  }

  #follow(at) {
    const now = this.cues.find((cue) => cue.start <= at && at < cue.end) ?? null;
    if (now === this.current) return;
    this.current?.button.removeAttribute("aria-current");
    this.current = now;
    if (!now) return;
    now.button.setAttribute("aria-current", "true");
    if (!this.media?.paused) this.#scrollTo(now);
    const read = this.cuesRead;
    if (read && this.length !== null && at > read.end - 20 && read.end < this.length) void this.#words(at, this.opening.signal, false);
  }

  /** Scroll the list of words, never the page. */
  #scrollTo(cue) {
    if (!cue) return;
    const list = byId("cue-list");
    const from = cue.button.getBoundingClientRect().top - list.getBoundingClientRect().top;
    list.scrollTop += from - list.clientHeight / 3;
  }

  #cueKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = this.cues.findIndex((cue) => cue.button === event.target.closest(".cue"));
    if (!step || row < 0) return;
    event.preventDefault();
    event.stopPropagation();
    const next = this.cues[Math.min(this.cues.length - 1, Math.max(0, row + step))].button;
    this.cues[row].button.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  // Taking away

  async copyLink() {
    const link = new URL(this.hooks.linkTo({ video_id: this.opened.id, start: this.start, end: this.end }), location.href).href;
    try {
      await copied(link);
      this.#tell("Link copied.");
    } catch {
      this.#tell(`The browser did not let the link be copied. It is: ${link}`);
    }
  }

  async cut() {
    const { start, end } = this;
    const url = clipOf(this.opened.id, start, end);
    const name = `${byId("title").textContent} ${clock(start, 3)}-${clock(end, 3)}.mp4`.replace(/[\\/:*?"<>|]+/g, ".");
    byId("cut").disabled = true;
    this.#tell(`Cutting ${span(start, end)}…`);
    try {
      this.#tell(`Saved ${await download(url, name)}.`);
    } catch (error) {
      this.#tell(`Not cut: ${error.message}`, true);
    } finally {
      byId("cut").disabled = false;
    }
  }

  async export() {
    const format = byId("format").value;
    const all = byId("scope-results").checked && this.hooks.results().length > 0;
    const named = `${this.opened.id}@${this.start.toFixed(3)}-${this.end.toFixed(3)}`;
    byId("export").open = false;
    byId("export").querySelector("summary").focus();
    this.#tell("Writing…");
    try {
      const parameters = all ? this.hooks.question() : { moments: named };
      const url = address("export", { ...parameters, format });
      this.#tell(`Saved ${await download(url, `moments.${format}`)}.`);
    } catch (error) {
      this.#tell(`Not exported: ${error.message}`, true);
    }
  }

  async why() {
    if (!this.opened.query) return;
    this.#tell("Looking for the reason…");
    try {
      const reasons = await this.#reasons(this.opening.signal);
      const { explained } = await import("./why.js");
      const reasonsShown = explained(reasons, this.hooks.linkTo);
      this.#tell("");
      byId("why-title").textContent = reasonsShown.title;
      byId("why-body").replaceChildren(...reasonsShown.body);
      byId("why-panel").hidden = false;
      byId("why-title").focus({ preventScroll: true });
      byId("why-panel").scrollIntoView({ block: "nearest" });
    } catch (error) {
      if (error.name !== "AbortError") this.#tell(`No reason: ${error.message}`, true);
    }
  }

  /** Why the moment is found or not: by the streams, or by the trained system. */
  #reasons(signal) {
    const { id, query, model } = this.opened;
    const moment = `${id}@${this.start.toFixed(3)}-${this.end.toFixed(3)}`;
    return ask(model ? "explain" : "why", { query, moment, model, k: model ? 100 : "" }, { signal });
  }

  #tell(text, isFault = false) {
    byId("message").textContent = text;
    byId("message").classList.toggle("bad", isFault);
    if (isFault) byId("message").scrollIntoView({ block: "nearest" });
  }

  // Wiring

  #listen() {
    const on = (id, name, act) => byId(id).addEventListener(name, act);
    on("play", "click", () => this.toggle());
    on("loop", "click", () => this.toggleLoop());
    on("zoom-in", "click", () => this.timeline.zoom(0.5));
    on("zoom-out", "click", () => this.timeline.zoom(2));
    for (const side of ["start", "end"]) {
      on(`${side}-less`, "click", () => this.timeline.step(side, -1));
      on(`${side}-more`, "click", () => this.timeline.step(side, 1));
      on(side, "change", () => this.#typed(side));
      on(side, "keydown", (event) => event.key === "Enter" && this.#typed(side));
    }
    on("reset", "click", () => {
      const { start, end } = this.opened.result;
      this.timeline.setMoment(start, end);
      this.#moved(start, end, true, "start");
      byId("grip-start").focus({ preventScroll: true });
    });
    on("copy", "click", () => this.copyLink());
    on("cut", "click", () => this.cut());
    on("why", "click", () => this.why());
    on("only-this", "click", () => this.hooks.onlyThis(this.opened.id));
    on("play-clip", "click", () => this.playClip());
    on("cue-list", "keydown", (event) => this.#cueKey(event));
    on("export", "toggle", () => this.#scopes());
    on("export-form", "submit", (event) => {
      event.preventDefault();
      void this.export();
    });
  }

  #scopes() {
    byId("scope-results").disabled = this.hooks.results().length === 0;
  }
}

/** Frames a second; sound moves in steps of a 25th. */
const rateOf = ({ frame_rate: rate }) => (rate >= 1 && rate <= 1000 ? rate : 25);

async function copied(text) {
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
