// The camera's time code instead of times, for videos whose file states one: one switch for the whole page.

import { ask, ofVideo } from "./server.js";
import { clock, codeAt, frameOf, isCode, make } from "./words.js";

const KEY = "whenabouts time code";
const button = document.getElementById("timecode");
// While the switch is off, so many listed videos are asked whether they have a time code, which offers it.
const LOOKED = 6;
const AT_ONCE = 3;
// Moments are rounded to milliseconds, so a frame that begins this much before a border counts as at it.
const EARLY = 0.0005;
/** By video: { rate, first (the frame of its start), drops }; null without a time code, or until that is known. */
const known = new Map();
let [listed, looked, running, isOn] = [[], 0, 0, kept()];

/** Frames per second, a standard rate if near one; sound moves in steps of 1/25 s. */
export function rateOf({ frame_rate: rate }) {
  if (!(rate >= 1 && rate <= 1000)) return 25;
  const whole = Math.round(rate);
  return [whole * 1000 / 1001, whole].find((standard) => Math.abs(rate - standard) < standard / 2002) ?? rate;
}

/** A time of a video as its time code, if that is shown; else null. A border is a frame's start, another time lies in it. */
export function codeOf(id, seconds, isBorder = true) {
  const source = isOn && known.get(id);
  if (!source) return null;
  const { rate, first, drops } = source;
  // The millionth is for the rounding of products.
  const frame = isBorder ? Math.ceil((seconds - EARLY) * rate - 1e-6) : Math.floor(seconds * rate + 1e-3);
  return codeAt(first + Math.max(0, frame), rate, drops);
}

/** An element with a time of a video, or with start and end; it follows the switch. */
export function timed(tag, attributes, id, ...times) {
  return make(tag, { ...attributes, "data-of": id, "data-times": times.join(" ") }, textOf(id, times));
}

export const textOf = (id, times) => times.map((seconds) => codeOf(id, seconds) ?? clock(seconds)).join(" – ");

/** What the record of a video says of its time code: { rate, first, drops }, or null. */
function sourceOf(info) {
  const [stated, rate] = [(info.start_timecode ?? "").replace(".", ";"), rateOf(info)];
  const first = info.has_picture ? frameOf(stated, rate) : null;
  return first === null ? null : { rate, first, drops: stated.includes(";") };
}

/** Seconds from the start of the file of its camera's time code; null for another text, and outside the file. */
export function cameraSeconds(text, info) {
  const source = sourceOf(info);
  if (!source || !isCode(text)) return null;
  const { rate, first, drops } = source;
  // With the separator of the file, because both are typed for either; after midnight they begin anew.
  const frame = frameOf(text.trim().replace(/[:;](?=\d+$)/, drops ? ";" : ":"), rate);
  const day = frameOf(drops ? "24:00:00;00" : "24:00:00:00", rate);
  const seconds = frame === null ? NaN : ((frame - first + day) % day) / rate;
  return seconds >= 0 && seconds <= (info.duration ?? Infinity) + EARLY ? seconds : null;
}

/** Whether typed time codes are first read as the camera's. */
export const showsCodes = () => isOn;

/** Whether a list in a format differs by the time codes that it counts from: those of cameras or 0. */
export const countsCodes = (format) => !button.hidden && ["edl", "otio"].includes(format);

/** Call `show` when time codes are switched on or off, or become known. */
export const onCodes = (show) => document.addEventListener("timecodes", show);

/** Note the time code of a video's record. */
export function learn(info) {
  const [before, source] = [known.get(info.video_id), sourceOf(info)];
  known.set(info.video_id, source);
  if (!source || before) return;
  button.hidden = false;
  document.dispatchEvent(new Event("timecodes"));
}

/** The videos of a list, whose time codes are asked for if they are shown. */
export function list(ids) {
  listed = [...new Set(ids)];
  look();
}

function look() {
  while (running < (isOn ? AT_ONCE : 1)) {
    const id = listed.find((each) => !known.has(each));
    if (!id || (!isOn && (looked >= LOOKED || !button.hidden))) return;
    running += 1;
    looked += 1;
    known.set(id, null);
    // Without an answer its moments keep their times.
    ask(ofVideo(id)).then(learn).catch(() => {}).finally(() => { running -= 1; look(); });
  }
}

export function toggleCodes() {
  if (button.hidden) return false;
  isOn = !isOn;
  button.setAttribute("aria-pressed", String(isOn));
  try {
    localStorage.setItem(KEY, isOn ? "on" : "off");
  } catch { /* a browser that keeps nothing begins with times */ }
  document.dispatchEvent(new Event("timecodes"));
  look();
  return true;
}

function kept() {
  try {
    return localStorage.getItem(KEY) === "on";
  } catch {
    return false;
  }
}

button.setAttribute("aria-pressed", String(isOn));
button.addEventListener("click", toggleCodes);
onCodes(() => {
  for (const element of document.querySelectorAll("[data-times]")) {
    element.textContent = textOf(element.dataset.of, element.dataset.times.split(" ").map(Number));
  }
});
