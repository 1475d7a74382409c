// Shares as text and as bars from both sides, with whiskers for intervals.

function split(cell) {
  const bar = element("div", { classes: ["split"], title: shareText(cell) });
  for (const [polarity, side] of [["negative", "left"], ["positive", "right"]]) {
    const [share, low, high] = cell[polarity];
    bar.append(element("i", { classes: [polarity], style: { width: `${share * 100}%` } }));
    bar.append(element("u", { style: { [side]: `${low * 100}%`, width: `max(2px, ${(high - low) * 100}%)` } }));
  }
  return bar;
}

function shareText(cell) {
  return [...POLARITIES].reverse().map((one) => `${one} ${percent(cell[one][0])} (${range(cell[one])})`).join("\n");
}

function shareRow(cell) {
  const row = element("div", { classes: ["share-row"] });
  for (const polarity of POLARITIES) {
    row.append(element("span", { classes: [polarity] },
      element("b", { text: percent(cell[polarity][0]) }),
      element("small", { text: `${polarity} ${range(cell[polarity])}` })));
  }
  return row;
}

function fact(title, number, text) {
  return element("div", { classes: ["card", "fact"] },
    element("h2", { text: title }), element("b", { text: number }), element("small", { text }));
}

function showFacts() {
  const { totals, overall, confidence } = content;
  const sentiment = element("div", { classes: ["card", "fact"] }, element("h2", { text: "Sentiment of all mentions" }));
  if (overall.mentions) sentiment.append(shareRow(overall), split(overall));
  else sentiment.append(element("small", { text: "No aspects were found." }));
  const known = totals.mentions - confidence.unknown;
  const low = known ? percent(totals.low_confidence / known) : "unknown";
  byId("facts").append(
    sentiment,
    fact("Mentions", count(totals.mentions), `of aspects, under ${plural(totals.names, "name")}; the ${content.aspects.length} aspects shown cover ${percent(totals.mentions_shown / Math.max(1, totals.mentions))} of them`),
    fact("Low confidence", low, known ? `of the mentions have a confidence below ${confidence.minimum}` : "the model has no calibrated confidences"),
    fact("Errors", count(totals.errors), `of ${plural(totals.rows, "row")} could not be scored; ${count(totals.without_aspect)} mention no aspect`),
  );
}
