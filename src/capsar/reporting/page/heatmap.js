// Topics by groups, colored by net sentiment, as a table. The longer side is the rows.

const HEATMAP_TOPICS = 14;
const UPRIGHT = 6; // more columns than this have vertical headers

function showHeatmap() {
  const { names } = content.groups;
  const shown = mainTopics.slice(0, HEATMAP_TOPICS);
  const qValues = new Map(content.differences.map((row) => [`${topicOf(row)} ${row.group}`, row.q]));
  const groups = names.map((_, number) => number);
  const byRows = shown.length >= groups.length;
  const [rows, columns] = byRows ? [shown, groups] : [groups, shown];
  const title = (index, isRow) => (isRow === byRows ? opener(index) : named(names[index]));
  const cell = (row, column) => {
    const [index, group] = byRows ? [row, column] : [column, row];
    const found = topics[index].by_group[group];
    if (!found.mentions) return element("td");
    const q = qValues.get(`${index} ${content.groups.is_pair ? 0 : group}`);
    const [net] = found.net;
    const made = element("td", {
      classes: [net < 0 ? "negative" : "positive", ...(few(found) ? ["few"] : [])],
      style: { "--strength": `${Math.round(Math.abs(net) * 100)}%` },
      title: `${topics[index].name}, ${names[group]}\n${size(found)}\n${shareText(found)}${q === undefined ? "" : `\ncompared with all others: ${qValue(q)}`}`,
      text: points(net),
    });
    if (q < SIGNIFICANT) made.append(element("b", { text: "•", title: "significant" }));
    made.addEventListener("click", () => openDrill(index, group));
    return made;
  };
  const table = byId("heatmap");
  table.classList.toggle("vertical", columns.length > UPRIGHT);
  table.replaceChildren(
    element("thead", {}, element("tr", {}, element("td"), ...columns.map((one) => element("th", { scope: "col" }, element("span", {}, title(one, false)))))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, element("th", { scope: "row" }, title(row, true)), ...columns.map((column) => cell(row, column))))));
}
