// One theme or aspect: its parts or spellings, shares, groups, periods and example sentences.

const MAX_SENTENCES = 40;
const drill = { topic: 0, polarity: "", group: -1, phrase: -1, back: null };

function openDrill(index, group = -1, polarity = "", phrase = -1) {
  const dialog = byId("drill");
  if (!dialog.open) drill.back = document.activeElement;
  Object.assign(drill, { topic: index, group, polarity, phrase });
  const topic = topics[index];
  byId("drill-title").replaceChildren(named(topic.name));
  showOrigin(index);
  showParts(index);
  byId("drill-shares").replaceChildren(
    element("p", { classes: ["hint"], text: `${plural(topic.mentions, "mention")} in ${plural(topic.reviews, "review")}; ${topic.implicit ? `${count(topic.implicit)} of them implicit, ` : ""}${lowConfidence(topic)} with low confidence` }),
    shareRow(topic), split(topic));
  byId("tooltip").hidden = true;
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  const { names } = content.groups;
  byId("drill-dots-box").hidden = names.length < 2;
  byId("drill-trend-box").hidden = content.periods.starts.length < 2;
  if (names.length > 1) draw("drill-dots", "dots", groupRows(topic));
  if (content.periods.starts.length > 1) draw("drill-trend", "trend", trendRows(topic));
  byId("filter-group").value = String(group);
  showPhrases();
  showSentences();
  history.replaceState(null, "", `#topic=${index}`);
}

// The theme of an aspect or sub-theme, and how an aspect is written.
function showOrigin(index) {
  const topic = topics[index];
  const place = byId("drill-origin");
  const parent = isTheme(index) ? topic.parent : topic.theme;
  place.replaceChildren();
  if (parent !== null) place.append("Theme: ", opener(parent), topic.variants?.length > 1 ? " · " : "");
  if (!topic.variants || topic.variants.length < 2) return;
  place.append("Written as ");
  topic.variants.forEach(([name, number], order) => place.append(order ? ", " : "", named(name), ` (${count(number)})`));
}

// The sub-themes and aspects of a theme, with what is said about them.
function showParts(index) {
  const parts = [];
  if (isTheme(index)) {
    parts.push(...partsOf(index).filter(isTheme).map((one) => [one, topics[one].counts]));
    parts.push(...topics[index].aspects.map(({ aspect, counts }) => [NUM_THEMES + aspect, counts]));
  }
  byId("drill-parts").hidden = !parts.length;
  byId("drill-parts").replaceChildren(...parts.map(([one, counts]) => {
    const total = counts.reduce((sum, number) => sum + number, 0);
    const bar = element("span", { classes: ["split"], title: POLARITIES.map((name, order) => `${name} ${count(counts[order])}`).join("\n") },
      element("i", { classes: ["negative"], style: { width: `${(counts[0] / total) * 100}%` } }),
      element("i", { classes: ["positive"], style: { width: `${(counts[2] / total) * 100}%` } }));
    const said = ["negative", "positive"].filter((polarity) => topics[one].phrases[polarity].length).map((polarity) => phraseOpener(one, polarity, 0));
    return element("li", {}, opener(one), element("small", { text: count(total) }), bar, element("span", { classes: ["said"] }, ...said));
  }));
}

function showPhrases() {
  const rows = ["negative", "positive"].filter((polarity) => topics[drill.topic].phrases[polarity].length).map((polarity) =>
    element("p", { classes: ["said"] }, ...topics[drill.topic].phrases[polarity].map((phrase, number) => phraseFilter(polarity, number, phrase))));
  byId("drill-phrases").replaceChildren(...rows);
}

// A phrase that limits the sentences to those with it; a second click releases it.
function phraseFilter(polarity, number, phrase) {
  const button = phraseButton(polarity, phrase, () => {
    const chosen = drill.phrase === number && drill.polarity === polarity;
    Object.assign(drill, chosen ? { polarity: "", phrase: -1 } : { polarity, phrase: number });
    showSentences();
  });
  button.dataset.phrase = String(number);
  return button;
}

function showSentences() {
  const all = topics[drill.topic].sentences;
  const fits = all.filter(({ polarity, group, phrases }) => (!drill.polarity || polarity === drill.polarity) && (drill.group < 0 || group === drill.group) && (drill.phrase < 0 || phrases.includes(drill.phrase)));
  for (const button of byId("drill-phrases").querySelectorAll("button")) {
    const chosen = button.dataset.phrase === String(drill.phrase) && button.classList.contains(drill.polarity || "none");
    button.setAttribute("aria-pressed", String(chosen));
  }
  byId("sentences").replaceChildren(...fits.slice(0, MAX_SENTENCES).map(sentenceItem));
  for (const chip of document.querySelectorAll("#filters [data-polarity]")) chip.setAttribute("aria-pressed", String(chip.dataset.polarity === drill.polarity));
  byId("filters").hidden = !all.length;
  const { text_column: column } = content.source;
  byId("drill-hint").textContent = all.length
    ? `${plural(Math.min(fits.length, MAX_SENTENCES), "sentence")}, sampled at random, most confident first.`
    : column ? "No sentence reaches the minimum confidence." : "The reviews were not kept, so there are no example sentences. Score with --keep and the name of their column.";
}

function sentenceItem(sentence) {
  const item = element("li", { classes: [sentence.polarity] });
  const quote = element("blockquote", { dir: "auto" });
  const letters = Array.from(sentence.text); // positions count code points
  let position = 0;
  sentence.marks.forEach(([start, end, polarity], index) => {
    if (start < position) return;
    quote.append(...withOpinions(letters, position, start, sentence.opinions));
    const mark = element("mark", { classes: [polarity], text: letters.slice(start, end).join(""), title: polarity });
    if (index === sentence.chosen) mark.classList.add("chosen");
    quote.append(mark);
    position = end;
  });
  quote.append(...withOpinions(letters, position, letters.length, sentence.opinions));
  const details = [sentence.chosen < 0 ? `implicit, ${sentence.polarity}` : sentence.polarity];
  if (sentence.confidence !== null) details[0] += `, confidence ${sentence.confidence.toFixed(2)}`;
  if (sentence.period >= 0) details.push(periodName(content.periods.starts[sentence.period]));
  const small = element("small", { text: details.join(" · ") });
  if (sentence.group >= 0) small.append(" · ", named(content.groups.names[sentence.group]));
  item.append(quote, small);
  return item;
}

// The text between two mentions, with the opinion phrases in it underlined.
function withOpinions(letters, start, end, opinions) {
  const parts = [];
  let position = start;
  for (const [from, to] of opinions) {
    const [first, last] = [Math.max(from, position), Math.min(to, end)];
    if (first >= last) continue;
    parts.push(letters.slice(position, first).join(""), element("u", { text: letters.slice(first, last).join("") }));
    position = last;
  }
  return [...parts, letters.slice(position, end).join("")];
}

function prepareDrill() {
  const chips = byId("filters").querySelector("fieldset");
  for (const polarity of ["", ...POLARITIES]) {
    const chip = element("button", { type: "button", text: polarity || "any", classes: polarity ? [polarity] : [] });
    chip.dataset.polarity = polarity;
    chip.addEventListener("click", () => { Object.assign(drill, { polarity, phrase: -1 }); showSentences(); });
    chips.append(chip);
  }
  const { names, column } = content.groups;
  byId("filter-group-box").hidden = names.length < 2;
  byId("filter-group-box").firstElementChild.textContent = column ?? "";
  byId("drill-dots-title").textContent = column ? `By ${column}` : "";
  byId("filter-group").append(element("option", { value: "-1", text: "any" }), ...names.map((name, index) => element("option", { value: String(index), text: name })));
  byId("filter-group").addEventListener("change", (event) => { drill.group = Number(event.target.value); showSentences(); });
  const dialog = byId("drill");
  byId("drill-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => {
    byId("tooltip").hidden = true;
    document.body.append(byId("tooltip"));
    clearChart("drill-dots");
    clearChart("drill-trend");
    history.replaceState(null, "", location.pathname + location.search);
    drill.back?.focus?.();
  });
}
