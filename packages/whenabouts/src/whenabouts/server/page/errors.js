// What went wrong and what to do about it; the same words everywhere on the page.

import { t } from "./language.js";
import { make } from "./words.js";

const ASK_AGAIN = t("Search again: what is listed here may be of an earlier state.");
/** By the server's error code: a heading, what to do, and ways back besides trying again. */
const REMEDIES = {
  "": [t("No answer"), t("What is shown here stays. Start the server again, or check the connection, then try again.")],
  busy: [t("Too busy"), ""],
  unauthorized: [t("Your link is not valid any more"), t("What is shown here stays. Open the link that you were given, or ask for a new one.")],
  scope_missing: [t("Your link does not allow this"), ""],
  owner_only: [t("Your link does not allow this"), ""],
  video_gone: [t("The file is gone"), t("It was moved, renamed or deleted, or its disk is not there. Where it was moved, `whenabouts index` of its new folder finds it again.")],
  video_changed: [t("The file has changed"), t("Index it again with `whenabouts index`; until then only its words and results are shown.")],
  not_served: [t("The file is not served here"), ""],
  unreadable_video: [t("This film cannot be decoded"), t("Its codec may be unknown here, or the file damaged. Convert the file (to MP4 with H.264, for example) and index the new one.")],
  disk_full: [t("The server's disk is full"), t("Free some space there, then try again. Nothing was changed.")],
  model_missing: [t("A model is missing"), t("Install it where the server runs (`whenabouts doctor` says how) and start the server again; or search what is left.")],
  not_installed: [t("A part is not installed"), ""],
  no_such_video: [t("Not in this corpus any more"), `${t("It was taken out, or another corpus stands in its place.")} ${ASK_AGAIN}`],
  no_recording: [t("There is nothing to play"), t("Take the moment out; tables, cues and JSON need no recording.")],
  no_such_collection: [t("No such collection"), t("Somebody deleted it, or another corpus stands in its place.")],
  invalid_page_token: [t("The corpus has changed"), ASK_AGAIN],
  corpus_empty: [t("Nothing is in this corpus"), t("Put videos in with `whenabouts index`.")],
  corpus_unavailable: [t("The corpus cannot be read"), ""],
  corpus_busy: [t("The corpus is being changed"), ""],
};

/** A heading for a fault. */
export const headingOf = (fault) => (REMEDIES[codeOf(fault)] ?? [t("That did not work")])[0];

/** What to do about a fault; "" if its message says so. */
export const todoOf = (fault) => (REMEDIES[codeOf(fault)] ?? [])[1] ?? "";

/** A fault's message and what to do, as one text. */
export const toldOf = (fault) => [sentenceOf(fault.message), todoOf(fault)].filter(Boolean).join(" ");

/** Whether earlier results are still worth showing, because the request itself was valid. */
export const isPassing = (fault) => [0, 401, 403, 429, 500, 503, 507].includes(fault.status);

/** Paragraphs and buttons for a fault; `ways` maps button labels to actions. `headed`: with a heading. */
export function faultParts(fault, ways, { headed = false } = {}) {
  const todo = todoOf(fault);
  const buttons = Object.entries(ways).filter(([, act]) => act).map(([words, act]) => make("button", { type: "button", click: () => void act() }, words));
  return [
    headed ? make("p", { class: "fault-head" }, headingOf(fault)) : null,
    make("p", { class: "fault-text" }, fault.message), todo ? make("p", { class: "fault-todo" }, todo) : null,
    buttons.length ? make("div", { class: "fault-ways" }, ...buttons) : null,
  ].filter(Boolean);
}

const codeOf = (fault) => (fault.status === 0 ? "" : fault.code || "other");
const sentenceOf = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);
