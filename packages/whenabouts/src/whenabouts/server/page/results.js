// Search results as cards; without a query, videos.

import { t, term } from "./language.js";
import { own } from "./server.js";
import { timed } from "./timecode.js";
import { badge, clock, day, make, marker, span, streamName } from "./words.js";

/** A card's link is real: it can be copied, or opened elsewhere. */
function card({ href, key, thumb, places = [], caption, children, dim, preview, beside = [] }) {
  const link = make("a", { class: "card-link", href, "data-key": key, "data-preview": preview },
    make("span", { class: "thumb" }, thumb, ...places, caption),
    make("span", { class: "card-body" }, ...children));
  const foot = beside.length ? make("div", { class: "card-foot" }, ...beside) : null;
  return make("li", { class: dim ? "card dim" : "card" }, link, foot);
}

/** The server's picture of a video or moment; without one, its words, or a note if it is only sound. */
function picture(address, words = null) {
  if (!own(address)) {
    return words ? make("span", { class: "quote" }, ...words) : make("span", { class: "note", "aria-hidden": "true" }, "♪");
  }
  const image = make("img", { src: own(address), alt: "", loading: "lazy", decoding: "async", width: 320, height: 180 });
  image.addEventListener("error", () => image.parentElement?.classList.add("bare"), { once: true });
  return image;
}

/** Frames around evidence in the picture, placed when the picture is loaded. */
function placed(image, pieces) {
  const frames = Object.values(pieces).filter((piece) => piece.box?.length === 4)
    .map((piece) => [piece.box, make("span", { class: "place", "aria-hidden": "true" })]);
  if (!frames.length || image.tagName !== "IMG") return [];
  image.addEventListener("load", () => {
    // The picture keeps its shape in a 16 : 9 card.
    const shape = image.naturalWidth / image.naturalHeight / (16 / 9);
    const [wide, high] = [Math.min(1, shape), Math.min(1, 1 / shape)];
    for (const [[left, top, right, bottom], frame] of frames) {
      frame.style.left = `${100 * ((1 - wide) / 2 + wide * left)}%`;
      frame.style.top = `${100 * ((1 - high) / 2 + high * top)}%`;
      frame.style.width = `${100 * wide * (right - left)}%`;
      frame.style.height = `${100 * high * (bottom - top)}%`;
      frame.classList.add("there");
    }
  }, { once: true });
  return frames.map(([, frame]) => frame);
}

/**
 * A moment. `doubles` are the same moment in copies of the same material, `others` further moments of its video; each
 * is a link. Without a picture, the matching words are shown.
 */
export function momentCard(result, { query, relation, href, likeHref, dim, isPlace, place, doubles = [], others = [] }) {
  const mark = marker(query);
  const says = (piece) => mark(piece.text ?? "").some((node) => node.nodeType);
  const found = Object.entries(result.evidence ?? {});
  // Where words of the query are found, text on the screen without any only happens to be there.
  const evidence = found.filter(([, piece]) => !piece.text || !piece.box || says(piece) || !found.some(([, other]) => says(other)));
  const text = evidence.find(([, piece]) => piece.text)?.[1];
  const hasWords = !result.thumbnail_url && text;
  const pieces = evidence.filter(([, piece]) => !(hasWords && piece === text)).map(([stream, piece]) =>
    make("span", { class: "evidence" },
      make("span", { class: "stream" }, streamName(stream)), " ",
      ...(piece.text ? mark(piece.text) : [[term(result.labels?.[stream] ?? ""), t("at {time}", { time: clock(piece.start) })].filter(Boolean).join(" ")]),
      sureness(piece)));
  const title = result.title || result.video_id;
  const image = picture(result.thumbnail_url, hasWords ? [...mark(text.text), sureness(text)].filter(Boolean) : null);
  return card({
    href, dim,
    beside: [
      doubles.length ? make("p", { class: "beside" }, `${t("also in")} `, ...doubles.map((link) => chip(link, link.title, "double"))) : null,
      others.length ? make("p", { class: "beside" }, ...others.map((link) => chip(link, timed("span", {}, link.video_id, link.start)))) : null,
      likeHref ? make("a", { class: "like-link", href: likeHref, "aria-label": `${t("More like this")}: ${title}, ${span(result.start, result.end)}` }, t("More like this")) : null,
    ].filter(Boolean),
    key: keyOf(result),
    thumb: image,
    preview: result.thumbnail_url ? `${own(result.video_url)}#t=${result.start},${result.end}` : null,
    places: placed(image, Object.fromEntries(evidence)),
    caption: timed("span", { class: "time" }, result.video_id, result.start, result.end),
    children: [
      make("span", { class: "card-head" },
        make("span", { class: "rank" }, `${place ?? result.rank}.`), make("span", { class: "card-title", title }, title)),
      isPlace ? null : badge(result.word, result.percent),
      ...pieces,
      result.partner ? make("span", { class: "evidence partner" }, `${term(relation)} `, timed("span", {}, result.video_id, result.partner.start, result.partner.end)) : null,
      ...verdictOf(result.verdict),
      pathLine(result),
    ],
  });
}

const sureness = (piece) => (Number.isFinite(piece.recognised) ? ` (${t("recognised, {percent} % sure of its words", { percent: Math.floor(100 * piece.recognised) })})` : null);

const chip = ({ href, key, word }, text, kind = "") =>
  make("a", { class: `chip card-link ${kind}${word === "unlikely" ? " dim" : ""}`, href, "data-key": key, title: term(word) }, text);

/**
 * Results joined into cards: { row, doubles, others }, numbers of rows. `doubles` have the same words at the same times
 * in another file: a copy of the same material. With `byVideo`, `others` are further moments of the card's video.
 */
export function folded(results, byVideo) {
  const rows = [];
  const materials = new Map();
  const videos = new Map();
  results.forEach((result, row) => {
    const material = result.text ? `${result.start.toFixed(1)} ${result.end.toFixed(1)} ${result.text}` : "";
    const same = material && materials.get(material);
    if (same && results[same.row].video_id !== result.video_id) {
      same.doubles.push(row);
      return;
    }
    const best = byVideo && videos.get(result.video_id);
    const made = best || { row, doubles: [], others: [] };
    if (material) materials.set(material, made);
    if (best) {
      best.others.push(row);
    } else {
      videos.set(result.video_id, made);
      rows.push(made);
    }
  });
  return rows;
}

/** The checker's verdict in its own words; it is often wrong, and the line above says how often. */
function verdictOf(verdict) {
  if (!verdict) return [];
  const borders = Number.isFinite(verdict.start) && Number.isFinite(verdict.end) ? ` (${span(verdict.start, verdict.end)})` : "";
  return [make("span", { class: verdict.matches ? "verdict yes" : "verdict no" },
    make("span", { class: "stream" }, verdict.matches ? t("✓ match") : t("✗ no match")), `${borders} ${verdict.reason}`)];
}

/** A video of the corpus. */
export function videoCard(video, href) {
  const line = (...parts) => make("span", { class: "evidence" }, parts.filter(Boolean).join(" · "));
  return card({
    href,
    key: video.video_id,
    thumb: picture(video.gone ? null : video.thumbnail_url, video.words || video.has_picture ? [video.words] : null),
    caption: make("span", { class: "time" }, Number.isFinite(video.duration) ? clock(video.duration, 0) : "?"),
    children: [
      make("span", { class: "card-head" }, make("span", { class: "card-title", title: pathOf(video) || video.title }, video.title || video.video_id)),
      line(video.recorded_from === "modified" ? "" : day(video.recorded), video.streams.map(streamName).join(", ") || t("not searchable")),
      video.state === "unreadable" ? null : line(t("indexed {date}", { date: day(video.indexed) })),
    ],
  });
}

/** The path of a file, if the server shows it. */
export const pathOf = (of) => (typeof of.folder === "string" ? `${of.folder}/${of.name ?? ""}` : "");

/** A file with its last two folders; the whole path as a tooltip. */
function pathLine(of) {
  const names = pathOf(of).split("/").filter(Boolean);
  return names.length ? make("span", { class: "path", title: pathOf(of) }, `${names.length > 3 ? "…" : ""}/${names.slice(-3).join("/")}`) : null;
}

export const keyOf = (result) => `${result.video_id}@${result.start.toFixed(3)}-${result.end.toFixed(3)}`;

/** Grey cards while waiting for an answer. */
export function waiting(number) {
  return Array.from({ length: number }, () =>
    make("li", { class: "card ghost", "aria-hidden": "true" },
      make("span", { class: "thumb" }), make("span", { class: "card-body" }, make("span"), make("span"), make("span"))));
}
