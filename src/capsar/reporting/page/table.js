// The table of all aspects: sort, search, open.

const FIRST = 20;
const table = { key: "mentions", falling: true, all: false };

function sortValue(aspect, key) {
  if (key === "name") return aspect.name.toLocaleLowerCase();
  if (key === "low_confidence") return aspect.low_confidence / aspect.mentions;
  return key === "mentions" ? aspect.mentions : aspect[key][0];
}

function showTable() {
  const wanted = byId("search").value.trim().toLocaleLowerCase();
  const fits = ({ name, variants }) => [name, ...variants.map(([one]) => one)].some((one) => one.toLocaleLowerCase().includes(wanted));
  const found = content.aspects.map((aspect, index) => [aspect, index]).filter(([aspect]) => fits(aspect));
  const direction = table.falling ? -1 : 1;
  found.sort(([one], [other]) => {
    const [a, b] = [sortValue(one, table.key), sortValue(other, table.key)];
    return a < b ? -direction : a > b ? direction : 0;
  });
  const shownRows = table.all || wanted ? found : found.slice(0, FIRST);
  byId("aspect-table").tBodies[0].replaceChildren(...shownRows.map(([aspect, index]) => aspectRow(aspect, index)));
  byId("more").hidden = found.length <= FIRST || Boolean(wanted);
  byId("more").textContent = table.all ? `Show the first ${FIRST} only` : `Show all ${found.length}`;
  byId("matches").textContent = wanted ? plural(found.length, "aspect") + " found" : "";
}

function aspectRow(aspect, index) {
  const others = aspect.variants.slice(1).map(([name]) => name);
  const name = element("th", { scope: "row" }, opener(index));
  if (others.length) {
    const also = element("span", { classes: ["also"], text: "also " });
    others.slice(0, 4).forEach((one, index) => also.append(index ? ", " : "", named(one)));
    if (others.length > 4) also.append(` and ${others.length - 4} more`);
    name.append(also);
  }
  const said = ["negative", "positive"].flatMap((polarity) =>
    content.phrases[index][polarity].slice(0, 1).map((phrase) => phraseOpener(index, polarity, 0, phrase)));
  if (said.length) name.append(element("span", { classes: ["said"] }, ...said));
  const share = (one) => element("td", { classes: ["number", one] }, element("b", { text: percent(aspect[one][0]) }), " ", element("small", { text: range(aspect[one]) }));
  return element("tr", {}, name,
    element("td", { classes: ["number", "count"], text: count(aspect.mentions) }),
    share("negative"),
    element("td", { classes: ["spread"] }, split(aspect)),
    share("positive"),
    element("td", { classes: ["number", "low"], text: percent(aspect.low_confidence / aspect.mentions) }));
}

function opener(index, group = -1, polarity = "") {
  const button = element("button", { type: "button", classes: ["open"] }, named(content.aspects[index].name));
  button.setAttribute("aria-haspopup", "dialog");
  button.addEventListener("click", () => openDrill(index, group, polarity));
  return button;
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
  byId("search").addEventListener("input", showTable);
  byId("more").addEventListener("click", () => { table.all = !table.all; showTable(); });
  showTable();
}
