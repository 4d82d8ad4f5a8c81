// The page's words in the reader's language. An English text is the key; for another language a dictionary is fetched.

const KEY = "whenabouts language";
/** Languages of the page by code, under their own names. */
const NAMES = { en: "English", de: "Deutsch" };
const words = Object.create(null);

/** "en" or "de": the one chosen here, else the browser's first that the page has. */
export const language = [kept(), ...navigator.languages].map((tag) => String(tag).split("-")[0]).find((code) => Object.hasOwn(NAMES, code)) ?? "en";

/**
 * A text of the page. `{name}` stands for a value; numbers are written as the language does. A text "{n} video|{n}
 * videos" has two forms, and the number `n` decides.
 */
export function t(text, values = {}) {
  const [one, many = one] = (words[text] ?? text).split("|");
  const form = "n" in values && rules.select(values.n) === "one" ? one : many;
  return form.replace(/\{(\w+)\}/g, (_, name) => (typeof values[name] === "number" ? number(values[name]) : values[name]));
}

/** A fixed text of the server, such as a verdict or state, in the page's language; others stay. */
export let term = (text) => text;

/** An error message of the server in the page's language; messages without an entry stay. */
export let faultText = (text) => text;

/** A number with this many decimals. */
export function number(value, digits = 0) {
  return value.toLocaleString(language, { useGrouping: "min2", minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** The decimal sign. */
export const POINT = number(0.5, 1).charAt(1);

const rules = new Intl.PluralRules(language);

/** Use a dictionary, {words, read}, and translate the page as it is. */
export function learn(dictionary) {
  Object.assign(words, dictionary.words);
  if (dictionary.read) term = dictionary.read;
  if (dictionary.readFault) faultText = dictionary.readFault;
  const texts = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { data } = texts.currentNode;
    const text = data.trim();
    texts.currentNode.data = data.replace(text, () => words[text] ?? text);
  }
  for (const name of ["aria-label", "placeholder", "title"]) {
    for (const element of document.querySelectorAll(`[${name}]`)) element.setAttribute(name, t(element.getAttribute(name)));
  }
}

/** A button for the other language: it is remembered, and the page reloaded. */
export function offerLanguages(button) {
  const other = Object.keys(NAMES).find((code) => code !== language);
  button.textContent = other.toUpperCase();
  button.lang = other;
  button.setAttribute("aria-label", NAMES[other]);
  button.title = NAMES[other];
  button.addEventListener("click", () => {
    try {
      localStorage.setItem(KEY, other);
    } catch { /* a browser that keeps nothing goes by its own languages */ }
    location.reload();
  });
}

function kept() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

document.documentElement.lang = language;
if (language !== "en") {
  // Without its dictionary the page stays English.
  await import(`./words.${language}.js`).then(learn, () => { document.documentElement.lang = "en"; });
}
