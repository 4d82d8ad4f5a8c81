// Why a moment was found or not, in sentences: what `doctor why` says, or a trained system.

import { counted, make, span } from "./words.js";

/** The heading and the body for an answer of /api/why or /api/explain; `linkTo(moment)` is where a moment opens. */
export function explained(why, linkTo) {
  const title = why.found
    ? `Found: it is result ${why.rank}`
    : why.rank !== null
      ? `Found, but far down: it is result ${why.rank}`
      : "Not found";
  const parts = why.said ? heardParts(why) : [make("p", {}, verdict(why)), ...why.streams.map((stream) => streamPart(stream))];
  if (why.lost_to.length) {
    parts.push(make("p", {}, why.found ? "Ahead of it:" : "Found instead:"), make("ol", { class: "lost" }, ...why.lost_to.map((moment) =>
      make("li", {},
        make("a", { href: linkTo(moment) }, `${moment.video_id} ${span(moment.start, moment.end)}`),
        moment.text ? make("span", { class: "quiet" }, ` ${moment.text}`) : null))));
  }
  return { title, body: parts };
}

/** The words that a trained system heeded, shaded by how much; then where it sees start and end. */
export function heardParts({ heard, said }) {
  const rows = Object.entries(heard?.weights ?? {}).map(([stream, weights]) =>
    make("p", { class: "why-stream" }, make("strong", {}, stream), ...heard.words.flatMap((word, at) => {
      const part = make("span", { class: "heard" }, word, make("small", {}, ` ${Math.round(100 * weights[at])}%`));
      part.style.setProperty("--much", weights[at] / Math.max(...weights));
      return [" ", part];
    })));
  return [...rows, ...said.map((line) => make("p", {}, line))];
}

function verdict(why) {
  const wanted = `About ${span(why.moment.start, why.moment.end)}: `;
  if (why.localized) return `${wanted}the search marks it as ${span(...why.localized)}.`;
  const empty = why.streams.every((stream) => !stream.clips_in_moment);
  if (empty) return `${wanted}nothing of it is in the index, so no question can find it.`;
  return `${wanted}no result shares a third of its time.`;
}

function streamPart(stream) {
  const said = [];
  if (!stream.clips_in_moment) {
    said.push("has nothing in this moment: no words are said there, or its pictures are not indexed.");
  } else if (stream.video_rank === null) {
    said.push("did not look into this video: clips of other videos fit the question better.");
  } else {
    said.push(`looked into this video as number ${stream.video_rank}.`);
    said.push(stream.clip_rank === null
      ? "None of the moment's clips were among the nearest."
      : `The moment's best of ${counted(stream.clips_in_moment, "clip")} was number ${stream.clip_rank} of all.`);
    if (stream.score !== null && stream.best_score_in_other_videos !== null) {
      said.push(`It scores ${stream.score.toFixed(2)} there; the best of other videos ${stream.best_score_in_other_videos.toFixed(2)}.`);
    }
    said.push(stream.localized
      ? `It marks ${span(...stream.localized)}.`
      : "Its scores do not stand out there, so it marks no moment.");
  }
  return make("p", { class: "why-stream" }, make("strong", {}, stream.stream), " " + said.join(" "));
}
