// Why a moment was found or not, in sentences: from `doctor why` or a trained system.

import { number, t } from "./language.js";
import { make, sentence, span, streamName } from "./words.js";

/** Heading and body for an answer of /api/why or /api/explain; `linkTo(moment)` links to a moment. */
export function explained(why, linkTo) {
  const title = why.found
    ? t("Found: it is result {rank}", { rank: why.rank })
    : why.rank !== null
      ? t("Found, but far down: it is result {rank}", { rank: why.rank })
      : t("Not found");
  const parts = why.said ? tokenWeightParts(why) : [make("p", {}, verdict(why)), ...why.streams.map((stream) => streamPart(stream))];
  if (why.lost_to.length) {
    parts.push(make("p", {}, why.found ? t("Ahead of it:") : t("Found instead:")), make("ol", { class: "lost" }, ...why.lost_to.map((moment) =>
      make("li", {},
        make("a", { href: linkTo(moment) }, `${moment.video_id} ${span(moment.start, moment.end)}`),
        moment.text ? make("span", { class: "quiet" }, ` ${moment.text}`) : null))));
  }
  return { title, body: parts };
}

/** The query's words shaded by their weights, then the system's start and end. */
export function tokenWeightParts({ heard: tokens, said: sentences }) {
  const rows = Object.entries(tokens?.weights ?? {}).map(([stream, weights]) =>
    make("p", { class: "why-stream" }, make("strong", {}, streamName(stream)), ...tokens.words.flatMap((word, at) => {
      const part = make("span", { class: "token" }, word, make("small", {}, ` ${Math.round(100 * weights[at])}%`));
      part.style.setProperty("--much", weights[at] / Math.max(...weights));
      return [" ", part];
    })));
  return [...rows, ...sentences.map((line) => make("p", {}, line))];
}

function verdict(why) {
  const place = span(why.moment.start, why.moment.end);
  if (why.localized) return t("About {place}: the search finds it as {span}.", { place, span: span(...why.localized) });
  const empty = why.streams.every((stream) => !stream.clips_in_moment);
  if (empty) return t("About {place}: nothing of it is in the index, so no query can find it.", { place });
  return t("About {place}: no result shares a third of its time.", { place });
}

function streamPart(stream) {
  const sentences = [];
  if (!stream.clips_in_moment) {
    sentences.push(t("have nothing in this moment: {why}.", { why: stream.absent }));
  } else if (stream.video_rank === null) {
    sentences.push(t("did not choose this video: other videos fit the query better."));
  } else {
    sentences.push(t("rank this video number {rank}.", { rank: stream.video_rank }));
    sentences.push(stream.clip_rank === null
      ? t("No part of the moment was among the nearest.")
      : t("The best of its {n} part was number {rank} of all.|The best of its {n} parts was number {rank} of all.", { n: stream.clips_in_moment, rank: stream.clip_rank }));
    if (stream.score !== null && stream.best_score_in_other_videos !== null) {
      sentences.push(t("The score is {score} there; the best of other videos is {best}.", { score: number(stream.score, 2), best: number(stream.best_score_in_other_videos, 2) }));
    }
    sentences.push(stream.localized
      ? t("They find {span}.", { span: span(...stream.localized) })
      : t("The scores do not stand out there, so no moment is found."));
  }
  return make("p", { class: "why-stream" }, make("strong", {}, sentence(streamName(stream.stream)).slice(0, -1)), " " + sentences.join(" "));
}
