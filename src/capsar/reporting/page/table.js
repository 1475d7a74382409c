// The table of themes and aspects: sort, search, open.

const FIRST = 20;
const table = { key: "mentions", falling: true, all: false, open: new Set() };

function sortValue(topic, key) {
  if (key === "name") return topic.name.toLocaleLowerCase();
  if (key === "low_confidence") return topic.low_confidence / topic.mentions;
  return key === "mentions" ? topic.mentions : topic[key][0];
}

function sorted(indices) {
  const direction = table.falling ? -1 : 1;
  return [...indices].sort((one, other) => {
    const [a, b] = [sortValue(topics[one], table.key), sortValue(topics[other], table.key)];
    return a < b ? -direction : a > b ? direction : 0;
  });
}

// Themes, each followed by its parts if it is open; or aspects.
function tree(indices, depth = 0) {
  return sorted(indices).flatMap((index) => [topicRow(index, depth), ...(isTheme(index) && table.open.has(index) ? tree(partsOf(index), depth + 1) : [])]);
}

function showTable() {
  const wanted = byId("search").value.trim().toLocaleLowerCase();
  const fits = ({ name, variants = [] }) => [name, ...variants.map(([one]) => one)].some((one) => one.toLocaleLowerCase().includes(wanted));
  const body = byId("aspect-table").tBodies[0];
  if (wanted) {
    const found = topics.map((_, index) => index).filter((index) => topics[index].mentions && fits(topics[index]));
    body.replaceChildren(...sorted(found).map((index) => topicRow(index, 0, false)));
    byId("matches").textContent = `${count(found.length)} found`;
  } else {
    const rows = tree(mainTopics);
    const rest = level === "theme" ? partsOf(-1) : [];
    if (rest.length) rows.push(otherRow(rest.length), ...(table.open.has(-1) ? sorted(rest).map((index) => topicRow(index, 1)) : []));
    body.replaceChildren(...(table.all || level === "theme" ? rows : rows.slice(0, FIRST)));
    byId("matches").textContent = "";
  }
  byId("more").hidden = level === "theme" || mainTopics.length <= FIRST || Boolean(wanted);
  byId("more").textContent = table.all ? `Show the first ${FIRST} only` : `Show all ${mainTopics.length}`;
}

function toggle(index, label) {
  const open = table.open.has(index);
  const button = element("button", { type: "button", classes: ["toggle"], text: open ? "▾" : "▸", ariaLabel: `Aspects of ${label}` });
  button.setAttribute("aria-expanded", String(open));
  button.addEventListener("click", () => {
    if (!table.open.delete(index)) table.open.add(index);
    showTable();
    byId("aspect-table").querySelector(`[data-toggle="${index}"]`)?.focus();
  });
  button.dataset.toggle = String(index);
  return button;
}

function otherRow(number) {
  const cell = element("th", { scope: "row", colSpan: 6 }, toggle(-1, "no theme"), element("span", { classes: ["quiet"], text: `${plural(number, "aspect")} without a theme` }));
  return element("tr", {}, cell);
}

function topicRow(index, depth, foldable = true) {
  const topic = topics[index];
  const others = (topic.variants ?? []).slice(1).map(([name]) => name);
  const name = element("th", { scope: "row", style: { "--depth": String(depth) } });
  if (isTheme(index) && foldable && partsOf(index).length) name.append(toggle(index, topic.name));
  name.append(opener(index));
  if (others.length) {
    const also = element("span", { classes: ["also"], text: "also " });
    others.slice(0, 4).forEach((one, order) => also.append(order ? ", " : "", named(one)));
    if (others.length > 4) also.append(` and ${others.length - 4} more`);
    name.append(also);
  }
  const said = ["negative", "positive"].filter((polarity) => topic.phrases[polarity].length).map((polarity) => phraseOpener(index, polarity, 0));
  if (said.length) name.append(element("span", { classes: ["said"] }, ...said));
  const share = (one) => element("td", { classes: ["number", one] }, element("b", { text: percent(topic[one][0]) }), " ", element("small", { text: range(topic[one]) }));
  return element("tr", { classes: isTheme(index) ? ["theme"] : [] }, name,
    element("td", { classes: ["number", "count"], text: count(topic.mentions) }),
    share("negative"),
    element("td", { classes: ["spread"] }, split(topic)),
    share("positive"),
    element("td", { classes: ["number", "low"], text: lowConfidence(topic) }));
}

function prepareTable() {
  for (const button of document.querySelectorAll("[data-sort]")) {
    button.addEventListener("click", () => {
      const key = button.dataset.sort;
      table.falling = key === table.key ? !table.falling : key !== "name";
      table.key = key;
      for (const other of document.querySelectorAll("[data-sort]")) {
        other.parentNode.setAttribute("aria-sort", other !== button ? "none" : table.falling ? "descending" : "ascending");
      }
      showTable();
    });
  }
  byId("aspects-title").textContent = level === "theme" ? "Themes and aspects" : "All aspects";
  // On paper, everything is open and light.
  addEventListener("beforeprint", () => {
    table.all = true;
    for (let index = -1; index < NUM_THEMES; index += 1) table.open.add(index);
    for (const one of document.querySelectorAll("main details")) one.open = true;
    for (const one of document.querySelectorAll(".significant button:not(.open)")) one.click();
    document.documentElement.style.colorScheme = "light";
    showTable();
    redrawAll();
  });
  addEventListener("afterprint", () => {
    document.documentElement.style.colorScheme = "";
    table.open.clear();
    table.all = false;
    for (const one of document.querySelectorAll("main details")) one.open = false;
    showTable();
    redrawAll();
  });
  byId("search").addEventListener("input", showTable);
  byId("more").addEventListener("click", () => { table.all = !table.all; showTable(); });
  showTable();
}
