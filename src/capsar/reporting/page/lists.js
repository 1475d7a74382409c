// What differs and what has changed; what is known to be wrong; how it all was made.

const LONGEST_LIST = 10;

function clearList(place, rows, title, none, item) {
  const clear = rows.filter((row) => row.q < CLEAR);
  const box = element("div", { classes: ["clear"] }, element("h3", { text: title }));
  if (!clear.length) box.append(element("p", { classes: ["hint"], text: none }));
  const list = element("ul", {}, ...clear.slice(0, LONGEST_LIST).map(item));
  if (clear.length) box.append(list);
  if (clear.length > LONGEST_LIST) {
    const more = element("button", { type: "button", text: `Show all ${clear.length}` });
    more.addEventListener("click", () => { list.replaceChildren(...clear.map(item)); more.remove(); });
    box.append(more);
  }
  byId(place).replaceChildren(box);
}

// Where mostly the neutral share differs, that is what is told.
const isNeutral = (from, to) => Math.abs(to.neutral[0] - from.neutral[0]) > Math.abs(to.net[0] - from.net[0]);

function arrow(from, to) {
  if (isNeutral(from, to)) return element("b", { text: "○ " });
  const up = to.net[0] >= from.net[0];
  return element("b", { classes: [up ? "up" : "down"], text: up ? "▲ " : "▼ ", ariaLabel: up ? "better: " : "worse: " });
}

function sizes(from, to) {
  return isNeutral(from, to) ? [`neutral ${percent(from.neutral[0])}`, percent(to.neutral[0])] : [points(from.net[0]), points(to.net[0])];
}

function showDifferences() {
  const { names, column, in_all: inAll } = content.groups;
  if (names.length < 2) return;
  byId("differences").hidden = false;
  byId("few").textContent = count(content.fewest_reviews);
  byId("differences-title").textContent = `By ${column}`;
  const clear = new Map(content.differences.map((row) => [`${row.aspect} ${row.group}`, row.q]));
  const tested = content.differences.some((row) => row.group > 0);
  const rows = content.aspects.slice(0, 14).flatMap((aspect, index) => names.map((group, number) => {
    const cell = aspect.by_group[number];
    if (!cell.mentions) return null;
    const q = clear.get(`${index} ${tested ? number : 0}`);
    return { aspect: index, number, name: aspect.name, group, net: cell.net[0], label: points(cell.net[0]) + (q < CLEAR ? " •" : ""), few: few(cell),
      tip: `${aspect.name}, ${group}\n${size(cell)}\n${shareText(cell)}${q === undefined ? "" : `\nagainst all others: ${chanceOf(q)}`}` };
  })).filter(Boolean);
  byId("grid").style.setProperty("--least", `${12 + names.length * 4.5}rem`);
  draw("grid", "grid", rows, ({ aspect, number }) => openDrill(aspect, number));
  const none = `No ${column} differs clearly from all others in any aspect.`;
  clearList("difference-list", content.differences, "Clear differences", none, (row) => element("li", {},
    arrow(row.rest, row.here), named(names[row.group]), ", ", opener(row.aspect, row.group), ": ",
    element("b", { text: sizes(row.here, row.rest)[0] }),
    element("span", { classes: ["from"], text: ` against ${sizes(row.here, row.rest)[1]} elsewhere, ${chanceOf(row.q)}` })));
  if (inAll > names.length) byId("difference-list").append(element("p", { classes: ["hint"], text: `The ${names.length} most frequent of about ${count(inAll)} are compared, each with all others together.` }));
}

function showChanges() {
  const { starts } = content.periods;
  if (starts.length < 2) return;
  byId("changes").hidden = false;
  const choice = byId("trend-aspect");
  choice.append(element("option", { value: "", text: "all aspects" }), ...content.aspects.map((aspect, index) => element("option", { value: String(index), text: aspect.name })));
  const show = () => {
    const where = choice.value === "" ? content.overall : content.aspects[Number(choice.value)];
    draw("trend", "trend", trendRows(where));
    byId("trend-table").replaceChildren(trendTable(where));
  };
  choice.addEventListener("change", show);
  show();
  const half = Math.floor(starts.length / 2);
  const title = starts.length < 4 ? "" : `What changed since ${periodName(starts[half])}`;
  if (title) clearList("change-list", content.changes, title, "No aspect is felt clearly differently than before.", (row) => element("li", {},
    arrow(row.before, row.after), opener(row.aspect), ": ",
    element("span", { classes: ["from"], text: `${sizes(row.before, row.after)[0]} → ` }), element("b", { text: sizes(row.before, row.after)[1] }),
    element("span", { classes: ["from"], text: `, ${chanceOf(row.q)}` })));
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

function showTrust() {
  const { surety, totals, model } = content;
  const known = totals.mentions - surety.unknown;
  byId("surety").hidden = !known;
  byId("sure-told").textContent = known
    ? `${count(totals.unsure)} of ${count(known)} mentions had a confidence below ${surety.limit}, of their polarity or of being an aspect. They count in every share, because leaving them out would favor what is easy to tell; as examples they are not shown.`
    : "The model that scored gave no confidences: it has no calibration.";
  if (known) {
    const width = 1 / surety.bins.length;
    draw("surety", "surety", surety.bins.map((mentions, bin) => ({
      low: bin * width, high: (bin + 1) * width, share: mentions / known, unsure: (bin + 0.5) * width < surety.limit,
      tip: `${(bin * width).toFixed(2)} to ${((bin + 1) * width).toFixed(2)}\n${plural(mentions, "mention")}, ${percent(mentions / known)}`,
    })));
  }
  if (content.errors.length) {
    const rows = content.errors.map(({ kind, rows: number }) => element("tr", {}, element("td", {}, named(kind)), element("td", { classes: ["number"], text: count(number) })));
    byId("sure").append(element("h3", { text: "Rows without an answer", style: { "margin-top": "1.2rem" } }), element("table", {}, element("tbody", {}, ...rows)));
  }
  if (model.confusion) byId("confusion").append(confusionTable(model.confusion));
  byId("limits").append(...model.limits.map((text) => element("li", { text })), ...model.figures.map(([name, value]) => element("li", { text: `${name}: ${value}` })));
}

function confusionTable(matrix) {
  const head = ["truly", ...POLARITIES.map((one) => `told ${one}`)].map((text) => element("th", { scope: "col", text }));
  const rows = matrix.map((row, truth) => {
    const sum = row.reduce((one, other) => one + other);
    return element("tr", {}, element("th", { scope: "row", text: POLARITIES[truth] }), ...row.map((number, told) =>
      element("td", { classes: ["rate", truth === told ? "positive" : "negative"], text: percent(number / sum), title: `${number} of ${sum}`, style: { "--rate": String(number / sum) } })));
  });
  const examples = matrix.flat().reduce((one, other) => one + other);
  return element("table", {}, element("caption", { text: `Measured on ${count(examples)} labelled examples: ${content.model.confusion_source}` }), element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

function showMethod() {
  const corrected = isCorrected
    ? "Shares are corrected for the model’s confusion: the shares it told are multiplied by the inverse of its confusion matrix, above. That the matrix is known from some examples only, and that each aspect is confused in its own way, is part of the intervals. Where no mix of polarities would be told so, the matrix does not hold: such shares are shown as told, and marked."
    : `Shares are those that the model told, not corrected for what it confuses. ${content.model.uncorrected}`;
  const told = [
    "A share is of mentions: what part of the times that an aspect is mentioned it is felt so. Aspects are what the model found or was asked about; what it took for an aspect and is none is counted too.",
    corrected,
    "Intervals hold 95 % of what might be: other reviews of the same kind are drawn (Dirichlet draws around the counts, with half a count more for each polarity), and mentions in one review count as less than as many reviews (design effect). Groups of one aspect share what the model gets wrong about it, so their intervals overlap even where they clearly differ.",
    `Shares of small groups are drawn towards the middle, so those of an aspect’s groups and periods need not lie around that of the whole. What fewer than ${content.fewest_reviews} reviews mention is faded.`,
    `Unsure is a mention whose confidence is below ${content.surety.limit}: the lower of that of being an aspect and that of its polarity. Intervals do not allow for it: they are of shares among all mentions, be they aspects or not.`,
    `Differences between groups, and between the earlier and the later half of time, are tested on all three shares at once (Hotelling’s test on told shares, with reviews as units), where both sides have at least ${content.fewest_reviews} reviews. q is the rate of false alarms among all differences at least as clear, of all that were tested (Benjamini and Hochberg); what is called clear has q < .05. Groups are not assigned by lot: a difference is no proof of a cause.`,
    "Names are merged over case, accents, articles, hyphens, plurals and plain misspellings; the names that were merged are shown with each aspect.",
    "Sentences are drawn by chance among those that the model was sure enough of, and sorted by how sure it was. Colors are what the model told, which may be wrong.",
  ];
  byId("method").append(element("ul", {}, ...told.map((text) => element("li", { text }))));
}
