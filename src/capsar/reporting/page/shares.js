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
  const { totals, overall, confidence, quality } = content;
  const sentiment = element("div", { classes: ["card", "fact"] }, element("h2", { text: "Sentiment of all mentions" }));
  if (overall.mentions) sentiment.append(shareRow(overall), split(overall));
  else sentiment.append(element("small", { text: "No mentions are counted." }));
  const known = totals.mentions - confidence.unknown;
  const low = known ? percent(totals.low_confidence / known) : "unknown";
  const implicit = totals.implicit ? `, ${count(totals.implicit)} of them implicit` : "";
  byId("facts").append(
    sentiment,
    fact("Reviews", count(totals.reviews), `with ${plural(totals.mentions, "mention")}${implicit}; ${count(totals.without_mention)} of the reviews mention no aspect`),
    fact("Low confidence", low, known ? `of the mentions have a confidence below ${confidence.minimum}` : totals.mentions ? "the model has no calibrated confidences" : "there are no mentions"),
    fact("Check the data", ...checks(totals, quality)),
  );
}

// What an analyst should know about the reviews.
function checks({ errors, dropped, excluded }, quality) {
  const { empty = 0, duplicates = 0, language_identified: read = 0, languages = {}, is_sample: isSample } = quality ?? {};
  const foreign = Object.values(languages).reduce((sum, number) => sum + number, 0);
  const found = [
    [errors, `could not be scored`],
    [empty, "empty"],
    [duplicates, duplicates === 1 ? "duplicate" : "duplicates"],
    [foreign, `not in English (${languageNames(quality)})${isSample ? `, of ${count(read)} that were checked` : ""}`],
    [dropped, "dropped, not counted"],
  ].filter(([number]) => number).map(([number, text]) => `${count(number)} ${text}`);
  if (excluded) found.push(`${plural(excluded, "mention")} of excluded aspects not counted`);
  if (!quality) found.push("the reviews were not kept, so duplicates and languages are unknown");
  return [found.length ? "see below" : "nothing found", found.join("; ") || "no empty, duplicate or non-English reviews, and no errors"];
}

function languageNames(quality) {
  const names = new Intl.DisplayNames("en", { type: "language" });
  return Object.entries(quality?.languages ?? {}).slice(0, 3).map(([code, number]) => `${(code === "und" ? "another language" : names.of(code))} ${count(number)}`).join(", ");
}
