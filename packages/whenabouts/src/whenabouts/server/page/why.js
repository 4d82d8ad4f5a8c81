// Why a moment was found or not, in sentences: from `doctor why`, or from a trained system.

import { counted, make, sentence, span, streamName } from "./words.js";

/** The heading and the body for an answer of /api/why or /api/explain; `linkTo(moment)` is where a moment opens. */
export function explained(why, linkTo) {
  const title = why.found
    ? `Found: it is result ${why.rank}`
    : why.rank !== null
      ? `Found, but far down: it is result ${why.rank}`
      : "Not found";
  const parts = why.said ? tokenWeightParts(why) : [make("p", {}, verdict(why)), ...why.streams.map((stream) => streamPart(stream))];
  if (why.lost_to.length) {
    parts.push(make("p", {}, why.found ? "Ahead of it:" : "Found instead:"), make("ol", { class: "lost" }, ...why.lost_to.map((moment) =>
      make("li", {},
        make("a", { href: linkTo(moment) }, `${moment.video_id} ${span(moment.start, moment.end)}`),
        moment.text ? make("span", { class: "quiet" }, ` ${moment.text}`) : null))));
  }
  return { title, body: parts };
}

/** The words of the query shaded by their weights; then where the system puts start and end. */
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
  const place = `About ${span(why.moment.start, why.moment.end)}: `;
  if (why.localized) return `${place}the search finds it as ${span(...why.localized)}.`;
  const empty = why.streams.every((stream) => !stream.clips_in_moment);
  if (empty) return `${place}nothing of it is in the index, so no query can find it.`;
  return `${place}no result shares a third of its time.`;
}

function streamPart(stream) {
  const sentences = [];
  if (!stream.clips_in_moment) {
    sentences.push(`have nothing in this moment: ${stream.absent}.`);
  } else if (stream.video_rank === null) {
    sentences.push("did not choose this video: other videos fit the query better.");
  } else {
    sentences.push(`rank this video number ${stream.video_rank}.`);
    sentences.push(stream.clip_rank === null
      ? "No part of the moment was among the nearest."
      : `The best of its ${counted(stream.clips_in_moment, "part")} was number ${stream.clip_rank} of all.`);
    if (stream.score !== null && stream.best_score_in_other_videos !== null) {
      sentences.push(`The score is ${stream.score.toFixed(2)} there; the best of other videos is ${stream.best_score_in_other_videos.toFixed(2)}.`);
    }
    sentences.push(stream.localized
      ? `They find ${span(...stream.localized)}.`
      : "The scores do not stand out there, so no moment is found.");
  }
  return make("p", { class: "why-stream" }, make("strong", {}, sentence(streamName(stream.stream)).slice(0, -1)), " " + sentences.join(" "));
}
