// One moment of one video: played, its borders moved, its words read, taken away.

import { address, ask, clipOf, copied, download, Fault, fetched, ofVideo } from "./server.js";
import { Lanes } from "./lanes.js";
import { Overview } from "./overview.js";
import { Beat, Timeline, curvesOf } from "./timeline.js";
import { keyOf } from "./results.js";
import { Transcript } from "./transcript.js";
import { clock, counted, day, length, make, noTime, readClock, span } from "./words.js";

const byId = (id) => document.getElementById(id);
// A film that no browser plays is made playable in pieces of so many seconds, as they are reached.
const PIECE_SECONDS = 60;
const SPEEDS = [0.25, 0.5, 1, 1.25, 1.5, 2, 4];

export class Player {
  /** `hooks`: changed(start, end), linkTo(moment), open(result), onlyThis(id), say(text), results(), question(). */
  constructor(hooks) {
    this.hooks = hooks;
    this.root = byId("player");
    this.beat = new Beat(() => this.#tick());
    this.lanes = new Lanes(byId("lanes"), (seconds) => this.seek(seconds), (name) => void this.#who(name));
    this.overview = new Overview(byId("overview"), {
      seek: (seconds) => { this.timeline.reach(seconds); this.seek(seconds); },
      open: (result) => this.hooks.open(result),
    });
    this.transcript = new Transcript({
      seek: (seconds) => this.seek(seconds),
      picked: (start, end) => this.#pick(start, end),
      failed: (message) => this.#tell(message, true),
    });
    this.timeline = new Timeline(byId("timeline"), {
      seek: (seconds) => this.seek(seconds),
      viewed: (from, to) => this.#viewed(from, to),
      changed: (start, end, isFinal, side) => this.#moved(start, end, isFinal, side),
    });
    this.loops = true;
    this.speed = 1;
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
    byId("export").open = byId("collect").open = false;
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
    await Promise.all([
      same ? this.timeline.setCurves(this.curves) : this.#curves(signal), this.#words(from, signal),
      same ? null : this.#people(signal), same ? null : this.#hits(signal),
    ]);
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
    this.transcript.forget();
    this.isWhole = false;
    byId("subtitle").textContent = "";
    byId("unplayable").hidden = true;
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
    if (this.overview.shown !== this.opened.id) {
      this.overview.shown = this.opened.id;
      this.overview.show(this.info, this.timeline.duration);
    }
    this.#viewed(this.timeline.from, this.timeline.to);
    this.#showBorders();
  }

  #viewed(from, to) {
    this.lanes.view(from, to);
    if (this.overview.duration) this.overview.view(from, to);
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
    media.defaultPlaybackRate = media.playbackRate = this.speed;
    on("play", () => this.#playing(true));
    on("pause", () => this.#playing(false));
    on("ended", () => this.#ended());
    media.src = source;
    this.media = media;
    this.sought = null;
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
    const wanted = this.sought ?? this.clip?.at ?? this.start;
    this.sought = null;
    if (Math.abs(this.at - wanted) > 0.02) this.seek(wanted);
    if (this.clip?.plays) this.media.play().catch(() => { /* the error event says why */ });
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

  /** Play a file that no browser plays: the server makes the piece around a time playable, and keeps it. */
  async playPiece(at = this.start, plays = false) {
    const most = this.length ?? Infinity;
    const start = Math.min(Math.floor(at / PIECE_SECONDS) * PIECE_SECONDS, Math.max(0, most - 1));
    const end = Math.min(start + PIECE_SECONDS, most);
    const url = clipOf(this.opened.id, start, end);
    this.#tell(`Making ${span(start, end)} playable…`);
    try {
      const response = await fetched(url, this.opening.signal);
      await response.body?.cancel();
    } catch (error) {
      if (error.name !== "AbortError") this.#tell(error.message, true);
      return;
    }
    this.#tell("");
    this.clip = { start, end, at, plays };
    // The button that was pressed goes, and with it the focus: keys go on to work.
    if (byId("unplayable").contains(document.activeElement)) byId("title").focus({ preventScroll: true });
    byId("unplayable").hidden = true;
    this.#mount(!this.info.has_picture ? "audio" : "video", url);
    byId("screen").classList.add("clip");
  }

  /** The moment as requests name it. */
  get #name() {
    return keyOf({ video_id: this.opened.id, start: this.start, end: this.end });
  }

  /** Where the player stands, in the video's seconds. */
  get at() {
    return (this.media?.currentTime ?? this.start) + (this.clip?.start ?? 0);
  }

  seek(seconds) {
    this.guarded = false;
    if (!this.media) return;
    if (this.clip && (seconds < this.clip.start || seconds >= this.clip.end) && seconds < (this.length ?? Infinity)) {
      void this.playPiece(Math.max(0, seconds), !this.media.paused);
      this.timeline.setHead(seconds);
      return;
    }
    const most = this.clip ? this.clip.end - this.clip.start : (this.length ?? Infinity);
    // Before the file is open there is nowhere to go yet.
    if (this.media.readyState === 0) this.sought = seconds;
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

  /** Play so many steps of speed faster, slower if below 0. */
  faster(steps) {
    const at = SPEEDS.indexOf(this.speed) + steps;
    this.setSpeed(SPEEDS[Math.min(SPEEDS.length - 1, Math.max(0, at))]);
    this.hooks.say(`${this.speed} times the speed`);
  }

  setSpeed(speed) {
    this.speed = speed;
    byId("speed").value = String(speed);
    if (this.media) this.media.defaultPlaybackRate = this.media.playbackRate = speed;
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
    this.overview.setHead(at);
    byId("readout").textContent = this.timeline.describe(at);
    this.transcript.follow(at, !this.media.paused);
  }

  #ended() {
    if (this.clip && this.clip.end < (this.length ?? 0) && !(this.guarded && this.loops && this.end <= this.clip.end)) {
      void this.playPiece(this.clip.end, true);
      return;
    }
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
    this.transcript.mark(this.start, this.end);
    this.overview.setMoment(this.start, this.end);
  }

  /** A moment that was chosen in the words. */
  #pick(start, end) {
    this.timeline.setMoment(start, end);
    this.#moved(this.timeline.start, this.timeline.end, true, "start");
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

  async #words(around, signal) {
    await this.transcript.open({ id: this.opened.id, query: this.opened.query, length: this.length, signal }, around);
    this.transcript.mark(this.start, this.end);
    this.transcript.follow(this.at, false);
  }

  async #hits(signal) {
    const question = this.hooks.question();
    if (!question.query) return;
    try {
      await this.overview.hits(question, this.opened.id, signal);
    } catch { /* the list of results says what is wrong with the search */ }
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

  /** Put the moment into a collection; without a name into the one used last. */
  async collect(name = "") {
    const { collect, lastUsed } = await import("./collections.js");
    const moment = this.#name;
    try {
      const { name: into, items } = await collect(name || lastUsed(), [moment], this.opened.query ?? "");
      this.#tell(`In “${into}”, which has ${counted(items.length, "moment")} now.`);
      this.hooks.say(byId("message").textContent);
    } catch (error) {
      this.#tell(`Not collected: ${error.message}`, true);
    }
  }

  async #offerCollections() {
    if (!byId("collect").open) return;
    const field = byId("collect-name");
    field.value = "";
    field.focus();
    const { lastUsed, listed } = await import("./collections.js");
    if (!field.value) {
      field.value = lastUsed();
      field.select();
    }
    const all = await listed().catch(() => []);
    byId("collect-names").replaceChildren(...all.map(({ name }) => make("option", { value: name })));
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
    const named = this.#name;
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
    const moment = this.#name;
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
    on("collect", "toggle", () => void this.#offerCollections());
    on("collect-form", "submit", (event) => {
      event.preventDefault();
      byId("collect").open = false;
      byId("collect").querySelector("summary").focus();
      void this.collect(byId("collect-name").value.trim());
    });
    on("only-this", "click", () => this.hooks.onlyThis(this.opened.id));
    on("play-clip", "click", () => this.playPiece());
    on("frame-less", "click", () => this.frame(-1));
    on("frame-more", "click", () => this.frame(1));
    on("speed", "change", () => this.setSpeed(Number(byId("speed").value)));
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
