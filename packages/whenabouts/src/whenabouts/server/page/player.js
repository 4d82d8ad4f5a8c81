// One moment of one video: play it, move its borders, read its words, export it.

import { faultParts, toldOf } from "./errors.js";
import { language, number, t, term } from "./language.js";
import { address, ask, clipOf, download, Fault, fetched, loaded, ofVideo } from "./server.js";
import { Lanes } from "./lanes.js";
import { Overview } from "./overview.js";
import { Beat, Timeline, curvesOf } from "./timeline.js";
import { keyOf, pathOf } from "./results.js";
import { cameraSeconds, codeOf, countsCodes, learn, onCodes, rateOf, showsCodes } from "./timecode.js";
import { Transcript } from "./transcript.js";
import { clock, day, length, make, noTime, readClock, span } from "./words.js";

const byId = (id) => document.getElementById(id);
// Films that browsers cannot play are converted in pieces of this many seconds, when reached.
const PIECE_SECONDS = 60;
// Browsers and containers round times, so a seek to the first instant of a frame may show the frame before it.
const INSIDE = 0.002;
const SPEEDS = [0.25, 0.5, 1, 1.25, 1.5, 2, 4];

export class Player {
  /**
   * `hooks`: changed(start, end), linkTo(moment), open(result), onlyThis(id), say(text), results(), question(), back() to
   * the results, searchAnew(), item() the open moment of a collection or null, saveItem(start, end).
   */
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
    this.timeline.codeOf = (seconds, isBorder) => this.opened && codeOf(this.opened.id, seconds, isBorder);
    onCodes(() => this.#retime());
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
   * Show a video at a moment. `start`, `end` may be null: then the beginning. `result` is the opened result or null,
   * `title` the name to show until the record is read, `fault` a note on the address.
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
    this.again = () => {
      this.isWhole = false; // its record is read anew
      return this.open({ id, start, end, result, query, model, title });
    };
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
      same ? null : this.#marks(signal),
    ]);
    this.isWhole ||= !signal.aborted;
  }

  /** Mark which result the open moment is, once the answer is there. */
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
    byId("subtitle").textContent = byId("indexed").textContent = "";
    this.#clearFault();
    this.lanes.show([]);
    this.marks?.forget();
  }

  #refuse(error) {
    this.#drop();
    byId("screen").className = "screen empty";
    this.#fault(error instanceof Fault ? error : new Fault(500, String(error)), this.again);
  }

  /** Instead of pictures: what went wrong, what to do, and ways back. `again` retries. */
  #fault(fault, again) {
    const isGone = fault.code === "no_such_video";
    const place = fault.code.startsWith("video_") ? this.info?.place : null;
    const parts = faultParts(fault, {
      [t("Search again")]: isGone ? () => this.hooks.searchAnew() : null,
      [t("Try again")]: isGone ? null : again,
      [t("Show the folder")]: place ? () => this.#showPlace(place) : null,
      [t("Download the file")]: fault.code === "unreadable_video" ? () => this.#takeFile() : null,
      [t("Back to the results")]: () => this.hooks.back(),
    }, { headed: true });
    byId("unplayable-text").textContent = "";
    byId("play-clip").hidden = true;
    byId("unplayable-parts").replaceChildren(...parts);
    byId("unplayable").hidden = false;
    this.#tell("");
  }

  #clearFault() {
    byId("unplayable-parts").replaceChildren();
    byId("unplayable").hidden = true;
  }

  /** The indexed path of the file; browsers cannot open folders, so it can be copied. */
  #showPlace(place) {
    byId("unplayable-parts").querySelector(".place-text")?.remove();
    byId("unplayable-parts").append(make("p", { class: "place-text" }, place));
  }

  async #takeFile() {
    try {
      this.#tell(await download(address(ofVideo(this.opened.id, "/file")), this.info.name));
    } catch (error) {
      this.#tell(toldOf(error), true);
    }
  }

  #describe() {
    const { info } = this;
    learn(info);
    this.rate = rateOf(info);
    this.length = Number.isFinite(info.duration) ? info.duration : null;
    if (this.length !== null && this.start >= this.length) {
      this.#tell(t("The address names a moment after the end of this video ({time}).", { time: clock(this.length, 3) }), true);
      Object.assign(this, { start: 0, end: 5, given: false });
    }
    if (!this.given && this.length !== null) this.end = Math.min(this.end, this.length);
    byId("title").textContent = info.title;
    const date = `${day(info.recorded)}${info.recorded_from === "modified" ? ` (${t("date of the file")})` : ""}`;
    const facts = [length(this.length ?? NaN), date, info.damage, info.frame_rate ? t("{rate} frames a second", { rate: Number(this.rate.toFixed(3)).toLocaleString(language) }) : "", pathOf(info)];
    byId("subtitle").textContent = facts.filter(Boolean).join(" · ");
    const dates = Object.entries(Object.groupBy(info.indexed_streams ?? [], ({ since }) => (since ? t("since {date}", { date: day(since) }) : t("by {date}", { date: day(info.indexed) }))));
    byId("indexed").textContent = dates.map(([date, streams]) => t("{streams} indexed {date}", { streams: streams.map(({ title }) => term(title)).join(", "), date })).join(" · ");
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
    this.marks?.screen.view(from, to);
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
    this.#clearFault();
    if (this.info.kind === "transcript" || this.info.available === false) {
      this.#absent();
      return;
    }
    const file = address(ofVideo(this.opened.id, "/file"));
    this.#mount(!this.info.has_picture ? "audio" : "video", `${file}#t=${(this.start + INSIDE).toFixed(3)}`);
  }

  /** Only words can be shown. */
  #absent() {
    this.#drop();
    byId("screen").className = "screen empty";
    if (this.info.kind === "transcript") {
      byId("unplayable-text").textContent = t("These are words without a recording: there is nothing to play.");
      byId("play-clip").hidden = true;
      byId("unplayable").hidden = false;
    } else {
      const { code, message } = this.info.unavailable ?? { code: "video_gone", message: t("The file of this video is not there.") };
      this.#fault(new Fault(410, message, { code }), this.again);
    }
    for (const id of ["play", "cut"]) byId(id).disabled = true;
  }

  #mount(kind, source) {
    this.#drop();
    const media = make(kind, { controls: true, preload: "metadata", playsinline: true, "aria-label": byId("title").textContent });
    const on = (name, act) => media.addEventListener(name, () => this.media === media && act());
    on("loadedmetadata", () => this.#ready());
    on("error", () => void this.#failed());
    on("timeupdate", () => this.#tick());
    on("seeking", () => { this.shown = null; });
    on("seeked", () => this.#tick());
    media.defaultPlaybackRate = media.playbackRate = this.speed;
    on("play", () => this.#playing(true));
    on("pause", () => this.#playing(false));
    on("ended", () => this.#ended());
    media.src = source;
    this.media = media;
    this.shown = null;
    const show = (_, { mediaTime }) => { if (this.media === media) this.shown = mediaTime; media.requestVideoFrameCallback(show); };
    media.requestVideoFrameCallback?.(show);
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
      this.#unplayable(t("This browser plays the sound of this file, but not its pictures."));
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

  /** Playback failed: find out whether file, server or access is gone; otherwise the film is unplayable. */
  async #failed() {
    const { media, opened, clip } = this;
    try {
      const info = await ask(ofVideo(opened.id), {}, { signal: this.opening.signal });
      if (media !== this.media) return;
      this.info = info;
      if (info.available === false) this.#absent();
      else this.#unplayable();
    } catch (error) {
      if (error.name !== "AbortError" && media === this.media) this.#fault(error, clip ? () => this.playPiece(clip.at) : this.again);
    }
  }

  #unplayable(what = "") {
    byId("unplayable-parts").replaceChildren();
    if (this.clip) {
      byId("unplayable-text").textContent = t("The cut moment cannot be played either. It may still be downloaded with “Cut”.");
      byId("play-clip").hidden = true;
    } else {
      const kind = (/\.([a-z0-9]{1,5})$/i.exec(this.info.name)?.[1] ?? "").toLowerCase();
      byId("unplayable-text").textContent = what
        ? what
        : kind ? t("This browser cannot play this file ({kind}).", { kind }) : t("This browser cannot play this file.");
      byId("play-clip").hidden = false;
    }
    byId("unplayable").hidden = false;
    if (!what) byId("screen").classList.add("empty");
    this.hooks.say(byId("unplayable-text").textContent);
  }

  /** Play an unplayable file: the server converts and caches the piece around a time. */
  async playPiece(at = this.start, plays = false) {
    const most = this.length ?? Infinity;
    const start = Math.min(Math.floor(at / PIECE_SECONDS) * PIECE_SECONDS, Math.max(0, most - 1));
    const end = Math.min(start + PIECE_SECONDS, most);
    const url = clipOf(this.opened.id, start, end);
    this.#tell(t("Making {span} playable…", { span: span(start, end) }));
    try {
      const response = await fetched(url, this.opening.signal);
      await response.body?.cancel();
    } catch (error) {
      if (error.name !== "AbortError") this.#fault(error, () => this.playPiece(at, plays));
      return;
    }
    this.#tell("");
    this.clip = { start, end, at, plays };
    // The pressed button disappears with its focus; keep the keys working.
    if (byId("unplayable").contains(document.activeElement)) byId("title").focus({ preventScroll: true });
    this.#clearFault();
    this.#mount(!this.info.has_picture ? "audio" : "video", url);
    byId("screen").classList.add("clip");
  }

  /** The moment's name for requests. */
  get #name() {
    return keyOf({ video_id: this.opened.id, start: this.start, end: this.end });
  }

  /** The player's position in the video, in seconds. */
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
    // Before the file is open it cannot seek.
    if (this.media.readyState === 0) this.sought = seconds;
    this.media.currentTime = Math.min(most, Math.max(0, seconds + INSIDE - (this.clip?.start ?? 0)));
    this.timeline.setHead(seconds);
  }

  frame(step) {
    this.media?.pause();
    this.seek((Math.floor(this.at * this.rate + 1e-3) + step) / this.rate);
  }

  /** Make the visible frame the first or last of the moment. */
  mark(side) {
    if (!this.info?.has_picture) return this.setBorder(side, this.at);
    const isShown = this.shown !== null && this.media?.seeking === false;
    const start = isShown ? this.shown + (this.clip?.start ?? 0) : Math.floor(this.at * this.rate + 1e-3) / this.rate;
    return this.setBorder(side, side === "start" ? start : start + 1 / this.rate);
  }

  /** Play the moment from the present position in it, else from its start; pause if playing. */
  toggle() {
    const { media } = this;
    if (!media) return;
    if (!this.clip && !byId("unplayable").hidden && !byId("play-clip").hidden) {
      void this.playPiece(this.start, true);
      return;
    }
    if (!media.paused) {
      media.pause();
      return;
    }
    if (this.at < this.start - 0.02 || this.at >= this.end - 0.5 / this.rate) this.seek(this.start);
    this.guarded = true;
    media.play().catch(() => { /* the error event says why */ });
  }

  /** Change the speed by this many steps; negative is slower. */
  faster(steps) {
    const at = SPEEDS.indexOf(this.speed) + steps;
    this.setSpeed(SPEEDS[Math.min(SPEEDS.length - 1, Math.max(0, at))]);
    this.hooks.say(t("{speed} times the speed", { speed: this.speed.toLocaleString(language) }));
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
    byId("play-label").textContent = plays ? t("Pause") : t("Play moment");
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
    this.marks?.follow(at);
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
    const { id, result } = this.opened;
    for (const side of ["start", "end"]) {
      byId(side).value = codeOf(id, this[side]) ?? clock(this[side], 3);
      byId(side).removeAttribute("aria-invalid");
    }
    byId("length").textContent = t("{seconds} s long", { seconds: number(this.end - this.start, 2) });
    const differs = (moment) => Math.abs(moment.start - this.start) > 5e-4 || Math.abs(moment.end - this.end) > 5e-4;
    const own = !result || differs(result);
    const item = this.hooks.item();
    byId("save-borders").hidden = !item || !differs(item);
    byId("reset").hidden = !result || !own;
    byId("why").textContent = result && !own ? t("Why here?") : t("Why not here?");
    byId("why").disabled = !this.opened.query;
    this.transcript.mark(this.start, this.end);
    this.overview.setMoment(this.start, this.end);
  }

  /** Time codes were switched on or off, or are known now; a time that is being typed stays. */
  #retime() {
    if (!this.opened || !this.info || document.activeElement.matches("#start, #end")) return;
    this.#showBorders();
    this.timeline.setMoment(this.start, this.end);
    this.#tick();
  }

  /** A moment chosen in the words. */
  #pick(start, end) {
    this.timeline.setMoment(start, end);
    this.#moved(this.timeline.start, this.timeline.end, true, "start");
  }

  setBorder(side, seconds) {
    this.timeline.move(side, seconds, true);
  }

  #typed(side) {
    try {
      const seconds = readBorder(byId(side).value, side, this, { ...this.info, duration: this.length });
      this.#tell("");
      this.setBorder(side, seconds);
    } catch (error) {
      byId(side).setAttribute("aria-invalid", "true");
      this.#tell(error.message, true);
    }
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
      if (error.name !== "AbortError") this.#tell(t("No curves: {why}", { why: error.message }), true);
    }
  }

  async #who(name) {
    try {
      const script = await loaded(import("./people.js"));
      await script.askWho(name, () => void this.#people(this.opening.signal));
    } catch (error) {
      this.#tell(toldOf(error), true);
    }
  }

  async #people(signal) {
    try {
      const reply = await ask(ofVideo(this.opened.id, "/people"), {}, { signal });
      if (!signal.aborted) this.lanes.show(reply.data, reply.may_change);
    } catch (error) {
      if (error.name !== "AbortError") this.#tell(t("Who speaks is not known: {why}", { why: error.message }), true);
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

  /** Chapters and texts on the screen. */
  async #marks(signal) {
    if (!this.info.chapters?.length && !this.info.has_texts) return;
    try {
      const { opened } = await loaded(import("./marks.js"));
      this.marks ??= await opened(this);
      await this.marks.open(signal);
    } catch (error) {
      if (error.name !== "AbortError") this.#tell(t("No text on the screen: {why}", { why: error.message }), true);
    }
  }

  chapter(by) {
    return this.marks?.step(by, this.at) ?? false;
  }

  // Taking away

  async copyLink() {
    const link = this.hooks.linkTo({ video_id: this.opened.id, start: this.start, end: this.end });
    try {
      const { copyLink } = await loaded(import("./link.js"));
      await copyLink(link, null, (text) => { this.#tell(text); this.hooks.say(text); });
    } catch (error) {
      this.#tell(toldOf(error), true);
    }
  }

  /** Add the moment to a collection, by default the last one used. */
  async collect(name = "") {
    const moment = this.#name;
    try {
      const { collect } = await loaded(import("./collections.js"));
      const { name: into, items, isThere } = await collect(name, moment, this.opened.query ?? "");
      this.#tell(isThere ? t("Already in “{name}”.", { name: into }) : t("In “{name}”, which has {n} moment now.|In “{name}”, which has {n} moments now.", { name: into, n: items.length }));
      this.hooks.say(byId("message").textContent);
    } catch (error) {
      this.#tell(t("Not collected: {why}", { why: toldOf(error) }), true);
    }
  }

  async #offerCollections() {
    const field = byId("collect-name");
    if (!byId("collect").open) {
      field.value = ""; // not when it opens: this is told late, and a quick person has typed by then
      return;
    }
    field.focus();
    try {
      const { lastName, lastUsed, listed } = await loaded(import("./collections.js"));
      const all = await listed();
      if (!field.value) {
        field.value = lastUsed(all)?.name ?? lastName();
        field.select();
      }
      byId("collect-names").replaceChildren(...all.map(({ name }) => make("option", { value: name })));
    } catch { /* adding the moment says what is wrong */ }
  }

  async cut() {
    const { start, end } = this;
    const url = clipOf(this.opened.id, start, end);
    const name = `${byId("title").textContent} ${clock(start, 3)}-${clock(end, 3)}.${this.info?.has_picture === false ? "m4a" : "mp4"}`.replace(/[\\/:*?"<>|]+/g, ".");
    byId("cut").disabled = true;
    this.#tell(t("Cutting {span}…", { span: span(start, end) }));
    try {
      this.#tell(await download(url, name));
    } catch (error) {
      this.#tell(t("Not cut: {why}", { why: toldOf(error) }), true);
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
    this.#tell(t("Writing…"));
    try {
      const parameters = all ? this.hooks.question() : { moments: named };
      const url = address("export", { ...parameters, format, from_zero: countsCodes(format) && !byId("from-camera").checked });
      this.#tell(await download(url, `moments.${format}`));
    } catch (error) {
      this.#tell(t("Not exported: {why}", { why: toldOf(error) }), true);
    }
  }

  async why() {
    if (!this.opened.query) return;
    this.#tell(t("Looking for the reason…"));
    try {
      const reasons = await this.#reasons(this.opening.signal);
      const { explained } = await loaded(import("./why.js"));
      const reasonsShown = explained(reasons, this.hooks.linkTo);
      this.#tell("");
      byId("why-title").textContent = reasonsShown.title;
      byId("why-body").replaceChildren(...reasonsShown.body);
      byId("why-panel").hidden = false;
      byId("why-title").focus({ preventScroll: true });
      byId("why-panel").scrollIntoView({ block: "nearest" });
    } catch (error) {
      if (error.name !== "AbortError") this.#tell(t("No reason: {why}", { why: error.message }), true);
    }
  }

  /** Why the moment is found or not, by the streams or the trained system. */
  #reasons(signal) {
    const { id, query, model } = this.opened;
    const moment = this.#name;
    return ask(model ? "explain" : "why", { query, moment, model, k: model ? 100 : "" }, { signal });
  }

  #tell(text, isFault = false) {
    byId("message").textContent = text;
    byId("message").classList.toggle("bad", isFault);
    if (text) byId("message").scrollIntoView({ block: "nearest" });
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
    on("save-borders", "click", async () => {
      try {
        await this.hooks.saveItem(this.start, this.end);
        this.#tell(t("Saved"));
      } catch (error) {
        this.#tell(toldOf(error), true);
      }
      if (this.opened) this.#showBorders();
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
    for (const name of ["toggle", "change"]) on("export", name, () => this.#scopes());
    on("export-form", "submit", (event) => {
      event.preventDefault();
      void this.export();
    });
  }

  #scopes() {
    byId("scope-results").disabled = this.hooks.results().length === 0;
    byId("from-camera").parentElement.hidden = !countsCodes(byId("format").value);
  }
}

/**
 * A border typed for a moment of a video: seconds from the start of the file. A time code is read as the camera's if
 * those are shown, or if it is after the end of the file; and if that lies in the file. Throws Error.
 */
export function readBorder(text, side, { start, end }, info) {
  const most = info.duration ?? Infinity;
  let seconds = readClock(text, rateOf(info));
  if (seconds === null) throw new Error(noTime(text));
  if (showsCodes() || seconds > most + 0.05) seconds = cameraSeconds(text, info) ?? seconds;
  if (seconds > most + 0.05) throw new Error(afterEnd(text, most, info.start_timecode));
  if (side === "start" ? seconds >= end : seconds <= start) throw new Error(t("A moment ends after it starts; nothing is changed."));
  return seconds;
}

const afterEnd = (text, most, first) => [
  t("“{text}” is after the end of this video ({time}); times count from the start of the file.", { text, time: clock(most, 3) }),
  first && t("Its time code begins at {code}.", { code: first }),
].filter(Boolean).join(" ");
