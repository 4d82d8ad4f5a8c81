// Plays the moment of a result without sound, in place of its picture.

import { make } from "./words.js";

// Ignore a pointer that only passes over a card.
const STAYS_MS = 300;
let [open, waits] = [null, null];

/** Play the moment of a card, if it has a picture. */
function look(link) {
  leave();
  const [file, times] = (link.dataset.preview ?? "").split("#t=");
  if (!times) return;
  const [start, end] = times.split(",").map(Number);
  const video = make("video", { muted: true, playsinline: true, "aria-hidden": "true", tabindex: -1, class: "preview" });
  video.muted = true;
  video.addEventListener("timeupdate", () => { if (video.currentTime >= end) video.currentTime = start; });
  // If this browser cannot play the file, the picture stays.
  video.addEventListener("error", leave);
  video.addEventListener("playing", () => video.classList.add("plays"), { once: true });
  video.src = `${file}#t=${start}`;
  link.querySelector(".thumb").append(video);
  open = { link, video };
  video.play().catch(() => { /* the error event leaves the picture */ });
}

function leave() {
  clearTimeout(waits);
  if (!open) return;
  const { video } = open;
  open = null;
  video.pause();
  video.removeAttribute("src");
  video.load();
  video.remove();
}

/** Start or stop the preview of the focused card, by key. */
export function toggleLook(link) {
  const was = open?.link;
  leave();
  if (was !== link) look(link);
}

/** Cards in `root` play while the mouse rests on them, unless the user prefers reduced motion. */
export function previewOn(root) {
  const cardOf = (event) => event.target.closest?.(".card-link[data-preview]");
  root.addEventListener("pointerover", (event) => {
    const link = cardOf(event);
    if (!link || event.pointerType !== "mouse" || open?.link === link || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    clearTimeout(waits);
    waits = setTimeout(() => look(link), STAYS_MS);
  });
  root.addEventListener("pointerout", (event) => {
    const link = cardOf(event);
    if (link && !link.contains(event.relatedTarget)) leave();
  });
  root.addEventListener("click", leave);
  root.addEventListener("focusout", (event) => { if (open?.link === cardOf(event)) leave(); });
}
