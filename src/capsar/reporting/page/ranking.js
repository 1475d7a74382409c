// The most praised and most criticized aspects, with what is said about them.

const RANKED = 8;
const PHRASES_PER_ROW = 3;
const RATED_FROM = 1000; // reviews; of fewer, mentions are counted

// Both lists have the same scale.
function showRankings() {
  const rated = content.totals.reviews >= RATED_FROM;
  byId("ranking-unit").textContent = rated ? "Mentions per 1,000 reviews" : "Number of mentions";
  const lists = [["criticized", "negative"], ["praised", "positive"]].map(([id, polarity]) => [id, polarity, ranking(polarity, rated ? 1000 / content.totals.reviews : 1)]);
  const longest = Math.max(...lists.flatMap(([, , rows]) => rows.map(({ rate }) => rate[2])));
  for (const [id, polarity, rows] of lists) byId(id).replaceChildren(...rows.map((row) => rankingRow(row, polarity, longest, rated)));
}

function ranking(polarity, scale) {
  const rows = content.aspects.map((aspect, index) => ({ index, cell: aspect, rate: aspect[polarity].map((share) => share * aspect.mentions * scale) }));
  rows.sort((one, other) => other.rate[0] - one.rate[0]);
  return rows.slice(0, RANKED).filter(({ rate }) => rate[0] > 0);
}

function rankingRow({ index, cell, rate: [value, low, high] }, polarity, longest, rated) {
  const width = (number) => `${(number / longest) * 100}%`;
  const bar = element("span", { classes: ["bar"] },
    element("i", { style: { width: width(value) } }),
    element("u", { style: { left: width(low), width: `max(2px, ${width(high - low)})` } }));
  const digits = rated && value < 10 ? 1 : 0;
  const phrases = content.phrases[index][polarity].slice(0, PHRASES_PER_ROW);
  return element("li", { title: `${percent(cell[polarity][0])} of ${plural(cell.mentions, "mention")} ${polarity} (${range(cell[polarity])})` },
    opener(index, -1, polarity), bar,
    element("span", { classes: ["rate"], text: value.toFixed(digits), title: `${value.toFixed(digits)} ${rated ? "per 1,000 reviews" : "mentions"}, 95 % interval ${low.toFixed(digits)} to ${high.toFixed(digits)}` }),
    element("span", { classes: ["said"] }, ...phrases.map((phrase, number) => phraseOpener(index, polarity, number, phrase))));
}

// A phrase that opens the sentences it was found in.
function phraseOpener(aspect, polarity, number, phrase) {
  const button = phraseButton(polarity, phrase, () => openDrill(aspect, -1, polarity, number));
  button.setAttribute("aria-haspopup", "dialog");
  return button;
}

function phraseButton(polarity, { text, mentions, variants }, onClick) {
  const button = element("button", { type: "button", classes: ["phrase", polarity], title: variants.length > 1 ? `also: ${variants.slice(1).join(", ")}` : "" },
    element("q", {}, named(text)), " ", element("small", { text: count(mentions) }));
  button.addEventListener("click", onClick);
  return button;
}
