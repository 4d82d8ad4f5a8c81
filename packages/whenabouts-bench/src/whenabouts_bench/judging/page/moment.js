// The moment: it loops, its context is a key away, its borders move. All times are seconds of the video.

import { number, t } from "./language.js";
import { Beat, Timeline } from "./timeline.js";
import { make } from "./words.js";

const byId = (id) => document.getElementById(id);
// After a border moved its end is what matters: so much before it is played.
const BEFORE_END = 1.5;
const STILL = matchMedia("(prefers-reduced-motion: reduce)");

export class MomentView {
  /**
   * `hooks`: unplayable(text), the recording is not there or cannot be played; preparing(text), "" when it plays;
   * moved(borders), as `moved` has them.
   */
  constructor(hooks) {
    this.hooks = hooks;
    this.timeline = new Timeline(byId("timeline"), {
      seek: (seconds) => this.#pointed(this.from + seconds),
      changed: (start, end, isFinal, side) => this.#moved(start, end, isFinal, side),
    });
    this.wantsSound = true;
    this.beat = new Beat(() => this.#tick());
    byId("play").addEventListener("click", () => this.toggle());
    byId("context").addEventListener("click", () => this.toggleContext());
    byId("sound").addEventListener("click", () => this.toggleSound());
    byId("reset").addEventListener("click", () => this.#place(this.task.start, this.task.end));
  }

  /** Show a task as the server describes it; `dragged` {start, end} are borders that were not sent yet. */
  show(task, dragged = null) {
    this.task = task;
    this.#setContext(false);
    this.clip = false;
    byId("moment").classList.toggle("blind", task.video !== "there");
    const { start, end } = dragged ?? (task.answer?.start == null ? task : task.answer);
    // What an earlier answer moved out of sight stays reachable.
    this.from = Math.min(task.context_start, start);
    this.to = Math.max(task.context_end, end);
    this.timeline.show({ duration: this.to - this.from, rate: task.rate, start: start - this.from, end: end - this.from });
    this.#place(start, end);
    if (task.video !== "there") {
      this.drop();
      this.hooks.unplayable(task.video === "missing" ? t("The video is missing.") : t("The video cannot be read."));
      return;
    }
    this.#mount(`api/tasks/${encodeURIComponent(task.task_id)}/video#t=${start.toFixed(3)}`);
  }

  drop() {
    this.beat.run(false);
    const { media } = this;
    this.media = null;
    if (!media) return;
    media.pause();
    media.removeAttribute("src");
    media.load();
    media.remove();
  }

  /** The borders where they are not those of the task; else {}. */
  get moved() {
    const is = (one, other) => Math.abs(one - other) < 5e-4;
    if (is(this.start, this.task.start) && is(this.end, this.task.end)) return {};
    return { start: Number(this.start.toFixed(3)), end: Number(this.end.toFixed(3)) };
  }

  // Playing

  #mount(source) {
    this.drop();
    const media = make("video", { preload: "auto", playsinline: true, "aria-label": t("The moment") });
    const on = (name, act) => media.addEventListener(name, () => this.media === media && act());
    on("loadedmetadata", () => this.#ready());
    on("error", () => this.#unplayable());
    on("play", () => this.#playing(true));
    on("pause", () => this.#playing(false));
    on("ended", () => { this.seek(this.loop[0]); this.#play(); });
    on("click", () => this.toggle());
    media.muted = !this.wantsSound;
    media.src = source;
    this.media = media;
    byId("screen").replaceChildren(media);
  }

  #ready() {
    if (this.media.videoWidth === 0 && !this.clip) {
      this.#unplayable();
      return;
    }
    if (this.clip) this.hooks.preparing("");
    this.seek(this.loop[0]);
    if (!STILL.matches) this.#play();
  }

  /** What the browser cannot play the server cuts to MP4; what that cannot either is told. */
  #unplayable() {
    if (this.clip) {
      this.drop();
      byId("moment").classList.add("blind");
      this.hooks.unplayable(t("The video cannot be played."));
      return;
    }
    this.clip = true;
    this.hooks.preparing(t("This browser does not play the file as it is: the server cuts the moment out…"));
    this.#mount(`api/tasks/${encodeURIComponent(this.task.task_id)}/clip`);
  }

  async #play() {
    const { media } = this;
    try {
      await media?.play();
    } catch (error) {
      // Before the first key or click browsers play without sound only.
      if (error.name !== "NotAllowedError" || media !== this.media) return;
      media.muted = true;
      this.#showSound();
      await media.play().catch(() => { /* then Space plays it */ });
    }
  }

  #playing(plays) {
    byId("play-label").textContent = plays ? t("Pause") : t("Play");
    this.#showSound();
    this.beat.run(plays);
  }

  #tick() {
    const [start, end] = this.loop;
    const { at } = this;
    if (at >= end || at < start - 0.3) this.seek(start);
    else this.timeline.setHead(at - this.from);
  }

  /** What is played over and over: [start, end]. */
  get loop() {
    return this.hasContext ? [this.from, this.to] : [this.start, this.end];
  }

  /** A clip begins where the context does. */
  get #offset() {
    return this.clip ? this.task.context_start : 0;
  }

  get at() {
    return (this.media?.currentTime ?? this.start) + this.#offset;
  }

  seek(seconds) {
    if (!this.media) return;
    this.media.currentTime = Math.max(0, seconds - this.#offset);
    this.timeline.setHead(seconds - this.from);
  }

  toggle() {
    if (!this.media) return;
    if (!this.media.paused) {
      this.media.pause();
      return;
    }
    const [start, end] = this.loop;
    if (this.at < start - 0.02 || this.at >= end - 0.5 / this.task.rate) this.seek(start);
    this.#play();
  }

  toggleContext() {
    this.#setContext(!this.hasContext);
    this.seek(this.loop[0]);
    this.#play();
  }

  #setContext(hasContext) {
    this.hasContext = hasContext;
    byId("context").setAttribute("aria-pressed", String(hasContext));
  }

  /** A click on the time line; outside the moment the context plays, or it would jump back at once. */
  #pointed(seconds) {
    if (seconds < this.start || seconds >= this.end) this.#setContext(true);
    this.seek(seconds);
  }

  toggleSound() {
    this.wantsSound = this.media?.muted ?? !this.wantsSound;
    if (this.media) this.media.muted = !this.wantsSound;
    this.#showSound();
  }

  #showSound() {
    byId("sound").setAttribute("aria-pressed", String(this.media ? !this.media.muted : this.wantsSound));
  }

  // Borders

  /** One border to where the player stands, or by some seconds. */
  border(side, { by = null } = {}) {
    if (this.media) this.timeline.move(side, (by === null ? this.at : this[side] + by) - this.from, true);
  }

  #place(start, end) {
    this.timeline.setMoment(start - this.from, end - this.from);
    this.#set(start, end);
    this.seek(start);
  }

  #moved(start, end, isFinal, side) {
    this.#set(this.from + start, this.from + end);
    if (isFinal) {
      this.seek(side === "end" ? Math.max(this.start, this.end - BEFORE_END) : this.start);
      this.#play();
    } else {
      this.media?.pause();
      this.seek(side === "end" ? Math.max(this.start, this.end - 1 / this.task.rate) : this.start);
    }
  }

  #set(start, end) {
    Object.assign(this, { start, end });
    byId("length").textContent = t("{seconds} s long", { seconds: number(end - start, 1) });
    byId("reset").hidden = !("start" in this.moved);
    this.hooks.moved(this.moved);
  }
}
