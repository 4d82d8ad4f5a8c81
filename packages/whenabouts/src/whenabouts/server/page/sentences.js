// Sentences of the server in another language, read with the dictionary's patterns; fetched with a dictionary.

// What a value looks like, by its name; other values are any words.
const VALUES = { n: "\\d+", all: "\\d+", missing: "\\d+", share: "\\d+", low: "\\d+", high: "\\d+", stream: "[^;,]+?", other: "[^;,]+?" };

// A value that comes twice is the same both times.
const group = (match, name, at, text) => (text.indexOf(match) < at ? `\\k<${name}>` : `(?<${name}>${VALUES[name] ?? "[^;]+?"})`);

/**
 * A function that translates a text of the server. `terms` maps whole texts, `sentences` texts with values such as
 * `{n}`, which are translated too. A text that has no entry is translated part by part, between "; " and then
 * ", "; what is unknown stays as it is.
 */
export function reader(terms, sentences) {
  const patterns = Object.entries(sentences).map(([text, entry]) => [
    new RegExp(`^${text.replace(/[.*+?^$()|[\]\\]/g, "\\$&").replace(/\{(\w+)\}/g, group)}$`), entry,
  ]);
  const whole = (text) => {
    if (Object.hasOwn(terms, text)) return terms[text];
    for (const [pattern, entry] of patterns) {
      const match = pattern.exec(text);
      if (match) return entry.replace(/\{(\w+)\}/g, (_, name) => read(match.groups[name]));
    }
    return null;
  };
  const read = (text) => {
    const sign = ["; ", ", "].find((each) => text.includes(each));
    return whole(text) ?? (sign ? text.split(sign).map(read).join(sign) : text);
  };
  return read;
}
