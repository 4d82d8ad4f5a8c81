// Styles that are fetched together with their script.

import { make } from "./words.js";

/** Resolves when the styles are loaded or have failed. */
export const styled = (name) => new Promise((resolve) => {
  const href = `static/${name}.css`;
  if (document.querySelector(`link[href="${href}"]`)) resolve();
  else document.head.append(make("link", { rel: "stylesheet", href, load: resolve, error: resolve }));
});
