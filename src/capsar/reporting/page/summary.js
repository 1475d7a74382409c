// The first screen: findings in words, and what matters most, with what is said about it.

const SHOWN = 10;
const PHRASES_PER_SIDE = 3;
const RATED_FROM = 1000; // reviews; of fewer, mentions are counted

function joined(parts) {
  return parts.flatMap((part, index) => [index === 0 ? "" : index === parts.length - 1 ? " and " : ", ", ...[part].flat()]);
}

const byName = (name) => mainTopics.find((index) => topics[index].name === name);
const withKind = (index) => (NUM_THEMES && !isTheme(index) ? ["the aspect ", opener(index)] : [opener(index)]);

// One line each; a group or a change is only named if it is significant.
function showFindings() {
  const { summary, rating, periods } = content;
  const lines = [];
  const add = (polarity, ...parts) => lines.push(element("li", { classes: polarity ? [polarity] : [] }, ...parts.flat()));
  for (const [title, polarity] of [["criticized", "negative"], ["praised", "positive"]]) {
    const named = summary[title].map(byName).map((index) => [opener(index, -1, polarity), ` (${rateText(rateOf(index, polarity)[0])})`]);
    if (named.length) add(polarity, `Most ${title}, by mentions${isRated ? " per 1,000 reviews" : ""}: `, joined(named), ".");
  }
  const worse = summary.more_criticized_than_praised.map(byName).map((index) => [opener(index), ` (net ${points(topics[index].net[0])})`]);
  if (worse.length) add("negative", "More criticized than praised: ", joined(worse), ".");
  const largest = (rows, one, other) => rows.filter((row) => row.q < SIGNIFICANT && !isNeutral(row[one], row[other]))
    .sort((a, b) => Math.abs(b[other].net[0] - b[one].net[0]) - Math.abs(a[other].net[0] - a[one].net[0]))[0];
  const ofLevel = (rows) => (rows.some((row) => row.q < SIGNIFICANT && level in row) ? rows.filter((row) => level in row) : rows);
  const different = largest(ofLevel(content.differences), "rest", "here");
  if (different) add("", element("b", {}, named(content.groups.names[different.group])), " differs most from all others in ", withKind(topicOf(different)), `: net ${points(different.here.net[0])} in ${plural(different.here.reviews, "review")}, others ${points(different.rest.net[0])}.`);
  const changed = largest(ofLevel(content.changes), "before", "after");
  if (changed) add("", `Changed most since ${periodName(periods.starts[Math.floor(periods.starts.length / 2)])}: `, withKind(topicOf(changed)), `, net ${points(changed.before.net[0])} to ${points(changed.after.net[0])}.`);
  const driver = drivers().find(({ polarity, effect }) => polarity === "negative" && effect.effect[2] < 0);
  if (driver) add("", `Lower ${rating.column} go most with criticism of `, withKind(driver.topic), `: ${signed(driver.effect.effect[0])} (${driver.effect.effect.slice(1).map(signed).join(" to ")}) in ${plural(driver.effect.reviews, "review")}.`);
  byId("findings").append(...lines);
}

const isRated = content.totals.reviews >= RATED_FROM;
const scale = isRated ? 1000 : content.totals.reviews;
const rateOf = (index, polarity) => topics[index].per_review[polarity].map((rate) => rate * scale);
const rateText = (value) => (isRated && value < 10 ? value.toFixed(1) : count(Math.round(value)));

// The most criticized and the most praised topics, with one scale for all bars.
function showMatters() {
  const by = (polarity) => [...mainTopics].sort((one, other) => rateOf(other, polarity)[0] - rateOf(one, polarity)[0]);
  const ranked = new Set([...by("negative").slice(0, SHOWN - 3), ...by("positive").slice(0, 3), ...by("negative")]);
  const chosen = new Set([...ranked].slice(0, SHOWN));
  const rows = by("negative").filter((index) => chosen.has(index));
  const longest = Math.max(...rows.flatMap((index) => [rateOf(index, "negative")[2], rateOf(index, "positive")[2]]));
  byId("matters-unit").textContent = isRated ? "Mentions per 1,000 reviews" : "Number of mentions";
  byId("matters").replaceChildren(...rows.map((index) => element("li", {}, mattersName(index),
    ...["negative", "positive"].flatMap((polarity) => mattersSide(index, polarity, longest)))));
}

function mattersName(index) {
  const topic = topics[index];
  const name = element("div", { classes: ["topic"] }, opener(index), element("small", { text: `net ${points(topic.net[0])} · ${plural(topic.mentions, "mention")}` }));
  const change = changeOf.get(index);
  if (change) name.append(element("small", {}, arrow(change.before, change.after), `was ${sizes(change.before, change.after)[0]} before`));
  return name;
}

function mattersSide(index, polarity, longest) {
  const [value, low, high] = rateOf(index, polarity);
  const width = (number) => `${(number / longest) * 100}%`;
  const start = polarity === "negative" ? "right" : "left";
  const bar = element("div", { classes: ["side", polarity], title: `${rateText(value)}${isRated ? " per 1,000 reviews" : " mentions"}, 95 % interval ${rateText(low)} to ${rateText(high)}` },
    element("i", { style: { width: width(value) } }),
    element("u", { style: { [start]: width(low), width: `max(2px, ${width(high - low)})` } }),
    element("span", { style: { [start]: `calc(${width(high)} + .4rem)` }, text: rateText(value) }));
  return [bar, element("div", { classes: ["said", polarity] }, ...telling(index, polarity).map((place) => phraseOpener(index, polarity, place)))];
}

// The phrases that are frequent here and rare elsewhere: not "good".
function telling(index, polarity) {
  const spread = (text) => mainTopics.filter((one) => topics[one].phrases[polarity].some((phrase) => phrase.text === text)).length;
  return topics[index].phrases[polarity]
    .map(({ text, mentions }, place) => ({ place, mentions, weight: mentions / spread(text) }))
    .filter(({ mentions }) => mentions > 1 || !isRated)
    .sort((one, other) => other.weight - one.weight).slice(0, PHRASES_PER_SIDE).map(({ place }) => place);
}
