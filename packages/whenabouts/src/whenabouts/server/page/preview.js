// Plays the moment of a result without sound, in place of its picture.

import { make } from "./words.js";

// A pointer that only passes over a card starts nothing.
const STAYS_MS = 300;
let [open, waits] = [null, null];

/** Play the moment of a card; nothing where it has no picture. */
function look(link) {
  leave();
  const [file, times] = (link.dataset.preview ?? "").split("#t=");
  if (!times) return;
  const [start, end] = times.split(",").map(Number);
  const video = make("video", { muted: true, playsinline: true, "aria-hidden": "true", tabindex: -1, class: "preview" });
  video.muted = true;
  video.addEventListener("timeupdate", () => { if (video.currentTime >= end) video.currentTime = start; });
  // A file that this browser cannot play leaves its picture.
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

/** Begin to look into a card, or stop: the key of a card that has the focus. */
export function toggleLook(link) {
  const was = open?.link;
  leave();
  if (was !== link) look(link);
}

/** Cards inside `root` play while a mouse stays on them, where motion is wanted. */
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
