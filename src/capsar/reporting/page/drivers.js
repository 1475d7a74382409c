// How far criticism and praise move the rating.

const signed = (number) => `${number < 0 ? "−" : "+"}${Math.abs(number).toFixed(2)}`;

// Effects, the ones first that move the mean rating of all reviews most.
function drivers() {
  const { rating } = content;
  if (!rating) return [];
  return mainTopics.flatMap((topic) => Object.entries(topics[topic].rating ?? {}).map(([polarity, effect]) => ({ topic, polarity, effect, total: (effect.effect[0] * effect.reviews) / rating.reviews })))
    .sort((one, other) => Math.abs(other.total) - Math.abs(one.total));
}

function showDrivers() {
  const { rating } = content;
  const found = drivers();
  if (!rating) return;
  byId("drivers").hidden = false;
  byId("drivers-title").textContent = `What goes with high and low ${rating.column}`;
  byId("drivers-hint").textContent = `Mean ${rating.mean.toFixed(2)} in ${plural(rating.reviews, "review")} with a number. Reviews that criticize or praise a ${level}, compared with reviews that do not, all other ${level}s being equal; lines are 95 % intervals. An association is no proof of a cause. Not shown: ${level}s that fewer than ${content.min_reviews} reviews criticize (or praise), and ${level}s that always occur together.`;
  if (!found.length) {
    byId("drivers-hint").textContent = `Mean ${rating.mean.toFixed(2)} in ${plural(rating.reviews, "review")} with a number. Nothing could be estimated: no ${level} is criticized, or praised, in ${content.min_reviews} of them.`;
    return;
  }
  const order = [...new Set(found.map(({ topic }) => topic))];
  draw("drivers-chart", "drivers", order.flatMap((topic) => found.filter((one) => one.topic === topic).map(({ polarity, effect: { effect: [value, low, high], reviews } }) => ({
    topic, name: topics[topic].name, polarity, value, low, high,
    tip: `${topics[topic].name}, ${polarity}\n${signed(value)} (${signed(low)} to ${signed(high)})\nin ${plural(reviews, "review")}`,
  }))), ({ topic, polarity }) => topic === undefined || openDrill(topic, -1, polarity));
  const head = ["", "", "reviews", "effect", "95 % interval", "on the mean"].map((text, place) => element("th", { scope: "col", text, classes: place > 1 ? ["number"] : [] }));
  const rows = found.map(({ topic, polarity, effect: { effect: [value, low, high], reviews }, total }) => element("tr", {},
    element("th", { scope: "row" }, opener(topic, -1, polarity)), element("td", { text: polarity === "negative" ? "criticized" : "praised" }),
    ...[count(reviews), signed(value), `${signed(low)} to ${signed(high)}`, signed(total)].map((text) => element("td", { classes: ["number"], text }))));
  byId("drivers-table").replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)));
}
