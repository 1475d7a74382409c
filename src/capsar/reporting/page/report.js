// The page, from top to bottom.

function showHead() {
  const { totals, periods, groups, source, model } = content;
  document.title = content.title;
  byId("title").textContent = content.title;
  const parts = [`${plural(totals.mentions, "mention")} of what people like and dislike, in ${plural(totals.reviews, "review")}`];
  if (periods.starts.length) parts.push(`${periodName(periods.starts[0])} to ${periodName(periods.starts.at(-1))}`);
  if (groups.names.length) parts.push(`by ${groups.column}`);
  byId("lead").textContent = `${parts.join(" · ")}. ${isCorrected ? "Shares are corrected for the model’s known confusions." : ""}`;
  const notices = [];
  if (model.uncorrected) notices.push(`Not corrected. ${model.uncorrected}`);
  for (const warning of model.confusion_warnings) notices.push(`Of the confusion in ${model.confusion_source}: ${warning}.`);
  const asTold = content.aspects.filter((aspect) => !aspect.corrected).length;
  if (isCorrected && asTold) notices.push(`${plural(asTold, "aspect")} of the ${content.aspects.length} below ${asTold === 1 ? "is" : "are"} shown as told: the model’s known confusions cannot explain what it told there. ${asTold === 1 ? "It is" : "They are"} marked ${AS_TOLD}.`);
  if (!source.is_whole) notices.push("Not all of the corpus has been scored yet: run capsar score again to finish it.");
  if (periods.undated) notices.push(`${plural(periods.undated, "row")} without a date that can be read, or far from all others, ${periods.undated === 1 ? "is" : "are"} in no period.`);
  byId("notices").append(...notices.map((text) => element("p", { text })));
  byId("made").textContent = `Made by capsar ${content.capsar_version} from ${plural(source.files, "file")} of ${source.name}, scored by ${model.name}. This file needs no network and sends nothing anywhere.`;
}

function showAll() {
  showHead();
  showFacts();
  for (const [id, polarity] of [["praised", "positive"], ["blamed", "negative"]]) {
    draw(id, id, ranking(polarity), ({ aspect }) => openDrill(aspect, -1, polarity));
  }
  showDifferences();
  showChanges();
  prepareTable();
  prepareDrill();
  showTrust();
  showMethod();
  const wanted = /^#aspect=(\d+)$/.exec(location.hash);
  if (wanted && content.aspects[Number(wanted[1])]) openDrill(Number(wanted[1]));
}

showAll();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAgain);
