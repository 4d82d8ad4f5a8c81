// Times, confidences and words for users; and helpers that create elements.

import { language, POINT, t, term } from "./language.js";

/** An element. Data is added only as text nodes; nothing here parses HTML. */
export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** 62.25 -> "1:02.3"; with three digits "1:02.250"; in German "1:02,3". */
export function clock(seconds, digits = 1) {
  if (!Number.isFinite(seconds)) return "?";
  const scale = 10 ** digits;
  const units = Math.round(Math.max(0, seconds) * scale);
  const whole = Math.floor(units / scale);
  const tail = digits ? POINT + String(units % scale).padStart(digits, "0") : "";
  const two = (number) => String(number).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  return (hours ? `${hours}:${two(minutes)}` : `${minutes}`) + `:${two(whole % 60)}${tail}`;
}

export const span = (start, end) => `${clock(start)} – ${clock(end)}`;

const CODE = /^\s*(\d+):([0-5]\d):([0-5]\d)([:;])(\d{2,3})\s*$/;

export const isCode = (text) => CODE.test(text);

/** The frame of a time code at `rate` frames per second, from 0: "00:01:02:12", or drop-frame "00:01:02;12"; null if there is none. */
export function frameOf(text, rate) {
  const [, hour, minute, second, mark, frame] = (CODE.exec(text) ?? []).map((part) => (/\d/.test(part) ? Number(part) : part));
  const base = Math.round(rate);
  if (!(frame < base)) return null;
  const number = (3600 * hour + 60 * minute + second) * base + frame;
  if (mark === ":") return number;
  // To keep 29.97 on the clock, drop-frame skips the first two numbers of each minute except every tenth.
  if (base % 30 || Math.abs(rate - base * 1000 / 1001) > 1e-3) return null;
  const [dropped, minutes] = [base / 15, 60 * hour + minute];
  if (minute % 10 && second === 0 && frame < dropped) return null;
  return number - dropped * (minutes - Math.floor(minutes / 10));
}

/** The time code of a frame, which begins anew after a day: the inverse of `frameOf`. */
export function codeAt(frame, rate, drops) {
  const base = Math.round(rate);
  let number = frame;
  if (drops) {
    const dropped = base / 15;
    const [short, tens] = [60 * base - dropped, 600 * base - 9 * dropped];
    // The first minute of ten has all its numbers.
    number += dropped * (9 * Math.floor(frame / tens) + Math.floor(Math.max(0, frame % tens - dropped) / short));
  }
  const seconds = Math.floor(number / base);
  const parts = [Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60, seconds % 60];
  const digits = Math.max(2, String(base - 1).length);
  return `${parts.map((part) => String(part).padStart(2, "0")).join(":")}${drops ? ";" : ":"}${String(number % base).padStart(digits, "0")}`;
}

/** "1:02.5", "62.5" or "0:01:02,5" -> 62.5; at `rate` frames per second also a time code; null for anything else. */
export function readClock(text, rate = 0) {
  if (isCode(text)) {
    const frame = frameOf(text, rate);
    return frame === null ? null : frame / rate;
  }
  const match = /^\s*(?:(?:(\d+):)?(\d+):)?(\d+(?:[.,]\d*)?)\s*s?\s*$/.exec(text);
  if (!match) return null;
  const [, hours, minutes, rest] = match;
  const seconds = Number(rest.replace(",", "."));
  if (minutes !== undefined && (seconds >= 60 || (hours !== undefined && Number(minutes) >= 60))) return null;
  return Number(hours ?? 0) * 3600 + Number(minutes ?? 0) * 60 + seconds;
}

export const noTime = (text) => t("“{text}” is no time; write seconds (12.5), m:ss (0:12.5), h:mm:ss:frames or, drop-frame, h:mm:ss;frames.", { text });

/** 5400 -> "1 h 30 min". */
export function length(seconds) {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A date in UTC, or ""; in English YYYY-MM-DD, because the order of month and day differs between countries. */
export function day(text) {
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return "";
  return language === "en" ? date.toISOString().slice(0, 10) : date.toLocaleDateString(language, { dateStyle: "medium", timeZone: "UTC" });
}

/** The title of a stream, as given in the server's answers. */
export const streamTitles = {};
export const streamName = (name) => term(streamTitles[name] ?? name);

/** 1, "video" -> "1 video": from the catalogue's text "{n} video|{n} videos". */
export const counted = (n, noun, many = noun + "s") => t(`{n} ${noun}|{n} ${many}`, { n });

export const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

/** Never rounded up. */
export const percent = (share) => `${Math.floor(100 * share)} %`;

// The certainty of each word, which decides on colour and sign.
const KINDS = { "said here": "match", "written here": "match", "probably here": "match", maybe: "unsure", unlikely: "no_match" };
const SIGNS = { match: "M2 6.5l3 3 5-7", unsure: "M2 6h8", no_match: "M3 3l6 6M9 3L3 9" };

/** A word and a sign, so that colour is not needed; then the share of such moments that are right. */
export function badge(word, percent) {
  const kind = KINDS[word];
  const title = percent === null ? "" : t("a moment like this is right in {percent} of 100 cases", { percent });
  const sign = draw("svg", { viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" },
    draw("path", { d: SIGNS[kind] }));
  return make("span", { class: `badge ${kind}`, title }, sign, percent === null ? term(word) : `${term(word)} · ${percent} %`);
}

// Words too common to mark: function words of the languages that users search in.
const SMALL = new Set([
  "a about after all also an and any are as at be because been before being but by can could did do does doing for from",
  "had has have having he her here him his how i if in into is it its just me more most my no not of off on one only or",
  "our out over own s she so some somebody someone something such t than that the their them then there these they this",
  "those through to too under until up us very was we were what when where which while who whom why will with would you your",
  "aber als am auch auf aus bei das dass dem den der des die ein eine einem einen einer er es für ich ihr im in ist mit nach",
  "nicht oder sich sie sind über um und von vor war was wenn wer wie wird wo zu zum zur",
  "au aux avec ce ces dans de des du elle en est et il ils je la le les leur mais ne nous on ou où par pas pour qu que qui",
  "sa se ses son sont sur un une vous como con da do dos e el em las los na no o os para por se su um uma una y",
].join(" ").split(" "));
const WORD = /[\p{L}\p{N}]+/gu;
const DENSE = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u;

function stem(word) {
  if (word.length < 4 || !/^[a-z]+$/.test(word)) return word;
  const short = word.replace(/(?:ings?|ed|ies|es|s|y|e)$/, "");
  return short.length >= 3 ? short : word;
}

/** A function that turns a text into nodes with the query's words marked. */
export function marker(query) {
  const words = (query.toLowerCase().match(WORD) ?? []).filter((word) => !SMALL.has(word));
  const stems = new Set(words.map(stem));
  const dense = words.filter((word) => DENSE.test(word));
  return (text) => {
    const nodes = [];
    let from = 0;
    const put = (start, end) => {
      if (start > from) nodes.push(text.slice(from, start));
      nodes.push(make("mark", {}, text.slice(start, end)));
      from = end;
    };
    for (const match of text.matchAll(WORD)) {
      const lower = match[0].toLowerCase();
      if (stems.has(stem(lower))) {
        put(match.index, match.index + match[0].length);
        continue;
      }
      for (const word of dense) {
        const inside = lower.indexOf(word);
        if (inside >= 0 && match.index + inside >= from) put(match.index + inside, match.index + inside + word.length);
      }
    }
    if (from < text.length) nodes.push(text.slice(from));
    return nodes;
  };
}
