// Styles that are fetched with a script of their own.

import { make } from "./words.js";

/** Resolves once the styles of that name are there, or cannot be had. */
export const styled = (name) => new Promise((resolve) => {
  const href = `static/${name}.css`;
  if (document.querySelector(`link[href="${href}"]`)) resolve();
  else document.head.append(make("link", { rel: "stylesheet", href, load: resolve, error: resolve }));
});
