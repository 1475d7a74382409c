// Topics: themes first, then aspects, as one list.

const topics = [...content.themes, ...content.aspects];
const NUM_THEMES = content.themes.length;
const isTheme = (topic) => topic < NUM_THEMES;
const topicOf = (row) => row.theme ?? NUM_THEMES + row.aspect;
const { level } = content.summary; // "aspect" if no theme is mentioned

// What the page is about: the themes without a parent, or all aspects, most mentioned first.
const mainTopics = topics.map((_, index) => index)
  .filter((index) => topics[index].mentions && (level === "theme" ? isTheme(index) && topics[index].parent === null : !isTheme(index)))
  .sort((one, other) => topics[other].mentions - topics[one].mentions);

// The sub-themes and aspects of a theme; of -1, the aspects without a theme.
function partsOf(theme) {
  return topics.map((_, index) => index).filter((index) => topics[index].mentions
    && (isTheme(index) ? topics[index].parent === theme : (topics[index].theme ?? -1) === theme));
}

const changeOf = new Map(content.changes.filter(({ q }) => q < SIGNIFICANT).map((row) => [topicOf(row), row]));

function opener(index, group = -1, polarity = "") {
  const button = element("button", { type: "button", classes: ["open"] }, named(topics[index].name));
  button.setAttribute("aria-haspopup", "dialog");
  button.addEventListener("click", () => openDrill(index, group, polarity));
  return button;
}

// A phrase that opens the sentences it was found in.
function phraseOpener(index, polarity, number) {
  const button = phraseButton(polarity, topics[index].phrases[polarity][number], () => openDrill(index, -1, polarity, number));
  button.setAttribute("aria-haspopup", "dialog");
  return button;
}

function phraseButton(polarity, { text, mentions, variants }, onClick) {
  const button = element("button", { type: "button", classes: ["phrase", polarity], title: variants.length > 1 ? `also: ${variants.slice(1).join(", ")}` : "" },
    element("q", {}, named(text)), " ", element("small", { text: count(mentions) }));
  button.addEventListener("click", onClick);
  return button;
}
