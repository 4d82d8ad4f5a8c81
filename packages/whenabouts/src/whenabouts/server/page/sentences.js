// Translates the server's sentences by the patterns of a dictionary; fetched together with one.

// Patterns of values by name; other values are any words.
const VALUES = { n: "\\d+", all: "\\d+", missing: "\\d+", share: "\\d+", low: "\\d+", high: "\\d+", stream: "[^;,]+?", other: "[^;,]+?" };

// A value that occurs twice in a sentence must be equal.
const group = (match, name, at, text) => (text.indexOf(match) < at ? `\\k<${name}>` : `(?<${name}>${VALUES[name] ?? "[^;]+?"})`);

/**
 * Make a function that translates texts of the server. `terms` maps whole texts; `sentences` maps texts with values
 * such as `{n}`, and the values are translated too. A text without an entry is split at "; ", then at ", ", and
 * translated part by part; unknown parts stay.
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
