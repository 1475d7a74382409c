// Shares as people see them: bars from both sides, with whiskers where they may end.

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
  return [...POLARITIES].reverse().map((one) => `${one} ${percent(cell[one][0])} (${range(cell[one])})`).join("\n") + marked(cell);
}

function shareRow(cell) {
  const row = element("div", { classes: ["feeling"] });
  for (const polarity of POLARITIES) {
    row.append(element("span", { classes: [polarity] },
      element("b", { text: percent(cell[polarity][0]) }),
      element("small", { text: `${polarity} ${range(cell[polarity])}` })));
  }
  return row;
}

function fact(title, figure, told) {
  return element("div", { classes: ["card", "fact"] },
    element("h2", { text: title }), element("b", { text: figure }), element("small", { text: told }));
}

function showFacts() {
  const { totals, overall, surety } = content;
  const feeling = element("div", { classes: ["card", "fact"] }, element("h2", { text: "How people feel about what they mention" }));
  if (overall.mentions) feeling.append(shareRow(overall), split(overall));
  else feeling.append(element("small", { text: "No aspect is mentioned anywhere." }));
  const known = totals.mentions - surety.unknown;
  const unsure = known ? percent(totals.unsure / known) : "not known";
  byId("facts").append(
    feeling,
    fact("Mentions", count(totals.mentions), `of aspects, under ${plural(totals.names, "name")}; the ${content.aspects.length} shown here are ${percent(totals.mentions_shown / Math.max(1, totals.mentions))} of them`),
    fact("Unsure", unsure, known ? `of the mentions had a confidence below ${surety.limit}: the model would rather not have said` : "the model gave no confidences"),
    fact("Not answered", count(totals.errors), `of ${plural(totals.rows, "row")} had an error; ${count(totals.without_aspect)} mention no aspect`),
  );
}
