// Differences, changes, reliability and method.

const MAX_ROWS = 10;

function significantList(place, rows, title, none, item) {
  const significant = rows.filter((row) => row.q < SIGNIFICANT);
  const box = element("div", { classes: ["significant"] }, element("h3", { text: title }));
  if (!significant.length) box.append(element("p", { classes: ["hint"], text: none }));
  const list = element("ul", {}, ...significant.slice(0, MAX_ROWS).map(item));
  if (significant.length) box.append(list);
  if (significant.length > MAX_ROWS) {
    const more = element("button", { type: "button", text: `Show all ${significant.length}` });
    more.addEventListener("click", () => { list.replaceChildren(...significant.map(item)); more.remove(); });
    box.append(more);
  }
  byId(place).replaceChildren(box);
}

// If the neutral share differs most, show that one.
const isNeutral = (from, to) => Math.abs(to.neutral[0] - from.neutral[0]) > Math.abs(to.net[0] - from.net[0]);

function arrow(from, to) {
  if (isNeutral(from, to)) return element("b", { text: "○ " });
  const up = to.net[0] >= from.net[0];
  return element("b", { classes: [up ? "up" : "down"], text: up ? "▲ " : "▼ ", ariaLabel: up ? "more positive: " : "more negative: " });
}

function sizes(from, to) {
  return isNeutral(from, to) ? [`neutral ${percent(from.neutral[0])}`, percent(to.neutral[0])] : [points(from.net[0]), points(to.net[0])];
}

function showDifferences() {
  const { names, column, total } = content.groups;
  if (names.length < 2) return;
  byId("differences").hidden = false;
  byId("few").textContent = count(content.min_reviews);
  byId("differences-title").textContent = `By ${column}`;
  showHeatmap();
  const none = content.differences.length ? `No ${column} differs significantly from all others in any ${level}.` : `Not tested: no ${level} has ${content.min_reviews} reviews both in one ${column} and in all others.`;
  significantList("difference-list", content.differences, "Significant differences", none, (row) => element("li", {},
    arrow(row.rest, row.here), named(names[row.group]), ", ", opener(topicOf(row), row.group), ": ",
    element("b", { text: sizes(row.here, row.rest)[0] }),
    element("span", { classes: ["from"], text: ` compared with ${sizes(row.here, row.rest)[1]} for all others, ${qValue(row.q)}` })));
  if (total > names.length) byId("difference-list").append(element("p", { classes: ["hint"], text: `The ${names.length} most frequent of about ${count(total)} are compared, each with all others together.` }));
}

function showChanges() {
  const { starts } = content.periods;
  if (starts.length < 2) return;
  byId("changes").hidden = false;
  const choice = byId("trend-aspect");
  const option = (index) => element("option", { value: String(index), text: topics[index].name });
  const shown = topics.map((_, index) => index).filter((index) => topics[index].mentions);
  choice.append(element("option", { value: "", text: "all mentions" }));
  for (const [label, fits] of [["Themes", isTheme], ["Aspects", (index) => !isTheme(index)]]) {
    const group = Object.assign(element("optgroup"), { label });
    group.append(...shown.filter(fits).map(option));
    if (group.children.length) choice.append(group);
  }
  const show = () => {
    const where = choice.value === "" ? content.overall : topics[Number(choice.value)];
    draw("trend", "trend", trendRows(where));
    byId("trend-table").replaceChildren(trendTable(where));
  };
  choice.addEventListener("change", show);
  show();
  const half = Math.floor(starts.length / 2);
  const title = starts.length < 4 ? "" : `Changes since ${periodName(starts[half])}`;
  if (title) significantList("change-list", content.changes, title, content.changes.length ? `No ${level} has changed significantly.` : `Not tested: no ${level} has ${content.min_reviews} reviews both before and after.`, (row) => element("li", {},
    arrow(row.before, row.after), opener(topicOf(row)), ": ",
    element("span", { classes: ["from"], text: `${sizes(row.before, row.after)[0]} → ` }), element("b", { text: sizes(row.before, row.after)[1] }),
    element("span", { classes: ["from"], text: `, ${qValue(row.q)}` })));
}

function trendTable(where) {
  const head = ["", "mentions", ...POLARITIES].map((text) => element("th", { scope: "col", text, classes: text ? ["number"] : [] }));
  const rows = content.periods.starts.map((start, index) => {
    const cell = where.by_period[index];
    const shares = POLARITIES.map((one) => element("td", { classes: ["number"], text: cell.mentions ? `${percent(cell[one][0])} (${range(cell[one])})` : "–" }));
    return element("tr", {}, element("th", { scope: "row", text: periodName(start) }), element("td", { classes: ["number"], text: count(cell.mentions) }), ...shares);
  });
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

function showReliability() {
  const { confidence, totals, model } = content;
  const known = totals.mentions - confidence.unknown;
  byId("confidence").hidden = !known;
  byId("confidence-text").textContent = known
    ? `${count(totals.low_confidence)} of ${count(known)} mentions have a confidence below ${confidence.minimum}, in the aspect or in its polarity. They count in every share, because excluding them would favor easy cases; they are not shown as examples.`
    : "The model has no calibrated confidences.";
  if (known) {
    const width = 1 / confidence.bins.length;
    draw("confidence", "confidence", confidence.bins.map((mentions, bin) => ({
      low: bin * width, high: (bin + 1) * width, share: mentions / known, low_confidence: (bin + 0.5) * width < confidence.minimum,
      tip: `${(bin * width).toFixed(2)} to ${((bin + 1) * width).toFixed(2)}\n${plural(mentions, "mention")}, ${percent(mentions / known)}`,
    })));
  }
  if (content.errors.length) {
    const rows = content.errors.map(({ kind, rows: number }) => element("tr", {}, element("td", {}, named(kind)), element("td", { classes: ["number"], text: count(number) })));
    byId("confidence-card").append(element("h3", { text: "Rows that could not be scored", style: { "margin-top": "1.2rem" } }), element("table", {}, element("tbody", {}, ...rows)));
  }
  byId("limits").append(...model.limits.map((text) => element("li", { text })), ...model.metrics.map(([name, value]) => element("li", { text: `${name}: ${value}` })));
}

function showMethod() {
  const { min_reviews: reviews, confidence } = content;
  const texts = [
    "A share is the part of the mentions with a given polarity. Mentions are those that the model extracted, or the given aspects; wrongly extracted aspects are counted too.",
    "Shares are those of the model’s predictions and include its errors. If the model makes the same errors everywhere, groups and periods remain comparable.",
    ...(NUM_THEMES ? ["A mention belongs to one theme or none. An implicit mention is a sentence that evaluates a theme without naming anything; it counts for its theme, not for an aspect. Implicit mentions are less reliable than explicit ones."] : []),
    "Intervals cover sampling error only: 95 % of Dirichlet draws around the counts, with half a count added per polarity. Mentions in the same review are not independent, so the counts are first divided by the design effect.",
    `Groups with fewer than ${reviews} reviews are faded and not compared.`,
    `A mention has low confidence if the confidence in the aspect or in its polarity is below ${confidence.minimum}. Such mentions count in all shares.`,
    "Differences between groups, and between the earlier and the later half of the periods, are tested on all three shares at once (Hotelling’s test with reviews as sampling units). q is the false discovery rate (Benjamini and Hochberg); differences with q < .05 are called significant. A difference does not prove a cause.",
    ...(content.rating ? [`Effects on ${content.rating.column} are those of a linear regression on whether a review criticizes and whether it praises each ${level}, with intervals that are robust to unequal variances (HC3). Errors of the model make effects look smaller. Those with fewer than ${reviews} reviews are not shown.`] : []),
    "Names of an aspect are merged if they differ in case, accents, articles, hyphens, plural or a simple misspelling; each aspect lists its merged names.",
    "Phrases in quotes are those that the model found to carry the sentiment. Phrases that differ only in case, articles, intensifiers or inflection are counted together.",
    "Example sentences are sampled at random from mentions with sufficient confidence and sorted by confidence. Colors show predictions, which may be wrong.",
    "Duplicates are reviews of at least 40 characters with the same text as an earlier one. Reviews without a letter, or such as “n/a”, count as empty.",
  ];
  byId("method").append(element("ul", {}, ...texts.map((text) => element("li", { text }))));
}
