// Plays a collection. While one player shows a moment, another waits at the first frame of the next, so that there is
// no gap.

import { t } from "./language.js";
import { own } from "./server.js";
import { styled } from "./styles.js";
import { textOf } from "./timecode.js";
import { Beat } from "./timeline.js";
import { clock, make } from "./words.js";

// A moment may end this much early, because positions are checked every 16 ms.
const EARLY_SECONDS = 0.01;
// Enough data to continue (HAVE_FUTURE_DATA).
const READY = 3;

/** A player and its moment. Files that the browser cannot play are cut by the server. */
class Reel {
  constructor(hooks) {
    this.video = make("video", { class: "reel", playsinline: true, preload: "auto" });
    const on = (name, act) => this.video.addEventListener(name, () => this.item && act(this));
    on("error", () => this.#refused(hooks));
    on("loadedmetadata", () => {
      // Sound without the file's pictures is not the collected moment.
      if (!this.isCut && this.item.thumbnail_url && !this.video.videoWidth) this.#refused(hooks);
      else if (this.wanted !== null) this.seek(this.wanted);
    });
    for (const name of ["canplay", "seeked", "ended", "timeupdate"]) on(name, hooks[name] ?? hooks.ready);
  }

  load(place, item) {
    Object.assign(this, { place, item, isCut: false, isBroken: false, offset: 0, wanted: null });
    this.video.src = `${own(item.video_url)}#t=${item.start.toFixed(3)}`;
  }

  empty() {
    this.item = this.place = null;
    this.video.pause();
    this.video.removeAttribute("src");
    this.video.load();
  }

  #refused(hooks) {
    if (this.isCut) {
      this.isBroken = true;
      hooks.broken(this);
      return;
    }
    Object.assign(this, { isCut: true, offset: this.item.start });
    this.video.src = own(this.item.clip_url);
  }

  get isReady() {
    return this.video.readyState >= READY && !this.video.seeking;
  }

  /** Its position in the video, in seconds. */
  get at() {
    return Math.max(this.item.start, this.video.currentTime + this.offset);
  }

  seek(seconds) {
    this.wanted = this.video.readyState ? null : seconds;
    if (this.wanted === null) this.video.currentTime = seconds - this.offset;
  }

  play() {
    this.video.play().catch(() => { /* the error event says why */ });
  }
}

class Through {
  constructor(items) {
    Object.assign(this, { items, wants: true });
    this.begins = items.map((_, place) => items.slice(0, place).reduce((sum, each) => sum + each.end - each.start, 0));
    this.seconds = items.reduce((sum, each) => sum + each.end - each.start, 0);
    this.beat = new Beat(() => this.#tick());
    const hooks = {
      ready: () => this.#ready(), ended: (reel) => reel === this.front && this.#go(1),
      timeupdate: () => this.#tick(), broken: (reel) => this.#broken(reel),
    };
    [this.front, this.back] = [new Reel(hooks), new Reel(hooks)];
    this.title = make("p", { class: "through-title", "aria-live": "polite" });
    this.note = make("p", { class: "message", role: "status" });
    this.bar = make("input", { type: "range", min: 0, max: this.seconds, step: 0.5, "aria-label": t("Where in the collection"), input: () => this.#seek(Number(this.bar.value)) });
    this.told = make("span", { class: "quiet" });
    const button = (text, act, more = {}) => make("button", { type: "button", click: act, ...more }, text);
    this.toggle = button(t("Pause"), () => this.#toggle(), { class: "strong", autofocus: true, "aria-keyshortcuts": "Space" });
    this.sound = button(t("Sound"), () => this.#mute(), { "aria-pressed": "true", "aria-keyshortcuts": "m" });
    this.words = make("p", { class: "reel-words" });
    this.stage = make("div", { class: "reels" }, this.words, this.front.video, this.back.video);
    this.dialog = make("dialog", { class: "keys theatre", "aria-label": t("Play through"), close: () => this.#leave(), keydown: (event) => this.#key(event) },
      this.title, this.stage, make("div", { class: "through-bar" }, this.bar, this.told), this.note,
      make("div", { class: "actions" }, this.toggle,
        button(t("Previous"), () => this.#go(-1), { "aria-keyshortcuts": "k" }), button(t("Next"), () => this.#go(1), { "aria-keyshortcuts": "j" }), this.sound,
        document.fullscreenEnabled ? button(t("Full screen"), () => this.#fill()) : null,
        button(t("Close"), () => this.dialog.close())));
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.beat.run(true);
    this.#show(0);
  }

  /** Go to the moment of an index, to its start or `at`; after the last one, end. */
  #show(place, at = null) {
    if (place < 0) return;
    if (place >= this.items.length) { this.dialog.close(); return; }
    const item = this.items[place];
    this.place = place;
    if (this.back.place === place) {
      [this.front, this.back] = [this.back, this.front];
      if (this.wants && at === null) this.front.play();
      for (const name of ["muted", "volume", "playbackRate"]) this.front.video[name] = this.back.video[name];
    } else if (this.front.place !== place) this.front.load(place, item);
    const { front, back } = this;
    back.video.pause();
    if (at !== null || Math.abs(front.at - item.start) > 0.05) front.seek(at ?? item.start);
    front.video.classList.add("on");
    back.video.classList.remove("on");
    const next = this.items[place + 1];
    if (!next) back.empty();
    else if (back.place !== place + 1) back.load(place + 1, next);
    this.words.textContent = item.thumbnail_url ? "" : item.text || "♪";
    this.title.textContent = `${t("{n} of {all}", { n: place + 1, all: this.items.length })}: ${item.title}, ${textOf(item.video_id, [item.start, item.end])}`;
    if (front.isBroken) this.#broken(front);
    else this.#ready();
    this.#tick();
  }

  #go(by) {
    this.#show(this.place + by);
  }

  #ready() {
    const { front } = this;
    if (front.isBroken) return;
    this.note.textContent = front.isReady ? "" : t("Loading…");
    if (front.isReady && this.wants && front.video.paused) front.play();
  }

  /** Skip moments that neither browser nor server can play. */
  #broken(reel) {
    if (reel !== this.front) return;
    this.note.textContent = t("Moment {n} cannot be played.", { n: this.place + 1 });
    if (this.wants) setTimeout(() => this.front === reel && this.wants && this.#go(1), 2000);
  }

  #tick() {
    const { front, place } = this;
    if (!front.item || front.isBroken) return;
    const { start, end } = this.items[place];
    if (this.wants && front.isReady && !front.video.paused && front.at >= end - EARLY_SECONDS) {
      this.#go(1);
      return;
    }
    const at = this.begins[place] + Math.min(front.at, end) - start;
    if (!this.bar.matches(":active")) this.bar.value = at;
    this.told.textContent = t("{time} of {length}", { time: clock(at, 0), length: clock(this.seconds, 0) });
    this.bar.setAttribute("aria-valuetext", this.told.textContent);
  }

  /** Go to a time of the whole collection. */
  #seek(seconds) {
    const place = this.begins.findLastIndex((begin) => begin <= seconds);
    this.#show(place, Math.min(this.items[place].end - EARLY_SECONDS, this.items[place].start + seconds - this.begins[place]));
  }

  #toggle() {
    this.wants = !this.wants;
    this.toggle.textContent = this.wants ? t("Pause") : t("Play");
    if (this.wants) this.#ready();
    else this.front.video.pause();
  }

  #mute() {
    const { video } = this.front;
    video.muted = !video.muted;
    this.sound.setAttribute("aria-pressed", String(!video.muted));
  }

  #fill() {
    if (document.fullscreenElement) void document.exitFullscreen();
    else this.stage.requestFullscreen().catch(() => { this.note.textContent = t("The browser does not allow it."); });
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation();
    const act = { " ": () => this.#toggle(), k: () => this.#go(-1), j: () => this.#go(1), m: () => this.#mute() }[event.key];
    if (!act || (event.key === " " && event.target.matches("button"))) return;
    event.preventDefault();
    act();
  }

  #leave() {
    this.beat.run(false);
    for (const reel of [this.front, this.back]) reel.empty();
    this.dialog.remove();
  }
}

/** Play moments of a collection one after the other, in a dialog. */
export async function playThrough(items) {
  await styled("through");
  return new Through(items);
}
