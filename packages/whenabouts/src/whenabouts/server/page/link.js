// Links to a search, a moment or a collection, which the page's address describes.

import { t } from "./language.js";
import { copied } from "./server.js";
import { make } from "./words.js";

const SHOWN_MS = 2000;

/** Copy a link and confirm it on the button; if the browser refuses, show the link to copy by hand. */
export async function copyLink(link, button, say) {
  const whole = new URL(link, location.href).href;
  try {
    await copied(whole);
  } catch {
    offer(whole);
    return;
  }
  say(t("Link copied."));
  if (!button || button.dataset.words) return;
  button.dataset.words = button.textContent;
  button.textContent = t("Link copied");
  setTimeout(() => {
    button.textContent = button.dataset.words;
    delete button.dataset.words;
  }, SHOWN_MS);
}

function offer(whole) {
  const field = make("input", { value: whole, readonly: true, "aria-label": t("The link"), class: "link-field" });
  const dialog = make("dialog", { class: "keys", "aria-label": t("The link"), close: () => dialog.remove() },
    make("p", {}, t("The browser did not let the link be copied. It is:")), field,
    make("form", { method: "dialog" }, make("button", { class: "strong" }, t("Close"))));
  document.body.append(dialog);
  dialog.showModal();
  field.select();
}
